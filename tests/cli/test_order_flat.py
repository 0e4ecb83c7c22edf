"""Orders over llm.c shards and headerless files, through the entry point; and how well orders are shuffled."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import run
from tests.cli.test_order import call, written
from tests.index.data import lengths_of, write
from tokenreel.corpus.opening import open_corpus
from tokenreel.order.quality import shuffle_quality
from tokenreel.order.streams_llmc import LlmcStream

GOLDEN = Path(__file__).parents[1] / "golden"
HOBBY = json.loads((GOLDEN / "hobbylm/data_generator.json").read_text())


def run_file(path: str, order: str, more: str = "") -> str:
    return f'[[corpus]]\nname = "c"\npath = "{path}"\n{more}\n[order]\n{order}\n[schedule]\nbatch = 4\nsteps = 9\n'


def llmc(path: Path, count: int, first: int = 0) -> None:
    head = struct.pack("<3i", 20240520, 1, count).ljust(1024, b"\0")
    path.write_bytes(head + ((np.arange(count) + first) % 50000).astype("<u2").tobytes())


def samples(capsys: Any, path: Path, numbers: range) -> list[dict[str, Any]]:
    return [call(capsys, "order", "show", path, "--sample", k)[1]["segments"][0]["sample"] for k in numbers]


def test_hobbylm_s_batches_from_its_own_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(GOLDEN / "hobbylm/mix", tmp_path / "mix")
    text = run_file("mix", f'kind = "hobbylm-stream"\nrow_tokens = {HOBBY["S"]}\nbatch = {HOBBY["B"]}\nworld = 2')
    path = written(tmp_path, text)
    got = samples(capsys, path, range(3 * 2 * HOBBY["B"]))
    for k, sample in enumerate(got):
        step, rank, row = k // (2 * HOBBY["B"]), k // HOBBY["B"] % 2, k % HOBBY["B"]
        x, y = HOBBY["batches"][str(rank)][step]
        assert sample["input_ids"] == x[row]
        assert sample["label"] == y[row][-1]
        assert [e["document"] for e in sample["extents"]] == [-1]


def test_llm_c_s_order_and_where_a_document_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k, name in enumerate(("val_000000", "train_000001", "train_000002")):
        shutil.copy(GOLDEN / f"llmc/fineweb_{name}.bin", tmp_path / f"part_{k}.bin")
    order = 'kind = "llmc-stream"\nrow_tokens = 8\nbatch = 2\nworld = 2\nshuffle = true\nsteps = 9'
    plain = written(tmp_path, run_file(".", order))
    said = written(tmp_path, run_file(".", order, 'boundary = "prefix=50256"'), "said.toml")
    status, shown = call(capsys, "order", "show", plain)
    corpus = open_corpus(tmp_path, boundary="prefix=50256")
    made = LlmcStream(corpus.stream_table().key, 8, 2, corpus.shard_tokens, 2, True, steps=9)
    facts = shown["segments"][0]
    assert (status, facts["fingerprint"], facts["samples"]) == (0, made.fingerprint, 36)
    # A declared boundary adds documents and changes nothing else.
    assert call(capsys, "order", "show", said)[1]["segments"][0]["fingerprint"] == made.fingerprint
    for sample, known in zip(samples(capsys, plain, range(8)), samples(capsys, said, range(8)), strict=True):
        begin = int(made.spans(sample["number"], sample["number"] + 1).begin[0])
        assert sample["input_ids"] == corpus.stream(begin, begin + 8).tolist()
        assert sample["digest"] == known["digest"]
        assert sum(e["length"] for e in known["extents"]) == 8
        for extent in known["extents"]:
            ids = corpus[extent["document"]][extent["start"] : extent["start"] + extent["length"]]
            assert ids.tolist() == corpus.stream(extent["begin"], extent["begin"] + extent["length"]).tolist()
    # Document 3 begins in what the first shard loses, and goes on into the second.
    status, found = call(capsys, "order", "find", said, "--doc", "3")
    edges = corpus.edges()
    assert status == 0
    assert {hit["document"] for hit in found["hits"]} == {3}
    assert edges[3] < 128 <= min(hit["begin"] for hit in found["hits"])
    assert all(edges[3] <= hit["begin"] and hit["begin"] + hit["length"] <= edges[4] for hit in found["hits"])
    status, found = call(capsys, "order", "find", plain, "--doc", "3")
    assert (status, found["error"]["code"]) == (1, "DOC002")


def test_nanogpt_s_train_bin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = np.arange(300, 1300, dtype="<u2")
    ids.tofile(tmp_path / "train.bin")
    ids[:50].tofile(tmp_path / "val.bin")
    order = 'kind = "nanogpt"\nrow_tokens = 16\nbatch = 4'
    path = written(tmp_path, run_file(".", order, 'split = "train"\ndtype = "uint16"'))
    got = samples(capsys, path, range(4))
    assert [sample["input_ids"][0] - 300 for sample in got] == [391, 589, 476, 448]
    assert all(sample["label"] == sample["input_ids"][-1] + 1 for sample in got)
    status, shown = call(capsys, "order", "show", written(tmp_path, run_file("train.bin", order), "bare.toml"))
    assert (status, shown["error"]["code"]) == (1, "FLT001")


def test_stream_windows_and_mix_need_no_boundary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llmc(tmp_path / "a_0.bin", 500)
    llmc(tmp_path / "a_1.bin", 300, 500)
    for kind in ("stream", "windows"):
        path = written(tmp_path, run_file(".", f'kind = "{kind}"\nrow_tokens = 10'))
        got = samples(capsys, path, range(48, 52))
        assert all(s["input_ids"] == list(range(s["input_ids"][0], s["input_ids"][0] + 10)) for s in got)
        status, mixed = call(capsys, "mix", path)
        assert status == 0
        assert mixed
    status, shown = call(capsys, "order", "compare", path, path)
    assert (status, shown["equal"]) == (0, True)
    status, shown = call(capsys, "order", "export", path, "-o", tmp_path / "x.parquet", "--resolve")
    assert (status, shown["error"]["code"]) == (1, "DOC002")


# ---- --quality ----------------------------------------------------------------------------------------------------------


def quality_run(folder: Path, kind: str, name: str) -> Path:
    return written(folder, run_file("data", f'kind = "{kind}"\nrow_tokens = 16'), name)


def test_quality_says_what_a_shuffle_does(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    llmc(tmp_path / "data/a_0.bin", 40_001)
    shown = {}
    for kind in ("stream", "windows"):
        ran = run("order", "show", quality_run(tmp_path, kind, f"{kind}.toml"), "--quality", "--json")
        assert ran.status == 0, ran.err
        (facts,) = ran.json["segments"]
        shown[kind] = facts["quality"]
    assert shown["stream"]["samples"] == shown["windows"]["samples"] == 2500
    assert shown["stream"]["adjacent"] == pytest.approx(2499 / 2500)
    assert shown["windows"]["adjacent"] < 0.01
    assert shown["stream"]["mean_run"] > 30 > shown["windows"]["mean_run"]
    assert shown["stream"]["window_entropy"] < 4 < shown["windows"]["window_entropy"]
    assert shown["stream"]["correlation"] > 0.99 > abs(shown["windows"]["correlation"]) + 0.9
    assert shown["stream"]["reads"] == 3  # one for each 1,024 samples
    assert shown["stream"]["bytes_per_read"] == pytest.approx((40_000 * 2 + 3 * 2) / 3)  # a buffer ends with a label
    text = run("order", "show", tmp_path / "stream.toml", "--quality").out
    assert "adjacent: 0.9996" in text
    assert "bytes per read: " in text


def test_quality_counts_in_each_segment_from_its_first_sample(tmp_path: Path) -> None:
    write(tmp_path / "web", lengths_of(1))
    write(tmp_path / "code", lengths_of(2), first=12)
    component = 'order = {{kind = "windows", corpus = "{0}", row_tokens = 8, epochs = 0}}'
    text = "".join(f'[[corpus]]\nname = "{name}"\npath = "{name}.idx"\n' for name in ("web", "code"))
    text += '[order]\nkind = "mix"\nblock = 8\n'
    for name in ("web", "code"):
        text += f'[[order.component]]\nname = "{name}"\nweight = 0.5\n{component.format(name)}\n'
    text += "[schedule]\nbatch = 4\n[[segment]]\nfirst = 0\nlast = 9\n[[segment]]\nfirst = 10\nlast = 19\n"
    ran = run(
        "order", "show", written(tmp_path, text), "--quality", "--quality-samples", "64", "--segment", "1", "--json"
    )
    assert ran.status == 0, ran.err
    (facts,) = ran.json["segments"]
    assert (facts["quality"]["first"], facts["quality"]["samples"], facts["quality"]["sources"]) == (40, 64, 2)
    assert facts["quality"]["entropy"] == 1.0  # blocks of 8 are exact
    assert facts["quality"]["longest_run"] <= 8


def test_quality_is_the_function_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    llmc(tmp_path / "data/a_0.bin", 4001)
    path = quality_run(tmp_path, "stream", "run.toml")
    status, shown = call(capsys, "order", "show", path, "--quality", "--quality-samples", 100)
    from tokenreel.order.stream import StreamOrder

    made = StreamOrder.over(open_corpus(tmp_path / "data").stream_table(), 16)
    assert (status, shown["segments"][0]["quality"]) == (0, shuffle_quality(made, 0, 100).as_dict())
    status, shown = call(capsys, "order", "show", path, "--quality", "--quality-samples", 1)
    assert (status, shown["error"]["code"]) == (1, "ORD002")
