"""Recipes of mixes: several sources, cleaned, deduplicated, audited and merged to a token budget, as types.

A recipe is one of these where it has any of the tables or keys that plain recipes do not know (`is_mixed`); it then may
have all that a plain recipe has. What a published description leaves open is a key here, with the choice as default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from tokenreel.config.recipe import (
    CorpusTable,
    DocumentsTable,
    Name,
    NotNegative,
    Positive,
    SourceTable,
    SplitTable,
    TokenizerTable,
    _Table,
)
from tokenreel.errors import RecipeError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

HINT = "tokenreel schema mix"
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

MIXED_TABLES = ("normalise", "gate", "dedup", "decontaminate", "merge")
MIXED_SOURCE_KEYS = (
    "kind", "budget", "repo", "path", "group", "licence", "family", "min_tokens", "max_doc_tokens", "url", "metadata",
    "transformations", "reason",
)  # fmt: skip
LAYOUTS = ("native", "ounce", "hobbylm")


class NormaliseTable(_Table, frozen=True, kw_only=True):
    """What is done to every text before anything else."""

    kind: Literal["none", "nfc", "marin"] = "none"
    whitespace: Literal["python", "columnar"] = "python"
    max_run: Positive = 128


class GateTable(_Table, frozen=True, kw_only=True):
    """One rule that drops documents; rules are applied in order, and the first that drops is the reason."""

    kind: Literal["characters", "tokens", "language", "quality", "repetition", "symbols", "shingles", "allow", "python"]
    name: Annotated[Name, msgspec.Meta(description="What reasons call it; the kind when left out.")] | None = None
    sources: Annotated[list[Name], msgspec.Meta(description="Sources it applies to; all when left out.")] = []
    min: Annotated[float, msgspec.Meta(description="characters, tokens, quality: at least.")] | None = None
    max: Annotated[float, msgspec.Meta(description="characters, tokens, quality, shingles: at most.")] | None = None
    column: Annotated[Name, msgspec.Meta(description="quality, allow: the record's field.")] | None = None
    values: Annotated[list[str | int | bool], msgspec.Meta(description="allow: what passes.")] = []
    languages: Annotated[list[Name], msgspec.Meta(description="language: what passes, as two letters.")] = []
    min_score: Annotated[Share, msgspec.Meta(description="language: of the detector.")] = 0.0
    chars: Annotated[int, msgspec.Meta(ge=1, description="language: characters looked at.")] = 1000
    limits: Annotated[
        dict[str, float],
        msgspec.Meta(description="repetition, symbols: limits by measure, over Gopher's; see docs/mixes.md."),
    ] = {}
    entry: Annotated[Name, msgspec.Meta(description="python: MODULE:FUNCTION, or an entry point's name.")] | None = None


class NearTable(_Table, frozen=True, kw_only=True):
    """Near duplicates, by MinHash."""

    threshold: Share = 0.8
    permutations: Positive = 128
    ngram: Positive = 5
    seed: NotNegative = 1


class DedupTable(_Table, frozen=True, kw_only=True):
    """Which documents count as the same; the first in merge order stays."""

    exact: Annotated[bool, msgspec.Meta(description="By the first 16 bytes of the SHA-256 of the exact text.")] = True
    by: Annotated[list[Literal["url", "id"]], msgspec.Meta(description="Also by these fields.")] = []
    url_scope: Literal["global", "family", "source"] = "global"
    id_scope: Literal["global", "family", "source"] = "source"
    max_removal: Annotated[Share, msgspec.Meta(description="A source that would lose more stops the build.")] = 0.5
    allow: Annotated[list[Name], msgspec.Meta(description="Sources that may lose more.")] = []
    near: NearTable | None = None


class EvalTable(_Table, frozen=True, kw_only=True):
    """One evaluation set, as a file; never a test split."""

    name: Name
    path: Name
    split: Annotated[Name, msgspec.Meta(description="train, validation or dev.")]
    fields: Annotated[list[Name], msgspec.Meta(min_length=1, description="Joined with a line feed.")] = msgspec.field(
        default_factory=lambda: ["text"]
    )


class DecontaminateTable(_Table, frozen=True, kw_only=True):
    """Overlap with evaluation sets: counted always, removed only if asked."""

    n: Positive = 13
    by: Literal["words", "ids"] = "words"
    strong: Annotated[Share, msgspec.Meta(description="Share of an item's n-grams that is strong evidence.")] = 0.3
    remove: Annotated[Literal["none", "flagged", "strong"], msgspec.Meta(description="Which documents go.")] = "none"
    eval: Annotated[list[EvalTable], msgspec.Meta(min_length=1)]


class MergeTable(_Table, frozen=True, kw_only=True):
    """In which order sources are put together."""

    how: Literal["interleave", "sequential", "shuffle"] = "interleave"
    seed: NotNegative = 0


class ShardTokens(_Table, frozen=True, kw_only=True):
    """A shard is closed by the document that reaches this many tokens."""

    train: Positive = 8_000_000
    val: Positive = 2_000_000


class MixedOutputTable(_Table, frozen=True, kw_only=True):
    """Where and how it is written."""

    folder: Annotated[Name, msgspec.Meta(description="The output folder, unless --out says another.")] | None = None
    format: Annotated[Name, msgspec.Meta(description="Of shards; the layout's when left out.")] | None = None
    dtype: Name | None = None
    shard_tokens: ShardTokens = ShardTokens()
    keep_stage: Annotated[bool, msgspec.Meta(description="Keep what was staged, for another merge.")] = False
    chunk_bytes: Positive = 8 << 20


class MixedTokenizerTable(TokenizerTable, frozen=True, kw_only=True):
    """The tokenizer, and where its boundary goes."""

    eod_at: Annotated[
        Literal["end", "begin"], msgspec.Meta(description="begin: the end-of-text token leads every document.")
    ] = "end"


class GroupTable(_Table, frozen=True, kw_only=True):
    """Records that are files of repositories: one document a repository."""

    by: Annotated[Name, msgspec.Meta(description="The field that names the repository.")]
    path: Annotated[Name, msgspec.Meta(description="The field with a file's path.")] = "path"
    language_field: Name = "language"
    language: Name = "Python"
    suffix: str = ".py"
    majority: Share = 0.5
    separator: str = "\n"
    headers: bool = False


class MixedSourceTable(SourceTable, frozen=True, kw_only=True):
    """Where documents come from, how many are taken, and what has to be said of them."""

    paths: Annotated[list[Name], msgspec.Meta(description="files, hub: files or patterns (*, **).")] = []
    kind: Literal["files", "hub", "tokens"] = "files"
    repo: Annotated[Name, msgspec.Meta(description="hub: organisation/name of a dataset repository.")] | None = None
    revision: Annotated[Name, msgspec.Meta(description="hub: 40 hex digits; a branch is resolved once.")] | None = None
    path: Annotated[Name, msgspec.Meta(description="tokens: a corpus in any format.")] | None = None
    boundary: Annotated[Name, msgspec.Meta(description="tokens: prefix=ID,suffix=ID.")] | None = None
    split_by_eot: Annotated[bool, msgspec.Meta(description="tokens: documents by the inline token.")] = False
    sample: Annotated[Share, msgspec.Meta(description="tokens: this share of documents, by seed.")] | None = None
    seed: NotNegative = 0
    family: Annotated[Name, msgspec.Meta(description="Sources of one family share the scope of urls.")] | None = None
    url: Annotated[Name, msgspec.Meta(description="The field with the document's url.")] | None = None
    metadata: Annotated[list[Name], msgspec.Meta(description="Fields kept with the document.")] = []
    budget: (
        Annotated[int, msgspec.Meta(ge=1, description="Tokens; the document that reaches it is the last.")] | None
    ) = None
    min_tokens: NotNegative = 0
    max_doc_tokens: (
        Annotated[int, msgspec.Meta(ge=1, description="The first so many tokens of a document stay.")] | None
    ) = None
    group: GroupTable | None = None
    licence: str | None = None
    transformations: str | None = None
    reason: str | None = None


class MixedRecipe(_Table, frozen=True, kw_only=True):
    """A whole recipe of a mix."""

    corpus: CorpusTable = CorpusTable()
    layout: Annotated[Literal["native", "ounce", "hobbylm"], msgspec.Meta(description="The exact set of files.")] = (
        "native"
    )
    tokenizer: MixedTokenizerTable
    normalise: NormaliseTable = NormaliseTable()
    gate: list[GateTable] = []
    dedup: DedupTable | None = None
    decontaminate: DecontaminateTable | None = None
    merge: MergeTable = MergeTable()
    split: SplitTable | None = None
    source: Annotated[list[MixedSourceTable], msgspec.Meta(min_length=1)]
    documents: DocumentsTable = DocumentsTable()
    output: MixedOutputTable = MixedOutputTable()


def is_mixed(table: dict[str, Any]) -> bool:
    """Return whether a recipe's table is one of a mix.

    >>> is_mixed({"source": [{"name": "a", "paths": ["a.txt"]}]}), is_mixed({"merge": {}, "source": []})
    (False, True)
    """
    sources = table.get("source")
    keys = [set(one) for one in sources if isinstance(one, dict)] if isinstance(sources, list) else []
    output = table.get("output")
    shards = isinstance(output, dict) and bool({"shard_tokens", "format", "keep_stage"} & set(output))
    return (
        shards
        or "layout" in table
        or any(name in table for name in MIXED_TABLES)
        or any(one & set(MIXED_SOURCE_KEYS) for one in keys)
    )


def load_mixed(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> MixedRecipe:
    """Return the mix in a TOML file, with ``key=value`` overrides put in; errors as in `load_recipe`."""
    from tokenreel.config.reading import override, read_toml

    table = read_toml(path)
    for one in overrides:
        override(table, one)
    return parse_mixed(table, path)


def parse_mixed(table: dict[str, Any], path: object = None) -> MixedRecipe:
    """Return the mix that a table stands for.

    Raises `RecipeError`: RCP003 an unknown key, RCP004 a value of the wrong type, RCP006 keys that do not go together.

    >>> parse_mixed({"tokenizer": {"name": "bytes"}, "source": [{"name": "a", "kind": "hub"}]})
    Traceback (most recent call last):
    tokenreel.errors.RecipeError: RCP006 source[0]: kind = "hub" needs repo ...
    """
    from tokenreel.config.reading import refuse_unknown, wrong_value

    refuse_unknown(table, MixedRecipe, path)
    try:
        recipe = msgspec.convert(table, MixedRecipe, strict=True)
    except msgspec.ValidationError as error:
        raise wrong_value(error, table, MixedRecipe, path, schema="mix") from error
    problem = next(_problems(recipe), None)
    if problem is not None:
        raise RecipeError("RCP006", problem, path=path, hint=HINT)
    return recipe


def mixed_schema() -> dict[str, Any]:
    """Return the JSON Schema of recipes of mixes.

    >>> mixed_schema()["$ref"]
    '#/$defs/MixedRecipe'
    """
    return msgspec.json.schema(MixedRecipe)


def _problems(recipe: MixedRecipe) -> Iterator[str]:
    names = [source.name for source in recipe.source]
    for name in names:
        if names.count(name) > 1:
            yield f"two sources are named {name!r}"
    for number, source in enumerate(recipe.source):
        yield from _of_source(source, f"source[{number}]")
    for number, gate in enumerate(recipe.gate):
        yield from _of_gate(gate, f"gate[{number}]", names)
    dedup = recipe.dedup
    if dedup is not None:
        yield from (f"dedup.allow names {name!r}, which is no source" for name in dedup.allow if name not in names)
        if "url" in dedup.by and not any(source.url for source in recipe.source):
            yield "dedup.by has url, and no source says its url field"
        if "id" in dedup.by and not any(source.id for source in recipe.source):
            yield "dedup.by has id, and no source says its id field"
    for number, one in enumerate(recipe.decontaminate.eval if recipe.decontaminate else ()):
        if "test" in one.split.lower():
            yield f"decontaminate.eval[{number}]: a test split is never opened"
    if recipe.merge.how == "interleave" and len(recipe.source) > 1:
        without = [source.name for source in recipe.source if source.budget is None]
        if without and len(without) < len(recipe.source):
            yield f'merge.how = "interleave" needs a budget in all sources or in none; {without[0]!r} has none'


def _of_source(source: MixedSourceTable, at: str) -> Iterable[str]:
    if source.kind == "files" and not source.paths:
        yield f'{at}: kind = "files" needs paths'
    if source.kind == "hub" and source.repo is None:
        yield f'{at}: kind = "hub" needs repo'
    if source.kind == "tokens" and source.path is None:
        yield f'{at}: kind = "tokens" needs path'
    if source.kind != "tokens" and (source.split_by_eot or source.sample is not None or source.boundary is not None):
        yield f'{at}: split_by_eot, sample and boundary go with kind = "tokens"'
    if source.kind == "tokens" and source.group is not None:
        yield f"{at}: group needs text"


_NEEDS = {
    "language": "languages",
    "quality": "column",
    "allow": "column",
    "python": "entry",
    "shingles": "max",
}


def _of_gate(gate: GateTable, at: str, names: list[str]) -> Iterable[str]:
    needed = _NEEDS.get(gate.kind)
    if needed is not None and not getattr(gate, needed):
        yield f'{at}: kind = "{gate.kind}" needs {needed}'
    if gate.kind in ("characters", "tokens", "quality") and gate.min is None and gate.max is None:
        yield f'{at}: kind = "{gate.kind}" needs min or max'
    yield from (f"{at}.sources names {name!r}, which is no source" for name in gate.sources if name not in names)
