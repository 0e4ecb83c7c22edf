"""Tools on ledgers: the first divergence of two, exposure of sources and documents, Parquet, a replay index."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import ReplayError, require
from tokenreel.feed.ledger_lines import Steps, parse_lines, sorted_out
from tokenreel.replay.documents import Documents
from tokenreel.replay.trace import passes, resolved
from tokenreel.spans import Flag

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.feed.ledger_lines import Line
    from tokenreel.replay.trace import Traced

CHUNK = 4096
"""Samples read at a time."""


def read_ledger(path: str | os.PathLike[str]) -> Steps:
    """Return a ledger sorted out by step; raises `StateError` (STA020, STA022), `StorageError` (STO001)."""
    return sorted_out(list(parse_lines(path)))


def is_ledger(path: Path) -> bool:
    """Return whether a file begins as a ledger does: a JSON object with a sum, not TOML."""
    try:
        with path.open("rb") as file:
            head = file.read(2)
    except OSError:
        return False
    return head == b'{"'


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two ledgers stop telling the same."""

    same_steps: int
    step: int | None
    """None: one is the beginning of the other, or they are equal."""
    one: Line | None
    other: Line | None
    lengths: tuple[int, int]

    @property
    def equal(self) -> bool:
        """Whether both tell the same of every step."""
        return self.step is None and self.lengths[0] == self.lengths[1]

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""

        def told(line: Line | None) -> dict[str, object] | None:
            if line is None:
                return None
            return {"step": line.step, "first": line.first, "count": line.count, "fingerprint": line.fingerprint}

        return {
            "equal": self.equal,
            "same_steps": self.same_steps,
            "first_difference": self.step,
            "one": told(self.one),
            "other": told(self.other),
            "steps": list(self.lengths),
        }


def diff(one: Steps, other: Steps) -> Divergence:
    """Return the first step at which two ledgers differ in samples or order."""
    lengths = len(one.current), len(other.current)
    for number, (a, b) in enumerate(zip(one.current, other.current, strict=False)):
        if (a.step, a.first, a.count, a.fingerprint) != (b.step, b.first, b.count, b.fingerprint):
            return Divergence(number, min(a.step, b.step), a, b, lengths)
    return Divergence(min(lengths), None, None, None, lengths)


def ranges(steps: Steps) -> list[tuple[int, int]]:
    """Return the samples that were consumed, as [first, end) in order of steps, neighbours joined.

    >>> from tokenreel.feed.ledger_lines import Line
    >>> ranges(Steps(tuple(Line("r", 1, k, 4 * k, 4, "", "") for k in range(3)), (), (), ()))
    [(0, 12)]
    """
    out: list[tuple[int, int]] = []
    for line in steps.current:
        if out and out[-1][1] == line.first:
            out[-1] = (out[-1][0], line.first + line.count)
        else:
            out.append((line.first, line.first + line.count))
    return out


