"""build, verify and inspect through the real entry point, with exit statuses and JSON; and the demo."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.cli.command import run

RECIPE = """
[corpus]
name = "life"
[tokenizer]
name = "bytes"
[split]
rule = "every-nth"
n = 3
[[source]]
name = "web"
paths = ["*.jsonl"]
id = "id"
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("life")
    lines = [json.dumps({"id": f"d{k}", "text": f"document {k} é"}) for k in range(7)]
    (folder / "a.jsonl").write_text("\n".join(lines[:5]) + "\n")
    (folder / "b.jsonl").write_text("\n".join(lines[5:]) + "\n")
    (folder / "recipe.toml").write_text(RECIPE)
    done = run("build", folder / "recipe.toml", "--out", folder / "corpus", "--workers", "1", "--json")
    assert done.status == 0, done.err
    assert done.json["by_split"]["validation"]["documents"] == 1
    assert done.err == ""
    return folder


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "build.log.jsonl"
    }


def test_building_again_changes_nothing(built: Path) -> None:
    before = tree(built / "corpus")
    again = run("build", built / "recipe.toml", "--out", built / "corpus", "--json")
    assert again.status == 0
    assert again.json["nothing_to_do"]
    assert tree(built / "corpus") == before


def test_another_configuration_is_refused(built: Path) -> None:
    other = run("build", built / "recipe.toml", "--out", built / "corpus", "--set", "split.n=2", "--json")
    assert (other.status, other.json["error"]["code"]) == (1, "MAN010")


def test_dry_run_writes_nothing(built: Path, tmp_path: Path) -> None:
    done = run("build", built / "recipe.toml", "--out", tmp_path / "out", "--dry-run", "--json")
    assert done.status == 0
    assert done.json["parts"] == 2
    assert not (tmp_path / "out").exists()


def test_a_typo_names_the_nearest_key(built: Path) -> None:
    wrong = run("build", built / "recipe.toml", "--out", built / "x", "--set", "tokenizer.nam='bytes'", "--json")
    assert (wrong.status, wrong.json["error"]["code"]) == (2, "RCP003")
    assert "name" in wrong.json["error"]["message"]
    assert not (built / "x").exists()


def test_verify_ok_broken_incomplete(built: Path, tmp_path: Path) -> None:
    ok = run("verify", built / "corpus", "--level", "full", "--json")
    assert (ok.status, ok.json["status"]) == (0, "ok")
    assert ok.json["facts"]["splits"]["validation"]["documents"] == 1
    broken = tmp_path / "broken"
    shutil.copytree(built / "corpus", broken)
    payload = broken / "shards/train/part-000000.bin"
    data = bytearray(payload.read_bytes())
    data[4] ^= 1
    payload.write_bytes(data)
    found = run("verify", broken, "--level", "full", "--json")
    assert (found.status, found.json["status"]) == (1, "broken")
    assert any(one["path"].endswith("part-000000.bin") for one in found.json["findings"])
    assert run("verify", broken).out
    half = tmp_path / "half"
    shutil.copytree(built / "corpus", half)
    (half / "COMPLETE.json").unlink()
    left = run("verify", half, "--json")
    assert (left.status, left.json["status"]) == (4, "incomplete")


def test_verify_from_the_source(built: Path, tmp_path: Path) -> None:
    good = run("verify", built / "corpus", "--level", "full", "--source", built, "--json")
    assert good.status == 0, good.out
    assert any("source" in what for what in good.json["checked"])
    folder = tmp_path / "changed"
    folder.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (folder / name).write_bytes((built / name).read_bytes().replace(b"document 1", b"document X"))
    changed = run("verify", built / "corpus", "--source", folder, "--json")
    assert changed.status == 1
    assert "MAN058" in changed.json["counts"]


def test_inspect_shows_a_document_with_its_text(built: Path) -> None:
    seen = run("inspect", built / "corpus", "--split", "train", "--doc", "1", "--at", "3", "--json")
    assert seen.status == 0
    assert seen.json["documents"][0]["text"] == "document 1 é"
    assert seen.json["documents"][0]["ids"][-1] == 256
    assert seen.json["places"][0]["document"] == 0
    assert seen.json["complete"] is True
    text = run("inspect", built / "corpus/train", "--doc", "1").out
    assert "| document 1 é" in text
    assert run("inspect", built / "corpus", "--doc", "1", "--json").json["error"]["code"] == "SPL001"
    assert run("inspect", built / "corpus/train", "--doc", "99", "--json").json["error"]["code"] == "DOC001"


def test_the_demo_plays_all_acts_and_catches_the_flip(tmp_path: Path) -> None:
    played = run("demo", tmp_path / "demo", "--seed", "5", "--workers", "1", "--json")
    assert played.status == 0, played.err
    acts = played.json["acts"]
    assert len(acts) >= 5
    flip = acts[-1]
    assert flip["status"] == "broken"
    assert flip["caught"]
    assert flip["restored"] == "ok"
    other = run("demo", tmp_path / "demo", "--seed", "6", "--json")
    assert other.status == 0
    assert (other.json["acts"][-1]["path"], other.json["acts"][-1]["offset"]) != (flip["path"], flip["offset"])
