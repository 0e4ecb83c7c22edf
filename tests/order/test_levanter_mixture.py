"""Levanter's mixture: golden numbers, its definition one place at a time, inverse, ends, counts, keys and schedules."""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.order import levanter_reference as slow
from tokenreel.errors import OrderError
from tokenreel.order import levanter_keys as lk
from tokenreel.order.levanter_counts import counts_of, normalised, python_sum, smallest_block
from tokenreel.order.levanter_mixture import LevanterMixture
from tokenreel.order.levanter_schedule import LevanterSchedule, first_listed_value

PLAIN = lk.LevanterReplay(python_sum="plain")
words = st.integers(0, 0xFFFFFFFF)


def made(case: Any) -> LevanterMixture:
    return LevanterMixture.of(
        dict(case["datasets"]), case["weights"], block=case["block_size"], key=tuple(case["key"]),
        stop=case["stop_strategy"], randomized=case["randomize_blocks"], replay=PLAIN,
    )  # fmt: skip


@pytest.mark.parametrize("case", slow.manifest()["mixtures"], ids=lambda case: str(case["name"]))
def test_golden_mixtures(case: Any) -> None:
    golden, mixture, name = slow.arrays("mixture.npz"), made(case), case["name"]
    assert list(mixture.names) == case["component_order"]
    assert mixture.counts.tolist() == case["counts_per_block"]
    assert list(mixture.starts) == case["stage_starts"]
    assert mixture.base[1:].tolist() == case["counts_after_stage"]
    for block, digest in case["block_sha256_int64"].items():
        assert hashlib.sha256(mixture.ids_of(int(block)).astype("<i8").tobytes()).hexdigest() == digest
    if f"{name}_at" not in golden.files:
        return
    at = golden[f"{name}_at"]
    component, number = mixture.numbers_at(at)
    assert (component == golden[f"{name}_dataset"]).all()
    if f"{name}_raw_index" in golden.files:
        assert (number == golden[f"{name}_raw_index"]).all()
    if f"{name}_index" in golden.files:
        assert (mixture.places_at(at)[1] == golden[f"{name}_index"]).all()
    for c in range(len(mixture.names)):
        assert (mixture.samples_of(c, number[component == c]) == at[component == c]).all()


def test_snowball_s_keys_and_counts() -> None:
    said = slow.manifest()["snowball"]
    data = lk.data_key(0, trainer="grug")
    mix, shuffle = lk.mix_and_shuffle_keys(data)
    assert [list(data), list(mix), list(shuffle)] == [said[f"{name}_key"] for name in ("data", "mix", "shuffle")]
    keys = lk.component_keys(shuffle, 168)
    assert {name: list(key) for name, key in zip(said["component_keys"], keys, strict=True)} == said["component_keys"]
    for number, left in (("0", 89), ("1", 86)):
        for how in lk.SUMS:
            once = normalised(said["phases"][number], how)  # type: ignore[arg-type]
            shares = list(normalised(once, how).values())  # type: ignore[arg-type]
            counts = counts_of(shares, 49_152)
            assert counts.min() == 1
            assert counts[4] - int(shares[4] * 49_152) == left


def test_key_derivation() -> None:
    for seed, said in slow.manifest()["key_derivation"].items():
        assert list(lk.data_key(int(seed))) == said["train_lm_data"]
        assert list(lk.data_key(int(seed), trainer="grug")) == said["grug_data"]
        assert list(lk.data_key(7, int(seed))) == said["data_seed_override"]
        for name in ("train_lm_data", "grug_data", "data_seed_override"):
            mix, shuffle = lk.mix_and_shuffle_keys(tuple(said[name]))
            assert [list(mix), list(shuffle)] == [said[f"{name}.mix"], said[f"{name}.shuffle"]]
            keys = lk.component_keys(shuffle, 168)
            assert [list(key) for key in keys[:8]] == said[f"{name}.component_keys_first_8"]
            assert list(keys[167]) == said[f"{name}.component_key_167"]


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("const_512", 512),
        ("snowball", [{"start": 0, "value": 4096}, {"start": 15000, "value": 8192}]),
        ("two", [(0, 32), (1000, 64)]),
        ("three", [(0, 16), (10, 24), (25, 7)]),
    ],
)
def test_schedules(name: str, schedule: Any) -> None:
    said, ours = slow.manifest()["batch_schedules"][name], LevanterSchedule.of(schedule)
    for k, step in enumerate(said["steps"]):
        assert (ours.batch(step), ours.offset(step)) == (said["batch"][k], said["offset"][k])
        assert ours.step_of(said["offset"][k]) == said["step_of_offset"][k]
        if said["step_of_offset_minus_1"][k] is not None:
            assert ours.step_of(said["offset"][k] - 1) == said["step_of_offset_minus_1"][k]
    assert ours.offset(-1) == -1


