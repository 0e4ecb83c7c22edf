"""The kernels of Levanter's shuffles: places of many components at once, each under its own keys, both ways.

Keys of eras and windows are derived where they are met and kept for the component's next place. Places are worked through
in groups of up to 256: a pass of the permutation over all of a group, then over those that are still outside, so that the
processor has many independent ones at work. A group ends early where a component comes to another window.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.order.kernels import inlined, kernel
from tokenreel.order.levanter_rounds import pass_back, pass_forth, right_bits, seed_of, take_round_keys
from tokenreel.order.threefry import threefry

NONE, FULL, ERA, BLOCK = 0, 1, 2, 3


@inlined
def derive(k0: Any, k1: Any, fold: int, size: int, partitionable: bool, row: int, bits: Any, keys: Any) -> None:
    """Put round keys into a row: those of a key, with a number folded in unless it is -1."""
    if fold >= 0:
        k0, k1 = threefry(k0, k1, np.uint32(0), np.uint32(fold & 0xFFFFFFFF))
    width = right_bits(size)
    bits[row] = np.uint64(width)
    take_round_keys(seed_of(k0, k1, partitionable), width, keys, row)


@inlined
def walk(forward: bool, count: int, values: Any, sizes: Any, rows: Any, active: Any, bits: Any, keys: Any) -> None:
    """Permute `count` values, each below its size and under its row of keys; sizes below 2 stay as they are."""
    left = 0
    for i in range(count):
        active[left] = i
        left += 1 if sizes[i] > 1 else 0
    while left > 0:
        kept = 0
        for j in range(left):
            i = active[j]
            row = rows[i]
            value = np.uint64(values[i])
            made = pass_forth(value, bits[row], keys, row) if forward else pass_back(value, bits[row], keys, row)
            values[i] = np.int64(made)
            active[kept] = i
            kept += 1 if made >= np.uint64(sizes[i]) else 0
        left = kept


@inlined
def part_of(place: int, n: int, kind: int, era: int, io: int, window: int) -> Any:
    """Return (slot of the key, number folded in, first place, size) of the group that a place is permuted in."""
    if kind == 1:
        return 0, -1, 0, n
    if kind == 2:
        fold = place // era
        return 0, fold, fold * era, era if n < 0 else min(era, n - fold * era)
    blocks = n // io
    last = max(0, ((n + io - 1) // io + window - 1) // window - 1)
    fold = min(place // (io * window), last)
    begin = fold * io * window
    size = min(window, blocks - fold * window) * io
    if place - begin < size:
        return 1, fold, begin, size
    return 2, fold, begin + size, n - blocks * io


@kernel("void(boolean, int32[::1], int64[::1], int64[::1], int64, int64, int64, int64, boolean, uint32[:,:,::1])")
def permute_groups(
    forward: bool, which: Any, places: Any, lengths: Any, kind: int, era: int, io: int, window: int,
    partitionable: bool, table: Any,
) -> None:  # fmt: skip
    """Permute places, in place, inside everything, eras, or windows and tail, of the components `which`; or back."""
    # Rows 3c, 3c + 1 and 3c + 2: a component's keys of everything or an era, of a window, of the tail.
    held, used = np.empty(3 * len(lengths), dtype=np.int64), np.empty(3 * len(lengths), dtype=np.int64)
    for row in range(len(held)):
        held[row], used[row] = -2, -1
    bits, keys = np.empty(3 * len(lengths), dtype=np.uint64), np.empty((3 * len(lengths), 5), dtype=np.uint64)
    values, sizes = np.empty(256, dtype=np.int64), np.empty(256, dtype=np.int64)
    rows, active = np.empty(256, dtype=np.int64), np.empty(256, dtype=np.int64)
    first = 0
    while first < len(places):
        count = 0
        while count < 256 and first + count < len(places):
            c, place = np.int64(which[first + count]), places[first + count]
            slot, fold, begin, size = part_of(place, lengths[c], kind, era, io, window)
            row = 3 * c + slot
            if size > 1:
                if held[row] != fold:
                    if used[row] == first:
                        break
                    held[row] = fold
                    derive(table[c, slot, 0], table[c, slot, 1], fold, size, partitionable, row, bits, keys)
                used[row] = first
            values[count], sizes[count], rows[count] = place - begin, size, row
            places[first + count] = begin
            count += 1
        walk(forward, count, values, sizes, rows, active, bits, keys)
        for k in range(count):
            places[first + k] += values[k]
        first += count


@kernel("void(boolean, int32[::1], int64[::1], int64[::1], int64, boolean, uint32[:,:,::1])")
def permute_blocks(
    forward: bool, which: Any, places: Any, lengths: Any, io: int, partitionable: bool, table: Any
) -> None:
    """Permute the full blocks of `io` places of the components `which`, in place; or back."""
    held = np.empty(len(lengths), dtype=np.int64)
    for row in range(len(held)):
        held[row] = 0
    bits, keys = np.empty(len(lengths), dtype=np.uint64), np.empty((len(lengths), 5), dtype=np.uint64)
    values, sizes = np.empty(256, dtype=np.int64), np.empty(256, dtype=np.int64)
    rows, active = np.empty(256, dtype=np.int64), np.empty(256, dtype=np.int64)
    for first in range(0, len(places), 256):
        count = min(256, len(places) - first)
        for k in range(count):
            c, block = int(which[first + k]), places[first + k] // io
            blocks = lengths[c] // io
            values[k], rows[k] = block, c
            sizes[k] = blocks if block < blocks else 0
            places[first + k] -= block * io
            if blocks > 1 and held[c] == 0:
                held[c] = 1
                derive(table[c, 0, 0], table[c, 0, 1], -1, blocks, partitionable, c, bits, keys)
        walk(forward, count, values, sizes, rows, active, bits, keys)
        for k in range(count):
            places[first + k] += values[k] * io
