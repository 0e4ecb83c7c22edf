"""Where in a block of a mixture the samples of each component stand: a keyed shuffle of the block's multiset.

A block starts as its components in order, each as often as it occurs. Position i = 0, 1, .. is then swapped with position
``i + ((word >> 32) * (block - i) >> 32)``, the words being SplitMix64's from the state ``mix(seed) ^ mix(first + 2**63)``
on, `first` the number of the block's first sample. The samples of a component keep their own order: the k-th of them in the block is the
k-th that the component gives. Position i is final after i + 1 swaps, so a block is worked only as far as it is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenreel.order.kernels import inlined, kernel
from tokenreel.order.keyed import GAMMA, mix

I64 = npt.NDArray[np.int64]
TOP, HALF = np.uint64(1 << 63), np.uint64(32)


def places(seed: int, block: int, firsts: I64, counts: I64, which: I64, at: I64) -> tuple[npt.NDArray[np.int32], I64]:
    """Return, per position asked, its component and how many of that component stand before it in the block.

    Block k starts at sample `firsts[k]` and holds `counts[k]`; `which` names the blocks, `at` the positions in them, sorted
    by both. Cost: 3 ns for every position from the block's start on.
    """
    components, ranks = np.empty(len(at), dtype=np.int32), np.empty(len(at), dtype=np.int64)
    _place(firsts, counts, which, at, np.uint64(seed), block, components, ranks)
    return components, ranks


def prefixes(seed: int, block: int, firsts: I64, counts: I64, at: I64) -> I64:
    """Return ``[k, c]``: samples of each component in the first `at[k]` positions of block k."""
    out = np.zeros(counts.shape, dtype=np.int64)
    _prefix(firsts, counts, at, np.uint64(seed), block, out)
    return out


def finds(seed: int, block: int, firsts: I64, counts: I64, component: int, ranks: I64) -> I64:
    """Return the position in block k of the sample of `component` that `ranks[k]` others of it stand before."""
    out = np.empty(len(ranks), dtype=np.int64)
    _find(firsts, counts, component, ranks, np.uint64(seed), block, out)
    return out


@inlined
def lay_out(counts: Any, slots: Any) -> None:
    """Write the components in order, each as often as it occurs."""
    position = 0
    for c in range(len(counts)):
        for _ in range(counts[c]):
            slots[position] = c
            position += 1


@inlined
def settle(slots: Any, i: int, state: Any) -> None:
    """Make position i final: the swap with a position at or behind it."""
    j = i + np.int64((mix(state) >> HALF) * np.uint64(len(slots) - i) >> HALF)
    held = slots[i]
    slots[i] = slots[j]
    slots[j] = held


@kernel("void(int64[::1], int64[:,::1], int64[::1], int64[::1], uint64, int64, int32[::1], int64[::1])")
def _place(firsts: Any, counts: Any, which: Any, at: Any, seed: Any, block: int, components: Any, ranks: Any) -> None:
    slots = np.empty(block, dtype=np.int32)
    seen = np.zeros(counts.shape[1], dtype=np.int64)
    state = np.uint64(0)
    done, last, rank = 0, -1, 0
    for k in range(len(at)):
        if which[k] != last:
            last = which[k]
            lay_out(counts[last], slots)
            seen[:] = 0
            done = 0
            state = mix(seed) ^ mix(np.uint64(firsts[last]) + TOP)
        while done <= at[k]:
            state += GAMMA
            settle(slots, done, state)
            rank = seen[slots[done]]
            seen[slots[done]] += 1
            done += 1
        components[k] = slots[done - 1]
        ranks[k] = rank


@kernel("void(int64[::1], int64[:,::1], int64[::1], uint64, int64, int64[:,::1])")
def _prefix(firsts: Any, counts: Any, at: Any, seed: Any, block: int, out: Any) -> None:
    slots = np.empty(block, dtype=np.int32)
    for k in range(len(at)):
        lay_out(counts[k], slots)
        state = mix(seed) ^ mix(np.uint64(firsts[k]) + TOP)
        for i in range(at[k]):
            state += GAMMA
            settle(slots, i, state)
            out[k, slots[i]] += 1


@kernel("void(int64[::1], int64[:,::1], int64, int64[::1], uint64, int64, int64[::1])")
def _find(firsts: Any, counts: Any, component: int, ranks: Any, seed: Any, block: int, out: Any) -> None:
    slots = np.empty(block, dtype=np.int32)
    for k in range(len(ranks)):
        lay_out(counts[k], slots)
        state = mix(seed) ^ mix(np.uint64(firsts[k]) + TOP)
        left = ranks[k]
        for i in range(block):
            state += GAMMA
            settle(slots, i, state)
            if slots[i] == component:
                if left == 0:
                    out[k] = i
                    break
                left -= 1
