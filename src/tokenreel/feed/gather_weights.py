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
    """Weights over several corpora; `documents` holds one array for each corpus, or None where all count alike."""

    def __init__(
        self, corpora: Sequence[Corpus], memory: ShardMemory, documents: Sequence[F32 | None] | None = None
    ) -> None:
        self._memory = memory
        self._documents = tuple(documents) if documents is not None else (None,) * len(corpora)
        if len(self._documents) != len(corpora):
            found = len(self._documents)
            raise UsageError("USE003", "document_weights", expected=f"{len(corpora)} corpora", found=found)
        for number, weights in enumerate(self._documents):
            if weights is not None and len(weights) != len(corpora[number]):
                expected = f"{len(corpora[number])} weights for corpus {number}"
                raise UsageError("USE003", "document_weights", expected=expected, found=len(weights))

    def multiply(self, table: SpanTable, mask: F32) -> None:
        """Multiply the weights of labels into `mask`. Cost: a few microseconds an extent, in Python.

        At a document's true end the label is the end's, and its weight the document's.
        """
        sample = table.sample_of()
        column = np.cumsum(table.length) - table.length
        column -= column[np.minimum(table.splits[:-1], max(0, table.extents - 1))][sample] if table.extents else 0
        for e in np.flatnonzero((table.flags & Flag.PAD) == 0).tolist():
            row, at, count = mask[sample[e]], int(column[e]), int(table.length[e])
            ahead = bool(table.flags[e] & Flag.AHEAD)
            weights = self._weights_at(int(table.corpus[e]), int(table.begin[e]), count + ahead)
            if weights is not None:
                # The label of token k stands one column before it.
                skip = 1 if at == 0 else 0
                row[at - 1 + skip : at - 1 + count + ahead] *= weights[skip:]
            document = int(table.document[e])
            of_documents = self._documents[int(table.corpus[e])]
            if of_documents is not None and document != UNRESOLVED:
                row[at : at + count] *= of_documents[document]

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
