"""Feed: tokenreel's gather and feed beside megatron-core, Grain, litdata, mosaicml-streaming, datatrove, a torch DataLoader and NumPy.

Each side is a warm process of its own that repeats one loop over batches of int64 ids and labels for some seconds of CPU time, its own
memory already touched; sides take turns. Kernels write into one set of buffers, the feed into those it has lent and got back: two. The
tokens are uint16, in one pair that stays in the page cache; litdata and mosaicml-streaming
read the first 2**25 of them from their own format. memcpy copies as many bytes as our batch has, between warm buffers.
Rates are million tokens per CPU-second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data import DATA
from feed_data import write_tokens
from harness import HERE, MIB, Side, SideError, note
from peers import Peer, peer
from results import arguments, conditions, environment, median, record, spread, table

FOLDER = DATA / "feed"
ROWS = (2048, 4096)
BATCH = 32
BYTES = {"plain": 16, "documents": 16 + 4 + 8 + 4}
"""Bytes that a batch has a token: int64 ids and labels; float32 mask, int64 positions, int32 segment ids."""
PEERS = ("megatron", "maxtext", "litdata", "datatrove", "streaming")
DOCUMENTS = {"kind": "documents", "ends": "mask"}
Run = dict[str, Any]


class Contest:
    """The sides, each one process that stays, and the figures seen so far."""

    def __init__(self, peers: dict[str, Peer], seconds: float, rounds: int) -> None:
        script = HERE / "feed_sides.py"
        self.peers, self.seconds, self.rounds = peers, seconds, rounds
        self.commands: dict[str, list[str | Path]] = {
            name: [sys.executable, script, name] for name in ("tokenreel", "numpy")
        }
        for name, one in peers.items():
            if one.python:
                self.commands[name] = [one.python, "-W", "ignore", script, name]
        self.sides: dict[str, Side] = {}
        self.claims: list[str] = []
        self.shares: list[float] = []
        self.failed: dict[str, str] = {}

    def call(self, side: str, function: str, **given: Any) -> Run:
        if side not in self.sides:
            self.sides[side] = Side(f"feed-{side}", self.commands[side])
        measure = self.sides[side].call(function, timeout=600, **given)
        self.shares.append(measure.foreign)
        value: Run = measure.value
        if "rate" in value:
            note(f"  {side} {function}: {value['rate']:.1f} M tokens per CPU-s, others {measure.foreign:.0%}")
        return value

    def turns(self, calls: dict[str, tuple[str, str, Run]]) -> dict[str, list[Run]]:
        """Name -> (side, function, arguments), each once a round, in turn; a side that is not there or fails is left out."""
        seen: dict[str, list[Run]] = {}
        for turn in range(self.rounds):
            for name in list(calls) if turn % 2 == 0 else reversed(list(calls)):
                side, function, given = calls[name]
                if side not in self.commands or name in self.failed:
                    continue
                try:
                    seen.setdefault(name, []).append(self.call(side, function, **given, seconds=self.seconds))
                except SideError as error:
                    self.failed[name] = str(error).strip().splitlines()[-1]
                    note(f"  {name}: {error}")
                    self.sides.pop(side).close()
        return {name: runs for name, runs in seen.items() if name not in self.failed}

    def reason(self, name: str, side: str) -> str:
        return f"not measured: {self.failed.get(name) or self.peers[side].reason}"

    def claim(self, what: str, holds: bool | None, told: str) -> None:
        said = "not measured" if holds is None else "holds" if holds else "FAILS"
        self.claims.append(f"- {what}: {said}{f' ({told})' if told else ''}\n")

    def close(self) -> None:
        for side in self.sides.values():
            side.close()


def rate(runs: list[Run] | None) -> float | None:
    return median(run["rate"] for run in runs) if runs else None


def against(
    contest: Contest, what: str, ours: float | None, theirs: float | None, target: float, unit: str = "x"
) -> None:
    to = ours / theirs if ours and theirs else None
    told = "" if to is None else f"{to:.2f}{unit}" if unit == "x" else f"{to:.0%}"
    contest.claim(what, None if to is None else to >= target, told)


def lines_of(
    contest: Contest, calls: dict[str, tuple[str, str, Run]], seen: dict[str, list[Run]], first: str
) -> list[list[object]]:
    lines: list[list[object]] = []
    ours = rate(seen.get(first))
    for name, (side, _, _) in calls.items():
        if name not in seen:
            lines.append([name, contest.reason(name, side), "", ""])
            continue
        mine = rate(seen[name])
        walls = spread((run["tokens"] / run["wall"] / 1e6 for run in seen[name]), 1)
        to = f"{ours / mine:.1f}x" if ours and mine else ""
        lines.append([name, spread((run["rate"] for run in seen[name]), 1), walls, to])
    return lines


HEAD = ("what", "M tokens per CPU-s", "per s of wall", "first row to it")


def copies(contest: Contest, row: int, each: int, sets: int = 1) -> float:
    """Return million tokens per CPU-second that copying a batch's bytes reaches, into so many sets of buffers in turn."""
    sizes = [size * row * BATCH for size in {16: [8, 8], 32: [8, 8, 4, 8, 4]}[each]]
    runs = [
        contest.call("numpy", "memcpy", sizes=sizes, sets=sets, seconds=contest.seconds) for _ in range(contest.rounds)
    ]
    return median(run["bytes_per_s"] for run in runs) / each / 1e6


