"""What a build refuses before it begins: foreign folders, folders closed to it; and that it leaves nothing then."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.build.making import run
from tests.build.test_build import eleven_recipe
from tokenreel.build.run import build
from tokenreel.errors import ManifestError, StorageError, TokenreelError


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return eleven_recipe(tmp_path, "native")


@pytest.mark.parametrize(
    "name",
    ["receipts/part-000011.json", "shards/train/part-000011.bin", "shards/other/part-000001.bin", "receipts/x.txt"],
)
def test_a_part_that_is_not_in_the_plan(tmp_path: Path, recipe: Path, name: str) -> None:
    out = tmp_path / "out"
    build(recipe, out, in_process=True)
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("x")
    with pytest.raises(ManifestError, match="MAN011") as caught:
        build(recipe, out, in_process=True)
    assert caught.value.where["path"] == str(out / name)


@pytest.mark.parametrize(
    "name", ["notes.txt", "shards/train/part-000000.bin", "tokenizer/tokenizer.json", "tokenizer/other.json"]
)
def test_a_folder_that_holds_something_else(tmp_path: Path, recipe: Path, name: str) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    status, said = run(recipe, tmp_path / "out")
    assert (status, said["error"]["code"]) == (2, "MAN014")
    assert path.read_text() == "mine"
    assert [one for one in (tmp_path / "out").rglob("*") if one.is_file()] == [path]


@pytest.mark.parametrize("tokenizer", [{"path": "tokenizer.json", "eod": "<eod>"}, {"name": "train:bpe:350"}])
def test_a_tokenizer_that_is_not_ours_is_never_written_over(tmp_path: Path, tokenizer: dict[str, str]) -> None:
    recipe = eleven_recipe(tmp_path, "mahan", tokenizer=tokenizer)
    out = tmp_path / "out"
    (out / "tokenizer").mkdir(parents=True)
    (out / "tokenizer" / "tokenizer.json").write_text("mine")
    with pytest.raises(ManifestError, match="MAN014"):
        build(recipe, out, in_process=True)
    shutil.rmtree(out)
    build(recipe, out, in_process=True)
    (out / "tokenizer").mkdir(exist_ok=True)
    (out / "tokenizer" / "mine.json").write_text("mine")
    with pytest.raises(ManifestError, match=r"MAN014 .*mine\.json"):
        build(recipe, out, in_process=True)
    assert (out / "tokenizer" / "mine.json").read_text() == "mine"


def test_a_refused_build_leaves_what_was_there(tmp_path: Path, recipe: Path) -> None:
    out = tmp_path / "new" / "out"
    with pytest.raises(TokenreelError, match="TKZ003"):
        build(recipe, out, in_process=True, overrides=["tokenizer.eod='<nope>'"])
    assert not (tmp_path / "new").exists()
    out.mkdir(parents=True)
    with pytest.raises(TokenreelError, match="TKZ003"):
        build(recipe, out, in_process=True, overrides=["tokenizer.eod='<nope>'"])
    assert list(out.iterdir()) == []


def as_anyone(*command: object) -> tuple[int, dict[str, Any]]:
    """Run a command as a user whom permissions bind, the superuser too; skips where this cannot be had."""
    powers = "-dac_override,-dac_read_search"
    bound = ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"] if os.geteuid() == 0 else []
    if bound and (shutil.which("setpriv") is None or subprocess.run([*bound, "true"], capture_output=True).returncode):
        pytest.skip("the superuser cannot be bound by permissions here")
    words = [*bound, sys.executable, "-m", "tokenreel", *map(str, command), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(("mode", "name"), [(0o500, "out"), (0o500, "out/new"), (0o000, "out/new")])
def test_a_folder_that_may_not_be_written(tmp_path: Path, recipe: Path, mode: int, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(mode)
    status, said = as_anyone("build", recipe, "--out", tmp_path / name, "--workers", 1)
    assert (status, said["error"]["code"]) == (3, "STO003")


@pytest.mark.parametrize("pattern", ["in/*.jsonl", "**/*.jsonl", "in/01.jsonl"])
def test_a_source_folder_that_may_not_be_read(tmp_path: Path, recipe: Path, pattern: str) -> None:
    (tmp_path / "in").chmod(0)
    status, said = as_anyone("build", recipe, "--out", tmp_path / "out", "--set", f"source.0.paths=['{pattern}']")
    (tmp_path / "in").chmod(0o700)
    assert (status, said["error"]["code"]) == (3, "STO002")
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_cannot_be_written(tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o500)
    if os.access(out, os.W_OK):  # the superuser may write everywhere: let the system refuse by hand
        made = Path.mkdir

        def refuse(self: Path, *how: Any, **more: Any) -> None:
            if self.parent == out:
                raise PermissionError(13, "Permission denied", str(self))
            made(self, *how, **more)

        monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StorageError, match="STO003") as caught:
        build(recipe, out, in_process=True)
    assert caught.value.exit_status == 3
