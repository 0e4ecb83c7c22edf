"""Rows of `crop` and `bos-aligned` are those of nanochat and modded-nanogpt, token for token, for every rank."""

from __future__ import annotations

from itertools import count, islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.order.laws import Table, check_views, hits
from tests.pack.peers_reference import modded_nanogpt, nanochat
from tests.pack.test_packed import brute_hits_of
from tokenreel.errors import OrderError
from tokenreel.pack.packed import PackedOrder, packed
from tokenreel.spans import Flag

BOS = 0
sizes_of_documents = st.lists(st.integers(1, 40) | st.sampled_from([1, 8, 9]), min_size=1, max_size=60)


def documents_of(sizes: list[int]) -> list[list[int]]:
    """Documents that begin with BOS and in which every other id stands once."""
    numbers = count(1)
    return [[BOS, *islice(numbers, n - 1)] for n in sizes]


def prepared(sizes: list[int], room: int, policy: str, **options: Any) -> PackedOrder | None:
    try:
        return packed(Table(sizes), room, policy, shuffle=False, **options).prepare()
    except OrderError as error:
        if error.code != "ORD100":
            raise
        return None


def rows_of(order: PackedOrder | None, documents: list[list[int]]) -> list[list[int]]:
    """Every row's inputs and, behind them, its last label where it has one."""
    if order is None:
        return []
    stream = [token for document in documents for token in document]
    table = order.spans(0, order.length or 0)
    table.check([len(stream)])
    rows = []
    for k in range(table.samples):
        row: list[int] = []
        for e in range(int(table.splits[k]), int(table.splits[k + 1])):
            if not table.flags[e] & Flag.PAD:
                begin, length = int(table.begin[e]), int(table.length[e])
                assert documents[int(table.document[e])][int(table.start[e]) :][:length] == stream[begin:][:length]
                row += stream[begin : begin + length + int(table.flags[e] & Flag.AHEAD != 0)]
        rows.append(row)
    return rows


# ---- nanochat -----------------------------------------------------------------------------------------------------------

buffers = st.fixed_dictionaries({"buffer": st.integers(1, 12), "refill": st.integers(1, 6)})


@given(sizes_of_documents, st.integers(1, 24), buffers, st.sampled_from(["pad", "drop"]))
def test_crop_makes_nanochat_s_rows(sizes: list[int], room: int, options: dict[str, int], tail: str) -> None:
    documents = documents_of(sizes)
    expected = list(nanochat(iter(documents), room, options["buffer"], options["refill"]))
    if tail == "drop":
        expected = [row for row in expected if len(row) == room + 1]
    order = prepared(sizes, room, "crop", oversize="wait", tail=tail, **options)
    assert rows_of(order, documents) == expected
    # Every row begins with a document; one that is full is one token more than its inputs.
    assert all(row[0] == BOS and len(row) <= room + 1 for row in expected)
    assert sum(len(row) < room + 1 for row in expected) <= (tail == "pad")


@given(sizes_of_documents, st.integers(1, 24), buffers)
def test_rows_are_those_of_an_endless_reader_until_it_begins_again(
    sizes: list[int], room: int, options: dict[str, int]
) -> None:
    """nanochat reads on into the next epoch; what it gave before is what one pass gives."""
    documents, read = documents_of(sizes), 0

    def endless() -> Any:
        nonlocal read
        while True:
            for document in documents:
                read += 1
                yield document

    expected = []
    for row in nanochat(endless(), room, options["buffer"], options["refill"]):
        if read > len(documents):
            break
        expected.append(row)
    order = prepared(sizes, room, "crop", oversize="wait", **options)
    assert rows_of(order, documents)[: len(expected)] == expected


@given(sizes_of_documents, st.integers(1, 24), buffers, st.sampled_from(["split", "truncate", "drop", "error"]))
def test_long_documents_alone_make_a_difference(
    sizes: list[int], room: int, options: dict[str, int], oversize: str
) -> None:
    """Whatever becomes of documents longer than a row, where there is none the rows are nanochat's."""
    shorter = [min(n, room + 1) for n in sizes]
    documents = documents_of(shorter)
    sides = [
        rows_of(prepared(shorter, room, "crop", oversize=said, **options), documents) for said in ("wait", oversize)
    ]
    assert sides[0] == sides[1]
    if oversize == "truncate":
        # Truncated documents are those of a corpus that was truncated.
        order = prepared(sizes, room, "crop", oversize=oversize, **options)
        assert rows_of(order, documents_of(sizes)) == rows_of(order, documents_of(sizes))
        assert [len(row) for row in rows_of(order, documents_of(sizes))] == [len(row) for row in sides[0]]


