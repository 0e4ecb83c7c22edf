"""What became of a document: for each stage one that it dropped, by all the names that it has, through the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.build.mixes import PROSE, mix, stage, write_records
from tokenreel.build.explain import explain
from tokenreel.build.staging_write import ArrowWriter, dropped_batch, dropped_schema
from tokenreel.build.text_batches import Dropped
from tokenreel.cli.main import main
from tokenreel.corpus.documents import DOCUMENTS
from tokenreel.errors import SourceError, StorageError
from tokenreel.text.normalise import text_id

RECORDS = [
    {"id": "good", "text": PROSE, "score": 1},
    {"id": "blank", "text": "   ", "score": 1},
    {"id": "short", "text": "short", "score": 1},
    {"id": "poor", "text": PROSE + "!", "score": 0.25},
    {"id": "few", "text": "n o  t", "score": 1},
    {"id": "long", "text": PROSE * 3, "score": 1},
    {"id": 12, "text": PROSE + "?", "score": 1},
]
RECIPE = """
[tokenizer]
path = "tokenizer.json"
eod = "<eod>"

[normalise]
kind = "marin"

[[gate]]
kind = "characters"
min = 6

[[gate]]
kind = "quality"
column = "score"
min = 0.5

[[source]]
name = "web"
paths = ["in/*"]
id = "id"
min_tokens = 7
max_doc_tokens = 300

[output]
folder = "out"
"""


@pytest.fixture
def built(tmp_path: Path) -> Path:
    write_records(tmp_path / "in/a.jsonl", RECORDS)
    table = {"name": "web", "paths": ["in/*"], "id": "id", "min_tokens": 7, "max_doc_tokens": 300}
    gates: list[dict[str, Any]] = [
        {"kind": "characters", "min": 6},
        {"kind": "quality", "column": "score", "min": 0.5},
    ]
    stage(tmp_path, mix(tmp_path, normalise={"kind": "marin"}, gate=gates, source=[table]), "out/stage")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def test_every_stage_is_named_with_rule_and_value(built: Path) -> None:
    found = {}
    for record in RECORDS:
        (fate,) = explain(built / "out", str(record["id"]))
        assert (fate.source, fate.input, fate.record) == ("web", "in/a.jsonl", RECORDS.index(record))
        found[record["id"]] = (fate.stage, fate.rule, fate.value)
    full = found["long"][2].rpartition(" ")[2]
    assert found == {
        "good": ("staged", "kept", found["good"][2]),
        "blank": ("normalise", "marin: blank", ""),
        "short": ("gate", "characters < 6", "5"),
        "poor": ("gate", "quality < 0.5", "0.25"),
        "few": ("min_tokens", "tokens < 7", "6"),
        "long": ("staged", "kept", f"299 tokens, the first of {full}"),
        12: ("staged", "kept", found[12][2]),
    }


def test_by_id_and_by_record(built: Path) -> None:
    for record in RECORDS:
        number = RECORDS.index(record)
        by_text = explain(built / "out", text_id(str(record["text"])).hex())
        by_record = explain(built / "out", f"in/a.jsonl#{number}")
        assert by_text == by_record == explain(built / "out", str(record["id"]))
    for unknown in ("nobody", "in/a.jsonl#7", "in/b.jsonl#1", "0" * 32, "#"):
        with pytest.raises(SourceError, match="SRC031"):
            explain(built / "out", unknown)
    with pytest.raises(StorageError, match="STO001"):
        explain(built / "elsewhere", "good")


def test_a_later_stage_and_the_corpus_have_the_last_word(built: Path) -> None:
    import contextlib

    with contextlib.ExitStack() as stack:
        writer = ArrowWriter(stack, built / "out/receipts/dedup/web.dropped.arrow", dropped_schema())
        writer.add(dropped_batch([Dropped(0, "dedup", "exact", "web: in/z.jsonl#3", "good", text_id(PROSE))]))
        writer.finish("web.dropped.arrow")
    row = {"id": text_id(PROSE + "?"), "upstream_id": "12", "source": "web", "split": "val", "shard": "v", "index": 4}
    table = pa.Table.from_pylist([{**row, "length": 9}])
    from pyarrow import parquet

    parquet.write_table(table.cast(_fixed(table.schema)), built / "out" / DOCUMENTS)
    stages = [(fate.stage, fate.dropped) for fate in explain(built / "out", "good")]
    assert stages == [("staged", False), ("dedup", True)]
    first = explain(built / "out", "12")[0]
    assert (first.stage, first.value) == ("corpus", "9 tokens, val, v document 4")


def _fixed(schema: Any) -> Any:
    return schema.set(schema.get_field_index("id"), pa.field("id", pa.binary(16)))


def test_the_command(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = str(built / "recipe.toml")
    assert main(["build", recipe, "--explain", "poor"]) == 0
    assert capsys.readouterr().out == "web: in/a.jsonl#3 (poor): gate: dropped by quality < 0.5: found 0.25\n"
    assert main(["build", recipe, "--explain", "short", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fates"] == [
        {
            "stage": "gate",
            "rule": "characters < 6",
            "value": "5",
            "dropped": True,
            "source": "web",
            "input": "in/a.jsonl",
            "record": 2,
            "upstream_id": "short",
            "id": text_id("short").hex(),
        }
    ]
    assert main(["build", recipe, "--explain", "nobody", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "SRC031"
