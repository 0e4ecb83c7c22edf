"""Ids that stand more than once in an index: counted by sorting part after part on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.build.id_spill import IdSpill, parts_for
from tokenreel.replay.files import read_batches, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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


def duplicates(store: Store, paths: Sequence[str], rows: int = 1 << 24, folder: Path | None = None) -> Duplicates:
    """Return the duplicates among the rows of files; `rows` is about how many there are. Memory: about 200 MiB."""
    numbers: dict[str, int] = {}
    with IdSpill(parts_for(rows), folder) as spill:
        for path in paths:
            for batch in read_batches(store, path):
                found = rows_of(batch, path)
                codes = np.array([numbers.setdefault(name, len(numbers)) for name in found.sources], dtype=np.uint64)
                spill.add(found.ids, codes[found.source] if len(found) else codes)
        ids = documents = within = 0
        for part in spill.read():
            order = np.lexsort((part["value"], part["low"], part["high"]))
            high, low, source = part["high"][order], part["low"][order], part["value"][order]
            same = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
            documents += int(same.sum())
            within += int((same & (source[1:] == source[:-1])).sum())
            ids += int((same & ~np.append([False], same[:-1])).sum()) if len(same) else 0
    return Duplicates(ids, documents, within)
