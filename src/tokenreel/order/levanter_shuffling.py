"""The kernels of Levanter's shuffles: places of many components at once, each under its own keys, both ways.

Keys of eras and windows are derived where they are met and kept for the component's next place, so that neighbours in a
window cost no more than the rounds of the permutation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.order.kernels import inlined, kernel, read_only
from tokenreel.order.levanter_rounds import back, forth, right_bits, seed_of, take_round_keys
from tokenreel.order.threefry import threefry

NONE, FULL, ERA, BLOCK = 0, 1, 2, 3
_SIGNATURE = f"void(int32[::1], {read_only('int64')}, int64[::1], int64, int64, int64, int64, boolean, uint32[:,:,::1], int64[::1])"


@inlined
def derive(k0: Any, k1: Any, fold: int, size: int, partitionable: bool, row: int, bits: Any, keys: Any) -> None:
    """Put round keys into a row: those of a key, with a number folded in unless it is -1."""
    if fold >= 0:
        k0, k1 = threefry(k0, k1, np.uint32(0), np.uint32(fold & 0xFFFFFFFF))
    width = right_bits(size)
    bits[row] = np.uint64(width)
    take_round_keys(seed_of(k0, k1, partitionable), width, keys, row)


@kernel(_SIGNATURE)
def shuffled(
    which: Any, places: Any, lengths: Any, kind: int, era: int, io: int, window: int, partitionable: bool,
    table: Any, out: Any,
) -> None:  # fmt: skip
    """Write the sequence at each place."""
    # Rows 3c, 3c + 1 and 3c + 2: a component's keys of blocks (or of everything, or of an era), of a window, of the tail.
    held = np.empty(3 * len(lengths), dtype=np.int64)
    for row in range(len(held)):
        held[row] = -2
    bits = np.empty(3 * len(lengths), dtype=np.uint64)
    keys = np.empty((3 * len(lengths), 5), dtype=np.uint64)
    c: Any
    for k in range(len(places)):
        c, q = np.int64(which[k]), places[k]
        n = lengths[c]
        slot, fold, size, begin, blocks = 0, -1, n, 0, 0
        if kind == 2:
            fold = q // era
            begin = fold * era
            size = era if n < 0 else min(era, n - begin)
        elif kind == 3:
            blocks = n // io
            last = max(0, ((n + io - 1) // io + window - 1) // window - 1)
            fold = min(q // (io * window), last)
            begin = fold * io * window
            size = min(window, blocks - fold * window) * io
            slot = 1
            if q - begin >= size:
                begin += size
                size = n - blocks * io
                slot = 2
        q -= begin
        if kind != 0 and size > 1:
            row = 3 * c + slot
            if held[row] != fold:
                held[row] = fold
                derive(table[c, slot, 0], table[c, slot, 1], fold, size, partitionable, row, bits, keys)
            q = np.int64(forth(np.uint64(q), np.uint64(size), bits[row], keys, row))
        if kind == 3 and slot == 1:
            at = fold * window + q // io
            if blocks > 1:
                row = 3 * c
                if held[row] != -1:
                    held[row] = -1
                    derive(table[c, 0, 0], table[c, 0, 1], -1, blocks, partitionable, row, bits, keys)
                at = np.int64(forth(np.uint64(at), np.uint64(blocks), bits[row], keys, row))
            out[k] = at * io + q % io
        elif kind == 3:
            out[k] = blocks * io + q
        else:
            out[k] = begin + q


@kernel(_SIGNATURE)
def unshuffled(
    which: Any, sequences: Any, lengths: Any, kind: int, era: int, io: int, window: int, partitionable: bool,
    table: Any, out: Any,
) -> None:  # fmt: skip
    """Write the place of each sequence."""
    held = np.empty(3 * len(lengths), dtype=np.int64)
    for row in range(len(held)):
        held[row] = -2
    bits = np.empty(3 * len(lengths), dtype=np.uint64)
    keys = np.empty((3 * len(lengths), 5), dtype=np.uint64)
    c: Any
    for k in range(len(sequences)):
        c, q = np.int64(which[k]), sequences[k]
        n = lengths[c]
        slot, fold, size, begin = 0, -1, n, 0
        if kind == 2:
            fold = q // era
            begin = fold * era
            size = era if n < 0 else min(era, n - begin)
            q -= begin
        elif kind == 3:
            blocks = n // io
            last = max(0, ((n + io - 1) // io + window - 1) // window - 1)
            if q < blocks * io:
                at = q // io
                if blocks > 1:
                    row = 3 * c
                    if held[row] != -1:
                        held[row] = -1
                        derive(table[c, 0, 0], table[c, 0, 1], -1, blocks, partitionable, row, bits, keys)
                    at = np.int64(back(np.uint64(at), np.uint64(blocks), bits[row], keys, row))
                fold = at // window
                q = (at - fold * window) * io + q % io
                begin = fold * io * window
                size = min(window, blocks - fold * window) * io
                slot = 1
            else:
                q -= blocks * io
                fold = last
                begin = last * io * window + min(window, blocks - last * window) * io
                size = n - blocks * io
                slot = 2
        if kind != 0 and size > 1:
            row = 3 * c + slot
            if held[row] != fold:
                held[row] = fold
                derive(table[c, slot, 0], table[c, slot, 1], fold, size, partitionable, row, bits, keys)
            q = np.int64(back(np.uint64(q), np.uint64(size), bits[row], keys, row))
        out[k] = begin + q
