"""`stream@1` against a list of tokens: every token once, in order, and every question answered as by looking."""

from __future__ import annotations

import hashlib
import json
from dataclasses import FrozenInstanceError, dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import OrderError
from tokenreel.order.protocol import Node, Order, fingerprint
from tokenreel.order.ranges import CHUNK
from tokenreel.order.stream import StreamOrder
from tokenreel.spans import CorpusKey, Flag, SpanTable

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ListTable:
    """A `DocTable` over a list of lengths."""

    sizes: tuple[int, ...]
    digest: str = "00"

    @property
    def key(self) -> CorpusKey:
        return CorpusKey("tables", self.digest, len(self.sizes), self.tokens)

    @property
    def documents(self) -> int:
        return len(self.sizes)

    @property
    def tokens(self) -> int:
        return sum(self.sizes)

    def lengths(self, i: int, j: int) -> I64:
        return np.array(self.sizes[i:j], dtype=np.int64)

    def offsets_at(self, docs: I64) -> I64:
        return np.array(list(accumulate(self.sizes, initial=0)), dtype=np.int64)[docs]

    def at_tokens(self, positions: I64) -> I64:
        owners = [number for number, size in enumerate(self.sizes) for _ in range(size)]
        return np.array(owners, dtype=np.int64)[positions]


def rows(table: SpanTable) -> list[tuple[int, int, int]]:
    return list(zip(table.begin.tolist(), table.length.tolist(), table.flags.tolist(), strict=True))


def same(one: SpanTable, other: SpanTable) -> bool:
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one.columns(), other.columns(), strict=True))


sizes = st.lists(st.integers(0, 9), max_size=8).map(tuple)
orders = st.builds(StreamOrder.over, sizes.map(ListTable), row_tokens=st.integers(1, 7), row_ahead=st.integers(0, 1))


# ---- exactly once --------------------------------------------------------------------------------------------------


@given(orders)
def test_every_token_is_read_once_and_in_order(order: StreamOrder) -> None:
    table = order.spans(0, order.length)
    table.check([order.key.tokens])
    read = [t for begin, length, _ in rows(table) for t in range(begin, begin + length)]
    assert read == list(range(order.length * order.row_tokens))
    assert table.tokens == len(read)
    # What is left could not have filled one more row with its look-ahead.
    left = order.key.tokens - len(read)
    assert left < order.row_tokens + order.row_ahead
    assert order.dropped == (left - order.row_ahead if order.length else left)
    assert order.dropped >= 0


@given(orders)
def test_every_token_but_the_first_is_a_label_once(order: StreamOrder) -> None:
    table = order.spans(0, order.length)
    labels = []
    for begin, length, flags in rows(table):
        labels += range(begin + 1, begin + length + bool(flags & Flag.AHEAD))
    if order.row_ahead:
        assert labels == list(range(1, order.length * order.row_tokens + 1))
    assert table.label_positions == len(labels)
    assert set(table.flags.tolist()) <= {int(Flag.AHEAD) if order.row_ahead else 0}


def test_each_sample_is_one_unresolved_extent() -> None:
    order = StreamOrder.over(ListTable((5, 8)), 3)
    table = order.spans(1, 4)
    assert table.splits.tolist() == [0, 1, 2, 3]
    assert rows(table) == [(3, 3, 4), (6, 3, 4), (9, 3, 4)]
    assert set(table.document.tolist()) == set(table.start.tolist()) == {-1}
    assert set(table.corpus.tolist()) == {0}


@pytest.mark.parametrize(
    ("tokens", "ahead", "length", "dropped"),
    [(0, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 1), (4, 1, 0, 4), (4, 0, 1, 0), (5, 1, 1, 0), (8, 1, 1, 3), (9, 1, 2, 0)],
)
def test_length_and_what_is_dropped(tokens: int, ahead: int, length: int, dropped: int) -> None:
    order = StreamOrder(CorpusKey("files", "00", 1, tokens), 4, ahead)
    assert (order.length, order.dropped) == (length, dropped)


# ---- spans, spans_at and chunks agree ------------------------------------------------------------------------------


