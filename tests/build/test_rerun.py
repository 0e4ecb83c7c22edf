"""Run again: what changed is another configuration, or a manifest to write again; what the log kept is not trusted blindly."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.build.making import run, tree, write_jsonl
from tests.build.test_build import eleven_recipe
from tokenreel.build.report import read_log
from tokenreel.build.run import build
from tokenreel.build.settings import first_difference
from tokenreel.errors import ManifestError


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return eleven_recipe(tmp_path, "native")


CHANGES = [
    ("split.modulo=6", "split_rule.modulo"),
    ("tokenizer.eod='<pad>'", "tokenizer.eod_id"),
    ("tokenizer.recheck=7", "recheck"),
    ("tokenizer.special_in_text=drop", "special_in_text"),
    ("documents.empty=drop", "empty_documents"),
    ("corpus.layout=mahan", "layout"),
    ("source.0.id=text", "sources[0].id"),
    ("source.0.name=other", "sources[0].name"),
]


@pytest.mark.parametrize(("change", "place"), CHANGES)
def test_output_of_another_configuration_names_the_first_field(
    tmp_path: Path, recipe: Path, change: str, place: str
) -> None:
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    before = tree(out)
    status, said = run(recipe, out, "--set", change)
    assert (status, said["error"]["code"]) == (2, "MAN010")
    assert said["error"]["message"] == f"{place} differs"
    assert tree(out) == before


def test_an_input_that_changed_or_is_new_is_another_configuration(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    write_jsonl(tmp_path / "in" / "01.jsonl", ["changed"])
    with pytest.raises(ManifestError, match=r"inputs\[1\]\.bytes differs") as caught:
        build(recipe, out, in_process=True)
    assert caught.value.code == "MAN010"
    write_jsonl(tmp_path / "in" / "zz.jsonl", ["new"])
    with pytest.raises(ManifestError, match="MAN010"):
        build(recipe, out, in_process=True)


def test_an_input_of_the_same_size_and_time_that_changed_is_noticed(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    path = tmp_path / "in" / "01.jsonl"
    times = path.stat()
    path.write_bytes(path.read_bytes().replace(b"reel", b"real"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ManifestError, match=r"inputs\[1\]\.sha256 differs"):
        build(recipe, out, in_process=True)


def edit_log(out: Path, change: Callable[[dict[str, Any]], None]) -> None:
    log = out / "build.log.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for event in events:
        if event["event"] == "input":
            change(event)
    log.write_text("".join(json.dumps(event) + "\n" for event in events))


def aged(folder: Path) -> None:
    """Make the inputs old enough for their hashes to be kept."""
    while time.time_ns() - max(path.stat().st_ctime_ns for path in (folder / "in").iterdir()) < 2_100_000_000:
        time.sleep(0.05)


def other_digit(event: dict[str, Any]) -> None:
    event["sha256"] = ("0" if event["sha256"][0] != "0" else "1") + event["sha256"][1:]


def test_a_hash_that_was_changed_in_the_log_is_not_believed(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    aged(tmp_path)
    build(recipe, out, in_process=True)
    wanted = tree(out)
    kept = read_log(out, "input")
    assert len(kept) == 11
    edit_log(out, other_digit)
    assert build(recipe, out, in_process=True).nothing_to_do
    # Nor in a folder that is begun with such a log.
    log = (out / "build.log.jsonl").read_bytes()
    shutil.rmtree(out)
    out.mkdir()
    (out / "build.log.jsonl").write_bytes(log)
    build(recipe, out, in_process=True)
    assert tree(out) == wanted


def test_no_input_is_called_changed_before_it_was_read(tmp_path: Path, recipe: Path) -> None:
    """A log that was forged with its checksums: the file itself has the last word."""
    out = tmp_path / "out"
    aged(tmp_path)
    build(recipe, out, in_process=True)

    def forge(event: dict[str, Any]) -> None:
        other_digit(event)
        facts = {key: event[key] for key in ("source", "path", "file", "stamp", "sha256")}
        event["check"] = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    edit_log(out, forge)
    assert build(recipe, out, in_process=True).nothing_to_do


def test_hashes_that_are_kept_are_not_taken_again(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenreel.build import inputs as module

    out = tmp_path / "out"
    aged(tmp_path)
    build(recipe, out, in_process=True)
    monkeypatch.setattr(module, "_hash", lambda path: pytest.fail(f"{path} was read again"))
    assert build(recipe, out, in_process=True).nothing_to_do


def test_another_name_or_date_writes_the_manifest_again(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    report = build(recipe, out, in_process=True, overrides=["corpus.name=renamed"], built_at="2026-11-30")
    assert (report.built, report.nothing_to_do) == (0, False)
    manifest = json.loads((out / "tokenreel.json").read_bytes())
    assert (manifest["name"], manifest["built_at"]) == ("renamed", "2026-11-30")
    build(recipe, tmp_path / "new", in_process=True, overrides=["corpus.name=renamed"], built_at="2026-11-30")
    assert tree(out) == tree(tmp_path / "new")
    # A date that is left out is no other date.
    assert build(recipe, out, in_process=True, overrides=["corpus.name=renamed"]).nothing_to_do


@pytest.mark.parametrize("layout", ["mahan", "native"])
def test_a_name_alone_is_no_other_configuration(tmp_path: Path, layout: str) -> None:
    recipe = eleven_recipe(tmp_path, layout)
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    assert build(recipe, out, in_process=True, overrides=["corpus.name=x"]).nothing_to_do == (layout == "mahan")


def test_first_difference_of_nested_values() -> None:
    assert first_difference({"a": 1}, {"a": 1, "b": 2}) == ("b", "absent", 2)
    assert first_difference([1], [1, 2]) == ("the length of ", 1, 2)
    assert first_difference({"a": 1}, {"a": True}) == ("a", 1, True)
    assert first_difference({"a": [{"b": 1}]}, {"a": [{"b": 1}]}) is None


@pytest.mark.parametrize("layout", ["mahan", "native"])
@pytest.mark.parametrize("name", ["part-000004.bin", "part-000004.idx"])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_what_changed_on_the_disk_is_found_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, name: str, place: float
) -> None:
    """The one pass at the end hashes what it reads: no byte that changed since it was written passes."""
    from tokenreel.build import run as module

    recipe = eleven_recipe(tmp_path, layout)
    whole, out = module.finish, tmp_path / "out"

    def spoil(ending: Any) -> Any:
        path = out / "shards" / "train" / name
        data = bytearray(path.read_bytes())
        data[int(place * (len(data) - 1))] ^= 1
        path.write_bytes(data)
        return whole(ending)

    monkeypatch.setattr(module, "finish", spoil)
    with pytest.raises(ManifestError, match="MAN013"):
        build(recipe, out, in_process=True)
    assert not (out / "COMPLETE.json").exists()


def test_ids_are_read_once_at_the_end(tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenreel.build import finish as module
    from tokenreel.store.maps import PooledReader

    read: list[str] = []
    size = 0
    monkeypatch.setattr(module, "sha256_file", _noted(module.sha256_file, read))
    array = PooledReader.array

    def noted(self: Any, dtype: Any, offset: int, count: int) -> Any:
        nonlocal size
        found = array(self, dtype, offset, count)
        size += found.nbytes if self.path.endswith(".bin") else 0
        return found

    monkeypatch.setattr(PooledReader, "array", noted)
    build(recipe, tmp_path / "out", in_process=True)
    assert [path for path in read if path.endswith(".bin")] == []
    assert size == sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.bin"))


def _noted(inner: Callable[[Any], str], read: list[str]) -> Callable[[Any], str]:
    def digest(path: Any) -> str:
        read.append(str(path))
        return inner(path)

    return digest
