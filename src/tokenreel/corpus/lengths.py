"""Lengths of documents: exact quantiles and buckets that double; pure."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

QUANTILES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
SHORT = 1 << 16
"""Lengths below this are counted one by one; longer ones are kept (there are few)."""
FEW = SHORT
"""Lengths that wait before they are counted: a histogram costs as much as they do."""
MANY = 1 << 12
"""Arrays of them that may wait."""


class Lengths:
    """Counts lengths exactly: one by one below 65,536, kept above; half a MiB and 8 bytes per longer one.

    >>> lengths = Lengths()
    >>> lengths.add(np.array([0, 1, 3, 3, 70_000]))
    >>> lengths.quantiles()[0.5], lengths.buckets()
    (3, [(0, 0, 1), (1, 1, 1), (2, 3, 2), (65536, 131071, 1)])
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self._counts: npt.NDArray[np.int64] | None = None
        self._few: list[npt.NDArray[np.int64]] = []
        """Short lengths that are not in the counts yet."""
        self._waiting = 0
        self._long: list[npt.NDArray[np.int64]] = []

    def add(self, lengths: npt.NDArray[np.integer[Any]]) -> None:
        """Add lengths in any order."""
        sizes = np.asarray(lengths, dtype=np.int64)
        short = sizes
        if int(sizes.max(initial=0)) >= SHORT:
            short = sizes[sizes < SHORT]
            self._long.append(sizes[sizes >= SHORT])
        self._few.append(short.copy() if short is sizes else short)
        self._waiting += len(short)
        if self._waiting >= FEW or len(self._few) >= MANY:
            self._count()
        self.count += len(sizes)
        self.total += int(sizes.sum())

    def join(self, other: Lengths) -> None:
        """Add what was added to `other`."""
        for few in other._few:
            self._few.append(few)
            self._waiting += len(few)
        if other._counts is not None:
            self._counts = other._counts.copy() if self._counts is None else self._counts + other._counts
        if self._waiting >= FEW or len(self._few) >= MANY:
            self._count()
        self._long += other._long
        self.count += other.count
        self.total += other.total

    def _count(self) -> npt.NDArray[np.int64]:
        """Return how often each short length was added."""
        if self._counts is None:
            self._counts = np.zeros(SHORT, dtype=np.int64)
        if self._waiting:
            self._counts += np.bincount(np.concatenate(self._few), minlength=SHORT)
        self._few, self._waiting = [], 0
        return self._counts

    @property
    def empty(self) -> int:
        """How many lengths are 0."""
        return int(self._count()[0])

    def quantiles(self, at: Iterable[float] = QUANTILES) -> dict[float, int]:
        """Return, by q, the smallest length that at least q of the units do not exceed; empty without units."""
        if not self.count:
            return {}
        cumulative = np.cumsum(self._count())
        long = np.sort(np.concatenate(self._long)) if self._long else np.empty(0, dtype=np.int64)
        out = {}
        for q in at:
            rank = max(1, math.ceil(q * self.count - 1e-9))
            short = int(cumulative[-1])
            out[q] = int(np.searchsorted(cumulative, rank)) if rank <= short else int(long[rank - short - 1])
        return out

    def buckets(self) -> list[tuple[int, int, int]]:
        """Return (lowest, highest, count) for lengths of 0, 1, 2-3, 4-7 and so on; empty buckets are left out."""
        edges = [0, *(1 << k for k in range(SHORT.bit_length()))]
        counts = self._count()
        found = [(low, high - 1, int(counts[low:high].sum())) for low, high in pairwise(edges)]
        if self._long:
            power = np.floor(np.log2(np.concatenate(self._long))).astype(np.int64)
            found += [
                (1 << k, (2 << k) - 1, int(count)) for k, count in enumerate(np.bincount(power).tolist()) if count
            ]
        return [bucket for bucket in found if bucket[2]]
