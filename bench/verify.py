"""Verify: tokenreel's `verify`, full and quick, beside hashlib's SHA-256 over the same files and datatrove's check of its own.

Counted: wall seconds of one whole call in a warm process, files in the page cache. hashlib reads 4 MiB at a time, in as many processes as
there are cores. `full` hashes every file and checks every id and boundary; with a manifest it computes the identity in the same pass. datatrove's
`check_dataset` reads one process's worth of Python and checks that documents end with EOS; mosaicml-streaming checks a shard's hashes when it
fetches it, and has nothing that checks a corpus.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Any

from data import DATA
from harness import HERE, Side, cores, note
from peers import Peer, peer
from results import arguments, conditions, environment, median, record, spread, table

FOLDER = DATA / "verify"
SHARDS = 10_000
CHECK = 0.05
"""Of the bytes, what datatrove's check reads: its rate is what is compared."""


def measured(gigabytes: float, rounds: int, datatrove: Peer) -> dict[str, Any]:
    script = HERE / "formats_sides.py"
    seen: dict[str, list[dict[str, float]]] = {}

    def run(side: Side, label: str, function: str, **options: Any) -> None:
        measure = side.call(function, folder=str(FOLDER), **options)
        if function == "verified" and measure.value != "ok":
            note(f"  {label}: {measure.value}")
        seen.setdefault(label, []).append({"wall": measure.wall, "cpu": measure.cpu, "rss": measure.rss_process})
        note(f"  {label}: {measure.wall:.2f} s wall, {measure.cpu:.2f} s CPU, others {measure.foreign:.0%}")

    with Side("verify", [sys.executable, script]) as side:
        size = int(side.call("make", folder=str(FOLDER), gigabytes=gigabytes).value)
        side.call("warm", folder=str(FOLDER))
        for _ in range(rounds):
            run(side, "hashlib", "hashed", processes=cores())
            run(side, "full", "verified", inside="source", level="full")
        side.call("adopted", folder=str(FOLDER))
        for _ in range(rounds):
            run(side, "hashlib", "hashed", processes=cores())
            run(side, "full, with identity", "verified", inside="source", level="full")
        side.call("unadopted", folder=str(FOLDER))
    with Side("quick", [sys.executable, script]) as side:
        side.call("make_many", folder=str(FOLDER), shards=SHARDS)
        for _ in range(rounds):
            run(side, "quick, 10,000 shards", "verified", inside="many", level="quick")
    facts: dict[str, Any] = {"bytes": size, "runs": seen}
    if datatrove.python:
        facts["check"] = _check(datatrove, gigabytes * CHECK)
    return facts


def _check(datatrove: Peer, gigabytes: float) -> dict[str, float]:
    """Return the bytes and seconds of datatrove's check, and of ours over the same files."""
    ours = [sys.executable, HERE / "formats_sides.py"]
    folder = FOLDER / "check"
    with Side("check-ours", ours) as side:
        size = int(side.call("make", folder=str(folder), gigabytes=gigabytes).value)
        side.call("convert", folder=str(folder), to="datatrove", proof=False)
        mine = side.call("verified", folder=str(folder), inside="target", level="full").wall
    with Side("check-datatrove", [datatrove.python, HERE / "verify_sides.py"]) as side:
        theirs = side.call("check", folder=str(folder / "target")).wall
    return {"bytes": size, "ours": mine, "datatrove": theirs}


def report(facts: dict[str, Any], datatrove: Peer) -> str:
    size, runs = facts["bytes"], facts["runs"]
    base = median(run["wall"] for run in runs["hashlib"])
    rows = []
    for name, seen in runs.items():
        wall = median(run["wall"] for run in seen)
        many = name.startswith("quick")
        cells = ["", ""] if many else [f"{size / wall / 1e9:.2f}", f"{base / wall:.0%}"]
        rows.append([name, spread(run["wall"] for run in seen), spread(run["cpu"] for run in seen), *cells])
    text = f"### {size / 1e9:.1f} GB of uint16 in pairs\n\n"
    text += table(("what", "wall s", "CPU s", "GB/s", "of hashlib"), rows)
    check = facts.get("check")
    if check:
        speed = check["datatrove"] / check["ours"]
        text += (
            f"\ndatatrove's `check_dataset` over {check['bytes'] / 1e9:.2f} GB of its own files: {check['datatrove']:.2f} s; "
            f"`verify --level full` of the same, every rule and SHA-256: {check['ours']:.2f} s ({speed:.0f}x).\n"
        )
    else:
        text += f"\ndatatrove's `check_dataset`: not measured: {datatrove.reason}\n"
    text += "\n### Claims\n\n"
    for name, goal in (("full", 0.7), ("full, with identity", 0.45)):
        found = base / median(run["wall"] for run in runs[name])
        text += f"- {name}: at least {goal:.0%} of hashlib: {'holds' if found >= goal else 'FAILS'} ({found:.0%})\n"
    quick = runs["quick, 10,000 shards"]
    wall, rss = median(run["wall"] for run in quick), max(run["rss"] for run in quick)
    word = "holds" if wall <= 2 and rss <= 200e6 else "FAILS"
    text += f"- quick, 10,000 shards: at most 2 s and 200 MB: {word} ({wall:.2f} s, {rss / 1e6:.0f} MB)\n"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = arguments(parser)
    datatrove = peer("datatrove")
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        facts = environment(("tokenreel", "numpy", "blake3")) | measured(options.gigabytes, options.rounds, datatrove)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    facts["peers"] = {"datatrove": datatrove.versions or datatrove.reason}
    text = f"## Verify\n\n{(__doc__ or '').strip()}\n\n{conditions(facts)}\n\n{report(facts, datatrove)}"
    record("verify", facts, text, forced=options.force)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
