"""``jax.random.permutation`` without JAX: the whole of it, one place of it, or where one item of it stands.

JAX permutes by sorting: in every round the items are sorted, stably, by fresh random words, and the number of rounds grows
with the number of items, so that equal words do not matter. A whole permutation is made by a radix sort of the upper 22
bits and a walk that mends the few pairs they do not tell apart. One place of it needs no sorting: the word of that rank is
selected; and the place of one item is the number of smaller words, counted. `items` below is any number up to 2**16;
`permutation` alone has no bound.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import inlined, kernel, read_only
from tokenreel.order.threefry import Key, fill_bits, random_bits, split, split_each

if TYPE_CHECKING:
    import numpy.typing as npt

    I32 = npt.NDArray[np.int32]
    I64 = npt.NDArray[np.int64]
    U32 = npt.NDArray[np.uint32]

LARGEST = 1 << 16
"""Items of a permutation that the kernels here take."""
DIGIT = 2048
LOW, HIGH, HALF = np.uint32(10), np.uint32(21), np.uint64(32)
ELEVEN, WORD = np.uint32(2047), np.uint64(0xFFFFFFFF)


def shuffle_rounds(n: int) -> int:
    """Return how often JAX sorts `n` items: 0 for one, 1 up to 1,625, 2 up to 2,642,245, then 3.

    >>> [shuffle_rounds(n) for n in (1, 2, 1625, 1626, 2_642_245, 2_642_246)]
    [0, 1, 1, 2, 2, 3]
    """
    return math.ceil(3 * math.log(max(1, n)) / math.log((1 << 32) - 1))


def permutation(key: Key, items: int | npt.NDArray[Any], *, partitionable: bool = True) -> npt.NDArray[Any]:
    """Return ``jax.random.permutation(key, items)`` of a number or of an array of one dimension.

    Cost: about 15 ns an item up to 2**16, about 100 beyond.

    >>> permutation((0, 0), 5).tolist()
    [0, 1, 4, 3, 2]
    """
    n = items if isinstance(items, int) else len(items)
    if n < 0:
        raise OrderError("ORD002", "items of a permutation", expected="0 or more", found=n)
    if n <= LARGEST:
        places = permutations(np.array([key], dtype=np.uint32), np.arange(n, dtype=np.int32), partitionable)[0]
    else:
        places = np.arange(n, dtype=np.int64)
        for _ in range(shuffle_rounds(n)):
            key, sub = split(key, 2, partitionable=partitionable)
            places = places[np.argsort(random_bits(sub, n, partitionable=partitionable), kind="stable")]
    permuted: npt.NDArray[Any] = places if isinstance(items, int) else np.asarray(items)[places]
    return permuted


def permutations(keys: U32, values: I32, partitionable: bool) -> I32:
    """Return `values` permuted by each of `keys`, int32 ``[keys, items]``; at most 2**16 values."""
    if len(values) > LARGEST:
        raise OrderError("ORD002", "items of a permutation", expected=f"at most {LARGEST}", found=len(values))
    out = np.empty((len(keys), len(values)), dtype=np.int32)
    _permute(
        _subkeys(keys, len(values), partitionable), partitionable, np.ascontiguousarray(values, dtype=np.int32), out
    )
    return out


def item_at(key: Key, n: int, place: int, partitionable: bool = True) -> int:
    """Return the item at one place of a permutation of 0 .. n-1, by selection. Cost: about 4 ns times n a round.

    >>> [item_at((0, 0), 5, place) for place in range(5)]
    [0, 1, 4, 3, 2]
    """
    _check(n, place)
    return int(_item(_subkeys(np.array([key], dtype=np.uint32), n, partitionable), partitionable, n, place))


def place_of(key: Key, n: int, item: int, partitionable: bool = True) -> int:
    """Return where one item of a permutation of 0 .. n-1 stands, by counting: the inverse of `item_at`.

    >>> [place_of((0, 0), 5, item) for item in (0, 1, 4, 3, 2)]
    [0, 1, 2, 3, 4]
    """
    _check(n, item)
    return int(_place(_subkeys(np.array([key], dtype=np.uint32), n, partitionable), partitionable, n, item))


def _subkeys(keys: U32, n: int, partitionable: bool) -> U32:
    """Return the keys of the words of every round, uint32 ``[keys, rounds, 2]``."""
    out = np.empty((len(keys), shuffle_rounds(n), 2), dtype=np.uint32)
    for r in range(out.shape[1]):
        children = split_each(keys, 2, partitionable=partitionable)
        keys, out[:, r] = children[:, 0], children[:, 1]
    return out


def _check(n: int, number: int) -> None:
    if not 1 <= n <= LARGEST:
        raise OrderError("ORD002", "items of a permutation", expected=f"1 .. {LARGEST}", found=n)
    if not 0 <= number < n:
        raise OrderError("ORD001", expected=f"0 .. {n - 1}", found=number)


@inlined
def sort_by(words: Any, low: Any, high: Any, values: Any, first: Any, second: Any) -> None:
    """Sort `values` by `words`, stably; `first` and `second` are room for as many pairs, `low` and `high` for digits."""
    n = len(words)
    d: Any
    for d in range(2048):
        low[d], high[d] = 0, 0
    for i in range(n):
        low[(words[i] >> LOW) & ELEVEN] += 1
        high[words[i] >> HIGH] += 1
    below, under = 0, 0
    for d in range(2048):
        held, kept = low[d], high[d]
        low[d], high[d] = below, under
        below += held
        under += kept
    for i in range(n):
        d = (words[i] >> LOW) & ELEVEN
        first[low[d]] = (np.uint64(words[i]) << HALF) | np.uint64(np.uint32(values[i]))
        low[d] += 1
    for i in range(n):
        pair = first[i]
        d = np.uint32(pair >> np.uint64(53))
        second[high[d]] = pair
        high[d] += 1
    # The upper 22 bits are in order. What follows is about one comparison an item.
    for i in range(1, n):
        pair = second[i]
        if (pair >> HALF) < (second[i - 1] >> HALF):
            j = i - 1
            while j >= 0 and (second[j] >> HALF) > (pair >> HALF):
                second[j + 1] = second[j]
                j -= 1
            second[j + 1] = pair
    for i in range(n):
        values[i] = np.int32(np.uint32(second[i] & WORD))


@kernel(f"void(uint32[:,:,::1], boolean, {read_only('int32')}, int32[:,::1])")
def _permute(subs: Any, partitionable: bool, values: Any, out: Any) -> None:
    n = len(values)
    words = np.empty(n, dtype=np.uint32)
    low, high = np.empty(2048, dtype=np.int32), np.empty(2048, dtype=np.int32)
    first, second = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.uint64)
    for k in range(subs.shape[0]):
        mine = out[k]
        for i in range(n):
            mine[i] = values[i]
        for r in range(subs.shape[1]):
            fill_bits(subs[k, r, 0], subs[k, r, 1], partitionable, words)
            sort_by(words, low, high, mine, first, second)


@kernel("int64(uint32[:,:,::1], boolean, int64, int64)")
def _item(subs: Any, partitionable: bool, n: int, place: int) -> int:
    words = np.empty(n, dtype=np.uint32)
    tally = np.empty(2048, dtype=np.int64)
    near = np.empty(n, dtype=np.uint64)
    at: Any = place
    for r in range(subs.shape[1] - 1, -1, -1):
        fill_bits(subs[0, r, 0], subs[0, r, 1], partitionable, words)
        for d in range(2048):
            tally[d] = 0
        for i in range(n):
            tally[words[i] >> HIGH] += 1
        digit, below = 0, 0
        while below + tally[digit] <= at:
            below += tally[digit]
            digit += 1
        found = 0
        for i in range(n):
            near[found] = (np.uint64(words[i]) << HALF) | np.uint64(i)
            found += 1 if words[i] >> HIGH == digit else 0
        # The few pairs of that digit in order: equal words keep the order of their places.
        for i in range(1, found):
            pair, j = near[i], i - 1
            while j >= 0 and near[j] > pair:
                near[j + 1] = near[j]
                j -= 1
            near[j + 1] = pair
        at = np.int64(near[at - below] & WORD)
    return int(at)


@kernel("int64(uint32[:,:,::1], boolean, int64, int64)")
def _place(subs: Any, partitionable: bool, n: int, item: int) -> int:
    words = np.empty(n, dtype=np.uint32)
    at = item
    for r in range(subs.shape[1]):
        fill_bits(subs[0, r, 0], subs[0, r, 1], partitionable, words)
        mine = words[at]
        smaller = 0
        for i in range(n):
            smaller += 1 if words[i] < mine else 0
        for i in range(at):
            smaller += 1 if words[i] == mine else 0
        at = smaller
    return at
