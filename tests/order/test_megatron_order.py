"""`megatron@1` against a slow reference: indices, extents, look-ahead, locate."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.order.megatron_reference import build, sample_tokens
from tests.order.tables import Lengths
from tokenreel.errors import OrderError
from tokenreel.order.megatron import MegatronOrder
from tokenreel.order.megatron_plan import plan_epochs
from tokenreel.spans import Flag

SIZES = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 60)), min_size=1, max_size=40)
SEED = st.integers(0, 2**32 - 1)


@st.composite
def settings_of(draw: Any, keep: bool = False) -> dict[str, Any]:
    sizes = draw(SIZES)
    assume(sum(sizes) > 1)
    row = draw(st.integers(1, 40))
    one = sum(sizes) // row + 1
    samples = draw(st.one_of(st.none(), st.integers(0, 4 * one)))
    return {"sizes": sizes, "row": row, "ahead": draw(st.integers(0, 1)), "samples": samples, "seed": draw(SEED)}


def both(case: dict[str, Any], keep: bool = False) -> tuple[Any, MegatronOrder]:
    sizes = case["sizes"]
    split = {"split": "0,1,0", "part": "valid"} if keep else {}
    order = MegatronOrder.over(
        Lengths(sizes), case["row"], seed=case["seed"], samples=case["samples"], row_ahead=case["ahead"],
        keep_partial=keep, **split,
    )  # fmt: skip
    reference = build(sizes, 0, len(sizes), case["row"], case["ahead"], case["samples"], case["seed"], keep)
    return reference, order


def inputs_and_label(table: Any, k: int, edges: np.ndarray) -> tuple[list[int], int | None]:
    """Stream positions of a sample's input tokens, and of its last label."""
    inputs: list[int] = []
    label = None
    for e in range(table.splits[k], table.splits[k + 1]):
        begin, length = int(table.begin[e]), int(table.length[e])
        inputs += range(begin, begin + length)
        if table.flags[e] & Flag.AHEAD:
            label = begin + length
    return inputs, label


def check_samples(reference: Any, order: MegatronOrder, case: dict[str, Any], asked: list[int]) -> None:
    edges = np.concatenate(([0], np.cumsum(case["sizes"])))
    table = order.spans_at(asked)
    table.check([int(edges[-1])])
    for k, i in enumerate(asked):
        expected = [
            int(edges[d]) + t for d, t in sample_tokens(reference, case["sizes"], case["row"], case["ahead"], i)
        ]
        inputs, label = inputs_and_label(table, k, edges)
        full = len(expected) == case["row"] + case["ahead"]
        assert inputs == (expected[: case["row"]])
        assert label == (expected[-1] if full and case["ahead"] else None)
    for e in range(table.extents):
        d, begin, length = int(table.document[e]), int(table.begin[e]), int(table.length[e])
        assert edges[d] <= begin < edges[d + 1]
        assert table.start[e] == begin - edges[d]
        assert begin + length <= edges[d + 1]
        if length:
            assert bool(table.flags[e] & Flag.HEAD) == (begin == edges[d])
            assert bool(table.flags[e] & Flag.TAIL) == (begin + length == edges[d + 1])
        else:
            assert table.flags[e] == Flag.AHEAD


