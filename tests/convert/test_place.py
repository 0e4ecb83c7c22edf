"""Where conversions, merges and repairs may write, one at a time; and what is given twice. Through the real entry point."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenreel
from tests.cli.command import run
from tests.convert.test_pairs import CASES, make
from tokenreel.cli import main
from tokenreel.convert.lock import hidden_beside, hold, hold_name
from tokenreel.errors import StorageError, UsageError

SEVERAL = CASES[0]
TO = ("--to", "megatron-v1", "--boundary", "suffix=2")


def said(*words: object) -> tuple[int, dict[str, Any]]:
    """Run the command in this process; returns its exit status and what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main([*map(str, words), "--json"])
    return status, json.loads(out.getvalue())


def code(*words: object) -> tuple[int, str]:
    status, value = said(*words)
    return status, value["error"]["code"] if status else ""


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}


# ---- one at a time -----------------------------------------------------------------------------------------------------


def test_two_cannot_write_one_folder_at_once(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    broken = make(tmp_path / "broken", SEVERAL)
    (broken / "part-0.bin").write_bytes((broken / "part-0.bin").read_bytes()[:-2])
    make(tmp_path / "more", SEVERAL)
    commands = (
        (hold(tmp_path / "a"), ("convert", source, tmp_path / "a", *TO), 0),
        (hold(tmp_path / "b"), ("merge", source, tmp_path / "more", tmp_path / "b", *TO), 0),
        (hold_name(tmp_path / "c"), ("merge", source, tmp_path / "c"), 0),
        (hold(hidden_beside(tmp_path / "d", "repair")), ("repair", broken, "--out", tmp_path / "d"), 1),
    )
    for lock, words, status in commands:
        with lock:
            refused = run(*words, "--json")
            assert (refused.status, refused.json["error"]["code"]) == (3, "STO007"), words
            assert refused.json["error"]["where"]["path"] in map(str, words)
            if sys.platform == "linux":
                assert refused.json["error"]["found"] == f"process {os.getpid()}"
                assert refused.json["error"]["hint"] == f"ps -fp {os.getpid()}"
        done = run(*words)
        assert done.status == status, done.err


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    script = """
import sys
from contextlib import ExitStack
from pathlib import Path
from tokenreel.convert.lock import hold, hold_name
with ExitStack() as stack:
    stack.enter_context(hold(Path(sys.argv[1])))
    stack.enter_context(hold_name(Path(sys.argv[2])))
    print("held", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", script, str(tmp_path / "out"), str(tmp_path / "pair")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert code("convert", source, tmp_path / "out", *TO) == (3, "STO007")
        holder.kill()
    assert (tmp_path / "out").is_dir()
    assert code("convert", source, tmp_path / "out", *TO) == (0, "")
    assert code("merge", source, tmp_path / "pair") == (0, "")
    assert not list(tmp_path.glob(".*")), "no lock file stays"


def test_a_lock_is_of_what_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who waits may have opened a folder that the holder then removed: it holds nothing, and opens anew."""
    from tokenreel.convert import lock

    place = tmp_path / "out"
    real, times = lock.flock_now, []

    def locked(handle: int) -> bool | None:
        times.append(handle)
        if len(times) == 1:
            place.rmdir()
            place.mkdir()
        return real(handle)

    monkeypatch.setattr(lock, "flock_now", locked)
    with hold(place):
        assert len(times) == 2
        with pytest.raises(StorageError, match="STO007"), hold(place):
            pass
    assert not place.exists(), "it was made, and nothing was put into it"


def test_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with hold(tmp_path / "there"):
        pass
    with pytest.raises(ValueError, match="x"), hold(tmp_path / "a/b"):
        raise ValueError("x")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_long_names_have_a_hidden_one_of_their_own(tmp_path: Path) -> None:
    names = [tmp_path / ("é" * 120 + end) for end in ("a", "b")]
    hidden = [hidden_beside(name, "repair") for name in names]
    assert hidden[0] != hidden[1]
    for path in hidden:
        path.mkdir()
    assert hidden_beside(tmp_path / os.fsdecode(b"\xff"), "lock").name == os.fsdecode(b".\xff.lock.tokenreel-tmp")


# ---- places ------------------------------------------------------------------------------------------------------------


def test_a_destination_in_a_source_or_beside_its_shards(tmp_path: Path) -> None:
    source = make(tmp_path / "a", SEVERAL)
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "one.bin").symlink_to(source / "part-0.bin")
    (tmp_path / "one.idx").symlink_to(source / "part-0.idx")
    before = tree(source)
    for given, place in (
        (source, source),
        (source, source / "sub"),
        (source, tmp_path),
        (source, tmp_path / "link"),
        (source, tmp_path / "link/deep/sub"),
        (tmp_path / "link", source / "sub"),
        (source / "part-0.bin", source / "sub"),
        (source / "part-0.bin", source / "deep/sub"),
        (source / "part-0.bin", source),
        (source / "part-0", source / "sub"),
        (source / "part-0.bin", source / "part-0.bin"),
        (source / "part-0.bin", tmp_path / "link/sub"),
        (tmp_path / "one.bin", source / "sub"),
        (tmp_path / "one.bin", tmp_path / "sub"),
    ):
        assert code("convert", given, place, *TO) == (2, "USE005"), (given, place)
        assert code("repair", given, "--out", place) == (2, "USE005"), (given, place)
        assert tree(source) == before
    assert code("merge", source / "part-0", source / "part-1", source / "sub", *TO) == (2, "USE005")
    assert code("convert", source / "part-0.bin", tmp_path / "b", *TO) == (0, "")


