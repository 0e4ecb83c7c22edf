"""convert and merge through the real entry point."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import run
from tests.convert.test_pairs import CASES, make


def test_convert_says_what_it_proved_and_goes_on(tmp_path: Path) -> None:
    make(tmp_path / "in", CASES[0])
    words = ("convert", tmp_path / "in", tmp_path / "out", "--to", "llmc", "--boundary", "suffix=2", "--json")
    done = run(*words)
    assert done.status == 0, done.err
    assert done.json["documents"] == 5
    assert done.json["shards"] == 3
    assert done.json["kept_shards"] == 0
    assert len(done.json["identity"]) == 64
    assert done.json["exceptions_in_identity"]
    assert {"path", "bytes", "sha256"} == set(done.json["files"][0])
    again = run(*words)
    assert again.status == 0
    assert again.json["kept_shards"] == 3
    said = run(*words[:-1])
    assert f"proved: source and target have the identity {done.json['identity']}" in said.out
    assert run("verify", tmp_path / "out", "--level", "full").status == 0


def test_a_refusal_names_the_document_and_the_reason(tmp_path: Path) -> None:
    make(tmp_path / "in", next(case for case in CASES if case.name == "a separator inside"))
    refused = run("convert", tmp_path / "in", tmp_path / "out", "--to", "npy", "--boundary", "suffix=2", "--json")
    assert refused.status == 1
    assert refused.json["error"]["code"] == "TOK044"
    assert refused.json["error"]["where"]["document"] == 0
    assert not (tmp_path / "out").exists()


def test_a_source_that_changed_since_it_was_recorded_is_exit_1(tmp_path: Path) -> None:
    source = make(tmp_path / "in", CASES[0])
    assert run("adopt", source, "--boundary", "suffix=2").status == 0
    payload = next(path for path in sorted(source.glob("*.bin")) if path.stat().st_size)
    payload.write_bytes(bytes([payload.read_bytes()[0] ^ 1]) + payload.read_bytes()[1:])
    words = ("convert", source, tmp_path / "out", "--to", "megatron", "--json")
    refused = run(*words)
    assert (refused.status, refused.json["error"]["code"]) == (1, "DOC028")
    done = run(*words, "--accept", "DOC028")
    assert (done.status, done.json["accepted"]) == (0, ["DOC028"])


def test_exceptions_lost_are_exit_1_unless_accepted(tmp_path: Path) -> None:
    make(tmp_path / "in", next(case for case in CASES if case.name == "a document without its suffix"))
    words = ("--to", "mds", "--boundary", "suffix=2", "--to-boundary", "none")
    lost = run("convert", tmp_path / "in", tmp_path / "a", *words)
    assert lost.status == 1
    assert "TOK046" in lost.out
    assert run("convert", tmp_path / "in", tmp_path / "b", *words, "--accept", "TOK046").status == 0


def test_ids_without_a_header_take_their_dtype_as_given(tmp_path: Path) -> None:
    source = tmp_path / "in/train.bin"
    source.parent.mkdir()
    np.array([5, 6, 2, 7, 2], "<u2").tofile(source)
    unknown = run("convert", source, tmp_path / "a", "--to", "mds", "--boundary", "suffix=2", "--json")
    assert (unknown.status, unknown.json["error"]["code"]) == (1, "FLT001")
    words = ("convert", source, tmp_path / "a", "--to", "megatron", "--boundary", "suffix=2", "--json")
    made = run(*words, "--from-dtype", "uint16", "--dtype", "int32")
    assert made.json["dtype"] == "int32"
    assert made.json["documents"] == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--to", "nothing"), "USE003"),
        (("--to", "pbin"), "USE014"),
        (("--to", "mds", "--docs-per-shard", "0"), "USE003"),
        (("--to", "mds", "--dtype", "float32"), "USE003"),
        (("--to", "mds", "--accept", "MEG004"), "USE003"),
        (("--to", "mds", "--set", "x"), "USE003"),
    ],
)
def test_usage(tmp_path: Path, words: tuple[str, ...], code: str) -> None:
    make(tmp_path / "in", CASES[0])
    said = run("convert", tmp_path / "in", tmp_path / "out", "--boundary", "suffix=2", "--json", *words)
    assert said.json["error"]["code"] == code
    assert said.status in (1, 2)


def test_merge_with_a_format(tmp_path: Path) -> None:
    for name in "ab":
        make(tmp_path / name, CASES[0])
    words = ("merge", tmp_path / "a", tmp_path / "b", tmp_path / "out", "--boundary", "suffix=2", "--json")
    merged = run(*words, "--to", "ounce")
    assert merged.status == 0, merged.err
    assert merged.json["documents"] == 10
    assert merged.json["shards"] == 1
    assert run(*words).json["error"]["code"] == "USE003", "--boundary goes with --to"


def test_shards_of_hobbylm_s_writer(tmp_path: Path) -> None:
    mix = Path(__file__).parents[1] / "golden/hobbylm/mix"
    done = run("convert", mix, tmp_path / "out", "--to", "datatrove", "--boundary", "prefix=50256", "--json")
    assert (done.json["documents"], done.json["tokens"]) == (10, 344)
    assert json.loads((tmp_path / "out/convert.json").read_text())["converted"]["documents"] == 10
