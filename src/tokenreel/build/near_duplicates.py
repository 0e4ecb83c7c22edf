"""Near duplicates by MinHash: signatures of texts, and in merge order the first document that each one nearly equals. Pure.

A text is the set of its runs of `ngram` words (runs of bytes between ASCII whitespace; a shorter text is one run). A
signature is the least value of each of `permutations` hash functions over that set; the share of equal places of two
signatures estimates their Jaccard similarity. Candidates share a band of rows, in numbers that suit the threshold; a
candidate counts where the estimate reaches it. Our own, not a library's: a build must give the same bytes with
every version of everything. Memory: 12 to 16 bytes a document and band; signatures may be a mapped file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import RecipeError
from tokenreel.order.kernels import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    U32 = npt.NDArray[np.uint32]

MOST_NODES = (1 << 31) - 1
_SPACE = np.zeros(256, dtype=np.bool_)
_SPACE[[9, 10, 11, 12, 13, 32]] = True


def signatures(texts: Any, permutations: int = 128, ngram: int = 5, seed: int = 1) -> U32:
    """Return the signatures of an Arrow array of large strings, (texts, permutations).

    Cost: about 0.1 us a word with 128 permutations.

    >>> import pyarrow as pa
    >>> a, b = signatures(pa.array(["one two three four five six", "one  two three four five six"], pa.large_string()))
    >>> bool((a == b).all())
    True
    """
    from tokenreel.text.texts import text_bytes

    out = np.full((len(texts), permutations), 0xFFFFFFFF, dtype=np.uint32)
    if not len(texts):
        return out
    data, offsets = text_bytes(texts)
    multiply, add = _functions(permutations, seed)
    ring = np.empty(ngram, dtype=np.uint64)
    _sign(np.ascontiguousarray(data), np.ascontiguousarray(offsets), _SPACE, ring, multiply, add, out)
    return out


def near_first(signed: U32, threshold: float = 0.8) -> npt.NDArray[np.int32]:
    """Return, for every document in merge order, the number of the first one that it nearly equals: its own if none.

    Documents that were dropped stand for nothing: each is compared with those that stay. Raises `RecipeError` (RCP006)
    for documents times bands of 2**31 or more: with the usual 9 bands, for 238 million documents.

    >>> near_first(np.array([[1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8]], np.uint32)).tolist()
    [0, 0, 2]
    """
    count, permutations = signed.shape
    bands, rows = bands_for(threshold, permutations)
    if count * bands > MOST_NODES:
        raise RecipeError(
            "RCP006",
            "near duplicates of so many documents",
            expected=f"at most {MOST_NODES // bands:,} documents in {bands} bands",
            found=f"{count:,}",
            hint="build the mix in parts, or raise dedup.near.threshold: there are fewer bands then",
        )
    slots = 1 << max(4, (count * bands).bit_length())
    first = np.arange(count, dtype=np.int32)
    heads = np.full(slots, -1, dtype=np.int32)
    following = np.full(count * bands, -1, dtype=np.int32)
    keys = np.zeros(count * bands, dtype=np.uint32)
    need = int(np.ceil(threshold * permutations - 1e-9))
    _match(np.ascontiguousarray(signed), bands, rows, need, heads, following, keys, first)
    return first


def bands_for(threshold: float, permutations: int) -> tuple[int, int]:
    """Return (bands, rows of each) for which false positives and negatives weigh least together.

    >>> bands_for(0.8, 128)
    (9, 13)
    """
    at = (np.arange(1000) + 0.5) / 1000
    best, chosen = float("inf"), (1, permutations)
    for bands in range(1, permutations + 1):
        for rows in range(1, permutations // bands + 1):
            found = 1 - (1 - at**rows) ** bands
            wrong = float(found[at < threshold].sum() + (1 - found[at >= threshold]).sum())
            if wrong < best - 1e-9:
                best, chosen = wrong, (bands, rows)
    return chosen


def _functions(permutations: int, seed: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return odd multipliers and summands: SplitMix64 from the seed."""
    mask = 0xFFFFFFFFFFFFFFFF
    state, drawn = seed & mask, []
    for _ in range(2 * permutations):
        state = (state + 0x9E3779B97F4A7C15) & mask
        value = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        drawn.append(value ^ (value >> 31))
    both = np.array(drawn, dtype=np.uint64).reshape(2, permutations)
    return both[0] | np.uint64(1), both[1].copy()


@kernel(
    "void(Array(uint8, 1, 'C', True), Array(int64, 1, 'C', True), boolean[::1], uint64[::1], uint64[::1], uint64[::1], uint32[:, ::1])"
)
def _sign(data: Any, offsets: Any, space: Any, ring: Any, multiply: Any, add: Any, out: Any) -> None:
    n: Any = len(ring)
    for d in range(len(offsets) - 1):
        at, high = offsets[d], offsets[d + 1]
        words = np.int64(0)
        row = out[d]
        while True:
            while at < high and space[data[at]]:
                at += 1
            if at < high:
                value = np.uint64(0xCBF29CE484222325)
                while at < high and not space[data[at]]:
                    value = (value ^ np.uint64(data[at])) * np.uint64(0x9E3779B97F4A7C15)
                    value ^= value >> np.uint64(29)
                    at += 1
                ring[words % n] = value
                words += 1
                if words < n:
                    continue
                size = n
            elif 0 < words < n:
                size = words
            else:
                break
            run = np.uint64(0)
            for k in range(size):
                run = (run ^ ring[(words - size + k) % n]) * np.uint64(0xD6E8FEB86659FD93)
                run ^= run >> np.uint64(32)
            for p in range(len(multiply)):
                mixed = np.uint32((run * multiply[p] + add[p]) >> np.uint64(32))
                row[p] = min(row[p], mixed)
            if size < n:
                break


@kernel("void(Array(uint32, 2, 'C', True), int64, int64, int64, int32[::1], int32[::1], uint32[::1], int32[::1])")
def _match(signed: Any, bands: int, rows: int, need: int, heads: Any, following: Any, keys: Any, first: Any) -> None:
    mask = np.uint64(len(heads) - 1)
    slots = np.empty(bands, np.int64)
    for d in range(len(signed)):
        winner = np.int64(d)
        for band in range(bands):
            key = np.uint64(band + 1)
            for k in range(band * rows, (band + 1) * rows):
                key = (key ^ np.uint64(signed[d, k])) * np.uint64(0x9E3779B97F4A7C15)
                key ^= key >> np.uint64(29)
            half = np.uint32(key >> np.uint64(32))
            keys[d * bands + band] = half
            # Bits of a slot are those that the kept half is not made of.
            slots[band] = np.int64(key & np.uint64(0xFFFFFFFF) & mask)
            node = np.int64(heads[slots[band]])
            while node >= 0:
                other = node // bands
                if keys[node] == half and other < winner:
                    same = np.int64(0)
                    for k in range(signed.shape[1]):
                        same += signed[d, k] == signed[other, k]
                    if same >= need:
                        winner = other
                node = np.int64(following[node])
        first[d] = winner
        if winner == d:
            for band in range(bands):
                following[d * bands + band] = heads[slots[band]]
                heads[slots[band]] = d * bands + band
