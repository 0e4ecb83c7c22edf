"""Rank-private packing: every rank packs documents of its own, and row k of rank r is one row.

Rank r has blocks of `group` documents: numbers r, r + ranks, .. of them. HobbyLM's card has one document a block; nanochat's
ranks take row groups of a table in turn. Row ``k * ranks + r`` here is row k of rank r. A rank with fewer rows than another is
filled up with rows of padding, so that all have the same number: nothing drifts and nothing hangs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.order.children import interleaved
from tokenreel.pack.packed_rows import PAD, ConcatRows, PlannedRows
from tokenreel.pack.plan_sizes import Sizes
from tokenreel.spans import UNRESOLVED, SpanTable

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    Rows = ConcatRows | PlannedRows


@dataclass(frozen=True, slots=True, eq=False)
class RankRows:
    """The rows of all ranks, rank after rank at each place."""

    sizes: Sizes
    row_tokens: int
    of_ranks: tuple[Rows, ...]
    group: int = 1

    @classmethod
    def over(
        cls, sizes: Sizes, row_tokens: int, ranks: int, packed: Callable[[Sizes], Rows], group: int = 1
    ) -> RankRows:
        """Share the documents out among ranks, and have each rank's `packed`. 4 bytes a document."""
        lengths, turn = sizes.lengths, ranks * group
        whole = len(lengths) // turn * turn
        blocks = lengths[:whole].reshape(-1, ranks, group)

        def of_rank(rank: int) -> Sizes:
            rest = lengths[whole + rank * group : whole + (rank + 1) * group]
            return Sizes.of_lengths(np.concatenate((blocks[:, rank].reshape(-1), rest)))

        parts = map(of_rank, range(ranks))
        return cls(sizes, row_tokens, tuple(packed(part) for part in parts), group)

    @property
    def rows(self) -> int:
        """Rows of one pass: as many of every rank as the rank with most has."""
        return len(self.of_ranks) * max(part.rows for part in self.of_ranks)

    def extents(self, rows: I64) -> SpanTable:
        """Return rows of the pass as a table, in the order asked."""
        ranks = len(self.of_ranks)
        member = rows % ranks

        def reader(rank: int) -> Callable[[I64], SpanTable]:
            return lambda places: self._of(rank, places)

        table = interleaved(member, rows // ranks, [reader(rank) for rank in range(ranks)])
        # Interleaving numbers each member as a corpus of its own; here all are parts of one.
        return SpanTable(table.splits, np.zeros_like(table.corpus), *table.columns()[2:])

    def _of(self, rank: int, places: I64) -> SpanTable:
        mine = self.of_ranks[rank]
        there = places < mine.rows
        table = mine.extents(places[there])
        stored = table.document >= 0
        block = table.document // self.group * len(self.of_ranks) + rank
        document = np.where(stored, block * self.group + table.document % self.group, UNRESOLVED)
        begin = np.zeros_like(table.begin)
        begin[stored] = self.sizes.offsets_at(document[stored]) + table.start[stored]
        counts = np.ones(len(places), dtype=np.int64)
        counts[there] = np.diff(table.splits)
        splits = np.concatenate(([0], np.cumsum(counts)))
        at = np.flatnonzero(np.repeat(there, counts))
        columns = [np.zeros(int(splits[-1]), dtype=column.dtype) for column in table.columns()[1:]]
        _, begins, lengths, documents, starts, flags = columns
        lengths[:], flags[:] = self.row_tokens, PAD
        documents[:] = starts[:] = UNRESOLVED
        begins[at], lengths[at], documents[at] = begin, table.length, document
        starts[at], flags[at] = table.start, table.flags
        return SpanTable(splits, *columns)

    def rows_of(self, documents: I64) -> tuple[I64, I64]:
        """Return pairs of (place in `documents`, row) for every row that holds part of one."""
        ranks, group = len(self.of_ranks), self.group
        block = documents // group
        which, found = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for rank, part in enumerate(self.of_ranks):
            mine = np.flatnonzero(block % ranks == rank)
            places, rows = part.rows_of(block[mine] // ranks * group + documents[mine] % group)
            which.append(mine[places])
            found.append(rows * ranks + rank)
        return np.concatenate(which), np.concatenate(found)
