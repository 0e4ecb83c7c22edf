"""build, verify and inspect through the real entry point, with exit statuses and JSON; and the demo."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.verify.corpora import write_pair
from tokenreel.build.lock import build_lock

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
    assert (other.status, other.json["error"]["code"]) == (2, "MAN010")


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


# ---- what people read ----------------------------------------------------------------------------------------------


def test_the_verdict_is_the_first_line(built: Path, tmp_path: Path) -> None:
    corpus = built / "corpus"
    lines = run("verify", corpus, "--level", "full").out.splitlines()
    assert lines[0] == f"{corpus}: ok - 3 shards, 7 documents, 98 tokens, every byte read"
    [passed] = [int(line.split()[0]) for line in lines if line.endswith("checks passed (-v lists them)")]
    assert not any(line.startswith("passed: ") for line in lines)
    quick = run("verify", corpus, "--sample", "1").out.splitlines()
    assert quick[0].endswith("headers, tables and 1 document read")
    listed = run("verify", corpus, "--level", "full", "-v").out.splitlines()
    assert sum(line.startswith("passed: ") for line in listed) == passed
    only = run("verify", corpus, "--select", "MAN").out.splitlines()[0]
    assert f"{corpus}: ok for MAN only (" in only
    assert "left out)" in only


@pytest.mark.parametrize("option", ["--select", "--ignore", "--accept"])
def test_a_code_that_is_not_there_is_a_usage_error(built: Path, option: str) -> None:
    wrong = run("verify", built / "corpus", option, "MEG40", "--json")
    assert (wrong.status, wrong.json["error"]["code"]) == (2, "USE001")
    assert wrong.json["error"]["hint"].startswith(f"{option} MEG")
    assert run("verify", built / "corpus", option, "").status == 2


def test_at_most_three_findings_of_a_code_are_shown(tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[1, 2, 7]] * 300)
    shown = run("verify", tmp_path, "--level", "full", "--boundary", "suffix=0")
    lines = shown.out.splitlines()
    assert (shown.status, lines[0].split(" - ")[1].split(";")[0]) == (1, "300 errors")
    assert sum(line.startswith("error TOK021") for line in lines) == 3
    assert "  and 297 more TOK021" in lines
    assert "  300 of 300 documents read end with 7: did you mean --boundary suffix=7?" in lines
    full = run("verify", tmp_path, "--level", "full", "--boundary", "suffix=0", "--json").json
    assert len(full["findings"]) == 20


def test_inspect_answers_what_was_asked(built: Path) -> None:
    train = built / "corpus" / "train"
    whole = run("inspect", train).out
    assert "min 14, p1 14" in whole
    assert "median 14" in whole
    assert "corpus: " not in whole
    assert "training row" not in whole
    assert "training row" in run("inspect", train, "--lengths").out
    answer = run("inspect", train, "--doc", "-1").out.splitlines()
    assert len(answer) == 4
    assert answer[1].startswith("document 5: 14 ids, ")
    assert len(run("inspect", train, "--at", "3").out.splitlines()) == 2
    assert "1 shard, 1 document, 14 tokens" in run("inspect", built / "corpus").out


def test_bars_are_ascii_where_stdout_is(built: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[1], [1, 2, 3, 4]])
    for encoding, bar in (("ascii", "#"), ("utf-8", "█")):
        shown = run("inspect", tmp_path, env={"PYTHONIOENCODING": encoding})
        assert (shown.status, bar in shown.out) == (0, True)
        assert ("#" in shown.out) == (bar == "#")


def test_text_cannot_move_the_cursor(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "one \x1b[2J two"}) + "\n")
    (tmp_path / "recipe.toml").write_text(RECIPE.replace('id = "id"\n', ""))
    assert run("build", tmp_path / "recipe.toml", "--out", tmp_path / "out", "--workers", "1").status == 0
    shown = run("inspect", tmp_path / "out" / "train", "--doc", "0").out
    assert "\x1b" not in shown
    assert "one \\x1b[2J two" in shown


def test_a_build_that_has_written_no_part_is_incomplete(built: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(built / "corpus" / "run_config.json", begun)
    left = run("verify", begun, "--json")
    assert (left.status, left.json["status"]) == (4, "incomplete")
    assert set(left.json["counts"]) == {"MAN045", "MAN046"}
    assert "run it again" in run("verify", begun).out
    with build_lock(begun):
        assert "a build is at work" in run("verify", begun).out
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("verify", empty).status == 1
    with build_lock(empty):
        assert run("verify", empty).status == 4
