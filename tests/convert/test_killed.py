"""Conversions, merges and repairs killed at any change they make: never taken for a whole corpus, and finished by the next run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tokenreel
from tests.cli.command import run
from tests.convert.killed import changes, killed
from tests.convert.test_pairs import CASES, Case, make
from tokenreel.convert import convert, repair
from tokenreel.errors import IncompleteError
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.hashing import sha256_file

SEVERAL = CASES[0]
DOCUMENTS = [list(document) for shard in SEVERAL.shards for document in shard]


def read(folder: Path) -> list[list[int]]:
    with tokenreel.open(folder, boundary=SEVERAL.boundary) as corpus:
        return [ids.tolist() for ids in corpus]


def files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): sha256_file(p) for p in folder.rglob("*") if p.is_file()}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def damaged(folder: Path) -> Path:
    """Make five shards, the second of which is cut short."""
    shards = (((5, 6, 2), (7, 2)), ((8, 2), (8, 8, 2)), ((9, 9, 9, 2), (4, 2)), ((3, 2),), ((6, 2),))
    source = make(folder, Case("five", "uint16", "suffix=2", shards, {}))
    payload = source / "part-1.bin"
    payload.write_bytes(payload.read_bytes()[:-2])
    return source


def some(count: int, seed: int, *, every: bool) -> list[int]:
    """Return where to kill: at the last two changes, and at one or a third of those before."""
    before = range(seed % 3, count, 3) if every else random.Random(seed).sample(range(count - 2), 1)
    return sorted({*before, count - 2, count - 1})


EVERY = [False, pytest.param(True, marks=pytest.mark.slow)]


# ---- repair ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", EVERY)
def test_a_repair_appears_whole_or_not_at_all(tmp_path: Path, every: bool) -> None:
    source = damaged(tmp_path / "in")
    given = ("repair", source, "--boundary", "suffix=2", "--out")
    count = changes(tmp_path / "right", *given, tmp_path / "right/out")
    assert count > 10
    right = files(tmp_path / "right/out")
    for number in some(count, 1, every=every):
        place = tmp_path / f"at{number}"
        struck = killed(number, place, *given, place / "out")
        if (place / "out").exists():
            assert files(place / "out") == right, f"whole, or not there: killed before change {number}"
            continue
        assert struck
        if place.exists():
            with pytest.raises(tokenreel.TokenreelError, match="DOC006"):
                tokenreel.open(place)
        again = run(*given, place / "out", "--json")
        assert (again.status, again.json["verified"]) == (1, "ok"), again.err
        assert files(place / "out") == right
        assert hidden(place) == []


def killed_when(tmp_path: Path, source: Path, reached: Callable[[Path], bool]) -> tuple[tuple[object, ...], Path, Path]:
    """Kill a repair at the first change before which its hidden folder is as wanted; returns (command, it, destination)."""
    given = ("repair", source, "--boundary", "suffix=2", "--out")
    count = changes(tmp_path / "right", *given, tmp_path / "right/out")
    for number in range(count // 3, count):
        place = tmp_path / f"to{number}"
        assert killed(number, place, *given, place / "out")
        work = place / ".out.repair.tokenreel-tmp"
        if reached(work):
            return (*given, place / "out"), work, place / "out"
    raise AssertionError


def test_what_was_copied_is_not_copied_again(tmp_path: Path) -> None:
    source = damaged(tmp_path / "in")
    given, work, out = killed_when(tmp_path, source, lambda work: (work / "copied").read_bytes().count(b"\n") == 3)
    there = {name: (work / "result" / name).stat().st_ino for name in ("part-0.bin", "part-0.idx", "part-2.bin")}
    (work / "result/stranger.bin").write_bytes(b"12")
    assert run(*given).status == 1
    assert {name: (out / name).stat().st_ino for name in there} == there
    assert not (out / "stranger.bin").exists()


def test_a_copy_that_was_damaged_since_is_made_again(tmp_path: Path) -> None:
    source = damaged(tmp_path / "in")
    given, work, out = killed_when(tmp_path, source, lambda work: (work / "copied").is_file())
    (work / "result/part-0.bin").write_bytes(b"\7" * (source / "part-0.bin").stat().st_size)
    assert run(*given).status == 1
    assert (out / "part-0.bin").read_bytes() == (source / "part-0.bin").read_bytes()


def test_another_repair_begins_anew(tmp_path: Path) -> None:
    source = damaged(tmp_path / "in")
    given, _, out = killed_when(tmp_path, source, lambda work: (work / "copied").is_file())
    (source / "part-0.bin").write_bytes(np.array([1, 1, 2, 1, 2], "<u2").tobytes())
    assert run(*given).status == 1
    assert read(out)[:2] == [[1, 1, 2], [1, 2]]


def test_what_repair_refuses_or_leaves_as_it_is_leaves_nothing(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    assert run("repair", source, "--out", tmp_path / "deep/er/out").status == 0
    assert not (tmp_path / "deep").exists()
    for path in source.glob("*.idx"):
        path.unlink()
    refused = run(
        "repair", source, "--out", tmp_path / "deep/out", "--as", "megatron-v1", "--dtype", "uint16", "--json"
    )
    assert (refused.status, refused.json["error"]["code"]) == (1, "FLT020")
    assert not (tmp_path / "deep").exists()


def test_an_empty_folder_and_a_link_to_none_are_places_for_a_repair(tmp_path: Path) -> None:
    source = damaged(tmp_path / "in")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    done = repair(source, tmp_path / "link", boundary="suffix=2")
    assert done.verified == "ok"
    assert (tmp_path / "link").is_symlink()
    assert len(read(tmp_path / "empty")) == 7


# ---- convert and merge -------------------------------------------------------------------------------------------------


def whole_or_refused(folder: Path, right: list[list[int]]) -> bool:
    """Return whether a folder is whole; one that is not is refused, and `verify` and `inspect` say so."""
    if not any(path.suffix in (".mds", ".bin") for path in folder.rglob("*")):
        return False
    if (folder / "tokenreel.json").exists():
        assert read(folder) == right
        return True
    with pytest.raises(IncompleteError, match="DOC029"):
        tokenreel.open(folder)
    found = run("verify", folder, "--json", "--boundary", "suffix=2")
    assert found.status in (1, 4)  # 1 where an index that is written last is missing too
    assert "DOC029" in {finding["code"] for finding in found.json["findings"]}
    shown = run("inspect", folder, "--json", "--boundary", "suffix=2")
    assert "DOC029" in {finding["code"] for finding in shown.json["findings"]}
    return False


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("to", ["megatron-v1", "mds"])
def test_a_killed_conversion_is_not_taken_for_a_corpus(tmp_path: Path, to: str, every: bool) -> None:
    source = make(tmp_path / "in", SEVERAL)
    given = ("--to", to, "--boundary", "suffix=2", "--workers", "1")
    count = changes(tmp_path / "right", "convert", source, tmp_path / "right/out", *given)
    right = files(tmp_path / "right/out")
    partial = 0
    for number in some(count, 2, every=every):
        place = tmp_path / f"at{number}"
        killed(number, place, "convert", source, place / "out", *given)
        partial += not whole_or_refused(place / "out", DOCUMENTS)
        again = run("convert", source, place / "out", *given, "--json")
        assert again.status == 0, again.err
        made = files(place / "out")
        record = json.loads((place / "out/convert.json").read_text())
        assert made.keys() == right.keys()
        assert {name: made[name] for name in right if name != "convert.json"} == {
            name: right[name] for name in right if name != "convert.json"
        }
        assert record["converted"]["identity"] == again.json["identity"]
        assert hidden(place / "out") == []
    assert partial


@pytest.mark.parametrize("every", EVERY)
def test_some_splits_of_a_root_are_not_taken_for_all(tmp_path: Path, every: bool) -> None:
    for split in ("train", "validation"):
        with MegatronWriter(tmp_path / f"in/shards/{split}/part-0", "uint16") as writer:
            writer.add_documents(np.array([5, 2, 6, 2], np.uint16), np.array([2, 2]))
            writer.finish()
    given = ("--to", "megatron-v1", "--boundary", "suffix=2", "--workers", "1")
    count = changes(tmp_path / "right", "convert", tmp_path / "in", tmp_path / "right/out", *given)
    right = files(tmp_path / "right/out")
    for number in some(count, 3, every=every):
        place = tmp_path / f"at{number}"
        killed(number, place, "convert", tmp_path / "in", place / "out", *given)
        root = place / "out"
        if root.exists() and any(root.rglob("*.bin")) and not (root / "tokenreel.json").exists():
            with pytest.raises(IncompleteError, match="DOC029"):
                tokenreel.open(root)
            found = run("verify", root, "--json", "--boundary", "suffix=2")
            assert found.status in (1, 4)  # 1 between a payload and its index
            assert "DOC029" in {finding["code"] for finding in found.json["findings"]}
        assert run("convert", tmp_path / "in", root, *given).status == 0
        assert files(root).keys() == right.keys()
        assert hidden(root) == []
        assert tokenreel.open(root).splits == ("train", "validation")


def test_a_refused_conversion_of_splits_leaves_nothing(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        with MegatronWriter(tmp_path / f"in/shards/{split}/part-0", "uint16") as writer:
            writer.add_documents(np.array([5, 2, 6, 2], np.uint16), np.array([4]))
            writer.finish()
    refused = run("convert", tmp_path / "in", tmp_path / "out", "--to", "llmc", "--boundary", "suffix=2", "--json")
    assert refused.json["error"]["code"] == "TOK044"
    assert not (tmp_path / "out").exists()


def test_one_shard_of_a_killed_conversion_can_be_looked_at(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    convert(source, tmp_path / "out", to="megatron-v1", boundary="suffix=2")
    (tmp_path / "out/tokenreel.json").unlink()
    (tmp_path / "out/.convert").mkdir()
    (tmp_path / "out/.convert/plan.json").write_text("{}")
    assert run("verify", tmp_path / "out", "--boundary", "suffix=2").status == 4
    assert len(tokenreel.open(tmp_path / "out/part-000000.bin", boundary="suffix=2")) == 2
    assert run("verify", tmp_path / "out/part-000000.bin", "--boundary", "suffix=2").status == 0
    # Nor is a folder around it a corpus.
    with pytest.raises(IncompleteError, match="DOC029") as caught:
        tokenreel.open(tmp_path)
    assert caught.value.where["path"] == f"{tmp_path}/out"
    folder = tmp_path / "out"
    for words in (
        ("convert", folder, tmp_path / "new", "--to", "megatron-v1", "--boundary", "suffix=2"),
        ("merge", folder, tmp_path / "new"),
        ("adopt", folder, "--boundary", "suffix=2"),
        ("repair", folder, "--out", tmp_path / "new"),
    ):
        refused = run(*words, "--json")
        assert (refused.status, refused.json["error"]["code"]) == (4, "DOC029"), words
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("every", EVERY)
def test_a_pair_that_was_killed_while_it_was_merged(tmp_path: Path, every: bool) -> None:
    for name in "ab":
        make(tmp_path / name, SEVERAL)
    given = ("merge", tmp_path / "a", tmp_path / "b")
    count = changes(tmp_path / "right", *given, tmp_path / "right/all")
    for number in some(count, 4, every=every):
        place = tmp_path / f"at{number}"
        killed(number, place, *given, place / "all")
        there = {path.name for path in place.glob("all.*")} if place.exists() else set()
        if there == {"all.bin", "all.idx"}:
            assert read(place) == DOCUMENTS * 2
            continue
        # A half of a pair is no corpus: both are renamed last, and the index behind the payload.
        assert there <= {"all.bin"}
        assert run(*given, place / "all", "--force").status == 0
        assert read(place) == DOCUMENTS * 2
        assert ".all.lock.tokenreel-tmp" not in hidden(place)
