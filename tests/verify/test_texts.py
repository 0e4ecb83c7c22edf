"""Splits re-derived from decoded text, and documents compared with their source."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.verify.corpora import changed, files_of
from tokenreel.corpus.receipts import InputFile
from tokenreel.store import dumps_canonical
from tokenreel.verify import Report, verify
from tokenreel.verify.sources import Reread
from tokenreel.verify.verify import verify_store


def not_checked(report: Report) -> str:
    return " ".join(note.line() for note in report.not_checked)


def test_every_document_is_checked_at_full_and_a_sample_at_quick(mahan: Path) -> None:
    assert verify(mahan, level="full").facts["splits_rederived"] == 16
    assert verify(mahan, sample=5).facts["splits_rederived"] == 5


def test_documents_in_the_wrong_split_are_named(mahan: Path) -> None:
    files = files_of(mahan)
    for suffix in (".bin", ".idx"):  # the pairs of one part change places
        one, two = f"shards/train/part-000001{suffix}", f"shards/validation/part-000001{suffix}"
        files[one], files[two] = files[two], files[one]
    report = verify_store(changed(files, "nothing", None))
    wrong = {(f.shard, f.document) for f in report.findings if f.code == "SPL030"}
    assert len(wrong) == report.counts["SPL030"] == 8
    assert {shard for shard, _ in wrong} == {"shards/train/part-000001", "shards/validation/part-000001"}


def test_a_tokenizer_that_nothing_calls_lossless_is_not_checked(mahan: Path) -> None:
    files = files_of(mahan)
    config = json.loads(files["run_config.json"])
    config["tokenizer"]["lossless"] = False
    for path in [path for path in files if path.startswith("receipts/")]:
        receipt = json.loads(files[path])
        receipt["lossless"] = {"checked": 4, "decoded_back": 3}
        files[path] = dumps_canonical(receipt)
    report = verify_store(changed(files, "run_config.json", dumps_canonical(config)))
    assert "SPL030" not in report.counts
    assert "nothing records that the tokenizer is lossless" in not_checked(report)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"special_in_text": "drop"}, "special tokens spelled in text were dropped"),
        ({"split_rule": {"rule": "every-nth", "n": 2}}, "more than the text"),
        ({"split_rule": {"rule": "by-id", "ids": 1, "sha256": "0" * 64}}, "more than the text"),
    ],
)
def test_what_cannot_be_rederived_is_never_a_finding(mahan: Path, change: dict[str, object], why: str) -> None:
    files = files_of(mahan)
    config = {**json.loads(files["run_config.json"]), **change}
    report = verify_store(changed(files, "run_config.json", dumps_canonical(config)))
    assert "SPL030" not in report.counts
    assert why in not_checked(report)


def test_another_tokenizer_is_refused(mahan: Path, native: Path, tmp_path: Path) -> None:
    path = native / "tokenizer" / "tokenizer.json"
    assert verify(mahan, tokenizer=path).exit_status == 0
    (tmp_path / "tokenizer.json").write_bytes(path.read_bytes() + b"\n")
    report = verify(mahan, tokenizer=tmp_path / "tokenizer.json")
    assert set(report.counts) == {"MAN057"}


# ---- from the source -----------------------------------------------------------------------------------------------


class Reader:
    """Reads the inputs of the small corpora, three records at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, listed: InputFile) -> Iterator[Reread]:
        rows = [json.loads(line) for line in (self.folder / listed.path).read_text("utf-8").splitlines()]
        for at in range(0, len(rows), 3):
            some = rows[at : at + 3]
            yield Reread([row["text"] for row in some], [row["id"] for row in some], "letters")


@pytest.mark.parametrize("layout", ["mahan", "native"])
def test_documents_are_what_their_source_encodes_to(layout: str, request: pytest.FixtureRequest) -> None:
    out: Path = request.getfixturevalue(layout)
    report = verify(out, source=out.parent, source_reader=Reader(out.parent))
    assert (report.exit_status, report.facts["documents_from_source"]) == (0, 16)


def test_a_changed_document_is_named_with_its_byte(mahan: Path, tmp_path: Path) -> None:
    shutil.copytree(mahan.parent, tmp_path / "all")
    path = tmp_path / "all/out/shards/train/part-000001.bin"
    data = bytearray(path.read_bytes())
    data[2] ^= 1
    path.write_bytes(bytes(data))
    folder = tmp_path / "all"
    report = verify(folder / "out", source=folder, source_reader=Reader(folder), select=["DOC012"])
    places = [(f.path, f.offset, f.document) for f in report.findings]
    assert places == [("shards/train/part-000001.bin", 2, 0)] or places[0][1] == 2


def test_a_changed_input_is_a_finding_and_not_read(mahan: Path, tmp_path: Path) -> None:
    shutil.copytree(mahan.parent, tmp_path / "all")
    with (tmp_path / "all/in0.jsonl").open("a") as file:
        file.write('{"text": "more", "id": "m"}\n')
    report = verify(tmp_path / "all/out", source=tmp_path / "all", source_reader=Reader(tmp_path / "all"))
    assert set(report.counts) == {"MAN058"}
    assert report.facts["documents_from_source"] == 8


def test_an_input_that_is_not_there_leaves_the_check_unmade(mahan: Path, tmp_path: Path) -> None:
    report = verify(mahan, source=tmp_path, source_reader=Reader(tmp_path))
    assert (report.exit_status, report.counts) == (4, {})


def test_without_a_reader_inputs_are_hashed_and_texts_not_checked(mahan: Path) -> None:
    report = verify(mahan, source=mahan.parent)
    assert report.exit_status == 4
    assert "no reader of sources" in not_checked(report)
