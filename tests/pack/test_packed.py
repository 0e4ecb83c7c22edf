"""`packed@1`: rows are what each policy's definition says, every token once, no label across documents, ranks alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.order.laws import Table, brute_hits, check_views, hits
from tests.pack.packed_reference import Row, extents_of, reference_rows
from tokenreel.errors import OrderError
from tokenreel.order.windows_shuffle import BlockShuffle
from tokenreel.pack.packed import PackedOrder, packed
from tokenreel.pack.packed_policy import OVERSIZE, POLICIES, TAILS, WAIT, Packing
from tokenreel.spans import Flag, SpanTable

lengths = st.lists(st.integers(0, 40) | st.sampled_from([8, 16, 64]), min_size=1, max_size=150)


@st.composite
def packings(draw: st.DrawFn, policies: tuple[str, ...] = POLICIES) -> Packing:
    policy = draw(st.sampled_from(policies))
    options: dict[str, Any] = {"window": 64}
    room = draw(st.sampled_from([1, 2, 8, 16, 32]) if policy == "decompose" else st.integers(1, 33))
    if policy in ("bestfit", "firstfit", "one-per-row", "crop", "levanter-greedy"):
        options["oversize"] = draw(st.sampled_from(OVERSIZE[:3]))
    if policy == "firstfit":
        options["open_rows"] = draw(st.integers(1, 5))
    if policy == "crop":
        options["buffer"] = draw(st.integers(1, 12))
        options["refill"] = draw(st.integers(1, 5))
        options["oversize"] = draw(st.sampled_from([*OVERSIZE[:3], WAIT]))
    if policy in ("concat", "crop", "bos-aligned"):
        options["tail"] = draw(st.sampled_from(TAILS))
    if policy == "levanter-greedy":
        options["segments"] = draw(st.integers(0, 4))
        options["keep"] = draw(st.sampled_from(["first", "last"]))
    if policy == "bos-aligned":
        options["longest"] = draw(st.integers(1, room + 1))
    if policy == "decompose":
        options["shortest"] = draw(st.sampled_from([p for p in (1, 2, 4) if p <= room]))
    return Packing.of(policy, room, **options)


def pieces(table: SpanTable) -> list[Row]:
    """The stored extents of each row."""
    rows = []
    for k in range(table.samples):
        extents = range(int(table.splits[k]), int(table.splits[k + 1]))
        rows.append(
            [
                (int(table.document[e]), int(table.start[e]), int(table.length[e]))
                for e in extents
                if not table.flags[e] & Flag.PAD
            ]
        )
    return rows


def made(sizes: list[int], packing: Packing, **options: Any) -> PackedOrder | None:
    table = Table(sizes)
    try:
        return PackedOrder.over(table, packing, **options).prepare()
    except OrderError as error:
        if error.code != "ORD100":
            raise
        return None


KNOWN = tuple(policy for policy in POLICIES if policy != "flat")


@given(lengths, packings(KNOWN), st.integers(0, 5))
def test_rows_are_what_the_definition_says(sizes: list[int], packing: Packing, seed: int) -> None:
    expected = reference_rows(sizes, packing, seed)
    order = made(sizes, packing, seed=seed, shuffle=False)
    if order is None:
        assert not any(expected)
        return
    assert order.length == len(expected)
    table = order.spans(0, order.length)
    assert pieces(table) == extents_of(expected, packing)
    assert (table.sample_tokens() == packing.row_tokens).all()
    if packing.own_ahead:
        # The last label is the row's own token: it is there where the row is full, and nowhere else.
        labelled = table.flags[table.splits[1:] - 1] & Flag.AHEAD != 0
        assert labelled.tolist() == [sum(n for _, _, n in row) == packing.takes for row in expected]


@given(lengths, packings(KNOWN), st.integers(0, 5))
def test_every_token_once_or_counted_and_no_label_across_documents(
    sizes: list[int], packing: Packing, seed: int
) -> None:
    order = made(sizes, packing, seed=seed)
    if order is None:
        return
    table = order.spans(0, order.length or 0)
    table.check([sum(sizes)])
    edges = np.concatenate(([0], np.cumsum(sizes)))
    seen = np.zeros(sum(sizes), dtype=np.int64)
    continued = set()
    for begin, length, document, start, flags in zip(*(c.tolist() for c in table.columns()[2:]), strict=True):
        if flags & Flag.PAD:
            assert (document, start, flags) == (-1, -1, Flag.PAD)
            continue
        # A row's own last label is a token that it takes; a look-ahead is one that another row takes.
        seen[begin : begin + length + (packing.own_ahead and flags & Flag.AHEAD != 0)] += 1
        assert begin == edges[document] + start
        end = start + length
        assert end <= sizes[document]
        assert bool(flags & Flag.HEAD) == (start == 0 and length > 0)
        assert bool(flags & Flag.TAIL) == (end == sizes[document])
        # The look-ahead is a token of the same document.
        assert not (flags & Flag.AHEAD and flags & Flag.TAIL)
        if not flags & (Flag.TAIL | Flag.CUT):
            continued.add((document, end))
    starts = set(zip(table.document.tolist(), table.start.tolist(), strict=True))
    # What is neither cut nor its document's end goes on in another row, unless that is the last one and dropped.
    assert packing.tail == "drop" or continued <= starts
    assert seen.max() <= 1
    lossless = packing.policy == "concat" or packing.oversize == "split"
    lossless |= packing.policy == "decompose" and packing.shortest == 1
    if lossless and packing.policy != "crop" and packing.tail != "drop":
        assert seen.min() == 1


@given(lengths, packings(KNOWN))
def test_a_document_no_longer_than_a_row_is_never_cut_by_fits(sizes: list[int], packing: Packing) -> None:
    if packing.policy not in ("bestfit", "firstfit", "one-per-row", "truncate", "levanter-greedy"):
        return
    order = made(sizes, packing)
    if order is None:
        return
    table = order.spans(0, order.length or 0)
    whole = Flag.HEAD | Flag.TAIL
    for document, flags in zip(table.document.tolist(), table.flags.tolist(), strict=True):
        if document >= 0 and sizes[document] <= packing.row_tokens:
            assert flags & whole == whole


@given(lengths, packings(), st.integers(0, 1 << 63), st.booleans(), st.data())
def test_slices_views_and_locate_agree(
    sizes: list[int], packing: Packing, seed: int, shuffle: bool, data: st.DataObject
) -> None:
    io = data.draw(st.none() | st.just(BlockShuffle(3, 2))) if shuffle else None
    order = made(sizes, packing, seed=seed, shuffle=shuffle, epochs=3, io=io)
    if order is None:
        return
    total = order.length or 0
    lo = data.draw(st.integers(0, total))
    hi = data.draw(st.integers(lo, total))
    check_views(order, lo, hi, np.random.default_rng(1))
    if packing.policy == "flat":
        return
    documents = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=6, unique=True))
    found = hits(order.locate(0, documents, lo, hi))
    assert found == brute_hits_of(order, Table(sizes), documents, lo, hi)


@given(lengths, st.integers(1, 33), st.integers(1, 9), st.data())
def test_ranks_that_pack_their_own(sizes: list[int], room: int, ranks: int, data: st.DataObject) -> None:
    packing = Packing.of("concat", room)
    order = made(sizes, packing, compat="hobbylm", ranks=ranks, epochs=2)
    if order is None:
        return
    mine = [reference_rows([n if d % ranks == r else 0 for d, n in enumerate(sizes)], packing) for r in range(ranks)]
    most = max(map(len, mine))
    assert order.rows == ranks * most
    expected = [mine[r][k] if k < len(mine[r]) else [] for k in range(most) for r in range(ranks)]
    # Neighbours of a rank are not neighbours in the corpus, so nothing is joined that the reference joins.
    assert pieces(order.spans(0, order.rows)) == expected
    lo = data.draw(st.integers(0, 2 * order.rows))
    hi = data.draw(st.integers(lo, 2 * order.rows))
    check_views(order, lo, hi, np.random.default_rng(1))
    documents = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=6, unique=True))
    assert hits(order.locate(0, documents, lo, hi)) == brute_hits_of(order, Table(sizes), documents, lo, hi)


def brute_hits_of(order: PackedOrder, table: Table, documents: list[int], lo: int, hi: int) -> list[tuple[int, ...]]:
    """`brute_hits`, which takes padding for tokens from 0 on."""
    found = brute_hits(order, 0, table, documents, lo, hi)
    whole = order.spans(lo, hi)
    padding = {
        (lo + k, e - int(whole.splits[k]))
        for k in range(whole.samples)
        for e in range(int(whole.splits[k]), int(whole.splits[k + 1]))
        if whole.flags[e] & Flag.PAD
    }
    return [hit for hit in found if (hit[1], hit[2]) not in padding]


@given(lengths, packings(), st.integers(0, 1 << 63))
def test_every_epoch_has_each_row_once_and_ranks_have_the_same(sizes: list[int], packing: Packing, seed: int) -> None:
    order = made(sizes, packing, seed=seed, epochs=2)
    if order is None:
        return
    rows = order.rows
    for epoch in range(2):
        assert sorted(order.row_at(np.arange(epoch * rows, (epoch + 1) * rows)).tolist()) == list(range(rows))
    whole = pieces(order.spans(0, rows))
    for world in (1, 2, 3, 8):
        shares = [order.spans_at(np.arange(rank, rows, world)) for rank in range(world)]
        back: list[Any] = [None] * rows
        for rank, share in enumerate(shares):
            back[rank::world] = pieces(share)
        assert back == whole


@given(lengths, st.integers(1, 33))
def test_concat_pads_less_than_a_row_an_epoch(sizes: list[int], room: int) -> None:
    order = made(sizes, Packing.of("concat", room), epochs=1)
    if order is None:
        return
    table = order.spans(0, order.length or 0)
    padding = int(table.length[(table.flags & Flag.PAD) != 0].sum())
    assert padding == order.rows * room - sum(sizes) < room


def test_flat_rows_are_the_stream_with_a_padded_end() -> None:
    order = packed(Table([5, 9, 2]), 5, "flat", shuffle=False)
    assert order.length == 4
    table = order.prepare().spans(0, 4)
    assert table.begin.tolist() == [0, 5, 10, 15, 0]
    assert table.length.tolist() == [5, 5, 5, 1, 4]
    assert table.flags.tolist() == [Flag.AHEAD, Flag.AHEAD, Flag.AHEAD, 0, Flag.PAD]
    assert table.document.tolist() == [-1] * 5


def test_oversized_documents_never_clog_a_row() -> None:
    """nanochat#811: three documents of nine tokens, rows of four."""
    for policy, oversize in (
        ("crop", "truncate"), ("crop", "split"), ("crop", "wait"), ("bestfit", "split"), ("firstfit", "drop")
    ):  # fmt: skip
        order = made([9, 9, 9], Packing.of(policy, 4, oversize=oversize), shuffle=False)
        if oversize == "drop":
            assert order is None
            continue
        assert order is not None
        table = order.spans(0, order.length or 0)
        padding = int(table.length[(table.flags & Flag.PAD) != 0].sum())
        assert padding < 4
        assert all(row for row in pieces(table))
    with pytest.raises(OrderError, match=r"PCK022.*document 1"):
        packed(Table([3, 9, 9]), 4, "bestfit", oversize="error").prepare()


