"""Sets of small numbers as bits, with the next and the previous member in a few steps: what best fit searches.

A set over 0 .. n is ``words`` of 64 bits and, above them, ``upper``: one bit for every word that is not empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.order.kernels import inlined

FULL, ONE = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(1)
DE_BRUIJN, TOP = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)


def _places() -> Any:
    table = np.zeros(64, dtype=np.int64)
    for k in range(64):
        table[((int(DE_BRUIJN) << k) & int(FULL)) >> 58] = k
    return table


PLACES = _places()
"""Which power of two a product with the de Bruijn sequence came from."""


@inlined
def lowest(bits: Any) -> Any:
    """Return the number of the lowest bit set; `bits` is a uint64 above 0."""
    return PLACES[((bits & (~bits + ONE)) * DE_BRUIJN) >> TOP]


@inlined
def highest(bits: Any) -> int:
    """Return the number of the highest bit set; `bits` is a uint64 above 0."""
    at = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if (bits >> np.uint64(shift)) != np.uint64(0):
            bits = bits >> np.uint64(shift)
            at += shift
    return at


@inlined
def put(words: Any, upper: Any, at: Any) -> None:
    """Add `at` to the set."""
    words[at >> 6] |= ONE << np.uint64(at & 63)
    upper[at >> 12] |= ONE << np.uint64((at >> 6) & 63)


@inlined
def take(words: Any, upper: Any, at: Any) -> None:
    """Remove `at`, which is there."""
    words[at >> 6] &= ~(ONE << np.uint64(at & 63))
    if words[at >> 6] == np.uint64(0):
        upper[at >> 12] &= ~(ONE << np.uint64((at >> 6) & 63))


@inlined
def following(words: Any, upper: Any, at: Any) -> Any:
    """Return the least member that is `at` or more, or -1."""
    word = at >> 6
    if word >= len(words):
        return -1
    bits = words[word] & (FULL << np.uint64(at & 63))
    if bits != np.uint64(0):
        return (word << 6) + lowest(bits)
    word += 1
    group = word >> 6
    if group >= len(upper):
        return -1
    bits = upper[group] & (FULL << np.uint64(word & 63))
    while bits == np.uint64(0):
        group += 1
        if group == len(upper):
            return -1
        bits = upper[group]
    word = (group << 6) + lowest(bits)
    return (word << 6) + lowest(words[word])


@inlined
def previous(words: Any, upper: Any, at: Any) -> Any:
    """Return the greatest member that is `at` or less, or -1; `at` is within the words."""
    word = at >> 6
    bits = words[word] & (FULL >> np.uint64(63 - (at & 63)))
    if bits != np.uint64(0):
        return (word << 6) + highest(bits)
    word -= 1
    if word < 0:
        return -1
    group = word >> 6
    bits = upper[group] & (FULL >> np.uint64(63 - (word & 63)))
    while bits == np.uint64(0):
        group -= 1
        if group < 0:
            return -1
        bits = upper[group]
    word = (group << 6) + highest(bits)
    return (word << 6) + highest(words[word])
