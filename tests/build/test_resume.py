"""Killed at any moment and run again: the same bytes. What is not this build's is refused; what is done is left alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build.making import CORPUS, leftovers, run, start, tokenizer_file, tree, write_jsonl, write_recipe
from tests.build.test_build import eleven_recipe
from tokenreel.build import build
from tokenreel.build.lock import build_lock, shared_lock
from tokenreel.build.settings import first_difference
from tokenreel.errors import IncompleteError, ManifestError, StorageError


def kill_and_resume(folder: Path, layout: str, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    recipe = eleven_recipe(folder, layout)
    build(recipe, folder / "whole", 0)
    wanted = tree(folder / "whole")
    out = folder / "out"
    begun = time.monotonic()
    assert run(recipe, folder / "timed", "--workers", "2")[0] == 0
    lasts = time.monotonic() - begun
    killed = 0
    while killed < kills:
        process = start(recipe, out, "--workers", str(chance.choice((1, 2, 3))))
        # Half of the kills fall where parts are written, near the end; the others anywhere.
        time.sleep(lasts * (chance.uniform(0.0, 1.1) if killed % 2 else chance.uniform(0.6, 1.0)))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
            lasts *= 1.02
        else:
            # One build in some five comes to its end: kills reach every moment, however fast the machine is just now.
            lasts *= 0.9
        process.communicate()
        if (out / "COMPLETE.json").exists():
            status, _ = run(recipe, out)
            assert status == 0
            assert tree(out) == wanted
            shutil.rmtree(out)
    status, report = run(recipe, out, "--workers", "2")
    assert (status, report["parts"]) == (0, 11)
    assert tree(out) == wanted


def test_a_few_kills(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, "native", 4, 1)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["mahan", "native"])
def test_fifty_kills(tmp_path: Path, layout: str) -> None:
    kill_and_resume(tmp_path, layout, 50, 2)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return eleven_recipe(tmp_path, "native")


def test_a_complete_output_is_left_as_it_is(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    build(recipe, out, 0)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != "build.log.jsonl"}
    status, report = run(recipe, out)
    assert (status, report["nothing_to_do"], report["built"]) == (0, True, 0)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != "build.log.jsonl"} == before
    assert "nothing to do" in build(recipe, out, 0).lines()[0]


def spoil_shard(out: Path) -> None:
    path = out / "shards" / "train" / "part-000004.bin"
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    (out / "COMPLETE.json").unlink()


def cut_shard(out: Path) -> None:
    path = out / "shards" / "train" / "part-000004.idx"
    path.write_bytes(path.read_bytes()[:-1])


def spoil_receipt(out: Path) -> None:
    path = out / "receipts" / "part-000004.json"
    path.write_bytes(path.read_bytes()[:40])


def lose_receipt(out: Path) -> None:
    (out / "receipts" / "part-000003.json").unlink()


def spoil_stats(out: Path) -> None:
    (out / "stats.json").write_text("{}")


def lose_documents(out: Path) -> None:
    (out / "documents.parquet").unlink()


def lose_tokenizer(out: Path) -> None:
    shutil.rmtree(out / "tokenizer")


def old_receipt(out: Path) -> None:
    path = out / "receipts" / "part-000004.json"
    receipt = json.loads(path.read_bytes())
    receipt["run_config_sha256"] = "0" * 64
    path.write_text(json.dumps(receipt))


DAMAGE: list[Callable[[Path], None]] = [
    spoil_shard,
    cut_shard,
    spoil_receipt,
    lose_receipt,
    spoil_stats,
    lose_documents,
    lose_tokenizer,
    old_receipt,
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_what_was_damaged_is_built_again(tmp_path: Path, recipe: Path, damage: Callable[[Path], None]) -> None:
    out = tmp_path / "out"
    build(recipe, out, 0)
    wanted = tree(out)
    damage(out)
    assert not build(recipe, out, 0).nothing_to_do
    assert tree(out) == wanted


def test_finished_parts_are_not_built_again(tmp_path: Path) -> None:
    recipe = eleven_recipe(tmp_path, "mahan")
    out = tmp_path / "out"
    build(recipe, out, 0)
    wanted = tree(out)
    lose_receipt(out)
    assert build(recipe, out, 2).built == 1
    assert tree(out) == wanted


def test_leftovers_of_a_killed_build_are_removed(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    build(recipe, out, 0)
    wanted = tree(out)
    lose_receipt(out)
    (out / "shards" / "train" / ".part-000003.bin.123.tokenreel-tmp").write_text("x")
    (out / ".documents").mkdir()
    (out / ".documents" / "part-000003.train.arrow").write_text("not arrow")
    build(recipe, out, 0)
    assert tree(out) == wanted


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
    build(recipe, out, 0)
    before = tree(out)
    status, said = run(recipe, out, "--set", change)
    assert (status, said["error"]["code"]) == (1, "MAN010")
    assert said["error"]["message"] == f"{place} differs"
    assert tree(out) == before


def test_an_input_that_changed_or_is_new_is_another_configuration(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    build(recipe, out, 0)
    write_jsonl(tmp_path / "in" / "01.jsonl", ["changed"])
    with pytest.raises(ManifestError, match=r"inputs\[1\]\.bytes differs") as caught:
        build(recipe, out, 0)
    assert caught.value.code == "MAN010"
    write_jsonl(tmp_path / "in" / "zz.jsonl", ["new"])
    with pytest.raises(ManifestError, match="MAN010"):
        build(recipe, out, 0)


def test_an_input_of_the_same_size_and_time_that_changed_is_noticed(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    build(recipe, out, 0)
    path = tmp_path / "in" / "01.jsonl"
    times = path.stat()
    path.write_bytes(path.read_bytes().replace(b"reel", b"real"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ManifestError, match=r"inputs\[1\]\.sha256 differs"):
        build(recipe, out, 0)


def test_first_difference_of_nested_values() -> None:
    assert first_difference({"a": 1}, {"a": 1, "b": 2}) == ("b", "absent", 2)
    assert first_difference([1], [1, 2]) == ("the length of ", 1, 2)
    assert first_difference({"a": 1}, {"a": True}) == ("a", 1, True)
    assert first_difference({"a": [{"b": 1}]}, {"a": [{"b": 1}]}) is None


@pytest.mark.parametrize(
    "name",
    ["receipts/part-000011.json", "shards/train/part-000011.bin", "shards/other/part-000001.bin", "receipts/x.txt"],
)
def test_a_part_that_is_not_in_the_plan(tmp_path: Path, recipe: Path, name: str) -> None:
    out = tmp_path / "out"
    build(recipe, out, 0)
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("x")
    with pytest.raises(ManifestError, match="MAN011") as caught:
        build(recipe, out, 0)
    assert caught.value.where["path"] == str(out / name)


@pytest.mark.parametrize("name", ["notes.txt", "shards/train/part-000000.bin"])
def test_a_folder_that_holds_something_else(tmp_path: Path, recipe: Path, name: str) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    status, said = run(recipe, tmp_path / "out")
    assert (status, said["error"]["code"]) == (1, "MAN014")
    assert path.read_text() == "mine"


def test_one_build_at_a_time(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with build_lock(out) as known:
        assert known
        status, said = run(recipe, out)
    assert (status, said["error"]["code"]) == (3, "MAN015")
    assert run(recipe, out)[0] == 0


def test_a_build_waits_for_workers_of_a_killed_one(tmp_path: Path) -> None:
    (tmp_path / "receipts").mkdir()
    with shared_lock(tmp_path / "receipts"), pytest.raises(StorageError, match="workers of a build that was killed"):
        with build_lock(tmp_path, wait=0.1):
            pass
    with build_lock(tmp_path, wait=0.1):
        pass


def slow_recipe(folder: Path) -> Path:
    """One part of seconds: the reference engine on a few megabytes."""
    tokenizer_file(folder)
    write_jsonl(folder / "in" / "a.jsonl", ["one"])
    write_jsonl(folder / "in" / "b.jsonl", [" ".join(CORPUS)] * 12_000)
    return write_recipe(
        folder,
        tokenizer={"path": "tokenizer.json", "eod": "<eod>", "engine": "reference"},
        output={"chunk_bytes": 100_000},
    )


def wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.01)


def test_ctrl_c_leaves_a_state_that_goes_on(tmp_path: Path) -> None:
    recipe, out = slow_recipe(tmp_path), tmp_path / "out"
    process = start(recipe, out, "--workers", "1")
    wait_for(out / "receipts" / "part-000000.json")
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert leftovers(out) == []
    assert (out / "receipts" / "part-000000.json").exists()
    with build_lock(out, wait=0.0):
        pass  # no worker is left


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if not listed.exists():
        pytest.skip("no /proc")
    return [int(one) for one in listed.read_text().split()]


def test_a_killed_worker_is_an_error_and_the_build_goes_on(tmp_path: Path) -> None:
    recipe, out = slow_recipe(tmp_path), tmp_path / "out"
    process = start(recipe, out, "--workers", "1")
    wait_for(out / "receipts" / "part-000000.json")
    (worker,) = children(process.pid)
    os.kill(worker, signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    error = json.loads(said)["error"]
    assert (process.returncode, error["code"], error["where"]["shard"]) == (4, "SRC020", "part-000001")
    assert "SIGKILL" in error["message"]
    assert leftovers(out) == []


def test_workers_go_when_their_parent_is_killed(tmp_path: Path) -> None:
    recipe, out = slow_recipe(tmp_path), tmp_path / "out"
    process = start(recipe, out, "--workers", "1")
    wait_for(out / "receipts" / "part-000000.json")
    (worker,) = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    until = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and "Z" not in Path(f"/proc/{worker}/stat").read_text().split()[2]:
        assert time.monotonic() < until, "the worker lives on"
        time.sleep(0.05)
    with build_lock(out, wait=5.0):
        pass


def test_a_worker_that_hangs_is_given_up(tmp_path: Path) -> None:
    recipe = slow_recipe(tmp_path)
    with pytest.raises(IncompleteError, match="said nothing") as caught:
        build(recipe, tmp_path / "out", 1, overrides=["output.chunk_bytes=100000000"], stall=0.3)
    assert caught.value.code == "SRC020"
    assert leftovers(tmp_path / "out") == []
