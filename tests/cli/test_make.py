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
    assert (shown.json["documents_in"], shown.json["documents_out"]) == (6, 6)
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
        ((tmp_path / "a", tmp_path / "b", tmp_path / "all"), 2, "MEG027"),
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


def test_merge_says_what_it_counted_and_never_writes_over_silently(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", A)
    write_pair(tmp_path / "b", B)
    first = run("merge", tmp_path / "a", tmp_path / "b", tmp_path / "all")
    assert first.out.startswith("4 documents in = 4 out, 11 tokens\n")
    for left in (".bin", ".idx"):
        before = (tmp_path / f"all{left}").read_bytes()
        (tmp_path / ("all.idx" if left == ".bin" else "all.bin")).unlink(missing_ok=True)
        again = run("merge", tmp_path / "a", tmp_path / "all", "--json")
        assert (again.status, again.json["error"]["code"]) == (2, "USE011")
        assert (tmp_path / f"all{left}").read_bytes() == before
        assert run("merge", tmp_path / "a", tmp_path / "all", "--force").status == 0
    assert [ids.tolist() for ids in tokenreel.open(tmp_path / "all")] == flat(A)


@pytest.mark.parametrize("record", ["run_config.json", "COMPLETE.json", "tokenreel.json"])
def test_merge_never_writes_into_a_finished_corpus(tmp_path: Path, record: str) -> None:
    write_pair(tmp_path / "a", A)
    write_pair(tmp_path / "corpus/shards/train/part-000000", B)
    (tmp_path / "corpus" / record).write_text("{}")
    before = (tmp_path / "corpus/shards/train/part-000000.bin").read_bytes()
    for name in ("part-000000", "new/part-000001"):
        target = tmp_path / "corpus/shards/train" / name
        shown = run("merge", tmp_path / "a", target, "--force", "--json")
        assert (shown.status, shown.json["error"]["code"]) == (2, "USE012")
    assert (tmp_path / "corpus/shards/train/part-000000.bin").read_bytes() == before
    assert not (tmp_path / "corpus/shards/train/new").exists()


def test_a_type_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", A)
    shown = run("merge", tmp_path / "a", tmp_path / "all", "--dtype", "nonsense", "--json")
    assert (shown.status, shown.json["error"]["code"]) == (2, "MEG030")


@pytest.mark.parametrize("number", ["0", "-1"])
def test_workers_are_one_or_more(tmp_path: Path, number: str) -> None:
    for command in (("build", tmp_path / "r.toml", "--out", tmp_path / "o"), ("demo", tmp_path / "d")):
        shown = run(*command, "--workers", number, "--json")
        assert (shown.status, shown.json["error"]["code"]) == (2, "USE003")
        assert "--workers" in shown.json["error"]["message"]
    assert list(tmp_path.iterdir()) == []


def test_a_date_that_is_none_is_refused(tmp_path: Path) -> None:
    shown = run("build", tmp_path / "r.toml", "--out", tmp_path / "o", "--built-at", "notadate", "--json")
    assert (shown.status, shown.json["error"]["code"]) == (2, "USE003")


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
    assert f"already adopted (train: identity {train.identity().digest}; val: " in again.json["error"]["message"]
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