@dataclass(eq=False)
class Exposure:
    """How often documents were read, by corpus."""

    tokens: Counter[str] = field(default_factory=Counter)
    read: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Tokens read of each document."""
    lengths: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    def epochs(self, name: str) -> npt.NDArray[np.float64]:
        """Return how often each document of a corpus was read; empty documents count as never."""
        lengths = np.maximum(self.lengths[name], 1)
        return np.asarray(self.read[name] / lengths, dtype=np.float64)

    def as_dict(self, most: int = 10) -> dict[str, object]:
        """Return the JSON form: per corpus a histogram of whole readings, and the documents read most."""
        out: dict[str, object] = {}
        for name in self.read:
            times = self.epochs(name)
            whole, counts = np.unique(np.floor(times + 1e-9).astype(np.int64), return_counts=True)
            top = np.argsort(-times, kind="stable")[:most]
            out[name] = {
                "documents": len(times),
                "documents_read": int((self.read[name] > 0).sum()),
                "tokens": int(self.tokens[name]),
                "mean_epochs": float(self.tokens[name] / max(1, int(self.lengths[name].sum()))),
                "histogram": {str(k): n for k, n in zip(whole.tolist(), counts.tolist(), strict=True)},
                "most_read": [{"document": int(k), "times": float(times[k])} for k in top if times[k] > 0],
            }
        return out


def exposure(traced: Traced, steps: Steps) -> Exposure:
    """Return what each document of a run was read, by a ledger; reads no text. Memory: 16 bytes a document."""
    out = Exposure()
    for number, lo, hi in _spread(traced, steps):
        made = traced.made(number)
        for k, name in enumerate(made.names):
            if name not in out.read and made.corpora[k].boundary.known:
                table = made.corpora[k].table()
                out.lengths[name] = table.lengths(0, table.documents)
                out.read[name] = np.zeros(table.documents, dtype=np.int64)
        for low in range(lo, hi, CHUNK):
            table_ = resolved(made, made.order.spans(low, min(hi, low + CHUNK)))
            stored = ((table_.flags & Flag.PAD) == 0) & (table_.length > 0)
            for k, name in enumerate(made.names):
                mine = stored & (table_.corpus == k)
                out.tokens[name] += int(table_.length[mine].sum())
                known = mine & (table_.document >= 0)
                if name in out.read:
                    np.add.at(out.read[name], table_.document[known], table_.length[known])
    return out


def _spread(traced: Traced, steps: Steps) -> Iterator[tuple[int, int, int]]:
    """Yield (segment, first sample, end sample) of what a ledger's steps took of its order; neighbours are joined."""
    held: tuple[int, int, int] | None = None
    for line in steps.current:
        number, _, first, end = traced.samples_of(line.step)
        for lo, hi in passes(traced.made(number).order, first, end):
            if held is not None and held[0] == number and held[2] == lo:
                held = (number, held[1], hi)
                continue
            if held is not None:
                yield held
            held = (number, lo, hi)
    if held is not None:
        yield held


def export(steps: Steps, path: Path) -> int:
    """Write a ledger's lines to Parquet and return how many; superseded ones are marked."""
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    from tokenreel.store.atomic import atomic_write

    ahead = {id(line) for line in steps.ahead}
    lines = [(line, "ahead" if id(line) in ahead else "current") for line in steps.current]
    lines += [(line, "superseded") for line in steps.superseded]
    lines.sort(key=lambda item: item[0].end)
    table = pa.table(
        {
            "run": pa.array([line.run for line, _ in lines], pa.string()),
            "attempt": pa.array([line.attempt for line, _ in lines], pa.int64()),
            "step": pa.array([line.step for line, _ in lines], pa.int64()),
            "first": pa.array([line.first for line, _ in lines], pa.int64()),
            "count": pa.array([line.count for line, _ in lines], pa.int64()),
            "fingerprint": pa.array([line.fingerprint for line, _ in lines], pa.string()),
            "status": pa.array([status for _, status in lines], pa.string()),
        }
    )
    with atomic_write(path) as sink:
        parquet.write_table(table, pa.PythonFile(sink, mode="w"))
    return len(lines)


def consumed_documents(traced: Traced, steps: Steps) -> Iterator[Documents]:
    """Yield the documents that a ledger's steps read, each once, in the order of their first token read.

    Raises `ReplayError` (RPL053) for a corpus that does not record the ids of its documents.
    """
    from tokenreel.replay.document_facts import rows_of

    seen: set[tuple[str, int]] = set()
    for number, lo, hi in _spread(traced, steps):
        made = traced.made(number)
        rows = []
        for corpus in made.corpora:
            found = rows_of(corpus)
            if found is None:
                raise ReplayError("RPL053", path=corpus.path)
            rows.append(found)
        for low in range(lo, hi, CHUNK):
            table = resolved(made, made.order.spans(low, min(hi, low + CHUNK)))
            ids: list[bytes | None] = []
            sources: list[str] = []
            for e in range(table.extents):
                document, k = int(table.document[e]), int(table.corpus[e])
                key = (made.names[k], document)
                if document < 0 or not table.length[e] or int(table.flags[e]) & Flag.PAD or key in seen:
                    continue
                seen.add(key)
                ids.append(rows[k][0][document].as_py())
                sources.append(rows[k][1][document].as_py())
            yield Documents(ids, sources)
