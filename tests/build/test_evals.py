"""Evaluation sets: items read, test splits refused by name, path, link and metadata, opened files logged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tokenreel.build.evals import is_test, load_eval
from tokenreel.errors import SourceError


def write(path: Path, *records: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_items_are_fields_joined(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", {"q": "one?", "choices": ["a", "b"]}, {"q": "two?", "choices": []})
    found = load_eval("quiz", path, "dev", ["q", "choices"])
    assert found.items == ["one?\na\nb", "two?"]
    assert found.files == (("dev.jsonl", hashlib.sha256(path.read_bytes()).hexdigest()),)
    (tmp_path / "list.json").write_text('[{"q": "x"}]')
    assert load_eval("quiz", tmp_path / "list.json", "validation", ["q"]).items == ["x"]
    parquet.write_table(pa.table({"q": ["y"]}), tmp_path / "p.parquet")
    assert load_eval("quiz", tmp_path / "p.parquet", "train", ["q"]).items == ["y"]


def test_test_splits_are_never_opened(tmp_path: Path) -> None:
    fine = write(tmp_path / "dev.jsonl", {"q": "x"})
    with pytest.raises(SourceError, match="SRC040"):
        load_eval("quiz", fine, "test", ["q"])
    with pytest.raises(SourceError, match="SRC040"):
        load_eval("quiz", write(tmp_path / "quiz_test.jsonl", {"q": "x"}), "dev", ["q"])
    (tmp_path / "innocent.jsonl").symlink_to(write(tmp_path / "far/test.jsonl", {"q": "x"}))
    with pytest.raises(SourceError, match="links to"):
        load_eval("quiz", tmp_path / "innocent.jsonl", "dev", ["q"])
    write(tmp_path / "folder/test/a.jsonl", {"q": "x"})
    write(tmp_path / "folder/dev/a.jsonl", {"q": "x"})
    with pytest.raises(SourceError, match="SRC040"):
        load_eval("quiz", tmp_path / "folder", "dev", ["q"])
    (tmp_path / "far/test_set").mkdir()
    write(tmp_path / "far/test_set/a.jsonl", {"q": "x"})
    for link, to in (("one.jsonl", "far/test_set/a.jsonl"), ("evals", "far/test_set")):
        (tmp_path / link).symlink_to(tmp_path / to)
        with pytest.raises(SourceError, match="links to"):
            load_eval("quiz", tmp_path / link if "." in link else tmp_path / link / "a.jsonl", "dev", ["q"])
    with pytest.raises(SourceError, match=r"its path is 'evals/test/a\.jsonl'"):
        load_eval("quiz", fine, "dev", ["q"], "evals/test/a.jsonl")
    assert load_eval("quiz", fine, "dev", ["q"], "/home/me/test-runs/evals/dev.jsonl").items == ["x"]
    table = pa.table({"q": ["x"]}).replace_schema_metadata({"info": json.dumps({"split": "test"})})
    parquet.write_table(table, tmp_path / "hidden.parquet")
    with pytest.raises(SourceError, match="metadata"):
        load_eval("quiz", tmp_path / "hidden.parquet", "dev", ["q"])


def test_words_that_only_contain_it_are_no_test_split() -> None:
    assert not any(map(is_test, ("latest", "contest", "attestation", "protest-2020", "dev")))
    assert all(map(is_test, ("TEST", "tests", "a/test/b", "test_01", "my-test")))


def test_items_without_their_fields_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="SRC041"):
        load_eval("quiz", write(tmp_path / "a.jsonl", {"p": 1}), "dev", ["q"])
    with pytest.raises(SourceError, match="SRC041"):
        load_eval("quiz", write(tmp_path / "b.jsonl", [1]), "dev", ["q"])
