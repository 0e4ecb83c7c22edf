"""Rows against what Megatron-Core, MaxText, Levanter and HobbyLM's description give for the same samples."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenreel
from tokenreel.errors import OrderError
from tokenreel.feed.gather import Gatherer
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.order.maxtext_mmap import MaxTextMmapOrder
from tokenreel.order.maxtext_npy import MaxTextNpyOrder
from tokenreel.order.megatron import MegatronOrder
from tokenreel.order.megatron_blend import MegatronBlend
from tokenreel.pack.megatron_parts import ExactEdges, repeats
from tokenreel.spans import Flag, SpanTable

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES = json.loads((GOLDEN / "rows" / "cases.json").read_text("utf-8"))


@cache
def arrays(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "rows" / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def name_of(case: dict[str, Any]) -> str:
    return f"{case['name']}-{case['part']}"


# ---- Megatron -------------------------------------------------------------------------------------------------------


def megatron_order(case: dict[str, Any]) -> tuple[MegatronOrder, Any]:
    corpus = tokenreel.open(GOLDEN / "megatron" / "data" / case["prefix"])
    ahead, width = int(case["add_extra_token_to_sequence"]), case["sequence_length"]
    order = MegatronOrder.over(
        corpus.sequences(),
        width,
        seed=case["random_seed"],
        samples=case["samples"],
        split=case["split"],
        part=case["part"],
        row_ahead=ahead,
        keep_partial=case["part"] == "valid" and not case["drop_last_partial_validation_sequence"],
        documents=corpus.table(),
    ).prepare()
    return order, corpus


def megatron_batch(case: dict[str, Any]) -> dict[str, np.ndarray]:
    order, corpus = megatron_order(case)
    options = (
        "eod", "pad", "reset_position_ids", "reset_attention_mask", "eod_mask_loss", "create_attention_mask",
        "inter_document_masking", "allow_ambiguous_pad_tokens",
    )  # fmt: skip
    policy = {"kind": "megatron", **{name: case[name] for name in options}}
    samples = np.array(case["indices"])
    shape = {"row_tokens": order.row_tokens, "row_ahead": order.row_ahead}
    with Gatherer([corpus], policy, **shape, dtype="int64") as gatherer:
        return gatherer.batch(order.spans_at(np.where(samples < 0, samples + order.length, samples)))


@pytest.mark.parametrize("case", CASES["megatron"], ids=name_of)
def test_rows_are_what_gpt_dataset_returns(case: dict[str, Any]) -> None:
    batch = megatron_batch(case)
    assert set(batch) == set(case["arrays"])
    for name, dtype in case["arrays"].items():
        expected = arrays("megatron")[f"{case['name']}/{case['part']}/{name}"]
        found = batch[name][: len(expected)]
        assert found.dtype == dtype
        if name == "cu_seqlens":
            # Entries without tokens leave no extent: Megatron repeats an edge for each.
            expected, found = (np.array([np.unique(row) for row in rows], object) for rows in (expected, found))
            assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
            continue
        if name == "loss_mask" and case["name"] == "pad_equals_eod_allowed":
            # There, what the first sample masks because of its padding stays masked in all that follow.
            found = found * found[0]
        assert np.array_equal(found, expected), name


@pytest.mark.parametrize("case", [c for c in CASES["megatron"] if c["inter_document_masking"]], ids=name_of)
def test_edges_with_entries_of_no_tokens_repeat_as_in_megatron(case: dict[str, Any]) -> None:
    expected = arrays("megatron")[f"{case['name']}/{case['part']}/cu_seqlens"]
    order, _ = megatron_order(case)
    samples = np.array(case["indices"])
    samples = np.where(samples < 0, samples + order.length, samples)
    assert np.array_equal(ExactEdges(order).of(samples), expected)


def test_exact_edges_of_a_blend_are_its_members() -> None:
    case = next(c for c in CASES["megatron"] if c["name"] == "idm_empties")
    _, corpus = megatron_order(case)
    assert repeats(megatron_order(case)[0])
    blend = MegatronBlend.over(
        [corpus.sequences()] * 2, case["sequence_length"], seed=case["random_seed"], samples=40, weights=[2.0, 1.0]
    ).prepare()
    member, number = blend.dispatched()
    edges = ExactEdges(blend).of(np.arange(40))
    for k in range(40):
        assert np.array_equal(edges[k], ExactEdges(blend.members[member[k]]).of([number[k]])[0])
    with pytest.raises(OrderError):
        ExactEdges(MaxTextMmapOrder.over([corpus.table()], 8))


# ---- MaxText --------------------------------------------------------------------------------------------------------


def prefixes(path: str) -> list[Path]:
    place = GOLDEN / "index" / path
    return [place] if place.with_suffix(".idx").exists() else sorted(p.with_suffix("") for p in place.glob("*.idx"))


@pytest.mark.parametrize("case", CASES["maxtext"], ids=lambda case: case["case"])
def test_batches_are_what_maxtext_gives(case: dict[str, Any]) -> None:
    corpora = [tokenreel.open(prefix) for prefix in prefixes(case["path"])]
    tables = [corpus.table() for corpus in corpora]
    width, direct = case["seq_length"], case["mode"] == "mmap"
    order: Any = MaxTextMmapOrder.over(tables, width, shuffled=False)
    if not direct:
        order = MaxTextNpyOrder.over(
            tables, width, seed=case.get("seed", 1), samples=case.get("num_samples"), num_epoch=1
        ).prepare()
    policy = {
        "kind": "maxtext",
        "eod": 2,
        "direct": direct,
        "reset_attention_mask": case.get("reset_attention_mask", True),
        "eod_mask_loss": case.get("eod_mask_loss", False),
        "packing_max_segments_per_sample": case.get("packing_max_segments_per_sample", 0),
    }
    expected = {
        key.split("/")[1]: value for key, value in arrays("maxtext").items() if key.startswith(case["case"] + "/")
    }
    batch, workers = case["batch"], case.get("workers", 1)
    with Gatherer(corpora, policy, row_tokens=width, row_ahead=order.row_ahead) as gatherer:
        if "partial_last" in case["case"]:
            check_partial(gatherer, order, batch, expected)
            return
        for k in range(len(expected["inputs"])):
            # Worker w of a direct dataset owns every w-th sample, and batches come from the workers in turn.
            step = workers if direct and workers > 1 else 1
            first = k // step * batch * step + k % step
            found = gatherer.batch(order.spans_at(np.arange(first, first + batch * step, step)))
            for name, values in found.items():
                assert values.dtype == np.int32
                assert np.array_equal(values, expected[name][k]), (name, k)


def check_partial(gatherer: Gatherer, order: Any, batch: int, expected: dict[str, np.ndarray]) -> None:
    """The last batch: real rows are the same; in those that are padding MaxText writes EOD everywhere, and we nothing."""
    real = order.length % batch
    table = order.spans(order.length - real, order.length)
    splits = np.concatenate((table.splits, np.full(batch - real, table.splits[-1])))
    found = gatherer.batch(SpanTable(splits, *table.columns()[1:]))
    for name, values in found.items():
        assert np.array_equal(values[:real], expected[name][:real])
        assert (expected[name][real:] == 2).all()
        assert (values[real:] == (2 if name in ("inputs", "targets") else 0)).all()


# ---- Levanter -------------------------------------------------------------------------------------------------------


def rows_over(folder: Path, ids: np.ndarray, policy: dict[str, Any], table: SpanTable, width: int) -> dict[str, Any]:
    with MegatronWriter(f"{folder}/rows", np.int32) as writer:
        writer.add_documents(ids.astype(np.int32), np.array([len(ids)]))
        writer.finish()
    with Gatherer([tokenreel.open(folder)], policy, row_tokens=width, row_ahead=0) as gatherer:
        return gatherer.batch(table)


@pytest.mark.parametrize("number", [1, 2])
def test_loss_weights_are_levanters(number: int, tmp_path: Path) -> None:
    tokens = arrays("levanter")[f"tokens_{number}"]
    table = SpanTable.of([0, 1], [0], [len(tokens)])
    batch = rows_over(tmp_path, tokens, {"kind": "levanter", "eod": 9}, table, len(tokens))
    assert np.array_equal(batch["tokens"][0], tokens)
    assert np.array_equal(batch["loss_weight"][0], arrays("levanter")[f"loss_{number}"])
    assert batch["segment_ids"][0].tolist() == [int((tokens[:k] == 9).sum()) for k in range(len(tokens))]


# ---- HobbyLM's boundary-aware rows ------------------------------------------------------------------------------------

HOBBY = json.loads((GOLDEN / "rows" / "hobbylm.json").read_text("utf-8"))


def hobby_table(case: dict[str, Any]) -> SpanTable:
    """Return the rows of one rank: its documents end to end, cut every S tokens, with a look-ahead."""
    lengths = [len(document) for document in HOBBY["documents"]]
    begins = np.cumsum([0, *lengths]).tolist()
    width = case["S"]
    splits, columns = [0], []
    room = 0
    for d in case["rank_docs"]:
        at = 0
        while at < lengths[d]:
            if room == 0:
                room, splits = width, [*splits, splits[-1]]
            taken = min(room, lengths[d] - at)
            flags = Flag.HEAD * (at == 0) | Flag.TAIL * (at + taken == lengths[d])
            if at + taken == lengths[d] and HOBBY["truncated_end"][d]:
                flags |= Flag.CUT
            if taken == room and at + taken < lengths[d]:
                flags |= Flag.AHEAD
            columns.append((begins[d] + at, taken, d, at, flags))
            splits[-1] += 1
            room, at = room - taken, at + taken
    begin, length, document, start, flags = zip(*columns, strict=True)
    return SpanTable.of(splits, begin, length, document=document, start=start, flags=flags)


@pytest.mark.parametrize("case", HOBBY["cases"], ids=lambda case: f"S{case['S']}-{case['rank']}of{case['world']}")
@pytest.mark.parametrize("labels", ["labels", "labels_eot"])
def test_boundary_aware_rows_are_those_described(case: dict[str, Any], labels: str, tmp_path: Path) -> None:
    ids = np.concatenate(HOBBY["documents"])
    width = case["S"]
    ends = {"ends": "token", "end_id": 50256} if labels == "labels_eot" else {}
    policy = {
        "kind": "documents", "segments": "zero", "pad_id": 50256, "ignore_index": -1, "cu_seqlens": "rows", **ends,
    }  # fmt: skip
    table = hobby_table(case)
    batch = rows_over(tmp_path, ids, policy, table, width)
    offsets = rows_over(tmp_path / "offsets", ids, {**policy, "positions": "offset"}, table, width)["position_ids"]
    assert table.samples == len(case["rows"])
    for k, row in enumerate(case["rows"]):
        assert batch["input_ids"][k].tolist() == row["tokens"]
        assert batch["labels"][k].tolist() == row[labels]
        assert batch["loss_mask"][k].tolist() == [float(label != -1) for label in row[labels]]
        assert batch["segment_ids"][k].tolist() == row["segment_ids"]
        assert batch["position_ids"][k].tolist() == row["positions"]
        assert offsets[k].tolist() == row["offset_in_doc"]
        assert np.unique(batch["cu_seqlens"][k]).tolist() == row["cu_seqlens"]
        assert batch["max_seqlen"][k] == row["max_seqlen"]