def test_the_helper_that_returns_the_first_listed_value() -> None:
    said = slow.manifest()["value_at_step_quirk"]
    pairs = [(a, b) for a, b in said["schedule"]]
    assert [first_listed_value(pairs, step) for step in said["steps"]] == said["value"]


@pytest.mark.parametrize("said", [[(1, 4)], [(0, 4), (0, 5)], [(0, 0)], []])
def test_schedules_that_cannot_be_followed(said: Any) -> None:
    with pytest.raises(OrderError, match="ORD133"):
        LevanterSchedule.of(said)


def test_how_python_sums_moves_counts() -> None:
    for case in slow.manifest()["python_sum_matters"]:
        weights = {str(k): w for k, w in enumerate(case["weights"])}
        for how, version in (("plain", "py311"), ("compensated", "py312")):
            assert repr(python_sum(case["weights"], how)) == case[f"sum_{version}"]  # type: ignore[arg-type]
            shares = list(normalised(weights, how).values())  # type: ignore[arg-type]
            assert counts_of(shares, case["block"]).tolist() == case[f"counts_{version}"]
        with pytest.raises(OrderError, match="ORD131"):
            LevanterMixture.of(dict.fromkeys(weights, 10), weights, block=case["block"])


@given(st.lists(st.one_of(st.floats(1e-9, 1e9), st.integers(0, 9)), min_size=1, max_size=30))
def test_python_s_own_sum(values: list[float]) -> None:
    how = "compensated" if sys.version_info >= (3, 12) else "plain"
    assert python_sum(values, how) == sum(values)  # type: ignore[arg-type]


@st.composite
def mixtures(draw: st.DrawFn, stop: str = "restart") -> LevanterMixture:
    block = draw(st.integers(1, 24))
    names = [f"c{k}" for k in range(draw(st.integers(1, 4)))]
    stages = sorted(draw(st.sets(st.integers(1, 6), max_size=2)) | {0})
    weights = []
    for stage in stages:
        row = {name: draw(st.sampled_from([0, 0.01, 0.3, 1.0, 2.5])) for name in names}
        row[draw(st.sampled_from(names))] = 1.0
        weights.append((stage * block, row))
    lengths = {
        name: draw(st.integers(1, 40) if stop != "restart" else st.none() | st.integers(1, 40)) for name in names
    }
    return LevanterMixture.of(
        lengths, weights, block=block, key=(draw(words), draw(words)), stop=stop,  # type: ignore[arg-type]
        randomized=draw(st.booleans()),
        replay=lk.LevanterReplay(threefry_partitionable=draw(st.booleans()), python_sum="plain"),
    )  # fmt: skip


@given(mixtures(), st.data())
def test_places_are_those_of_the_definition_and_go_back(mixture: LevanterMixture, data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.integers(0, 12 * mixture.block), min_size=1, max_size=40))
    component, number = mixture.numbers_at(asked)
    restarted = mixture.places_at(asked)[1]
    for place, c, n, again in zip(asked, component.tolist(), number.tolist(), restarted.tolist(), strict=True):
        if mixture.randomized:
            counts = [list(row) for row in mixture.stage_counts]
            expected = slow.mixed(
                counts, list(mixture.starts), mixture.block, mixture.key, place, mixture.partitionable
            )
            assert (c, n) == expected
        length = mixture.lengths[c]
        assert again == (n if length is None else n % length)
        assert mixture.samples_of(c, [n]).tolist() == [place]
    cursors = mixture.cursors_at(asked)
    whole = mixture.numbers_at(np.arange(max(asked)))[0]
    for k, place in enumerate(asked):
        assert cursors[k].tolist() == np.bincount(whole[:place], minlength=len(mixture.names)).tolist()


@given(mixtures())
def test_every_number_of_every_component_has_its_place(mixture: LevanterMixture) -> None:
    end = 9 * mixture.block
    component, number = mixture.numbers_at(np.arange(end))
    for c in range(len(mixture.names)):
        mine = np.flatnonzero(component == c)
        assert sorted(number[mine].tolist()) == list(range(len(mine)))
        assert (mixture.samples_of(c, number[mine]) == mine).all()
        beyond = mixture.samples_of(c, [len(mine)])[0]
        assert beyond == -1 or beyond >= end


