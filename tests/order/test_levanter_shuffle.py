"""Levanter's permutations and shuffles: golden numbers, their definition, and back again."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.order import levanter_reference as slow
from tokenreel.errors import OrderError
from tokenreel.order.levanter_prp import Feistel, Linear, permutation_of
from tokenreel.order.levanter_shuffle import LevanterShuffle, Shuffles
from tokenreel.order.threefry import prng_key

words = st.integers(0, 0xFFFFFFFF)
keys = st.tuples(words, words)
BOTH = {"feistel": slow.feistel, "linear": slow.linear}


def test_golden_parameters() -> None:
    for case in slow.manifest()["prp_params"]:
        key = prng_key(case["seed"])
        one, other = Feistel(case["n"], key), Linear(case["n"], key, numpy_major=2)
        assert one.seed == other.seed == case["pcg_seed"]
        assert one.round_keys.tolist() == case["round_keys"]
        assert (other.a, other.b) == (case["a"], case["b"])


def test_golden_permutations() -> None:
    golden = slow.arrays("prp.npz")
    for name in golden.files:
        kind, *rest = name.split("_")
        seed, n = int(rest[-2]), int(rest[-1])
        order = permutation_of(kind, n, prng_key(seed), numpy_major=2)
        inputs = f"feistel_big_in_{seed}_{n}"
        if rest[0] == "big" and (rest[1] == "in" or inputs not in golden.files):
            continue
        asked = golden[inputs] if rest[0] == "big" else np.arange(n)
        made = order.at(asked)
        assert (made == golden[name]).all(), name
        if order.is_permutation:
            assert (order.where(made) == asked).all()


@given(st.sampled_from(["feistel", "linear"]), st.integers(1, 3000), keys, st.booleans(), st.data())
def test_one_item_as_its_definition_says(kind: str, n: int, key: Any, mode: bool, data: st.DataObject) -> None:
    order = permutation_of(kind, n, key, partitionable=mode)
    place = data.draw(st.integers(0, n - 1))
    assert order.at([place]).tolist() == [BOTH[kind](n, key, place, mode)]
    whole = order.at(np.arange(n))
    assert sorted(whole.tolist()) == list(range(n))
    assert (order.where(whole) == np.arange(n)).all()
    assert [a.tolist() for a in order.places(whole[:9])] == [list(range(min(9, n))), list(range(min(9, n)))]


@settings(max_examples=40)
@given(st.integers(1 << 31, 1 << 62), keys, st.data())
def test_huge_permutations_go_back(n: int, key: Any, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, n - 1), max_size=20))
    order = Feistel(n, key)
    made = order.at(places)
    assert made.tolist() == [slow.feistel(n, key, place, True) for place in places]
    assert order.where(made).tolist() == places


def test_linear_with_numpy_1_is_exact_up_to_32_bits() -> None:
    n = (1 << 32) - 5
    order = Linear(n, (1, 2), numpy_major=1)
    places = np.array([0, 1, n // 2, n - 1])
    assert order.at(places).tolist() == [slow.linear(n, (1, 2), int(place), True) for place in places]
    assert (order.where(order.at(places)) == places).all()


def test_linear_beyond_53_bits_is_no_permutation() -> None:
    said = slow.manifest()["linear_numpy2"]
    order = Linear(said["n"], prng_key(said["seed"]), numpy_major=2)
    assert not order.is_permutation
    made = order.at(np.arange(said["n"] - said["last"], said["n"]))
    made.sort()
    assert np.count_nonzero(made[1:] == made[:-1]) == said["duplicates_among_last"]
    with pytest.raises(OrderError, match="ORD131"):
        Linear(said["n"], prng_key(said["seed"]))
    with pytest.raises(OrderError, match="ORD132"):
        order.where([0])


@pytest.mark.parametrize("major", [1, 2])
def test_all_places_of_an_item_where_it_is_no_permutation(major: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenreel.order.levanter_prp.STRETCH", 1000)
    order = Linear(5000, (1, 2), numpy_major=major)
    for name, value in (("a", 4_000_000_000_000_003), ("b", 4_611_686_018_427_387_904)):
        object.__setattr__(order, name, value)
    whole = order.at(np.arange(5000))
    assert not order.is_permutation
    assert len(np.unique(whole)) < 5000
    asked = whole[[17, 4000, 17]]
    which, places = order.places(asked)
    expected = [(k, p) for k, item in enumerate(asked.tolist()) for p in np.flatnonzero(whole == item).tolist()]
    assert list(zip(which.tolist(), places.tolist(), strict=True)) == expected


def shuffle_of(case: Any) -> LevanterShuffle:
    if "era_length" in case:
        return LevanterShuffle(kind="era", era_length=case["era_length"], permutation=case["perm_type"])
    sizes = {"io_block": case["io_block_size"], "window_blocks": case["window_blocks"]}
    return LevanterShuffle(permutation=case["perm_type"], **sizes)


@pytest.mark.parametrize("case", slow.manifest()["era_block_cases"], ids=lambda case: str(case["name"]))
def test_golden_shuffles(case: Any) -> None:
    golden, n = slow.arrays("era_block.npz"), case["n"]
    made = Shuffles.of([n], [prng_key(case["seed"])], shuffle_of(case))
    whole = made.sequences_at(0, np.arange(n))
    name = case["name"]
    if name in golden.files:
        at = golden[f"{name}_at"] if f"{name}_at" in golden.files else slice(None)
        assert (whole[at] == golden[name]).all()
    if "sha256_int64" in case:
        assert hashlib.sha256(whole.astype("<i8").tobytes()).hexdigest() == case["sha256_int64"]
    assert sorted(whole.tolist()) == list(range(n))
    which, places = made.places_of(0, whole)
    assert (which == np.arange(n)).all()
    assert (places == np.arange(n)).all()


shuffles = st.one_of(
    st.builds(LevanterShuffle, kind=st.just("full"), permutation=st.sampled_from(["feistel", "linear"])),
    st.builds(
        LevanterShuffle,
        kind=st.just("era"),
        permutation=st.sampled_from(["feistel", "linear"]),
        era_length=st.integers(1, 40),
    ),
    st.builds(
        LevanterShuffle,
        permutation=st.sampled_from(["feistel", "linear"]),
        io_block=st.integers(1, 9),
        window_blocks=st.integers(1, 6),
    ),
    st.just(LevanterShuffle(kind="none")),
)


@given(shuffles, st.lists(st.integers(1, 150), min_size=1, max_size=4), st.booleans(), st.data())
def test_every_shuffle_is_its_definition_and_goes_back(
    said: LevanterShuffle, lengths: list[int], mode: bool, data: st.DataObject
) -> None:
    used = [data.draw(keys) for _ in lengths]
    made = Shuffles.of(lengths, used, said, partitionable=mode)
    which = np.repeat(np.arange(len(lengths)), lengths)
    places = np.concatenate([np.arange(n) for n in lengths])
    mix = np.random.default_rng(len(places)).permutation(len(places))
    which, places = which[mix], places[mix]
    found = made.sequences_at(which, places)
    perm = BOTH[said.permutation]
    for c, place, sequence in list(zip(which.tolist(), places.tolist(), found.tolist(), strict=True))[:25]:
        n, key = lengths[c], used[c]
        expected = place
        if said.kind == "full":
            expected = perm(n, key, place, mode)
        elif said.kind == "era":
            expected = slow.era_shuffled(n, said.era_length, key, place, perm, mode)
        elif said.kind == "block":
            expected = slow.block_shuffled(n, said.io_block, said.window_blocks, key, place, perm, mode)
        assert sequence == expected
    for c in range(len(lengths)):
        mine = which == c
        assert sorted(found[mine].tolist()) == list(range(lengths[c]))
        of, back = made.places_of(c, found[mine])
        assert (back == places[mine][of]).all()


def test_endless_components() -> None:
    for said in (LevanterShuffle(kind="era", era_length=8), LevanterShuffle(kind="none")):
        made = Shuffles.of([None], [(1, 2)], said)
        found = made.sequences_at(0, np.arange(64))
        assert sorted(found.tolist()) == list(range(64))
        assert (made.places_of(0, found)[1] == np.arange(64)).all()
    with pytest.raises(OrderError, match="ORD002"):
        Shuffles.of([None], [(1, 2)], LevanterShuffle())


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "era"},
        {"era_length": 4},
        {"io_block": 0},
        {"kind": "half"},
        {"permutation": "lcg"},
        {"window_blocks": 1 << 40},
    ],
)
def test_shuffles_that_are_none(said: Any) -> None:
    with pytest.raises(OrderError, match="ORD002"):
        LevanterShuffle(**said)


def test_what_is_refused() -> None:
    for call in (
        lambda: Feistel(0, (0, 0)),
        lambda: permutation_of("lcg", 5, (0, 0)),
        lambda: Linear((1 << 62) + 1, (0, 0)),
    ):
        with pytest.raises(OrderError, match="ORD002"):
            call()
    for order in (Feistel(5, (0, 0)), Linear(5, (0, 0))):
        with pytest.raises(OrderError, match="ORD001"):
            order.at([5])
        with pytest.raises(OrderError, match="ORD001"):
            order.where([-1])
        assert copy.deepcopy(order).at([3]) == order.at([3])
    with pytest.raises(OrderError, match="ORD130"):
        Linear(5, (0, 0), numpy_major=3)
