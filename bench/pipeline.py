"""The whole pipeline: read, normalise, gate, exact dedup, 13-gram audit, tokenise, shards, checksums; beside datatrove and beside tokenising alone.

Two workers, JSON lines in the page cache, GPT-2's tokenizer. Gates: characters, tokens, Gopher's repetition; the audit looks for a million n-grams
of 13 ids. What the language gate adds is measured apart. `--dedup N` also measures exact dedup of N synthetic documents.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from build_speed import find_tokenizer
from build_speed import recipe as plain_recipe
from data import DATA, Dataset, prepare
from harness import HERE, MIB, Measure, Side, alternate, note
from peers import peer
from results import arguments, conditions, environment, median, record, spread, table

OUT = DATA / "out" / "pipeline"
ITEMS, ITEM_WORDS = 10_000, 112
SIDES = ("tokenreel", "tokenise", "language", "datatrove", "datatrove, our engine")


def items(dataset: Dataset) -> Path:
    """Write evaluation items of random words of the data, 100 n-grams of words each; the same ones every time."""
    path = DATA / "recipes" / "items.jsonl"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        with dataset.files("jsonl")[0].open(encoding="utf-8") as lines:
            words = sorted(
                {word for _, line in zip(range(50), lines, strict=False) for word in json.loads(line)["text"].split()}
            )
        drawn = random.Random(13)
        texts = (" ".join(drawn.choices(words, k=ITEM_WORDS)) for _ in range(ITEMS))
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return path


def recipe(dataset: Dataset, tokenizer: Path, *, files: int | None = None, language: bool = False) -> Path:
    """Write the recipe of a mix of one source."""
    folder = DATA / "recipes"
    folder.mkdir(exist_ok=True)
    paths = [os.path.relpath(path, folder) for path in dataset.files("jsonl")[:files]]
    more = (
        '[[gate]]\nkind = "language"\nlanguages = ["en", "de", "fr", "es", "ja", "pl", "ru", "zh"]\n'
        if language
        else ""
    )
    path = folder / f"mix-{dataset.name}-{files or 'all'}{'-language' if language else ''}.toml"
    path.write_text(
        f"""[tokenizer]
path = "{os.path.relpath(tokenizer, folder)}"
eod = "<|endoftext|>"

[normalise]
kind = "nfc"

[documents]
empty = "drop"

[[gate]]
kind = "characters"
min = 200

[[gate]]
kind = "tokens"
min = 50

[[gate]]
kind = "repetition"
{more}
[dedup]
exact = true

[decontaminate]
by = "ids"
[[decontaminate.eval]]
name = "items"
path = "{os.path.relpath(items(dataset), folder)}"
split = "dev"

[merge]
how = "sequential"

[split]
rule = "every-nth"
n = 50

