"""Unresolved extents split at the edges of documents: what `corpus.resolve` does, for one batch after another.

The edges of a shard's documents are kept, 8 bytes a document, while they fit a budget; searching them is one kernel.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.feed.gather_stored import stored_i64
from tokenreel.order.kernels import inlined, kernel, read_only
from tokenreel.spans import SpanTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus

    I64 = npt.NDArray[np.int64]

BUDGET = 1 << 28
"""Bytes of edges that are kept, unless one batch needs more."""

HEAD, TAIL, AHEAD, CUT, PAD = 1, 2, 4, 8, 16
FULL, MALFORMED = -1, -2
_I64, _I32, _U8 = read_only("int64"), read_only("int32"), read_only("uint8")


class DocumentEdges:
    """Edges of documents over several corpora; safe to use from several threads.

    The documents of a corpus come in parts: those of one shard, or all where documents go on from shard to shard.
    """

    def __init__(self, corpora: Sequence[Corpus], budget: int = BUDGET) -> None:
        self._corpora = tuple(corpora)
        self._budget = budget
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, I64] = OrderedDict()
        self._bytes = 0
        self._sources: list[tuple[int, int, int, int]] = []
        rows: list[tuple[int, int]] = []
        bounds: list[tuple[int, int, int]] = []
        for c, corpus in enumerate(self._corpora):
            document, first = 0, len(rows)
            for number, low, high, origin in _parts(corpus):
                rows.append((origin, document))
                self._sources.append((c, number, low, high))
                document += high - low
            bounds.append((first, len(rows), corpus.tokens))
        self._bounds = np.array(bounds, dtype=np.int64).reshape(-1, 3)
        """First part, end part and tokens of each corpus."""
        self._parts = np.zeros((len(rows), 4), dtype=np.int64)
        """First token, first document, address of the edges (0: not there), edges of each part."""
        self._parts[:, :2] = np.array(rows, dtype=np.int64).reshape(-1, 2)
        self._wanted = np.zeros(len(rows), dtype=np.uint8)

    def resolve(self, table: SpanTable) -> SpanTable:
        """Return the table with every extent inside one document; errors and result as `corpus.resolve.resolve`."""
        if not bool((table.document < 0).any()):
            return table
        capacity = 2 * table.extents + 64
        with self._lock:
            while True:
                splits = np.empty(len(table.splits), dtype=np.int64)
                begin, length, document, start = (np.empty(capacity, dtype=np.int64) for _ in range(4))
                corpus, flags = np.empty(capacity, dtype=np.int32), np.empty(capacity, dtype=np.uint8)
                used = _split(
                    *table.columns(), self._bounds, self._parts, self._wanted, splits, corpus, begin, length, document,
                    start, flags,
                )  # fmt: skip
                if used == MALFORMED:
                    return self._refused(table)
                if not self._load() and used >= 0:
                    break
                if used == FULL:
                    capacity *= 2
        end = slice(used)
        return SpanTable(splits, corpus[end], begin[end], length[end], document[end], start[end], flags[end])

    def _refused(self, table: SpanTable) -> SpanTable:
        from tokenreel.corpus.resolve import resolve

        return resolve(table, [corpus.table() for corpus in self._corpora])

    def _load(self) -> bool:
        """Bring the edges of parts that are wanted; return whether there were any that were not there."""
        wanted = np.flatnonzero(self._wanted).tolist()
        self._wanted[wanted] = 0
        missing = [part for part in wanted if part not in self._kept]
        for part in wanted:
            if part in self._kept:
                self._kept.move_to_end(part)
        for part in missing:
            edges = self._edges(part)
            self._kept[part] = edges
            self._bytes += edges.nbytes
            self._parts[part, 2:] = edges.ctypes.data, len(edges)
        while missing and self._bytes > self._budget and next(iter(self._kept)) not in wanted:
            part, edges = self._kept.popitem(last=False)
            self._bytes -= edges.nbytes
            self._parts[part, 2:] = 0
        return bool(missing)

    def _edges(self, part: int) -> I64:
        c, number, low, high = self._sources[part]
        corpus, origin = self._corpora[c], int(self._parts[part, 0])
        all_of = getattr(corpus, "edges", None)
        edges = all_of()[low : high + 1] if all_of is not None else corpus.shard(number).document_edges(low, high)
        return np.ascontiguousarray(edges - edges[0] + origin, dtype=np.int64)


def _parts(corpus: Corpus) -> list[tuple[int, int, int, int]]:
    """Return shard, first document, end document, and first token of each part, in positions of the corpus."""
    all_of = getattr(corpus, "edges", None)
    if all_of is not None:
        corpus.table()
        return [(0, corpus.lo, corpus.lo + len(corpus), 0)]
    found, at = [], 0
    for number, low, high in corpus.parts():
        found.append((number, low, high, at))
        whole = (low, high) == (0, corpus.entries[number].documents)
        if whole:
            at += corpus.entries[number].tokens
        else:
            edges = corpus.shard(number).document_edges(low, high)
            at += int(edges[-1] - edges[0])
    return found


@inlined
def last_at_most(values: Any, position: int) -> Any:
    """Return the last index whose value is at most `position`; the first one is."""
    low = 0
    high = len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if values[middle] <= position:
            low = middle
        else:
            high = middle
    return low


@kernel(
    f"int64({_I64}, {_I32}, {_I64}, {_I64}, {_I64}, {_I64}, {_U8}, int64[:, ::1], int64[:, ::1], uint8[::1], int64[::1], "
    "int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1])"
)
def _split(  # noqa: C901, PLR0912, PLR0913, PLR0917
    splits: Any, corpus: Any, begin: Any, length: Any, document: Any, start: Any, flags: Any, bounds: Any, parts: Any,
    wanted: Any, out_splits: Any, out_corpus: Any, out_begin: Any, out_length: Any, out_document: Any, out_start: Any,
    out_flags: Any,
) -> int:  # fmt: skip
    """Write the pieces of all extents; parts in use are marked in `wanted`. Return how many, or what is wrong.

    What lies in a part without edges is left out: the caller brings them and asks again.
    """
    samples = len(splits) - 1
    count = len(begin)
    if samples < 0 or splits[0] != 0 or splits[samples] != count:
        return MALFORMED
    if len(corpus) != count or len(length) != count or len(document) != count or len(start) != count:
        return MALFORMED
    if len(flags) != count:
        return MALFORMED
    capacity = len(out_begin)
    used = 0
    for row in range(samples):
        out_splits[row] = used
        if splits[row + 1] < splits[row] or splits[row + 1] > len(begin):
            return MALFORMED
        for e in range(splits[row], splits[row + 1]):
            if used == capacity:
                return FULL
            if document[e] >= 0 or flags[e] & PAD:
                out_corpus[used] = corpus[e]
                out_begin[used] = begin[e]
                out_length[used] = length[e]
                out_document[used] = document[e]
                out_start[used] = start[e]
                out_flags[used] = flags[e]
                used += 1
                continue
            c = corpus[e]
            if c < 0 or c >= len(bounds) or length[e] < 0 or (length[e] == 0 and flags[e] & AHEAD == 0):
                return MALFORMED
            ahead = 1 if flags[e] & AHEAD else 0
            if begin[e] < 0 or begin[e] > bounds[c, 2] - length[e] - ahead:
                return MALFORMED
            first = bounds[c, 0]
            part = first + last_at_most(parts[first : bounds[c, 1], 0], begin[e])
            at = begin[e]
            end = at + length[e]
            d = -1
            while True:
                wanted[part] = 1
                if parts[part, 2] == 0:
                    break
                edges = stored_i64(parts[part, 2], parts[part, 3])
                if d < 0:
                    d = last_at_most(edges[: len(edges) - 1], at)
                while d < len(edges) - 1 and edges[d + 1] <= at:
                    d += 1
                if d == len(edges) - 1:
                    part += 1
                    d = 0
                    continue
                if used == capacity:
                    return FULL
                taken = min(end, edges[d + 1]) - at
                mark = flags[e]
                if at + taken < end:
                    mark &= 0xFF ^ (AHEAD | CUT)
                if length[e] > 0:
                    mark |= (at == edges[d]) * HEAD + (at + taken == edges[d + 1]) * TAIL
                out_corpus[used] = c
                out_begin[used] = at
                out_length[used] = taken
                out_document[used] = parts[part, 1] + d
                out_start[used] = at - edges[d]
                out_flags[used] = mark
                used += 1
                at += taken
                if at >= end:
                    break
    out_splits[samples] = used
    return used
