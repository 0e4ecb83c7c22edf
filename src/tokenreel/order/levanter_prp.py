"""The two permutations that Levanter shuffles with, computed position by position: Feistel and linear.

Both draw their parameters from NumPy's PCG64, seeded with ``randint(key, 2**30)``. Feistel: five rounds over two halves,
again and again until the result is below n. Linear: ``(a*x + b) mod n``. The second is computed as Levanter's expression
is by the NumPy it ran on: with NumPy 2 in float64, exact while ``a*(n-1) + b < 2**53``; with NumPy 1 in uint64. Beyond
that it is no permutation: some items come twice and others never, and `at` and `places` say which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import kernel, read_only
from tokenreel.order.levanter_rounds import backward, forward, round_keys_of
from tokenreel.order.threefry import Key, randint

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]

LIMIT = 1 << 62
STRETCH = 1 << 22
PermutationKind = Literal["feistel", "linear"]
KINDS = ("feistel", "linear")


@dataclass(frozen=True, slots=True)
class Feistel:
    """Levanter's FeistelPermutation of 0 .. n-1 under a key, forward and inverse. Cost: about 20 ns a position.

    Raises `OrderError`: ORD002 for n outside 1 .. 2**62, ORD001 for positions outside.

    >>> order = Feistel(10, (0, 0))
    >>> order.where(order.at(range(10))).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    n: int
    key: Key
    partitionable: bool = True
    is_permutation: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        _check_size(self.n)

    @property
    def seed(self) -> int:
        """What PCG64 is seeded with."""
        return randint(self.key, 1 << 30, partitionable=self.partitionable)

    @property
    def round_keys(self) -> U64:
        """The five round keys."""
        return round_keys_of(self.key, self.n, self.partitionable)

    def at(self, positions: npt.ArrayLike) -> I64:
        """Return the items at `positions`."""
        return self._through(positions, forward)

    def where(self, items: npt.ArrayLike) -> I64:
        """Return the positions of `items`: the inverse of `at`."""
        return self._through(items, backward)

    def places(self, items: npt.ArrayLike) -> tuple[I64, I64]:
        """Return pairs of (which item, a position of it): here one for each."""
        found = self.where(items).reshape(-1)
        return np.arange(len(found), dtype=np.int64), found

    def _through(self, values: npt.ArrayLike, run: Any) -> I64:
        asked = _checked(values, self.n)
        out = np.empty(len(asked), dtype=np.int64)
        run(asked, self.n, self.round_keys.reshape(1, -1), out)
        return out.reshape(np.shape(values))


