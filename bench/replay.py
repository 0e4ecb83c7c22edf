"""Replay: an index validated beside hashlib; 128-bit ids joined beside DuckDB and polars; documents found in orders of 10**9 samples.

Joins read two Parquet files of ids and row numbers from the page cache, two threads for the peers, and count the pairs; each is a process of its own and
"added" is what its resident set grows by at its peak. Hashing of text is not part of it. tokenreel's join parts ids by their top bits: 128 MiB a side in memory,
the rest on disk, read back part by part.
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

FOLDER = DATA / "replay"
MIB = 1 << 20


def _fresh(peer_: Peer | None, function: str, **options: Any) -> Any:
    """Call a function of a side in a new process."""
    python = sys.executable if peer_ is None else peer_.python
    with Side(function, [python, HERE / "replay_sides.py"]) as side:
        found = side.call(function, **options).value
    note(f"  {function}: {found}")
    return found


def joins(count: int, large: int, rounds: int, peers: dict[str, Peer]) -> dict[str, Any]:
    folder = str(FOLDER / "ids")
    size = _fresh(None, "make_ids", folder=folder, count=count)
    seen: dict[str, list[Any]] = {}
    for _ in range(rounds):
        seen.setdefault("tokenreel", []).append(_fresh(None, "join_tokenreel", folder=folder, count=count))
        for name, one in peers.items():
            if one.python is not None:
                seen.setdefault(name, []).append(_fresh(one, f"join_{name}", folder=folder))
    facts: dict[str, Any] = {"ids": count, "bytes": size, "runs": seen}
    shutil.rmtree(folder)
    if large:
        _fresh(None, "make_ids", folder=folder, count=large)
        facts["large"] = {"ids": large, **_fresh(None, "join_tokenreel", folder=folder, count=large)}
        shutil.rmtree(folder)
    return facts


def validation(documents: int, rounds: int) -> dict[str, Any]:
    folder = str(FOLDER / "index")
    with Side("validate", [sys.executable, HERE / "replay_sides.py"]) as side:
        size = side.call("make_index", folder=folder, documents=documents, tasks=64).value
        seen: dict[str, list[float]] = {"hashlib": [], "full": [], "full, with duplicates": []}
        side.call("hashed", folder=folder, processes=cores())
        side.call("validated", folder=folder, duplicates=False, workers=cores())
        for _ in range(rounds):
            seen["hashlib"].append(side.call("hashed", folder=folder, processes=cores()).wall)
            seen["full"].append(side.call("validated", folder=folder, duplicates=False, workers=cores()).wall)
            seen["full, with duplicates"].append(
                side.call("validated", folder=folder, duplicates=True, workers=cores()).wall
            )
    shutil.rmtree(folder)
    return {"documents": documents, "bytes": size, "wall": seen}


def report(facts: dict[str, Any], peers: dict[str, Peer]) -> str:
    joined, checked = facts["join"], facts["validate"]
    lines = []
    ours = joined["runs"]["tokenreel"]
    for name in ("tokenreel", *peers):
        runs = joined["runs"].get(name)
        if runs is None:
            lines.append([name, "not measured", peers[name].reason, "", ""])
            continue
        wall, added = [run["wall"] for run in runs], [run["added"] / MIB for run in runs]
        ratio = median(wall) / median(run["wall"] for run in ours)
        share = median(run["added"] for run in ours) / MIB / median(added)
        lines.append([name, spread(wall), spread(added, 0), f"{ratio:.2f}x", f"{share:.2f}"])
    head = ("side", "wall s", "MiB added", "wall to ours", "our memory to theirs")
    text = f"### {joined['ids']:,} ids with {joined['ids']:,}\n\n" + table(head, lines)
    if "large" in joined:
        large = joined["large"]
        text += f"\n{large['ids']:,} ids with as many, ours alone: {large['wall']:.0f} s, {large['added'] / MIB:,.0f} MiB added.\n"
    size = checked["bytes"]
    base = median(checked["wall"]["hashlib"])
    rows = [
        (name, spread(wall), f"{size / median(wall) / 1e9:.2f}", f"{base / median(wall):.0%}")
        for name, wall in checked["wall"].items()
    ]
    text += f"\n### An index of {checked['documents']:,} documents, {size / 1e6:.0f} MB\n\n"
    text += table(("what", "wall s", "GB/s", "of hashlib"), rows)
    text += "\n### A document found in an order\n\n"
    closed = facts["closed"]
    rows2: list[list[object]] = [
        ["windows@1, 10**9 windows: open and find", f"{closed['ms']:.2f} ms", "", "", f"{closed['calls']:.0f}"]
    ]
    for count, row in facts["indexed"].items():
        rows2.append(
            [
                f"megatron@1, {int(count):,} documents: first, later",
                f"{row['first']:.2f} s, {row['later_ms']:.2f} ms",
                f"{row['prepared'] / MIB:,.0f} MiB prepared",
                f"{row['inverse'] / MIB:,.0f} MiB inverse",
                f"{row['calls']:.0f}",
            ]
        )
    text += table(("what", "time", "", "", "calls of spans"), rows2)
    return text + _claims(facts, peers)


def _claims(facts: dict[str, Any], peers: dict[str, Peer]) -> str:
    joined, checked = facts["join"], facts["validate"]
    ours = joined["runs"]["tokenreel"]
    out = "\n### Claims\n\n"
    for name in peers:
        runs = joined["runs"].get(name)
        if runs:
            speed = median(run["wall"] for run in runs) / median(run["wall"] for run in ours)
            share = median(run["added"] for run in ours) / median(run["added"] for run in runs)
            word = "holds" if speed >= 1 and share <= 1 / 3 else "FAILS"
            out += f"- join: at least 1x {name} at a third of its memory: {word} ({speed:.2f}x, {share:.2f} of the memory)\n"
    if "large" in joined:
        word = "holds" if joined["large"]["added"] <= 1 << 30 else "FAILS"
        out += f"- join of {joined['large']['ids']:,} ids below 1 GiB: {word}\n"
    share = median(checked["wall"]["hashlib"]) / median(checked["wall"]["full"])
    out += f"- validate full: at least 40% of hashlib: {'holds' if share >= 0.4 else 'FAILS'} ({share:.0%})\n"
    out += f"- closed orders: below 5 ms with open: {'holds' if facts['closed']['ms'] < 5 else 'FAILS'}\n"
    row = facts["indexed"].get("10000000")
    if row:
        word = "holds" if row["first"] <= 2 and row["later_ms"] < 20 else "FAILS"
        out += f"- index orders at 10**7: first at most 2 s, later below 20 ms: {word}\n"
    calls = max(row["calls"] for row in (facts["closed"], *facts["indexed"].values()))
    out += f"- fewer than 100 calls of spans to find a document: {'holds' if calls < 100 else 'FAILS'} ({calls:.0f})\n"
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=20_000_000)
    parser.add_argument("--large", type=int, default=200_000_000, help="0 leaves it out")
    parser.add_argument("--documents", type=int, default=10_000_000, help="of the index")
    parser.add_argument("--orders", type=int, nargs="*", default=[10_000_000, 100_000_000, 1_000_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    options = arguments(parser)
    peers = {name: peer(name) for name in ("duckdb", "polars")}
    FOLDER.mkdir(parents=True, exist_ok=True)
    facts = environment(("tokenreel", "numpy", "numba", "pyarrow"))
    try:
        facts["join"] = joins(options.ids, options.large, options.rounds, peers)
        facts["validate"] = validation(options.documents, options.rounds)
        facts["closed"] = _fresh(None, "trace_closed", windows=10**9)
        facts["indexed"] = {str(n): _fresh(None, "trace_indexed", documents=n) for n in options.orders}
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    facts["peers"] = {name: one.versions or one.reason for name, one in peers.items()}
    text = f"## replay\n\n{(__doc__ or '').strip()}\n\n{conditions(facts)}\n\n{report(facts, peers)}"
    record("replay", facts, text, forced=options.force)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
