"""Which items an n-gram is of: all that have it, so that an item whose words stand in another one too is not missed.

`contamination` gives every n-gram to the first item that has it; passages that several questions are asked about would count
for the first of them alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.build.contamination import overlap

if TYPE_CHECKING:
    from tokenreel.build.contamination import Grams, Overlap
    from tokenreel.build.mix_table import I64


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The items of every n-gram, by the place of the first of its kind."""

    distinct: I64
    """Different n-grams of each item."""
    places: I64
    """Ascending."""
    edges: I64
    items: I64
    """Of places[k]: items[edges[k] : edges[k + 1]], ascending."""

    @classmethod
    def of(cls, grams: Grams) -> Items:
        """Return them; memory is about 100 bytes an n-gram while it is made, 16 afterwards."""
        lengths = np.diff(grams.edges)
        own = overlap(grams, grams.ids, lengths, room=max(1, int(np.maximum(lengths - grams.n + 1, 0).sum())))
        # Both are below 2**31: one sort of whole numbers orders them by place and item.
        keys = np.sort(own.place * grams.items + own.document)
        place, item = np.divmod(keys[np.diff(keys, prepend=-1) != 0], max(1, grams.items))
        first = np.flatnonzero(np.diff(place, prepend=-1))
        places = place[first]
        distinct = np.bincount(item, minlength=grams.items).astype(np.int64)
        return cls(distinct, places, np.append(first, len(place)).astype(np.int64), item)

    def pairs(self, found: Overlap) -> list[tuple[int, int, int, float]]:
        """Return (document, item, first place in the document, share of the item's n-grams), by document and item.

        >>> from tokenreel.build.contamination import grams_of
        >>> grams = grams_of([1, 2, 3, 9, 9, 1, 2, 3], [0, 5, 8], n=3)
        >>> Items.of(grams).pairs(overlap(grams, np.array([7, 1, 2, 3], np.uint32), [4]))
        [(0, 0, 1, 0.3333333333333333), (0, 1, 1, 1.0)]
        """
        if not len(found.document):
            return []
        at = np.searchsorted(self.places, found.place)
        each = self.edges[at + 1] - self.edges[at]
        rows = np.repeat(np.arange(len(at)), each)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(each) - each, each)
        item = self.items[self.edges[at][rows] + within]
        document, begin, place = found.document[rows], found.begin[rows], found.place[rows]
        order = np.lexsort((begin, item, document))
        document, item, begin, place = (x[order] for x in (document, item, begin, place))
        cuts = np.flatnonzero((np.diff(document) != 0) | (np.diff(item) != 0)) + 1
        out = []
        for low, high in zip([0, *cuts.tolist()], [*cuts.tolist(), len(document)], strict=True):
            share = len(np.unique(place[low:high])) / int(self.distinct[item[low]])
            out.append((int(document[low]), int(item[low]), int(begin[low]), share))
        return out
