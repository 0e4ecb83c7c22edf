"""The kernels of Levanter's mixture: from positions in a permuted block to components and their sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel, read_only

if TYPE_CHECKING:
    import numpy.typing as npt

    I32 = npt.NDArray[np.int32]

KEPT_BYTES = 64 << 20
REMEMBERED = 1024
_I64 = read_only("int64")


class BlockCache:
    """The last permuted blocks, by number; at most 64 MiB of them. Any number of threads may share one.

    What it holds follows from the numbers alone, so that a block lost or made twice changes no answer.
    """

    __slots__ = ("_blocks", "_seen", "_size")

    def __init__(self, block: int) -> None:
        self._size = max(2, KEPT_BYTES // (4 * block))
        self._blocks: dict[int, I32] = {}
        self._seen: dict[int, None] = {}

    def get(self, number: int) -> I32 | None:
        """Return a block if it is kept."""
        return self._blocks.get(number)

    def put(self, number: int, ids: I32) -> None:
        """Keep a block."""
        self._blocks[number] = ids
        _forget(self._blocks, self._size)

    def met_before(self, number: int) -> bool:
        """Say whether a block was asked for before, and remember that it was now."""
        known = number in self._seen
        self._seen[number] = None
        _forget(self._seen, REMEMBERED)
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process starts empty.
        return BlockCache, (max(1, KEPT_BYTES // (4 * self._size)),)


def _forget(held: dict[int, Any], size: int) -> None:
    """Drop the oldest entries beyond `size`."""
    if len(held) > size:
        for number in list(held)[: len(held) - size]:
            held.pop(number, None)


@kernel(f"void(int32[::1], {_I64}, int64, int64[::1], int64[::1], int64, int64[::1], boolean, int32[::1], int64[::1])")
def read_block(
    ids: Any, samples: Any, first: int, counts: Any, base: Any, turn: int, lengths: Any, wrap: bool, component: Any,
    number: Any,
) -> None:  # fmt: skip
    """Write the component of each sample of a block that begins at `first`, and its number there, modulo the length."""
    for k in range(len(samples)):
        packed = ids[samples[k] - first]
        c = packed >> 16
        found = base[c] + turn * counts[c] + (packed & 0xFFFF)
        n = lengths[c]
        if wrap and n > 0 and found >= n:
            found %= n
        component[k] = c
        number[k] = found


@kernel("void(int64[::1], int32[::1])")
def lay_out_block(counts: Any, out: Any) -> None:
    """Write a block before it is permuted: component << 16 | rank, component by component."""
    at = 0
    for c in range(len(counts)):
        for rank in range(counts[c]):
            out[at] = (c << 16) | rank
            at += 1


@kernel("void(int32[::1], int64, int64[::1])")
def tally(ids: Any, end: int, out: Any) -> None:
    """Count the components of a block's first `end` positions."""
    for k in range(end):
        out[ids[k] >> 16] += 1


@kernel("void(int32[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def find_in_block(ids: Any, starts: Any, components: Any, ranks: Any, out: Any) -> None:
    """Write the position of each (component, rank); `starts` are the components' places in the unpermuted block."""
    where = np.empty(len(ids), dtype=np.int64)
    for k in range(len(ids)):
        where[starts[ids[k] >> 16] + (ids[k] & 0xFFFF)] = k
    for k in range(len(ranks)):
        out[k] = where[starts[components[k]] + ranks[k]]
