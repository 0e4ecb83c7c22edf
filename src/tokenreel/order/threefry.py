"""JAX's threefry2x32 generator without JAX: keys, split, fold_in, bits, randint. 32-bit words, bit for bit.

A key is a pair of words. `partitionable` is JAX's flag ``jax_threefry_partitionable``: on since JAX 0.5, and what Levanter's
trainer sets. Off, children and bits are taken from halves of one run of counters, so that they depend on how many are
asked for. `fold_in` is the same in both. Word size is that of ``jax_enable_x64 = False``, except where `prng_key` is told
otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import inlined, kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    U32 = npt.NDArray[np.uint32]

Key = tuple[int, int]
WORD = 0xFFFFFFFF
FARTHEST = 1 << 32
"""Words asked for at once are fewer, so that the upper word of every counter is 0."""
PARITY = np.uint32(0x1BD11BDA)
WIDTH = np.uint32(32)


def prng_key(seed: int, *, x64: bool = False) -> Key:
    """Return ``jax.random.PRNGKey(seed)``: the low word alone, unless JAX ran with ``jax_enable_x64``.

    >>> prng_key(2**32 + 5), prng_key(-1), prng_key(2**32 + 5, x64=True)
    ((0, 5), (0, 4294967295), (1, 5))
    """
    if not -(1 << 63) <= seed < 1 << 64:
        raise OrderError("ORD002", "a seed", expected="64 bits", found=seed)
    return ((seed >> 32) & WORD if x64 else 0, seed & WORD)


def split(key: Key, n: int = 2, *, partitionable: bool = True) -> tuple[Key, ...]:
    """Return the `n` children of a key.

    >>> split((0, 0))
    ((1797259609, 2579123966), (928981903, 3453687069))
    """
    made = split_array(key, n, partitionable=partitionable)
    return tuple((int(a), int(b)) for a, b in made.tolist())


def split_array(key: Key, n: int, *, partitionable: bool = True) -> U32:
    """Return the children of a key as uint32 ``[n, 2]``."""
    out = np.empty((_count(n), 2), dtype=np.uint32)
    _split(*_words(key), partitionable, out)
    return out


def split_each(keys: U32, n: int, *, partitionable: bool = True) -> U32:
    """Return the `n` children of each of many keys, uint32 ``[keys, n, 2]``."""
    out = np.empty((len(keys), _count(n), 2), dtype=np.uint32)
    _split_each(np.array(keys, dtype=np.uint32, order="C"), partitionable, out)
    return out


def key_chain(key: Key, n: int, *, partitionable: bool = True) -> U32:
    """Return what repeating ``key, mine = split(key)`` gives for `mine`, `n` times, uint32 ``[n, 2]``."""
    out = np.empty((_count(n), 2), dtype=np.uint32)
    _chain(*_words(key), partitionable, out)
    return out


def fold_in(key: Key, data: int) -> Key:
    """Return the key with a number folded in; its low 32 bits count.

    >>> fold_in((0, 0), 1)
    (928981903, 3453687069)
    """
    made = fold_in_array(key, np.array([data & WORD], dtype=np.uint32))
    return int(made[0, 0]), int(made[0, 1])


def fold_in_array(key: Key, data: npt.ArrayLike) -> U32:
    """Return the key with each of many numbers folded in, as uint32 ``[n, 2]``."""
    asked = (np.asarray(data).reshape(-1).astype(np.int64) & WORD).astype(np.uint32)
    out = np.empty((len(asked), 2), dtype=np.uint32)
    _fold(*_words(key), asked, out)
    return out


def random_bits(key: Key, n: int, *, partitionable: bool = True) -> U32:
    """Return `n` words: ``jax.random.bits(key, (n,))``. A scalar draw is ``n = 1``. Cost: 1 to 2 ns a word."""
    out = np.empty(_count(n), dtype=np.uint32)
    _bits(*_words(key), partitionable, out)
    return out


def randint(key: Key, high: int, *, partitionable: bool = True) -> int:
    """Return ``jax.random.randint(key, (), 0, high)`` of int32; raises `OrderError` (ORD002) for another `high`.

    >>> randint((0, 0), 2**30)
    31327077
    """
    if not 1 <= high < 1 << 31:
        raise OrderError("ORD002", "high", expected="1 .. 2**31 - 1", found=high)
    first, second = split(key, 2, partitionable=partitionable)
    a, b = (int(random_bits(k, 1, partitionable=partitionable)[0]) for k in (first, second))
    m = (1 << 16) % high
    m = (m * m & WORD) % high
    return (((a % high) * m & WORD) + b % high & WORD) % high


def _count(n: int) -> int:
    if not 0 <= n < FARTHEST:
        raise OrderError("ORD002", "words of a generator", expected=f"0 .. {FARTHEST - 1}", found=n)
    return n


def _words(key: Key) -> tuple[np.uint32, np.uint32]:
    if not all(0 <= int(word) <= WORD for word in key):
        raise OrderError("ORD002", "a key", expected="two words of 32 bits", found=key)
    return np.uint32(key[0]), np.uint32(key[1])


# Integers of numba widen to 64 bits with every operation: each result is cut back to a word, and the compiler does the
# whole loop in vectors of words.


@inlined
def four(x0: Any, x1: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the words after four rounds with these rotations."""
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32(np.uint32(np.uint32(x1 << a) | np.uint32(x1 >> np.uint32(WIDTH - a))) ^ x0)
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32(np.uint32(np.uint32(x1 << b) | np.uint32(x1 >> np.uint32(WIDTH - b))) ^ x0)
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32(np.uint32(np.uint32(x1 << c) | np.uint32(x1 >> np.uint32(WIDTH - c))) ^ x0)
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32(np.uint32(np.uint32(x1 << d) | np.uint32(x1 >> np.uint32(WIDTH - d))) ^ x0)
    return x0, x1