def windows(contest: Contest, prefix: str) -> tuple[str, Run]:
    text, facts = "", {}
    for row in ROWS:
        given = {"prefix": prefix, "row": row, "batch": BATCH}
        calls = {
            "tokenreel, the kernel": ("tokenreel", "windows", given),
            "tokenreel, the feed": ("tokenreel", "feed", given),
            "tokenreel, the feed, prefetch 2": ("tokenreel", "feed", {**given, "prefetch": 2}),
            "NumPy loop": ("numpy", "windows", given),
            "megatron-core GPTDataset": ("megatron", "rows", given),
            "Grain": ("maxtext", "grain", given),
            "litdata TokensLoader": ("litdata", "windows", given),
            "torch DataLoader over a memmap": ("litdata", "torch", given),
            "datatrove": ("datatrove", "windows", given),
            "mosaicml-streaming": ("streaming", "windows", given),
        }
        seen = contest.turns(calls)
        limit, turns = (copies(contest, row, BYTES["plain"], sets) for sets in (1, 2))
        facts[str(row)] = {"runs": seen, "memcpy": limit, "memcpy, two sets": turns}
        text += f"\n### Shuffled windows, S = {row:,}, batch {BATCH}\n\n"
        text += table(
            HEAD,
            [
                *lines_of(contest, calls, seen, "tokenreel, the kernel"),
                ["memcpy of the bytes", f"{limit:.1f}", "", ""],
                ["memcpy, two sets of buffers in turn", f"{turns:.1f}", "", ""],
            ],
        )
        kernel, feed = rate(seen.get("tokenreel, the kernel")), rate(seen.get("tokenreel, the feed"))
        megatron, loop = rate(seen.get("megatron-core GPTDataset")), rate(seen.get("NumPy loop"))
        same = {seen[name][0]["check"] for name in ("tokenreel, the kernel", "NumPy loop") if name in seen}
        text += f"\nThe kernel and the NumPy loop {'read the same' if len(same) == 1 else 'did NOT read the same'}.\n"
        against(contest, f"windows, S {row}: the kernel at least 100x megatron-core", kernel, megatron, 100)
        against(contest, f"windows, S {row}: the kernel at least 1.6x the NumPy loop", kernel, loop, 1.6)
        against(contest, f"windows, S {row}: the kernel at least 70 % of memcpy", kernel, limit, 0.7, "%")
        against(contest, f"windows, S {row}: the feed at least 60x megatron-core", feed, megatron, 60)
        against(contest, f"windows, S {row}: the feed at least 50 % of memcpy into two sets", feed, turns, 0.5, "%")
    return text, facts


