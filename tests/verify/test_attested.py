"""Checksums that others recorded, receipts of a run, annotations, streams without tables."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from tests.convert.test_pairs import CASES, make
from tests.convert.test_repair import EOT, shard
from tokenreel.convert import convert
from tokenreel.convert.adopt import adopt
from tokenreel.errors import ManifestError, UsageError
from tokenreel.verify import inspect, verify
from tokenreel.verify.attested import NOT_ATTESTED

ROOT = Path(__file__).parents[2]


def unchecked(path: Path, **options: str) -> list[str]:
    return [note.what for note in verify(path, level="full", **options).not_checked]  # type: ignore[arg-type]


def test_sha256sums(tmp_path: Path) -> None:
    source = make(tmp_path / "in", CASES[0])
    assert NOT_ATTESTED in unchecked(source)
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(source.iterdir())]
    (source / "SHA256SUMS").write_text("".join(lines))
    assert verify(source, level="full").status == "ok"
    assert NOT_ATTESTED not in unchecked(source)
    payload = source / "part-0.bin"
    payload.write_bytes(payload.read_bytes()[:-1] + b"\x07")
    report = verify(source, level="full")
    assert [(f.code, f.path) for f in report.findings] == [("MAN040", "part-0.bin")]
    (source / "part-2.bin").unlink()
    assert "MAN004" in verify(source).counts


def test_sha256sums_of_names_with_line_ends(tmp_path: Path) -> None:
    source = make(tmp_path / "in", CASES[0])
    for at, name in enumerate(("a\u2028b", "c\x85d", "e\\f")):
        for end in ("bin", "idx"):
            (source / f"part-{at}.{end}").rename(source / f"{name}.{end}")
    lines = []
    for path in sorted(source.iterdir()):
        # As sha256sum spells it: a backslash first where the name has one.
        mark, name = ("\\", path.name.replace("\\", "\\\\")) if "\\" in path.name else ("", path.name)
        lines.append(f"{mark}{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n")
    (source / "SHA256SUMS").write_text("".join(lines))
    assert NOT_ATTESTED not in unchecked(source)
    for payload in source.glob("*.bin"):
        payload.write_bytes(payload.read_bytes()[:-1] + b"\x07")
    assert verify(source, level="full").counts["MAN040"] == 3


@pytest.mark.parametrize("hashes", ["sha1", "xxh64", "sha256"])
def test_hashes_of_an_mds_index(tmp_path: Path, hashes: str) -> None:
    import xxhash

    convert(make(tmp_path / "in", CASES[0]), tmp_path / "out", to="mds", boundary="suffix=2")
    for record in ("tokenreel.json", "convert.json"):
        (tmp_path / "out" / record).unlink()
    index = tmp_path / "out/index.json"
    value = json.loads(index.read_text())
    for row in value["shards"]:
        data = (tmp_path / "out" / row["raw_data"]["basename"]).read_bytes()
        digest = xxhash.xxh64(data).hexdigest() if hashes == "xxh64" else hashlib.new(hashes, data).hexdigest()
        row["raw_data"]["hashes"] = {hashes: digest}
    index.write_text(json.dumps(value))
    assert verify(tmp_path / "out", level="full").status == "ok"
    value["shards"][1]["raw_data"]["hashes"][hashes] = "00"
    index.write_text(json.dumps(value))
    assert verify(tmp_path / "out", level="full").counts == {"MAN040": 1}


def test_a_receipt_lets_what_did_not_change_be(tmp_path: Path) -> None:
    source = make(tmp_path / "in", CASES[0])
    receipt = tmp_path / "receipt.json"
    assert verify(source, level="full", boundary="suffix=2", receipt=receipt).status == "ok"
    again = verify(source, level="full", boundary="suffix=2", since=receipt)
    assert again.facts["unchanged_shards"] == 3
    assert again.facts["documents_read"] == 0
    payload = source / "part-1.bin"
    payload.write_bytes(b"\x08\x00\x07\x00")
    os.utime(payload, ns=(1, 1))
    later = verify(source, level="full", boundary="suffix=2", since=receipt)
    assert later.facts["unchanged_shards"] == 2
    assert later.counts == {"TOK021": 1}
    with pytest.raises(UsageError, match="USE017"):
        verify(source, level="full", boundary="suffix=3", since=receipt)
    with pytest.raises(UsageError, match="USE003"):
        verify(source, since=receipt)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ManifestError, match="MAN003"):
        verify(source, level="full", since=tmp_path / "other.json")


def test_an_annotation_is_one_line_whatever_is_in_it(tmp_path: Path) -> None:
    source = make(tmp_path / "a,b: c", CASES[0])
    (source / "part-0.idx").write_bytes(b"x")
    (line,) = verify(source).annotations()
    assert re.fullmatch(r"::error file=.*/a%2Cb%3A c/part-0\.idx,title=MEG\d+::MEG.*", line)


def test_the_hook_names_a_command_that_is_there() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert re.search(r"^- id: tokenreel-verify$", text, re.MULTILINE)
    assert re.search(r"^  entry: tokenreel verify$", text, re.MULTILINE)
    pattern = re.search(r"^  files: (.*)$", text, re.MULTILINE)
    assert pattern is not None
    for name in ("a/part-0.idx", "x.ds.index", "shard.00000.mds", "tokenreel.json"):
        assert re.search(pattern[1], name), name


def test_a_stream_that_begins_inside_a_document_says_so(tmp_path: Path) -> None:
    shard(tmp_path / "a_1.bin", [5, 6, EOT, 7])
    report = verify(tmp_path, level="full", boundary=f"prefix={EOT}")
    assert report.status == "ok"
    assert report.counts == {"TOK027": 1}
    assert any("begins inside a document" in note for note in inspect(tmp_path, boundary=f"prefix={EOT}").notes)
    shard(tmp_path / "a_0.bin", [EOT, 1])
    assert verify(tmp_path, level="full", boundary=f"prefix={EOT}").counts == {}


def test_documents_of_a_stream_go_on_from_file_to_file(tmp_path: Path) -> None:
    np.array([5, 2, 6], "<u2").tofile(tmp_path / "train_0.bin")
    np.array([7, 2, 8, 2], "<u2").tofile(tmp_path / "train_1.bin")
    made = adopt(tmp_path, boundary="suffix=2", dtype="uint16")
    assert [s.documents for s in made.manifest.splits["train"].shards] == [2, 1]
    report = verify(tmp_path, level="full")
    assert (report.status, report.facts["documents"], report.facts["shards"]) == ("ok", 3, 2)
    value = json.loads((tmp_path / "tokenreel.json").read_text())
    for field, change in (("documents", 1), ("sequences", 1)):
        value["splits"]["train"]["shards"][0][field] -= change
        value["splits"]["train"]["shards"][1][field] += change
    (tmp_path / "tokenreel.json").write_text(json.dumps(value, indent=1) + "\n")
    assert verify(tmp_path, level="full").counts["MAN052"] == 2


def test_statistics_of_every_shard(tmp_path: Path) -> None:
    source = make(tmp_path / "in", next(case for case in CASES if case.name == "a document without its suffix"))
    facts = verify(source, level="full", boundary="suffix=2").facts["special"]
    assert facts["part-0"]["ending_with_suffix"] == round(2 / 3, 6)
    assert facts["part-0"]["inside"] == 0


def test_a_headerless_file_names_the_flags_that_settle_it(tmp_path: Path) -> None:
    np.array([5, 2, 6, 2], "<u2").tofile(tmp_path / "train.bin")
    (finding,) = inspect(tmp_path).findings
    assert (finding.code, "--dtype" in str(finding.expected)) == ("FLT001", True)
    assert inspect(tmp_path, dtype="uint16").formats == ("raw-uint16",)