@given(settings_of())
def test_indices_and_samples_are_the_slow_ones(case: dict[str, Any]) -> None:
    reference, order = both(case)
    assert (order.plan.epochs, order.plan.separate) == (reference.epochs, reference.separate)
    order = order.prepare()
    indices = order.indices()
    assert indices.document_index.tolist() == reference.document_index
    assert indices.sample_index.tolist() == [list(row) for row in reference.sample_index]
    assert indices.shuffle_index.tolist() == reference.shuffle_index
    assert (indices.document_index.dtype, indices.sample_index.dtype, indices.shuffle_index.dtype) == (
        np.dtype("i4"), np.dtype("i4"), np.dtype("u4"),
    )  # fmt: skip
    check_samples(reference, order, case, list(range(order.length)))
    asked = [order.length - 1, 0, 0, order.length // 2] if order.length else []
    check_samples(reference, order, case, asked)


@given(settings_of())
def test_a_kept_tail(case: dict[str, Any]) -> None:
    reference, order = both(case, keep=True)
    last = case["sizes"][reference.document_index[-1]]
    overrun = order.length * case["row"] + case["ahead"] > reference.epochs * sum(case["sizes"])
    if case["ahead"] and last == 0 and overrun and order.length:
        with pytest.raises(OrderError, match="ORD013"):
            order.prepare()
        return
    order = order.prepare()
    assert order.indices().sample_index.tolist() == [list(row) for row in reference.sample_index]
    check_samples(reference, order, case, list(range(order.length)))


@given(settings_of(), st.integers(1, 7))
def test_any_stretch_is_what_single_samples_are(case: dict[str, Any], parts: int) -> None:
    order = both(case)[1].prepare()
    n = order.length
    whole = order.spans(0, n)
    edges = sorted({0, n, *(n * k // parts for k in range(parts))})
    for i, j in pairwise(edges):
        part = order.spans(i, j)
        low, high = whole.splits[i], whole.splits[j]
        assert np.array_equal(part.splits + low, whole.splits[i : j + 1])
        for name in ("begin", "length", "document", "start", "flags"):
            assert np.array_equal(getattr(part, name), getattr(whole, name)[low:high]), name
    assert sum(table.samples for _, table in order.chunks(0, n)) == n
    for column in whole.columns():
        assert not column.flags.writeable


@given(settings_of(), st.data())
def test_locate_is_a_scan(case: dict[str, Any], data: st.DataObject) -> None:
    order = both(case)[1].prepare()
    n = order.length
    lo = data.draw(st.integers(0, n))
    hi = data.draw(st.integers(lo, n))
    asked = data.draw(st.lists(st.integers(0, len(case["sizes"]) - 1), max_size=5))
    check_locate(order, asked, lo, hi)


def check_locate(order: Any, asked: list[int], lo: int, hi: int, corpus: int = 0) -> None:
    whole = order.spans(0, order.length)
    expected = [
        (d, s, e - int(whole.splits[s]), int(whole.begin[e]), int(whole.length[e]))
        for d in asked
        for s in range(lo, hi)
        for e in range(whole.splits[s], whole.splits[s + 1])
        if whole.document[e] == d and whole.length[e] > 0 and whole.corpus[e] == corpus
    ]
    hits = order.locate(corpus, asked, lo, hi)
    columns = (hits.document, hits.sample, hits.extent, hits.begin, hits.length)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


@given(st.lists(st.lists(st.integers(0, 12), max_size=5), min_size=1, max_size=15), st.integers(1, 20), SEED, st.data())
def test_documents_of_several_sequences(documents: list[list[int]], row: int, seed: int, data: st.DataObject) -> None:
    sizes = [size for document in documents for size in document]
    assume(sum(sizes) > 1)
    owners = Lengths([sum(document) for document in documents])
    plain = MegatronOrder.over(Lengths(sizes), row, seed=seed, samples=None).prepare()
    owned = MegatronOrder.over(Lengths(sizes), row, seed=seed, samples=None, documents=owners).prepare()
    a, b = plain.spans(0, plain.length), owned.spans(0, owned.length)
    for name in ("splits", "begin", "length"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
    for e in range(b.extents):
        d, begin, length = int(b.document[e]), int(b.begin[e]), int(b.length[e])
        assert owners.edges[d] <= begin < owners.edges[d + 1]
        assert b.start[e] == begin - owners.edges[d]
        assert b.flags[e] & Flag.AHEAD == a.flags[e] & Flag.AHEAD
        if length:
            assert bool(b.flags[e] & Flag.HEAD) == (begin == owners.edges[d])
            assert bool(b.flags[e] & Flag.TAIL) == (begin + length == owners.edges[d + 1])
    asked = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=4))
    check_locate(owned, asked, 0, owned.length)


@given(SIZES, st.integers(1, 10), SEED, st.sampled_from(["train", "valid", "test"]))
def test_parts_of_a_split(sizes: list[int], row: int, seed: int, part: str) -> None:
    n = len(sizes)
    first, last = {
        "train": (0, round(0.5 * n)),
        "valid": (round(0.5 * n), round(0.75 * n)),
        "test": (round(0.75 * n), n),
    }[part]
    assume(sum(sizes[first:last]) > 1)
    order = MegatronOrder.over(Lengths(sizes), row, seed=seed, samples=5, split="50,25,25", part=part).prepare()
    reference = build(sizes, first, last, row, 1, 5, seed)
    assert order.indices().document_index.tolist() == reference.document_index
    assert order.indices().sample_index.tolist() == [list(r) for r in reference.sample_index]
    case = {"sizes": sizes, "row": row, "ahead": 1}
    check_samples(reference, order, case, list(range(order.length)))
    check_locate(order, list(range(n)), 0, order.length)


def test_many_tiny_documents_in_one_sample() -> None:
    """More extents than were foreseen: the columns grow."""
    sizes = [5000] * 40 + [1] * 3000
    order = MegatronOrder.over(Lengths(sizes), 2500, seed=1, samples=None).prepare()
    reference = build(sizes, 0, len(sizes), 2500, 1, None, 1)
    case = {"sizes": sizes, "row": 2500, "ahead": 1}
    table = order.spans(0, order.length)
    most = int(np.argmax(np.diff(table.splits)))
    check_samples(reference, order, case, [most] * 30)


# ---- what the order says of itself -------------------------------------------------------------------------------------


def example(**changes: Any) -> MegatronOrder:
    settings: dict[str, Any] = {"row_tokens": 8, "seed": 3, "samples": 20, **changes}
    return MegatronOrder.over(Lengths([7, 0, 12, 30, 5] * 4), settings.pop("row_tokens"), **settings)


def test_fingerprints_follow_what_matters() -> None:
    base = example()
    assert base.fingerprint == base.prepare().fingerprint == base.fingerprint_until(3)
    assert base.fingerprint == example(samples=19).fingerprint, "the same epochs: the same arrays"
    others = [example(seed=4), example(row_tokens=9), example(row_ahead=0), example(samples=200), example(split="9,1")]
    assert len({base.fingerprint, *(order.fingerprint for order in others)}) == 6


def test_description_and_facts() -> None:
    order = example(samples=60)
    assert order.describe().text.startswith(
        f"megatron@1 [{order.length} samples x 8 tokens, 3 epochs, the last apart, seed 3]"
    )
    assert (order.row_ahead, order.children, order.locate_cost, order.corpora) == (1, (), "index", (order.key,))
    assert order.components_at([[1, 2], [3, 4]]).tolist() == [[0, 0], [0, 0]]
    prepared = order.prepare()
    assert prepared.prepare() is prepared


def test_an_order_must_be_prepared() -> None:
    for act in (
        lambda o: o.spans(0, 1),
        lambda o: o.spans_at([0]),
        lambda o: o.indices(),
        lambda o: o.locate(0, [1], 0, 1),
    ):
        with pytest.raises(OrderError, match="ORD014"):
            act(example())


def test_samples_outside() -> None:
    order = example().prepare()
    for act in (
        lambda: order.spans(0, order.length + 1), lambda: order.spans(-1, 1), lambda: order.spans(2, 1),
        lambda: order.spans_at([-1]), lambda: order.spans_at([order.length]), lambda: order.fingerprint_until(-1),
        lambda: order.locate(0, [1], 0, order.length + 1), lambda: list(order.chunks(0, order.length + 1)),
    ):  # fmt: skip
        with pytest.raises(OrderError, match="ORD001"):
            act()
    with pytest.raises(OrderError, match="ORD002"):
        order.locate(1, [1], 0, 1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"seed": -1}, "ORD002"),
        ({"seed": 2**32}, "ORD002"),
        ({"row_tokens": 0}, "ORD002"),
        ({"row_tokens": 2**31 - 1}, "ORD002"),
        ({"row_ahead": 2}, "ORD002"),
        ({"samples": -1}, "ORD002"),
        ({"part": "training"}, "ORD002"),
        ({"keep_partial": True}, "ORD002"),
        ({"compat": ["no-such-quirk"]}, "ORD002"),
        ({"split": "1e-3"}, "ORD010"),
        ({"split": "0,0,0"}, "ORD010"),
        ({"split": ""}, "ORD010"),
        ({"split": "1,2,3,4"}, "ORD010"),
        ({"split": "1..2"}, "ORD010"),
        ({"split": "99,1,0", "part": "test"}, "ORD011"),
        ({"split": "99,1,0", "part": "valid"}, "ORD011"),
    ],
)
def test_refusals(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(OrderError, match=code):
        example(**changes)


def test_a_sequence_too_long_for_megatron() -> None:
    table = Lengths([2**31, 5])
    with pytest.raises(OrderError, match="ORD002"):
        MegatronOrder.over(table, 2**20, seed=1, samples=None).prepare()


def test_a_split_without_tokens() -> None:
    for sizes in ([0, 0, 0], [1], [0, 1]):
        with pytest.raises(OrderError, match="ORD011"):
            MegatronOrder.over(Lengths(sizes), 4, seed=0, samples=None)
    with pytest.raises(OrderError, match="ORD011"):
        MegatronOrder.over(Lengths([0, 0]), 4, seed=0, samples=3, compat=["ndebug"])
    for sizes in ([0, 0], [1]):
        order = MegatronOrder.over(Lengths(sizes), 4, seed=0, samples=None, compat=["ndebug"]).prepare()
        assert order.length == 0
        assert order.indices().sample_index.tolist() == [[0, 0]]
        assert order.spans(0, 0).samples == 0


# ---- single precision --------------------------------------------------------------------------------------------------


def test_where_single_precision_miscounts() -> None:
    over, under = (33554487, 4793498), (33554434, 8388608)
    for (tokens, row), found in ((over, 8), (under, 4)):
        with pytest.raises(OrderError, match="ORD012"):
            plan_epochs(tokens, row, None, keep_partial=True)
        assert plan_epochs(tokens, row, None, keep_partial=True, compat=["float32-tail"]).samples == found


def test_the_sample_too_many_repeats_the_last_token() -> None:
    tokens, row = 33554487, 4793498
    order = MegatronOrder.over(
        Lengths([tokens - 40, 40]), row, seed=1, samples=None, split="0,1,0", part="valid", keep_partial=True,
        compat=["float32-tail"],
    ).prepare()  # fmt: skip
    indices = order.indices()
    assert order.length == 8
    last = int(np.flatnonzero(indices.shuffle_index == 7)[0])
    table = order.spans(last, last + 1)
    assert table.length.tolist() == [1]
    assert not table.flags[0] & Flag.AHEAD
    assert indices.sample_index[-1].tolist() == indices.sample_index[-2].tolist()