def test_cropping_takes_the_shortest() -> None:
    """nanochat#445: fifty left; of 500, 200, 100 and 300 the one of 100 is cut."""
    order = made([950, 500, 200, 100, 300], Packing.of("crop", 999, oversize="truncate", buffer=5), shuffle=False)
    assert order is not None
    # 1,000 tokens: 999 inputs, and the fiftieth of document 3 as the last label.
    assert pieces(order.spans(0, 1)) == [[(0, 0, 950), (3, 0, 49)]]
    assert order.spans(0, 1).flags.tolist() == [Flag.HEAD | Flag.TAIL, Flag.HEAD | Flag.CUT | Flag.AHEAD]


def test_a_label_alone_is_an_extent_of_no_input() -> None:
    order = made([4, 1, 3, 9], Packing.of("bos-aligned", 4), shuffle=False)
    assert order is not None
    table = order.spans(0, 2)
    assert pieces(table) == [[(0, 0, 4), (1, 0, 0)], [(2, 0, 3), (3, 0, 1)]]
    assert table.flags.tolist() == [
        Flag.HEAD | Flag.TAIL, Flag.AHEAD, Flag.HEAD | Flag.TAIL, Flag.HEAD | Flag.CUT | Flag.AHEAD
    ]  # fmt: skip
    assert order.length == 2