[[source]]
name = "debian"
paths = {paths}
id = "id"
""",
        "utf-8",
    )
    return path


class Contest:
    """The sides of one run, warm."""

    def __init__(self, stack: ExitStack, tokenizer: Path) -> None:
        self.tokenizer = tokenizer
        ours: list[str | Path] = [sys.executable, HERE / "pipeline_sides.py", "tokenreel"]
        self.sides = {name: stack.enter_context(Side(f"pipeline-{name}", ours)) for name in SIDES[:3]}
        found = peer("datatrove")
        self.reason = found.reason
        if found.python:
            spec = importlib.util.find_spec("gigatoken")
            shipped: list[str | Path] = [found.python, "-W", "ignore", HERE / "pipeline_sides.py", "datatrove"]
            self.sides[SIDES[3]] = stack.enter_context(Side("pipeline-datatrove", shipped))
            if spec and spec.origin:
                with_engine = [*shipped, Path(spec.origin).parents[1]]
                self.sides[SIDES[4]] = stack.enter_context(Side("pipeline-datatrove-engine", with_engine))

    def call(self, name: str, dataset: Dataset, files: int | None = None, workers: int = 2) -> Measure:
        """Run one side into an empty place."""
        out = OUT / name.replace(" ", "-").replace(",", "")
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("datatrove"):
            folder, path = str(dataset.folder / "jsonl"), str(items(dataset))
            return self.sides[name].call(
                "build", source=folder, tokenizer=str(self.tokenizer), items=path, out=str(out)
            )
        if name == "tokenise":
            written = plain_recipe(dataset, "jsonl", self.tokenizer, first=files)
        else:
            written = recipe(dataset, self.tokenizer, files=files, language=name == "language")
        return self.sides[name].call("build", recipe=str(written), out=str(out), workers=workers)


def report(dataset: Dataset, runs: dict[str, list[Measure]]) -> str:
    """One table of all sides, and the claims."""
    ours = median(one.wall for one in runs["tokenreel"])
    rows = [
        [
            name,
            len(seen),
            spread(one.wall for one in seen),
            f"{dataset.bytes / 1e6 / median(one.wall for one in seen):.1f}",
            spread(one.cpu for one in seen),
            f"{max(one.rss_tree for one in seen) / MIB:,.0f}",
            f"{median(one.wall for one in seen) / ours:.2f}x",
        ]
        for name, seen in runs.items()
    ]
    head = ("side", "runs", "wall s", "MB/s", "CPU s", "RSS MiB, summed", "wall to ours")
    text = f"\n### {dataset.documents:,} documents, {dataset.bytes / 1e6:.1f} MB of text\n\n{table(head, rows)}\n\n"
    for name, wanted in ((SIDES[4], 2.0), (SIDES[3], 10.0)):
        if name in runs:
            ratio = median(one.wall for one in runs[name]) / ours
            text += f"- at least {wanted:.0f}x {name}: {'holds' if ratio >= wanted else 'FAILS'} ({ratio:.2f}x)\n"
    alone = ours / median(one.wall for one in runs["tokenise"])
    text += f"- at most 2x the time of tokenise-and-write alone: {'holds' if alone <= 2 else 'FAILS'} ({alone:.2f}x)\n"
    return text


def growth(contest: Contest, dataset: Dataset) -> str:
    """Time by size and by workers, of the whole pipeline."""
    rows = []
    for files, workers in ((2, 2), (4, 2), (8, 2), (8, 1)):
        size = sum(path.stat().st_size for path in dataset.files("jsonl")[:files]) / 1e6
        seen = contest.call("tokenreel", dataset, files=files, workers=workers)
        rows.append(
            [files, workers, f"{size:.0f}", f"{seen.wall:.2f}", f"{1000 * seen.wall / size:.1f}", f"{seen.cpu:.2f}"]
        )
    return "\n" + table(("files", "workers", "MB of JSON", "wall s", "ms a MB", "CPU s"), rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", default="full", choices=("spark", "slice", "full"))
    parser.add_argument("--dedup", type=int, default=0, help="also deduplicate so many synthetic documents")
    parser.add_argument("--growth", action="store_true", help="also by size and by workers")
    options = arguments(parser)
    facts: dict[str, Any] = {"environment": environment(("tokenreel", "gigatoken", "numba", "pyarrow"))}
    sets = prepare()
    dataset = sets[options.data]
    with ExitStack() as stack:
        contest = Contest(stack, find_tokenizer())
        for name in contest.sides:
            note(f"warm: {name}")
            contest.call(name, sets["spark"])
        calls = {name: partial(contest.call, name, dataset) for name in contest.sides}
        runs = alternate(calls, options.rounds)
        text = f"## The whole pipeline\n\n{conditions(facts['environment'])}\n{report(dataset, runs)}"
        if contest.reason:
            text += f"- datatrove: not measured: {contest.reason}\n"
        if options.growth:
            text += growth(contest, dataset)
        if options.dedup:
            found = contest.sides["tokenreel"].call("exact_dedup", documents=options.dedup)
            text += (
                f"\nExact dedup of {options.dedup:,} synthetic documents: {found.wall:.1f} s, "
                f"{found.value['bytes_each']:.1f} bytes of memory each.\n"
            )
        facts["runs"] = runs
    record("pipeline", facts, text, forced=options.force)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