@given(orders, st.data())
def test_spans_at_gives_any_samples_as_asked(order: StreamOrder, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.integers(0, order.length - 1), max_size=6)) if order.length else []
    whole = rows(order.spans(0, order.length))
    assert rows(order.spans_at(wanted)) == [whole[k] for k in wanted]
    assert same(order.spans_at(np.array(wanted, dtype=np.uint16)), order.spans_at(wanted))
    assert order.spans_at(wanted).samples == len(wanted)
    i = data.draw(st.integers(0, order.length))
    j = data.draw(st.integers(i, order.length))
    assert same(order.spans_at(range(i, j)), order.spans(i, j))
    components = order.components_at(wanted)
    assert components.dtype == np.int32
    assert components.tolist() == [0] * len(wanted)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 11))
def test_chunks_are_the_range_in_blocks(first: int, count: int, block: int) -> None:
    order = StreamOrder.over(ListTable((100,)), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenreel.order.ranges.CHUNK", block)
        found = list(order.chunks(first, first + count))
    assert [at for at, _ in found] == list(range(first, first + count, block))
    assert [row for _, table in found for row in rows(table)] == rows(order.spans(first, first + count))
    assert all(table.samples <= block for _, table in found)


def test_chunks_are_bounded() -> None:
    order = StreamOrder(CorpusKey("files", "00", 1, 3 * CHUNK), 1, 0)
    assert [table.samples for _, table in order.chunks(5, 2 * CHUNK + 6)] == [CHUNK, CHUNK, 1]


def test_arrays_are_read_only() -> None:
    order = StreamOrder.over(ListTable((9,)), 2)
    for table in (order.spans(0, 2), order.spans_at([1, 0]), next(order.chunks(0, 2))[1]):
        assert not any(array.flags.writeable for array in table.columns())


# ---- positions -----------------------------------------------------------------------------------------------------

shards = st.lists(st.integers(0, 6), min_size=1, max_size=6).map(tuple)


@given(shards)
def test_at_and_where_are_inverse(shard_tokens: tuple[int, ...]) -> None:
    total = sum(shard_tokens)
    order = StreamOrder(CorpusKey("files", "00", 1, total), 2, shard_tokens=shard_tokens)
    places = [(shard, offset) for shard, tokens in enumerate(shard_tokens) for offset in range(tokens)]
    assert [order.where(position) for position in range(total)] == places
    assert [order.at(*place) for place in places] == list(range(total))
    assert order.where(total) == (len(shard_tokens) - 1, shard_tokens[-1])
    assert order.at(*order.where(total)) == total
    # The end of a shard is the beginning of the next one that has a token.
    for shard, tokens in enumerate(shard_tokens):
        assert order.at(shard, tokens) == sum(shard_tokens[: shard + 1])


@given(shards, st.integers(-3, 9), st.integers(-3, 9))
def test_positions_that_are_not_there(shard_tokens: tuple[int, ...], shard: int, offset: int) -> None:
    total = sum(shard_tokens)
    order = StreamOrder(CorpusKey("files", "00", 1, total), 2, shard_tokens=shard_tokens)
    if not (0 <= shard < len(shard_tokens) and 0 <= offset <= shard_tokens[shard]):
        with pytest.raises(OrderError) as caught:
            order.at(shard, offset)
        assert caught.value.code == "ORD003"
    for position in (-1, total + 1, total + 100):
        with pytest.raises(OrderError) as caught:
            order.where(position)
        assert caught.value.code == "ORD003"


def test_positions_need_the_shards() -> None:
    order = StreamOrder(CorpusKey("files", "00", 1, 9), 2)
    with pytest.raises(OrderError) as caught:
        order.where(0)
    assert caught.value.code == "ORD002"
    with pytest.raises(OrderError):
        order.at(0, 0)


# ---- the inverse ---------------------------------------------------------------------------------------------------


@given(orders, st.data())
def test_locate_equals_looking_at_every_sample(order: StreamOrder, data: st.DataObject) -> None:
    table = order.table
    assert table is not None
    documents = data.draw(st.lists(st.integers(0, table.documents - 1), max_size=4)) if table.documents else []
    lo = data.draw(st.integers(0, order.length))
    hi = data.draw(st.integers(lo, order.length))
    owners = table.at_tokens(np.arange(table.tokens)).tolist()
    wanted = []
    spans = rows(order.spans(0, order.length))
    for document in documents:
        for sample in range(lo, hi):
            begin, length, _ = spans[sample]
            inside = [t for t in range(begin, begin + length) if owners[t] == document]
            if inside:
                assert inside == list(range(inside[0], inside[-1] + 1))
                wanted.append((document, sample, 0, inside[0], len(inside)))
    hits = order.locate(0, documents, lo, hi)
    columns = (hits.document, hits.sample, hits.extent, hits.begin, hits.length)
    assert all(column.dtype == np.int64 for column in columns)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == wanted


@given(orders, st.data())
def test_rows_may_begin_at_any_token(order: StreamOrder, data: st.DataObject) -> None:
    """The same rows as of a stream without its first tokens, and documents are found where they are."""
    origin = data.draw(st.integers(0, order.key.tokens))
    moved = replace(order, origin=origin)
    width, ahead = order.row_tokens, order.row_ahead
    assert moved.length == max(0, (order.key.tokens - origin - ahead) // width)
    assert moved.dropped == order.key.tokens - origin - (moved.length * width + ahead if moved.length else 0)
    table = moved.spans(0, moved.length)
    assert table.begin.tolist() == [origin + k * width for k in range(moved.length)]
    assert moved.table is not None
    edges = moved.table.offsets_at(np.arange(moved.key.documents + 1)).tolist()
    documents = np.arange(moved.key.documents)
    found = moved.locate(0, documents, 0, moved.length)
    expected = []
    for document, (head, tail) in enumerate(pairwise(edges)):
        for k in range(moved.length):
            low, high = max(head, origin + k * width), min(tail, origin + (k + 1) * width)
            if low < high:
                expected.append((document, k, low, high - low))
    columns = (found.document, found.sample, found.begin, found.length)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert (moved.fingerprint == order.fingerprint) == (origin == 0)


@pytest.mark.parametrize("origin", [-1, 12])
def test_rows_begin_in_the_stream(origin: int) -> None:
    with pytest.raises(OrderError, match="ORD002"):
        StreamOrder(CorpusKey("files", "00", 2, 11), row_tokens=5, origin=origin)


def test_locate_needs_the_table_of_its_corpus() -> None:
    bare = StreamOrder(CorpusKey("files", "00", 1, 9), 2)
    with pytest.raises(OrderError) as caught:
        bare.locate(0, [0], 0, 1)
    assert caught.value.code == "ORD002"
    with pytest.raises(OrderError):
        StreamOrder.over(ListTable((9,)), 2).locate(1, [0], 0, 1)


# ---- fingerprints --------------------------------------------------------------------------------------------------


def test_fingerprint_is_what_the_contract_says() -> None:
    key = CorpusKey("identity", "ab" * 32, 3, 100)
    body = json.dumps(
        {
            "keys": [["identity", "ab" * 32, 3, 100]],
            "name": "stream@1",
            "parameters": {"row_ahead": 1, "row_tokens": 8},
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    assert StreamOrder(key, 8).fingerprint == hashlib.sha256(body.encode()).hexdigest()


keys = st.builds(
    CorpusKey,
    kind=st.sampled_from(["identity", "tables"]),
    digest=st.sampled_from(["00", "01"]),
    documents=st.integers(1, 2),
    tokens=st.integers(8, 9),
)
plain = st.builds(StreamOrder, key=keys, row_tokens=st.integers(1, 3), row_ahead=st.integers(0, 1))


@given(plain, plain)
def test_fingerprints_are_equal_exactly_for_equal_orders(one: StreamOrder, other: StreamOrder) -> None:
    assert (one.fingerprint == other.fingerprint) == (one == other)
    assert one.fingerprint_until(0) == one.fingerprint
    assert len(one.fingerprint) == 64


def test_shards_do_not_enter_the_fingerprint() -> None:
    """The same corpus in other shards is the same stream."""
    key = CorpusKey("identity", "00", 2, 9)
    prints = {StreamOrder(key, 2, shard_tokens=tokens).fingerprint for tokens in [(4, 5), (9,), (0, 9), ()]}
    assert len(prints) == 1


def test_floats_enter_as_hex_and_order_of_parameters_does_not_count() -> None:
    one = fingerprint("x@1", {"a": 0.1, "b": [1, {"d": 2.0, "c": (3,)}]}, ())
    other = fingerprint("x@1", {"b": [1, {"c": [3], "d": 2.0}], "a": 0.1}, ())
    assert one == other
    assert one != fingerprint("x@1", {"a": 0.1 + 2**-56, "b": [1, {"d": 2.0, "c": (3,)}]}, ())
    assert one != fingerprint("x@2", {"a": 0.1, "b": [1, {"d": 2.0, "c": (3,)}]}, ())
    assert fingerprint("x@1", {"a": 1.0}, ()) != fingerprint("x@1", {"a": 1}, ())


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("i", "j"), [(-1, 0), (0, 5), (3, 2), (5, 5), (-2, -1), (2**40, 2**40)])
def test_samples_outside_are_never_wrapped(i: int, j: int) -> None:
    order = StreamOrder.over(ListTable((9,)), 2)
    assert order.length == 4
    for act in (
        lambda: order.spans(i, j),
        lambda: list(order.chunks(i, j)),
        lambda: order.locate(0, [0], i, j),
    ):
        with pytest.raises(OrderError) as caught:
            act()
        assert caught.value.code == "ORD001"


@pytest.mark.parametrize("samples", [[4], [-1], [0, 1, 4], [0, -1], [2**62]])
def test_spans_at_outside(samples: list[int]) -> None:
    with pytest.raises(OrderError) as caught:
        StreamOrder.over(ListTable((9,)), 2).spans_at(samples)
    assert caught.value.code == "ORD001"


@pytest.mark.parametrize("i", [-1, 5])
def test_fingerprint_until_outside(i: int) -> None:
    with pytest.raises(OrderError) as caught:
        StreamOrder.over(ListTable((9,)), 2).fingerprint_until(i)
    assert caught.value.code == "ORD001"


@pytest.mark.parametrize(
    "parameters",
    [
        {"row_tokens": 0},
        {"row_tokens": -1},
        {"row_tokens": 2**31},
        {"row_tokens": 2, "row_ahead": 2},
        {"row_tokens": 2, "row_ahead": -1},
        {"row_tokens": 2, "shard_tokens": (4, 4)},
        {"row_tokens": 2, "shard_tokens": (10, -1)},
    ],
)
def test_parameters_that_cannot_be(parameters: dict[str, Any]) -> None:
    with pytest.raises(OrderError) as caught:
        StreamOrder(CorpusKey("files", "00", 1, 9), **parameters)
    assert caught.value.code == "ORD002"


# ---- the protocol --------------------------------------------------------------------------------------------------


def test_it_is_an_order() -> None:
    order = StreamOrder.over(ListTable((9,)), 2)
    members = {name for name in dir(Order) if not name.startswith("_")} | set(Order.__annotations__)
    assert [name for name in sorted(members) if not hasattr(order, name)] == []
    assert order.name == "stream@1"
    assert order.children == ()
    assert order.corpora == (order.key,)
    assert order.prepare() is order
    assert order.locate_cost == "closed"
    with pytest.raises(FrozenInstanceError):
        order.row_tokens = 3  # type: ignore[misc]


def test_describe() -> None:
    order = StreamOrder(CorpusKey("identity", "ab" * 32, 1, 2_000_001), 2)
    assert list(order.describe().lines()) == ["stream@1 [1,000,000 samples x 2 tokens] abababababab"]
    assert list(Node("a", (Node("b", (Node("c"),)), Node("d"))).lines()) == ["a", "  b", "    c", "  d"]


def test_a_stream_as_long_as_positions_go() -> None:
    tokens = 2**62
    order = StreamOrder(CorpusKey("files", "00", 1, tokens), 2**30, 1, (2**61, 2**61))
    table = order.spans(order.length - 1, order.length)
    table.check([tokens])
    assert table.begin.tolist() == [(order.length - 1) * 2**30]
    assert order.where(2**61) == (1, 0)
