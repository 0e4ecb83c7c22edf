"""How near `tokenreel build` comes to the bare engine, and where its time goes; a part of bench/build.py."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

from data import DATA, Dataset
from harness import HERE, Measure, Side, note
from results import median, spread, table

NEEDED = {"jsonl": 0.70, "parquet": 0.75}
EOD = "<|endoftext|>"


def find_tokenizer() -> Path:
    """GPT-2's tokenizer.json, from the folder that TOKENREEL_SHARED names or from one called `shared` beside the checkout."""
    shared = Path(os.environ.get("TOKENREEL_SHARED") or HERE.parent.parent / "shared")
    path = shared / "tokenizers" / "gpt2" / "tokenizer.json"
    if not path.is_file():
        raise SystemExit(
            f"no GPT-2 tokenizer: {path} is absent; set TOKENREEL_SHARED to a folder with tokenizers/gpt2/tokenizer.json"
        )
    return path


def recipe(dataset: Dataset, container: str, tokenizer: Path, *, first: int | None = None, extra: str = "") -> Path:
    """Write the recipe of one build: all files of a data set, or its `first` few."""
    folder = DATA / "recipes"
    folder.mkdir(exist_ok=True)
    paths = [os.path.relpath(path, folder) for path in dataset.files(container)[:first]]
    path = folder / f"{dataset.name}-{container}-{first or 'all'}.toml"
    path.write_text(
        f"""[tokenizer]
path = "{os.path.relpath(tokenizer, folder)}"
eod = "{EOD}"
{extra}
[split]
rule = "hash-mod"

[[source]]
name = "debian"
paths = {paths}
text = "text"
id = "id"
"""
    )
    return path


def _build(side: Side, path: Path, out: Path, workers: int = 2) -> Measure:
    shutil.rmtree(out, ignore_errors=True)
    return side.call("build", recipe=str(path), out=str(out), workers=workers)


def engine_report(
    side: Side, sets: dict[str, Dataset], tokenizer: Path, rounds: int, out: Path
) -> tuple[str, str, dict[str, Any]]:
    """The tables, the claims and the raw figures.

    Each of the two workers meets eight files' halves: its first file fills the engine's caches (cold), the later six files of the eight are
    the steady state. The build's steady state is the CPU time of a build of all eight files less that of a build of the first two, which also
    takes start-up, probe and what is done once per corpus out of it.
    """
    full = sets["full"]
    files = [str(path) for path in full.files("parquet")]
    chosen = side.call("probe", tokenizer=str(tokenizer), sample=files[0]).value
    seen: dict[str, list[Any]] = defaultdict(list)
    for turn in range(rounds):
        note(f"  engine [{turn + 1}/{rounds}]")
        for engine in ("gigatoken", "fastokens"):
            seen[f"raw {engine}"].append(side.call("raw", files=files, engine=engine, tokenizer=str(tokenizer)).value)
        seen["spark"].append(_build(side, recipe(sets["spark"], "jsonl", tokenizer), out / "spark"))
        for container in ("jsonl", "parquet"):
            for name, first in (("first", 2), ("all", None)):
                path = recipe(full, container, tokenizer, first=first)
                seen[f"{container} {name}"].append(_build(side, path, out / name))
    text, speed = _engines(seen, chosen["name"])
    told, claims = _ratios(seen, speed, chosen["name"])
    start = seen["spark"]
    probing = [line["seconds"] for one in seen["jsonl all"] for line in one.value["log"] if line["event"] == "engine"]
    text += told + (
        f"\nStart-up, apart: a whole build of {sets['spark'].documents} documents ({sets['spark'].bytes / 1e6:.1f} MB) took "
        f"{spread(one.wall for one in start)} s wall, {spread(one.cpu for one in start)} s CPU, of which choosing the engine (two candidates and the "
        f"reference on the probe set and 2 MB of text) {spread(probing, 1)} s wall in the builds above.\n"
    )
    told, profile = where_time_goes(side, full, tokenizer, out)
    return text + told, claims, {"probe": chosen, "seen": dict(seen), "profile": profile}


# Module, or module and function, of the package -> what it does in a build; the longest that fits counts. Under `probe` and
# `recheck` all that they call is counted.
STAGES = {
    "text.engines": "engine: text to ids",
    "text.engines.open_": "once: open tokenizer and engine",
    "text.json_tokenizer": "once: open tokenizer and engine",
    "text.tokenizer": "once: open tokenizer and engine",
    "text.probe": "once: choose the engine (here; its children apart)",
    "build.sample": "once: choose the engine (here; its children apart)",
    "text.special": "look for special tokens in text",
    "text.texts": "look for special tokens in text",
    "text.recheck": "re-check one document in 1,000 with the reference",
    "build.inputs": "hash the inputs before the build",
    "build.blocks": "read the inputs, SHA-256 while reading",
    "build.jsonl": "parse JSON, make Arrow strings",
    "build.parquet": "read Parquet, make Arrow strings",
    "build.records": "parse JSON, make Arrow strings",
    "corpus.splits": "split rule: SHA-256 of every text",
    "build.unit": "EOD, selection, text ids, counts",
    "build.rows": "documents.parquet",
    "formats.megatron_write": "write pairs: range check, SHA-256, fsync",
    "store": "write pairs: range check, SHA-256, fsync",
    "build.finish": "at the end: re-read and check all files, identity",
    "corpus": "at the end: re-read and check all files, identity",
    "hashing": "at the end: re-read and check all files, identity",
}


