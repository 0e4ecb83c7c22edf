"""What is wrong with the tables of a damaged Megatron pair: reached only when the fast scan says they are not sound.

Lengths, pointers and the size of the ``.bin`` say the same thing three times, so two of them convict the third: one
wrong pointer stands alone, one wrong length shifts every later sum, a wrong type code scales everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenreel.formats.base import Problem
from tokenreel.formats.megatron_layout import CODE_AT, LENGTH, LENGTHS_AT, WIDE, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.store.base import Reader

    Chunk = tuple[int, npt.NDArray[np.int32], npt.NDArray[np.int64]]

_CHUNK = 1 << 16
_LIMIT = 1 << 63


def diagnose(layout: Layout, idx: Reader, prefix: str, bin_size: int) -> Iterator[Problem]:
    """Yield the problems of tables that are not sound, or do not fit a ``.bin`` of `bin_size` bytes.

    Cost: three passes over the tables; memory is one chunk.
    """
    other = _implied_width(layout, idx, bin_size)
    if other is not None:
        message = f"lengths, pointers and the .bin agree on tokens of {other} bytes, the type code does not"
        name = f"{layout.dtype.name} ({layout.dtype.itemsize} bytes)"
        yield Problem("MEG022", f"{prefix}.idx", message, CODE_AT, expected=f"a type of {other} bytes", found=name)
    else:
        yield from _sequences(layout, idx, prefix, bin_size)
    yield from _index(layout, idx, f"{prefix}.idx")


def _chunks(layout: Layout, idx: Reader) -> Iterator[Chunk]:
    for begin in range(0, layout.sequences, _CHUNK):
        size = min(_CHUNK, layout.sequences - begin)
        lengths = idx.array(LENGTH, LENGTHS_AT + 4 * begin, size)
        yield begin, lengths, idx.array(WIDE, layout.pointers_at + 8 * begin, size)


def _implied_width(layout: Layout, idx: Reader, bin_size: int) -> int | None:
    """Return the token width that lengths, pointers and the ``.bin`` all agree on, when it is not the declared one."""
    total, last_pointer = 0, 0
    for _, lengths, pointers in _chunks(layout, idx):
        total += int(lengths.sum(dtype=np.int64))
        last_pointer = int(pointers[-1])
    if total <= 0 or last_pointer == 0 or bin_size % total or bin_size // total not in (1, 2, 4, 8):
        return None
    width = bin_size // total
    if width == layout.dtype.itemsize:
        return None
    done = 0
    for _, lengths, pointers in _chunks(layout, idx):
        ends = np.cumsum(lengths, dtype=np.int64)
        if not np.array_equal(pointers, (done + ends - lengths) * width):
            return None
        done += int(ends[-1])
    return width


def _sequences(layout: Layout, idx: Reader, prefix: str, bin_size: int) -> Iterator[Problem]:
    path, width = f"{prefix}.idx", layout.dtype.itemsize
    total, last_shift, last_length = _totals(layout, idx)
    # The pointers and the .bin agree, the lengths do not: a length is wrong, not every pointer behind it.
    blame_lengths = last_shift != 0 and last_shift % width == 0 and total * width + last_shift == bin_size
    done, shift, before = 0, 0, 0
    previous: int | None = None  # length of the sequence before the chunk
    for begin, lengths, pointers in _chunks(layout, idx):
        for k in np.flatnonzero(lengths < 0).tolist():
            at = LENGTHS_AT + 4 * (begin + k)
            message = f"the length of sequence {begin + k} is negative"
            yield Problem("MEG015", path, message, at, begin + k, expected=">= 0", found=int(lengths[k]))
        ends = np.cumsum(lengths, dtype=np.int64)
        if (done + int(np.abs(lengths.astype(np.int64)).sum())) * width >= _LIMIT:
            break  # more tokens than any .bin holds: the size below says so
        expected = (done + ends - lengths) * width
        shifts = pointers - expected
        changed = np.flatnonzero(np.concatenate(([shifts[0] != before], shifts[1:] != shifts[:-1])))
        for k in changed.tolist():
            here = int(shifts[k])
            if here == shift:
                continue  # back to where it was
            sequence = begin + k
            length = int(lengths[k - 1]) if k else previous
            lasts = (here - shift) % width == 0 and (k + 1 == len(shifts) or int(shifts[k + 1]) == here)
            if length is not None and (length < 0 or (blame_lengths and lasts)):
                if length >= 0:
                    yield _length_problem(path, sequence - 1, length, (here - shift) // width)
                shift = here
                continue
            at = layout.pointers_at + 8 * sequence
            message = f"the pointer of sequence {sequence} is not the end of the sequence before it"
            wanted = int(expected[k]) + shift
            yield Problem("MEG016", path, message, at, sequence, expected=wanted, found=int(pointers[k]))
        before, previous = int(shifts[-1]), int(lengths[-1])
        done += int(ends[-1])
    if last_length >= 0:  # else nothing says where the payload should end
        yield from _payload(layout, idx, prefix, total * width + shift, bin_size)


def _length_problem(path: str, sequence: int, found: int, missing: int) -> Problem:
    message = f"the length of sequence {sequence} disagrees with the pointers and the size of the .bin"
    at = LENGTHS_AT + 4 * sequence
    return Problem("MEG017", path, message, at, sequence, expected=found + missing, found=found)


def _totals(layout: Layout, idx: Reader) -> tuple[int, int, int]:
    """Return tokens by length, how many bytes the last pointer is from its sum, and the last length."""
    total, shift, last = 0, 0, 0
    for _, lengths, pointers in _chunks(layout, idx):
        total += int(lengths.sum(dtype=np.int64))
        last = int(lengths[-1])
        shift = int(pointers[-1]) - (total - last) * layout.dtype.itemsize
    return total, shift, last


def _payload(layout: Layout, idx: Reader, prefix: str, end: int, bin_size: int) -> Iterator[Problem]:
    """Yield the problem of a ``.bin`` that does not end where the last sequence does."""
    path, width, cut = f"{prefix}.bin", layout.dtype.itemsize, None
    if bin_size == 0 and end > 0:
        code, at, message = "MEG019", 0, f"empty, but the index has {end // width} tokens"
    elif bin_size < end:
        cut = _first_cut(layout, idx, bin_size)
        message = f"{end - bin_size} bytes short: sequence {cut} and all after it are cut or missing"
        code, at = "MEG018", bin_size
    elif bin_size - end >= width:
        message = f"{(bin_size - end) // width} tokens after the last sequence belong to no sequence"
        code, at = "MEG021", end
    elif bin_size > end:
        code, at, message = "MEG020", end, f"{bin_size - end} bytes after the last token, less than one token"
    else:
        return
    yield Problem(code, path, message, at, cut, expected=f"{end} bytes", found=f"{bin_size} bytes")


def _first_cut(layout: Layout, idx: Reader, bin_size: int) -> int:
    done = 0
    for begin, lengths, _ in _chunks(layout, idx):
        ends = (done + np.cumsum(lengths, dtype=np.int64)) * layout.dtype.itemsize
        over = np.flatnonzero(ends > bin_size)
        if over.size:
            return begin + int(over[0])
        done += int(lengths.sum(dtype=np.int64))
    return max(0, layout.sequences - 1)


def _index(layout: Layout, idx: Reader, path: str) -> Iterator[Problem]:
    """Yield the entries that break the rise of the document index; its two ends are checked at opening."""
    older: int | None = None
    before = 0
    for begin in range(0, layout.entries, _CHUNK):
        entries = idx.array(WIDE, layout.index_at + 8 * begin, min(_CHUNK, layout.entries - begin))
        falls = np.flatnonzero(np.concatenate(([entries[0] < before and begin > 0], entries[1:] < entries[:-1])))
        for k in falls.tolist():
            left = int(entries[k - 1]) if k else before
            left_of_left = int(entries[k - 2]) if k > 1 else (before if k == 1 and begin else older)
            right = int(entries[k + 1]) if k + 1 < len(entries) else None
            at, here = begin + k, int(entries[k])
            if (at == 1 and left != 0) or (at == layout.entries - 1 and here != layout.sequences):
                continue  # the end of the index is wrong, which opening says
            # Two entries contradict each other: the one that fits its other neighbour is right, and so is an end.
            left_may = at > 1 and (left_of_left is None or here >= left_of_left)
            here_may = at < layout.entries - 1 and (right is None or right >= left)
            entry = at if here_may and not left_may else at - 1
            which = f"entry {entry}" if left_may != here_may else f"entry {at - 1} or {at}"
            message = f"the document index falls from {left} to {here}: {which} is wrong"
            limit = f">= {left}" if entry == at else f"<= {here}"
            yield Problem(
                "MEG014",
                path,
                message,
                layout.index_at + 8 * entry,
                document=entry,
                expected=limit,
                found=here if entry == at else left,
            )
        older = int(entries[-2]) if len(entries) > 1 else before
        before = int(entries[-1])
