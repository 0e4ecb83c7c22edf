"""Recipes: the TOML file a build is made from, as types; read strictly, with the path of whatever is wrong.

Paths in a recipe are relative to its folder. Every key is checked: an unknown one is an error that names the nearest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from tokenreel.errors import RecipeError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]

CHUNK_BYTES = 8 << 20


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A table of a recipe: frozen, no unknown keys."""


class CorpusTable(_Table, frozen=True, kw_only=True):
    """What is made."""

    name: Annotated[str, msgspec.Meta(description="The corpus's name, for its manifest.")] = "corpus"
    layout: Annotated[
        Literal["native", "mahan"],
        msgspec.Meta(description="The exact set of files: native adds manifest, documents.parquet and tokenizer."),
    ] = "native"


class TokenizerTable(_Table, frozen=True, kw_only=True):
    """Which tokenizer, and how special tokens in text and engines are treated."""

    name: Annotated[Name, msgspec.Meta(description="`bytes`, or `train:bpe:N` to train one on a sample.")] | None = None
    path: Annotated[Name, msgspec.Meta(description="A tokenizer.json or a SentencePiece .model.")] | None = None
    repo: Annotated[Name, msgspec.Meta(description="A hub repository: organisation/name.")] | None = None
    subfolder: str | None = None
    revision: Annotated[str, msgspec.Meta(description="40 hex digits; a branch or tag is resolved once.")] | None = None
    file: str | None = None
    eod: Annotated[str | int, msgspec.Meta(description="The token, or id, that ends every document.")] | None = None
    sample_bytes: Annotated[int, msgspec.Meta(ge=1, description="Text to train on, for train:bpe:N.")] | None = None
    special_in_text: Annotated[
        Literal["text", "error", "drop", "special"],
        msgspec.Meta(description="What the spelling of a special token in text becomes."),
    ] = "text"
    recheck: Annotated[
        int, msgspec.Meta(ge=0, description="One document in N is compared with the reference; 0: none.")
    ] = 1000
    engine: Annotated[str, msgspec.Meta(description="`auto`, `reference`, or an engine's name.")] = "auto"


class SplitTable(_Table, frozen=True, kw_only=True):
    """Which documents are validation."""

    rule: Name
    modulo: int | None = None
    validation_when_equal: int | None = None
    n: int | None = None
    ids: Annotated[list[str], msgspec.Meta(description="by-id: upstream ids that are validation.")] | None = None
    file: Annotated[str, msgspec.Meta(description="by-id: a file with one id a line.")] | None = None
    options: Annotated[dict[str, Any], msgspec.Meta(description="Options of a plug-in rule.")] = {}


class SourceField(_Table, frozen=True, kw_only=True):
    """A field of each record that holds its source."""

    field: Name


class SourceTable(_Table, frozen=True, kw_only=True):
    """Where documents come from."""

    name: Name
    paths: Annotated[list[Name], msgspec.Meta(min_length=1, description="Files or patterns (*, **).")]
    format: Literal["auto", "jsonl", "parquet", "text"] = "auto"
    text: Annotated[Name, msgspec.Meta(description="The field or column that holds the text.")] = "text"
    id: Annotated[Name, msgspec.Meta(description="The field or column that holds the upstream id.")] | None = None
    source: (
        Annotated[
            Name | SourceField,
            msgspec.Meta(description="The source counted in receipts: a constant (default: name), or {field = ...}."),
        ]
        | None
    ) = None
    separator: (
        Annotated[Name, msgspec.Meta(description='Plain text: what stands between documents ("\\n": one a line).')]
        | None
    ) = None


class DocumentsTable(_Table, frozen=True, kw_only=True):
    """What is done with documents and inputs that hold nothing."""

    empty: Literal["keep", "drop", "error"] = "keep"
    empty_inputs: Annotated[Literal["error", "allow"], msgspec.Meta(description="Inputs without any document.")] = (
        "error"
    )


