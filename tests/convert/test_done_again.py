"""A conversion that came to its end, run again: what changed since is found, in what was written and in what was read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.convert.test_pairs import CASES, make
from tokenreel.convert import convert
from tokenreel.convert.adopt import adopt
from tokenreel.errors import DocumentError, UsageError

SEVERAL = CASES[0]


def flip(path: Path) -> None:
    """Change one bit, and neither size nor time."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_any_file_that_changed_is_found(tmp_path: Path) -> None:
    source, out = make(tmp_path / "in", SEVERAL), tmp_path / "out"
    words = ("convert", source, out, "--to", "megatron-v1", "--boundary", "suffix=2", "--json")
    first = run(*words)
    assert first.status == 0
    assert run(*words).json["kept_shards"] == 3
    for file in first.json["files"]:
        path = out / file["path"]
        whole = path.read_bytes()
        flip(path)
        with pytest.raises(DocumentError, match="DOC025") as caught:
            convert(source, out, to="megatron-v1", boundary="suffix=2")
        assert caught.value.where["path"] == str(path)
        assert caught.value.expected == file["sha256"]
        path.write_bytes(whole)
    path.unlink()
    gone = run(*words)
    assert (gone.status, gone.json["error"]["code"], gone.json["error"]["found"]) == (1, "DOC025", "no such file")
    path.write_bytes(whole + b"x")
    longer = run(*words).json["error"]
    assert (longer["expected"], longer["found"]) == (f"{len(whole)} bytes", f"{len(whole) + 1} bytes")
    path.write_bytes(whole)
    assert run(*words).status == 0


def test_several_files_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    source, out = make(tmp_path / "in", SEVERAL), tmp_path / "out"
    convert(source, out, to="megatron-v1", boundary="suffix=2")
    for path in (out / "part-000000.bin", out / "part-000002.bin"):
        flip(path)
    with pytest.raises(DocumentError, match="2 files are not as they were written") as caught:
        convert(source, out, to="megatron-v1", boundary="suffix=2", workers=1)
    assert caught.value.where["path"] == str(out / "part-000000.bin")


def test_a_manifest_that_says_something_else(tmp_path: Path) -> None:
    source, out = make(tmp_path / "in", SEVERAL), tmp_path / "out"
    convert(source, out, to="megatron-v1", boundary="suffix=2")
    whole = (out / "tokenreel.json").read_bytes()
    value = json.loads(whole)
    value["splits"][""]["shards"][0]["files"][0]["sha256"] = "0" * 64
    (out / "tokenreel.json").write_text(json.dumps(value))
    with pytest.raises(DocumentError, match="DOC025"):
        convert(source, out, to="megatron-v1", boundary="suffix=2")
    (out / "tokenreel.json").unlink()
    with pytest.raises(DocumentError, match="DOC025"):
        convert(source, out, to="megatron-v1", boundary="suffix=2")
    (out / "tokenreel.json").write_bytes(whole)
    assert convert(source, out, to="megatron-v1", boundary="suffix=2").kept_shards == 3


def test_another_source_under_the_same_names_is_not_done(tmp_path: Path) -> None:
    source, out = make(tmp_path / "in", SEVERAL), tmp_path / "out"
    words = ("convert", source, out, "--to", "megatron-v1", "--boundary", "suffix=2", "--json")
    assert run(*words).status == 0
    data = (source / "part-0.bin").read_bytes()
    (source / "part-0.bin").write_bytes(b"\4\0" + data[2:])
    other = run(*words)
    assert (other.status, other.json["error"]["code"]) == (2, "USE015")
    assert "source changed" in other.json["error"]["message"]
    for more in (("--docs-per-shard", "1"), ("--dtype", "int32"), ("--to-boundary", "none")):
        assert run(*words, *more).json["error"]["code"] == "USE015"


def test_what_the_sources_manifest_says_counts_too(tmp_path: Path) -> None:
    """Sizes and times are the same; only the records of the two differ."""
    source, out = make(tmp_path / "in", SEVERAL), tmp_path / "out"
    adopt(source, boundary="suffix=2")
    convert(source, out, to="megatron-v1")
    assert convert(source, out, to="megatron-v1").kept_shards == 3
    (source / "tokenreel.json").unlink()
    path = source / "part-2.bin"
    status = path.stat()
    path.write_bytes(b"\5\0" + path.read_bytes()[2:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    adopt(source, boundary="suffix=2")
    with pytest.raises(UsageError, match="USE015"):
        convert(source, out, to="megatron-v1")


def test_every_split_is_looked_at(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        make(tmp_path / "in/shards" / split, SEVERAL)
    words = ("convert", tmp_path / "in", tmp_path / "out", "--to", "megatron-v1", "--boundary", "suffix=2", "--json")
    assert run(*words).status == 0
    again = run(*words)
    assert (again.status, again.json["kept_shards"]) == (0, 6)
    flip(tmp_path / "out/validation/part-000001.bin")
    changed = run(*words)
    assert (changed.status, changed.json["error"]["code"]) == (1, "DOC025")


def test_what_is_read_again_is_shown(tmp_path: Path) -> None:
    source, seen = make(tmp_path / "in", SEVERAL), []
    done = convert(source, tmp_path / "out", to="megatron-v1", boundary="suffix=2")
    convert(
        source,
        tmp_path / "out",
        to="megatron-v1",
        boundary="suffix=2",
        progress=lambda count, total, _: seen.append((count, total)),
    )
    total = sum(file.bytes for file in done.files)
    assert seen[-1] == (total, total)
    assert [count for count, _ in seen] == sorted(count for count, _ in seen)