def test_documents_whose_end_is_not_real_are_marked() -> None:
    order = packed(Table([3, 4, 2]), 5, "concat", shuffle=False, cut=(1,)).prepare()
    plain = packed(Table([3, 4, 2]), 5, "concat", shuffle=False).prepare()
    table = order.spans(0, 2)
    assert [int(f) for f in table.flags ^ plain.spans(0, 2).flags] == [0, 0, Flag.CUT, 0, 0]
    assert order.fingerprint != plain.fingerprint
    with pytest.raises(OrderError, match="PCK020"):
        packed(Table([3]), 5, "concat", cut=(1,))


def test_numbers_that_never_change() -> None:
    """The order under this name is frozen: these were computed once, and agree with the slow definition."""
    sizes = np.random.RandomState(5).randint(0, 60, 40).tolist()
    order = packed(Table(sizes), 32, "bestfit", oversize="split", seed=7).prepare()
    assert order.rows == ROWS
    assert pieces(order.spans(0, 4)) == FIRST_ROWS
    assert packed(Table(sizes), 32, "concat", seed=7).prepare().row_at(np.arange(8)).tolist() == CONCAT


ROWS = 36
FIRST_ROWS: list[Row] = [[(3, 32, 6)], [(3, 0, 32)], [(26, 0, 32)], [(12, 0, 30)]]
CONCAT = [20, 2, 11, 25, 27, 8, 23, 17]