@given(sizes_of_documents, st.integers(1, 24), st.integers(1, 4), st.integers(1, 7), buffers, st.data())
def test_ranks_take_row_groups_in_turn(
    sizes: list[int], room: int, ranks: int, group: int, options: dict[str, int], data: st.DataObject
) -> None:
    documents = documents_of(sizes)
    mine = [[d for k, d in enumerate(documents) if k // group % ranks == rank] for rank in range(ranks)]
    expected = [
        [row for row in nanochat(iter(some), room, options["buffer"], options["refill"]) if len(row) == room + 1]
        for some in mine
    ]
    order = prepared(
        sizes, room, "crop", oversize="wait", compat="nanochat", ranks=ranks, group=group, epochs=2, **options
    )
    if order is None:
        assert not any(expected)
        return
    found = rows_of(order, documents)
    assert order.rows == ranks * max(map(len, expected))
    for rank in range(ranks):
        rows = found[: order.rows][rank::ranks]
        assert rows[: len(expected[rank])] == expected[rank]
        # A rank with fewer rows has rows of padding after them.
        assert not any(rows[len(expected[rank]) :])
    assert found[order.rows :] == found[: order.rows]
    check_and_locate(order, sizes, data)


def check_and_locate(order: PackedOrder, sizes: list[int], data: st.DataObject) -> None:
    total = order.length or 0
    lo = data.draw(st.integers(0, total))
    hi = data.draw(st.integers(lo, total))
    check_views(order, lo, hi, np.random.default_rng(1))
    some = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=6, unique=True))
    assert hits(order.locate(0, some, lo, hi)) == brute_hits_of(order, Table(sizes), some, lo, hi)


@pytest.mark.parametrize(
    ("median", "sigma", "documents", "room", "cut", "lost"),
    [
        (700, 1.0, 100_000, 2048, 0.334, 0.339),
        (700, 1.0, 100_000, 8192, 0.113, 0.011),
        (18_000, 0.9, 8_000, 8192, 0.826, 0.639),
    ],
)
def test_as_much_is_cut_and_lost_as_in_a_simulation_of_nanochat(
    median: int, sigma: float, documents: int, room: int, cut: float, lost: float
) -> None:
    """A buffer of 1,000, shares of documents and tokens until it can be filled up no more; the simulation is not ours."""
    drawn = np.random.default_rng(0).lognormal(np.log(median), sigma, documents)
    sizes = np.maximum(1, drawn).astype(np.int64)
    order = packed(Table(sizes), room - 1, "crop", oversize="wait", buffer=1000, shuffle=False).prepare()
    table = order.spans(0, order.rows)
    document, kept = table.document[: documents - 1000], table.length + (table.flags & Flag.AHEAD != 0)
    missing = sizes[document] - kept[: len(document)]
    assert (missing > 0).mean() == pytest.approx(cut, abs=0.012)
    assert missing.sum() / sizes[document].sum() == pytest.approx(lost, abs=0.012)


# ---- modded-nanogpt -----------------------------------------------------------------------------------------------------


