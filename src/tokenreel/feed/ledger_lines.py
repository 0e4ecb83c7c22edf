"""Lines of a ledger: written, read back with their chain checked, and sorted out by attempt."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StateError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

START = hashlib.sha256(b"tokenreel-ledger-1\n").hexdigest()
"""The sum before the first line."""
TAIL = 1 << 18
_SUM = len(',"sum":""}\n') + 64
_HEAD = b'{"run":'
_NUMBERS = ("attempt", "step", "first", "count")


@dataclass(frozen=True, slots=True)
class Line:
    """What one step consumed, in one attempt at it."""

    run: str
    attempt: int
    step: int
    first: int
    """First sample."""
    count: int
    fingerprint: str
    """Of the order."""
    sum: str
    more: dict[str, Any] = field(default_factory=dict)
    """First line of an attempt: `rows`, and `incomplete` where that is so."""
    end: int = 0
    """Byte that the line ends before."""


def line_bytes(said: dict[str, Any], before: str) -> tuple[bytes, str]:
    """Return a line's bytes and its sum, chained to the sum `before` it."""
    text = json.dumps(said, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(f"{before}\n{text}\n".encode()).hexdigest()
    return f'{text[:-1]},"sum":"{digest}"}}\n'.encode(), digest


def parse_lines(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Yield the lines of a ledger, each checked against the one before; a torn last line is left out.

    Raises `StateError`: STA020 a line that was changed, removed or put in, STA022 a file that is no ledger; `StorageError`
    (STO001, STO002). Cost: about 6 us a line; memory does not grow with the file.
    """
    from tokenreel.store.atomic import read_error

    before, end = START, 0
    try:
        with Path(path).open("rb") as file:
            for number, raw in enumerate(file, 1):
                if not raw.endswith(b"\n"):
                    if number == 1:
                        _check_torn(raw, path)
                    break
                end += len(raw)
                line = _line(raw, before, path, number, end)
                before = line.sum
                yield line
    except OSError as error:
        raise read_error(path, error) from error


def last_line(path: str | os.PathLike[str], size: int) -> Line | None:
    """Return the last whole line of a ledger of `size` bytes, None where it has none; the rest stays unread.

    Checks the first line and the last ones, as far as `TAIL` bytes reach. Raises as `parse_lines`.
    """
    from tokenreel.store.atomic import read_error

    try:
        with Path(path).open("rb") as file:
            raw = file.readline()
            if not raw.endswith(b"\n"):
                _check_torn(raw, path)
                return None
            line = _line(raw, START, path, 1, len(raw))
            begin = max(line.end, size - TAIL)
            file.seek(begin)
            tail = file.read(size - begin)
    except OSError as error:
        raise read_error(path, error) from error
    whole = begin == line.end
    if not whole:
        # Somewhere in a line: the next one's sum is taken as it is said.
        skipped = tail.find(b"\n") + 1
        begin, tail = begin + skipped, tail[skipped:]
    before = line.sum if whole else None
    for raw in tail.splitlines(keepends=True):
        if not raw.endswith(b"\n"):
            break
        begin += len(raw)
        if before is None:
            before = raw[-_SUM + 8 : -3].decode("ascii", "replace")
            continue
        line, whole = _line(raw, before, path, 0, begin), True
        before = line.sum
    if not whole:
        # A crash may leave more zeros than the end that was read has lines: nothing is cut off before all were read.
        for line in parse_lines(path):  # noqa: B007 (the last one)
            pass
    return line


def _check_torn(raw: bytes, path: object) -> None:
    """Raise STA022 unless a file's only line, which has no end, may be the beginning of one of ours: it is cut off."""
    head = raw.rstrip(b"\0")[: len(_HEAD)]
    if not _HEAD.startswith(head):
        raise StateError("STA022", path=path, offset=0, line=1, expected="a line with its sum")


def _line(raw: bytes, before: str, path: object, number: int, end: int) -> Line:
    mark = raw.rfind(b',"sum":"')
    offset = end - len(raw)
    if mark < 0 or len(raw) - mark != _SUM or not raw.endswith(b'"}\n'):
        code = "STA022" if number == 1 else "STA020"
        raise StateError(code, path=path, offset=offset, line=number or None, expected="a line with its sum")
    place: dict[str, Any] = {"path": path, "offset": offset, "line": number or None}
    digest = hashlib.sha256(before.encode() + b"\n" + raw[:mark] + b"}\n").hexdigest()
    said = raw[mark + 8 : mark + 72].decode("ascii", "replace")
    if digest != said:
        raise StateError("STA020", expected=digest[:16], found=said[:16], **place)
    try:
        fields = json.loads(raw[:mark] + b"}")
        numbers = {name: fields.pop(name) for name in _NUMBERS}
        run, fingerprint = fields.pop("run"), fields.pop("fingerprint")
    except (ValueError, KeyError, AttributeError) as error:
        raise StateError("STA022", f"a line lacks what every line has: {error!r}", **place) from error
    if not all(type(value) is int and value >= 0 for value in numbers.values()):
        raise StateError("STA022", expected="whole numbers", **place)
    return Line(str(run), fingerprint=str(fingerprint), sum=digest, more=fields, end=end, **numbers)


@dataclass(frozen=True, slots=True)
class Steps:
    """A ledger sorted out: what each step consumed in its highest attempt, and what was superseded.

    `current` has one line a step, in order of steps. `superseded` are lines of steps that a higher attempt did again.
    `ahead` are lines of `current` beyond the last step of the highest attempt: done before it, and not again so far.
    `gaps` are steps [i, j) that no line tells of, between the first and the last.
    """

    current: tuple[Line, ...]
    superseded: tuple[Line, ...]
    ahead: tuple[Line, ...]
    gaps: tuple[tuple[int, int], ...]


def sorted_out(lines: Sequence[Line]) -> Steps:
    """Return the lines of a ledger by step: the highest attempt at each, the rest marked.

    >>> def line(attempt, step):
    ...     return Line("r", attempt, step, 8 * step, 8, "", "")
    >>> steps = sorted_out([line(1, 0), line(1, 1), line(1, 2), line(2, 1)])
    >>> [(one.attempt, one.step) for one in steps.current], len(steps.superseded), len(steps.ahead)
    ([(1, 0), (2, 1), (1, 2)], 1, 1)
    """
    best: dict[int, Line] = {}
    superseded = []
    for line in lines:
        held = best.get(line.step)
        if held is not None:
            superseded.append(held if line.attempt >= held.attempt else line)
        if held is None or line.attempt >= held.attempt:
            best[line.step] = line
    current = tuple(best[step] for step in sorted(best))
    highest = max((line.attempt for line in current), default=0)
    reached = max((line.step for line in current if line.attempt == highest), default=0)
    ahead = tuple(line for line in current if line.step > reached)
    gaps = tuple((one.step + 1, two.step) for one, two in pairwise(current) if two.step > one.step + 1)
    return Steps(current, tuple(superseded), ahead, gaps)


def read_ledger(path: str | os.PathLike[str]) -> Steps:
    """Return a ledger's steps; raises as `parse_lines`."""
    return sorted_out(list(parse_lines(path)))
