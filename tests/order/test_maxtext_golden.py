"""MaxText's orders against what MaxText made: indices, hashes, blends, errors, and the tokens its sources read."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.order.maxtext_reference import Lengths, check_documents, golden, token_rows
from tokenreel.errors import TokenreelError
from tokenreel.order.maxtext_blend import (
    MaxTextBlendOrder,
    blend_buffers,
    dispatch_weights,
    inferred_size,
    normalised,
)
from tokenreel.order.maxtext_files import blend_names, index_hash, index_metadata, index_names
from tokenreel.order.maxtext_npy import MaxTextNpyOrder
from tokenreel.order.maxtext_plan import StridedRows, check_counts, plan_npy, split_range
from tokenreel.order.maxtext_settings import eval_order, read_settings, train_order
from tokenreel.order.maxtext_spec import check_weights, parse_files, sorted_prefixes
from tokenreel.order.megatron_dispatch import dispatch

INDICES = golden("indices")
POSITIONS = golden("positions")
ERRORS = {
    "No documents found in input data after applying split": "ORD074",
    "Cannot specify both num_samples and num_epochs": "ORD078",
    "Must specify either num_samples or num_epochs": "ORD078",
    "No .idx files found at: data/nope": "ORD070",
    "split_index 2 out of range for 2 splits": "ORD073",
}


def sha(array: Any) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def code_of(caught: pytest.ExceptionInfo[TokenreelError]) -> str:
    return caught.value.code


@cache
def files() -> frozenset[str]:
    return frozenset(f"{name}.idx" for name in INDICES["documents"])


def names_in(path: str) -> list[str] | None:
    inside = [name.removeprefix(f"{path}/") for name in files() if name.startswith(f"{path}/")]
    return inside or None


def tables(paths: list[str]) -> tuple[list[str], list[Lengths]]:
    prefixes = sorted_prefixes(paths, files().__contains__, names_in)
    return list(prefixes), [Lengths(INDICES["documents"][prefix], prefix) for prefix in prefixes]


def order_of(paths: list[str], args: dict[str, Any]) -> MaxTextNpyOrder:
    check_counts(args.get("num_samples"), args.get("num_epochs"))
    return MaxTextNpyOrder.over(
        tables(paths)[1],
        args["seq_length"],
        seed=args.get("seed", 1234),
        samples=args.get("num_samples"),
        epochs=args.get("num_epochs"),
        split=args.get("split", ""),
        split_index=args.get("split_index", 0),
        row_ahead=args.get("add_extra_token", 1),
    )


GOOD = [case for case in INDICES["convert"] if "error" not in case and case["samples"]]


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case["case"])
def test_indices(case: dict[str, Any]) -> None:
    args = case["args"]
    order = order_of(case["inputs"], args)
    tokens, first, last, epochs, separate = case["derived"]
    plan = order.plan
    assert (plan.tokens, order.inner.first, order.inner.last, plan.epochs) == (tokens, first, last, epochs)
    assert plan.separate == separate
    assert order.length == case["samples"]
    prefixes, _ = tables(case["inputs"])
    assert sorted(case["inputs"]) == case["prefixes"]  # what the metadata says
    assert order.index_hash(prefixes) == case["hash"]
    for made in (order.indices(), order.prepare().indices()):
        arrays = (made.document_index, made.sample_index, made.shuffle_index)
        assert [str(array.dtype) for array in arrays] == case["dtypes"]
        assert len(made.document_index) == case["entries"]
        assert [sha(array) for array in arrays] == case["sha256"]


def test_the_cases_are_all_there() -> None:
    assert len(GOOD) == 276
    assert len(INDICES["convert"]) == 291
    assert len(INDICES["blend"]) == 11
    assert len(POSITIONS["cases"]) == 42


def test_errors_of_single_datasets() -> None:
    bad = [case for case in INDICES["convert"] if "error" in case]
    assert len(bad) == 14
    for case in bad:
        with pytest.raises(TokenreelError) as caught:
            order_of(case["inputs"], case["args"])
        assert code_of(caught) == ERRORS[case["error"]], case["case"]
    # MaxText builds these files and fails when a sample is read.
    short = next(case for case in INDICES["convert"] if case["case"] == "err_too_short")
    assert INDICES["errors_runtime"]["too_few_rows"].endswith("has too few rows (1).")
    with pytest.raises(TokenreelError) as caught:
        order_of(short["inputs"], short["args"])
    assert code_of(caught) == "ORD077"


def blend_of(case: dict[str, Any]) -> MaxTextBlendOrder:
    args = dict(case["args"])
    return MaxTextBlendOrder.over(
        [tables([path])[1] for path, _ in case["specs"]],
        [weight for _, weight in case["specs"]],
        case["seq_length"],
        seed=args.pop("seed", 1234),
        samples=case["total_samples"],
        **args,
    )


@pytest.mark.parametrize("case", INDICES["blend"], ids=lambda case: case["case"])
def test_blends(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(TokenreelError) as caught:
            blend_of(case)
        assert code_of(caught) == {"err_negative": "ORD064", "err_allzero": "ORD065"}[case["case"]]
        return
    order = blend_of(case).prepare()
    assert order.length == case["total_samples"]
    assert [child.length for child in order.children] == case["child_lengths"]
    assert list(order.weights) == [child["weight"] for child in case["children"]]
    margin = case["args"].get("margin", 0.5)
    buffers = blend_buffers(order.length, order.weights, margin)
    assert buffers == [child["buffer_samples"] for child in case["children"]]
    second = dispatch_weights(order.weights).tolist()
    assert second == case["weights_second_norm"]
    assert list(blend_names(second, case["child_lengths"], order.length)) == case["runtime_cache_files"]
    pair = order.dispatch_pair()
    assert [sha(pair.dataset_index), sha(pair.dataset_sample_index)] == case["sha256"]
    assert (pair.dataset_index.dtype, pair.dataset_sample_index.dtype) == (np.int16, np.int64)
    read = [path for path, weight in case["specs"] if weight > 0]
    for child, path, made, hashes in zip(order.children, read, case["children"], case["children_sha256"], strict=True):
        assert child.index_hash(tables([path])[0]) == made["hash"]
        arrays = child.indices()
        assert [sha(getattr(arrays, f"{name}_index")) for name in ("document", "sample", "shuffle")] == hashes


# ---- pure functions ------------------------------------------------------------------------------------------------

PURE = INDICES["pure"]


def test_splits() -> None:
    for case in PURE["parse_split_range"]:
        if "error" in case:
            with pytest.raises(TokenreelError) as caught:
                split_range(case["split"], case["index"], case["num_docs"])
            assert code_of(caught) == "ORD073"
        else:
            assert list(split_range(case["split"], case["index"], case["num_docs"])) == case["result"], case


def test_split_strings_that_cannot_be_read() -> None:
    for case in PURE["parse_split_range_bad"]:
        if case["split"] == "":
            continue  # no split: MaxText does not parse it either
        if case["split"] == " 99 , 1 ":
            assert list(split_range(case["split"], 0, 10)) == case["result"]
            continue
        with pytest.raises(TokenreelError) as caught:
            split_range(case["split"], 0, 10)
        assert code_of(caught) == "ORD072", case


def test_weights() -> None:
    for case in PURE["normalize_weights"]:
        assert list(normalised(case["weights"])) == case["once"]
        assert dispatch_weights(case["once"]).tolist() == case["twice"]


def test_buffers() -> None:
    for case in PURE["compute_blend_buffers"]:
        shares = normalised(case["weights"])
        assert blend_buffers(case["num_samples"], shares, case["margin"]) == case["buffers"], case


def test_epochs() -> None:
    for case in PURE["epochs"]:
        plan = plan_npy(1, case["tokens_per_epoch"], case["seq_length"], samples=case["num_samples"])
        assert (plan.epochs, plan.separate) == (case["num_epochs"], case["separate"]), case


def test_hashes() -> None:
    for case in PURE["hash"]:
        args = case["args"]
        made = index_hash(
            args["input_paths"],
            args["num_epochs"],
            args["separate_final_epoch"],
            args["seed"],
            args["seq_length"],
            split=args.get("split", ""),
            split_index=args.get("split_index", 0),
            row_ahead=args.get("add_extra_token", 1),
        )
        assert made == case["hash"]
    for case in PURE["blend_cache_key"]:
        assert list(blend_names(case["weights"], case["lengths"], case["size"], case["split"])) == case["files"]


def test_inferred_sizes() -> None:
    for case in PURE["infer_size"]:
        if "error" in case:
            with pytest.raises(TokenreelError) as caught:
                inferred_size(case["weights"], case["lengths"])
            assert code_of(caught) == "ORD085"
        else:
            assert inferred_size(case["weights"], case["lengths"]) == case["result"]


MIXTURE_ERRORS = {
    "Total weight": "ORD065",
    "Negative weight": "ORD064",
    "Malformed": "ORD061",
    "Empty spec": "ORD062",
    "Invalid weight": "ORD063",
    "All mmap_npy mixture components": "ORD066",
}


def test_mixture_strings() -> None:
    for case in PURE["parse_weighted_mixture"]:
        if ";" not in case["spec"]:
            continue  # without ';' a spec string is no mixture
        mode = "mmap_npy" if "|" in case["spec"] else "mmap"
        if "error" in case:
            with pytest.raises(TokenreelError) as caught:
                parse_files(case["spec"], mode)  # type: ignore[arg-type]
            kind = next(code for start, code in MIXTURE_ERRORS.items() if case["message"].startswith(start))
            assert code_of(caught) == kind, case
            position = case["message"].rpartition("position ")[2].partition(":")[0]
            if position.isdigit():
                assert f"at position {position}" in str(caught.value)
            continue
        components = parse_files(case["spec"], mode).positive  # type: ignore[arg-type]
        specs = [c.spec.paths[0] if mode == "mmap" else f"{c.spec.index_dir}|{c.spec.paths[0]}" for c in components]
        assert specs == case["result"][0]
        assert list(normalised([c.weight for c in components])) == case["result"][1]


def test_npy_specs() -> None:
    empty = {"|/d", "/c|", "/c|/d:"}
    for case in PURE["parse_mmap_npy_spec"]:
        if "error" in case or case["spec"] in empty:
            with pytest.raises(TokenreelError) as caught:
                parse_files(case["spec"], "mmap_npy")
            assert code_of(caught) == ("ORD067" if case["spec"] in empty else "ORD060"), case
            continue
        spec = parse_files(case["spec"], "mmap_npy").components[0].spec
        assert [spec.index_dir, list(spec.paths)] == case["result"]


def test_dispatch() -> None:
    for case in PURE["blending_indices"]:
        check_weights(case["weights"])
        assert [sha(array) for array in dispatch(case["weights"], case["size"])] == case["sha256"]


def test_metadata() -> None:
    case = next(case for case in INDICES["convert"] if case["case"] == "multi_prefix_list")
    made = index_metadata(
        case["hash"],
        ["data/shards", "data/conv_a_i32"],
        16,
        samples=100,
        epochs=None,
        seed=99,
        entries=case["entries"],
        total_samples=case["samples"],
        created_at="2026-01-01T00:00:00+00:00",
    )
    assert list(made)[:4] == ["hash", "source", "created_at", "input_paths"]
    assert made["input_paths"] == ["data/conv_a_i32", "data/shards"]
    assert made["split"] is None
    assert index_names(case["hash"]).metadata == f"{case['hash']}-metadata.json"


# ---- what the sources read -----------------------------------------------------------------------------------------

STEP = POSITIONS["step"]
CORPORA = list(POSITIONS["documents"])
SHARDS = {"a": ["a"], "b": ["b"], "d": ["d/s1", "d/s10", "d/s2"]}


@pytest.mark.parametrize("number", range(len(POSITIONS["cases"])))
def test_samples(number: int) -> None:
    case = POSITIONS["cases"][number]
    job = read_settings(settings_of(case))
    spec = job.train
    names = [sorted(name for path in c.spec.paths for name in SHARDS[path]) for c in spec.components]
    given = [[Lengths(POSITIONS["documents"][name], name) for name in part] for part in names]
    # A table may be left out where nothing is read from it.
    some = [part if c.weight else None for part, c in zip(given, spec.components, strict=True)]
    build = eval_order if case.get("split_index") or case.get("shuffle") is False else train_order
    order = build(job, some, hosts=case["hosts"]).prepare()
    read = [name for part, c in zip(names, spec.components, strict=True) if c.weight for name in part]
    tables = [Lengths(POSITIONS["documents"][name], name) for name in read]
    assert order.corpora == tuple(table.key for table in tables)
    if len(spec.positive) > 1 and case["kind"] == "mmap":
        assert order.host_length(case["host"]) == case["samples"]  # type: ignore[union-attr]
        assert order.length <= sum(order.host_length(h) for h in range(case["hosts"]))  # type: ignore[union-attr]
    host = StridedRows(case["hosts"], case["hosts"])
    mine = np.arange(case["host"], order.length, case["hosts"])
    assert len(mine) == host.count(case["host"], order.length)
    span = order.spans_at(mine)
    if case["kind"] == "npy":
        check_documents(span, tables)
    span.check([table.tokens for table in tables])
    # Ids are positions: shift each corpus to where its tokens start.
    corpus_of = [CORPORA.index(name) for name in read]
    shifted = shift(span, corpus_of)
    rows = token_rows(shifted, [Lengths([STEP])] * len(CORPORA), STEP)
    assert [row[0] for row in rows][:200] == case["first"][: len(rows)]
    if len(rows) == case["samples"]:
        assert sha(np.array(rows, dtype=np.int32)) == case["sha256"]
    else:
        assert case["hosts"] > 1  # the order ends where another host has nothing more to read
        assert case["kind"] == "mmap"


def shift(table: Any, numbers: list[int]) -> Any:
    return replace(table, corpus=np.array(numbers, dtype=np.int32)[table.corpus])


def settings_of(case: dict[str, Any]) -> dict[str, object]:
    out: dict[str, object] = {
        "grain_file_type": "mmap_npy" if case["kind"] == "npy" else "mmap",
        "grain_train_files": case["spec"],
        "max_target_length": case["seq_length"],
        "global_batch_size_to_load": 1,
        "data_shuffle_seed": case["seed"],
        "num_epoch": case["num_epoch"],
    }
    if case["kind"] == "mmap":
        out["enable_data_shuffling"] = case["shuffle"]
        if not case["shuffle"]:
            out["grain_eval_files"] = case["spec"]
        return out
    if case["num_samples"] is not None:
        out["steps"] = case["num_samples"]
    if case["split"]:
        out["mmap_npy_split"] = case["split"]
        out["grain_eval_files"] = case["spec"]
    if case["split_index"]:
        out |= {"steps": 10, "eval_interval": 10, "eval_steps": case["num_samples"]}
    return out
