"""The demo's folder: never one that holds what the demo did not make. The acts are played in tests/cli/test_life.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import run
from tokenreel.demo import Act, run_demo
from tokenreel.demo import acts as module
from tokenreel.demo.acts import MARKER, gather
from tokenreel.errors import UsageError


@pytest.fixture(autouse=True)
def one_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACTS", (Act("Text", gather),))


def play(folder: Path) -> None:
    run_demo(folder, lambda _: None)


@pytest.mark.parametrize("name", ["recipe.toml", "text/library-00.jsonl", "notes"])
def test_somebody_s_files_are_refused_and_kept(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="USE010"):
        play(tmp_path)
    assert path.read_text() == "mine"
    assert sorted(tmp_path.rglob("*")) == before


def test_its_own_folder_is_played_in_again(tmp_path: Path) -> None:
    play(tmp_path / "new")
    (tmp_path / "new/corpus").mkdir()
    play(tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [MARKER, "recipe.toml", "text"]


@pytest.mark.slow
def test_a_whole_demo_is_played_twice_in_one_folder(tmp_path: Path) -> None:
    for _ in range(2):
        done = run("demo", tmp_path / "d")
        assert done.status == 0, done.err


def test_what_was_changed_in_its_folder_since_is_kept(tmp_path: Path) -> None:
    play(tmp_path)
    (tmp_path / "recipe.toml").write_text("mine")
    with pytest.raises(UsageError, match="USE010"):
        play(tmp_path)
    assert (tmp_path / "recipe.toml").read_text() == "mine"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="USE010"):
        play(tmp_path / "file")


@pytest.mark.slow
def test_a_temporary_demo_says_that_it_is_deleted_and_how_to_keep_it() -> None:
    last = run("demo").out.strip().splitlines()[-1]
    assert "is deleted now" in last
    assert "tokenreel demo DIR" in last
    assert not Path(last.split()[0]).exists()