def documents(contest: Contest, prefix: str, short: str) -> tuple[str, Run]:
    text, facts = "", {}
    for row in ROWS:
        given = {"prefix": prefix, "row": row, "batch": BATCH}
        ours = {**given, "policy": DOCUMENTS}
        calls = {
            "tokenreel, the kernel": ("tokenreel", "documents", ours),
            "tokenreel, with its extents": ("tokenreel", "documents", {**ours, "spans": True}),
            "tokenreel, the feed": ("tokenreel", "feed", {**ours, "documents": True}),
            "NumPy, vectorised packing": ("numpy", "packing", given),
            "megatron-core GPTDataset, resets": ("megatron", "rows", {**given, "resets": True}),
        }
        seen = contest.turns(calls)
        limit = copies(contest, row, BYTES["documents"])
        facts[str(row)] = {"runs": seen, "memcpy": limit}
        text += f"\n### Shuffled documents of mean 700, S = {row:,}: positions, mask, segment ids\n\n"
        text += table(
            HEAD,
            [*lines_of(contest, calls, seen, "tokenreel, the kernel"), ["memcpy of the bytes", f"{limit:.1f}", "", ""]],
        )
        kernel = rate(seen.get("tokenreel, the kernel"))
        for name, target, what in (
            ("megatron-core GPTDataset, resets", 60, "megatron-core with resets"),
            ("NumPy, vectorised packing", 6, "vectorised packing"),
        ):
            against(contest, f"documents, S {row}: at least {target}x {what}", kernel, rate(seen.get(name)), target)
        against(contest, f"documents, S {row}: at least 50 % of memcpy", kernel, limit, 0.5, "%")
    given = {"prefix": short, "row": 4096, "batch": BATCH, "policy": DOCUMENTS}
    calls = {
        "tokenreel, the kernel": ("tokenreel", "documents", given),
        "tokenreel, with its extents": ("tokenreel", "documents", {**given, "spans": True}),
    }
    seen = contest.turns(calls)
    facts["short"] = seen
    text += "\n### Shuffled documents of mean 20, S = 4,096\n\n" + table(
        HEAD, lines_of(contest, calls, seen, "tokenreel, the kernel")
    )
    slow = rate(seen.get("tokenreel, with its extents"))
    contest.claim(
        "documents of 20 tokens: at least 60 M tokens per CPU-s", None if slow is None else slow >= 60,
        f"{slow:.0f} M, extents counted" if slow else "",
    )  # fmt: skip
    return text, facts


COLD = """
import sys, time
import tokenreel
from tokenreel.order.windows import WindowsOrder
corpus = tokenreel.open(sys.argv[1])
order = WindowsOrder.over(corpus.stream_table(), 2048, 7, epochs=None)
state = None
if sys.argv[2] != "0":
    with tokenreel.open_feed(order, corpora=corpus, batch=32, prefetch=0, endless=True) as feed:
        next(iter(feed))
        state = feed.state_dict()
    state |= {"step": int(sys.argv[2]), "position": 32 * int(sys.argv[2]), "tokens": 65536 * int(sys.argv[2])}
begin = time.perf_counter()
with tokenreel.open_feed(order, corpora=corpus, batch=32, prefetch=0, endless=True, state=state) as feed:
    next(iter(feed))
    print(time.perf_counter() - begin)
"""