class OutputTable(_Table, frozen=True, kw_only=True):
    """Where and how it is written."""

    folder: Annotated[Name, msgspec.Meta(description="The output folder, unless --out says another.")] | None = None
    megatron_legacy_dtype: Annotated[
        bool, msgspec.Meta(description="uint16 only where vocab_size < 65500, as Megatron's own tools choose.")
    ] = False
    chunk_bytes: Annotated[
        int, msgspec.Meta(ge=1, description="Text encoded at a time; changes memory, never the output.")
    ] = CHUNK_BYTES


class Recipe(_Table, frozen=True, kw_only=True):
    """A whole recipe."""

    corpus: CorpusTable = CorpusTable()
    tokenizer: TokenizerTable
    split: SplitTable | None = None
    source: Annotated[list[SourceTable], msgspec.Meta(min_length=1)]
    documents: DocumentsTable = DocumentsTable()
    output: OutputTable = OutputTable()


def load_recipe(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Recipe:
    """Return the recipe in a TOML file, with ``key=value`` overrides put in (dotted keys, TOML values).

    Raises `RecipeError`: RCP001 no such file, RCP002 not TOML (with line and column), RCP003 an unknown key (with the
    nearest), RCP004 a value of the wrong type or a missing key (with its path), RCP005 an override that is no
    ``key=value``, RCP006 keys that do not go together.
    """
    from tokenreel.config.reading import override, read_toml

    table = read_toml(path)
    for one in overrides:
        override(table, one)
    return parse_recipe(table, path)


def parse_recipe(table: dict[str, Any], path: object = None) -> Recipe:
    """Return the recipe that a table stands for; errors as in `load_recipe`.

    >>> parse_recipe({"tokenizer": {"name": "bytes"}, "source": [{"name": "a", "pths": ["a.txt"]}]})
    Traceback (most recent call last):
    tokenreel.errors.RecipeError: RCP003 unknown key source[0].pths; did you mean paths? ...
    """
    from tokenreel.config.reading import refuse_unknown, wrong_value

    refuse_unknown(table, Recipe, path)
    try:
        recipe = msgspec.convert(table, Recipe, strict=True)
    except msgspec.ValidationError as error:
        raise wrong_value(error, table, Recipe, path) from error
    _together(recipe, path)
    return recipe


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema of recipes, for editors that check TOML.

    >>> recipe_schema()["$ref"]
    '#/$defs/Recipe'
    """
    return msgspec.json.schema(Recipe)


def _together(recipe: Recipe, path: object) -> None:
    problem = None
    names = [source.name for source in recipe.source]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        problem = f"two sources are named {twice!r}"
    for number, source in enumerate(recipe.source):
        at = f"source[{number}]"
        if source.separator is not None and source.format not in ("auto", "text"):
            problem = f'{at}.separator goes with format = "text", not {source.format!r}'
        if source.format == "text" and (source.id is not None or isinstance(source.source, SourceField)):
            problem = f"{at}: plain text has no fields for id or source"
    split = recipe.split
    if split is not None:
        if split.rule == "by-id" and (split.ids is None) == (split.file is None):
            problem = "split: by-id has either ids or file"
        elif split.rule == "by-id" and any(source.id is None for source in recipe.source):
            problem = "split: by-id needs id in every [[source]]"
        elif split.rule != "by-id" and (split.ids is not None or split.file is not None):
            problem = f"split: ids and file go with by-id, not {split.rule!r}"
    name = recipe.tokenizer.name
    if name is not None and name != "bytes" and not name.startswith("train:"):
        likely = f"path = {json.dumps(name)}" if "." in name else f'path = "{name}/tokenizer.json"'
        guess = f"{likely} or repo = {json.dumps(name if '/' in name else 'organisation/' + name)}"
        raise RecipeError(
            "TKZ001",
            f"tokenizer.name: there is no tokenizer {name!r} in tokenreel; did you mean {guess}?",
            path=path,
            expected="bytes or train:bpe:N",
            found=name,
            hint="tokenreel schema recipe",
        )
    if problem is not None:
        raise RecipeError("RCP006", problem, path=path, hint="tokenreel schema recipe")
