"""Waste and counts: golden numbers, everything adds up, counts are those of the rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pack.packed_reference import extents_of, reference_rows
from tests.pack.test_packed import KNOWN, lengths, packings
from tokenreel.errors import OrderError
from tokenreel.pack.packed_policy import Packing
from tokenreel.pack.plan_sizes import Sizes
from tokenreel.pack.stats import pack_stats
from tokenreel.pack.waste import summed, top_shares, waste_of

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
