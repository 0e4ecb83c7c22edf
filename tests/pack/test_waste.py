"""Waste and counts: golden numbers, everything adds up, counts are those of the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.order.laws import Table
from tests.pack.packed_reference import extents_of, reference_rows
from tests.pack.test_packed import KNOWN, lengths, packings
from tokenreel.errors import OrderError
from tokenreel.pack.packed import packed
from tokenreel.pack.packed_policy import Packing
from tokenreel.pack.plan_sizes import Sizes
from tokenreel.pack.stats import order_stats, pack_stats
from tokenreel.pack.waste import summed, top_shares, waste_of
from tokenreel.spans import Flag

GOLDEN = json.loads(
    (Path(__file__).resolve().parent.parent / "golden" / "packing" / "hobbylm_waste.json").read_text("utf-8")
)


@pytest.mark.parametrize("row", GOLDEN["waste"])
def test_waste_is_the_golden_one(row: str) -> None:
    expected, found = GOLDEN["waste"][row], waste_of(GOLDEN["lengths"], int(row))
    assert found.chunked == expected["one_doc_per_row_chunked"]
    assert found.truncated == expected["one_doc_per_row_truncated"]
    assert found.packed == expected["packed_one_rank_one_epoch"]
    assert found.bound == expected["bound_(S-1)/T"]
    stats = pack_stats(Sizes.of_lengths(GOLDEN["lengths"]), Packing.of("concat", int(row)))
    assert stats.padding == found.packed


def test_shares_are_the_golden_ones() -> None:
    top = tuple(int(k) for k in GOLDEN["top_k_share"])
    assert top_shares(GOLDEN["lengths"], top) == {int(k): share for k, share in GOLDEN["top_k_share"].items()}


@given(lengths, packings(KNOWN), st.integers(0, 3))
def test_counts_are_those_of_the_rows(sizes: list[int], packing: Packing, seed: int) -> None:
    stats = pack_stats(Sizes.of_lengths(sizes), packing, seed)
    rows = reference_rows(sizes, packing, seed)
    room = packing.takes
    assert (stats.documents, stats.tokens, stats.rows) == (len(sizes), sum(sizes), len(rows))
    # Exactly, by definition of each.
    assert stats.kept + stats.cropped + stats.dropped == stats.tokens
    assert stats.kept + stats.padded == stats.rows * room
    held = [[piece for row in rows for piece in row if piece[0] == d] for d in range(len(sizes))]
    kept = [sum(n for _, _, n in some) for some in held]
    assert stats.kept == sum(kept)
    assert stats.pieces == sum(map(len, held))
    full = [row for row in rows if sum(n for _, _, n in row) == room]
    assert stats.last_labels == (len(full) if packing.own_ahead else 0)
    assert (stats.row_tokens, stats.row_takes) == (packing.row_tokens, room)
    inputs = extents_of(rows, packing)
    assert stats.kept - stats.last_labels == sum(n for row in inputs for _, _, n in row)
    cut = [d for d, n in enumerate(sizes) if held[d] and (len(held[d]) > 1 or kept[d] < n)]
    assert stats.documents_cut == len(cut)
    assert stats.cut_needlessly == sum(sizes[d] <= room for d in cut)
    assert stats.documents_dropped == sum(n > 0 and not held[d] for d, n in enumerate(sizes))
    assert stats.cropped == sum(sizes[d] - kept[d] for d in cut)
    pieces = [[n for _, _, n in row] for row in inputs]
    pairs = sum(n * (n + 1) // 2 for row in pieces for n in [*row, packing.row_tokens - sum(row)])
    assert stats.pairs == pairs
    assert 0 <= stats.attention_saved <= 1
    assert 0 <= stats.padding <= 1
    assert 0 <= stats.lost <= 1


COMPAT: dict[str, dict[str, Any]] = {
    "hobbylm": {"policy": "concat"},
    "nanochat": {"policy": "crop", "oversize": "wait", "buffer": 4, "group": 2},
    "modded-nanogpt": {"policy": "bos-aligned"},
}


@given(lengths, st.integers(1, 33), st.sampled_from(list(COMPAT)), st.integers(1, 4), st.data())
def test_counts_of_ranks_add_up(sizes: list[int], room: int, compat: str, ranks: int, data: st.DataObject) -> None:
    options = {**COMPAT[compat], "compat": compat, "ranks": ranks}
    if compat == "modded-nanogpt":
        cut = data.draw(st.integers(0, sum(sizes)))
        options["files"] = (cut, sum(sizes) - cut)
    try:
        order = packed(Table(sizes), room, options.pop("policy"), shuffle=False, **options).prepare()
    except OrderError as error:
        if error.code != "ORD100":
            raise
        return
    stats, table = order_stats(order), order.spans(0, order.rows)
    assert stats.rows == order.rows
    assert stats.kept + stats.cropped + stats.dropped == stats.tokens == sum(sizes)
    assert stats.kept + stats.padded == stats.rows * stats.row_takes
    stored = int(table.length[table.document >= 0].sum())
    assert stats.kept - stats.last_labels == stored
    own = order.packing.own_ahead
    assert stats.last_labels == own * int((table.flags & Flag.AHEAD != 0).sum())
    if compat == "hobbylm":
        assert stats.kept == stats.tokens


def test_orders_that_cannot_be_counted_say_so() -> None:
    order = packed(Table([3, 5]), 4, "flat")
    with pytest.raises(OrderError, match="ORD014"):
        order_stats(order)
    with pytest.raises(OrderError, match="ORD002"):
        order_stats(order.prepare())
    alone = packed(Table([3, 5]), 4, "concat").prepare()
    assert order_stats(alone) == pack_stats(Sizes.of_lengths([3, 5]), alone.packing)


def test_flat_rows_save_no_attention() -> None:
    stats = pack_stats(Sizes.of_lengths([5, 3, 8]), Packing.of("flat", 8))
    assert (stats.attention_saved, stats.padded, stats.documents_cut) == (0.0, 0, 0)
    assert pack_stats(Sizes.of_lengths([5, 4]), Packing.of("flat", 8)).padded == 7


@given(lengths, st.integers(1, 40))
def test_waste_is_what_rows_waste(sizes: list[int], room: int) -> None:
    waste = waste_of(sizes, room)
    if not sum(sizes):
        assert waste.chunked == waste.packed == 0.0
        return
    chunked = pack_stats(Sizes.of_lengths(sizes), Packing.of("one-per-row", room, oversize="split"))
    assert waste.chunked == pytest.approx(chunked.padding)
    truncated = pack_stats(Sizes.of_lengths(sizes), Packing.of("truncate", room))
    assert waste.lost == pytest.approx(truncated.lost)
    assert waste.packed <= waste.bound or waste.tokens < room


def test_groups_tell_what_documents_hide() -> None:
    """A repository in ten parts of equal size: no document is large, the repository is."""
    sizes, groups = [10] * 10 + [1] * 100, np.array([0] * 10 + list(range(1, 101)))
    assert top_shares(sizes, (1,)) == {1: 0.05}
    assert top_shares(summed(sizes, groups), (1,)) == {1: 0.5}


def test_nothing_to_waste() -> None:
    assert waste_of([], 8).bound == 0.0
    assert top_shares([], (1, 5)) == {1: 0.0, 5: 0.0}
    with pytest.raises(OrderError, match="PCK020"):
        waste_of([1], 0)
