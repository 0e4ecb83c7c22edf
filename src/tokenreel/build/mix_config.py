"""What decides a mix's bytes, as ``mix.config.json`` records it; a later run into the folder must have the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from tokenreel.build.mix_audit import load_evals
from tokenreel.build.mix_options import assumptions
from tokenreel.build.settings import first_difference, tokenizer_record
from tokenreel.build.staging_run import place_of, plan_digest
from tokenreel.build.text_batches import open_source
from tokenreel.corpus.mix_records import AUDIT, COMPLETE, CONFIG, CONFIG_FORMAT, RECORD
from tokenreel.errors import ManifestError
from tokenreel.hashing import sha256_file
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from pathlib import Path

    from tokenreel.build.mix_target import MixTarget
    from tokenreel.build.settings import Settings
    from tokenreel.config import Recipe
    from tokenreel.config.mixed import MixedRecipe
    from tokenreel.corpus.splits import SplitRule

MIX_VERSION = 1
_ANOTHER = "build into another folder with --out, or remove this one"
_FIXED = ("stages", "tokenizer", "layout", "split_rule", "shard_format", "dtype")
_STAGING = ("normalise", "gate", "tokenizer", "documents", "dedup", "decontaminate", "source")
"""Tables that staged parts depend on, those of one key before those of many."""


def config_of(recipe: MixedRecipe, settings: Settings, target: MixTarget, rule: SplitRule) -> dict[str, Any]:
    """Return what ``mix.config.json`` holds: every option, and what decides the bytes."""
    table = _every_option(recipe)
    for key in ("folder", "keep_stage", "chunk_bytes"):
        del table["output"][key]
    del table["tokenizer"]["engine"]
    return {
        "format": CONFIG_FORMAT,
        "version": MIX_VERSION,
        "recipe": table,
        "stages": {one.name: plan_digest(recipe, one, settings) for one in recipe.source},
        "tokenizer": tokenizer_record(settings, cast("Recipe", recipe)),
        "layout": recipe.layout,
        "split_rule": rule.as_dict(),
        "shard_format": target.format,
        "dtype": target.options.dtype,
        "assumptions": {key: value for key, value in assumptions(recipe, settings).items() if value not in ("", {})},
    }


def require_same(out: Path, now: bytes) -> None:
    """Raise `ManifestError` (MAN010) where the folder holds the mix of another recipe.

    While it is not finished only what staged parts and names of files depend on has to be the same: a merge that was
    refused may be asked for in another way.
    """
    path = out / CONFIG
    if not path.exists():
        return
    both = loads_strict(path.read_bytes(), path), loads_strict(now)
    said, wanted = both
    if not (out / COMPLETE).exists():
        said, wanted = ({key: one.get(key) for key in _FIXED} for one in both)
    different = first_difference(said, wanted)
    if different is not None and different[0].startswith("stages."):
        # A hash says nothing to people: what it stands for does.
        before, after = ({key: one["recipe"].get(key) for key in _STAGING} for one in both)
        different = first_difference(before, after, "recipe") or different
    if different is not None:
        place, before, after = different
        raise ManifestError("MAN010", f"{place} differs", path=path, expected=before, found=after, hint=_ANOTHER)


def require_inputs(out: Path, recipe: MixedRecipe, folder: Path, settings: Settings, record: dict[str, Any]) -> None:
    """Raise `ManifestError` (MAN010) where files that a finished mix was read from are others now."""
    place = place_of(recipe, folder, settings)
    for table, said in zip(recipe.source, record["sources"], strict=True):
        if table.kind != "files":
            continue
        inputs = open_source(table, place).inputs()
        known = {one["path"]: one["sha256"] for one in said["inputs"]}
        there = {one.path: one for one in inputs}
        changed = [
            path for path, digest in known.items() if path not in there or sha256_file(there[path].key) != digest
        ]
        if changed or len(inputs) != len(known) + said["inputs_not_read"]:
            found = changed[0] if changed else f"{len(inputs)} inputs"
            raise _differ(out, f"inputs of source {table.name!r} differ", found)
    if recipe.decontaminate is not None:
        sets = load_evals(recipe.decontaminate, folder)
        reports = loads_strict((out / AUDIT).read_bytes(), out / AUDIT)["evals"]
        for one, before in zip(sets, reports, strict=True):
            if [{"path": path, "sha256": digest} for path, digest in one.files] != before["files"]:
                raise _differ(out, f"files of evaluation set {one.name!r} differ", one.files[0][0])


def _differ(out: Path, what: str, found: str) -> ManifestError:
    return ManifestError("MAN010", what, path=out / RECORD, found=found, hint=_ANOTHER)


def _every_option(value: Any) -> Any:
    """Return a recipe's table with every key, those that were left out too."""
    if isinstance(value, msgspec.Struct):
        return {name: _every_option(getattr(value, name)) for name in value.__struct_fields__}
    return [_every_option(one) for one in value] if isinstance(value, list | tuple) else value
