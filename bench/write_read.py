"""Write and read 10 M documents of 1-50 tokens: tokenreel's MegatronWriter and Corpus beside megatron-core's builder and IndexedDataset.

Counted: uint16 ids and lengths in NumPy arrays, handed over 100,000 documents at a time; time is what passes inside the writers' calls, finishing
(pointers, checksums, fsync and rename on our side) included, making the documents not. Each write runs in a fresh process; the memory is
what its resident set adds at its peak to a process that has imported everything, holds a block and has written a small pair.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from data import DATA
from harness import HERE, MIB, Side, note
from peers import Peer, peer
from results import arguments, conditions, environment, median, record, spread, table

FOLDER = DATA / "write_read"
SMALL = 10_000


def sides() -> tuple[dict[str, list[str | Path]], Peer]:
    script = HERE / "write_read_sides.py"
    commands: dict[str, list[str | Path]] = {"tokenreel": [sys.executable, script, "tokenreel"]}
    megatron = peer("megatron")
    if megatron.python:
        commands["megatron"] = [megatron.python, "-W", "ignore", script, "megatron"]
    return commands, megatron


def writes(commands: dict[str, list[str | Path]], documents: int, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Fresh process per write, sides in turn. The one-call-per-block form is run once: it makes another corpus."""
    seen: dict[str, list[dict[str, Any]]] = {}
    for turn in range(rounds):
        plan = [(name, "write") for name in commands]
        if turn == 0 and "megatron" in commands:
            plan.append(("megatron", "write_blocks"))
        for name, function in plan if turn % 2 == 0 else reversed(plan):
            with Side(f"write-{name}", commands[name]) as side:
                measure = side.call(function, prefix=str(FOLDER / f"{name}-{function}"), documents=documents)
            value = measure.value | {"foreign": measure.foreign}
            seen.setdefault(f"{name} {function}", []).append(value)
            note(
                f"  {name} {function} [{turn + 1}]: {value['wall']:.2f} s wall, {value['cpu']:.2f} s CPU, {value['added'] / MIB:.0f} MiB added, others {measure.foreign:.0%}"
            )
    return seen


def reads(commands: dict[str, list[str | Path]], documents: int, rounds: int) -> dict[str, Any]:
    """Opening and random reads, of pairs that the side wrote; warm page cache."""
    seen: dict[str, Any] = {}
    running = {name: Side(f"read-{name}", command) for name, command in commands.items()}
    try:
        for name, side in running.items():
            side.call("write", prefix=str(FOLDER / f"{name}-small"), documents=SMALL)
        for _ in range(rounds):
            for name, side in running.items():
                found = seen.setdefault(name, {"small": [], "large": [], "read": []})
                for size in ("small", "write"):
                    prefix = str(FOLDER / f"{name}-{size}")
                    found["small" if size == "small" else "large"].append(
                        side.call("open", prefix=prefix, repeats=21).value
                    )
                found["read"].append(
                    side.call("read", prefix=str(FOLDER / f"{name}-write"), documents=documents, count=100_000).value
                )
        for name, side in running.items():
            seen[name]["digest"] = side.call("digest", prefix=str(FOLDER / f"{name}-write")).value
    finally:
        for side in running.values():
            side.close()
    return seen


def report(written: dict[str, list[dict[str, Any]]], read: dict[str, Any], megatron: Peer, documents: int) -> str:
    ours = written["tokenreel write"]
    labels = {
        "tokenreel write": "tokenreel `MegatronWriter.add_documents`",
        "megatron write": "megatron-core `add_document`, one call per document",
        "megatron write_blocks": "megatron-core `add_document`, 100,000 sequences per call as *one* document (another corpus)",
    }
    rows = []
    for name, label in labels.items():
        if name not in written:
            rows.append([label, f"not measured: {megatron.reason}", "", "", "", ""])
            continue
        runs = written[name]
        ratio = [median(run[key] for run in runs) / median(run[key] for run in ours) for key in ("wall", "cpu")]
        cells = [
            spread(run["wall"] for run in runs),
            spread(run["cpu"] for run in runs),
            spread((run["added"] / MIB for run in runs), 0),
        ]
        rows.append([label, *cells, f"{ratio[0]:.1f}x", f"{ratio[1]:.1f}x"])
    text = f"### Writing {documents:,} documents of 1-50 tokens\n\n"
    text += table(("writer", "wall s", "CPU s", "MiB added", "wall to ours", "CPU to ours"), rows)
    digests = [found["digest"] for found in read.values()]
    if len(digests) == 2:
        same = digests[0] == digests[1]
        text += f"\nThe two pairs (one call per document on the peer's side) are {'byte for byte the same' if same else 'NOT the same'}.\n"
    text += "\n### Opening and reading\n\n"
    rows = []
    for name, found in read.items():
        small, large = (median(run["open"] for run in found[size]) for size in ("small", "large"))
        first = [median(run["first"] for run in found[size]) for size in ("small", "large")]
        each = median(run["seconds"] for run in found["read"]) / 100_000
        rows.append(
            [
                name,
                f"{small * 1e6:.0f}",
                f"{large * 1e6:.0f}",
                f"{large / small:.2f}",
                f"{first[0] * 1e6:.0f}",
                f"{first[1] * 1e6:.0f}",
                f"{each * 1e6:.2f}",
            ]
        )
    head = (
        "reader",
        f"open {SMALL:,}, us",
        f"open {documents:,}, us",
        "large to small",
        "first document after, us (small)",
        "(large)",
        "random document, us",
    )
    text += table(head, rows)
    text += "\nMedians. tokenreel checks a shard's whole table when it is first used, so its first document costs a pass over the table; the peer never checks.\n"
    if len({found["read"][0]["sum"] for found in read.values()}) != 1:
        text += "\nThe sides did NOT read the same tokens.\n"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = arguments(parser)
    facts = environment(("tokenreel", "numpy", "xxhash", "blake3"))
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    commands, megatron = sides()
    facts["peers"] = {"megatron": megatron.versions or megatron.reason}
    try:
        written = writes(commands, options.documents, options.rounds)
        read = reads(commands, options.documents, options.rounds)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    ours = written["tokenreel write"]
    text = f"## write_read\n\n{conditions(facts)}\n\n{options.rounds} rounds. {' '.join((__doc__ or '').split())}\n\n"
    text += report(written, read, megatron, options.documents)
    added = max(run["added"] for run in ours)
    text += f"\nClaims: adds at most 50 MB: {'holds' if added <= 50e6 else 'FAILS'} ({added / 1e6:.1f} MB)"
    if "megatron write" in written:
        ratio = median(run["wall"] for run in written["megatron write"]) / median(run["wall"] for run in ours)
        text += f"; at least 10x the peer's builder: {'holds' if ratio >= 10 else 'FAILS'} ({ratio:.1f}x wall)"
    opened = read["tokenreel"]
    ratio = median(run["open"] for run in opened["large"]) / median(run["open"] for run in opened["small"])
    text += f"; opening is O(1): {'holds' if ratio < 2 else 'FAILS'} ({ratio:.2f}x for {options.documents // SMALL:,}x the documents).\n"
    record("write_read", facts | {"written": written, "read": read}, text, forced=options.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
