"""merge and adopt through the command line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import tokenreel
from tests.cli.command import run
from tests.corpus.pairs import flat, write_pair

A = [[[1, 2], [3, 0]], [[0]]]
B = [[[4, 0]], [[5, 6, 7, 0]]]


def test_merge_keeps_every_document(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", A)
    write_pair(tmp_path / "more/b", B)
    write_pair(tmp_path / "more/c", A)
    shown = run("merge", tmp_path / "a", tmp_path / "more", tmp_path / "all", "--json")
    assert shown.status == 0, shown.err
    for file in shown.json["files"]:
        assert hashlib.sha256(Path(file["path"]).read_bytes()).hexdigest() == file["sha256"]
    merged = tokenreel.open(tmp_path / "all")
    assert [ids.tolist() for ids in merged] == flat(A) + flat(B) + flat(A)
    assert merged.sequences_count == 8


def test_merge_refusals_leave_nothing(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", A)
    write_pair(tmp_path / "b", B, "int32")
    before = sorted(tmp_path.iterdir())
    cases = [
        ((tmp_path / "a", tmp_path / "b", tmp_path / "all"), 1, "MEG027"),
        ((tmp_path / "a", tmp_path / "a"), 2, "USE005"),
        ((tmp_path / "a",), 2, "USE003"),
        ((tmp_path / "absent", tmp_path / "all"), 3, "STO001"),
    ]
    for paths, status, code in cases:
        shown = run("merge", *paths, "--json")
        assert shown.status == status
        assert shown.json["error"]["code"] == code
    assert sorted(tmp_path.iterdir()) == before
    assert run("merge", tmp_path / "a", tmp_path / "b", tmp_path / "all", "--dtype", "int32").status == 0


def test_adopt_writes_the_answer_once(tmp_path: Path) -> None:
    write_pair(tmp_path / "train/part-0", A)
    write_pair(tmp_path / "val/part-0", B)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    shown = run("adopt", tmp_path, "--boundary", "suffix=0", "--vocab", "8", "--json")
    assert shown.status == 0, shown.err
    assert {path: path.read_bytes() for path in before} == before
    corpus = tokenreel.open(tmp_path)
    assert corpus.boundary.suffix == (0,)
    assert corpus.splits == ("train", "val")
    train = corpus.split("train")
    assert train.identity().digest == shown.json["splits"]["train"]["identity"]
    assert train.table().key.kind == "identity"
    assert train.manifest is not None
    assert train.manifest.splits["train"].shards[0].max_id == 3
    again = run("adopt", tmp_path, "--boundary", "suffix=0", "--json")
    assert (again.status, again.json["error"]["code"]) == (2, "USE006")
    (tmp_path / "val/part-0.bin").write_bytes(b"12")
    with pytest.raises(tokenreel.ManifestError, match="MAN004"):
        tokenreel.open(tmp_path)


@pytest.mark.parametrize(
    ("options", "code"),
    [(("--boundary", "suffix=7"), "TOK040"), (("--boundary", "suffix=0", "--vocab", "3"), "TOK041")],
)
def test_adopt_refuses_what_the_data_denies(tmp_path: Path, options: tuple[str, ...], code: str) -> None:
    write_pair(tmp_path / "part-0", A)
    shown = run("adopt", tmp_path, *options, "--json")
    assert (shown.status, shown.json["error"]["code"]) == (1, code)
    assert not (tmp_path / "tokenreel.json").exists()


def test_adopt_records_accepted_exceptions(tmp_path: Path) -> None:
    write_pair(tmp_path / "part-0", [[[1, 0, 2, 0]], [[3]]])
    shown = run("adopt", tmp_path, "--boundary", "suffix=0", "--accept", "TOK040", "--json")
    assert shown.status == 0
    assert shown.json["exceptions"] == {"": {"absent": 1, "inside": 1}}
    assert tokenreel.open(tmp_path).split_name is None
