"""Places, names and limits that are given wrongly, or strangely: refused with a code, or done."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import tokenreel
from tests.cli.command import run
from tests.convert.test_pairs import CASES, Case, make
from tokenreel.convert import convert, merge, repair
from tokenreel.errors import StorageError, TokenError, UsageError

SEVERAL = CASES[0]


def test_links_in_a_circle_are_no_bug(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StorageError):
        convert(tmp_path / "loop", tmp_path / "out", to="mds", boundary="suffix=2")
    assert not repair(source, tmp_path / "loop/out").anything
    with pytest.raises(StorageError):
        convert(source, tmp_path / "loop/out", to="mds", boundary="suffix=2")
    with pytest.raises(StorageError):
        merge([source], tmp_path / "loop/out")


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    source = make(tmp_path / os.fsdecode(b"caf\xe9"), SEVERAL)
    out = tmp_path / os.fsdecode(b"out\xff")
    done = convert(source, out, to="mds", boundary="suffix=2")
    assert done.documents == 5
    assert convert(source, out, to="mds", boundary="suffix=2").kept_shards == 3
    record = json.loads((out / "convert.json").read_text("utf-8"))
    assert record["sources"][0]["path"].endswith("caf\\xe9")
    assert record["converted"]["path"].endswith("out\\xff")
    said = run("convert", source, tmp_path / os.fsdecode(b"b\xff"), "--to", "mds", "--boundary", "suffix=2", "--json")
    assert said.status == 0
    assert said.json["documents"] == 5


def test_a_declared_vocabulary_is_held(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    with pytest.raises(TokenError, match="TOK041") as caught:
        convert(source, tmp_path / "out", to="mds", boundary="suffix=2", vocab=9)
    assert (caught.value.where["document"], caught.value.found) == (3, 9)
    assert not (tmp_path / "out").exists()
    assert convert(source, tmp_path / "out", to="mds", boundary="suffix=2", vocab=10).documents == 5
    for vocab in (0, -5):
        with pytest.raises(UsageError, match="USE003"):
            convert(source, tmp_path / "none", to="mds", boundary="suffix=2", vocab=vocab)
        with pytest.raises(UsageError, match="USE003"):
            tokenreel.open(source, vocab=vocab)


def test_a_pair_is_not_merged_into_a_folder_that_is_merged(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    for place in (source / "all", source / "below/all"):
        with pytest.raises(UsageError, match="USE005"):
            merge([source], place)
    assert merge([source / "part-0", source / "part-1"], source / "both").documents_in == 3  # type: ignore[union-attr]


def test_what_ids_are_said_to_be_is_a_format(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    for word in ("nothing", "", "mdsx", "raw-uint16"):
        with pytest.raises(UsageError, match="USE003"):
            repair(source, tmp_path / "out", as_format=word)


def test_ids_that_look_like_another_width_are_written_all_the_same(tmp_path: Path) -> None:
    case = Case("zeros", "uint16", "suffix=0", (tuple((k, 0) for k in range(1, 60)),), {})
    source = make(tmp_path / "in", case)
    done = convert(source, tmp_path / "out", to="raw-uint16", boundary="suffix=0")
    assert done.identity == tokenreel.open(source, boundary="suffix=0").identity().digest
    assert len(tokenreel.open(tmp_path / "out", accept=["FLT003"])) == 59
