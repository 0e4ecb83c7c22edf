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
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.build.making import CORPUS, leftovers, run, start, tokenizer_file, tree, write_jsonl, write_recipe
from tests.build.test_build import eleven_recipe
from tokenreel.build.lock import build_lock, shared_lock
from tokenreel.build.run import build
from tokenreel.corpus.receipts import dump, parse_receipt, seal
from tokenreel.errors import IncompleteError, StorageError
from tokenreel.store import dumps_canonical


def kill_and_resume(folder: Path, layout: str, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    recipe = eleven_recipe(folder, layout)
    build(recipe, folder / "whole", in_process=True)
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
    build(recipe, out, in_process=True)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != "build.log.jsonl"}
    status, report = run(recipe, out)
    assert (status, report["nothing_to_do"], report["built"]) == (0, True, 0)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != "build.log.jsonl"} == before
    assert "nothing to do" in build(recipe, out, in_process=True).lines()[0]


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


def edit_receipt(out: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = out / "receipts" / "part-000004.json"
    receipt = json.loads(path.read_bytes())
    change(receipt)
    path.write_bytes(dumps_canonical(receipt))
    (out / "COMPLETE.json").unlink()


def tampered_sources(out: Path) -> None:
    """Another split of the same sums: nothing but the receipt's own hash can tell."""

    def change(receipt: dict[str, Any]) -> None:
        receipt["by_source"] = {"ghost": receipt["by_source"]["web"]}

    edit_receipt(out, change)


def tampered_count(out: Path) -> None:
    edit_receipt(out, lambda receipt: receipt.update(special_in_text=7))


def receipt_without_its_hash(out: Path) -> None:
    edit_receipt(out, lambda receipt: receipt.pop("receipt_sha256"))


def resealed_counts(out: Path) -> None:
    """A receipt that fits itself and its hash, and not its shard."""
    path = out / "receipts" / "part-000004.json"
    receipt = parse_receipt(path.read_bytes())
    train = receipt.splits["train"]
    more = {"text_tokens": train.text_tokens + 1, "total_tokens": train.total_tokens + 1}
    source = receipt.by_source["web"]
    forged = msgspec.structs.replace(
        receipt,
        splits={**receipt.splits, "train": msgspec.structs.replace(train, **more)},
        by_source={"web": {**source, "train": msgspec.structs.replace(source["train"], **more)}},
    )
    path.write_bytes(dump(seal(forged)))
    (out / "COMPLETE.json").unlink()


def spoil_finished_shard(out: Path) -> None:
    flip(out / "shards" / "train" / "part-000004.bin", 5)


def spoil_finished_table(out: Path) -> None:
    flip(out / "shards" / "train" / "part-000004.idx", 40)


def cut_documents(out: Path) -> None:
    path = out / "documents.parquet"
    path.write_bytes(path.read_bytes()[:-20])


def spoil_documents(out: Path) -> None:
    path = out / "documents.parquet"
    table = pq.read_table(path)
    lengths = table.column("length").to_pylist()
    lengths[0] += 1
    at = table.schema.get_field_index("length")
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(lengths)), path)


def spoil_tokenizer(out: Path) -> None:
    flip(out / "tokenizer" / "tokenizer.json", 30)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGE: list[Callable[[Path], None]] = [
    spoil_shard,
    cut_shard,
    spoil_receipt,
    lose_receipt,
    spoil_stats,
    lose_documents,
    lose_tokenizer,
    old_receipt,
    tampered_sources,
    tampered_count,
    receipt_without_its_hash,
    resealed_counts,
    spoil_finished_shard,
    spoil_finished_table,
    cut_documents,
    spoil_documents,
    spoil_tokenizer,
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_what_was_damaged_is_built_again(tmp_path: Path, recipe: Path, damage: Callable[[Path], None]) -> None:
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    wanted = tree(out)
    damage(out)
    assert not build(recipe, out, in_process=True).nothing_to_do
    assert tree(out) == wanted


def test_finished_parts_are_not_built_again(tmp_path: Path) -> None:
    recipe = eleven_recipe(tmp_path, "mahan")
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    wanted = tree(out)
    lose_receipt(out)
    assert build(recipe, out, 2).built == 1
    assert tree(out) == wanted


@pytest.mark.parametrize("damage", [spoil_finished_shard, spoil_finished_table, tampered_count])
def test_of_a_finished_native_output_only_the_bad_part_is_built(
    tmp_path: Path, recipe: Path, damage: Callable[[Path], None]
) -> None:
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    wanted = tree(out)
    damage(out)
    assert build(recipe, out, in_process=True).built == 1
    assert tree(out) == wanted


def test_leftovers_of_a_killed_build_are_removed(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    wanted = tree(out)
    lose_receipt(out)
    (out / "shards" / "train" / ".part-000003.bin.123.tokenreel-tmp").write_text("x")
    (out / ".documents").mkdir()
    (out / ".documents" / "part-000003.train.arrow").write_text("not arrow")
    build(recipe, out, in_process=True)
    assert tree(out) == wanted


def test_a_training_that_was_killed_before_its_tokenizer_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run_config.json records the tokenizer before the file is there: such a folder goes on."""
    recipe = eleven_recipe(tmp_path, "native", tokenizer={"name": "train:bpe:350"})
    build(recipe, tmp_path / "whole", in_process=True)
    from tokenreel.build import run as module

    with monkeypatch.context() as patch:
        patch.setattr(module, "examine", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            build(recipe, tmp_path / "out", in_process=True)
    assert sorted(tree(tmp_path / "out")) == ["run_config.json"]
    build(recipe, tmp_path / "out", in_process=True)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


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
    # Between two parts a worker is at neither: it is killed when files of the second one are there.
    until = time.monotonic() + 60
    while not any("part-000001" in path.name for path in out.rglob("*.tokenreel-tmp")):
        assert time.monotonic() < until, "the second part was not begun"
        time.sleep(0.005)
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
