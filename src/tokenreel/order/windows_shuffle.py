"""The shuffles behind `windows@1`: a whole epoch at once, or blocks of neighbouring windows; both ways, closed form.

A whole epoch e of n windows is the keyed permutation "keyed-1" of n items under (seed, e).

The block shuffle cuts the n windows into blocks of `block` neighbours (the last one may be short) and permutes the blocks
with keyed-1 under ``mix(seed ^ BLOCKS)`` and e. Every `together` blocks of that sequence are a group, and the windows of
group g are permuted with keyed-1 under ``mix(mix(seed ^ GROUPS) ^ e)`` and g. One group is therefore read with at most
`together` large reads, and every window occurs once. `mix` is SplitMix64's finaliser; names in capitals are constants below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import inlined, kernel
from tokenreel.order.keyed import FIRST, GAMMA, S27, S30, S31, SECOND, mix

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]

BLOCKS = np.uint64(0xB10C5)
GROUPS = np.uint64(0x6709B5)
TOP = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class BlockShuffle:
    """Shuffle so that storage reads ranges: `block` neighbouring windows a read, `together` blocks shuffled together.

    A reader that holds ``block * together`` windows in memory makes one large read per block.
    Raises `OrderError` (ORD002) for numbers below 1 or a group of 2**40 windows or more.

    >>> BlockShuffle.of_bytes(8 << 20, buffer=256 << 20, window=8192)
    BlockShuffle(block=1024, together=32)
    """

    block: int
    together: int = 16

    def __post_init__(self) -> None:
        if self.block < 1 or self.together < 1 or self.block * self.together >= 1 << 40:
            raise OrderError(
                "ORD002",
                "a block shuffle",
                expected="1 <= block, together; a group below 2**40 windows",
                found=repr(self),
            )

    @classmethod
    def of_bytes(cls, read: int, *, buffer: int, window: int) -> BlockShuffle:
        """Return the shuffle whose reads are about `read` bytes and whose group is about `buffer`; `window` bytes each."""
        block = max(1, read // max(1, window))
        return cls(block, max(1, buffer // max(1, block * window)))


def windows_at(n: int, seed: int, io: BlockShuffle | None, epochs: I64, positions: I64) -> I64:
    """Return the windows at `positions` of each of `epochs`, of n windows; both arrays of one shape, already checked.

    Cost: about 50 ns a position, twice that with `io`.
    """
    if io is None:
        return _each(_forward_each, positions, _filled(positions, n), _seeds(positions, seed), epochs)
    blocks = -(-n // io.block)
    short = _short_place(blocks, n, seed, io, epochs)
    padded = _padded(positions, short, n, io)
    group = padded // (io.block * io.together)
    start, size, inner_short = _group(group, short, n, io)
    at = _each(_forward_each, positions - start, size, _group_seeds(seed, epochs), group)
    within = _padded(at, inner_short, n, io)
    block = _each(
        _forward_each,
        group * io.together + within // io.block,
        _filled(positions, blocks),
        _seeds(positions, _scrambled_one(seed, BLOCKS)),
        epochs,
    )
    return block * io.block + within % io.block


def places_of(n: int, seed: int, io: BlockShuffle | None, epochs: I64, windows: I64) -> I64:
    """Return the position of each window in its epoch: the inverse of `windows_at`, at the same cost."""
    if io is None:
        return _each(_backward_each, windows, _filled(windows, n), _seeds(windows, seed), epochs)
    blocks = -(-n // io.block)
    place = _each(
        _backward_each,
        windows // io.block,
        _filled(windows, blocks),
        _seeds(windows, _scrambled_one(seed, BLOCKS)),
        epochs,
    )
    short = _short_place(blocks, n, seed, io, epochs)
    group = place // io.together
    start, size, inner_short = _group(group, short, n, io)
    padded = (place % io.together) * io.block + windows % io.block
    at = _packed(padded, inner_short, n, io)
    return start + _each(_backward_each, at, size, _group_seeds(seed, epochs), group)


# The sequence of blocks has one short block, at place `short`. Positions count windows; padded positions count slots, as
# if every block were full. Only the short block's missing slots lie between the two.


def _missing(n: int, io: BlockShuffle) -> int:
    return -(-n // io.block) * io.block - n


def _short_place(blocks: int, n: int, seed: int, io: BlockShuffle, epochs: I64) -> I64:
    """Return, per position, the place of the last block in the sequence of its epoch."""
    if _missing(n, io) == 0:
        return _filled(epochs, blocks)
    named, back = np.unique(epochs, return_inverse=True)
    last = _filled(named, blocks - 1)
    keys = _seeds(named, _scrambled_one(seed, BLOCKS))
    return _each(_backward_each, last, _filled(named, blocks), keys, named)[back].reshape(epochs.shape)


def _padded(at: I64, short: I64, n: int, io: BlockShuffle) -> I64:
    missing = _missing(n, io)
    return at + missing * (at >= short * io.block + (io.block - missing))


def _packed(padded: I64, short: I64, n: int, io: BlockShuffle) -> I64:
    return padded - _missing(n, io) * (padded >= (short + 1) * io.block)


def _group(group: I64, short: I64, n: int, io: BlockShuffle) -> tuple[I64, I64, I64]:
    """Return the first position and the size of each group, and the short block's place in it, or one behind its last."""
    span = io.block * io.together
    blocks = -(-n // io.block)
    start = _packed(group * span, short, n, io)
    end = _packed(np.minimum((group + 1) * span, blocks * io.block), short, n, io)
    local = short - group * io.together
    return start, end - start, np.where((local >= 0) & (local < io.together), local, io.together)


def _filled(like: I64, value: int) -> I64:
    return np.full(like.shape, value, dtype=np.int64)


def _seeds(like: I64, seed: int) -> U64:
    return np.full(like.shape, seed, dtype=np.uint64)


def _group_seeds(seed: int, epochs: I64) -> U64:
    return scrambled(np.uint64(_scrambled_one(seed, GROUPS)) ^ epochs.astype(np.uint64))


def _scrambled_one(seed: int, name: np.uint64) -> int:
    return int(scrambled(np.array([np.uint64(seed) ^ name], dtype=np.uint64))[0])


def scrambled(values: U64) -> U64:
    """Return SplitMix64's finaliser of every value.

    >>> import numpy as np
    >>> scrambled(np.array([1], dtype=np.uint64)).tolist()
    [6238072747940578789]
    """
    values = (values ^ (values >> S30)) * FIRST
    values = (values ^ (values >> S27)) * SECOND
    return values ^ (values >> S31)


def _each(through: Any, values: I64, sizes: I64, seeds: U64, streams: I64) -> I64:
    flat = [np.ascontiguousarray(a).reshape(-1) for a in (values, sizes, seeds, streams.astype(np.uint64))]
    out = np.empty(values.size, dtype=np.int64)
    through(*flat, out)
    return out.reshape(values.shape)


@inlined
def take_keys(seed: Any, stream: Any, keys: Any) -> None:
    """Fill in keyed-1's round keys."""
    state = mix(seed) ^ mix(stream + TOP)
    for k in range(len(keys)):
        state += GAMMA
        keys[k] = mix(state)


@inlined
def bits_of(n: int) -> int:
    """Return the bits of keyed-1's cipher for n items."""
    bits = 8
    while bits < 63 and (n - 1) >> bits != 0:
        bits += 1
    return bits


@kernel("void(int64[::1], int64[::1], uint64[::1], uint64[::1], int64[::1])")
def _forward_each(values: Any, sizes: Any, seeds: Any, streams: Any, out: Any) -> None:
    keys = np.empty(8, dtype=np.uint64)
    for k in range(len(values)):
        if k == 0 or seeds[k] != seeds[k - 1] or streams[k] != streams[k - 1]:
            take_keys(seeds[k], streams[k], keys)
        bits = bits_of(sizes[k])
        shift = np.uint64(bits - bits // 2)
        left_shift, right_shift = np.uint64(64 - bits // 2), np.uint64(64 - (bits - bits // 2))
        mask = (np.uint64(1) << shift) - np.uint64(1)
        limit = np.uint64(sizes[k])
        value = np.uint64(values[k])
        while True:
            left, right = value >> shift, value & mask
            for r in range(0, 8, 2):
                left ^= mix(right + keys[r]) >> left_shift
                right ^= mix(left + keys[r + 1]) >> right_shift
            value = (left << shift) | right
            if value < limit:
                break
        out[k] = np.int64(value)


@kernel("void(int64[::1], int64[::1], uint64[::1], uint64[::1], int64[::1])")
def _backward_each(values: Any, sizes: Any, seeds: Any, streams: Any, out: Any) -> None:
    keys = np.empty(8, dtype=np.uint64)
    for k in range(len(values)):
        if k == 0 or seeds[k] != seeds[k - 1] or streams[k] != streams[k - 1]:
            take_keys(seeds[k], streams[k], keys)
        bits = bits_of(sizes[k])
        shift = np.uint64(bits - bits // 2)
        left_shift, right_shift = np.uint64(64 - bits // 2), np.uint64(64 - (bits - bits // 2))
        mask = (np.uint64(1) << shift) - np.uint64(1)
        limit = np.uint64(sizes[k])
        value = np.uint64(values[k])
        while True:
            left, right = value >> shift, value & mask
            for r in range(7, -1, -2):
                right ^= mix(left + keys[r]) >> right_shift
                left ^= mix(right + keys[r - 1]) >> left_shift
            value = (left << shift) | right
            if value < limit:
                break
        out[k] = np.int64(value)
