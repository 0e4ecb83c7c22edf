"""Permutations of other systems bit for bit, and our own."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import OrderError
from tokenreel.order import keyed, legacy_shuffle, torch_permutation
from tokenreel.order.grain_shuffle import grain_index_shuffle, half_bits, loses_an_element
from tokenreel.order.keyed import KeyedPermutation
from tokenreel.order.legacy_shuffle import LegacyShuffle, seeded_words
from tokenreel.order.torch_permutation import torch_randperm

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "megatron_order"
SEEDS = st.integers(0, 2**32 - 1)
# Lengths where the mask changes, a block of words ends, or nothing happens.
EDGES = [0, 1, 2, 3, 4, 5, 311, 312, 313, 623, 624, 625, 1247, 1248, 1249, 65535, 65536, 65537, 131072, 131073]
LENGTHS = st.one_of(st.integers(0, 3000), st.sampled_from(EDGES), st.integers(2**16, 2**18))


# ---- RandomState.shuffle ---------------------------------------------------------------------------------------------


@given(SEEDS, st.lists(LENGTHS, min_size=1, max_size=4), st.sampled_from(["i4", "u4", "i8", "u8", "f4", "f8"]))
def test_shuffles_in_sequence_are_numpys(seed: int, lengths: list[int], dtype: str) -> None:
    ours, theirs = LegacyShuffle(seed), np.random.RandomState(seed)
    for n in lengths:
        mine = np.arange(n, dtype=dtype)
        other = mine.copy()
        ours.shuffle(mine)
        theirs.shuffle(other)
        assert np.array_equal(mine, other)


@pytest.mark.parametrize("n", [*EDGES, 2**20, 2**20 + 1, 3_000_000])
def test_every_edge_of_length(n: int) -> None:
    ours, theirs = np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32)
    LegacyShuffle(n).shuffle(ours)
    np.random.RandomState(n).shuffle(theirs)
    assert np.array_equal(ours, theirs)


@given(SEEDS, st.integers(0, 400), st.integers(0, 3))
def test_draws_are_the_obvious_ones(seed: int, n: int, near: int) -> None:
    """Against one draw at a time, from numpy's own words, at any size: beyond 2**32 an array would not fit here."""
    high = [n, 2**16 + near, 2**32 + near, 2**40 + 7][near]
    count = min(high, 700)
    words = iter(np.random.RandomState(seed).randint(0, 2**32, size=8 * count + 4000, dtype=np.uint32).tolist())

    def interval(largest: int) -> int:
        mask = (1 << largest.bit_length()) - 1
        while True:
            value = next(words)
            if largest > 0xFFFFFFFF:
                value = value << 32 | next(words)
            if value & mask <= largest:
                return value & mask

    expected = [interval(i) for i in range(high, high - count, -1) if i]
    assert LegacyShuffle(seed).intervals(high, high - len(expected)).tolist() == expected


def test_wide_draws_are_numpys() -> None:
    """numpy's masked draw below a constant uses the same words in the same order."""
    limit = 2**34 - 1
    wide = np.random.RandomState(3).randint(0, limit + 1, size=1000, dtype=np.int64)
    words = np.random.RandomState(3).randint(0, 2**32, size=2000, dtype=np.uint32).astype(np.uint64)
    assert np.array_equal(((words[0::2] << np.uint64(32)) | words[1::2]) & np.uint64(limit), wide.astype(np.uint64))


def test_state_after_seeding_is_numpys() -> None:
    for seed in (0, 1, 1234, 2**32 - 1):
        assert np.array_equal(seeded_words(seed), np.random.RandomState(seed).get_state()[1])


def test_stored_vectors() -> None:
    vectors = np.load(GOLDEN / "rng.npz")
    for seed in (0, 1, 1234, 2**32 - 1):
        shuffle = LegacyShuffle(seed)
        first, then = np.arange(1000, dtype=np.int32), np.arange(777, dtype=np.uint32)
        shuffle.shuffle(first)
        shuffle.shuffle(then)
        assert np.array_equal(first, vectors[f"s{seed}_first_i32_1000"])
        assert np.array_equal(then, vectors[f"s{seed}_then_u32_777"])
    for seed in (0, 1, 5):
        assert np.array_equal(torch_randperm(1000, seed), vectors[f"torch_randperm_{seed}_1000"])


@pytest.mark.parametrize(
    "array", [np.zeros((2, 2), np.int32), np.zeros(4, np.int16), np.zeros(8, np.int32)[::2]], ids=["2-d", "i2", "step"]
)
def test_other_arrays_are_refused(array: np.ndarray) -> None:
    with pytest.raises(OrderError, match="ORD004"):
        LegacyShuffle(0).shuffle(array)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_numpy_refuses_are_refused(seed: int) -> None:
    with pytest.raises(OrderError, match="ORD002"):
        LegacyShuffle(seed)


