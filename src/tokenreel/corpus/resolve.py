"""Split unresolved extents at document edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.spans import UNRESOLVED, Flag, SpanTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.spans import DocTable

    I64 = npt.NDArray[np.int64]


def resolve(table: SpanTable, tables: Sequence[DocTable]) -> SpanTable:
    """Return the same samples with every stored extent inside one document, its `document` and `start` filled in.

    HEAD and TAIL are set where an extent begins or ends its document; AHEAD and CUT stay with the last piece. Empty
    documents give no extent. Extents already resolved and padding pass through. Cost: O(extents + documents covered).
    """
    import numpy as np

    table.check([t.tokens for t in tables])
    needs = (table.document == UNRESOLVED) & ((table.flags & Flag.PAD) == 0)
    if not bool(needs.any()):
        return table
    counts = np.ones(table.extents, dtype=np.int64)
    first = np.zeros(table.extents, dtype=np.int64)
    for number, source in enumerate(tables):
        mine = needs & (table.corpus == number)
        if bool(mine.any()):
            begin, length = table.begin[mine], table.length[mine]
            first[mine] = source.at_tokens(begin)
            counts[mine] = source.at_tokens(begin + np.maximum(length, 1) - 1) - first[mine] + 1
    parent = np.repeat(np.arange(table.extents, dtype=np.int64), counts)
    within = np.arange(len(parent), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    pieces = _cut(table, tables, needs, parent, first[parent] + within)
    keep = pieces["keep"]
    last = np.append(parent[keep][1:] != parent[keep][:-1], True) if bool(keep.any()) else keep[keep]
    flags = table.flags[parent[keep]].copy()
    flags[~last] &= np.uint8(0xFF ^ (Flag.AHEAD | Flag.CUT))
    flags |= pieces["edges"][keep]
    per_extent = np.bincount(parent[keep], minlength=table.extents)
    total = np.concatenate(([0], np.cumsum(per_extent)))
    return SpanTable.of(
        total[table.splits],
        pieces["begin"][keep],
        pieces["length"][keep],
        corpus=table.corpus[parent[keep]],
        document=pieces["document"][keep],
        start=pieces["start"][keep],
        flags=flags,
    )


def _cut(
    table: SpanTable, tables: Sequence[DocTable], needs: npt.NDArray[np.bool_], parent: I64, document: I64
) -> dict[str, npt.NDArray[Any]]:
    """Return the pieces of all extents as columns; `keep` leaves out the pieces of empty documents."""
    import numpy as np

    begin, length = table.begin[parent].copy(), table.length[parent].copy()
    out_document, start = table.document[parent].copy(), table.start[parent].copy()
    edges = np.zeros(len(parent), dtype=np.uint8)
    keep = np.ones(len(parent), dtype=bool)
    for number, source in enumerate(tables):
        mine = needs[parent] & (table.corpus[parent] == number)
        if not bool(mine.any()):
            continue
        docs = document[mine]
        head, tail = source.offsets_at(docs), source.offsets_at(docs + 1)
        low = np.maximum(begin[mine], head)
        high = np.minimum(begin[mine] + length[mine], tail)
        label_only = length[mine] == 0
        keep[mine] = (high > low) | label_only
        begin[mine], length[mine] = low, np.where(label_only, 0, high - low)
        out_document[mine], start[mine] = docs, low - head
        marks = Flag.HEAD * (low == head) + Flag.TAIL * (high == tail)
        edges[mine] = np.where(label_only, 0, marks).astype(np.uint8)
    return {"begin": begin, "length": length, "document": out_document, "start": start, "edges": edges, "keep": keep}