@dataclass(frozen=True, slots=True)
class Linear:
    """Levanter's linear permutation under a key, as NumPy `numpy_major` computes it.

    Raises `OrderError`: ORD002 and ORD001 as `Feistel`, ORD131 where the two NumPys differ and none is named.

    >>> Linear(10, (0, 0)).at(range(10)).tolist()
    [4, 7, 0, 3, 6, 9, 2, 5, 8, 1]
    """

    n: int
    key: Key
    partitionable: bool = True
    numpy_major: int | None = None
    a: int = field(init=False)
    b: int = field(init=False)

    def __post_init__(self) -> None:
        _check_size(self.n)
        a, b = 1, 0
        if self.n > 1:
            draw = np.random.Generator(np.random.PCG64(self.seed))
            a = int(draw.integers(1, self.n))
            while math.gcd(a, self.n) != 1:
                a = int(draw.integers(1, self.n))
            b = int(draw.integers(0, self.n))
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "b", b)
        if self.numpy_major not in (None, 1, 2):
            raise OrderError("ORD130", "numpy_major", expected="1 or 2", found=self.numpy_major)
        if self.numpy_major is None and self.largest >= 1 << 53:
            found = f"a linear permutation of {self.n:,} items"
            raise OrderError("ORD131", expected="numpy_major 1 or 2", found=found)

    @property
    def seed(self) -> int:
        """What PCG64 is seeded with."""
        return randint(self.key, 1 << 30, partitionable=self.partitionable)

    @property
    def largest(self) -> int:
        """The largest number that is computed before it is taken modulo n."""
        return self.a * (self.n - 1) + self.b

    @property
    def is_permutation(self) -> bool:
        """Whether every item comes once."""
        return self.largest < 1 << (64 if self.numpy_major == 1 else 53)

    def at(self, positions: npt.ArrayLike) -> I64:
        """Return the items at `positions`."""
        asked = _checked(positions, self.n)
        return self._items(asked).reshape(np.shape(positions))

    def _items(self, asked: I64) -> I64:
        if self.n == 1:
            return asked
        if self.numpy_major == 2 or self.numpy_major is None:
            made: npt.NDArray[Any] = (
                np.float64(self.a) * asked.astype(np.uint64).astype(np.float64) + np.float64(self.b)
            ) % np.float64(self.n)
        else:
            wide = asked.astype(np.uint64)
            made = (np.uint64(self.a) * wide + np.uint64(self.b)) % np.uint64(self.n)
        return np.asarray(made.astype(np.int64), dtype=np.int64)

    def where(self, items: npt.ArrayLike) -> I64:
        """Return the positions of `items`; raises `OrderError` (ORD132) where it is no permutation: see `places`."""
        if not self.is_permutation:
            raise OrderError("ORD132", expected="a permutation", found=f"a linear map of {self.n:,} items")
        asked = _checked(items, self.n)
        out = np.empty(len(asked), dtype=np.int64)
        _undo(asked, pow(self.a, -1, self.n) if self.n > 1 else 1, self.b, self.n, out)
        return out.reshape(np.shape(items))

    def places(self, items: npt.ArrayLike) -> tuple[I64, I64]:
        """Return pairs of (which item, a position of it), by item, then by position.

        Cost: closed form for a permutation; else every position is looked at, about 10 ns each.
        """
        if self.is_permutation:
            found = self.where(items).reshape(-1)
            return np.arange(len(found), dtype=np.int64), found
        asked = _checked(items, self.n)
        sought = np.unique(asked)
        positions, values = [], []
        for first in range(0, self.n, STRETCH):
            near = np.arange(first, min(self.n, first + STRETCH), dtype=np.int64)
            made = self._items(near)
            hit = np.flatnonzero(np.isin(made, sought))
            positions.append(near[hit])
            values.append(made[hit])
        value, position = np.concatenate(values), np.concatenate(positions)
        by_value = np.argsort(value, kind="stable")
        value, position = value[by_value], position[by_value]
        low, high = np.searchsorted(value, asked, "left"), np.searchsorted(value, asked, "right")
        counts = high - low
        which = np.repeat(np.arange(len(asked), dtype=np.int64), counts)
        within = np.arange(len(which), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        return which, position[low[which] + within]


def permutation_of(
    kind: str, n: int, key: Key, *, partitionable: bool = True, numpy_major: int | None = None
) -> Feistel | Linear:
    """Return Levanter's permutation of a kind; raises `OrderError` (ORD002) for another."""
    if kind == "feistel":
        return Feistel(n, key, partitionable)
    if kind == "linear":
        return Linear(n, key, partitionable, numpy_major)
    raise OrderError("ORD002", "a permutation", expected=" or ".join(KINDS), found=kind)


def _check_size(n: int) -> None:
    if not 1 <= n <= LIMIT:
        raise OrderError("ORD002", "items of a permutation", expected="1 .. 2**62", found=n)


def _checked(values: npt.ArrayLike, n: int) -> I64:
    asked = np.ascontiguousarray(values, dtype=np.int64).reshape(-1)
    if asked.size and not (int(asked.min()) >= 0 and int(asked.max()) < n):
        raise OrderError("ORD001", expected=f"0 .. {n - 1}", found=f"{int(asked.min())} .. {int(asked.max())}")
    return asked


@kernel(f"void({read_only('int64')}, int64, int64, int64, int64[::1])")
def _undo(items: Any, factor: int, b: int, n: int, out: Any) -> None:
    for k in range(len(items)):
        left, times, total = (items[k] - b) % n, factor, 0
        if n <= 2147483648:
            out[k] = left * times % n
            continue
        # A product modulo n of up to 62 bits, by doubling.
        while times > 0:
            if times & 1:
                total = (total + left) % n
            left = (left + left) % n
            times >>= 1
        out[k] = total