def stage(place: str) -> str:
    fits = [name for name in STAGES if place.startswith(name)]
    return STAGES[max(fits, key=len)] if fits else "everything else"


def where_time_goes(side: Side, full: Dataset, tokenizer: Path, out: Path) -> tuple[str, dict[str, Any]]:
    """One build per container in one process under a sampling profiler; start-up of the interpreter is not in it."""
    found = {}
    for container in ("jsonl", "parquet"):
        shutil.rmtree(out / "profile", ignore_errors=True)
        path = recipe(full, container, tokenizer)
        found[container] = side.call("profile", recipe=str(path), out=str(out / "profile")).value
    sums: dict[str, dict[str, float]] = {container: defaultdict(float) for container in found}
    for container, one in found.items():
        for place, seconds in one["spent"].items():
            sums[container][stage(place)] += seconds
    labels = sorted({label for one in sums.values() for label in one}, key=lambda label: -sums["jsonl"][label])
    labels.sort(key=lambda label: (label == "everything else", label.startswith("once")))
    rows = [
        [label, *(f"{sums[one][label]:.2f} ({sums[one][label] / found[one]['total']:.0%})" for one in found)]
        for label in labels
    ]
    rows.append(["in all", *(f"{one['total']:.2f}" for one in found.values())])
    head = ("where the time goes, CPU s", *found)
    return (
        f"\n{table(head, rows)}\nOne process, one build each under a sampling profiler, {full.bytes / 1e6:.0f} MB.\n",
        found,
    )


def _engines(seen: dict[str, list[Any]], chosen: str) -> tuple[str, dict[str, tuple[float, float, int, int]]]:
    """Table of the bare engines; and per engine: CPU s cold, CPU s warm, bytes cold, bytes warm."""
    rows, speed = [], {}
    for engine in ("gigatoken", "fastokens"):
        cold, warm = [], []
        cold_bytes = warm_bytes = 0
        for workers in seen[f"raw {engine}"]:
            cold.append(sum(files[0]["cpu"] for files in workers))
            warm.append(sum(one["cpu"] for files in workers for one in files[1:]))
            cold_bytes = sum(files[0]["bytes"] for files in workers)
            warm_bytes = sum(one["bytes"] for files in workers for one in files[1:])
        speed[engine] = median(cold), median(warm), cold_bytes, warm_bytes
        rows.append(
            [
                engine + (" (chosen)" if engine == chosen else ""),
                spread((cold_bytes / 1e6 / one for one in cold), 0),
                spread((warm_bytes / 1e6 / one for one in warm), 0),
                spread(((cold_bytes + warm_bytes) / 1e6 / (one + two) for one, two in zip(cold, warm, strict=True)), 0),
            ]
        )
    head = ("engine, bare", "cold MB per CPU s", "warm MB per CPU s", "all MB per CPU s")
    return (
        f"\n### Beside the bare engine\n\nText in memory as Arrow strings, two processes at once, one thread each.\n\n{table(head, rows)}",
        speed,
    )


def _ratios(
    seen: dict[str, list[Any]], speed: dict[str, tuple[float, float, int, int]], chosen: str
) -> tuple[str, str]:
    rows, claims = [], ""
    if chosen not in speed:
        return f"\nThe build chose {chosen}, which has no bare figure.\n", "- share of the bare engine: not measured\n"
    cold_cpu, warm_cpu, _, warm_bytes = speed[chosen]
    for container, needed in NEEDED.items():
        first, whole = seen[f"{container} first"], seen[f"{container} all"]
        steady = [two.cpu - one.cpu for one, two in zip(first, whole, strict=True)]
        once = median(one.cpu for one in seen["spark"])
        shares = [warm_cpu / one for one in steady]
        # The log says what each part took in its worker; the first two parts are the cold ones.
        workers = [
            sum(
                line["cpu_seconds"]
                for line in one.value["log"]
                if line["event"] == "part" and int(line["part"][-6:]) > 1
            )
            for one in whole
        ]
        rows.append(
            [
                container,
                spread(one.wall for one in whole),
                spread(one.cpu for one in whole),
                spread((warm_bytes / 1e6 / one for one in steady), 0),
                f"{warm_bytes / 1e6 / warm_cpu:.0f}",
                spread(shares),
                spread(warm_cpu / one for one in workers),
                f"{(cold_cpu + warm_cpu) / (median(one.cpu for one in whole) - once):.2f}",
            ]
        )
        holds = "holds" if median(shares) >= needed else "FAILS"
        claims += f"- {container}: at least {needed:.0%} of the bare engine in the steady state: {holds} ({median(shares):.0%})\n"
    head = (
        "build of",
        "wall s",
        "CPU s",
        "steady MB per CPU s",
        "bare, warm",
        "share, steady",
        "the same, workers alone",
        "share, cold included",
    )
    text = f"\n{table(head, rows)}\nSteady: the CPU time of all eight files less that of the first two; the workers alone: as the build's log says, without the parent's hashing of inputs and final checks. Cold included: bare engine on all eight over the build less one of little text.\n"
    return text, claims
