"""Rows that begin anew in every file, as modded-nanogpt has them: what is left of a file when it ends is in no row.

A document belongs to the file that it begins in and ends with it at the latest; where it goes on in the next file nothing of
it is read, since no document begins there. The rows of all files come one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.order.children import interleave
from tokenreel.pack.plan_sizes import Sizes
from tokenreel.spans import UNRESOLVED, SpanTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokenreel.pack.packed_rows import PlannedRows

    I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """The rows of files, file after file."""

    sizes: Sizes
    files: tuple[PlannedRows, ...]
    firsts: I64
    """First document that begins in each file."""
    edges: I64
    """Rows before each file, and all of them."""

    @classmethod
    def over(cls, sizes: Sizes, tokens: Sequence[int], packed: Callable[[Sizes], PlannedRows]) -> FileRows:
        """Pack every file for itself: `tokens` of each, in order. 4 bytes a document."""
        ends = np.cumsum(np.asarray(tokens, dtype=np.int64))
        firsts = np.full(len(ends) + 1, sizes.documents, dtype=np.int64)
        inside = np.flatnonzero(ends < sizes.tokens) + 1
        holders = sizes.at_tokens(ends[inside - 1])
        firsts[inside] = holders + (sizes.offsets_at(holders) < ends[inside - 1])
        firsts[0] = 0
        files = []
        for end, low, high in zip(ends.tolist(), firsts[:-1].tolist(), firsts[1:].tolist(), strict=True):
            lengths = sizes.lengths[low:high].copy()
            if high > low:
                lengths[-1] -= max(0, int(sizes.offsets_at(np.array([high]))[0]) - end)
            files.append(packed(Sizes.of_lengths(lengths)))
        rows = np.concatenate(([0], np.cumsum([file.rows for file in files], dtype=np.int64)))
        return cls(sizes, tuple(files), firsts[:-1], rows)

    @property
    def rows(self) -> int:
        """Rows of one pass."""
        return int(self.edges[-1])

    def extents(self, rows: I64) -> SpanTable:
        """Return rows of the pass as a table, in the order asked."""
        member = np.searchsorted(self.edges, rows, side="right") - 1
        used = np.unique(member).tolist() or [0]
        places = [np.flatnonzero(member == k) for k in used]
        tables = [self._of(k, rows[mine] - self.edges[k]) for k, mine in zip(used, places, strict=True)]
        return interleave(len(rows), places, tables, [0] * len(used))

    def _of(self, number: int, rows: I64) -> SpanTable:
        table = self.files[number].extents(rows)
        first = int(self.firsts[number])
        stored = table.document >= 0
        document = np.where(stored, table.document + first, UNRESOLVED)
        begin = np.where(stored, table.begin + self.sizes.offsets_at(np.array([first]))[0], 0)
        return SpanTable(table.splits, table.corpus, begin, table.length, document, table.start, table.flags)

    def rows_of(self, documents: I64) -> tuple[I64, I64]:
        """Return pairs of (place in `documents`, row) for every row that holds part of one."""
        home = np.searchsorted(self.firsts, documents, side="right") - 1
        which, found = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for number in np.unique(home).tolist():
            mine = np.flatnonzero(home == number)
            places, rows = self.files[number].rows_of(documents[mine] - self.firsts[number])
            which.append(mine[places])
            found.append(rows + self.edges[number])
        return np.concatenate(which), np.concatenate(found)
