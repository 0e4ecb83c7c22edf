"""Recipes of mixes: told from others, read strictly, exported as a schema, and planned without writing anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.build.mixes import PROSE, mix, write_records
from tokenreel.build.routes import build_mix, is_mix
from tokenreel.build.staging_settings import settle_mixed
from tokenreel.cli.main import main
from tokenreel.config.mixed import MIXED_SOURCE_KEYS, MIXED_TABLES, is_mixed, parse_mixed
from tokenreel.errors import RecipeError

PLAIN = {"tokenizer": {"name": "bytes"}, "source": [{"name": "a", "paths": ["a.txt"]}]}
RECIPE = """
[tokenizer]
path = "tokenizer.json"
eod = "<eod>"

[[gate]]
kind = "characters"
min = 20

[[source]]
name = "web"
paths = ["in/*.jsonl"]
budget = 5000

[[source]]
name = "small"
paths = ["small/*"]
budget = 100000

[merge]
how = "interleave"
"""


def test_what_makes_a_recipe_one_of_a_mix() -> None:
    assert not is_mixed(PLAIN)
    for name in MIXED_TABLES:
        assert is_mixed({**PLAIN, name: {}})
    for key in MIXED_SOURCE_KEYS:
        assert is_mixed({**PLAIN, "source": [{**PLAIN["source"][0], key: 1}]})  # type: ignore[dict-item]
    assert is_mixed({**PLAIN, "layout": "ounce"})
    assert is_mixed({**PLAIN, "output": {"shard_tokens": {}}})
    assert not is_mixed({**PLAIN, "output": {"folder": "out"}})
    assert not is_mixed({"source": "no list"})


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"gates": []}, "RCP003", "did you mean gate"),
        ({"gate": [{"kind": "characters"}]}, "RCP006", "needs min or max"),
        ({"gate": [{"kind": "language"}]}, "RCP006", "needs languages"),
        ({"gate": [{"kind": "quality", "min": 1}]}, "RCP006", "needs column"),
        ({"gate": [{"kind": "characters", "min": 1, "sources": ["b"]}]}, "RCP006", "no source"),
        ({"gate": [{"kind": "words"}]}, "RCP004", "gate"),
        ({"gate": [{"kind": "characters", "mn": 1}]}, "RCP003", "min"),
        ({"dedup": {"by": ["url"]}}, "RCP006", "url"),
        ({"dedup": {"allow": ["b"]}}, "RCP006", "no source"),
        ({"source": [{"name": "a", "kind": "hub"}]}, "RCP006", "needs repo"),
        ({"source": [{"name": "a", "kind": "tokens"}]}, "RCP006", "needs path"),
        ({"source": [{"name": "a"}]}, "RCP006", "needs paths"),
        ({"source": [{"name": "a", "paths": ["a"], "budget": 0}]}, "RCP004", "budget"),
        ({"source": [{"name": "a", "paths": ["a"], "sample": 0.5}]}, "RCP006", "tokens"),
        ({"source": [{"name": "a", "paths": ["a"]}, {"name": "a", "paths": ["b"]}]}, "RCP006", "two sources"),
        ({"decontaminate": {"eval": [{"name": "e", "path": "p", "split": "test"}]}}, "RCP006", "test split"),
        ({"decontaminate": {"eval": []}}, "RCP004", "eval"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_mixed({**PLAIN, **change})
    assert caught.value.code == code
    assert said in str(caught.value)


def test_recipes_survive_the_way_to_a_worker(tmp_path: Path) -> None:
    recipe = mix(tmp_path, gate=[{"kind": "allow", "column": "c", "values": ["a", 1, True]}], dedup={"near": {}})
    again = msgspec.json.decode(msgspec.json.encode(recipe), type=type(recipe))
    assert again == recipe
    assert [type(value) for value in again.gate[0].values] == [str, int, bool]


def test_a_mix_does_not_train_its_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="RCP006"):
        settle_mixed(mix(tmp_path, tokenizer={"name": "train:bpe:300"}), tmp_path)


def write(folder: Path) -> Path:
    mix(folder)
    short = {"text": "too short"}
    write_records(folder / "in/a.jsonl", [{"text": f"{PROSE} {k}"} for k in range(60)] + [short] * 20)
    write_records(folder / "in/b.jsonl", [{"text": f"{PROSE} {k}"} for k in range(60)])
    write_records(folder / "small/c.jsonl", [{"text": f"{PROSE} {k}"} for k in range(4)])
    path = folder / "recipe.toml"
    path.write_text(RECIPE)
    return path


def test_a_dry_run_says_sizes_and_time_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "out"
    assert main(["build", str(recipe), "--out", str(out), "--dry-run", "--workers", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert sorted(tmp_path.rglob("*")) == before
    web, small = said["sources"]
    assert (web["inputs"], web["budget"], web["tokens"], web["enough"]) == (2, 5000, 5000, True)
    assert (web["sampled"], web["kept"], web["dropped"]) == (140, 120, {"gate/characters < 20": 20})
    assert 0 < web["read_bytes"] < web["input_bytes"] == sum(p.stat().st_size for p in (tmp_path / "in").iterdir())
    assert (small["enough"], small["kept"]) == (False, 4)
    assert said["tokens"] == 5000 + small["tokens"]
    assert said["output_bytes"] == 2 * said["tokens"]
    assert said["seconds"] > 0
    assert said["dry_run"] is True
    assert main(["build", str(recipe), "--out", str(out), "--dry-run"]) == 0
    words = capsys.readouterr().out
    assert "web: 2 inputs" in words
    assert "less than the budget" in words


def test_the_estimate_is_what_staging_finds(tmp_path: Path) -> None:
    from tests.build.mixes import stage
    from tokenreel.config.mixed import load_mixed

    recipe = write(tmp_path)
    planned = build_mix(recipe, dry_run=True, overrides=["source.0.budget=1000000"]).as_dict()["sources"]
    staged = stage(tmp_path, load_mixed(recipe, ["source.0.budget=1000000"]))
    for said, source in zip(planned, staged, strict=True):
        assert said["tokens"] == pytest.approx(source.totals.tokens_staged, rel=0.02)


def test_set_can_make_a_mix_of_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[tokenizer]\nname = "bytes"\n[[source]]\nname = "a"\npaths = ["in/*"]\n')
    assert not is_mix(path)
    assert is_mix(path, ["merge.how='sequential'"])


def test_no_folder_for_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write(tmp_path)
    assert main(["build", str(recipe), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "RCP007"


def test_the_schema_is_exported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "mix"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$ref"] == "#/$defs/MixedRecipe"
    source = schema["$defs"]["MixedSourceTable"]
    assert source["additionalProperties"] is False
    assert "budget" in source["properties"]