@given(sizes_of_documents, st.integers(1, 24), st.integers(1, 4), st.integers(0, 24), st.data())
def test_bos_aligned_makes_modded_nanogpt_s_rows(
    sizes: list[int], room: int, ranks: int, shorter: int, data: st.DataObject
) -> None:
    documents, longest = documents_of(sizes), max(1, room + 1 - shorter)
    stream = [token for document in documents for token in document]
    batches = list(modded_nanogpt(stream, BOS, room, ranks, longest, room + 2))
    options = {"longest": longest, "compat": "modded-nanogpt", "ranks": ranks, "epochs": 2}
    order = prepared(sizes, room, "bos-aligned", **options)
    if order is None:
        assert not batches
        return
    assert order.rows == ranks * len(batches)
    rows = rows_of(order, documents)
    for step, batch in enumerate(batches):
        for rank, (x, y, edges) in enumerate(batch):
            row = rows[step * ranks + rank]
            assert (row[:-1], row[1:]) == (x, y)
            table = order.spans(step * ranks + rank, step * ranks + rank + 1)
            assert [0, *np.cumsum(table.length).tolist()] == edges[: table.extents + 1]
            # No label is masked, where a document was clipped neither.
            assert not (table.flags[:-1] & Flag.CUT).any()
    check_and_locate(order, sizes, data)
    # Without its ranks the same rows, and those of a batch that is not whole; labels end where documents were clipped.
    alone = prepared(sizes, room, "bos-aligned", longest=longest)
    assert alone is not None
    assert 0 <= alone.rows - order.rows < ranks
    assert rows_of(alone, documents)[: order.rows] == rows[: order.rows]
    table = alone.spans(0, alone.rows)
    clipped = (table.length > 0) & (table.flags & (Flag.TAIL | Flag.AHEAD) == 0)
    assert (table.flags[clipped] & Flag.CUT != 0).all()


@given(sizes_of_documents, st.integers(1, 24), st.integers(1, 3), st.integers(0, 24), st.data())
def test_rows_begin_anew_in_every_file(
    sizes: list[int], room: int, ranks: int, shorter: int, data: st.DataObject
) -> None:
    """Files are cut anywhere, also in a document; the second part of one that is cut is in no row."""
    documents, longest = documents_of(sizes), max(1, room + 1 - shorter)
    stream = [token for document in documents for token in document]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    edges = [0, *cuts, len(stream)]
    files = [stream[a:b] for a, b in pairwise(edges)]
    batches = [batch for file in files for batch in modded_nanogpt(file, BOS, room, ranks, longest, room + 2)]
    options = {"longest": longest, "compat": "modded-nanogpt", "ranks": ranks, "epochs": 2}
    order = prepared(sizes, room, "bos-aligned", files=tuple(map(len, files)), **options)
    if order is None:
        assert not batches
        return
    rows = rows_of(order, documents)
    expected = [[*x, y[-1]] for batch in batches for x, y, _ in batch]
    assert rows[: order.rows] == expected
    check_and_locate(order, sizes, data)


@pytest.mark.parametrize("policy", ["crop", "bos-aligned"])
def test_no_token_stands_in_two_rows(policy: str) -> None:
    sizes = np.random.RandomState(3).randint(1, 60, 300).tolist()
    documents = documents_of(sizes)
    stored = {token for document in documents for token in document if token != BOS}
    order = prepared(sizes, 32, policy, **({"oversize": "wait"} if policy == "crop" else {}))
    held = [token for row in rows_of(order, documents) for token in row if token != BOS]
    assert len(held) == len(set(held))
    assert set(held) <= stored


def test_shares_of_ranks_enter_the_fingerprint() -> None:
    options: list[dict[str, Any]] = [
        {"policy": "crop", "oversize": "wait"},
        {"policy": "crop", "oversize": "wait", "buffer": 7},
        {"policy": "crop", "oversize": "wait", "refill": 128},
        {"policy": "crop", "oversize": "wait", "tail": "pad"},
        {"policy": "crop", "oversize": "truncate"},
        {"policy": "crop", "oversize": "wait", "compat": "nanochat", "ranks": 1},
        {"policy": "crop", "oversize": "wait", "compat": "nanochat", "ranks": 2},
        {"policy": "crop", "oversize": "wait", "compat": "nanochat", "ranks": 2, "group": 4},
        {"policy": "bos-aligned"},
        {"policy": "bos-aligned", "longest": 4},
        {"policy": "bos-aligned", "tail": "pad"},
        {"policy": "bos-aligned", "compat": "modded-nanogpt", "ranks": 1},
        {"policy": "bos-aligned", "compat": "modded-nanogpt", "ranks": 2},
        {"policy": "bos-aligned", "compat": "modded-nanogpt", "ranks": 2, "files": (300, 300)},
    ]
    orders = [
        packed(Table([20] * 30), 8, said["policy"], shuffle=False, **{k: v for k, v in said.items() if k != "policy"})
        for said in options
    ]
    assert len({order.fingerprint for order in orders}) == len(options)
    assert len({order.prepare().fingerprint_until(0) for order in orders}) == len(options)
