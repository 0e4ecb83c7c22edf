"""JAX's generator without JAX: golden numbers in both settings, a slow rendering, and JAX itself where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.order import levanter_reference as slow
from tokenreel.errors import OrderError
from tokenreel.order import threefry
from tokenreel.order.threefry_permutation import LARGEST, item_at, permutation, permutations, place_of, shuffle_rounds

words = st.integers(0, 0xFFFFFFFF)
keys = st.tuples(words, words)
MODES = ((True, "partitionable"), (False, "original"))


@pytest.mark.parametrize(("mode", "name"), MODES)
def test_golden_words(mode: bool, name: str) -> None:
    golden = slow.arrays(f"prng_{name}.npz")
    for s, seed in enumerate(golden["seeds"].tolist()):
        key = threefry.prng_key(seed)
        for array in golden.files:
            kind, _, n = array.partition("_")
            if kind == "split":
                assert (threefry.split_array(key, int(n), partitionable=mode) == golden[array][s]).all()
            elif kind == "bits32":
                made = threefry.random_bits(key, 1 if n == "scalar" else int(n), partitionable=mode)
                assert (made == golden[array][s]).all()
            elif kind.startswith("randint"):
                high = 1000 if n else 1 << 30
                assert threefry.randint(key, high, partitionable=mode) == golden[array][s]
        for data, folded in zip(golden["fold_data"].tolist(), golden.get("fold", [[]] * 9)[s], strict=False):
            assert threefry.fold_in(key, data) == tuple(folded.tolist())


@pytest.mark.parametrize(("mode", "name"), MODES)
def test_golden_permutations(mode: bool, name: str) -> None:
    golden = slow.arrays(f"permutation_{name}.npz")
    for array in golden.files:
        if array.startswith("perm_"):
            key, n = threefry.prng_key(int(array.split("_")[1])), int(array.split("_")[2])
            assert (permutation(key, n, partitionable=mode) == golden[array]).all()
            for place in {0, n // 3, n - 1}:
                item = int(golden[array][place])
                assert item_at(key, n, place, mode) == item
                assert place_of(key, n, item, mode) == place
        elif array != "array_in":
            key = threefry.prng_key(int(array.split("_")[1]))
            assert (permutation(key, golden["array_in"], partitionable=mode) == golden[array]).all()


def test_rounds_of_sorting() -> None:
    for n, rounds in slow.manifest()["shuffle_rounds"].items():
        assert shuffle_rounds(int(n)) == rounds


@given(keys, st.integers(1, 40), st.booleans(), words, st.integers(1, 2**31 - 1))
def test_words_are_those_of_the_definition(key: Any, n: int, mode: bool, data: int, high: int) -> None:
    assert list(threefry.split(key, n, partitionable=mode)) == slow.split(key, n, mode)
    assert threefry.random_bits(key, n, partitionable=mode).tolist() == slow.bits(key, n, mode)
    assert threefry.fold_in(key, data) == slow.fold_in(key, data)
    assert threefry.randint(key, high, partitionable=mode) == slow.randint(key, high, mode)
    chain, left = [], key
    for _ in range(3):
        left, mine = slow.split(left, 2, mode)
        chain.append(list(mine))
    assert threefry.key_chain(key, 3, partitionable=mode).tolist() == chain
    each = threefry.split_each(np.array([key, chain[0]], dtype=np.uint32), 3, partitionable=mode)
    assert [[tuple(k) for k in one] for one in each.tolist()] == [
        slow.split(key, 3, mode), slow.split(tuple(chain[0]), 3, mode),
    ]  # fmt: skip


@given(keys, st.integers(1, 60), st.booleans())
def test_a_permutation_its_places_and_its_items(key: Any, n: int, mode: bool) -> None:
    made = permutation(key, n, partitionable=mode).tolist()
    assert made == slow.permuted(key, list(range(n)), mode)
    assert [item_at(key, n, place, mode) for place in range(n)] == made
    assert [place_of(key, n, item, mode) for item in made] == list(range(n))


@settings(max_examples=15)
@given(keys, st.integers(1500, LARGEST), st.booleans())
def test_long_permutations_by_sort_selection_and_count(key: Any, n: int, mode: bool) -> None:
    expected = np.arange(n)
    left = key
    for _ in range(shuffle_rounds(n)):
        left, sub = threefry.split(left, 2, partitionable=mode)
        expected = expected[np.argsort(threefry.random_bits(sub, n, partitionable=mode), kind="stable")]
    made = permutations(np.array([key, key], dtype=np.uint32), np.arange(n, dtype=np.int32), mode)
    assert (made == expected).all()
    for place in (0, n // 2, n - 1):
        assert item_at(key, n, place, mode) == expected[place]
        assert place_of(key, n, int(expected[place]), mode) == place


def test_sorting_is_stable_where_words_are_equal() -> None:
    from tokenreel.order.threefry_permutation import sort_by

    rng = np.random.default_rng(3)
    for spread in (1, 5, 1 << 12, 1 << 32):
        words_of = (
            rng.integers(0, spread, 300, dtype=np.uint64) * (0xFFFFFFFF // max(1, spread - 1) or 1) & 0xFFFFFFFF
        ).astype(np.uint32)
        values = np.arange(300, dtype=np.int32)
        room = (np.zeros(2048, np.int32), np.zeros(2048, np.int32))
        sort_by(words_of, *room, values, np.zeros(300, np.uint64), np.zeros(300, np.uint64))
        assert values.tolist() == np.argsort(words_of, kind="stable").tolist()


def test_beyond_the_kernels_size_the_same_rule_holds() -> None:
    made = permutation((3, 4), LARGEST + 5)
    assert sorted(made.tolist()) == list(range(LARGEST + 5))
    assert permutation((3, 4), 0).tolist() == []


def test_what_is_refused() -> None:
    for call in (
        lambda: threefry.prng_key(1 << 64),
        lambda: threefry.split((0, 1 << 32)),
        lambda: threefry.split((0, 0), -1),
        lambda: threefry.randint((0, 0), 0),
        lambda: permutation((0, 0), -1),
        lambda: permutations(np.zeros((1, 2), np.uint32), np.zeros(LARGEST + 1, np.int32), True),
        lambda: item_at((0, 0), LARGEST + 1, 0),
    ):
        with pytest.raises(OrderError, match="ORD002"):
            call()
    with pytest.raises(OrderError, match="ORD001"):
        place_of((0, 0), 5, 5)


@pytest.mark.parametrize("mode", [True, False])
def test_against_jax(mode: bool) -> None:
    jax = pytest.importorskip("jax")
    with jax.threefry_partitionable(mode):
        for seed in (0, 1, -1, 2**32 + 5, 123456789):
            key = jax.random.PRNGKey(seed)
            ours = threefry.prng_key(seed)
            assert np.asarray(key).tolist() == list(ours)
            for n in (3, 17):  # every shape is compiled anew by JAX
                assert (np.asarray(jax.random.split(key, n)) == threefry.split_array(ours, n, partitionable=mode)).all()
                assert (
                    np.asarray(jax.random.bits(key, (n,))) == threefry.random_bits(ours, n, partitionable=mode)
                ).all()
            for data in (0, 1, 2**31, 2**32 - 1):
                assert np.asarray(jax.random.fold_in(key, data)).tolist() == list(threefry.fold_in(ours, data))
            for high in (1, 2, 1000, 2**30, 2**31 - 1):
                assert int(jax.random.randint(key, (), 0, high)) == threefry.randint(ours, high, partitionable=mode)
            for n in (5, 1626):
                assert (np.asarray(jax.random.permutation(key, n)) == permutation(ours, n, partitionable=mode)).all()
            items = np.array([5, 5, 1, 0, 9], dtype=np.int32)
            assert (
                np.asarray(jax.random.permutation(key, items)) == permutation(ours, items, partitionable=mode)
            ).all()


def test_keys_of_a_jax_in_64_bits() -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        for seed in (0, 5, -1, 2**32 + 5, 2**63 - 1):
            assert np.asarray(jax.random.PRNGKey(seed)).tolist() == list(threefry.prng_key(seed, x64=True))
