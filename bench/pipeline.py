"""The whole pipeline: read, normalise, gate, exact dedup, 13-gram audit, tokenise, shards, checksums; beside datatrove and beside tokenising alone.

Two workers, JSON lines in the page cache, GPT-2's tokenizer. Gates: characters, tokens, a quality column, Gopher's repetition; the audit looks for a
million n-grams of 13 ids. What the language gate adds is measured apart. datatrove as shipped is measured on a slice, and rates are compared.
`--growth` adds 50, 200 and 800 MB and one worker beside two, `--dedup N` exact dedup of N synthetic documents. Everything: about 15 minutes.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from build_speed import find_tokenizer
from data import DATA, prepare
from harness import HERE, MIB, Measure, Side, alternate, note
from peers import peer
from pipeline_data import HOME, Texts, grown, items, texts
from pipeline_sides import LEAST_CHARACTERS, LEAST_QUALITY
from results import arguments, conditions, environment, median, record, spread, table

OUT = DATA / "out" / "pipeline"
OURS = ("tokenreel", "tokenise", "language")
SHIPPED, ENGINE = "datatrove", "datatrove, our engine"
GROWTH = ((2, 2), (8, 2), (32, 2), (8, 1))
"""(files, workers) of the large set."""

PLAIN = """[tokenizer]
path = "{tokenizer}"
eod = "<|endoftext|>"
engine = "gigatoken"
{stages}
[split]
{rule}

[[source]]
name = "debian"
paths = {paths}
id = "id"
"""

STAGES = f"""
[normalise]
kind = "nfc"

[documents]
empty = "drop"

[[gate]]
kind = "characters"
min = {LEAST_CHARACTERS}

[[gate]]
kind = "quality"
column = "quality"
min = {LEAST_QUALITY}
MORE
[[gate]]
kind = "repetition"

[[gate]]
kind = "tokens"
min = 50

[dedup]
exact = true

[decontaminate]
by = "ids"
[[decontaminate.eval]]
name = "items"
path = "ITEMS"
split = "dev"

