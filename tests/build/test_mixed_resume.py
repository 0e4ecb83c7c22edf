"""Mixes that are killed: whatever the moment, the next run ends with the bytes of one that nobody disturbed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tokenreel
from tests.build.making import tokenizer_file
from tests.build.mixed_runs import EVAL, all_files, build, records, sources, whole
from tests.build.mixes import write_records
from tokenreel.build import mix_finish, mix_write, mixed
from tokenreel.build.routes import build_mix
from tokenreel.errors import IncompleteError, StorageError
from tokenreel.feed.opening import _incomplete
from tokenreel.verify import verify

RECIPE = """
layout = "LAYOUT"
[corpus]
name = "small"
[tokenizer]
path = "tokenizer.json"
eod = "<eod>"
eod_at = "begin"
[dedup]
by = ["url"]
[decontaminate]
remove = "flagged"
[[decontaminate.eval]]
name = "quiz"
path = "evals/dev.jsonl"
split = "dev"
[split]
rule = "every-nth"
n = 10
[output]
shard_tokens = { train = 1500, val = 300 }
[[source]]
name = "web"
paths = ["in/web-*.jsonl"]
id = "id"
url = "url"
budget = 6000
[[source]]
name = "books"
paths = ["in/books-*.jsonl"]
id = "id"
url = "url"
budget = 3000
"""


def prepared(folder: Path, layout: str) -> Path:
    tokenizer_file(folder)
    sources(folder, {"web": 80, "books": 40})
    write_records(folder / "in/books-2.jsonl", [*records("web", 5), {"id": "q", "url": None, "text": EVAL}])
    write_records(folder / "evals/dev.jsonl", [{"text": EVAL}])
    recipe = folder / "mix.toml"
    recipe.write_text(RECIPE.replace("LAYOUT", layout))
    return recipe


def killed(recipe: Path, out: Path, seconds: float) -> bool:
    """Start a build and kill it with its workers after so many seconds; returns whether it had ended before."""
    command = [sys.executable, "-m", "tokenreel", "build", str(recipe), "--out", str(out), "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return False
    return process.returncode == 0


def check_kills(folder: Path, layout: str, kills: int, seed: int) -> None:
    recipe = prepared(folder, layout)
    began = time.monotonic()
    assert killed(recipe, folder / "first", 300)
    whole_run = time.monotonic() - began
    build_mix(recipe, folder / "whole", in_process=True)
    assert all_files(folder / "first") == all_files(folder / "whole")
    draw = random.Random(seed)
    for _ in range(kills):
        killed(recipe, folder / "out", draw.uniform(0.2, 1.0) * whole_run)
    build_mix(recipe, folder / "out", in_process=True)
    assert all_files(folder / "out") == all_files(folder / "whole")


def test_killed_at_any_moment_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    check_kills(tmp_path, "hobbylm", 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["native", "ounce", "hobbylm"])
def test_killed_many_times_it_ends_with_the_same_bytes(tmp_path: Path, layout: str) -> None:
    check_kills(tmp_path, layout, 20, 7)


PLACES = {
    "after a shard": (mix_write, "write_bytes_atomic", 3),
    "after the documents": (mixed, "write_ounce_manifest", 0),
    "after the stages": (mixed, "manifest_of", 0),
    "before the manifest": (mix_finish, "dump_manifest", 0),
    "before the end": (mix_finish, "_mark", 0),
    "before cleaning": (mixed, "clear", 0),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_disk_that_fails_anywhere_leaves_what_the_next_run_ends(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = whole(tmp_path, layout="ounce", source=sources(tmp_path, {"a": 60}))
    build(tmp_path, recipe, "whole")
    module, name, after = PLACES[place]
    real, calls = getattr(module, name), [0]

    def failing(*arguments: object, **more: object) -> object:
        calls[0] += 1
        if calls[0] > after:
            raise StorageError("STO003", "no space left", path=tmp_path)
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, failing)
        with pytest.raises(StorageError):
            build(tmp_path, recipe)
    if place in ("after the stages", "before the end"):
        report = verify(tmp_path / "out")
        assert (report.status, [one.code for one in report.findings]) == ("incomplete", ["MAN046"])
        with pytest.raises(IncompleteError, match="STA006"):
            _incomplete([tokenreel.open(tmp_path / "out")], allowed=False)
    complete = (tmp_path / "out/mix.complete.json").exists()
    assert complete == (place == "before cleaning")
    build(tmp_path, recipe)
    assert all_files(tmp_path / "out") == all_files(tmp_path / "whole")


def test_finished_shards_are_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = whole(tmp_path, source=sources(tmp_path, {"a": 60}))
    with monkeypatch.context() as patch:
        patch.setattr(mixed, "assemble", lambda *_: (_ for _ in ()).throw(StorageError("STO003", path=tmp_path)))
        with pytest.raises(StorageError):
            build(tmp_path, recipe)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/shards").rglob("*.bin")}
    assert before
    report = build(tmp_path, recipe)
    assert report.built == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