def test_what_is_unprepared_says_so() -> None:
    order = packed(Table([5, 9, 2]), 4, "bestfit", oversize="split")
    for call in (lambda: order.length, lambda: order.spans(0, 1), lambda: order.locate(0, [0], 0, 0)):
        with pytest.raises(OrderError, match="ORD014"):
            call()
    assert "not planned" in order.describe().text
    assert order.prepare().prepare().length == 4
    assert packed(Table([5, 9, 2]), 4, "concat").length == 4


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"policy": "bestfitt", "oversize": "split"}, "PCK020"),
        ({"policy": "bestfit"}, "PCK021"),
        ({"policy": "one-per-row"}, "PCK021"),
        ({"policy": "bestfit", "oversize": "cut"}, "PCK020"),
        ({"policy": "concat", "oversize": "split"}, "PCK020"),
        ({"policy": "bestfit", "oversize": "split", "buffer": 3}, "PCK020"),
        ({"policy": "firstfit", "oversize": "split", "open_rows": 0}, "PCK020"),
        ({"policy": "decompose", "row_tokens": 12}, "PCK020"),
        ({"policy": "decompose", "row_tokens": 8, "shortest": 3}, "PCK020"),
        ({"policy": "bos-aligned", "row_tokens": 8, "longest": 10}, "PCK020"),
        ({"policy": "bestfit", "oversize": "wait"}, "PCK020"),
        ({"policy": "bestfit", "oversize": "split", "tail": "drop"}, "PCK020"),
        ({"policy": "crop", "oversize": "wait", "tail": "carry"}, "PCK020"),
        ({"policy": "crop", "oversize": "wait", "refill": 0}, "PCK020"),
        ({"policy": "crop"}, "PCK021"),
        ({"policy": "crop", "oversize": "wait", "compat": "hobbylm", "ranks": 2}, "PCK020"),
        ({"policy": "crop", "oversize": "wait", "compat": "nanochat", "ranks": 2, "shuffle": True}, "PCK020"),
        ({"policy": "crop", "oversize": "wait", "compat": "nanochat", "ranks": 2, "group": 0}, "PCK020"),
        ({"policy": "concat", "compat": "hobbylm", "ranks": 2, "group": 2}, "PCK020"),
        ({"policy": "bos-aligned", "tail": "pad", "compat": "modded-nanogpt", "ranks": 2}, "PCK020"),
        ({"policy": "concat", "compat": "hobbylm", "ranks": 0}, "PCK020"),
        ({"policy": "concat", "files": (3, 5)}, "PCK020"),
        (
            {"policy": "bos-aligned", "compat": "modded-nanogpt", "ranks": 1, "shuffle": False, "files": (3, 4)},
            "PCK020",
        ),
        ({"policy": "levanter-greedy", "oversize": "truncate", "keep": "middle"}, "PCK020"),
        ({"policy": "concat", "row_tokens": 0}, "PCK020"),
        ({"policy": "bestfit", "oversize": "split", "row_tokens": 1 << 25}, "PCK020"),
        ({"policy": "bestfit", "oversize": "split", "window": 100}, "PCK020"),
        ({"policy": "concat", "compat": "hobby"}, "PCK020"),
        ({"policy": "concat", "compat": "hobbylm"}, "PCK020"),
        ({"policy": "concat", "ranks": 2}, "PCK020"),
        ({"policy": "bestfit", "oversize": "split", "compat": "hobbylm", "ranks": 2}, "PCK020"),
        ({"policy": "concat", "shuffle": False, "io": BlockShuffle(2, 2)}, "PCK020"),
        ({"policy": "concat", "seed": -1}, "ORD002"),
        ({"policy": "concat", "epochs": -1}, "ORD002"),
        ({"policy": "bestfit", "oversise": "split"}, "PCK020"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], code: str) -> None:
    given_ = {"row_tokens": 8, **options}
    with pytest.raises(OrderError) as refused:
        packed(Table([3, 5]), given_.pop("row_tokens"), given_.pop("policy"), **given_)
    assert refused.value.code == code


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(OrderError, match="ORD100"):
        packed(Table([0, 0]), 4, "concat")
    assert packed(Table([]), 4, "concat", epochs=0).length == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 5},
        {"row_tokens": 5},
        {"oversize": "drop"},
        {"policy": "firstfit"},
        {"window": 128},
        {"shuffle": False},
        {"io": BlockShuffle(2, 2)},
    ],
)
def test_what_changes_the_samples_changes_the_fingerprints(changed: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"row_tokens": 4, "policy": "bestfit", "oversize": "truncate", "seed": 4}
    sides = []
    for options in (plain, {**plain, **changed}):
        said = dict(options)
        sides.append(packed(Table([5, 9, 2]), said.pop("row_tokens"), said.pop("policy"), **said).prepare())
    assert sides[0].fingerprint != sides[1].fingerprint
    assert sides[0].fingerprint_until(1) != sides[1].fingerprint_until(1)


def test_more_epochs_keep_what_came_before() -> None:
    short, long = (packed(Table([5, 9, 2]), 4, "concat", epochs=e).prepare() for e in (2, None))
    assert long.length is None
    assert short.fingerprint_until(8) == long.fingerprint_until(8)
    assert short.fingerprint != long.fingerprint
    assert long.row_at(np.arange(8)).tolist() == short.row_at(np.arange(8)).tolist()


def test_samples_outside_are_refused() -> None:
    order = packed(Table([5, 9, 2]), 4, "concat", epochs=2).prepare()
    for call in (
        lambda: order.spans(0, 9),
        lambda: order.spans_at([8]),
        lambda: order.spans_at([-1]),
        lambda: list(order.chunks(0, 9)),
        lambda: order.fingerprint_until(9),
        lambda: order.locate(0, [0], 0, 9),
        lambda: order.locate(1, [0], 0, 8),
        lambda: order.locate(0, [3], 0, 8),
    ):
        with pytest.raises(OrderError):
            call()
    assert order.spans_at([]).samples == 0
