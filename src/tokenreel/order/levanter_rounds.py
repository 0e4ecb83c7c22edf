"""The kernels of Levanter's Feistel permutation: its rounds, and the round keys that NumPy's PCG64 would draw.

Windows of a shuffle have a key each, so round keys are derived in compiled code too: ``randint(key, 2**30)`` seeds NumPy's
SeedSequence and PCG64, which draw five words of 32 bits, of which each keeps its top bits. Both algorithms are frozen by
NumPy's own promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import inlined, kernel, read_only
from tokenreel.order.threefry import Key, child_of, threefry

if TYPE_CHECKING:
    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]

ROUNDS = 5
FACTOR = np.uint64(2654435761)
MIX_L, MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
INIT_A, MULT_A = np.uint32(0x43B0D7E5), np.uint32(0x931E8875)
INIT_B, MULT_B = np.uint32(0x8B51F9DD), np.uint32(0x58F38DED)
PCG_HIGH, PCG_LOW = np.uint64(2549297995355413924), np.uint64(4865540595714422341)
ONE, S32, S58, S63 = np.uint64(1), np.uint64(32), np.uint64(58), np.uint64(63)
LOW32 = np.uint64(0xFFFFFFFF)
XS = np.uint32(16)
_I64 = read_only("int64")


def round_keys_of(key: Key, n: int, partitionable: bool = True) -> U64:
    """Return the five round keys of a permutation of n items."""
    out: U64 = np.empty((1, ROUNDS), dtype=np.uint64)
    _round_keys(np.uint32(key[0]), np.uint32(key[1]), partitionable, n, out)
    return out.reshape(-1)


@inlined
def right_bits(n: int) -> int:
    """Return the bits of the right half for n items."""
    bits = 0
    while (n - 1) >> bits != 0:
        bits += 1
    return bits - bits // 2


@inlined
def seed_of(k0: Any, k1: Any, partitionable: bool) -> Any:
    """Return ``randint(key, 2**30)``: the multiplier 2**32 vanishes modulo 2**30, so the second word alone counts."""
    s0, s1 = child_of(k0, k1, partitionable, 2, 1)
    y0, y1 = threefry(s0, s1, np.uint32(0), np.uint32(0))
    return np.uint32(np.uint32(y0 ^ y1 if partitionable else y0) & np.uint32(0x3FFFFFFF))


@inlined
def hashed(value: Any, constant: Any) -> Any:
    """Return SeedSequence's hash of a word, and its next constant."""
    value = np.uint32(value ^ constant)
    constant = np.uint32(constant * MULT_A)
    value = np.uint32(value * constant)
    return np.uint32(value ^ np.uint32(value >> XS)), constant


@inlined
def mixed(x: Any, y: Any) -> Any:
    """Return SeedSequence's mixture of two words."""
    made = np.uint32(np.uint32(MIX_L * x) - np.uint32(MIX_R * y))
    return np.uint32(made ^ np.uint32(made >> XS))


@inlined
def product(a: Any, b: Any) -> Any:
    """Return the product of two 64-bit numbers as (high, low)."""
    a1, a0, b1, b0 = a >> S32, a & LOW32, b >> S32, b & LOW32
    low, m1, m2 = a0 * b0, a1 * b0, a0 * b1
    middle = (low >> S32) + (m1 & LOW32) + (m2 & LOW32)
    return a1 * b1 + (m1 >> S32) + (m2 >> S32) + (middle >> S32), (middle << S32) | (low & LOW32)


@inlined
def stepped(high: Any, low: Any, inc_high: Any, inc_low: Any) -> Any:
    """Return the next state of PCG64."""
    made_high, made_low = product(low, PCG_LOW)
    made_high = made_high + low * PCG_HIGH + high * PCG_LOW
    total = made_low + inc_low
    return made_high + inc_high + np.uint64(total < made_low), total


@inlined
def take_round_keys(seed: Any, bits: int, keys: Any, row: int) -> None:
    """Fill in, as one row of `keys`, ``PCG64(seed).integers(0, 2**bits, size=5, dtype=uint64)``."""
    if bits == 0:
        for k in range(5):
            keys[row, k] = np.uint64(0)
        return
    pool = np.empty(4, dtype=np.uint32)
    constant = INIT_A
    for i in range(4):
        pool[i], constant = hashed(seed if i == 0 else np.uint32(0), constant)
    for i in range(4):
        for j in range(4):
            if i != j:
                word, constant = hashed(pool[i], constant)
                pool[j] = mixed(pool[j], word)
    state = np.empty(4, dtype=np.uint64)
    constant = INIT_B
    for i in range(8):
        word = np.uint32(pool[i % 4] ^ constant)
        constant = np.uint32(constant * MULT_B)
        word = np.uint32(word * constant)
        word = np.uint32(word ^ np.uint32(word >> XS))
        state[i // 2] = (state[i // 2] | (np.uint64(word) << S32)) if i % 2 else np.uint64(word)
    inc_high = (state[2] << ONE) | (state[3] >> S63)
    inc_low = (state[3] << ONE) | ONE
    # From state 0: a step, the seed added, a step.
    low = inc_low + state[1]
    high = inc_high + state[0] + np.uint64(low < inc_low)
    high, low = stepped(high, low, inc_high, inc_low)
    shift = np.uint64(32 - bits)
    held = np.uint64(0)
    for k in range(5):
        if k % 2 == 0:
            high, low = stepped(high, low, inc_high, inc_low)
            turn = high >> S58
            word64 = high ^ low
            held = (word64 >> turn) | (word64 << ((np.uint64(64) - turn) & S63))
            keys[row, k] = (held & LOW32) >> shift
        else:
            keys[row, k] = (held >> S32) >> shift


@inlined
def pass_forth(value: Any, bits: Any, keys: Any, row: int) -> Any:
    """Return a value after one pass of five rounds under a row of `keys`; it may be n or more."""
    mask = (ONE << bits) - ONE
    left, right = value >> bits, value & mask
    for r in range(5):
        left, right = right, left ^ ((right * FACTOR + keys[row, r]) & mask)
    return (left << bits) | right


@inlined
def pass_back(value: Any, bits: Any, keys: Any, row: int) -> Any:
    """Return the value that one pass leads to `value`."""
    mask = (ONE << bits) - ONE
    left, right = value >> bits, value & mask
    for r in range(4, -1, -1):
        left, right = right ^ ((left * FACTOR + keys[row, r]) & mask), left
    return (left << bits) | right


@kernel("void(uint32, uint32, boolean, int64, uint64[:,::1])")
def _round_keys(k0: Any, k1: Any, partitionable: bool, n: int, out: Any) -> None:
    take_round_keys(seed_of(k0, k1, partitionable), right_bits(n), out, 0)


@kernel(f"void({_I64}, int64, uint64[:,::1], int64[::1])")
def forward(values: Any, n: int, keys: Any, out: Any) -> None:
    """Write the item at each position."""
    bits = np.uint64(right_bits(n))
    for k in range(len(values)):
        value = pass_forth(np.uint64(values[k]), bits, keys, 0)
        while value >= np.uint64(n):
            value = pass_forth(value, bits, keys, 0)
        out[k] = np.int64(value)


@kernel(f"void({_I64}, int64, uint64[:,::1], int64[::1])")
def backward(values: Any, n: int, keys: Any, out: Any) -> None:
    """Write the position of each item."""
    bits = np.uint64(right_bits(n))
    for k in range(len(values)):
        value = pass_back(np.uint64(values[k]), bits, keys, 0)
        while value >= np.uint64(n):
            value = pass_back(value, bits, keys, 0)
        out[k] = np.int64(value)