def test_one_file_may_be_converted_where_it_lies(tmp_path: Path) -> None:
    """What is written has another format, so that nobody reads both as one corpus; `repair` only where it lies alone."""
    np.array([5, 6, 2, 7, 2], "<u2").tofile(tmp_path / "train.bin")
    words = ("--dtype", "uint16", "--boundary", "suffix=2")
    assert code("convert", tmp_path / "train.bin", tmp_path / "out", "--to", "olmo", *words) == (0, "")
    assert code("convert", tmp_path / "train.bin", tmp_path / "again", "--to", "raw-uint16", *words) == (2, "USE005")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "train.bin"]
    source = make(tmp_path / "b", CASES[0])
    for path in source.iterdir():
        if not path.name.startswith("part-0."):
            path.unlink()
    assert code("repair", source / "part-0.bin", "--out", source / "new", "--boundary", "suffix=2") == (0, "")


def test_a_set_that_lacks_a_member_is_converted_only_when_that_is_accepted(tmp_path: Path) -> None:
    from tokenreel.formats.megatron_write import MegatronWriter

    for number in (0, 2):
        with MegatronWriter(tmp_path / f"a/web-{number:05d}-of-00003", "uint16") as writer:
            writer.add_documents(np.array([5, 2], np.uint16), np.array([2]))
            writer.finish()
    refused = run("convert", tmp_path / "a", tmp_path / "out", *TO, "--json")
    assert (refused.status, refused.json["error"]["code"]) == (1, "DOC014")
    assert "missing: 1" in refused.json["error"]["message"]
    assert not (tmp_path / "out").exists()
    accepted = run("convert", tmp_path / "a", tmp_path / "out", *TO, "--accept", "DOC014", "--json")
    assert (accepted.status, accepted.json["accepted"]) == (0, ["DOC014"])
    assert code("convert", tmp_path / "a/web-00000-of-00003.bin", tmp_path / "one", *TO) == (0, "")
    assert run("adopt", tmp_path / "a", "--boundary", "suffix=2").status == 0
    assert code("convert", tmp_path / "a", tmp_path / "b", "--to", "megatron-v1") == (0, "")


def test_the_error_names_a_place_that_would_do(tmp_path: Path) -> None:
    source = make(tmp_path / "a", SEVERAL)
    refused = run("convert", source / "part-0.bin", source / "sub", *TO, "--json").json["error"]
    assert refused["expected"] == f"a new folder apart from {source}, such as {tmp_path / 'sub'}"
    assert "would be read with them" in refused["message"]


