"""A document table in memory, and what every order owes: checks that any order can be put through."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tokenreel.spans import CorpusKey, SpanTable


class Table:
    """Documents of given lengths, end to end."""

    def __init__(self, lengths: Any, digest: str = "00") -> None:
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._offsets = np.concatenate(([0], np.cumsum(self._lengths)))
        self.key = CorpusKey("tables", digest, len(self._lengths), int(self._offsets[-1]))
        self.documents = len(self._lengths)
        self.tokens = int(self._offsets[-1])

    def lengths(self, i: int, j: int) -> Any:
        return self._lengths[i:j]

    def offsets_at(self, docs: Any) -> Any:
        return self._offsets[docs]

    def at_tokens(self, positions: Any) -> Any:
        return np.searchsorted(self._offsets, positions, side="right") - 1


def rows(table: SpanTable) -> list[list[tuple[int, ...]]]:
    """The samples of a table as lists of extents."""
    columns = [column.tolist() for column in table.columns()[1:]]
    edges = table.splits.tolist()
    return [list(zip(*(c[a:b] for c in columns), strict=True)) for a, b in pairwise(edges)]


def check_views(order: Any, i: int, j: int, rng: np.random.Generator) -> None:
    """Slices, single samples, chunks and answers in any order are the same samples, well formed."""
    whole = order.spans(i, j)
    whole.check([key.tokens for key in order.corpora])
    expected = rows(whole)
    assert len(expected) == j - i
    cut = int(rng.integers(i, j + 1))
    assert rows(order.spans(i, cut)) + rows(order.spans(cut, j)) == expected
    chunks = list(order.chunks(i, j))
    assert [row for _, table in chunks for row in rows(table)] == expected
    position = i
    for first, table in chunks:
        assert first == position
        position += table.samples
    assert position == j
    asked = rng.integers(i, j, size=17) if j > i else np.empty(0, dtype=np.int64)
    assert rows(order.spans_at(asked)) == [expected[k - i] for k in asked.tolist()]


def hits(found: Any) -> list[tuple[int, ...]]:
    columns = (found.document, found.sample, found.extent, found.begin, found.length)
    return sorted(zip(*(c.tolist() for c in columns), strict=True))


def brute_hits(order: Any, corpus: int, table: Table, documents: list[int], lo: int, hi: int) -> list[tuple[int, ...]]:
    """`locate` by reading every sample."""
    found = []
    for k, sample in enumerate(rows(order.spans(lo, hi)), lo):
        for e, (number, begin, length, *_) in enumerate(sample):
            if number != corpus:
                continue
            for document in documents:
                low = max(begin, int(table.offsets_at(document)))
                high = min(begin + length, int(table.offsets_at(document + 1)))
                if high > low:
                    found.append((document, k, e, low, high - low))
    return sorted(found)