@settings(max_examples=60)
@given(st.sampled_from(["first_exhausted", "all_exhausted"]), st.data())
def test_where_a_mixture_ends(stop: str, data: st.DataObject) -> None:
    mixture = data.draw(mixtures(stop))
    reach = 600 * mixture.block
    endless = LevanterMixture(
        mixture.names, mixture.lengths, mixture.starts, mixture.shares, mixture.stage_counts, mixture.block, mixture.key,
        "restart", mixture.randomized, mixture.partitionable,
    )  # fmt: skip
    component, number = endless.numbers_at(np.arange(reach))
    ends: list[int | None] = []
    for c, length in enumerate(mixture.lengths):
        mine = np.flatnonzero(component == c)
        ends.append(int(mine[length - 1]) if length is not None and len(mine) >= length else None)
    assert [mixture.exhausted_at(c) for c in range(len(ends))] == ends
    reached = [end for end in ends if end is not None]
    if stop == "first_exhausted":
        assert mixture.length == (1 + min(reached) if reached else None)
        sizes = np.array(mixture.lengths)[component[: mixture.length]]
        past = np.flatnonzero(number[: mixture.length] >= sizes) if mixture.length else np.empty(0)
        assert [place for place, _, _ in mixture.overruns()] == past.tolist()
    else:
        assert mixture.length == (1 + max(reached) if len(reached) == len(ends) else None)


def test_the_index_error_of_the_original() -> None:
    failing = []
    for seed in range(4):
        mixture = LevanterMixture.of(
            {"a": 100, "b": 37, "c": 5}, {"a": 0.5, "b": 0.3, "c": 0.2}, block=16, key=(0, seed), stop="first_exhausted"
        )
        failing.append(bool(mixture.overruns()))
    assert failing == [False, False, True, True]


def test_few_places_are_selected_and_more_are_sorted_with_the_same_answer() -> None:
    case = next(case for case in slow.manifest()["mixtures"] if case["name"] == "snowball")
    whole, one = made(case), made(case)
    at = np.array([983_040_000 + 17, 983_040_000 + 49_151, 5, 61_440_000])
    expected = [a.tolist() for a in whole.numbers_at(np.concatenate([at, at + 1, at - 5]))]
    assert [a.tolist()[:4] for a in one.numbers_at(at)] == [a[:4] for a in expected]
    assert one._cache.get(20_000) is None
    one.numbers_at(at)
    assert one._cache.get(20_000) is not None


def test_components_beyond_31_bits_do_not_wrap() -> None:
    mixture = LevanterMixture.of({"a": None, "b": None}, [(0, {"a": 1.0}), (1 << 40, {"a": 1, "b": 1})], block=1 << 15)
    for place in (1 << 35, (1 << 40) - 1, (1 << 40) + 12345, 1 << 50):
        component, number = mixture.numbers_at([place])
        assert mixture.samples_of(int(component[0]), number).tolist() == [place]
    assert mixture.samples_of(0, [1 << 62]).tolist() == [-1]


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("ORD111", {"weights": {"a": -1.0, "b": 2.0}}),
        ("ORD111", {"weights": {"a": 0.0, "b": 0.0}}),
        ("ORD111", {"weights": {"a": float("nan")}}),
        ("ORD111", {"weights": {"a": 1.0, "x": 1.0}}),
        ("ORD113", {"weights": [(8, {"a": 1.0})]}),
        ("ORD113", {"weights": [(0, {"a": 1.0}), (12, {"b": 1.0})]}),
        ("ORD113", {"weights": [(0, {"a": 1.0}), (0, {"b": 1.0})]}),
        ("ORD113", {"weights": [(0, {"a": 1.0}), (-1, {"b": 1.0})]}),
        ("ORD100", {"components": {"a": 0, "b": 5}}),
        ("ORD002", {"block": 65536}),
        ("ORD002", {"block": 0}),
        ("ORD002", {"stop": "never"}),
        ("ORD130", {"replay": lk.LevanterReplay(enable_x64=True)}),
        ("ORD130", {"replay": lk.LevanterReplay(prng="rbg")}),
        ("ORD130", {"replay": lk.LevanterReplay(numpy_major=3)}),
    ],
)
def test_what_is_refused(code: str, change: Any) -> None:
    said: Any = {"components": {"a": 5, "b": 7}, "weights": {"a": 1.0, "b": 1.0}, "block": 8, **change}
    with pytest.raises(OrderError, match=code):
        LevanterMixture.of(said.pop("components"), said.pop("weights"), **said)


def test_the_smallest_block() -> None:
    for shares in ([0.999, 0.001], [1.0], [0.5, 0.5], [1 / 3, 1 / 3, 1 / 3], [0.7, 0.3 - 1e-4, 1e-4]):
        found = smallest_block([shares])
        assert found is not None
        assert (counts_of(shares, found) > 0).all()
        assert found == 1 or not (counts_of(shares, found - 1) > 0).all()


def test_a_mixture_travels_and_records_its_settings() -> None:
    case = slow.manifest()["mixtures"][0]
    one = made(case)
    other = copy.deepcopy(one)
    assert other == one
    assert other.numbers_at([3, 400])[1].tolist() == one.numbers_at([3, 400])[1].tolist()
    assert json.loads(json.dumps(PLAIN.as_dict()))["python_sum"] == "plain"
