"""Slow, obvious versions of MaxText's orders, and a corpus that is only lengths: what the tests compare with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.spans import CorpusKey, Flag, SpanTable

GOLDEN = Path(__file__).parent.parent / "golden" / "maxtext"


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


@dataclass(eq=False)
class Lengths:
    """A DocTable over a list of lengths."""

    values: list[int]
    name: str = "x"
    edges: Any = field(init=False)

    def __post_init__(self) -> None:
        self.edges = np.concatenate(([0], np.cumsum(np.array(self.values, dtype=np.int64)))).astype(np.int64)

    @property
    def documents(self) -> int:
        return len(self.values)

    @property
    def tokens(self) -> int:
        return int(self.edges[-1])

    @property
    def key(self) -> CorpusKey:
        return CorpusKey("tables", f"{self.name}{self.values}", self.documents, self.tokens)

    def lengths(self, i: int, j: int) -> Any:
        return np.diff(self.edges[i : j + 1])

    def offsets_at(self, docs: Any) -> Any:
        return self.edges[np.asarray(docs)]

    def at_tokens(self, positions: Any) -> Any:
        return np.searchsorted(self.edges, np.asarray(positions), side="right") - 1


def token_rows(table: SpanTable, tables: list[Lengths], step: int) -> list[list[int]]:
    """Return the tokens of each sample, last label included, where token ids are positions and corpus k starts at k * step."""
    table.check([t.tokens for t in tables])
    out = []
    for k in range(table.samples):
        row: list[int] = []
        for e in range(int(table.splits[k]), int(table.splits[k + 1])):
            begin = int(table.begin[e]) + step * int(table.corpus[e])
            row += range(begin, begin + int(table.length[e]))
            if table.flags[e] & Flag.AHEAD:
                row.append(begin + int(table.length[e]))
        out.append(row)
    return out


def check_documents(table: SpanTable, tables: list[Lengths]) -> None:
    """Check document, start, HEAD and TAIL of a resolved table against the corpora."""
    for e in range(table.extents):
        edges, d = tables[table.corpus[e]].edges, int(table.document[e])
        begin, length = int(table.begin[e]), int(table.length[e])
        assert edges[d] <= begin < edges[d + 1]
        assert begin + length <= edges[d + 1]
        assert table.start[e] == begin - edges[d]
        marks = (begin == edges[d]) * 1 + (begin + length == edges[d + 1]) * 2 if length else 0
        assert table.flags[e] & 3 == marks


def npy_rows(tables: list[Lengths], row: int, seed: int, epochs: int, separate: bool, docs: range, step: int) -> Any:
    """Return every sample's tokens in order, one document and one token at a time."""
    where = [(k, d) for k, table in enumerate(tables) for d in range(table.documents)]
    rng = np.random.RandomState(seed)
    order = np.tile(np.arange(len(docs)), epochs)
    cut = len(docs) * (epochs - 1) if separate else len(order)
    first, last = order[:cut].copy(), order[cut:].copy()
    for part in (first, last):
        if len(part):
            rng.shuffle(part)
    stream: list[int] = []
    for d in [*first, *last]:
        k, local = where[docs[d]]
        stream += range(step * k + int(tables[k].edges[local]), step * k + int(tables[k].edges[local + 1]))
    count = (len(stream) - 1) // row
    size = len(stream) // epochs
    cut = ((epochs - 1) * size - 1) // row if separate else count
    heads, tails = np.arange(cut), np.arange(cut, count)
    for part in (heads, tails):
        if len(part):
            rng.shuffle(part)
    return [stream[k * row : k * row + row + 1] for k in [*heads, *tails]]


def greedy(weights: list[float], size: int) -> list[int]:
    """Return the dataset of each sample of a blend."""
    used = [0] * len(weights)
    out = []
    for s in range(size):
        lags = [w * max(s, 1) - u for w, u in zip(weights, used, strict=True)]
        best = lags.index(max(lags))
        used[best] += 1
        out.append(best)
    return out


def mixed(lengths: list[int], shares: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return (member, element) of a Grain mixture, counting one element at a time."""
    used = [0] * len(lengths)
    out: list[tuple[int, int]] = []
    while True:
        left, total, given = len(out) + 1, sum(shares), []
        for share in shares:
            given.append(-(-left * share // total))
            left, total = left - given[-1], total - share
        member = next(k for k in range(len(shares)) if given[k] > used[k])
        if used[member] == lengths[member]:
            return out
        out.append((member, used[member]))
        used[member] += 1
