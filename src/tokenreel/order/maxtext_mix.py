"""Grain's ``IterDataset.mix``, position by position: which member, and which of its elements, closed form both ways.

Weights become whole shares of at least 100. With k elements out of the mixture, the first member has given
``ceil(k * share / total)`` of them and the others, in the same way, what is left. The mixture ends at the first member
that has no element when its turn comes. There is no randomness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.maxtext_spec import check_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

LARGEST = 1 << 62


def grain_shares(weights: Sequence[float]) -> tuple[int, ...]:
    """Return weights as Grain's whole shares: the smallest is 100 or, by rounding, 99.

    Raises `OrderError` (ORD002) for a weight of 0 or a ratio of weights beyond 10**15, `UsageError` as `check_weights`.

    >>> grain_shares([0.7, 0.3])
    (233, 100)
    """
    check_weights(weights)
    if min(weights) <= 0:
        raise OrderError("ORD002", "weights", expected="all above 0", found=min(weights))
    if max(weights) / min(weights) > 1e15:
        raise OrderError("ORD002", "weights", expected="a ratio of 10**15 at most", found=max(weights) / min(weights))
    scale = 100 / min(weights)
    return tuple(int(weight * scale) for weight in weights)


def grain_given(counts: npt.ArrayLike, shares: Sequence[int]) -> I64:
    """Return how many elements each member has given when `counts` are out: one column a member.

    >>> grain_given([0, 1, 2, 4], [233, 100]).tolist()
    [[0, 0], [1, 0], [2, 0], [3, 1]]
    """
    left = np.array(counts, dtype=np.int64).reshape(-1)
    if left.size and int(left.min()) < 0:
        raise OrderError("ORD001", expected="0 or more", found=int(left.min()))
    total = sum(shares)
    left = _exact(left, total)
    out = np.empty((len(left), len(shares)), dtype=np.int64)
    for member, share in enumerate(shares):
        given = -(-left * share // total)
        out[:, member] = given
        left = left - given
        total -= share
    return out


def grain_mix_at(positions: npt.ArrayLike, shares: Sequence[int]) -> tuple[npt.NDArray[np.int32], I64]:
    """Return (member, its element) at positions of an endless mixture. Cost: some 20 ns a position and member.

    >>> [array.tolist() for array in grain_mix_at(range(5), [233, 100])]
    [[0, 0, 0, 1, 0], [0, 1, 2, 0, 3]]
    """
    asked = np.array(positions, dtype=np.int64).reshape(-1)
    before = grain_given(asked, shares)
    member = np.argmax(grain_given(asked + 1, shares) - before, axis=1)
    return member.astype(np.int32), before[np.arange(len(asked)), member]


def grain_mix_place(member: int, elements: npt.ArrayLike, shares: Sequence[int]) -> I64:
    """Return the positions at which a member's elements stand in an endless mixture: the inverse of `grain_mix_at`.

    Raises `OrderError` (ORD001) for a position of 2**63 or more.

    >>> grain_mix_place(1, [0, 1], [233, 100]).tolist()
    [3, 6]
    """
    at = _place(member, np.array(elements, dtype=np.int64).reshape(-1), shares)
    if at.size and int(at.max()) >= 1 << 63:
        raise OrderError("ORD001", expected="below 2**63", found=int(at.max()))
    return at.astype(np.int64)


def grain_mix_length(lengths: Sequence[int], shares: Sequence[int]) -> int:
    """Return the elements of a mixture of members of `lengths`: up to the turn of the first one exhausted.

    >>> grain_mix_length([20, 30], [233, 100])
    28
    """
    ends = (_place(member, np.array([length]), shares)[0] for member, length in enumerate(lengths))
    return min(int(end) for end in ends)


def _place(member: int, elements: I64, shares: Sequence[int]) -> npt.NDArray[Any]:
    total = sum(shares[member:])
    # A position is at most elements * sum / share, and is multiplied by a sum once more.
    at = _exact(elements, -(-(sum(shares) ** 2) // shares[member]))
    # The i-th element of a member is the last of the fewest k with ceil(k * share / total) = i + 1.
    at = at * total // shares[member]
    for earlier in reversed(range(member)):
        # Among k elements, floor(k * rest / total) are not the earlier member's.
        rest, total = total, total + shares[earlier]
        at = -(-(at + 1) * total // rest) - 1
    return at


def _exact(values: I64, factor: int) -> npt.NDArray[Any]:
    """Return values that may be multiplied by `factor`: as they are, else as Python's integers."""
    if values.size and (int(values.max()) + 2) * factor >= LARGEST:
        return values.astype(object)
    return values
