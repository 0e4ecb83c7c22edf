"""`grain_index_shuffle`: the permutation behind Grain's ``MapDataset.shuffle`` (as of 0.2.18), position by position.

A block cipher over an even number of bits (at least 16), applied again until the result is small enough. For lengths
``2**B + 1`` with even B >= 16 (65,537, 262,145, ...) Grain counts one bit too few: it is then no permutation, the last
position repeats the first and the last element is lost. That is kept, because it is the order such a job reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenreel.errors import OrderError
from tokenreel.order.kernels import inlined, kernel

LARGEST = 1 << 40
ROUNDS = 4


def grain_index_shuffle(positions: npt.ArrayLike, n: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the elements at `positions` of Grain's shuffle of n items under `seed` (taken mod 2**32).

    Raises `OrderError`: ORD001 for a position outside, ORD002 for n outside 1 .. 2**40. Cost: about 50 ns a position.

    >>> grain_index_shuffle([0, 1, 2], 3, 1)
    array([1, 2, 0])
    """
    if not 1 <= n <= LARGEST:
        raise OrderError("ORD002", "items of Grain's shuffle", expected=f"1 .. {LARGEST}", found=n)
    asked = np.ascontiguousarray(positions, dtype=np.int64).reshape(-1)
    if asked.size and not (int(asked.min()) >= 0 and int(asked.max()) < n):
        raise OrderError("ORD001", expected=f"0 .. {n - 1}", found=f"{int(asked.min())} .. {int(asked.max())}")
    out = np.empty(asked.shape, dtype=np.int64)
    if n == 1:
        out[:] = 0
    else:
        keys = np.array(seed_sequence(seed & 0xFFFFFFFF, ROUNDS), dtype=np.int64)
        _cipher(asked, n - 1, half_bits(n), keys, out)
    return out.reshape(np.shape(positions))


def loses_an_element(n: int) -> bool:
    """Return whether Grain's shuffle of n items is not a permutation.

    >>> [n for n in (65536, 65537, 65538, 262145) if loses_an_element(n)]
    [65537, 262145]
    """
    return n > 2 and n - 1 == 1 << (2 * half_bits(n))


def half_bits(n: int) -> int:
    """Return half the bits of the cipher for n items: from the largest element, not from their number."""
    return max(16, (n - 2).bit_length() + 1) // 2 if n > 2 else 8


def seed_sequence(seed: int, count: int) -> list[int]:
    """Return `count` words of C++'s ``std::seed_seq{seed}``.

    >>> seed_sequence(0, 2)
    [2061087650, 2269319357]
    """
    mask = 0xFFFFFFFF
    words = [0x8B8B8B8B] * count
    tag = 11 if count >= 623 else 7 if count >= 68 else 5 if count >= 39 else 3 if count >= 7 else (count - 1) // 2
    p = (count - tag) // 2
    q = p + tag
    rounds = max(2, count)

    def scrambled(k: int) -> int:
        value = words[k % count] ^ words[(k + p) % count] ^ words[(k - 1) % count]
        return value ^ (value >> 27)

    for k in range(rounds):
        mixed = 1664525 * scrambled(k) & mask
        added = (mixed + (1 if k == 0 else k % count + (seed if k == 1 else 0))) & mask
        words[(k + p) % count] = (words[(k + p) % count] + mixed) & mask
        words[(k + q) % count] = (words[(k + q) % count] + added) & mask
        words[k % count] = added
    for k in range(rounds, rounds + count):
        total = words[k % count] + words[(k + p) % count] + words[(k - 1) % count] & mask
        mixed = 1566083941 * (total ^ (total >> 27)) & mask
        less = mixed - k % count & mask
        words[(k + p) % count] ^= mixed
        words[(k + q) % count] ^= less
        words[k % count] = less
    return words


@inlined
def scramble(x: int, bits: int, mask: int) -> int:
    """Return the cipher's round function: rotations of a half block, and'ed and xor'ed."""
    one = ((x << 1) | (x >> (bits - 1))) & mask
    eight = ((x << 8) | (x >> (bits - 8))) & mask
    two = ((x << 2) | (x >> (bits - 2))) & mask
    return (one & eight) ^ two


@kernel("void(int64[::1], int64, int64, int64[::1], int64[::1])")
def _cipher(positions: Any, largest: int, bits: int, keys: Any, out: Any) -> None:
    mask = (1 << bits) - 1
    for n in range(len(positions)):
        value = positions[n]
        while True:
            left = (value >> bits) & mask
            right = value & mask
            for k in range(0, len(keys), 2):
                left ^= scramble(right, bits, mask) ^ (keys[k] & mask)
                right ^= scramble(left, bits, mask) ^ (keys[k + 1] & mask)
            value = (left << bits) | right
            if value <= largest:
                break
        out[n] = value
