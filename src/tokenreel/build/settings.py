"""What a build is pinned to: tokenizer, dtype, split rule, inputs; the bytes of ``run_config.json``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokenreel.corpus.receipts import RUN_CONFIG_FORMAT, RunConfig, dump
from tokenreel.corpus.splits import SplitRule, split_rule
from tokenreel.errors import ManifestError, RecipeError
from tokenreel.formats.megatron_write import choose_dtype
from tokenreel.store import loads_strict
from tokenreel.store.atomic import read_error
from tokenreel.text import TokenizerSpec, load_tokenizer, pinned, probe_digest

if TYPE_CHECKING:
    from tokenreel.build.inputs import HashedInput
    from tokenreel.config import Recipe
    from tokenreel.text import Tokenizer

RECIPE_VERSION = 1
RUN_CONFIG = "run_config.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """A build's tokenizer, end of document and width of ids."""

    spec: TokenizerSpec
    tok: Tokenizer
    eod_id: int
    eod_token: str
    dtype: str


def tokenizer_spec(recipe: Recipe, recorded: dict[str, Any] | None) -> TokenizerSpec:
    """Return the recipe's tokenizer with its revision as a commit.

    A branch or tag that an earlier run into the same output resolved keeps meaning that commit. Raises `RecipeError`
    (TKZ001) and what resolving raises.
    """
    table = msgspec.to_builtins(recipe.tokenizer)
    own = {key: table[key] for key in TokenizerSpec.__slots__ if table.get(key) is not None}
    for key in ("name", "path"):
        if table.get(key) is not None:
            own[key] = table[key]
    spec = TokenizerSpec.parse(own)
    if spec.kind == "hub" and recorded is not None:
        same = all(recorded.get(key) == getattr(spec, key) for key in ("repo", "subfolder", "file"))
        if same and recorded.get("declared_revision") == spec.revision and isinstance(recorded.get("revision"), str):
            return replace(spec, revision=str(recorded["revision"]))
    return pinned(spec)


def settle(recipe: Recipe, spec: TokenizerSpec, folder: Path, trained: bytes | None) -> Settings:
    """Return the settings of a build; raises what loading raises, TKZ003, TKZ004 and TOK010."""
    tok = load_tokenizer(spec, folder, trained=trained)
    eod_id, eod_token = tok.eod(spec)
    largest = max(tok.largest_id, eod_id)
    dtype = choose_dtype(largest, tok.vocab_size, legacy=recipe.output.megatron_legacy_dtype)
    return Settings(spec, tok, eod_id, eod_token, dtype.name)


def rule_and_options(recipe: Recipe, folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of the split rule; ``hash-mod`` for the layout mahan, ``none`` otherwise."""
    split = recipe.split
    if split is None:
        return ("hash-mod" if recipe.corpus.layout == "mahan" else "none"), {}
    options: dict[str, Any] = dict(split.options)
    for key in ("modulo", "validation_when_equal", "n", "ids"):
        value = getattr(split, key)
        if value is not None:
            options[key] = value
    if split.file is not None:
        path = folder / split.file
        try:
            lines = path.read_text("utf-8-sig").splitlines()
        except OSError as error:
            raise read_error(path, error) from error
        except UnicodeDecodeError as error:
            raise RecipeError("RCP006", "the list of ids is not UTF-8", path=path, offset=error.start) from error
        options["ids"] = [line for line in lines if line]
    return split.rule, options


def make_rule(recipe: Recipe, folder: Path) -> SplitRule:
    """Return the recipe's split rule; raises `SplitError` (SPL010, SPL011)."""
    return split_rule(*rule_and_options(recipe, folder))


def tokenizer_record(settings: Settings, recipe: Recipe) -> dict[str, Any]:
    """Return what manifests say of the tokenizer: where it is from, its hash, its numbers, the probe's hash."""
    spec, tok = settings.spec, settings.tok
    if spec.kind == "hub":
        origin: dict[str, Any] = {"repo": spec.repo, "subfolder": spec.subfolder, "revision": spec.revision}
        origin["file"] = spec.file
        declared = recipe.tokenizer.revision or "main"
        if declared != spec.revision:
            origin["declared_revision"] = declared
    elif spec.kind == "train":
        origin = {"name": f"train:bpe:{spec.vocab_size}", "sample_bytes": spec.sample_bytes}
    else:
        origin = {"name": "bytes" if spec.kind == "bytes" else Path(str(spec.path)).name}
    return {
        "kind": tok.kind,
        **origin,
        "sha256": tok.sha256,
        "vocab_size": tok.vocab_size,
        "largest_id": tok.largest_id,
        "eod_id": settings.eod_id,
        "eod_token": settings.eod_token,
        "lossless": tok.lossless,
        "probe_sha256": probe_digest(tok),
    }


def run_config(recipe: Recipe, settings: Settings, rule: SplitRule, inputs: list[HashedInput]) -> RunConfig:
    """Return the run configuration: everything that decides the output's bytes, and nothing else."""
    sources = []
    for table in recipe.source:
        shape = next(one.planned.shape for one in inputs if one.planned.shape.name == table.name)
        facts: dict[str, Any] = {"name": table.name, "text": shape.text, "id": shape.id, "separator": shape.separator}
        if table.format != "auto":
            facts["format"] = table.format
        facts["source"] = {"field": shape.source_field} if shape.source_field else shape.constant
        sources.append({key: value for key, value in facts.items() if value is not None})
    return RunConfig(
        format=RUN_CONFIG_FORMAT,
        tokenizer=tokenizer_record(settings, recipe),
        split_rule=rule.as_dict(),
        dtype=settings.dtype,
        eod_id=settings.eod_id,
        special_in_text=recipe.tokenizer.special_in_text,
        recheck=recipe.tokenizer.recheck,
        empty_documents=recipe.documents.empty,
        empty_inputs=recipe.documents.empty_inputs,
        sources=tuple(sources),
        inputs=tuple(one.record for one in inputs),
        layout=recipe.corpus.layout,
        builder={"name": "tokenreel", "recipe_version": RECIPE_VERSION},
    )


def require_same(path: Path, recorded: bytes, wanted: RunConfig) -> None:
    """Raise `ManifestError` (MAN010), naming the first field that differs, unless the recorded bytes are `wanted`'s."""
    now = dump(wanted)
    if recorded == now:
        return
    place, before, after = first_difference(loads_strict(recorded, path), loads_strict(now)) or ("its spelling", "", "")
    raise ManifestError(
        "MAN010",
        f"{place} differs",
        path=path,
        expected=before,
        found=after,
        hint="build into another folder with --out, or remove this one",
    )


def first_difference(one: Any, two: Any, at: str = "") -> tuple[str, Any, Any] | None:
    """Return (place, one's value, two's value) of the first difference of two JSON values, or None.

    >>> first_difference({"a": [1, 2]}, {"a": [1, 3]})
    ('a[1]', 2, 3)
    """
    if type(one) is not type(two):
        return at or "all of it", one, two
    if isinstance(one, dict):
        for key in [*one, *(key for key in two if key not in one)]:
            place = f"{at}.{key}" if at else str(key)
            if key not in one or key not in two:
                return place, one.get(key, "absent"), two.get(key, "absent")
            found = first_difference(one[key], two[key], place)
            if found:
                return found
        return None
    if isinstance(one, list):
        for number, (first, second) in enumerate(zip(one, two, strict=False)):
            found = first_difference(first, second, f"{at}[{number}]")
            if found:
                return found
        return None if len(one) == len(two) else (f"the length of {at}", len(one), len(two))
    return None if one == two else (at, one, two)
