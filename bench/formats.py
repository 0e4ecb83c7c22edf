"""Convert: tokenreel's `convert`, with and without proof, beside `cp` of the same files; and opening a corpus of 10,000 shards.

Counted: wall seconds of one whole call in a warm process, into a new folder on the same disk, the source in the page cache; the target's
files are synced by ours before they get their names, so `cp` is shown alone and with a sync of what it wrote: where the disk is slower than memory,
no copy that waits for it comes near one that does not. uint16 to uint16: pairs to pairs, pairs to
datatrove's files. Rates are the source's bytes a second. Below, the parts of it alone, one thread each: what they cost together, shared out to two cores,
is what no conversion can go below, and with proof there is a second read and two hashes for identities on top. Free memory is taken and freed right
before every run, of all sides alike: a virtual machine that gave it back pays for it again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Any

from data import DATA
from harness import HERE, Side, note
from results import arguments, conditions, environment, median, record, spread, table

FOLDER = DATA / "formats"
TARGETS = ("megatron-v1", "datatrove")
PARTS = ("read", "sha256", "blake3 of uint32", "write", "write and sync")
SHARDS = 10_000


def measured(gigabytes: float, rounds: int) -> dict[str, Any]:
    script = HERE / "formats_sides.py"
    seen: dict[str, list[dict[str, float]]] = {}
    with Side("convert", [sys.executable, script]) as side:
        size = int(side.call("make", folder=str(FOLDER), gigabytes=gigabytes).value)
        plan: list[tuple[str, str, dict[str, Any]]] = [
            ("cp", "copy", {"sync": False}),
            ("cp, then sync", "copy", {"sync": True}),
        ]
        for target in TARGETS:
            plan.append((f"to {target}, --no-proof", "convert", {"to": target, "proof": False}))
            plan.append((f"to {target}, with proof", "convert", {"to": target, "proof": True}))
        for turn in range(rounds):
            for name, function, options in plan if turn % 2 == 0 else reversed(plan):
                side.call("warm", folder=str(FOLDER))
                run = side.call(function, folder=str(FOLDER), **options)
                seen.setdefault(name, []).append({"wall": run.wall, "cpu": run.cpu, "foreign": run.foreign})
                note(f"  {name} [{turn + 1}]: {run.wall:.2f} s wall, {run.cpu:.2f} s CPU, others {run.foreign:.0%}")
        parts = {name: side.call("part", folder=str(FOLDER), what=name).value for name in PARTS}
    with Side("open", [sys.executable, script]) as side:
        side.call("make_many", folder=str(FOLDER), shards=SHARDS)
        opened = [side.call("open_many", folder=str(FOLDER)) for _ in range(rounds)]
    many = {"wall": [one.wall for one in opened], "rss": max(one.rss_process for one in opened)}
    return {"bytes": size, "runs": seen, "parts": parts, "many": many}


def report(facts: dict[str, Any]) -> str:
    size, runs = facts["bytes"], facts["runs"]
    copied = median(run["wall"] for run in runs["cp"])
    synced = median(run["wall"] for run in runs["cp, then sync"])
    rows = []
    for name, seen in runs.items():
        wall = median(run["wall"] for run in seen)
        rows.append(
            [
                name,
                spread(run["wall"] for run in seen),
                spread(run["cpu"] for run in seen),
                f"{size / wall / 1e9:.2f}",
                f"{copied / wall:.0%}",
                f"{synced / wall:.0%}",
            ]
        )
    text = f"### Converting {size / 1e9:.1f} GB of uint16\n\n"
    text += table(("what", "wall s", "CPU s", "GB/s", "of cp", "of cp, then sync"), rows)
    text += "\nThe parts alone, ns a byte of the source: "
    text += ", ".join(f"{name} {seconds:.2f}" for name, seconds in facts["parts"].items()) + ".\n"
    many = facts["many"]
    text += (
        f"\nOpening {SHARDS:,} shards: {spread(many['wall'])} s, {many['rss'] / 1e6:.0f} MB resident.\n\n### Claims\n\n"
    )
    share = {name: copied / median(run["wall"] for run in seen) for name, seen in runs.items()}
    foreign = max(run["foreign"] for seen in runs.values() for run in seen)
    text += f"Other programs used at most {foreign:.0%} of the cores during any call.\n\n"
    for goal, word in ((0.45, "with proof"), (0.8, "--no-proof")):
        found = share[f"to megatron-v1, {word}"]
        durable = found * synced / copied
        text += (
            f"- convert {word}: at least {goal:.0%} of cp: {'holds' if found >= goal else 'FAILS'} ({found:.0%}; "
            f"{durable:.0%} of cp, then sync)\n"
        )
    fine = median(many["wall"]) <= 2 and many["rss"] <= 200e6
    text += f"- open {SHARDS:,} shards: at most 2 s and 200 MB: {'holds' if fine else 'FAILS'}\n"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = arguments(parser)
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        facts = environment(("tokenreel", "numpy", "blake3")) | measured(options.gigabytes, options.rounds)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    text = f"## Formats: convert and open\n\n{(__doc__ or '').strip()}\n\n{conditions(facts)}\n\n{report(facts)}"
    record("formats", facts, text, forced=options.force)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
