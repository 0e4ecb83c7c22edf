"""Small mixes for tests of staging: sources on disk, a recipe over them, and what staging made of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.build.making import tokenizer_file
from tokenreel.build.staging_parts import StagedPart, staged_parts
from tokenreel.build.staging_run import StagedSource, stage_all
from tokenreel.build.staging_settings import settle_mixed
from tokenreel.config.mixed import MixedRecipe, parse_mixed

PROSE = (
    "The night was quiet and the river went on below the old bridge. Nobody had crossed it since the flood, and those who "
    "came from the other side had to walk for an hour to be in the town that they could see from their windows. "
    "With patience, the miller said, water will have found another way before the council has found its money."
)


def write_records(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    return path


def mix(folder: Path, **tables: Any) -> MixedRecipe:
    """Return a recipe of the file tokenizer with these tables; without sources it has one, of ``in/*``."""
    tokenizer_file(folder)
    whole = {
        "tokenizer": {"path": "tokenizer.json", "eod": "<eod>", "recheck": 3},
        "merge": {"how": "sequential"},
        "source": [{"name": "web", "paths": ["in/*"], "id": "id"}],
        **tables,
    }
    return parse_mixed(whole)


def stage(folder: Path, recipe: MixedRecipe, name: str = "stage", workers: int = 0) -> list[StagedSource]:
    return stage_all(recipe, folder, folder / name, settle_mixed(recipe, folder), workers=workers)


def files(stage_folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a stage."""
    return {
        path.relative_to(stage_folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(stage_folder.rglob("*"))
        if path.is_file()
    }


def rows(part: StagedPart) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = part.table().to_pylist()
    return found


def all_rows(stage_folder: Path, source: str) -> list[dict[str, Any]]:
    return [row for part in staged_parts(stage_folder, source) for row in rows(part)]