def test_kernels_agree_with_the_python_they_are_written_in() -> None:
    for high, low in ((700, 0), (2**32 + 3, 2**32 - 4)):
        arguments = [
            [high, seeded_words(5), np.array([624]), np.zeros(624, np.uint32), np.zeros(624, np.int64), out]
            for out in (np.zeros(high - low, np.int64), np.zeros(high - low, np.int64))
        ]
        legacy_shuffle._intervals(*arguments[0])
        with np.errstate(over="ignore"):
            legacy_shuffle._intervals.python(*arguments[1])
        assert np.array_equal(arguments[0][-1], arguments[1][-1])
        assert np.array_equal(arguments[0][1], arguments[1][1])


# ---- torch.randperm --------------------------------------------------------------------------------------------------


def test_randperm_of_stored_vectors() -> None:
    vectors = np.load(GOLDEN / "randperm.npz")
    assert len(vectors.files) == 28
    for name in vectors.files:
        seed, n = map(int, name.split("_"))
        assert np.array_equal(torch_randperm(n, seed), vectors[name]), name


# SHA-256 of int64 little-endian, from torch 2.13.0.
LARGE = {
    (65536, 3): "56c2c4f0ad1082d469c88ddbcd42d138e52129dc37e9b123c1ff026e8bdf18d4",
    (65537, 3): "d77749fe131131e1f29edd88582f731df558a462b6f167118bb6eb8eadd19686",
    (1_000_003, 9): "552cec917bb5956a125da7448667f8a6f57e281b94ceffec101b074cefeb60a8",
}


@pytest.mark.parametrize(("n", "seed"), LARGE)
def test_large_randperm(n: int, seed: int) -> None:
    assert hashlib.sha256(torch_randperm(n, seed).astype("<i8").tobytes()).hexdigest() == LARGE[n, seed]


@pytest.mark.slow
def test_randperm_where_torch_changes_its_algorithm() -> None:
    found = hashlib.sha256(torch_randperm(214_748_374, 7).tobytes()).hexdigest()
    assert found == "0c84a8131a06b1a6979c8b43f539dd72f841aab2605d4c93ef5a390f43ca9fd1"


@given(st.integers(0, 2000), SEEDS)
def test_randperm_is_the_obvious_walk(n: int, seed: int) -> None:
    words = np.random.RandomState(seed).randint(0, 2**32, size=2 * n + 2, dtype=np.uint32).tolist()
    forward = list(range(n))
    for i in range(n - 1):
        j = i + words[i] % (n - i)
        forward[i], forward[j] = forward[j], forward[i]
    assert torch_randperm(n, seed).tolist() == forward
    inside_out = [0] * n
    for i in range(n):
        j = (words[2 * i] << 32 | words[2 * i + 1]) % (i + 1)
        inside_out[i] = i
        inside_out[i], inside_out[j] = inside_out[j], i
    out = np.empty(n, np.int64)
    torch_permutation._inside_out(out, seeded_words(seed), np.empty(624, np.uint32), np.empty(624, np.int64))
    assert out.tolist() == inside_out


def test_a_negative_randperm_is_refused() -> None:
    with pytest.raises(OrderError, match="ORD002"):
        torch_randperm(-1, 0)


# ---- Grain -----------------------------------------------------------------------------------------------------------


def test_grain_of_stored_vectors() -> None:
    cases = np.load(GOLDEN / "grain_index_shuffle.npz")["cases"]
    assert len(cases) == 900
    for position, largest, seed, expected in cases.tolist():
        assert grain_index_shuffle([position], largest + 1, seed).tolist() == [expected]


@given(st.integers(1, 3000), SEEDS)
def test_grain_permutes(n: int, seed: int) -> None:
    assert sorted(grain_index_shuffle(np.arange(n), n, seed).tolist()) == list(range(n))


@pytest.mark.parametrize("n", [65537, 262145])
def test_grain_loses_its_last_element_at_powers_of_four_plus_one(n: int) -> None:
    found = grain_index_shuffle(np.arange(n), n, 5)
    assert loses_an_element(n)
    assert found[0] == found[-1]
    assert set(range(n)) - set(found.tolist()) == {n - 1}
    if n == 65537:
        assert found[0] == 41228
    assert not loses_an_element(n - 1)
    assert not loses_an_element(n + 1)


def test_grain_counts_bits_from_the_largest_element() -> None:
    for n in [*range(2, 3000), *(2**k + d for k in range(12, 40) for d in (-1, 0, 1, 2))]:
        largest = n - 1
        bits = math.ceil(math.log2(largest)) if largest > 1 else 0
        assert 2 * half_bits(n) == max(16, bits + bits % 2), n


