"""`numpy.random.RandomState(seed).shuffle`, bit for bit and several times faster: what Megatron and MaxText order with.

The generator is MT19937 seeded with ``init_genrand``. A shuffle of n items swaps item i with item j for i = n-1 .. 1,
where j is the next output masked to the bits of i, drawn again until it is at most i; beyond 2**32 - 1 an output is two
words, the high one first. numpy draws and swaps in turn, so that every swap waits for memory and every rejected draw is
a mispredicted branch. Here 624 words are made at once, the accepted ones are sifted out without a branch, and memory is
asked for well ahead of the swaps. The state after a shuffle is numpy's, so that shuffles in sequence agree too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import ask_for, inlined, kernel

if TYPE_CHECKING:
    import numpy.typing as npt

WORDS = 624
AHEAD = 128
"""Swaps ahead of which memory is asked for."""
UPPER, LOWER = np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
MATRIX, ONE = np.uint32(0x9908B0DF), np.uint32(1)


class LegacyShuffle:
    """A generator in the state of ``numpy.random.RandomState(seed)``; `shuffle` advances it as numpy's does.

    Raises `OrderError` (ORD002) for a seed outside 0 .. 2**32 - 1, which numpy refuses too.

    >>> import numpy as np
    >>> ours, theirs = np.arange(10, dtype=np.int32), np.arange(10, dtype=np.int32)
    >>> LegacyShuffle(1234).shuffle(ours)
    >>> np.random.RandomState(1234).shuffle(theirs)
    >>> ours.tolist() == theirs.tolist()
    True
    """

    __slots__ = ("_position", "_words")

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 1 << 32:
            raise OrderError("ORD002", "seed", expected="0 .. 2**32 - 1", found=seed)
        self._words: npt.NDArray[np.uint32] = seeded_words(seed)
        self._position: npt.NDArray[np.int64] = np.array([WORDS], dtype=np.int64)

    def shuffle(self, array: npt.NDArray[Any]) -> None:
        """Shuffle a one-dimensional array of 4- or 8-byte items in place. Cost: about 5 ns an item of 10 million.

        Raises `OrderError` (ORD004) for any other array.
        """
        view = {4: np.int32, 8: np.int64}.get(array.dtype.itemsize)
        if array.ndim != 1 or view is None or not array.flags.c_contiguous or not array.flags.writeable:
            raise OrderError(
                "ORD004",
                "an array that cannot be shuffled in place",
                expected="one dimension, contiguous, writeable, 4 or 8 bytes an item",
                found=f"{array.ndim} dimensions of {array.dtype}",
            )
        _shuffle(array.view(view), self._words, self._position, np.empty(WORDS, np.uint32), np.empty(WORDS, np.int64))

    def intervals(self, high: int, low: int) -> npt.NDArray[np.int64]:
        """Return the draws that a shuffle makes for items high, high - 1, .. low + 1: one in 0 .. i for each i."""
        out = np.empty(high - low, dtype=np.int64)
        _intervals(high, self._words, self._position, np.empty(WORDS, np.uint32), np.empty(WORDS, np.int64), out)
        return out


def seeded_words(seed: int) -> npt.NDArray[np.uint32]:
    """Return the 624 words of MT19937 after ``init_genrand(seed)``.

    >>> seeded_words(5489)[:2].tolist()
    [5489, 1301868182]
    """
    word = seed & 0xFFFFFFFF
    words = [word]
    for i in range(1, WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + i) & 0xFFFFFFFF
        words.append(word)
    return np.array(words, dtype=np.uint32)


@inlined
def refill(words: Any, out: Any) -> None:
    """Advance the state by 624 words and put the tempered words in `out`."""
    for k in range(227):
        y = (words[k] & UPPER) | (words[k + 1] & LOWER)
        words[k] = words[k + 397] ^ (y >> ONE) ^ ((y & ONE) * MATRIX)
    for k in range(227, 623):
        y = (words[k] & UPPER) | (words[k + 1] & LOWER)
        words[k] = words[k - 227] ^ (y >> ONE) ^ ((y & ONE) * MATRIX)
    y = (words[623] & UPPER) | (words[0] & LOWER)
    words[623] = words[396] ^ (y >> ONE) ^ ((y & ONE) * MATRIX)
    temper(words, out)


@inlined
def temper(words: Any, out: Any) -> None:
    """Put the outputs that the state stands for in `out`."""
    for k in range(624):
        y = words[k]
        y ^= y >> np.uint32(11)
        y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
        y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
        out[k] = y ^ (y >> np.uint32(18))


@inlined
def smeared(i: int) -> int:
    """Return the smallest 2**k - 1 that is at least `i`."""
    i |= i >> 1
    i |= i >> 2
    i |= i >> 4
    i |= i >> 8
    i |= i >> 16
    return i | i >> 32


@inlined
def draw(words: Any, position: Any, outputs: Any, i: Any, wanted: int, accepted: Any) -> Any:
    """Put up to `wanted` draws for items i, i - 1, .. in `accepted`; return how many, at least one.

    `outputs` holds the tempered words of the state, of which ``position[0]`` are spent.
    """
    if position[0] == 624:
        refill(words, outputs)
        position[0] = 0
    mask = smeared(i)
    count: Any = 0
    if i > 0xFFFFFFFF:
        while count == 0:
            value: Any = np.int64(0)
            for _ in range(2):
                if position[0] == 624:
                    refill(words, outputs)
                    position[0] = 0
                value = (value << 32) | np.int64(outputs[position[0]])
                position[0] += 1
            accepted[0] = value & mask
            count += (value & mask) <= i
        return count
    # One mask serves down to the next power of two; no branch depends on a draw.
    wanted = min(wanted, i - (mask >> 1))
    at = position[0]
    end = 624
    while at < end and count < wanted:
        stop = min(end, at + wanted - count)
        for k in range(at, stop):
            value = np.int64(outputs[k]) & mask
            accepted[count] = value
            taken = np.int64(value <= i)
            count += taken
            i -= taken
        at = stop
    position[0] = at
    return count


@kernel(
    "void(int32[::1], uint32[::1], int64[::1], uint32[::1], int64[::1])",
    "void(int64[::1], uint32[::1], int64[::1], uint32[::1], int64[::1])",
)
def _shuffle(array: Any, words: Any, position: Any, outputs: Any, accepted: Any) -> None:
    temper(words, outputs)
    i = len(array) - 1
    while i > 0:
        count = draw(words, position, outputs, i, i, accepted)
        while count == 0:
            count = draw(words, position, outputs, i, i, accepted)
        for k in range(min(AHEAD, count)):
            ask_for(array, accepted[k])
        for k in range(count):
            ask_for(array, accepted[min(k + AHEAD, count - 1)])
            j = accepted[k]
            held = array[i - k]
            array[i - k] = array[j]
            array[j] = held
        i -= count


@kernel("void(int64, uint32[::1], int64[::1], uint32[::1], int64[::1], int64[::1])")
def _intervals(i: int, words: Any, position: Any, outputs: Any, accepted: Any, out: Any) -> None:
    temper(words, outputs)
    done = 0
    while done < len(out):
        count = draw(words, position, outputs, i, len(out) - done, accepted)
        for k in range(count):
            out[done + k] = accepted[k]
        done += count
        i -= count
