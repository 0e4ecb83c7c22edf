"""Weights of tokens and of documents, multiplied into a loss mask.

A label's weight is its token's, times its document's. Shards of formats that hold weights give them by the piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import UsageError
from tokenreel.spans import UNRESOLVED, Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.feed.gather_shards import ShardMemory
    from tokenreel.spans import SpanTable

    F32 = npt.NDArray[np.float32]


class ShardWeights:
    """Weights over several corpora; `documents` holds one array for each corpus, or None where all count alike.

    With `own_ends` the label at a document's end is the end's own, not the next document's first token.
    """

    def __init__(
        self,
        corpora: Sequence[Corpus],
        memory: ShardMemory,
        documents: Sequence[F32 | None] | None = None,
        *,
        own_ends: bool = False,
    ) -> None:
        self._corpora = tuple(corpora)
        self._memory = memory
        self._own_ends = own_ends
        self._documents = tuple(documents) if documents is not None else (None,) * len(corpora)
        if len(self._documents) != len(corpora):
            found = len(self._documents)
            raise UsageError("USE003", "document_weights", expected=f"{len(corpora)} corpora", found=found)
        for number, weights in enumerate(self._documents):
            if weights is not None and len(weights) != len(corpora[number]):
                expected = f"{len(corpora[number])} weights for corpus {number}"
                raise UsageError("USE003", "document_weights", expected=expected, found=len(weights))

    def multiply(self, table: SpanTable, mask: F32) -> None:
        """Multiply the weights of labels into `mask`; every extent lies in one document.

        Cost: some microseconds an extent, in Python.
        """
        sample = table.sample_of().tolist()
        column = 0
        for e in range(table.extents):
            before = e - 1 if e and sample[e] == sample[e - 1] else None
            column = 0 if before is None else column + int(table.length[before])
            if not table.flags[e] & Flag.PAD:
                self._multiply_extent(table, e, before, mask[sample[e]], column)

    def _multiply_extent(self, table: SpanTable, e: int, before: int | None, row: F32, column: int) -> None:
        c, begin, count = int(table.corpus[e]), int(table.begin[e]), int(table.length[e])
        document, flags = int(table.document[e]), int(table.flags[e])
        weights = self._documents[c]
        of_document = 1.0 if weights is None or document == UNRESOLVED else float(weights[document])
        first, last = 0, count + bool(flags & Flag.AHEAD)
        if column == 0 or (self._own_ends and not _goes_on(table, e, before)):
            first = 1
        if self._own_ends and flags & Flag.TAIL:
            last = count
        ahead = last > count and flags & Flag.TAIL and weights is not None
        # The label that is token k of the extent stands one column before it.
        label = row[column - 1 + first : column - 1 + last]
        if ahead and weights is not None:
            of_next = weights[int(self._corpora[c].table().at_tokens(np.array([begin + count]))[0])]
            label[:-1] *= of_document
            label[-1:] *= of_next
        else:
            label *= of_document
        if self._own_ends and flags & Flag.TAIL and count:
            row[column + count - 1] *= of_document
        of_tokens = self._weights_at(c, begin + first, last - first) if last > first else None
        if of_tokens is not None:
            label *= of_tokens

    def _weights_at(self, corpus: int, begin: int, count: int) -> F32 | None:
        """Return the weights of tokens [begin, begin + count) of a corpus, or None where none of its shards has any."""
        memory = self._memory
        first, _, base, shards, first_shard = memory.corpora[corpus].tolist()
        edges = memory.edges[base : base + shards + 1]
        at, end = begin + first, begin + first + count
        out, found = np.ones(count, dtype=np.float32), False
        number = int(np.searchsorted(edges, at, side="right")) - 1
        while at < end:
            stop = min(end, int(edges[number + 1]))
            owner, local = memory.owner(first_shard + number)
            read = getattr(owner.shard(local), "weights", None)
            there = None if read is None else read(at - int(edges[number]), stop - int(edges[number]))
            if there is not None and stop > at:
                out[at - begin - first : stop - begin - first] = there
                found = True
            at, number = stop, number + 1
        return out if found else None


def _goes_on(table: SpanTable, e: int, before: int | None) -> bool:
    return (
        before is not None
        and not table.flags[before] & (Flag.CUT | Flag.PAD)
        and bool(table.corpus[e] == table.corpus[before])
        and bool(table.document[e] == table.document[before])
        and bool(table.begin[e] == table.begin[before] + table.length[before])
    )
