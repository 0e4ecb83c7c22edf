"""Ids that stand more than once in an index: parted on disk by their top bits, counted part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.id_matching import each_part, match
from tokenreel.build.id_spill import IdSpill, ids_of, parts_for
from tokenreel.replay.files import read_batches, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.store import Store


@dataclass(frozen=True, slots=True)
class Duplicates:
    """How often ids stand more than once."""

    ids: int
    """Ids that stand more than once."""
    documents: int
    """Rows whose id stood before."""
    within_source: int
    """Of these, rows whose id stood before in the same source."""

    def as_dict(self) -> dict[str, int]:
        """Return the JSON form."""
        return {"ids": self.ids, "documents": self.documents, "within_source": self.within_source}


def duplicates(
    store: Store, paths: Sequence[str], rows: int = 1 << 24, folder: Path | None = None, threads: int = 1
) -> Duplicates:
    """Return the duplicates among the rows of files; `rows` is about how many there are. Memory: about 200 MiB."""
    numbers: dict[str, int] = {}
    with IdSpill(parts_for(rows), folder) as spill:
        for path in paths:
            for batch in read_batches(store, path):
                found = rows_of(batch, path)
                codes = np.array([numbers.setdefault(name, len(numbers)) for name in found.sources], dtype=np.uint64)
                spill.add(found.ids, codes[found.source] if len(found) else codes)

        def count(number: int) -> tuple[int, int, int]:
            return _counted(spill.part(number))

        totals = np.zeros(3, dtype=np.int64)
        for counts in each_part(spill.parts, count, threads):
            totals += counts
    ids, documents, within = totals.tolist()
    return Duplicates(ids, documents, within)


def _counted(part: npt.NDArray[Any]) -> tuple[int, int, int]:
    """Return (ids that stand again, rows that do, rows that do in their source) of a part."""
    ids = ids_of(part)
    first = match(ids, ids)
    again = np.flatnonzero(first != np.arange(len(first)))
    if not len(again):
        return 0, 0, 0
    # Of the ids that stand twice at all, the rows: few, so that sorting them is nothing.
    mine = np.flatnonzero(np.isin(first, first[again]))
    named = np.stack([first[mine].astype(np.uint64), part["value"][mine]], axis=1)
    within = len(mine) - len(np.unique(named, axis=0))
    return len(np.unique(first[again])), len(again), within
