"""A plain JAX rendering of Levanter's order: one `jax.random.permutation` a block, a Python loop an id, scalar Feistel.

Levanter itself cannot be installed from the package index; this is what its order costs when it is written down as it is
described, with JAX for the random numbers, compiled by `jax.jit`, and the last blocks and windows kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

KEPT_BLOCKS, KEPT_WINDOWS = 64, 4


@partial(jax.jit)
def permuted(key: Any, block: Any, ids: Any) -> Any:
    return jax.random.permutation(jax.random.fold_in(key, block), ids)


class PlainMixture:
    """Components by stages of counts; ids are looked up one by one."""

    def __init__(
        self, lengths: Sequence[int], starts: Sequence[int], counts: Sequence[Sequence[int]], block: int, key: Any
    ) -> None:
        self.lengths, self.starts, self.counts, self.block = lengths, starts, counts, block
        self.key = jax.numpy.array(key, dtype=jax.numpy.uint32)
        self.unpermuted = [
            jax.numpy.array(
                np.concatenate([(c << 16) + np.arange(n) for c, n in enumerate(row)]), dtype=jax.numpy.int32
            )
            for row in counts
        ]
        self.base = [[0] * len(lengths)]
        for s in range(1, len(starts)):
            blocks = (starts[s] - starts[s - 1]) // block
            self.base.append([b + n * blocks for b, n in zip(self.base[-1], counts[s - 1], strict=True)])
        self.kept: OrderedDict[int, Any] = OrderedDict()

    def ids(self, block: int) -> Any:
        if block not in self.kept:
            stage = self.stage(block * self.block)
            self.kept[block] = np.asarray(permuted(self.key, block, self.unpermuted[stage]))
            while len(self.kept) > KEPT_BLOCKS:
                self.kept.popitem(last=False)
        return self.kept[block]

    def stage(self, sample: int) -> int:
        return max(s for s, start in enumerate(self.starts) if start <= sample)

    def look_up(self, samples: Sequence[int]) -> list[tuple[int, int]]:
        out = []
        for sample in samples:
            block = sample // self.block
            stage = self.stage(block * self.block)
            packed = int(self.ids(block)[sample % self.block])
            component, rank = packed >> 16, packed & 0xFFFF
            turn = block - self.starts[stage] // self.block
            number = self.base[stage][component] + turn * self.counts[stage][component] + rank
            out.append((component, number % self.lengths[component]))
        return out


class PlainFeistel:
    """One index at a time."""

    def __init__(self, n: int, key: Any) -> None:
        seed = int(jax.random.randint(key, (), 0, 1 << 30))
        bits = (n - 1).bit_length()
        self.n, self.right = n, bits - bits // 2
        self.mask = (1 << self.right) - 1
        draw = np.random.Generator(np.random.PCG64(seed))
        self.keys = [int(k) for k in draw.integers(0, 1 << self.right, size=5, dtype=np.uint64)]

    def __call__(self, index: int) -> int:
        value = index
        while True:
            low, high = value & self.mask, value >> self.right
            for key in self.keys:
                high, low = low, high ^ ((low * 2654435761 + key) & self.mask)
            value = high << self.right | low
            if value < self.n:
                return value


class PlainBlockShuffle:
    """Blocks of neighbours permuted, windows of blocks permuted inside; the last windows are kept."""

    def __init__(self, n: int, key: Any, io: int = 256, window: int = 512) -> None:
        self.n, self.io, self.window = n, io, window
        kb, self.kf, self.kt = jax.random.split(jax.numpy.array(key, dtype=jax.numpy.uint32), 3)
        self.full = n // io
        self.last = max(0, ((n + io - 1) // io + window - 1) // window - 1)
        self.blocks = PlainFeistel(self.full, kb)
        self.kept: OrderedDict[tuple[str, int], Callable[[int], int]] = OrderedDict()

    def _kept(self, name: str, number: int, size: int, key: Any) -> Callable[[int], int]:
        place = (name, number)
        if place not in self.kept:
            self.kept[place] = PlainFeistel(size, jax.random.fold_in(key, number))
            while len(self.kept) > KEPT_WINDOWS:
                self.kept.popitem(last=False)
        return self.kept[place]

    def __call__(self, index: int) -> int:
        number = min(index // (self.io * self.window), self.last)
        items = min(self.window, self.full - number * self.window) * self.io
        offset = index - number * self.io * self.window
        if offset < items:
            q = self._kept("window", number, items, self.kf)(offset)
            return self.blocks(number * self.window + q // self.io) * self.io + q % self.io
        q, left = offset - items, self.n - self.full * self.io
        return self.full * self.io + (self._kept("tail", number, left, self.kt)(q) if left > 1 else q)