@inlined
def threefry(k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
    """Return threefry2x32 of twenty rounds of two words under a key of two words."""
    k2 = np.uint32(np.uint32(k0 ^ k1) ^ PARITY)
    x0, x1 = np.uint32(x0 + k0), np.uint32(x1 + k1)
    x0, x1 = four(x0, x1, np.uint32(13), np.uint32(15), np.uint32(26), np.uint32(6))
    x0, x1 = np.uint32(x0 + k1), np.uint32(np.uint32(x1 + k2) + np.uint32(1))
    x0, x1 = four(x0, x1, np.uint32(17), np.uint32(29), np.uint32(16), np.uint32(24))
    x0, x1 = np.uint32(x0 + k2), np.uint32(np.uint32(x1 + k0) + np.uint32(2))
    x0, x1 = four(x0, x1, np.uint32(13), np.uint32(15), np.uint32(26), np.uint32(6))
    x0, x1 = np.uint32(x0 + k0), np.uint32(np.uint32(x1 + k1) + np.uint32(3))
    x0, x1 = four(x0, x1, np.uint32(17), np.uint32(29), np.uint32(16), np.uint32(24))
    x0, x1 = np.uint32(x0 + k1), np.uint32(np.uint32(x1 + k2) + np.uint32(4))
    x0, x1 = four(x0, x1, np.uint32(13), np.uint32(15), np.uint32(26), np.uint32(6))
    return np.uint32(x0 + k2), np.uint32(np.uint32(x1 + k0) + np.uint32(5))


@inlined
def fill_bits(k0: Any, k1: Any, partitionable: bool, out: Any) -> None:
    """Fill `out` with the words of a key."""
    n = len(out)
    if partitionable:
        for i in range(n):
            y0, y1 = threefry(k0, k1, np.uint32(0), np.uint32(i))
            out[i] = np.uint32(y0 ^ y1)
        return
    half = (n + 1) // 2
    for i in range(half):
        # Counters 0 .. n-1 in two halves; an odd number is filled up with one counter of 0.
        other = np.uint32(half + i) if half + i < n else np.uint32(0)
        y0, y1 = threefry(k0, k1, np.uint32(i), other)
        out[i] = y0
        if half + i < n:
            out[half + i] = y1


@inlined
def child_of(k0: Any, k1: Any, partitionable: bool, n: int, i: int) -> Any:
    """Return child `i` of `n` of a key."""
    if partitionable:
        return threefry(k0, k1, np.uint32(0), np.uint32(i))
    # Counters 0 .. 2n-1 in two halves; words 2i and 2i+1 of the outputs, the first halves' before the second halves'.
    a0, a1 = threefry(k0, k1, np.uint32(2 * i % n), np.uint32(n + 2 * i % n))
    b0, b1 = threefry(k0, k1, np.uint32((2 * i + 1) % n), np.uint32(n + (2 * i + 1) % n))
    return (a0 if 2 * i < n else a1), (b0 if 2 * i + 1 < n else b1)


@kernel("void(uint32, uint32, boolean, uint32[:,::1])")
def _split(k0: Any, k1: Any, partitionable: bool, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i, 0], out[i, 1] = child_of(k0, k1, partitionable, out.shape[0], i)


@kernel("void(uint32[:,::1], boolean, uint32[:,:,::1])")
def _split_each(keys: Any, partitionable: bool, out: Any) -> None:
    for k in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[k, i, 0], out[k, i, 1] = child_of(keys[k, 0], keys[k, 1], partitionable, out.shape[1], i)


@kernel("void(uint32, uint32, boolean, uint32[:,::1])")
def _chain(k0: Any, k1: Any, partitionable: bool, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i, 0], out[i, 1] = child_of(k0, k1, partitionable, 2, 1)
        k0, k1 = child_of(k0, k1, partitionable, 2, 0)


@kernel("void(uint32, uint32, uint32[::1], uint32[:,::1])")
def _fold(k0: Any, k1: Any, data: Any, out: Any) -> None:
    for i in range(len(data)):
        out[i, 0], out[i, 1] = threefry(k0, k1, np.uint32(0), data[i])


@kernel("void(uint32, uint32, boolean, uint32[::1])")
def _bits(k0: Any, k1: Any, partitionable: bool, out: Any) -> None:
    fill_bits(k0, k1, partitionable, out)