@pytest.mark.parametrize(("positions", "n", "code"), [([3], 3, "ORD001"), ([-1], 3, "ORD001"), ([0], 0, "ORD002")])
def test_grain_refuses(positions: list[int], n: int, code: str) -> None:
    with pytest.raises(OrderError, match=code):
        grain_index_shuffle(positions, n, 0)


# ---- ours --------------------------------------------------------------------------------------------------------------

WORDS64 = st.integers(0, 2**64 - 1)


@given(st.integers(0, 2000), WORDS64, WORDS64)
def test_keyed_permutes_and_inverts(n: int, seed: int, stream: int) -> None:
    order = KeyedPermutation(n, seed, stream)
    items = order.at(np.arange(n))
    assert sorted(items.tolist()) == list(range(n))
    assert np.array_equal(order.where(items), np.arange(n))


@given(st.data(), st.integers(1, 2**63 - 1), WORDS64)
def test_keyed_inverts_at_any_size(data: st.DataObject, n: int, seed: int) -> None:
    order = KeyedPermutation(n, seed)
    asked = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20))
    items = order.at(asked)
    assert 0 <= items.min() <= items.max() < n
    assert order.where(items).tolist() == asked
    assert order.at(order.where(asked)).tolist() == asked


@given(st.integers(1, 2**63 - 1), WORDS64, WORDS64)
def test_keyed_is_the_obvious_cipher(n: int, seed: int, stream: int) -> None:
    """Against whole numbers, written from the module's description alone."""
    full = 2**64 - 1

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & full
        x = (x ^ x >> 27) * 0x94D049BB133111EB & full
        return x ^ x >> 31

    bits = max(8, (n - 1).bit_length())
    left_bits, right_bits = bits // 2, bits - bits // 2
    state = mix(seed) ^ mix(stream + 2**63 & full)
    keys = [mix(state + 0x9E3779B97F4A7C15 * r & full) for r in range(1, 9)]

    def once(value: int) -> int:
        left, right = value >> right_bits, value % 2**right_bits
        for r, key in enumerate(keys):
            if r % 2 == 0:
                left ^= mix(right + key & full) >> 64 - left_bits
            else:
                right ^= mix(left + key & full) >> 64 - right_bits
        return left << right_bits | right

    position = n // 3
    value = once(position)
    while value >= n:
        value = once(value)
    assert KeyedPermutation(n, seed, stream).at([position]).tolist() == [value]


def test_keyed_vectors_never_change() -> None:
    assert KeyedPermutation(2**63 - 1, 3).at([0, 1, 2**62, 2**63 - 2]).tolist() == [
        7393506784531803562, 8040701841301638179, 6168368637104927680, 2825978082669471346,
    ]  # fmt: skip


@pytest.mark.parametrize("n", [3, 4, 5])
def test_keyed_is_fair(n: int) -> None:
    """Every permutation of a few items turns up about equally often."""
    seeds = 200 * math.factorial(n)
    found = Counter(tuple(KeyedPermutation(n, seed).at(range(n)).tolist()) for seed in range(seeds))
    assert len(found) == math.factorial(n)
    chi_squared = sum((count - 200) ** 2 / 200 for count in found.values())
    freedom = math.factorial(n) - 1
    assert chi_squared < freedom + 5 * math.sqrt(2 * freedom)


def test_keyed_streams_and_seeds_differ() -> None:
    n = 100_000
    base = KeyedPermutation(n, 1).at(np.arange(n))
    for other in (KeyedPermutation(n, 2), KeyedPermutation(n, 1, 1), KeyedPermutation(n, 0)):
        assert (other.at(np.arange(n)) == base).mean() < 1e-3


def test_keyed_kernels_agree_with_their_python() -> None:
    order = KeyedPermutation(1000, 9)
    for forward in (keyed._forward, keyed._backward):
        out = np.zeros(1000, np.int64)
        with np.errstate(over="ignore"):
            forward.python(np.arange(1000), 1000, 5, 5, order.keys(), out)
        compiled = np.zeros(1000, np.int64)
        forward(np.arange(1000), 1000, 5, 5, order.keys(), compiled)
        assert np.array_equal(out, compiled)


@pytest.mark.parametrize(("n", "seed", "stream"), [(-1, 0, 0), (2**63, 0, 0), (5, -1, 0), (5, 2**64, 0), (5, 0, -1)])
def test_keyed_refuses(n: int, seed: int, stream: int) -> None:
    with pytest.raises(OrderError, match="ORD002"):
        KeyedPermutation(n, seed, stream)


@pytest.mark.parametrize("position", [-1, 5])
def test_keyed_refuses_positions_outside(position: int) -> None:
    for method in (KeyedPermutation(5, 0).at, KeyedPermutation(5, 0).where):
        with pytest.raises(OrderError, match="ORD001"):
            method([position])
