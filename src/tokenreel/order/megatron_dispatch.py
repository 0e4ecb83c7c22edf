"""Which member of a blend each sample comes from: Megatron's greedy dispatch, exact to the last bit.

At sample s the member with the largest ``w*max(s, 1) - taken`` is chosen, the first of equals. The product is rounded
before the subtraction on x86 ("x86"); compilers for ARM fuse the two for every member but the first ("fused"), and such
hosts read another order from the same weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import fused, inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

Arithmetic = Literal["x86", "fused"]
MOST_MEMBERS = 32767


def normalised(weights: Sequence[float]) -> list[float]:
    """Return weights over their sum, as numpy adds (pairwise, eight at a time); raises `OrderError` (ORD015).

    >>> normalised([30.0, 7.0, 63.5])
    [0.29850746268656714, 0.06965174129353234, 0.6318407960199005]
    """
    check_weights(weights)
    array = np.array(weights, dtype=np.float64)
    shares: list[float] = (array / np.sum(array)).tolist()
    return shares


def check_weights(weights: Sequence[float]) -> None:
    """Raise `OrderError` (ORD015) unless there are 1 .. 32,766 weights, all of them numbers above zero."""
    if not 0 < len(weights) < MOST_MEMBERS:
        raise OrderError("ORD015", "members", expected=f"1 .. {MOST_MEMBERS - 1}", found=len(weights))
    for number, weight in enumerate(weights):
        if not 0 < weight < float("inf"):
            raise OrderError("ORD015", f"member {number}", expected="a weight above 0", found=weight)


def dispatch(
    weights: Sequence[float], samples: int, *, arithmetic: Arithmetic = "x86"
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64]]:
    """Return, for each sample, its member (int16) and which of that member's samples it is (int64).

    The weights are used as they are. Raises `OrderError`: ORD015 for weights, ORD002 otherwise. Cost: 9 ns a
    sample for 3 members, 45 ns for 100.

    >>> dispatch([0.5, 0.3, 0.2], 6)[0].tolist()
    [0, 1, 2, 0, 1, 0]
    """
    check_weights(weights)
    return _dispatched(weights, np.full(len(weights), np.inf), samples, arithmetic)


def dispatch_all(
    sizes: Sequence[int], *, arithmetic: Arithmetic = "x86"
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64]]:
    """Return the dispatch that uses every sample of members of these sizes: weights are shares, spent members drop out.

    >>> dispatch_all([1, 2, 1])[0].tolist()
    [1, 0, 2, 1]
    """
    check_weights(sizes)
    total = sum(sizes)
    shares = [size / float(total) for size in sizes]
    return _dispatched(shares, np.array(sizes, dtype=np.float64), total, arithmetic)


def _dispatched(
    weights: Sequence[float], limits: npt.NDArray[np.float64], samples: int, arithmetic: str
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64]]:
    if samples < 0:
        raise OrderError("ORD002", "samples of a blend", expected="0 or more", found=samples)
    if arithmetic not in ("x86", "fused"):
        raise OrderError("ORD002", "arithmetic", expected="x86 or fused", found=arithmetic)
    members, numbers = np.empty(samples, dtype=np.int16), np.empty(samples, dtype=np.int64)
    share = np.array(weights, dtype=np.float64)
    taken = np.zeros(len(share))
    contract = arithmetic == "fused"
    if len(share) <= FEW:
        _few(share, taken, limits, contract, members, numbers)
    else:
        due, following, near = (np.empty(len(share), dtype=np.int64) for _ in range(3))
        _many(share, taken, limits, contract, due, following, near, np.empty(RING, dtype=np.int64), members, numbers)
    return members, numbers


FEW = 16
"""Members up to which looking at all of them is the fastest."""
RING = 4096
SLACK = 1e-3
"""More than any rounding of a product below 2**40."""
VECTORS = "float64[::1], float64[::1], float64[::1], boolean"


@inlined
def error_of(share: Any, taken: Any, contract: bool, k: int, at: float) -> Any:
    """Return how far member `k` is behind its share, in either arithmetic."""
    if contract and k > 0:
        return fused(share[k], at, -taken[k])
    return share[k] * at - taken[k]


@kernel(f"void({VECTORS}, int16[::1], int64[::1])")
def _few(share: Any, taken: Any, limits: Any, contract: bool, members: Any, numbers: Any) -> None:
    for s in range(len(members)):
        at = max(np.float64(s), 1.0)
        best = 0
        most = share[0] * at - taken[0]
        if contract:
            for k in range(1, len(share)):
                error = fused(share[k], at, -taken[k])
                if error > most:
                    most = error
                    best = k
        else:
            for k in range(1, len(share)):
                error = share[k] * at - taken[k]
                if error > most:
                    most = error
                    best = k
        members[s] = best
        numbers[s] = np.int64(taken[best])
        taken[best] += 1.0
        if taken[best] == limits[best]:
            taken[best] = np.inf


@inlined
def wait(k: int, s: int, due: Any, following: Any, ring: Any) -> None:
    """Put member `k` in the list of the sample it is due at, or of the furthest one the ring has."""
    slot = min(due[k], s + len(ring) - 1) & (len(ring) - 1)
    following[k] = ring[slot]
    ring[slot] = k


@inlined
def due_at(taken: Any, share: Any, k: int, floor: float) -> Any:
    """Return a sample at or before which the error of member `k` is back at `floor`."""
    return np.int64(min((taken[k] + floor - SLACK) / share[k], 9e18)) - 1


@inlined
def arrive(s: int, count: int, due: Any, following: Any, ring: Any, near: Any) -> Any:
    """Move the members that are due at sample `s` into `near`; return how many are there."""
    k = ring[s & (len(ring) - 1)]
    ring[s & (len(ring) - 1)] = -1
    while k >= 0:
        after = following[k]
        if due[k] <= s:
            near[count] = k
            count += 1
        else:
            wait(k, s, due, following, ring)
        k = after
    return count


@inlined
def settle(s: int, floor: float, share: Any, taken: Any, due: Any, following: Any, ring: Any, near: Any) -> Any:
    """Put every member that is left where `floor` says; return how many are in `near`."""
    count = 0
    ring[:] = -1
    for k in range(len(share)):
        if taken[k] < np.inf:
            due[k] = due_at(taken, share, k, floor)
            if due[k] <= s:
                near[count] = k
                count += 1
            else:
                wait(k, s, due, following, ring)
    return count


@kernel(f"void({VECTORS}, int64[::1], int64[::1], int64[::1], int64[::1], int16[::1], int64[::1])")
def _many(
    share: Any, taken: Any, limits: Any, contract: bool, due: Any, following: Any, near: Any, ring: Any, members: Any,
    numbers: Any,
) -> None:  # fmt: skip
    """Look only at members that can be the furthest behind; the same choices as `_few`.

    A member just chosen is a whole sample ahead of where it was, and not worth a look until its error is back at a
    floor below which no choice was made lately. Until then it waits in a ring of lists, one per sample to come. When
    the best of the members in `near` is below the floor, all are looked at and the floor is lowered.
    """
    n = len(share)
    floor = np.inf
    lowest = np.inf
    count = 0
    ring[:] = -1
    for s in range(len(members)):
        at = max(np.float64(s), 1.0)
        count = arrive(s, count, due, following, ring, near)
        place = 0
        best = n
        most = -np.inf
        for p in range(count):
            k = near[p]
            error = error_of(share, taken, contract, k, at)
            if error > most or (error == most and k < best):
                most = error
                best = k
                place = p
        if most < floor or best == n:
            most = -np.inf
            for k in range(n):
                error = error_of(share, taken, contract, k, at)
                if error > most:
                    most = error
                    best = k
            floor = most - min(0.05, 2.0 / n)
            lowest = most
            count = settle(s, floor, share, taken, due, following, ring, near)
            place = 0
            while near[place] != best:
                place += 1
        members[s] = best
        numbers[s] = np.int64(taken[best])
        taken[best] += 1.0
        if taken[best] == limits[best]:
            taken[best] = np.inf
        due[best] = due_at(taken, share, best, floor)
        if due[best] > s + 1 or taken[best] == np.inf:
            count -= 1
            near[place] = near[count]
            if taken[best] < np.inf:
                wait(best, s, due, following, ring)
        lowest = min(lowest, most)
        if s & 511 == 511:
            floor = max(floor, lowest - min(0.05, 2.0 / n))
            lowest = np.inf
