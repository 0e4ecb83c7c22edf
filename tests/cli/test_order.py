"""order show, export, compare and find on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import run
from tests.index.data import lengths_of, opened, write
from tokenreel.cli.main import main
from tokenreel.order.megatron import MegatronOrder

RUN = """
[[corpus]]
name = "web"
path = "web.idx"
[order]
kind = "megatron"
row_tokens = 16
samples = 50
seed = 5
[schedule]
batch = 4
steps = 10
"""
LINEAGE = """
[[corpus]]
name = "web"
path = "web.idx"
[[corpus]]
name = "code"
path = "code.idx"
[schedule]
batch = 4
[[segment]]
first = 0
last = 4
source = "a log"
order = {kind = "megatron", corpus = "web", row_tokens = 16, samples = 50, seed = 5}
[[segment]]
first = 5
last = 9
order = {corpus = "code"}
"""


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, Any]:
    """Run a command in this process and return its status and its one JSON document."""
    capsys.readouterr()
    status = main([*map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def written(folder: Path, text: str, name: str = "run.toml") -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "web", lengths_of(1))
    write(tmp_path / "code", lengths_of(2), first=12)
    return tmp_path


def order(folder: Path) -> MegatronOrder:
    corpus = opened(folder / "web")
    return MegatronOrder.over(corpus.sequences(), 16, seed=5, samples=50).prepare()


def test_show_says_what_an_order_is(folder: Path) -> None:
    shown = run("order", "show", written(folder, RUN), "--json")
    assert shown.status == 0, shown.err
    (facts,) = shown.json["segments"]
    made = order(folder)
    assert (facts["order"], facts["samples"], facts["fingerprint"]) == ("megatron@1", made.length, made.fingerprint)
    assert facts["corpora"][0]["name"] == "web"
    text = run("order", "show", folder / "run.toml")
    assert text.status == 0
    assert made.describe().text in text.out
    assert made.fingerprint in text.out


def test_show_a_sample(folder: Path, capsys: Any) -> None:
    status, shown = call(capsys, "order", "show", written(folder, RUN), "--sample", 7)
    assert status == 0
    sample = shown["segments"][0]["sample"]
    table = order(folder).spans(7, 8)
    corpus = opened(folder / "web")
    parts = [corpus.stream(b, b + n) for b, n in zip(table.begin.tolist(), table.length.tolist(), strict=True)]
    assert sample["input_ids"] == np.concatenate(parts).tolist()
    assert len(sample["input_ids"]) == 16
    assert [e["begin"] for e in sample["extents"]] == table.begin.tolist()
    assert sample["extents"][-1]["flags"][-1] == "AHEAD"
    end = int(table.begin[-1] + table.length[-1])
    assert sample["label"] == corpus.stream(end, end + 1)[0]
    text = run("order", "show", folder / "run.toml", "--sample", 7).out
    assert f"digest {sample['digest']}" in text
    assert f"last label {sample['label']}" in text


def test_show_decodes(folder: Path, capsys: Any) -> None:
    status, shown = call(
        capsys, "order", "show", written(folder, RUN), "--sample", 7, "--decode", "--tokenizer", "bytes"
    )
    sample = shown["segments"][0]["sample"]
    assert status == 0
    assert sample["text"].encode() == bytes(sample["input_ids"])
    status, shown = call(capsys, "order", "show", folder / "run.toml", "--sample", 7, "--decode")
    assert (status, shown["error"]["code"]) == (2, "USE003")


def test_show_a_step(folder: Path, capsys: Any) -> None:
    status, shown = call(capsys, "order", "show", written(folder, RUN), "--step", 3)
    step = shown["segments"][0]["step"]
    assert (status, step["first"], step["end"]) == (0, 12, 16)
    assert [row["sample"] for row in step["samples"]] == [12, 13, 14, 15]
    assert {row["tokens"] for row in step["samples"]} == {16}
    assert "step 3: samples 12 .. 15" in run("order", "show", folder / "run.toml", "--step", 3).out


def test_show_quality(folder: Path, capsys: Any) -> None:
    status, shown = call(capsys, "order", "show", written(folder, RUN), "--quality", "--quality-samples", 40)
    assert (status, shown["segments"][0]["quality"]["samples"]) == (0, 40)
    assert "mean run: " in run("order", "show", folder / "run.toml", "--quality").out


def test_a_lineage_is_shown_segment_by_segment(folder: Path, capsys: Any) -> None:
    path = written(folder, LINEAGE)
    status, shown = call(capsys, "order", "show", path)
    assert status == 0
    one, two = shown["segments"]
    assert (one["source"], one["corpora"][0]["name"], two["corpora"][0]["name"]) == ("a log", "web", "code")
    assert (two["first_step"], two["first_sample"]) == (5, 20)
    status, shown = call(capsys, "order", "show", path, "--step", 6)
    assert shown["segments"][0]["segment"] == 1
    assert shown["segments"][0]["step"]["first"] == 24
    for words in (("--sample", 1), ("--step", 10), ("--segment", 2), ("--segment", 0, "--step", 6)):
        status, shown = call(capsys, "order", "show", path, *words)
        assert (status, shown["error"]["code"]) == (2, "RCP044")


def test_set_and_cache(folder: Path, capsys: Any) -> None:
    words = ("order", "show", written(folder, RUN), "--sample", 1, "--cache", folder / "cache")
    first = call(capsys, *words)
    held = sorted(path.name for path in (folder / "cache").iterdir())
    assert len(held) == 3
    assert call(capsys, *words) == first
    assert sorted(path.name for path in (folder / "cache").iterdir()) == held
    other = call(capsys, *words, "--set", "order.seed=6")
    assert other[1]["segments"][0]["sample"]["digest"] != first[1]["segments"][0]["sample"]["digest"]


def test_a_cache_that_cannot_be_written_is_a_warning(folder: Path) -> None:
    (folder / "cache").write_text("a file")
    shown = run("order", "show", written(folder, RUN), "--sample", 1, "--cache", folder / "cache", "--json")
    assert shown.status == 0
    assert shown.json["segments"][0]["sample"]["number"] == 1
    assert "IDX005" in shown.err


def test_a_sample_outside_exits_2(folder: Path, capsys: Any) -> None:
    status, shown = call(capsys, "order", "show", written(folder, RUN), "--sample", 10**6)
    assert (status, shown["error"]["code"]) == (2, "ORD001")


def test_export_is_the_extents(folder: Path, capsys: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = folder / "out.parquet"
    status, shown = call(capsys, "order", "export", written(folder, RUN), "-o", out)
    assert (status, shown["first"], shown["end"]) == (0, 0, 40)
    table = order(folder).spans(0, 40)
    read = parquet.read_table(out)
    assert read.num_rows == table.extents == shown["extents"]
    for name in ("begin", "length", "document", "start", "flags"):
        assert read.column(name).to_pylist() == getattr(table, name).tolist()
    assert read.column("sample").to_pylist() == table.sample_of().tolist()
    assert set(read.column("corpus").to_pylist()) == {"web"}
    first = [row for row in range(read.num_rows) if read.column("extent")[row].as_py() == 0]
    assert len(first) == 40
    said = json.loads(read.schema.metadata[b"tokenreel"])
    assert (said["order"], said["fingerprint"]) == ("megatron@1", order(folder).fingerprint)


def test_export_a_range_resolved(folder: Path, capsys: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    text = '[[corpus]]\nname = "web"\npath = "web.idx"\n[order]\nkind = "windows"\nrow_tokens = 64\nepochs = 0\n'
    path = written(folder, text)
    status, shown = call(capsys, "order", "export", path, "-o", folder / "a.parquet")
    assert (status, shown["error"]["code"]) == (2, "RCP045")
    words = ("--from", 3, "--to", 9, "--resolve")
    status, shown = call(capsys, "order", "export", path, "-o", folder / "a.parquet", *words)
    read = parquet.read_table(folder / "a.parquet")
    assert sorted(set(read.column("sample").to_pylist())) == list(range(3, 9))
    assert min(read.column("document").to_pylist()) >= 0
    lengths = read.column("length").to_pylist()
    assert sum(lengths) == 6 * 64


def test_compare_equal_orders_of_different_engines(folder: Path, capsys: Any) -> None:
    one = written(folder, RUN)
    maxtext = RUN.replace('"megatron"', '"maxtext-npy"')
    other = written(folder, maxtext, "other.toml")
    status, shown = call(capsys, "order", "compare", one, other)
    assert (status, shown["equal"], shown["samples"], shown["same"]) == (0, True, 40, 40)
    assert run("order", "compare", one, other).out.endswith("equal\n")


def test_compare_says_where_two_orders_first_differ(folder: Path, capsys: Any) -> None:
    one = written(folder, RUN)
    other = written(folder, RUN.replace("seed = 5", "seed = 6"), "other.toml")
    status, shown = call(capsys, "order", "compare", one, other)
    assert (status, shown["equal"], shown["first_difference"]) == (1, False, 0)
    shown = run("order", "compare", one, other)
    assert shown.status == 1
    assert "first difference: sample 0" in shown.out


def test_compare_finds_one_changed_token(folder: Path, capsys: Any) -> None:
    for suffix in ("bin", "idx"):
        (folder / f"copy.{suffix}").write_bytes((folder / f"web.{suffix}").read_bytes())
    one = written(folder, RUN)
    other = written(folder, RUN.replace("web.idx", "copy.idx"), "other.toml")
    assert call(capsys, "order", "compare", one, other)[0] == 0
    ids = np.fromfile(folder / "copy.bin", dtype=np.uint16)
    table = order(folder).spans(17, 18)
    ids[int(table.begin[0])] += 1
    ids.tofile(folder / "copy.bin")
    status, shown = call(capsys, "order", "compare", one, other)
    assert status == 1
    # The token may also be the label of the sample before it in the stream.
    assert shown["samples"] - shown["same"] in (1, 2)
    starts = order(folder).spans(0, 40)
    assert shown["first_difference"] <= 17
    assert len(starts.splits) == 41


def test_compare_orders_of_other_lengths(folder: Path, capsys: Any) -> None:
    text = '[[corpus]]\nname = "web"\npath = "web.idx"\n[order]\nkind = "stream"\nrow_tokens = 16\nrow_ahead = {}\n'
    one, other = written(folder, text.format(1)), written(folder, text.format(0), "other.toml")
    assert call(capsys, "order", "compare", one, other)[0] == 1
    status, shown = call(capsys, "order", "compare", one, other, "--inputs-only")
    assert status == (0 if shown["lengths"][0] == shown["lengths"][1] else 1)
    assert shown["first_difference"] is None
    assert call(capsys, "order", "compare", one, other, "--inputs-only", "--samples", 5, "--from", 2)[0] == 0


def test_find_is_locate_with_steps(folder: Path, capsys: Any) -> None:
    status, shown = call(capsys, "order", "find", written(folder, RUN), "--doc", 3, "--doc", 11)
    assert status == 0
    hits = order(folder).locate(0, [3, 11], 0, 40)
    assert [hit["sample"] for hit in shown["hits"]] == hits.sample.tolist()
    assert [hit["document"] for hit in shown["hits"]] == hits.document.tolist()
    assert [hit["step"] for hit in shown["hits"]] == [sample // 4 for sample in hits.sample.tolist()]
    assert f"{len(shown['hits'])} places" in run("order", "find", folder / "run.toml", "--doc", 3, "--doc", 11).out


def test_find_in_a_lineage_looks_at_its_own_steps(folder: Path, capsys: Any) -> None:
    path = written(folder, LINEAGE)
    status, shown = call(capsys, "order", "find", path, "--doc", 3)
    assert status == 0
    for hit in shown["hits"]:
        steps, corpus = ((0, 4), "web") if hit["segment"] == 0 else ((5, 9), "code")
        assert steps[0] <= hit["step"] <= steps[1]
        assert hit["corpus"] == corpus


def test_find_refuses_what_it_cannot_look_up(folder: Path, capsys: Any) -> None:
    path = written(folder, RUN)
    for words, code, wanted in (
        (("--doc", 10**6), "DOC001", 2),
        (("--doc", "https://a.example"), "DOC007", 1),
        (("--doc", 1, "--corpus", "wed"), "USE003", 2),
    ):
        status, shown = call(capsys, "order", "find", path, *words)
        assert (status, shown["error"]["code"]) == (wanted, code)


def test_find_by_id(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": f"text {k}", "url": f"u{k}"}) + "\n" for k in range(40))
    )
    recipe = '[tokenizer]\nname = "bytes"\n[[source]]\nname = "a"\npaths = ["a.jsonl"]\nid = "url"\n'
    (tmp_path / "recipe.toml").write_text(recipe)
    assert main(["build", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "corpus"), "--workers", "1"]) == 0
    text = '[[corpus]]\nname = "a"\npath = "corpus"\nsplit = "train"\n[order]\nkind = "windows"\nrow_tokens = 8\n'
    path = written(tmp_path, text)
    status, by_id = call(capsys, "order", "find", path, "--doc", "u17")
    assert status == 0, by_id
    status, by_number = call(capsys, "order", "find", path, "--doc", 17)
    assert by_id == by_number
    assert by_id["hits"]
    assert call(capsys, "order", "find", path, "--doc", "u99")[1]["error"]["code"] == "DOC007"


def test_a_missing_run_file(tmp_path: Path, capsys: Any) -> None:
    for command in ("show", "export"):
        extra = ("-o", tmp_path / "x") if command == "export" else ()
        status, shown = call(capsys, "order", command, tmp_path / "absent.toml", *extra)
        assert (status, shown["error"]["code"]) == (3, "RCP001")
