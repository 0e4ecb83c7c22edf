"""Mixes for tests: texts, recipes that make a whole mix of them, and what stands in the output."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.build.mixes import PROSE, mix, write_records
from tokenreel.build.mix_report import MixReport
from tokenreel.build.mixed import run_mixed
from tokenreel.config.mixed import MixedRecipe

EVAL = " ".join(f"question{k}" for k in range(20))
WORDS = PROSE.split()


def text(name: str, k: int) -> str:
    """Return a text like no other: whose words stand in an order of their own."""
    at = int.from_bytes(hashlib.sha256(f"{name} {k}".encode()).digest()[:4], "big")
    turned = [WORDS[(at // (j + 1) + j * j) % len(WORDS)] for j in range(12 + at % 40)]
    return f"{name} {k}: {' '.join(turned)}."


def records(name: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": f"{name}{k}", "text": text(name, k), "url": f"https://{name}/{k}", **more} for k in range(count)]


def sources(folder: Path, counts: dict[str, int] | None = None, **more: Any) -> list[dict[str, Any]]:
    """Write two files for each source, and return their tables."""
    tables = []
    for name, count in (counts or {"web": 60, "books": 40}).items():
        rows = records(name, count)
        write_records(folder / f"in/{name}-0.jsonl", rows[: count // 2])
        write_records(folder / f"in/{name}-1.jsonl", rows[count // 2 :])
        tables.append({"name": name, "paths": [f"in/{name}-*.jsonl"], "id": "id", "url": "url", **more})
    return tables


def whole(folder: Path, **tables: Any) -> MixedRecipe:
    """Return a recipe with every stage of the merge, over `sources`."""
    evals = folder / "evals/dev.jsonl"
    if not evals.exists():
        write_records(evals, [{"text": EVAL}, {"text": "too short for an n-gram"}])
    given = {
        "corpus": {"name": "small"},
        "merge": {"how": "interleave"},
        "dedup": {"by": ["url"]},
        "split": {"rule": "every-nth", "n": 10},
        "documents": {"empty": "drop"},
        "decontaminate": {
            "remove": "flagged",
            "eval": [{"name": "quiz", "path": "evals/dev.jsonl", "split": "dev"}],
        },
        "output": {"shard_tokens": {"train": 900, "val": 400}},
        **tables,
    }
    if "source" not in given:
        given["source"] = sources(folder)
    return mix(folder, **given)


def build(folder: Path, recipe: MixedRecipe, name: str = "out", workers: int = 0, **more: Any) -> MixReport:
    return run_mixed(recipe, folder, folder / name, workers=workers, **more)


def all_files(out: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of an output."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def json_of(path: Path) -> Any:
    return json.loads(path.read_bytes())
