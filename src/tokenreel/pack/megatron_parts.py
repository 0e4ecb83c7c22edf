"""`cu_seqlens` to the last repeated edge: with Megatron's entries of no tokens, which leave no extent.

A repeated edge is an empty piece and changes nothing that a model computes; this is for those who compare arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.megatron import MegatronOrder
from tokenreel.order.megatron_blend import MegatronBlend
from tokenreel.pack.megatron_rows import edges_of_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.pack.policy import RowPolicy


def repeats(order: Order) -> bool:
    """Return whether samples of a prepared order can have entries of no tokens, and Megatron repeats edges then.

    Empty sequences are such; and where samples share no token, one that begins with a sequence has the end of another.
    """
    members = order.members if isinstance(order, MegatronBlend) else (order,)
    return any(
        isinstance(one, MegatronOrder)
        and one.prepared is not None
        and (one.row_ahead == 0 or bool((np.diff(one.prepared.laid.offsets) == 0).any()))
        for one in members
    )


def exact_edges(
    order: Order, policy: RowPolicy
) -> Callable[[Mapping[str, npt.NDArray[Any]], npt.ArrayLike], Mapping[str, npt.NDArray[Any]]]:
    """Return what puts exact `cu_seqlens` into the arrays of a batch, given its samples; nothing where none can repeat."""
    edges = ExactEdges(order) if policy.inter_document_masking and repeats(order) else None

    def put(arrays: Mapping[str, npt.NDArray[Any]], samples: npt.ArrayLike) -> Mapping[str, npt.NDArray[Any]]:
        return arrays if edges is None else {**arrays, "cu_seqlens": edges.of(samples)}

    return put


class ExactEdges:
    """Edges of the entries that samples of a prepared `megatron@1` or `megatron-blend@1` are made of.

    Holds the index arrays that a Megatron job would load: 8 bytes a sample and 4 a sequence besides the order's own.
    Raises `OrderError`: ORD014 for an order that is not prepared, ORD002 for one of another kind.
    """

    def __init__(self, order: Order) -> None:
        if not isinstance(order, MegatronOrder | MegatronBlend):
            raise OrderError("ORD002", "order", expected="megatron@1 or megatron-blend@1", found=order.name)
        self._members = order.members if isinstance(order, MegatronBlend) else (order,)
        self._blend = order if isinstance(order, MegatronBlend) else None
        self._indices = [member.indices() for member in self._members]
        self._lengths = [
            np.zeros(0, dtype=np.int64) if member.prepared is None else np.diff(member.prepared.laid.offsets)
            for member in self._members
        ]

    def of(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return `cu_seqlens` of samples, (samples, row tokens + 1) int32."""
        wanted = np.asarray(samples, dtype=np.int64).reshape(-1)
        member, number = np.zeros(len(wanted), dtype=np.int64), wanted
        if self._blend is not None:
            of, numbers = self._blend.dispatched()
            member, number = of[wanted].astype(np.int64), numbers[wanted]
        width, ahead = self._members[0].row_tokens, self._members[0].row_ahead
        out = np.empty((len(wanted), width + 1), dtype=np.int32)
        for k, (m, n) in enumerate(zip(member.tolist(), number.tolist(), strict=True)):
            out[k] = edges_of_parts(self._parts(m, n), width, ahead)
        return out

    def _parts(self, member: int, sample: int) -> list[int]:
        """Return the tokens of a sample's entries, look-ahead included."""
        indices, ahead = self._indices[member], self._members[member].row_ahead
        row = int(indices.shuffle_index[sample])
        (first, begin), (last, end) = indices.sample_index[row].tolist(), indices.sample_index[row + 1].tolist()
        if first == last:
            return [end + ahead - begin]
        entries = indices.document_index[first : last + 1] - self._members[member].first
        sizes = self._lengths[member][entries].tolist()
        return [sizes[0] - begin, *sizes[1:-1], end + ahead]
