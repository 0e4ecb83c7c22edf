"""`cu_seqlens` as Megatron gives them where entries hold no tokens: an edge for each of those too, equal to the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.pack.megatron_rows import edges_of_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.order.megatron_index import MegatronIndices


def entry_edges(order: Any, corpora: Sequence[Corpus]) -> EntryEdges | None:
    """Return what gives the edges of an order's samples, None where no entry is empty and extents say it all.

    `order` is a prepared `MegatronOrder` or `MegatronBlend`. Cost: the lengths of all sequences, read once.
    """
    empty = any(
        len(lengths) and int(lengths.min()) == 0
        for lengths in (corpus.sequences().lengths(0, corpus.sequences_count) for corpus in corpora)
    )
    return EntryEdges(order) if empty else None


class EntryEdges:
    """Edges of samples from the index arrays that a Megatron job would load, made when first needed."""

    def __init__(self, order: Any) -> None:
        self._order = order
        self._members: tuple[Any, ...] = tuple(getattr(order, "members", ())) or (order,)
        self._indices: dict[int, MegatronIndices] = {}

    def of(self, sample: int) -> npt.NDArray[np.int32]:
        """Return the row_tokens + 1 edges of one sample."""
        member, number = 0, sample
        if self._members[0] is not self._order:
            index, numbers = self._order.dispatched()
            member, number = int(index[sample]), int(numbers[sample])
        order = self._members[member]
        if member not in self._indices:
            self._indices[member] = order.indices()
        return edges_of_parts(_parts(self._indices[member], order, number), order.row_tokens, order.row_ahead)


def _parts(indices: MegatronIndices, order: Any, sample: int) -> list[int]:
    """Return the tokens that a sample takes of each entry, the look-ahead included."""
    row = int(indices.shuffle_index[sample])
    (first, begin), (last, end) = indices.sample_index[row].tolist(), indices.sample_index[row + 1].tolist()
    if first == last:
        return [end + order.row_ahead - begin]
    sizes = [int(order.table.lengths(entry, entry + 1)[0]) for entry in indices.document_index[first:last].tolist()]
    return [sizes[0] - begin, *sizes[1:], end + order.row_ahead]
