"""Extents as byte ranges of shards: all that the gather kernel needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import FormatError
from tokenreel.spans import Flag

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.spans import SpanTable

    I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Runs of stored ids, one shard each: copy `tokens` ids from `byte` of `shard` to (`row`, `column`).

    The look-ahead is copied like any other id: it lands in the column after its sample's last input.
    """

    shard: npt.NDArray[np.int32]
    """Shard number in the corpus."""
    byte: I64
    """Offset in the shard's token file."""
    tokens: I64
    row: I64
    column: I64


def pieces(table: SpanTable, corpus: Corpus) -> Pieces:
    """Return a table's stored extents cut at shard edges, in the table's order; padding leaves a gap.

    The table is checked against the corpus first (`OrderError` ORD003, ORD004); shards whose ids do not lie end to end in a
    file have no such ranges (`FormatError` FLT011). Cost: O(extents + shard edges crossed).
    """
    import numpy as np

    table.check([corpus.tokens])
    sample = table.sample_of()
    before = np.cumsum(table.length) - table.length
    first_of_sample = np.concatenate((before, [0]))[np.minimum(table.splits[:-1], table.extents)]
    column = before - first_of_sample[sample] if table.extents else before
    stored = (table.flags & Flag.PAD) == 0
    begin = table.begin[stored]
    length = table.length[stored] + ((table.flags[stored] & Flag.AHEAD) != 0)
    edges = np.concatenate(([0], np.cumsum(corpus.shard_tokens))).astype(np.int64)
    begin = begin + corpus.first_token
    first = np.searchsorted(edges, begin, side="right") - 1
    last = np.searchsorted(edges, begin + np.maximum(length, 1) - 1, side="right") - 1
    counts = last - first + 1
    parent = np.repeat(np.arange(len(begin), dtype=np.int64), counts)
    within = np.arange(len(parent), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    shard = first[parent] + within
    low = np.maximum(begin[parent], edges[shard])
    high = np.minimum(begin[parent] + length[parent], edges[shard + 1])
    keep = high > low
    shard, low, high, parent = shard[keep], low[keep], high[keep], parent[keep]
    starts = np.zeros(len(edges) - 1, dtype=np.int64)
    for number in np.unique(shard).tolist():
        shard_read = corpus.shard(number)
        if not shard_read.contiguous:
            raise FormatError("FLT011", path=corpus.path, shard=shard_read.name)
        starts[number] = shard_read.byte_at(0)[1]
    return Pieces(
        _readonly(shard.astype(np.int32)),
        _readonly(starts[shard] + (low - edges[shard]) * corpus.dtype.itemsize),
        _readonly(high - low),
        _readonly(sample[stored][parent]),
        _readonly(column[stored][parent] + low - begin[parent]),
    )


def _readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
