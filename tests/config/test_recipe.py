"""Recipes: read strictly, errors that name the key, overrides, schema."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tokenreel.config import SourceField, load_recipe, recipe_schema
from tokenreel.config.recipe import parse_recipe
from tokenreel.errors import RecipeError

TEXT = """
[corpus]
name = "x"
layout = "mahan"
[tokenizer]
path = "tokenizer.json"
eod = "<eod>"
[split]
rule = "hash-mod"
modulo = 1000
[[source]]
name = "web"
paths = ["a/*.jsonl"]
source = {field = "lang"}
[[source]]
name = "books"
paths = ["b.parquet"]
id = "key"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, "utf-8")
    return path


def table(**changes: Any) -> dict[str, Any]:
    return {"tokenizer": {"name": "bytes"}, "source": [{"name": "a", "paths": ["a.jsonl"]}], **changes}


def test_a_whole_recipe(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, TEXT))
    assert recipe.corpus.layout == "mahan"
    assert recipe.tokenizer.recheck == 1000
    assert recipe.source[0].source == SourceField(field="lang")
    assert (recipe.source[1].source, recipe.source[1].id, recipe.source[1].text) == (None, "key", "text")
    assert recipe.documents.empty == "keep"


def test_overrides_are_toml_values(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    recipe = load_recipe(
        path, ["split.modulo=50", "source[1].name=novels", "documents.empty='drop'", "tokenizer.eod=3"]
    )
    assert recipe.split is not None
    assert (recipe.split.modulo, recipe.source[1].name) == (50, "novels")
    assert (recipe.documents.empty, recipe.tokenizer.eod) == ("drop", 3)


@pytest.mark.parametrize(
    "text", ["split", "=3", "a b=3", "source[9].name=x", "source.name=x", "corpus.name.x=1", "source[9]=1"]
)
def test_overrides_that_cannot_be(tmp_path: Path, text: str) -> None:
    with pytest.raises(RecipeError, match="RCP005"):
        load_recipe(write(tmp_path, TEXT), [text])


def test_an_override_with_a_typo_is_an_unknown_key(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"split\.modolo; did you mean modulo"):
        load_recipe(write(tmp_path, TEXT), ["split.modolo=50"])


UNKNOWN = [
    (table(corpos={}), "corpos", "corpus"),
    (table(tokenizer={"name": "bytes", "eodd": "x"}), "tokenizer.eodd", "eod"),
    (table(source=[{"name": "a", "pths": []}]), "source[0].pths", "paths"),
    (table(source=[{"name": "a", "paths": ["a"], "source": {"feild": "x"}}]), "source[0].source.feild", "field"),
    (table(split={"rule": "none", "modul": 3}), "split.modul", "modulo"),
]


@pytest.mark.parametrize(("given", "place", "near"), UNKNOWN)
def test_a_typo_names_its_place_and_the_nearest_key(given: dict[str, Any], place: str, near: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(given, "r.toml")
    error = caught.value
    assert (error.code, error.exit_status) == ("RCP003", 2)
    assert error.message == f"unknown key {place}; did you mean {near}?"
    assert error.where["path"] == "r.toml"


def test_a_key_like_none_is_refused_without_a_guess() -> None:
    with pytest.raises(RecipeError, match=r"unknown key tokenizer\.qqqqqqqq "):
        parse_recipe(table(tokenizer={"name": "bytes", "qqqqqqqq": 1}))


def test_a_word_of_another_meaning_is_no_misspelling() -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(table(corpus={"out": "x"}))
    assert caught.value.message == "unknown key corpus.out"
    assert caught.value.hint == "tokenreel schema recipe"


def test_a_key_of_another_table_names_that_table() -> None:
    with pytest.raises(RecipeError, match=r"unknown key corpus\.folder; did you mean output\.folder\?"):
        parse_recipe(table(corpus={"folder": "x"}))


def test_a_choice_that_is_none_lists_them_and_names_the_nearest() -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(table(corpus={"layout": "mahn"}))
    error = caught.value
    assert error.message == "corpus.layout: there is no 'mahn'; did you mean 'mahan'?"
    assert (error.expected, error.found) == ("native, mahan", "mahn")


def test_a_string_in_place_of_a_list_shows_the_list() -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(table(source=[{"name": "a", "paths": "x.jsonl"}]))
    assert caught.value.message.startswith("source[0].paths: ")
    assert caught.value.hint == 'paths = ["x.jsonl"]'


@pytest.mark.parametrize("missing", ["tokenizer", "source"])
def test_a_missing_table_shows_one(missing: str) -> None:
    given = table()
    del given[missing]
    with pytest.raises(RecipeError) as caught:
        parse_recipe(given)
    assert caught.value.message == f"{missing} is missing"
    example = (caught.value.hint or "").split("\n", 1)[1]
    shown = tomllib.loads(example)
    parse_recipe({**given, **shown})


@pytest.mark.parametrize(("name", "guess"), [("gpt2", "gpt2/tokenizer.json"), ("a/b", 'repo = "a/b"')])
def test_a_tokenizer_s_name_that_is_none(name: str, guess: str) -> None:
    with pytest.raises(RecipeError, match="TKZ001") as caught:
        parse_recipe(table(tokenizer={"name": name}))
    assert caught.value.exit_status == 2
    assert guess in caught.value.message


def test_a_recipe_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(RecipeError, match="RCP001") as caught:
        load_recipe(write(tmp_path, TEXT))
    assert caught.value.exit_status == 3
    assert caught.value.hint == f"ls -ld {tmp_path}/recipe.toml"


WRONG = [
    (table(tokenizer={"name": 1}), "tokenizer.name"),
    (table(source=[]), "source"),
    (table(source=[{"name": "a", "paths": [1]}]), "source[0].paths[0]"),
    (table(source=[{"name": "a", "paths": []}]), "source[0].paths"),
    (table(source=[{"name": "", "paths": ["a"]}]), "source[0].name"),
    (table(corpus={"layout": "mahann"}), "corpus.layout"),
    (table(documents={"empty": "skip"}), "documents.empty"),
    (table(output={"chunk_bytes": 0}), "output.chunk_bytes"),
    (table(tokenizer={"name": "bytes", "recheck": -1}), "tokenizer.recheck"),
    ({"source": [{"name": "a", "paths": ["a"]}]}, "tokenizer"),
]


@pytest.mark.parametrize(("given", "place"), WRONG)
def test_wrong_types_name_their_place(given: dict[str, Any], place: str) -> None:
    with pytest.raises(RecipeError, match="RCP004") as caught:
        parse_recipe(given)
    assert place in caught.value.message


TOGETHER = [
    table(source=[{"name": "a", "paths": ["a"]}, {"name": "a", "paths": ["b"]}]),
    table(source=[{"name": "a", "paths": ["a"], "format": "jsonl", "separator": "x"}]),
    table(source=[{"name": "a", "paths": ["a"], "format": "text", "id": "x"}]),
    table(source=[{"name": "a", "paths": ["a"], "format": "text", "source": {"field": "x"}}]),
    table(split={"rule": "by-id"}),
    table(split={"rule": "by-id", "ids": ["a"], "file": "x"}, source=[{"name": "a", "paths": ["a"], "id": "i"}]),
    table(split={"rule": "by-id", "ids": ["a"]}),
    table(split={"rule": "none", "ids": ["a"]}),
]


@pytest.mark.parametrize("given", TOGETHER)
def test_keys_that_do_not_go_together(given: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="RCP006"):
        parse_recipe(given)


def test_no_such_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="RCP001") as caught:
        load_recipe(tmp_path / "absent.toml")
    assert caught.value.exit_status == 3


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="RCP001"):
        load_recipe(tmp_path)


def test_not_toml_says_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="RCP002") as caught:
        load_recipe(write(tmp_path, "[corpus]\nname = \n"))
    assert caught.value.where["line"] == 2
    assert "column 8" in caught.value.message


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(b'[corpus]\nname = "\xff"\n')
    with pytest.raises(RecipeError, match="RCP002") as caught:
        load_recipe(path)
    assert caught.value.where["offset"] == 17


def test_the_schema_knows_every_table() -> None:
    schema = recipe_schema()
    json.dumps(schema)
    recipe = schema["$defs"]["Recipe"]
    assert set(recipe["properties"]) == {"corpus", "tokenizer", "split", "source", "documents", "output"}
    assert recipe["additionalProperties"] is False
    assert set(recipe["required"]) == {"tokenizer", "source"}
