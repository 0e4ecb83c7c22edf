"""`levanter@1`: an order like any other; nested, restarted, concatenated, cut short; fingerprints at changes of phase."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.order import levanter_reference as slow
from tests.order.laws import Table, brute_hits, check_views, hits
from tokenreel.errors import OrderError
from tokenreel.order.levanter import LevanterOrder
from tokenreel.order.levanter_keys import LevanterReplay, component_keys, data_key, mix_and_shuffle_keys
from tokenreel.order.levanter_sequences import LevanterSequences, simulated_sequences
from tokenreel.order.levanter_shuffle import LevanterShuffle
from tokenreel.order.mix import Component, MixOrder
from tokenreel.order.mix_phases import Phase
from tokenreel.order.stream import StreamOrder
from tokenreel.order.windows import WindowsOrder
from tokenreel.spans import CorpusKey

ROW = 4
BLOCKS = LevanterShuffle(io_block=2, window_blocks=3)
ERAS = LevanterShuffle(kind="era", era_length=5)
NONE = LevanterShuffle(kind="none")
WHOLE = LevanterShuffle(kind="full")
LINEAR = LevanterShuffle(io_block=3, window_blocks=2, permutation="linear")


def stream(tokens: int, digest: str = "00", row: int = ROW) -> StreamOrder:
    return StreamOrder(CorpusKey("files", digest, 1, tokens), row, 0)


def table_stream(table: Table) -> StreamOrder:
    return StreamOrder.over(table, ROW, 0)


@st.composite
def orders(draw: st.DrawFn, restart: bool = False) -> tuple[LevanterOrder, list[Table]]:
    """An order over up to three components of up to two parts; windows among the parts take the general way."""
    tables: list[Table] = []
    components: dict[str, list[Any]] = {}
    for c in range(draw(st.integers(1, 3))):
        parts: list[Any] = []
        for _ in range(draw(st.integers(1, 2))):
            table = Table([*draw(st.lists(st.integers(0, 9), min_size=2, max_size=8)), ROW], f"{len(tables):02x}")
            tables.append(table)
            parts.append(table_stream(table) if draw(st.booleans()) else WindowsOrder.over(table, ROW, 3, row_ahead=0))
        components[f"c{c}"] = parts
    block = draw(st.integers(1, 9))
    weights = [(0, {name: draw(st.sampled_from([1.0, 0.2, 3.0])) for name in components})]
    if draw(st.booleans()):
        weights.append((2 * block, dict.fromkeys(list(components)[:1], 1.0)))
    stop = "restart" if restart else draw(st.sampled_from(["restart", "first_exhausted"]))
    order = LevanterOrder.of(
        components, weights, block=block, seed=draw(st.integers(0, 99)), stop=stop, past_end="clamp",  # type: ignore[arg-type]
        data_seed=draw(st.none() | st.integers(0, 9)), trainer=draw(st.sampled_from(["grug", "train_lm"])),
        shuffle=draw(st.sampled_from([BLOCKS, ERAS, NONE, WHOLE, LINEAR])),
        replay=LevanterReplay(threefry_partitionable=draw(st.booleans()), python_sum="plain"),
        take={"c0": draw(st.integers(1, 9))} if draw(st.booleans()) else None,
    )  # fmt: skip
    return order, tables


@settings(max_examples=60)
@given(orders(), st.data())
def test_views_and_inverse_agree(made: Any, data: st.DataObject) -> None:
    order, tables = made
    end = min(order.length if order.length is not None else 60, 60)
    lo = data.draw(st.integers(0, end))
    hi = data.draw(st.integers(lo, end))
    check_views(order, lo, hi, np.random.default_rng(1))
    corpus = data.draw(st.integers(0, len(order.corpora) - 1))
    table = tables[int(order.corpora[corpus].digest, 16)]
    documents = data.draw(st.lists(st.integers(0, table.documents - 1), max_size=4, unique=True))
    found = order.locate(corpus, documents, lo, hi)
    assert hits(found) == brute_hits(order, corpus, table, documents, lo, hi)
    assert order.components_at(range(lo, hi)).tolist() == order.places_at(range(lo, hi))[0].tolist()
    counted = np.bincount(order.components_at(range(lo, hi)), minlength=len(order.children))
    assert order.counts_between(lo, hi).tolist() == counted.tolist()


@settings(max_examples=25)
@given(orders(restart=True), st.integers(0, 40), st.integers(0, 40))
def test_nested_in_a_mixture_and_over_one(made: Any, lo: int, count: int) -> None:
    inner, _ = made
    other = Table([5, 9, 14], "77")
    mix = MixOrder(
        (Component("lev", inner), Component("plain", table_stream(other), "repeat")),
        (Phase(0, (2, 1)),),
        5,
        6,
        samples=90,
    )
    check_views(mix, lo, lo + count, np.random.default_rng(2))
    finite = MixOrder(
        (Component("a", table_stream(other)), Component("b", stream(40, "78"))), (Phase(0, (1, 1)),), 5, 4, 6
    )
    outer = LevanterOrder.of({"m": [finite], "s": [stream(48, "79")]}, {"m": 1.0, "s": 1.0}, block=6, shuffle=BLOCKS)
    check_views(outer, lo, lo + count, np.random.default_rng(3))
    assert hits(outer.locate(0, [0, 1, 2], lo, lo + count)) == brute_hits(outer, 0, other, [0, 1, 2], lo, lo + count)


def test_a_sample_is_what_the_definition_says() -> None:
    lengths = {"a": 11, "b": 7, "c": 30}
    weights = [(0, {"a": 1.0, "c": 2.0}), (24, {"a": 1.0, "b": 3.0, "c": 1.0})]
    order = LevanterOrder.of(
        {name: [stream(n * ROW + 3, name)] for name, n in lengths.items()}, weights, block=12, seed=7, trainer="grug",
        shuffle=BLOCKS,
    )  # fmt: skip
    mix, shuffle = mix_and_shuffle_keys(data_key(7, trainer="grug"))
    keys = component_keys(shuffle, 3)
    counts = [list(row) for row in order.mixture.stage_counts]
    table = order.spans(0, 60)
    for g in range(60):
        c, number = slow.mixed(counts, [0, 24], 12, mix, g, True)
        n = list(lengths.values())[c]
        sequence = slow.block_shuffled(n, 2, 3, keys[c], number % n, slow.feistel, True)
        assert (int(table.corpus[g]), int(table.begin[g])) == (c, sequence * ROW)


def test_components_without_weight_draw_no_key() -> None:
    parts = {name: [stream(80, name)] for name in "abc"}
    without = LevanterOrder.of({"a": parts["a"], "c": parts["c"]}, {"a": 1.0, "c": 1.0}, block=8)
    order = LevanterOrder.of(parts, {"a": 1.0, "b": 0.0, "c": 1.0}, block=8)
    assert order.mixture.names == ("a", "c")
    assert order.fingerprint == without.fingerprint
    between = LevanterOrder.of(parts, {"a": 1.0, "b": 1.0, "c": 1.0}, block=8)
    assert between.children[0].key == order.children[0].key
    assert between.children[2].key != order.children[1].key


def test_parts_stand_one_behind_the_other_and_each_drops_its_remainder() -> None:
    order = LevanterSequences((stream(11, "00"), stream(3, "01"), stream(9, "02")))
    assert order.length == 4
    table = order.spans(0, 4)
    assert (table.corpus.tolist(), table.begin.tolist()) == ([0, 0, 2, 2], [0, 4, 0, 4])
    check_views(order, 0, 4, np.random.default_rng(0))


def test_a_component_is_cut_after_its_shuffle() -> None:
    whole = LevanterSequences((stream(80),), BLOCKS, (3, 4))
    cut = LevanterSequences((stream(80),), BLOCKS, (3, 4), take=7)
    assert cut.length == 7
    assert cut.sequences_at(range(7)).tolist() == whole.sequences_at(range(7)).tolist()
    assert cut.fingerprint != whole.fingerprint
    assert cut.fingerprint_until(7) == whole.fingerprint_until(7)
    assert simulated_sequences(1000, 3, 7) == int(1000 * 3 / 7)
    with pytest.raises(OrderError, match="ORD001"):
        cut.spans(0, 8)


def two_phases(late: dict[str, float], start: int = 24, **said: Any) -> LevanterOrder:
    parts = {"a": [stream(80, "0a")], "b": [stream(60, "0b")]}
    return LevanterOrder.of(parts, [(0, {"a": 3.0, "b": 1.0}), (start, late)], block=8, **said)


def test_fingerprints_at_changes_of_phase() -> None:
    one, other = two_phases({"a": 1.0, "b": 1.0}), two_phases({"a": 1.0, "b": 7.0})
    later = two_phases({"a": 1.0, "b": 1.0}, start=32)
    assert one.fingerprint != other.fingerprint
    assert len({order.fingerprint_until(24) for order in (one, other, later)}) == 1
    assert len({order.fingerprint_until(25) for order in (one, other, later)}) == 3
    assert one.fingerprint_until(20) == one.fingerprint_until(24)
    same = two_phases({"a": 6.0, "b": 2.0})
    single = LevanterOrder.of({"a": [stream(80, "0a")], "b": [stream(60, "0b")]}, {"a": 3.0, "b": 1.0}, block=8)
    assert same.fingerprint == single.fingerprint
    assert one.fingerprint_until(24) == single.fingerprint_until(24)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1}, {"data_seed": 0}, {"shuffle": NONE}, {"randomized": False},
        {"replay": LevanterReplay(threefry_partitionable=False)},
        {"shuffle": LevanterShuffle(permutation="linear")},
    ],
)  # fmt: skip
def test_what_changes_samples_changes_the_fingerprint(change: Any) -> None:
    one, other = two_phases({"a": 1.0, "b": 1.0}), two_phases({"a": 1.0, "b": 1.0}, **change)
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint_until(1) != other.fingerprint_until(1)


def test_asking_past_an_end_is_refused_or_clamped() -> None:
    parts = {name: [stream(n * ROW, name)] for name, n in (("a", 100), ("b", 37), ("c", 5))}
    weights, told = {"a": 0.5, "b": 0.3, "c": 0.2}, 0
    for seed in range(16):
        said: Any = {"block": 16, "data_seed": seed, "stop": "first_exhausted", "shuffle": NONE}
        order = LevanterOrder.of(parts, weights, past_end="clamp", **said)
        if order.overruns:
            told += 1
            with pytest.raises(OrderError, match="ORD134"):
                LevanterOrder.of(parts, weights, **said)
            sample, component, number = order.overruns[0]
            size = order.mixture.lengths[component]
            assert size is not None
            assert number >= size
            assert order.spans(sample, sample + 1).begin.tolist() == [(size - 1) * ROW]
        else:
            assert LevanterOrder.of(parts, weights, **said).length == order.length
    assert 0 < told < 16


def test_rows_that_differ_are_refused() -> None:
    with pytest.raises(OrderError, match="ORD112"):
        LevanterOrder.of({"a": [stream(80)], "b": [stream(80, row=8)]}, {"a": 1.0, "b": 1.0}, block=8)
    with pytest.raises(OrderError, match="ORD112"):
        LevanterSequences((stream(80), stream(80, row=8)))
    for parts, take in (((), None), ((stream(8),), -1)):
        with pytest.raises(OrderError, match="ORD002"):
            LevanterSequences(parts, take=take)
    with pytest.raises(OrderError, match="ORD002"):
        LevanterSequences((stream(80),), BLOCKS)
    order = two_phases({"a": 1.0})
    for call in (lambda: order.spans(5, 4), lambda: order.spans_at([-1]), lambda: order.chunks(-1, 2).__next__()):
        with pytest.raises(OrderError, match="ORD001"):
            call()
    with pytest.raises(OrderError, match="ORD002"):
        order.locate(2, [0], 0, 8)


def test_it_says_what_it_is_and_travels() -> None:
    order = two_phases({"a": 1.0, "b": 1.0})
    text = "\n".join(order.describe().lines())
    assert "threefry_partitionable True" in text
    assert "from 24: a 4, b 4" in text
    other = copy.deepcopy(order)
    assert other.fingerprint == order.fingerprint
    assert other.prepare().spans(3, 9).begin.tolist() == order.spans(3, 9).begin.tolist()
    assert order.locate_cost == "closed"


def snowball() -> LevanterOrder:
    said = next(case for case in slow.manifest()["mixtures"] if case["name"] == "snowball")
    parts = {name: [stream(length * 8192, name, 8192)] for name, length in said["datasets"]}
    weights = [(start, row) for start, row in said["weights"]]
    return LevanterOrder.of(parts, weights, block=49_152, trainer="grug")


def test_snowball_through_the_order() -> None:
    golden, order = slow.arrays("mixture.npz"), snowball()
    component, number = order.places_at(golden["snowball_at"])
    assert (component == golden["snowball_dataset"]).all()
    assert (number == golden["snowball_index"]).all()
    assert order.components_at(golden["snowball_at"][:64]).tolist() == golden["snowball_dataset"][:64].tolist()


def test_locate_over_a_whole_run_is_quick() -> None:
    tables = [Table([1000, 8192 * 5000, 7 * 8192], f"{c:02x}") for c in range(3)]
    parts = {str(c): [StreamOrder.over(table, 8192, 0)] for c, table in enumerate(tables)}
    order = LevanterOrder.of(parts, {"0": 1.0, "1": 1e-3, "2": 1.0}, block=49_152)
    order.locate(1, [0], 0, 10_000_000)
    best = 1.0
    for _ in range(5):
        begin = time.perf_counter()
        found = order.locate(1, [0], 0, 5_000_000)
        best = min(best, time.perf_counter() - begin)
    assert 1 <= len(found.sample) <= 2
    assert best < 0.05
