"""Failures that others reported of building corpora, each on the smallest input that shows it; numbers name public threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenreel
from tests.build.making import tokenizer_file
from tests.build.mixed_runs import EVAL, all_files, build, json_of, records, text, whole
from tests.build.mixes import PROSE, write_records
from tokenreel.build.explain import explain
from tokenreel.build.routes import build_mix
from tokenreel.errors import SourceError, StorageError, TokenizerError
from tokenreel.text import load_tokenizer
from tokenreel.verify import verify

PLAIN: dict[str, Any] = {"dedup": None, "decontaminate": None, "split": None}


def one_source(folder: Path, rows: list[dict[str, Any]], **tables: Any) -> Any:
    write_records(folder / "in/a.jsonl", rows)
    return whole(folder, source=[{"name": "a", "paths": ["in/a.jsonl"], "id": "id"}], **{**PLAIN, **tables})


def texts_of(out: Path, folder: Path) -> list[str]:
    """Return the texts of all documents, split after split."""
    corpus, tok = tokenreel.open(out), load_tokenizer(str(folder / "tokenizer.json"))
    parts = [corpus.split(name) for name in corpus.splits] or [corpus]
    return [tok.decode(ids[:-1]) for part in parts for ids in part]


# ---- empty documents: Megatron-LM 62 -------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "kept"), [("keep", 2), ("drop", 1), ("error", None)])
def test_a_first_document_that_is_empty(tmp_path: Path, policy: str, kept: int | None) -> None:
    rows = [{"id": "none", "text": ""}, {"id": "one", "text": "a"}]
    recipe = one_source(tmp_path, rows, documents={"empty": policy})
    if kept is None:
        with pytest.raises(SourceError, match=r"SRC016 in/a.jsonl.*document 0"):
            build(tmp_path, recipe)
        return
    (said,) = build(tmp_path, recipe).record["sources"]
    assert (said["docs_seen"], said["documents"]) == (2, kept)
    assert said["dropped"] == ({} if kept == 2 else {"documents/empty": 1})
    assert texts_of(tmp_path / "out", tmp_path) == ["", "a"][2 - kept :]


# ---- row partition and double counting: Nemotron 272, marin 2725, data-juicer 906 ------------------------------------


@pytest.mark.parametrize("format_", ["megatron-v1", "ounce-v1", "parquet"])
def test_ten_rows_in_many_shards_are_ten_documents(tmp_path: Path, format_: str) -> None:
    rows = records("a", 10)
    recipe = one_source(tmp_path, rows, output={"format": format_, "shard_tokens": {"train": 200}})
    report = build(tmp_path, recipe, workers=3)
    shards = report.record["shards"]
    assert len(shards) >= 4
    assert sum(one["documents"] for one in shards) == 10
    assert texts_of(tmp_path / "out", tmp_path) == [row["text"] for row in rows]


def test_a_file_that_two_patterns_find_is_read_once(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", records("a", 4))
    tables = [{"name": "a", "paths": ["in/*", "in/a.jsonl", "in/../in/a*"]}]
    (said,) = build(tmp_path, whole(tmp_path, source=tables, **PLAIN)).record["sources"]
    assert (said["docs_seen"], len(said["inputs"])) == (4, 1)


def test_the_same_bytes_in_two_sources_are_told(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", records("a", 4))
    write_records(tmp_path / "in/b.jsonl", records("a", 4))
    tables = [{"name": name, "paths": [f"in/{name}.jsonl"]} for name in "ab"]
    report = build(tmp_path, whole(tmp_path, source=tables, **PLAIN))
    assert report.warnings == ("in/b.jsonl (b) holds the same bytes as in/a.jsonl (a)",)
    assert report.lines()[0].startswith("warning: in/b.jsonl")
    assert report.as_dict()["warnings"] == list(report.warnings)


def test_of_three_equal_documents_one_stays_and_two_are_listed(tmp_path: Path) -> None:
    rows = [{"id": k, "text": "the same"} for k in ("x", "y", "z")]
    (said,) = build(tmp_path, one_source(tmp_path, rows, dedup={"max_removal": 0.9})).record["sources"]
    assert (said["documents"], said["dropped"]) == (1, {"dedup/exact": 2})
    for name in ("y", "z"):
        lost = next(one for one in explain(tmp_path / "out", name) if one.dropped)
        assert (lost.rule, lost.value) == ("exact", "as in/a.jsonl#0 (a)")


@pytest.mark.parametrize("after", range(1, 4))
def test_a_writer_that_failed_after_some_of_its_shards(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenreel.build import mix_write

    recipe = one_source(tmp_path, records("a", 5), output={"shard_tokens": {"train": 1}})
    build(tmp_path, recipe, "whole")
    real, calls = mix_write._write, [0]

    def failing(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] > after:
            raise StorageError("STO003", path=tmp_path)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(mix_write, "_write", failing)
        with pytest.raises(StorageError):
            build(tmp_path, recipe)
    assert build(tmp_path, recipe).record["splits"][""]["documents"] == 5
    assert all_files(tmp_path / "out") == all_files(tmp_path / "whole")


# ---- split leakage: OpenTau 498, bigscience 143 ----------------------------------------------------------------------


@pytest.mark.parametrize("rule", [{"rule": "every-nth", "n": 3}, {"rule": "hash-mod", "modulo": 3}])
def test_no_text_is_in_both_splits(tmp_path: Path, rule: dict[str, Any]) -> None:
    rows = records("a", 12)
    write_records(tmp_path / "in/a.jsonl", rows)
    write_records(tmp_path / "in/b.jsonl", [*records("b", 8), *rows[:6]])
    tables = [{"name": name, "paths": [f"in/{name}.jsonl"]} for name in "ab"]
    dedup = {"max_removal": 0.5} if rule["rule"] == "every-nth" else None
    build(tmp_path, whole(tmp_path, source=tables, **{**PLAIN, "split": rule, "dedup": dedup}))
    corpus, tok = tokenreel.open(tmp_path / "out"), load_tokenizer(str(tmp_path / "tokenizer.json"))
    train, held = ({tok.decode(ids[:-1]) for ids in corpus.split(name)} for name in ("train", "validation"))
    assert held
    assert train.isdisjoint(held)
    assert len(train | held) == 20


# ---- over-removal: marin 6854 and 6852 -------------------------------------------------------------------------------


def test_documents_that_share_a_header_are_no_duplicates(tmp_path: Path) -> None:
    header = "Copyright of the authors. All rights reserved. Do not remove this notice from any copy of the file. "
    rows = [{"id": f"{k}", "text": header + " ".join(text(f"file{k}", j) for j in range(4))} for k in range(20)]
    (said,) = build(tmp_path, one_source(tmp_path, rows, dedup={"near": {"threshold": 0.8}})).record["sources"]
    assert (said["documents"], said["dropped"]) == (20, {})


def test_a_chain_of_likenesses_does_not_take_a_whole_source(tmp_path: Path) -> None:
    words = (PROSE * 3).split()
    # Each differs from the next in a few words, and the first from the last in nearly all.
    rows = [{"id": f"{k}", "text": " ".join([f"w{j}" for j in range(12 * k)] + words[12 * k :])} for k in range(12)]
    report = build(tmp_path, one_source(tmp_path, rows, dedup={"near": {"threshold": 0.7}, "max_removal": 1.0}))
    assert report.record["sources"][0]["documents"] >= 4


def test_near_duplicates_beyond_the_brake_stop_the_build_with_samples(tmp_path: Path) -> None:
    long = " ".join(text("long", k) for k in range(8))
    rows = [{"id": f"{k}", "text": f"{long} {k}"} for k in range(20)]
    with pytest.raises(
        SourceError, match=r"SRC030 .*19 of 20 documents \(in/a.jsonl#1 \(a\) is in/a.jsonl#0"
    ) as caught:
        build(tmp_path, one_source(tmp_path, rows, dedup={"near": {}}))
    assert caught.value.hint == "tokenreel build RECIPE --set 'dedup.allow=[\"a\"]'"


def test_a_licence_that_an_item_quotes_is_shown_and_stays(tmp_path: Path) -> None:
    licence = "Permission is hereby granted free of charge to any person obtaining a copy of this software and files"
    write_records(tmp_path / "evals/dev.jsonl", [{"text": f"Which licence says: {licence}? {EVAL}"}, {"text": EVAL}])
    rows = [
        {"id": "licence", "text": licence},
        {"id": "item", "text": f"they asked {EVAL}"},
        {"id": "other", "text": "x"},
    ]
    evals = [{"name": "quiz", "path": "evals/dev.jsonl", "split": "dev"}]
    for remove, stays in (("none", 3), ("strong", 2)):
        asked = one_source(tmp_path, rows, decontaminate={"eval": evals, "remove": remove, "strong": 0.3})
        assert build(tmp_path, asked, remove).record["splits"][""]["documents"] == stays
    (found,) = json_of(tmp_path / "none/audit.json")["evals"]
    shares = {(one["upstream_id"], one["item"]): one["share"] for one in found["evidence"]}
    assert shares["licence", 0] < 0.3 <= shares["item", 1]
    assert all(one["span"][1] - one["span"][0] == 13 for one in found["evidence"])


# ---- special tokens and boundaries: renderers 116, marin 5034, levanter 574, Megatron-LM 1774 ---------------------------


@pytest.mark.parametrize("policy", ["text", "drop", "error", "special"])
def test_a_special_token_that_a_text_spells(tmp_path: Path, policy: str) -> None:
    tokenizer = {"path": "tokenizer.json", "eod": "<eod>", "special_in_text": policy}
    recipe = one_source(tmp_path, [{"text": "a <eod> b", "id": "x"}, {"text": "c", "id": "y"}], tokenizer=tokenizer)
    if policy == "error":
        with pytest.raises(TokenizerError, match=r"TKZ006 .*in/a.jsonl.*document 0"):
            build(tmp_path, recipe)
        return
    build(tmp_path, recipe)
    corpus = tokenreel.open(tmp_path / "out")
    eod = corpus.boundary.suffix[0]
    inside = [np.flatnonzero(ids[:-1] == eod).size for ids in corpus]
    assert inside == [int(policy == "special"), 0]
    if policy != "special":
        assert texts_of(tmp_path / "out", tmp_path)[0] == ("a <eod> b" if policy == "text" else "a  b")


def with_template(folder: Path) -> Path:
    """Let the tokenizer of the tests put its end of document around every text, as many do with BOS."""
    import json

    path = tokenizer_file(folder)
    said = json.loads(path.read_text("utf-8"))
    token = {"SpecialToken": {"id": "<eod>", "type_id": 0}}
    said["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [token, {"Sequence": {"id": "A", "type_id": 0}}, token],
        "pair": [token, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<eod>": {"id": "<eod>", "ids": [1], "tokens": ["<eod>"]}},
    }
    path.write_text(json.dumps(said), "utf-8")
    return path


@pytest.mark.parametrize("eod_at", ["end", "begin"])
def test_a_tokenizer_that_adds_tokens_of_its_own_gives_one_boundary(tmp_path: Path, eod_at: str) -> None:
    recipe = one_source(
        tmp_path, records("a", 5), tokenizer={"path": "tokenizer.json", "eod": "<eod>", "eod_at": eod_at}
    )
    with_template(tmp_path)
    build(tmp_path, recipe)
    at = 0 if eod_at == "begin" else -1
    for ids in tokenreel.open(tmp_path / "out"):
        assert (int(np.count_nonzero(ids == 1)), int(ids[at])) == (1, 1)
    (split,) = json_of(tmp_path / "out/tokenreel.json")["splits"].values()
    # What others had to scan 63 TB for.
    assert split["statistics"]["ends_with_suffix" if at else "starts_with_prefix"] == 5
    assert split["statistics"]["double_suffix"] == 0
    assert json_of(tmp_path / "out/tokenreel.json")["tokenizer"]["probe_sha256"]


def test_a_tokenizer_without_the_end_of_document_is_refused_before_any_work(tmp_path: Path) -> None:
    recipe = one_source(tmp_path, records("a", 5), tokenizer={"path": "tokenizer.json", "eod": "<|nowhere|>"})
    with pytest.raises(TokenizerError, match="TKZ"):
        build(tmp_path, recipe)
    assert not (tmp_path / "out").exists()


# ---- a source that is not there: marin 1753 --------------------------------------------------------------------------


def test_a_source_without_files_names_itself(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", records("a", 5))
    tables = [{"name": "a", "paths": ["in/a.jsonl"]}, {"name": "gone", "paths": ["nowhere/*.jsonl"]}]
    with pytest.raises(SourceError, match=r"SRC\d+ .*nowhere"):
        build(tmp_path, whole(tmp_path, source=tables, **PLAIN))
    assert not (tmp_path / "out").exists()


def test_budgets_that_are_not_reached_are_told(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", records("a", 5))
    (tmp_path / "mix.toml").write_text(
        '[tokenizer]\npath = "tokenizer.json"\neod = "<eod>"\n'
        '[[source]]\nname = "a"\npaths = ["in/a.jsonl"]\nbudget = 1_000_000\n'
    )
    tokenizer_file(tmp_path)
    (said,) = build_mix(tmp_path / "mix.toml", tmp_path / "out", in_process=True).as_dict()["warnings"]
    assert said.startswith("a: all of it was read, and its budget was not reached: ")
    assert verify(tmp_path / "out", level="full").status == "ok"
