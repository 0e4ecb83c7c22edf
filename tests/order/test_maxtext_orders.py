"""MaxText's orders against slow references and the laws of every order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.order.laws import brute_hits, check_views, hits, rows
from tests.order.maxtext_reference import (
    Lengths,
    check_documents,
    golden,
    greedy,
    mixed,
    npy_rows,
    token_rows,
)
from tokenreel.errors import OrderError, TokenreelError, UsageError
from tokenreel.order.grain_shuffle import grain_index_shuffle
from tokenreel.order.maxtext_blend import MaxTextBlendOrder, blend_dispatch, dispatch_weights, normalised
from tokenreel.order.maxtext_files import check_dispatch, check_index
from tokenreel.order.maxtext_joined import JoinedTable
from tokenreel.order.maxtext_mix import grain_given, grain_mix_at, grain_mix_length, grain_mix_place, grain_shares
from tokenreel.order.maxtext_mmap import MaxTextMmapOrder, grain_places
from tokenreel.order.maxtext_mmap_mix import MaxTextMmapMixOrder
from tokenreel.order.maxtext_npy import MaxTextNpyOrder
from tokenreel.order.maxtext_plan import StridedRows, eval_plan, plan_npy, split_range, train_samples
from tokenreel.spans import CorpusKey, Flag, SpanTable

STEP = 1_000_000
SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=15)
CORPORA = st.lists(SIZES, min_size=1, max_size=3)
SEEDS = st.integers(0, 2**32 - 1)


def corpora(sizes: list[list[int]]) -> list[Lengths]:
    return [Lengths(values, f"c{k}") for k, values in enumerate(sizes)]


def walk(order: Any, tables: list[Lengths], seed: int) -> None:
    """Check the laws: views agree, `locate` is what reading everything finds."""
    rng = np.random.default_rng(seed)
    length = min(order.length, 200)
    check_views(order, 0, length, rng)
    if length > 1:
        check_views(order, int(rng.integers(0, length)), length, rng)
    lo, hi = sorted(rng.integers(0, length + 1, size=2).tolist())
    for number, table in enumerate(tables):
        docs = rng.permutation(table.documents)[:5].tolist()
        found = order.locate(number, docs, lo, hi)
        assert hits(found) == brute_hits(order, number, table, docs, lo, hi)
        by = [(docs.index(d), s) for d, s in zip(found.document.tolist(), found.sample.tolist(), strict=True)]
        if order.locate_cost == "closed":
            assert by == sorted(by)
    for bad in ((-1, 0), (0, order.length + 1), (2, 1)):
        with pytest.raises(OrderError) as caught:
            order.spans(*bad)
        assert caught.value.code == "ORD001"
    with pytest.raises(OrderError):
        order.locate(len(tables), [0], 0, 0)
    with pytest.raises(OrderError):
        order.locate(0, [tables[0].documents], 0, 0)
    assert order.fingerprint_until(0) == order.fingerprint_until(order.length)
    assert order.describe().text.startswith(order.name)
    assert order.corpora == tuple(table.key for table in tables)


# ---- npy -----------------------------------------------------------------------------------------------------------


@given(CORPORA, st.integers(1, 12), st.integers(1, 40), SEEDS, st.booleans())
@settings(deadline=None, max_examples=120)
def test_npy(sizes: list[list[int]], row: int, samples: int, seed: int, halves: bool) -> None:
    tables = corpora(sizes)
    documents = sum(table.documents for table in tables)
    split, index = ("2,1", seed % 2) if halves else ("", 0)
    first, last = split_range(split, index, documents)
    tokens = sum(n for values in sizes for n in values)
    inside = sum([n for values in sizes for n in values][first:last])
    assume(inside > 0)
    order = MaxTextNpyOrder.over(tables, row, seed=seed, samples=samples, split=split, split_index=index)
    assert order.length >= samples
    assert order.plan.tokens == inside <= tokens
    ready = order.prepare()
    assert ready.fingerprint == order.fingerprint
    span = ready.spans(0, order.length)
    check_documents(span, tables)
    expected = npy_rows(tables, row, seed, order.plan.epochs, order.plan.separate, range(first, last), STEP)
    assert token_rows(span, tables, STEP) == expected
    arrays = ready.indices()
    check_index(arrays.document_index, arrays.sample_index, arrays.shuffle_index, (first, last), full=True)
    walk(ready, tables, seed)


@pytest.mark.parametrize("tokens", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("row", [1, 3, 64])
@pytest.mark.parametrize("ahead", [0, 1])
def test_plan_is_the_definition(tokens: int, row: int, ahead: int) -> None:
    for samples in [1, 2, 5, 17, 100]:
        epochs = 1
        while epochs * tokens < samples * row + ahead:
            epochs += 1
        plan = plan_npy(3, tokens, row, samples=samples, row_ahead=ahead)
        assert plan.epochs == epochs
        assert plan.samples == (epochs * tokens - ahead) // row >= samples
        before = ((epochs - 1) * tokens - ahead) // row
        expected = epochs > 1 and samples - before < int(0.80 * ((tokens - ahead) // row))
        assert plan.separate is expected


def test_plan_without_samples_is_whole_epochs_worth() -> None:
    assert plan_npy(3, 100, 8) == plan_npy(3, 100, 8, samples=12)
    assert plan_npy(3, 100, 8, num_epoch=3) == plan_npy(3, 100, 8, samples=36)
    assert plan_npy(3, 100, 8, epochs=3).samples == 299 // 8
    assert plan_npy(3, 10, 20, epochs=3).samples == 1  # three short epochs hold one sample


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"documents": 0, "tokens": 0, "row_tokens": 8}, "ORD074"),
        ({"documents": 3, "tokens": 0, "row_tokens": 8}, "ORD075"),
        ({"documents": 3, "tokens": 8, "row_tokens": 8}, "ORD077"),
        ({"documents": 3, "tokens": 8, "row_tokens": 8, "epochs": 1}, "ORD077"),
        ({"documents": 3, "tokens": 80, "row_tokens": 8, "epochs": 1, "samples": 1}, "ORD078"),
        ({"documents": 3, "tokens": 80, "row_tokens": 8, "samples": 0}, "ORD002"),
        ({"documents": 3, "tokens": 80, "row_tokens": 8, "num_epoch": 0}, "ORD002"),
        ({"documents": 3, "tokens": 80, "row_tokens": 0}, "ORD002"),
        ({"documents": 3, "tokens": 80, "row_tokens": 8, "row_ahead": 2}, "ORD002"),
    ],
)
def test_plans_that_cannot_be(given: dict[str, Any], code: str) -> None:
    with pytest.raises(TokenreelError) as caught:
        plan_npy(**given)
    assert caught.value.code == code


def test_npy_refuses_what_numpy_refuses() -> None:
    for seed in (-1, 2**32):
        with pytest.raises(UsageError) as caught:
            MaxTextNpyOrder.over(Lengths([9, 9]), 4, seed=seed, samples=1)
        assert caught.value.code == "ORD002"
    with pytest.raises(OrderError) as unready:
        MaxTextNpyOrder.over(Lengths([9, 9]), 4, samples=1).spans(0, 1)
    assert unready.value.code == "ORD014"


def test_fingerprint_says_what_matters() -> None:
    table = Lengths([9] * 40)
    make = MaxTextNpyOrder.over
    base = make(table, 4, seed=3, samples=10)
    assert make(table, 4, seed=3, samples=11).fingerprint == base.fingerprint  # the same arrays
    assert make(table, 4, seed=3, samples=10, split="1").fingerprint == base.fingerprint
    others = [
        make(table, 5, seed=3, samples=10),
        make(table, 4, seed=4, samples=10),
        make(table, 4, seed=3, samples=100),
        make(table, 4, seed=3, samples=10, split="1,1"),
        make([table, table], 4, seed=3, samples=10),
        make(Lengths([9] * 39 + [10]), 4, seed=3, samples=10),
    ]
    assert len({base.fingerprint, *(order.fingerprint for order in others)}) == len(others) + 1


# ---- joined tables -------------------------------------------------------------------------------------------------


@given(CORPORA)
def test_joined_table(sizes: list[list[int]]) -> None:
    joined, whole = JoinedTable(tuple(corpora(sizes))), Lengths([n for values in sizes for n in values])
    docs = np.arange(whole.documents + 1)
    assert (joined.documents, joined.tokens) == (whole.documents, whole.tokens)
    assert joined.offsets_at(docs).tolist() == whole.offsets_at(docs).tolist()
    assert joined.lengths(0, whole.documents).tolist() == whole.lengths(0, whole.documents).tolist()
    assert joined.lengths(1, 1).tolist() == []
    positions = np.arange(whole.tokens)
    assert joined.at_tokens(positions).tolist() == whole.at_tokens(positions).tolist()
    assert (joined.key == corpora(sizes)[0].key) == (len(sizes) == 1)


def test_a_look_ahead_may_fall_in_the_next_corpus() -> None:
    tables = corpora([[4], [0, 3]])
    joined = JoinedTable(tuple(tables))
    table = SpanTable.of([0, 1], [0], [4], document=0, start=0, flags=Flag.HEAD | Flag.TAIL | Flag.AHEAD)
    apart = joined.apart(table)
    apart.check([4, 3])
    assert rows(apart) == [[(0, 0, 4, 0, 0, 3), (1, 0, 0, 1, 0, int(Flag.AHEAD))]]
    end = SpanTable.of([0, 1], [6], [1])
    assert rows(joined.apart(end)) == [[(1, 2, 1, -1, -1, 0)]]


def test_the_weakest_key_is_the_joined_ones() -> None:
    class Keyed(Lengths):
        @property
        def key(self) -> CorpusKey:
            return CorpusKey("files", "00", self.documents, self.tokens)

    assert JoinedTable((Lengths([1]), Keyed([2]))).key.kind == "files"
    with pytest.raises(OrderError):
        JoinedTable(())


# ---- blends --------------------------------------------------------------------------------------------------------

WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(0.01, 10)), min_size=2, max_size=4).filter(any)


@given(WEIGHTS, st.integers(1, 60), SEEDS, st.data())
@settings(deadline=None, max_examples=80)
def test_blends(weights: list[float], samples: int, seed: int, data: st.DataObject) -> None:
    sizes = [data.draw(CORPORA.filter(lambda c: sum(map(sum, c)) > 0)) for _ in weights]
    given_tables = [corpora(values) for values in sizes]
    order = MaxTextBlendOrder.over(given_tables, weights, 5, seed=seed, samples=samples).prepare()
    read = [part for part, weight in zip(given_tables, weights, strict=True) if weight > 0]
    flat = [table for part in read for table in part]
    assert order.length == samples
    component = order.components_at(np.arange(samples)).tolist()
    assert component == greedy(dispatch_weights(order.weights).tolist(), samples)
    expected = []
    used = [0] * len(read)
    for number in component:
        base = sum(len(part) for part in read[:number])
        ((row,),) = ((order.children[number].spans(used[number], used[number] + 1),),)
        expected.append([(c + base, *rest) for c, *rest in rows(row)[0]])
        used[number] += 1
    assert rows(order.spans(0, samples)) == expected
    walk(order, flat, seed)
    pair = order.dispatch_pair()
    lengths = [child.length for child in order.children]
    check_dispatch(pair.dataset_index, pair.dataset_sample_index, lengths, samples)
    again = MaxTextBlendOrder.over(given_tables, weights, 5, seed=seed, samples=samples)
    assert rows(again.with_dispatch(pair.dataset_index, pair.dataset_sample_index).spans(0, samples)) == expected


def test_a_longer_blend_only_adds() -> None:
    short, _ = blend_dispatch([0.31, 0.42, 0.27], 500)
    long, _ = blend_dispatch([0.31, 0.42, 0.27], 5000)
    assert long[:500].tolist() == short.tolist()
    tables = [Lengths([40] * 50), Lengths([60] * 50)]
    make = MaxTextBlendOrder.over
    one, other = (make(tables, [1, 2], 8, samples=n).prepare() for n in (50, 60))
    assert one.fingerprint_until(50) == other.fingerprint_until(50)
    assert one.fingerprint != other.fingerprint
    assert rows(other.spans(0, 50)) == rows(one.spans(0, 50))


def test_a_blend_of_no_size_ends_with_its_first_dataset() -> None:
    tables = [Lengths([40] * 50), Lengths([60] * 3)]
    order = MaxTextBlendOrder.over(tables, [0.5, 0.5], 8).prepare()
    assert order.children[1].length == 22
    assert order.length == 44


def test_a_margin_may_be_too_small() -> None:
    # 0.3 of 10 is 3, and of 11 it is 3.3; the third dataset gets four of eleven samples in turn.
    tables = [Lengths([9] * 7), Lengths([4]), Lengths([9] * 7)]
    children = tuple(MaxTextNpyOrder.over(table, 3, samples=1) for table in tables)
    order = MaxTextBlendOrder(children, (0.2, 0.6, 0.2), 12)
    with pytest.raises(OrderError) as caught:
        order.prepare()
    assert caught.value.code == "ORD079"
    assert "dataset 1" in str(caught.value)


@pytest.mark.parametrize("datasets", [8, 12, 20])
def test_weights_of_a_run_may_differ_from_its_builders_by_a_bit(datasets: int) -> None:
    rng = np.random.default_rng(datasets)
    differing = 0
    for _ in range(50):
        weights = np.round(rng.random(datasets), 3)
        weights[rng.integers(0, datasets, 4)] = 0
        ours, theirs = normalised(weights.tolist()), normalised(weights.tolist(), compat=["runtime-weights"])
        assert len(ours) == len(theirs)
        assert np.allclose(ours, theirs, rtol=1e-15, atol=0)
        whole = weights / np.sum(weights)
        assert list(theirs) == whole[whole > 0].tolist()
        differing += ours != theirs
    assert differing > 0


def test_blends_that_cannot_be() -> None:
    tables = [Lengths([9] * 9), Lengths([9] * 9)]
    make = MaxTextBlendOrder.over
    for given_tables, weights, code in [
        (tables, [1.0], "ORD002"),
        ([tables[0], None], [1.0, 1.0], "ORD002"),
        (tables, [1.0, -1.0], "ORD064"),
        (tables, [0.0, 0.0], "ORD065"),
        (tables, [1e5, 1e-320], "ORD065"),
        (tables, [1.0, float("nan")], "ORD066"),
        (tables, [1e308, 1e308], "ORD065"),
    ]:
        with pytest.raises(TokenreelError) as caught:
            make(given_tables, weights, 4, samples=5)
        assert caught.value.code == code, weights
    with pytest.raises(OrderError) as empty:
        MaxTextBlendOrder(make(tables, [1, 1], 4, samples=5).children, (0.5, 0.5), 0)
    assert empty.value.code == "ORD085"
    with pytest.raises(UsageError):
        make(tables, [1, 1], 4, samples=5, compat=["nothing"])
    with pytest.raises(UsageError):
        make(tables, [1, 1], 4, samples=5, margin=-1.0)


# ---- direct windows ------------------------------------------------------------------------------------------------


@given(CORPORA, st.integers(1, 9), SEEDS, st.integers(1, 3), st.booleans())
@settings(deadline=None, max_examples=100)
def test_mmap(sizes: list[list[int]], row: int, seed: int, epochs: int, shuffled: bool) -> None:
    tables = corpora(sizes)
    stream = [STEP * k + p for k, table in enumerate(tables) for p in range(table.tokens)]
    windows = len(stream) // row
    assume(windows > 0)
    order = MaxTextMmapOrder.over(tables, row, seed=seed, shuffled=shuffled, epochs=epochs).prepare()
    expected = []
    for epoch in range(epochs):
        places = np.arange(windows)
        chosen = grain_index_shuffle(places, windows, (seed + epoch) % 2**32) if shuffled else places
        expected += [stream[w * row : w * row + row] for w in chosen.tolist()]
    assert token_rows(order.spans(0, order.length), tables, STEP) == expected
    assert order.dropped == len(stream) % row
    walk(order, tables, seed)


def test_mmap_without_a_window_or_with_a_shuffle_that_loses_one() -> None:
    for given_sizes, row, more, code in [
        ([3], 4, {}, "ORD077"),
        ([65537], 1, {}, "ORD086"),
        ([9], 4, {"epochs": 0}, "ORD002"),
        ([9], 0, {}, "ORD002"),
        ([9], 4, {"seed": 1 << 32}, "ORD002"),
        ([9], 4, {"compat": ["x"]}, "ORD002"),
    ]:
        with pytest.raises(TokenreelError) as caught:
            MaxTextMmapOrder.over(Lengths(given_sizes), row, **more)  # type: ignore[arg-type]
        assert caught.value.code == code
    assert MaxTextMmapOrder.over(Lengths([65537]), 1, shuffled=False).length == 65537
    order = MaxTextMmapOrder.over(Lengths([1] * 65537), 1, seed=5, compat=["grain-shuffle"])
    read = order.window_at(np.arange(65537))
    assert len(set(read.tolist())) == 65536
    (twice,) = np.flatnonzero(np.bincount(read, minlength=65537) == 2).tolist()
    assert order.locate(0, [twice], 0, 65537).sample.tolist() == [0, 65536]
    assert order.locate(0, [65536], 0, 65537).sample.tolist() == []


@given(st.integers(1, 3000), SEEDS)
@settings(deadline=None, max_examples=60)
def test_grain_shuffle_undone(n: int, seed: int) -> None:
    elements = grain_index_shuffle(np.arange(n), n, seed)
    which, places = grain_places(elements, n, seed)
    assert which.tolist() == places.tolist() == list(range(n))
    with pytest.raises(OrderError):
        grain_places([n], n, seed)


# ---- mixtures of direct windows ------------------------------------------------------------------------------------


def test_grain_mix_is_grains() -> None:
    cases = golden("grain_mix")
    assert len(cases) == 60
    for case in cases:
        shares = grain_shares(case["weights"])
        members = [int(c, 16) for c in case["members"]]
        assert grain_mix_length(case["lengths"], shares) == len(members)
        assert grain_mix_at(range(len(members)), shares)[0].tolist() == members
        assert [member for member, _ in mixed(case["lengths"], shares)] == members


@given(st.lists(st.integers(99, 5000), min_size=1, max_size=6), st.integers(0, 10**9))
@settings(deadline=None, max_examples=80)
def test_grain_mix_both_ways(shares: list[int], first: int) -> None:
    positions = np.arange(first, first + 300)
    members, elements = grain_mix_at(positions, shares)
    for member in range(len(shares)):
        mine = members == member
        assert np.array_equal(grain_mix_place(member, elements[mine], shares), positions[mine])
        assert np.array_equal(elements[mine], grain_given([first], shares)[0, member] + np.arange(mine.sum()))


def test_grain_mix_counts_exactly_with_weights_far_apart() -> None:
    shares = grain_shares([1e-9, 0.4, 0.6])
    assert sum(shares) > 10**10
    positions = np.array([0, 1, 2, 10**9, 3 * 10**12])
    members, elements = grain_mix_at(positions, shares)
    for position, member, element in zip(positions.tolist(), members.tolist(), elements.tolist(), strict=True):
        assert grain_mix_place(member, [element], shares).tolist() == [position]
    with pytest.raises(OrderError):
        grain_mix_place(0, [2**62], shares)
    with pytest.raises(OrderError):
        grain_mix_at([-1], shares)
    with pytest.raises(OrderError):
        grain_shares([1e-300, 1.0])


@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=4), st.integers(1, 4), SEEDS, st.integers(1, 2), st.data())
@settings(deadline=None, max_examples=80)
def test_mmap_mix(weights: list[float], hosts: int, seed: int, epochs: int, data: st.DataObject) -> None:
    sizes = [data.draw(CORPORA.filter(lambda c: sum(map(sum, c)) > 3)) for _ in weights]
    given_tables = [corpora(values) for values in sizes]
    order = MaxTextMmapMixOrder.over(given_tables, weights, 3, hosts=hosts, seed=seed, epochs=epochs).prepare()
    host_rows = []
    for host in range(hosts):
        slices = [range(child.length)[host::hosts] for child in order.children]
        chosen = mixed([len(part) for part in slices], order.shares)
        assert order.host_length(host) == len(chosen)
        host_rows.append([(member, slices[member][element]) for member, element in chosen])
    expected: list[tuple[int, int]] = []
    while len(expected) // hosts < len(host_rows[len(expected) % hosts]):
        expected.append(host_rows[len(expected) % hosts][len(expected) // hosts])
    assert order.length == len(expected)
    members, places = order.places_at(np.arange(order.length))
    assert list(zip(members.tolist(), places.tolist(), strict=True)) == expected
    flat = [table for part in given_tables for table in part]
    walk(order, flat, seed)
    for k in range(min(order.length, 40)):
        base = sum(len(part) for part in given_tables[: expected[k][0]])
        child = order.children[expected[k][0]].spans(expected[k][1], expected[k][1] + 1)
        assert rows(order.spans(k, k + 1))[0] == [(c + base, *rest) for c, *rest in rows(child)[0]]


def test_mixes_that_cannot_be() -> None:
    tables = [Lengths([9] * 9), Lengths([9] * 9)]
    for weights, hosts in [([1.0, 1.0], 0), ([1.0], 1), ([1.0, 1e-17], 1)]:
        with pytest.raises(OrderError) as caught:
            MaxTextMmapMixOrder.over(tables, weights, 4, hosts=hosts)
        assert caught.value.code == "ORD002"


# ---- what a run asks for -------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 50))
def test_strided_rows_cover_each_step(hosts: int, rows_each: int, step: int) -> None:
    placed = StridedRows(hosts * rows_each, hosts)
    seen = []
    for host in range(hosts):
        samples = placed.samples(host, step).tolist()
        assert len(samples) == rows_each
        assert [placed.place(s) for s in samples] == [(step, host, row) for row in range(rows_each)]
        seen += samples
    assert sorted(seen) == list(range(step * hosts * rows_each, (step + 1) * hosts * rows_each))
    length = step * 7 + 3
    assert [placed.count(h, length) for h in range(hosts)] == [len(range(h, length, hosts)) for h in range(hosts)]


def test_strided_rows_that_cannot_be() -> None:
    for batch, hosts in [(7, 2), (0, 1), (4, 0)]:
        with pytest.raises(TokenreelError) as caught:
            StridedRows(batch, hosts)
        assert caught.value.code == "ORD002"
    for host, step in [(2, 0), (-1, 0), (0, -1)]:
        with pytest.raises(OrderError):
            StridedRows(8, 2).samples(host, step)


def test_evaluation_reads_the_same_samples_each_round() -> None:
    plan = eval_plan(steps=1000, eval_interval=300, eval_steps=5, batch=16)
    assert (plan.rounds, plan.samples) == (4, 4 * 5 * 16)
    assert [plan.range(k) for k in range(4)] == [(0, 80)] * 4
    with pytest.raises(OrderError):
        plan.range(4)
    assert eval_plan(900, 300, 5, 16).rounds == 3
    assert eval_plan(-1, 300, 5, 16).rounds == eval_plan(1000, -1, 5, 16).rounds == 1
    whole = eval_plan(1000, 300, -1, 16)
    assert (whole.samples, whole.range(0)) == (None, (0, None))
    assert train_samples(1000, 1024) == 1024000
    assert train_samples(0, 8) is None
    with pytest.raises(UsageError):
        eval_plan(10, 1, 1, 0)


def test_a_document_beyond_32_bits_is_refused() -> None:
    with pytest.raises(OrderError) as caught:
        MaxTextNpyOrder.over(Lengths([1 << 31, 5]), 1 << 20, samples=3).indices()
    assert caught.value.code == "ORD002"
