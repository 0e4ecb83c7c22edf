"""Plans: golden packs of other systems, the same for any number of threads, sets of bits, lengths and their sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.order.laws import Table
from tests.pack.packed_reference import reference_rows
from tokenreel.errors import OrderError
from tokenreel.order.kernels import kernel
from tokenreel.pack.bestfit import best_fit, visits
from tokenreel.pack.decompose import pieces_of
from tokenreel.pack.greedy import greedy_packs
from tokenreel.pack.packed import packed
from tokenreel.pack.packed_policy import Packing
from tokenreel.pack.plan import make_plan
from tokenreel.pack.plan_bits import following, previous, put, take
from tokenreel.pack.plan_sizes import Sizes

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "packing"
LEVANTER = json.loads((GOLDEN / "levanter.json").read_text("utf-8"))
OLMO = json.loads((GOLDEN / "olmo.json").read_text("utf-8"))


@pytest.mark.parametrize("case", LEVANTER, ids=lambda case: f"{case['slice']}-{case['max_segments']}")
def test_packs_are_levanter_s(case: dict[str, Any]) -> None:
    found = greedy_packs(case["lengths"], case["max_length"], case["max_segments"], case["slice"])
    assert [list(pack) for pack in found] == case["packs"]


@pytest.mark.parametrize("case", LEVANTER, ids=lambda case: f"{case['slice']}-{case['max_segments']}")
def test_an_order_has_levanter_s_packs(case: dict[str, Any]) -> None:
    oversize, keep = {"left": ("truncate", "first"), "right": ("truncate", "last"), "raise": ("error", "first")}[
        case["slice"]
    ]
    order = packed(
        Table(case["lengths"]), case["max_length"], "levanter-greedy", oversize=oversize, keep=keep,
        segments=case["max_segments"] or 0, shuffle=False,
    ).prepare()  # fmt: skip
    table = order.spans(0, order.length or 0)
    lengths = case["lengths"]
    expected = [[d for d in range(a, b) if lengths[d]] for a, b in case["packs"]]
    found = [
        [d for d in table.document[a:b].tolist() if d >= 0]
        for a, b in zip(table.splits[:-1], table.splits[1:], strict=True)
    ]
    assert found == expected
    for d, start, n in zip(table.document.tolist(), table.start.tolist(), table.length.tolist(), strict=True):
        if d >= 0 and lengths[d] > case["max_length"]:
            assert (start, n) == (lengths[d] - n if keep == "last" else 0, case["max_length"])


def test_levanter_s_errors() -> None:
    with pytest.raises(OrderError, match=r"PCK022.*document 2"):
        greedy_packs([3, 4, 9], 8)
    with pytest.raises(OrderError, match="PCK020"):
        greedy_packs([3], 8, 0)
    with pytest.raises(OrderError, match="PCK020"):
        greedy_packs([3], 8, slice_strategy="cut")


@pytest.mark.parametrize("kind", ["truncate", "fragment"])
def test_best_fit_makes_olmo_s_instances(kind: str) -> None:
    said = OLMO["obfd"][kind]
    lengths = [b - a for a, b in said["doc_ranges_len_desc"]]
    row, rows = best_fit(lengths, OLMO["seq_len"])
    ours = sorted(sorted(n for n, r in zip(lengths, row.tolist(), strict=True) if r == k) for k in range(rows))
    theirs = sorted(sorted(lengths[d] for d in instance) for instance in said["instances_as_sorted_doc_ranks"])
    assert ours == theirs


def test_pieces_are_olmo_s_powers_of_two() -> None:
    # The documents of the golden corpus: 4, 32, 82, 27, 21, 17.. tokens; ranges say which pieces are kept.
    documents = [(0, 4), (4, 36), (36, 118), (118, 145), (145, 166), (166, 181), (181, 183), (183, 211), (211, 332),
                 (332, 344)]  # fmt: skip
    found = [[a + begin, a + end] for a, b in documents for begin, end in pieces_of(b - a, 64, 8)]
    assert found == OLMO["vsl_min8_max64_ranges"]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=400), st.integers(1, 40), st.integers(0, 3))
def test_a_plan_is_the_same_for_any_number_of_threads(sizes: list[int], room: int, seed: int) -> None:
    for policy in ("bestfit", "firstfit", "crop"):
        packing = Packing.of(policy, room, oversize="split", window=64)
        plans = [make_plan(Sizes.of_lengths(sizes), packing, seed, threads) for threads in (1, 3)]
        for name in ("entries", "firsts", "windows", "single"):
            assert np.array_equal(getattr(plans[0], name), getattr(plans[1], name))


def test_seeds_decide_among_equals_alone() -> None:
    sizes = np.random.RandomState(1).randint(1, 30, 500).tolist()
    packing = Packing.of("bestfit", 64, oversize="split")
    rows = [reference_rows(sizes, packing, seed) for seed in (0, 1)]
    assert rows[0] != rows[1]
    held = [sorted(sorted(n for _, _, n in row) for row in side) for side in rows]
    assert held[0] == held[1]


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000])
def test_every_document_comes_once(n: int) -> None:
    seen = []
    for seed in (None, 0, 7):
        blocks, flips = visits(n, seed, 3)
        order = [64 * b + (i ^ f) for b, f in zip(blocks.tolist(), flips.tolist(), strict=True) for i in range(64)]
        kept = [one for one in order if one < n]
        assert sorted(kept) == list(range(n))
        seen.append(kept)
    assert seen[0] == list(range(n))
    assert n < 2 or seen[1] != seen[2]


def test_best_fit_pads_little() -> None:
    rng = np.random.RandomState(3)
    for median, sigma, room, most in ((700, 1.0, 2048, 0.0002), (18000, 0.9, 8192, 0.0016)):
        sizes = np.maximum(1, np.exp(np.log(median) + sigma * rng.standard_normal(100_000))).astype(np.int64)
        plan = make_plan(Sizes.of_lengths(sizes), Packing.of("bestfit", room, oversize="split"))
        assert plan.rows * room - int(sizes.sum()) <= most * plan.rows * room
        assert plan.nbytes <= 8.2 * len(sizes)


# ---- what plans stand on ------------------------------------------------------------------------------------------------


@kernel("void(int64[::1], int64[::1], int64, int64[::1])")
def _search(members: Any, gone: Any, room: int, out: Any) -> None:
    words = np.zeros((room >> 6) + 1, dtype=np.uint64)
    upper = np.zeros((len(words) >> 6) + 1, dtype=np.uint64)
    for k in range(len(members)):
        put(words, upper, members[k])
    for k in range(len(gone)):
        take(words, upper, gone[k])
    for at in range(room + 1):
        out[2 * at] = following(words, upper, at)
        out[2 * at + 1] = previous(words, upper, at)


@given(st.sets(st.integers(0, 9000), max_size=30), st.integers(0, 9000), st.randoms(use_true_random=False))
def test_bits_find_the_next_and_the_previous(members: set[int], edge: int, random: Any) -> None:
    members |= {edge}
    gone = {one for one in sorted(members) if random.random() < 0.4}
    left = sorted(members - gone)
    out = np.empty(2 * 9001, dtype=np.int64)
    arrays = [np.array(sorted(some), dtype=np.int64) for some in (members, gone)]
    _search(*arrays, 9000, out)
    at = np.arange(9001)
    where = np.array([*left, -1], dtype=np.int64)
    assert out[::2].tolist() == where[np.searchsorted(left, at, side="left")].tolist()
    below = np.array([-1, *left], dtype=np.int64)
    assert out[1::2].tolist() == below[np.searchsorted(left, at, side="right")].tolist()


def test_bits_uncompiled_are_the_same() -> None:
    members, gone = np.array([0, 63, 64, 200, 4095, 4096, 8191]), np.array([63, 4096])
    compiled, plain = np.empty(2 * 8193, dtype=np.int64), np.empty(2 * 8193, dtype=np.int64)
    _search(members, gone, 8192, compiled)
    with np.errstate(over="ignore"):
        _search.python(members, gone, 8192, plain)
    assert compiled.tolist() == plain.tolist()


@given(st.lists(st.integers(0, 5) | st.just(1 << 31), max_size=300), st.data())
def test_sums_of_lengths_are_those_of_a_table(sizes: list[int], data: st.DataObject) -> None:
    table, ours = Table(sizes), Sizes.of(Table(sizes))
    assert (ours.documents, ours.tokens) == (table.documents, table.tokens)
    documents = np.arange(len(sizes) + 1)
    assert ours.offsets_at(documents).tolist() == table.offsets_at(documents).tolist()
    if table.tokens:
        positions = np.array(data.draw(st.lists(st.integers(0, table.tokens - 1), max_size=20)), dtype=np.int64)
        assert ours.at_tokens(positions).tolist() == table.at_tokens(positions).tolist()


def test_documents_too_long_to_count_are_refused() -> None:
    with pytest.raises(OrderError, match=r"ORD002.*document 1"):
        Sizes.of(Table([3, 1 << 32]))
