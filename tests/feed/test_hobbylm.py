"""The card's three names: rows are the golden ones, for each rank; no document reaches another."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.corpus.pairs import write_pair
from tokenreel.errors import OrderError, UsageError
from tokenreel.feed.hobbylm import (
    boundary_aware_data_generator,
    build_block_diagonal_bias,
    hobbylm_order,
    positions_from_segments,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
ROWS = json.loads((GOLDEN / "packing" / "hobbylm_rows.json").read_text("utf-8"))
CUT = tuple(k for k, cut in enumerate(ROWS["truncated_end"]) if cut)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Any:
    prefix = tmp_path_factory.mktemp("golden") / "all"
    write_pair(prefix, [[ids] for ids in ROWS["documents"]])
    with_table = tokenreel.open(f"{prefix}.idx")
    yield with_table
    with_table.close()


def edges_of(segments: list[int]) -> list[int]:
    changes = [k for k in range(1, len(segments)) if segments[k] != segments[k - 1]]
    return [0, *changes, len(segments)]


@pytest.mark.parametrize("case", ROWS["cases"], ids=lambda case: f"{case['S']}-{case['world']}-{case['rank']}")
@pytest.mark.parametrize("labels", ["ignore", "eot"])
def test_rows_are_the_golden_ones(case: dict[str, Any], labels: str, corpus: Any) -> None:
    batches = boundary_aware_data_generator(
        corpus, 3, case["S"], rank=case["rank"], world_size=case["world"], labels=labels, truncated=CUT, rows="rank"
    )
    found = [{name: array[k].tolist() for name, array in b.items()} for b in batches for k in range(len(b["tokens"]))]
    # A rank with fewer rows than another is filled up with rows of padding.
    more = found[len(case["rows"]) :]
    assert all(set(row["segment_ids"]) == {-1} and set(row["labels"]) == {-1} for row in more)
    for row, expected in zip(found, case["rows"], strict=False):
        assert row["tokens"] == expected["tokens"]
        assert row["segment_ids"] == expected["segment_ids"]
        assert row["positions"] == expected["positions"]
        assert row["labels"] == expected["labels_eot" if labels == "eot" else "labels"]
        assert edges_of(row["segment_ids"]) == expected["cu_seqlens"]
        assert sorted(set(row["cu_seqlens"])) == expected["cu_seqlens"]
        assert row["max_seqlen"] == expected["max_seqlen"]


@pytest.mark.parametrize("case", ROWS["cases"], ids=lambda case: f"{case['S']}-{case['world']}-{case['rank']}")
def test_extents_are_the_golden_ones(case: dict[str, Any], corpus: Any) -> None:
    order = hobbylm_order(corpus, case["S"], ranks=case["world"])
    table = order.spans_at(np.arange(len(case["rows"])) * case["world"] + case["rank"])
    for k, expected in enumerate(case["rows"]):
        extents = range(int(table.splits[k]), int(table.splits[k + 1]))
        documents = np.concatenate([np.full(int(table.length[e]), int(table.document[e])) for e in extents])
        mine = np.array([*case["rank_docs"], -1])[expected["doc_index"]]
        assert documents.tolist() == mine.tolist()
        stored = [e for e in extents if table.document[e] >= 0]
        offsets = np.concatenate([table.start[e] + np.arange(table.length[e]) for e in stored])
        assert offsets.tolist() == expected["offset_in_doc"][: len(offsets)]


Row = dict[str, Any]


def boundary_aware(documents: list[list[int]], room: int, cut: set[int], ended: bool, tail: str) -> list[Row]:
    """The card's rows of one rank's documents, from its wording: end to end, cut every `room` tokens, nothing carried but ids.

    Places say (document, offset); a label is the next token of the same document, in whatever row that stands.
    """
    places = [(d, k) for d, ids in enumerate(documents) for k in range(len(ids))]
    rows = []
    for at in range(0, len(places), room):
        mine = places[at : at + room]
        padding = room - len(mine)
        if padding and tail == "drop":
            break
        row: Row = {name: [] for name in ("tokens", "segment_ids", "positions", "labels")}
        edges = [0]
        for k, (d, offset) in enumerate(mine):
            if k and mine[k - 1][0] != d:
                edges.append(k)
            row["tokens"].append(documents[d][offset])
            row["segment_ids"].append(len(edges) - 1)
            row["positions"].append(k - edges[-1])
            last = offset + 1 == len(documents[d])
            row["labels"].append((50256 if ended and d not in cut else -1) if last else documents[d][offset + 1])
        if padding:
            edges.append(len(mine))
        for name, value in (("tokens", 50256), ("segment_ids", -1), ("labels", -1), ("positions", 0)):
            row[name] += [value] * padding
        edges.append(room)
        row["cu_seqlens"] = edges
        row["max_seqlen"] = max(b - a for a, b in itertools.pairwise(edges))
        rows.append(row)
    return rows


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=20),
    room=st.integers(1, 30),
    world=st.integers(1, 4),
    labels=st.sampled_from(["eot", "ignore"]),
    tail=st.sampled_from(["pad", "drop"]),
    cut=st.sets(st.integers(0, 19), max_size=4),
    private=st.booleans(),
)
def test_rows_are_what_the_card_says(
    sizes: list[int],
    room: int,
    world: int,
    labels: str,
    tail: str,
    cut: set[int],
    private: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cut = {d for d in cut if d < len(sizes)}
    numbers = itertools.count(1)
    documents = [[50256, *itertools.islice(numbers, n - 1)] for n in sizes]
    prefix = tmp_path_factory.mktemp("pair") / "x"
    write_pair(prefix, [[ids] for ids in documents])
    corpus = tokenreel.open(f"{prefix}.idx")

    def expected(of: list[int]) -> list[Row]:
        some = [documents[d] for d in of]
        return boundary_aware(some, room, {k for k, d in enumerate(of) if d in cut}, labels == "eot", tail)

    every = list(range(len(sizes)))
    ranks = [expected(every[rank::world]) if private else expected(every)[rank::world] for rank in range(world)]
    options = {"labels": labels, "tail": tail, "truncated": sorted(cut), "rows": "rank" if private else "global"}
    for rank in range(world):
        if not any(ranks):
            with pytest.raises(OrderError, match="ORD100"):
                next(boundary_aware_data_generator(corpus, 3, room, rank=rank, world_size=world, **options))
            continue
        batches = list(boundary_aware_data_generator(corpus, 3, room, rank=rank, world_size=world, **options))
        found = [
            {name: array[k].tolist() for name, array in b.items()} for b in batches for k in range(len(b["tokens"]))
        ]
        if private:
            assert len(found) == max(map(len, ranks))
        for row, said in itertools.zip_longest(found, ranks[rank]):
            if said is None:
                assert private
                assert set(row["segment_ids"]) == set(row["labels"]) == {-1}
                continue
            edges = said.pop("cu_seqlens")
            assert row.pop("cu_seqlens") == edges + [room] * (room + 1 - len(edges))
            assert row == said
    corpus.close()


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_global_rows_are_the_same_for_any_number_of_ranks(world: int, corpus: Any) -> None:
    whole = np.concatenate([b["tokens"] for b in boundary_aware_data_generator(corpus, 4, 32, shuffle=True)])
    ranks = [
        boundary_aware_data_generator(corpus, 4, 32, rank=rank, world_size=world, shuffle=True) for rank in range(world)
    ]
    rows = [np.concatenate([b["tokens"] for b in rank]) for rank in ranks]
    assert sum(map(len, rows)) == len(whole)
    for rank, mine in enumerate(rows):
        assert np.array_equal(mine, whole[rank::world])


def test_a_generator_goes_on_where_another_stopped(corpus: Any) -> None:
    def batches(**options: Any) -> list[list[int]]:
        made = boundary_aware_data_generator(corpus, 2, 16, shuffle=True, epochs=None, **options)
        return [batch["tokens"].tolist() for batch in itertools.islice(made, 40)]

    whole = batches()
    assert batches(start=13)[:27] == whole[13:]


def test_the_golden_corpus_on_disk_opens_with_its_tables() -> None:
    folder = GOLDEN / "hobbylm" / "longctx"
    rows = list(boundary_aware_data_generator(folder, 64, 32))
    stored = sum(int((batch["segment_ids"] >= 0).sum()) for batch in rows)
    opened = tokenreel.open(folder, boundary="prefix=50256")
    assert stored == opened.tokens
    assert int((rows[-1]["segment_ids"] < 0).sum()) == -stored % 32
    opened.close()


def test_what_cannot_be_is_refused(corpus: Any, tmp_path: Path) -> None:
    for options in (
        {"rank": 1},
        {"labels": "all"},
        {"rows": "mine"},
        {"tail": "carry"},
        {"start": -1},
        {"world_size": 0},
    ):
        with pytest.raises(UsageError, match="USE003"):
            next(boundary_aware_data_generator(corpus, 2, 8, **options))
    np.arange(40, dtype="<u2").tofile(tmp_path / "x.bin")
    unknown = tokenreel.open(tmp_path / "x.bin", dtype="uint16")
    with pytest.raises(OrderError, match="PCK023"):
        hobbylm_order(unknown, 8)


# ---- masks and positions ------------------------------------------------------------------------------------------------

segments = st.lists(st.integers(1, 5), min_size=1, max_size=6).flatmap(
    lambda sizes: st.booleans().map(
        lambda padded: [k for k, n in enumerate(sizes) for _ in range(n)] + ([-1, -1] if padded else [])
    )
)


@given(segments)
def test_bias_and_positions_are_their_definitions(ids: list[int]) -> None:
    bias = build_block_diagonal_bias(np.array([ids]))
    n = len(ids)
    assert bias.shape == (1, 1, n, n)
    expected = [[0.0 if j <= i and ids[i] == ids[j] else -np.inf for j in range(n)] for i in range(n)]
    assert bias[0, 0].tolist() == expected
    starts = [i for i in range(n) if i == 0 or ids[i] != ids[i - 1]]
    positions = [0 if ids[i] < 0 else i - max(s for s in starts if s <= i) for i in range(n)]
    assert positions_from_segments(np.array(ids)).tolist() == positions


@settings(max_examples=30)
@given(segments, st.integers(0, 99))
def test_perturbing_a_document_moves_no_other(ids: list[int], seed: int) -> None:
    """One head of causal attention over a row: outputs of other documents are equal to the last bit."""
    rng = np.random.default_rng(seed)
    n, bias = len(ids), build_block_diagonal_bias(np.array([ids]), np.float64)[0, 0]
    table = rng.standard_normal((50, 4))
    tokens = rng.integers(0, 50, n)

    def attend(of: np.ndarray) -> np.ndarray:
        x = table[of] + np.sin(positions_from_segments(np.array(ids)))[:, None]
        scores = x @ x.T + bias
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        # Sums over a document's own columns alone: what is masked out is exactly zero.
        return weights / weights.sum(axis=1, keepdims=True) @ x

    changed = tokens.copy()
    victim = ids[int(rng.integers(0, n))]
    mine = np.array(ids) == victim
    changed[mine] = (tokens[mine] + 1 + rng.integers(0, 48, int(mine.sum()))) % 50
    before, after = attend(tokens), attend(changed)
    assert np.array_equal(before[~mine], after[~mine])
    assert not np.array_equal(before[mine], after[mine])


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=12),
    room=st.integers(2, 20),
    victim=st.integers(0, 11),
    ends=st.sampled_from(["eot", "ignore"]),
)
def test_no_loss_term_of_another_document_moves(
    sizes: list[int], room: int, victim: int, ends: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every id of one document is another: no label, mask, position or segment outside it changes."""
    victim %= len(sizes)
    sides = []
    for side in range(2):
        documents = [
            [[100 * d + k + (5000 if side and d == victim else 0) for k in range(n)]] for d, n in enumerate(sizes)
        ]
        prefix = tmp_path_factory.mktemp("pair") / "x"
        write_pair(prefix, documents)
        corpus = tokenreel.open(f"{prefix}.idx")
        batches = list(boundary_aware_data_generator(corpus, 4, room, labels=ends))
        sides.append({name: np.concatenate([b[name] for b in batches]) for name in batches[0]})
        corpus.close()
    of = sides[0]["tokens"] // 100
    others = (of != victim) | (sides[0]["segment_ids"] < 0)
    for name in ("tokens", "labels", "segment_ids", "positions"):
        assert np.array_equal(sides[0][name][others], sides[1][name][others])
    real = (sides[0]["labels"] >= 0) & (sides[0]["labels"] != 50256)
    # Labels are of their own document, everywhere.
    assert np.array_equal(sides[0]["labels"][real] // 100, of[real])