def cold(contest: Contest, prefix: str) -> tuple[str, Run]:
    """A process from its start to its first batch, and what resuming far in adds.

    It runs beside tokenreel's own dependencies only: numba loads the extensions of every package that is installed.
    """
    own = peer("tokenreel")
    if own.python is None:
        contest.claim("cold process to the first batch: at most 1.2 s of wall", None, own.reason)
        return "", {}
    surroundings = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
    inside: dict[str, list[float]] = {"0": [], "1000000": []}
    wall: list[float] = []
    cpu: list[float] = []

    def run(code: str, step: str) -> float:
        command = [own.python, "-c", code, prefix, step]
        return float(subprocess.run(command, check=True, capture_output=True, text=True, env=surroundings).stdout)

    for turn in range(contest.rounds + 1):
        begin, used = time.perf_counter(), os.times()
        run(COLD, "0")
        if turn:
            now = os.times()
            wall.append(time.perf_counter() - begin)
            cpu.append(now.children_user + now.children_system - used.children_user - used.children_system)
    # Both ends of the comparison are the second feed of their process: the first pays for imports and kernels.
    code = COLD.replace('!= "0"', '!= ""').replace("state |=", "state = None if sys.argv[2] == '0' else state |")
    for _ in range(contest.rounds):
        for step, seen in inside.items():
            seen.append(run(code, step))
    added = (min(inside["1000000"]) - min(inside["0"])) * 1e3
    contest.claim(
        "cold process to the first batch: at most 1.2 s of wall", median(wall) <= 1.2, f"{median(wall):.2f} s"
    )
    contest.claim("resuming at step 10**6 costs at most 5 ms more", added <= 5, f"{added:+.1f} ms")
    text = "\n### A cold process\n\nFrom `python` to the first batch, tables read, kernels from the cache on disk: "
    return text + f"{spread(wall)} s of wall, {spread(cpu)} s of CPU.\n", {"wall": wall, "cpu": cpu, "inside": inside}


def memory(contest: Contest, prefix: str, batches: int) -> tuple[str, Run]:
    run = contest.call("tokenreel", "memory", prefix=prefix, batches=batches)
    grown = (run["last"] - run["first"]) / MIB
    contest.claim(
        f"resident memory is flat over {batches:,} batches", grown < 1, f"{grown:+.2f} MiB after the first tenth"
    )
    return "", run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1 << 27)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of CPU time, a loop")
    parser.add_argument("--batches", type=int, default=1_000_000, help="for the memory of a long run")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), help="fewer of them; nothing is recorded then")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=["windows", "documents", "cold", "memory"],
        help="some parts; nothing is recorded then",
    )
    options = arguments(parser)
    contest = Contest({name: peer(name) for name in options.peers}, options.seconds, options.rounds)
    for name in PEERS:
        contest.peers.setdefault(name, Peer(name, None, "left out", {}))
    facts = environment(("tokenreel", "numpy", "numba"))
    facts["peers"] = {name: one.versions or one.reason for name, one in contest.peers.items()}
    text = f"## feed\n\n{conditions(facts)}\n\n{options.rounds} rounds, medians (least-greatest). {' '.join((__doc__ or '').split())}\n"
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    prefix, short = str(FOLDER / "long"), str(FOLDER / "short")
    parts: dict[str, Callable[[], tuple[str, Run]]] = {
        "windows": lambda: windows(contest, prefix),
        "documents": lambda: documents(contest, prefix, short),
        "cold": lambda: cold(contest, prefix),
        "memory": lambda: memory(contest, prefix, options.batches),
    }
    try:
        write_tokens(Path(prefix), options.tokens, 700)
        write_tokens(Path(short), options.tokens // 8, 20)
        for name in options.only or parts:
            note(f"{name}:")
            try:
                told, facts[name] = parts[name]()
                text += told
            except (SideError, subprocess.CalledProcessError) as error:
                text += f"\n{name}: not measured: {str(error).strip().splitlines()[-1]}\n"
                note(f"{error}\n{getattr(error, 'stderr', '')}")
    finally:
        contest.close()
        shutil.rmtree(FOLDER, ignore_errors=True)
    busiest = max(contest.shares, default=0.0)
    text += f"\n### Claims\n\nOther programs used at most {busiest:.0%} of the cores during any call.\n\n{''.join(contest.claims)}"
    note(json.dumps(contest.failed))
    part = bool(options.only) or set(options.peers) != set(PEERS)
    record("feed", facts, text, forced=options.force or part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
