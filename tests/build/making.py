"""Recipes and inputs for the tests of builds; the build is run as a user runs it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenreel.text import train_bpe

CORPUS = (
    "The reel is recorded once and replayed exactly, frame by frame.",
    "def f(x):\n    return {'a': x + 1}  # comment\n\n\nclass A:\n\tpass\n",
    "می‌خواهم خانه‌ها را ببینم. Привет, мир! 日本語の文章 中文文本 한국어",
    "don't I'll we've they're it's 1234567890 3.14 v2.0",
) * 4


def write_jsonl(path: Path, texts: Iterable[str], **fields: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"text": text, "id": f"{path.stem}-{k}", **fields}) for k, text in enumerate(texts))
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def tokenizer_file(folder: Path, size: int = 400) -> Path:
    path = folder / "tokenizer.json"
    if not path.exists():
        path.write_bytes(train_bpe(CORPUS, size, ("<pad>", "<eod>")))
    return path


def write_recipe(folder: Path, text: str = "", **tables: Mapping[str, Any]) -> Path:
    """Write a recipe: `text` as it is, or a usual one with some tables replaced."""
    path = folder / "recipe.toml"
    if text:
        path.write_text(text, "utf-8")
        return path
    whole: dict[str, Mapping[str, Any]] = {
        "corpus": {"name": "made", "layout": "mahan"},
        "tokenizer": {"path": "tokenizer.json", "eod": "<eod>"},
        "split": {"rule": "hash-mod", "modulo": 5},
        "source": {"name": "web", "paths": ["in/*"], "id": "id"},
        **tables,
    }
    lines = []
    for name, table in whole.items():
        lines.append("[[source]]" if name == "source" else f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def start(recipe: Path, out: Path, *options: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tokenreel", "build", str(recipe), "--out", str(out), "--json", *options]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )


def run(recipe: Path, out: Path, *options: str, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the JSON document of `tokenreel build`."""
    process = start(recipe, out, *options, env=env)
    said, words = process.communicate(timeout=300)
    return process.returncode, json.loads(said) if said else {"stderr": words}


def tree(out: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of an output, but for the build log."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "build.log.jsonl"
    }


def leftovers(out: Path) -> list[str]:
    """Return what a failed build must not leave: shards without a receipt, temporaries, COMPLETE.json."""
    if not out.exists():
        return []
    done = {path.stem for path in (out / "receipts").glob("*.json")}
    bad = [str(p) for p in out.rglob("*.tokenreel-tmp")]
    bad += [str(p) for p in (out / "shards").rglob("*") if p.is_file() and p.stem not in done]
    return bad + [str(p) for p in [out / "COMPLETE.json"] if p.exists()]