def test_a_split_of_a_root_is_not_written_into_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(root / "shards/train", SEVERAL)
    make(root / "shards/validation", SEVERAL)
    assert code("convert", root / "train", root / "sub", *TO) == (2, "USE005")
    assert code("convert", root / "train", tmp_path / "out", *TO) == (0, "")


def test_another_name_of_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where case does not count: names differ, and the numbers that the file system gives do not."""
    from tokenreel.convert import place

    source = make(tmp_path / "data", SEVERAL)
    real = place._number
    monkeypatch.setattr(place, "_number", lambda path: real(Path(str(path).replace("DATA", "data"))))
    for there in (tmp_path / "DATA", tmp_path / "DATA/sub"):
        with pytest.raises(UsageError, match="USE005"):
            place.refuse_place(there, [source])
    place.refuse_place(tmp_path / "DATE", [source])


def test_a_destination_that_is_a_file(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    (tmp_path / "file").write_text("x")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing/folder")
    for place in (tmp_path / "file", tmp_path / "nowhere"):
        assert code("convert", source, place, *TO) == (2, "USE011")
        assert code("merge", source, place, *TO) == (2, "USE011")
        assert code("repair", source, "--out", place) == (2, "USE011")
    assert code("convert", source, tmp_path / "file/out", *TO) == (3, "STO003")
    assert code("merge", source, tmp_path / "file/out") == (3, "STO003")
    assert (tmp_path / "file").read_text() == "x"


def test_a_destination_in_a_corpus_with_records(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    assert run("convert", source, tmp_path / "done", *TO).status == 0
    begun = tmp_path / "begun"
    shutil.copytree(source, begun)
    (begun / ".convert").mkdir()
    (begun / ".convert/plan.json").write_text("{}")
    for folder in (tmp_path / "done", begun):
        assert code("convert", source, folder / "sub", *TO) == (2, "USE012")
        assert code("merge", source, folder / "sub") == (2, "USE012")
        assert code("repair", source, "--out", folder / "sub") == (2, "USE012")


def test_a_pair_is_not_written_over_one_that_is_read(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    for suffix in (".bin", ".idx"):
        (tmp_path / f"link{suffix}").symlink_to(source / f"part-0{suffix}")
        (tmp_path / f"hard{suffix}").hardlink_to(source / f"part-0{suffix}")
    before = tree(source)
    for place in (source / "part-0", tmp_path / "link", tmp_path / "link.bin", tmp_path / "hard"):
        words = ("merge", source / "part-0", source / "part-1", place)
        assert code(*words, "--force") == (2, "USE005"), place
    assert tree(source) == before


# ---- given twice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [(), TO])
def test_a_source_that_is_given_twice(tmp_path: Path, to: tuple[str, ...]) -> None:
    source = make(tmp_path / "in/a", SEVERAL)
    make(tmp_path / "in/b", SEVERAL)
    (tmp_path / "link").symlink_to(source)
    for again in (source, tmp_path / "link", source / "part-1.bin", source / "part-1", tmp_path / "in", source / "."):
        status, refused = said("merge", source, again, tmp_path / "new/out", *to)
        assert (status, refused["error"]["code"]) == (2, "USE018"), again
        assert "sources 1 (" in refused["error"]["found"]
        assert not (tmp_path / "new").exists()
    assert code("merge", tmp_path / "in", source, tmp_path / "new/out", *to) == (2, "USE018")
    meant = run("merge", source, source, tmp_path / "new/out", *to, "--accept", "USE018", "--json")
    assert meant.status == 0, meant.err
    with tokenreel.open(tmp_path / "new" / ("out" if to else "."), boundary="suffix=2") as corpus:
        assert len(corpus) == 10


def test_equal_shards_of_two_files_are_no_source_given_twice(tmp_path: Path) -> None:
    for name in "ab":
        make(tmp_path / name, SEVERAL)
    assert code("merge", tmp_path / "a", tmp_path / "b", tmp_path / "out", *TO) == (0, "")
