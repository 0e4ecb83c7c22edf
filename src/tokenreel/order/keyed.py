"""A keyed permutation of 0 .. n-1 computed position by position: no memory, no start-up, any n up to 2**63.

The algorithm, which never changes under this name ("keyed-1"). Let b be the bits of n - 1, at least 8, cut into a left
half of b // 2 bits and a right half of the rest. Round keys are the SplitMix64 outputs from the state
``mix(seed) ^ mix(stream + 2**63)`` onwards, `mix` being SplitMix64's finaliser. A round xors one half with the top bits of
``mix(other half + round key)``: the left half in even rounds, the right one in odd rounds, eight rounds in all. A result
of n or more goes through the rounds again, until it is below n: fewer than two passes on average for n above 128. Every step can be
undone, so `where` is as cheap as `at`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import inlined, kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

ROUNDS = 8
SMALLEST = 8
GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S27, S30, S31 = np.uint64(27), np.uint64(30), np.uint64(31)


@dataclass(frozen=True, slots=True)
class KeyedPermutation:
    """A permutation of 0 .. n-1 chosen by `seed` and `stream` (an epoch, a component), both 64 bits.

    Raises `OrderError` (ORD002) for n outside 0 .. 2**63 - 1, or a seed or stream outside 64 bits.

    >>> order = KeyedPermutation(10, seed=7)
    >>> order.at(range(10)).tolist()
    [0, 2, 9, 4, 1, 8, 7, 3, 6, 5]
    >>> order.where(order.at([3, 5, 9])).tolist()
    [3, 5, 9]
    """

    n: int
    seed: int
    stream: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.n < 1 << 63:
            raise OrderError("ORD002", "items of a keyed permutation", expected="0 .. 2**63 - 1", found=self.n)
        for name, value in (("seed", self.seed), ("stream", self.stream)):
            if not 0 <= value < 1 << 64:
                raise OrderError("ORD002", name, expected="0 .. 2**64 - 1", found=value)

    def at(self, positions: npt.ArrayLike) -> I64:
        """Return the items at `positions`; raises `OrderError` (ORD001) outside. Cost: about 30 ns a position."""
        return self._run(positions, _forward)

    def where(self, items: npt.ArrayLike) -> I64:
        """Return the positions of `items`: the inverse of `at`, at the same cost."""
        return self._run(items, _backward)

    def keys(self) -> npt.NDArray[np.uint64]:
        """Return the round keys."""
        state = _mixed(self.seed) ^ _mixed((self.stream + (1 << 63)) & 0xFFFFFFFFFFFFFFFF)
        steps = ((state + int(GAMMA) * (k + 1)) & 0xFFFFFFFFFFFFFFFF for k in range(ROUNDS))
        return np.array([_mixed(step) for step in steps], dtype=np.uint64)

    def _run(self, values: npt.ArrayLike, through: Any) -> I64:
        asked = np.ascontiguousarray(values, dtype=np.int64).reshape(-1)
        if asked.size and not (int(asked.min()) >= 0 and int(asked.max()) < self.n):
            raise OrderError("ORD001", expected=f"0 .. {self.n - 1}", found=f"{int(asked.min())} .. {int(asked.max())}")
        out = np.empty(asked.shape, dtype=np.int64)
        bits = max(SMALLEST, (self.n - 1).bit_length()) if self.n else SMALLEST
        through(asked, self.n, bits // 2, bits - bits // 2, self.keys(), out)
        return out.reshape(np.shape(values))


def _mixed(value: int) -> int:
    """Return SplitMix64's finaliser of a 64-bit integer."""
    value = (value ^ (value >> 30)) * int(FIRST) & 0xFFFFFFFFFFFFFFFF
    value = (value ^ (value >> 27)) * int(SECOND) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


@inlined
def mix(value: Any) -> Any:
    """Return SplitMix64's finaliser, in uint64."""
    value = (value ^ (value >> S30)) * FIRST
    value = (value ^ (value >> S27)) * SECOND
    return value ^ (value >> S31)


@kernel("void(int64[::1], int64, int64, int64, uint64[::1], int64[::1])")
def _forward(values: Any, n: int, left_bits: int, right_bits: int, keys: Any, out: Any) -> None:
    left_shift, right_shift = np.uint64(64 - left_bits), np.uint64(64 - right_bits)
    shift = np.uint64(right_bits)
    mask = (np.uint64(1) << shift) - np.uint64(1)
    limit = np.uint64(n)
    for k in range(len(values)):
        value = np.uint64(values[k])
        while True:
            left, right = value >> shift, value & mask
            for r in range(0, 8, 2):
                left ^= mix(right + keys[r]) >> left_shift
                right ^= mix(left + keys[r + 1]) >> right_shift
            value = (left << shift) | right
            if value < limit:
                break
        out[k] = np.int64(value)


@kernel("void(int64[::1], int64, int64, int64, uint64[::1], int64[::1])")
def _backward(values: Any, n: int, left_bits: int, right_bits: int, keys: Any, out: Any) -> None:
    left_shift, right_shift = np.uint64(64 - left_bits), np.uint64(64 - right_bits)
    shift = np.uint64(right_bits)
    mask = (np.uint64(1) << shift) - np.uint64(1)
    limit = np.uint64(n)
    for k in range(len(values)):
        value = np.uint64(values[k])
        while True:
            left, right = value >> shift, value & mask
            for r in range(7, -1, -2):
                right ^= mix(left + keys[r]) >> right_shift
                left ^= mix(right + keys[r - 1]) >> left_shift
            value = (left << shift) | right
            if value < limit:
                break
        out[k] = np.int64(value)