[merge]
how = "sequential"
"""

LANGUAGE = """
[[gate]]
kind = "language"
languages = ["en", "de", "fr", "es", "ja", "pl", "ru", "zh"]
"""


def recipe(which: str, read: Texts, tokenizer: Path, questions: Path) -> Path:
    """Write the recipe of one of our sides."""
    folder = HOME / "recipes"
    folder.mkdir(parents=True, exist_ok=True)
    stages = STAGES.replace("MORE", LANGUAGE if which == "language" else "").replace(
        "ITEMS", os.path.relpath(questions, folder)
    )
    path = folder / f"{which}-{read.name}.toml"
    text = PLAIN.format(
        tokenizer=os.path.relpath(tokenizer, folder),
        stages="" if which == "tokenise" else stages,
        rule='rule = "hash-mod"' if which == "tokenise" else 'rule = "every-nth"\nn = 50',
        paths=[os.path.relpath(one, folder) for one in read.files],
    )
    path.write_text(text, "utf-8")
    return path


class Contest:
    """The sides of one run, warm."""

    def __init__(self, stack: ExitStack, tokenizer: Path, questions: Path) -> None:
        self.tokenizer, self.questions = tokenizer, questions
        ours: list[str | Path] = [sys.executable, HERE / "pipeline_sides.py", "tokenreel"]
        self.sides = {name: stack.enter_context(Side(f"pipeline-{name}", ours)) for name in OURS}
        found = peer("datatrove")
        self.reason, self.versions = found.reason, found.versions
        if found.python:
            spec = importlib.util.find_spec("gigatoken")
            shipped: list[str | Path] = [found.python, "-W", "ignore", HERE / "pipeline_sides.py", "datatrove"]
            self.sides[SHIPPED] = stack.enter_context(Side("pipeline-datatrove", shipped))
            if spec and spec.origin:
                with_engine = [*shipped, Path(spec.origin).parents[1]]
                self.sides[ENGINE] = stack.enter_context(Side("pipeline-datatrove-engine", with_engine))

    def call(self, name: str, read: Texts, workers: int = 2) -> Measure:
        """Run one side into an empty place."""
        out = OUT / name.replace(" ", "-").replace(",", "")
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        if name in OURS:
            path = recipe(name, read, self.tokenizer, self.questions)
            return self.sides[name].call("build", recipe=str(path), out=str(out), workers=workers)
        folder = str(read.files[0].parent)
        return self.sides[name].call(
            "build", source=folder, tokenizer=str(self.tokenizer), items=str(self.questions), out=str(out)
        )


def report(sizes: dict[str, int], runs: dict[str, list[Measure]]) -> str:
    """One table of all sides, and the claims; `sizes` are the bytes that each read."""
    rates = {name: sizes[name] / 1e6 / median(one.wall for one in seen) for name, seen in runs.items()}
    rows = [
        [
            name,
            len(seen),
            f"{sizes[name] / 1e6:.0f}",
            spread(one.wall for one in seen),
            f"{rates[name]:.1f}",
            spread(one.cpu for one in seen),
            f"{max(one.rss_tree for one in seen) / MIB:,.0f}",
            f"{rates[OURS[0]] / rates[name]:.2f}x",
            f"{max(one.foreign for one in seen):.0%}",
        ]
        for name, seen in runs.items()
    ]
    head = (
        "side",
        "runs",
        "MB of JSON",
        "wall s",
        "MB/s",
        "CPU s",
        "RSS MiB, summed",
        "ours is faster",
        "others, at most",
    )
    text = f"\n{table(head, rows)}\n"
    for name, wanted in ((ENGINE, 2.0), (SHIPPED, 10.0)):
        if name in runs:
            ratio = rates[OURS[0]] / rates[name]
            text += (
                f"- at least {wanted:.0f}x {name}, by MB/s: {'holds' if ratio >= wanted else 'FAILS'} ({ratio:.2f}x)\n"
            )
    alone = rates["tokenise"] / rates[OURS[0]]
    text += f"- at most 2x the time of tokenise-and-write alone: {'holds' if alone <= 2 else 'FAILS'} ({alone:.2f}x)\n"
    more = median(one.wall for one in runs["language"]) - median(one.wall for one in runs[OURS[0]])
    cpu = median(one.cpu for one in runs["language"]) - median(one.cpu for one in runs[OURS[0]])
    text += f"- the language gate, on the first 1,000 characters, adds {more:.2f} s wall, {cpu:.2f} s CPU\n"
    found = runs[OURS[0]][0].value
    source = found["sources"][0]
    text += (
        f"\nOf {source['docs_seen']:,} documents ours kept {sum(one['documents'] for one in found['splits'].values()):,}, "
        f"{sum(one['tokens'] for one in found['splits'].values()):,} tokens.\n"
    )
    return text


def growth(contest: Contest, read: Texts, rounds: int) -> tuple[str, dict[str, list[Measure]]]:
    """Time by size and by workers, of the whole pipeline."""
    cases = {f"{files}/{workers}": (read.first(files), workers) for files, workers in GROWTH}
    calls = {name: partial(contest.call, OURS[0], *case) for name, case in cases.items()}
    runs = alternate(calls, rounds)
    start = median(one.wall for one in contest_start(contest))
    sizes = {name: case[0].bytes / 1e6 for name, case in cases.items()}
    walls = {name: median(one.wall for one in seen) for name, seen in runs.items()}
    each = {name: 1000 * (walls[name] - start) / sizes[name] for name in cases}
    rows = [
        [
            f"{sizes[name]:.0f}",
            case[1],
            spread(one.wall for one in runs[name]),
            spread(one.cpu for one in runs[name]),
            f"{1000 * walls[name] / sizes[name]:.1f}",
            f"{each[name]:.1f}",
            f"{max(one.rss_tree for one in runs[name]) / MIB:,.0f}",
        ]
        for name, case in cases.items()
    ]
    head = ("MB of JSON", "workers", "wall s", "CPU s", "ms a MB", "ms a MB, start-up apart", "RSS MiB, summed")
    two = [each[name] for name, case in cases.items() if case[1] == 2]
    even, grown = max(two) / min(two), two[-1] / min(two[:-1])
    gain = walls[f"{GROWTH[-1][0]}/1"] / walls[f"{GROWTH[-1][0]}/2"]
    text = (
        f"\n### By size and by workers\n\nThe same pipeline on the documents above and the kernel's sources, mixed alike at each size; a build of 300 "
        f"documents, {start:.2f} s, is start-up.\n\n{table(head, rows)}\n"
        f"- linear within 10 %, start-up apart: {'holds' if even <= 1.10 else 'FAILS'} (largest ms a MB over least: {even:.2f})\n"
        f"- no slower by the MB at the largest size, within 10 %: {'holds' if grown <= 1.10 else 'FAILS'} ({grown:.2f} of the best smaller size)\n"
        f"- two workers: {gain:.2f}x as fast as one\n"
    )
    return text, runs


def contest_start(contest: Contest) -> list[Measure]:
    """A build of little text, thrice."""
    little = texts(prepare()["spark"])
    return [contest.call(OURS[0], little) for _ in range(3)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3, help="of our sides; datatrove's run once")
    parser.add_argument("--data", default="full", choices=("spark", "slice", "full"))
    parser.add_argument("--dedup", type=int, default=0, help="also deduplicate so many synthetic documents")
    parser.add_argument("--growth", action="store_true", help="also by size and by workers")
    parser.add_argument("--without-peers", action="store_true", help="ours alone")
    options = arguments(parser)
    facts: dict[str, Any] = {"environment": environment(("tokenreel", "gigatoken", "numba", "pyarrow", "py3langid"))}
    sets = prepare()
    read, short, little = texts(sets[options.data]), texts(sets["slice"]), texts(sets["spark"])
    with ExitStack() as stack:
        contest = Contest(stack, find_tokenizer(), items(sets["full"]))
        names = [name for name in contest.sides if name in OURS or not options.without_peers]
        for name in names:
            note(f"warm: {name}")
            contest.call(name, little)
        runs = alternate({name: partial(contest.call, name, read) for name in names if name in OURS}, options.rounds)
        sizes = dict.fromkeys(runs, read.bytes)
        for name, of in ((ENGINE, read), (SHIPPED, short if options.data == "full" else read)):
            if name in names:
                runs |= alternate({name: partial(contest.call, name, of)}, 1)
                sizes[name] = of.bytes
        facts["environment"]["peers"] = {"datatrove": contest.versions or contest.reason}
        text = (
            f"## The whole pipeline\n\n{conditions(facts['environment'])}\n\nRead, NFC, gates (characters, quality column, repetition, tokens), exact "
            f"dedup, 13-grams of ids against a million of an evaluation set, tokenise, shards, checksums, everything read again. JSON lines in the page "
            f"cache, two workers, gigatoken. Ours is the whole command, start-up included; datatrove's imports and a first small run are done before.\n"
            f"{report(sizes, runs)}"
        )
        if contest.reason:
            text += f"- datatrove: not measured: {contest.reason}\n"
        if options.growth:
            large = grown(sets["full"])
            if large is None:
                text += "\nBy size: not measured, too little text.\n"
            else:
                told, facts["growth"] = growth(contest, large, 2)
                text += told
        if options.dedup:
            found = contest.sides["tokenreel"].call("exact_dedup", documents=options.dedup)
            facts["dedup"] = found
            each = found.value["bytes_each"]
            text += (
                f"\n### Exact dedup\n\n{options.dedup:,} synthetic keys, two fifths of them duplicates: {found.wall:.1f} s wall, {found.cpu:.1f} s CPU.\n\n"
                f"- at most 24 bytes of memory each: {'holds' if each <= 24 else 'FAILS'} ({each:.1f})\n"
            )
        facts["runs"] = runs
    record("pipeline", facts, text, forced=options.force)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
