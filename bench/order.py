"""Order: tokenreel's indices, blend dispatch, extents and windows beside megatron-core and MaxText's own index builder.

Every measurement is a process of its own, which has imported everything, done a small job, and touched and freed 1 GiB first; sides take turns.
Time starts with a pair on disk (log-normal lengths, mean 700, page cache warm) and ends with the arrays in memory, or written. megatron-core always
saves its arrays: for "arrays" saving is made to do nothing. Memory is what the resident set adds at its peak; maps of files count on every side.
Results are compared by checksum.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data import DATA
from harness import HERE, MIB, Side, SideError, note
from order_data import MEAN, ROW, lengths, weights, write_pair
from order_sides import SMALL
from peers import Peer, peer
from results import arguments, conditions, environment, median, record, spread, table

FOLDER = DATA / "order"
MODULES = {
    "tokenreel": ["tokenreel", "tokenreel.order.megatron", "tokenreel.order.megatron_dispatch", "numba"],
    "megatron": ["megatron.core.datasets.gpt_dataset"],
    "maxtext": ["maxtext.input_pipeline._mmap_datasource"],
}
KINDS = ("uniform", "exponential", "1/k", "equal")
Run = dict[str, Any]


class Contest:
    """Commands of the sides, and the figures seen so far."""

    def __init__(self, peers: dict[str, Peer]) -> None:
        script = HERE / "order_sides.py"
        self.peers = peers
        self.commands: dict[str, list[str | Path]] = {"tokenreel": [sys.executable, script, "tokenreel"]}
        for name, one in peers.items():
            if one.python:
                self.commands[name] = [one.python, "-W", "ignore", script, name]
        self.claims: list[str] = []
        self.shares: list[float] = []

    def call(self, side: str, function: str, **given: Any) -> Run:
        """One call in a fresh process."""
        with Side(f"order-{side}", self.commands[side]) as child:
            measure = child.call(function, **given)
        self.shares.append(measure.foreign)
        value: Run = measure.value | {"foreign": measure.foreign}
        if "cpu" in value:
            added = f", {value['added'] / MIB:.0f} MiB" if "added" in value else ""
            note(f"  {side} {function} {given}: {value['cpu']:.2f} s CPU, {value['wall']:.2f} s wall{added}")
        return value

    def turns(self, sides: list[str], function: str, rounds: int, **given: Any) -> dict[str, list[Run]]:
        """The same call on each side, in turn; a side that is not there is left out."""
        present = [side for side in sides if side in self.commands]
        seen: dict[str, list[Run]] = {side: [] for side in present}
        for turn in range(rounds):
            for side in present if turn % 2 == 0 else reversed(present):
                seen[side].append(self.call(side, function, **given))
        return seen

    def others(self) -> str:
        return f"Other programs used at most {max(self.shares):.0%} of the cores during any call, {median(self.shares):.0%} in the median.\n"

    def claim(self, what: str, holds: bool | None, told: str) -> None:
        said = "not measured" if holds is None else "holds" if holds else "FAILS"
        self.claims.append(f"- {what}: {said}{f' ({told})' if told else ''}\n")


def ratios(ours: list[Run], theirs: list[Run]) -> dict[str, float]:
    """Theirs to ours, medians."""
    return {
        key: median(run[key] for run in theirs) / max(1e-9, median(run[key] for run in ours))
        for key in ("cpu", "wall", "added")
        if key in ours[0]
    }


def cells(runs: list[Run], digits: int = 2) -> list[str]:
    return [
        spread((run["cpu"] for run in runs), digits),
        spread((run["wall"] for run in runs), digits),
        spread((run["added"] / MIB for run in runs), 0),
    ]


HEAD = ("what", "side", "CPU s", "wall s", "MiB added", "CPU to ours", "wall to ours", "memory to ours", "same result")


def rows(contest: Contest, what: str, seen: dict[str, list[Run]], sides: list[str]) -> list[list[object]]:
    ours = seen["tokenreel"]
    found: list[list[object]] = []
    for side in sides:
        if side not in seen:
            found.append([what, side, f"not measured: {contest.peers[side].reason}", *[""] * 6])
            continue
        to = ratios(ours, seen[side])
        same = all(run["read"] == ours[0]["read"] for run in seen[side])
        compared = "" if side == "tokenreel" else "yes" if same else "NO"
        found.append(
            [what, side, *cells(seen[side]), *(f"{to[key]:.1f}x" for key in ("cpu", "wall", "added")), compared]
        )
    return found


def indices(contest: Contest, documents: int, rounds: int) -> tuple[str, Run]:
    """Three indices, one epoch and three, beside each peer."""
    small, large = str(FOLDER / "small"), str(FOLDER / "large")
    write_pair(Path(small), lengths(SMALL))
    write_pair(Path(large), lengths(documents))
    lines: list[list[object]] = []
    facts: Run = {}
    cpu, wall, memory, against = [], [], [], []
    for epochs in (1, 3):
        given = {"small": small, "prefix": large, "epochs": epochs}
        for files in (False, True):
            what = f"{epochs} epoch{'s' if epochs > 1 else ''}, {'files' if files else 'arrays'}"
            seen = contest.turns(["tokenreel", "megatron"], "indices", rounds, **given, files=files)
            facts[what] = seen
            lines += rows(contest, what, seen, ["tokenreel", "megatron"])
            if "megatron" in seen and not files:
                to = ratios(seen["tokenreel"], seen["megatron"])
                cpu.append(to["cpu"])
                wall.append(to["wall"])
                memory.append(to["added"])
        slow = contest.turns(["maxtext"], "indices", 1, **given, files=False)
        arrays = facts[f"{epochs} epoch{'s' if epochs > 1 else ''}, arrays"]
        seen = {"tokenreel": arrays["tokenreel"], **slow}
        facts[f"{epochs}, maxtext"] = slow
        lines += rows(contest, f"{epochs} epoch{'s' if epochs > 1 else ''}, arrays", seen, ["maxtext"])
        if slow:
            against.append(ratios(seen["tokenreel"], slow["maxtext"])["cpu"])

    def told(values: list[float]) -> str:
        return ", ".join(f"{value:.1f}x" for value in values) + " for 1 and 3 epochs" if values else ""

    for name, values, target in (("less CPU than megatron-core", cpu, 3.0), ("less wall", wall, 3.5)):
        contest.claim(
            f"three indices: at least {target:g}x {name}", min(values) >= target if values else None, told(values)
        )
    contest.claim("stretch: 4x less CPU", min(cpu) >= 4 if cpu else None, told(cpu))
    contest.claim("three indices: at most half the peak memory", min(memory) >= 2 if memory else None, told(memory))
    contest.claim("three indices: at least 100x MaxText", min(against) >= 100 if against else None, told(against))
    text = f"\n### Three indices of {documents:,} documents, S = {ROW:,}\n\n" + table(HEAD, lines)
    return text, facts


def null_test(contest: Contest, rounds: int) -> tuple[str, Run]:
    """One side beside itself."""
    given = {"small": str(FOLDER / "small"), "prefix": str(FOLDER / "large"), "epochs": 1, "files": False}
    side = "megatron" if "megatron" in contest.commands else "tokenreel"
    first, second = [], []
    for _ in range(rounds):
        first.append(contest.call(side, "indices", **given))
        second.append(contest.call(side, "indices", **given))
    to = ratios(first, second)
    text = f"\nNull test, {side} beside itself, 1 epoch, arrays: CPU ratio {to['cpu']:.2f}, wall {to['wall']:.2f}, memory {to['added']:.2f}.\n"
    return text, {"first": first, "second": second}


def blends(contest: Contest, rounds: int) -> tuple[str, Run]:
    lines: list[list[object]] = []
    facts: Run = {}
    for members, samples, target in ((3, 10_000_000, 1.0), (100, 2_000_000, 5.0)):
        found = []
        for kind in KINDS:
            what = f"{samples // 1_000_000} M x {members}, {kind}"
            given = {"members": members, "samples": samples, "kind": kind}
            seen = facts[what] = contest.turns(["tokenreel", "megatron"], "dispatch", rounds, **given)
            lines += rows(contest, what, seen, ["tokenreel", "megatron"])
            if "megatron" in seen:
                found.append(ratios(seen["tokenreel"], seen["megatron"])["cpu"])
        told = ", ".join(f"{kind} {one:.2f}x" for kind, one in zip(KINDS, found, strict=False))
        what = f"dispatch, {samples // 1_000_000} M x {members}: at least {target:g}x megatron-core's helper"
        contest.claim(what, min(found) >= target if found else None, told)
    given = {"members": 3, "samples": 1_000_000, "kind": "uniform"}
    seen = facts["maxtext"] = contest.turns(["tokenreel", "maxtext"], "dispatch", rounds, **given)
    lines += rows(contest, "1 M x 3, uniform", seen, ["tokenreel", "maxtext"])
    to = ratios(seen["tokenreel"], seen["maxtext"])["cpu"] if "maxtext" in seen else None
    what = "dispatch of a 1 M-sample blend: at least 100x MaxText"
    contest.claim(what, None if to is None else to >= 100, f"{to:.0f}x" if to else "")
    greatest = max(weights(100, "1/k"))
    text = f"\n### Blend dispatch\n\nThe greatest of 100 weights 1/k is {greatest:.3f}.\n\n" + table(HEAD, lines)
    return text, facts


def extents(contest: Contest, documents: int, rounds: int) -> tuple[str, Run]:
    runs = contest.turns(["tokenreel"], "spans", rounds, documents=documents)["tokenreel"]
    lines = []
    for key, what, target in (
        ("random", "`spans_at`, 2**20 samples at random, 8,192 at a time", 8e6),
        ("straight", "`spans`, all samples in order", 25e6),
    ):
        rates = [run[key]["read"] / run[key]["cpu"] / 1e6 for run in runs]
        lines.append([what, f"{runs[0][key]['read']:,}", spread(rates, 1)])
        contest.claim(
            f"{what}: at least {target / 1e6:g} M extents per CPU-s",
            median(rates) >= target / 1e6,
            f"{median(rates):.1f} M",
        )
    return f"\n### Extents of {documents:,} documents, no sample index\n\n" + table(
        ("what", "extents", "M extents per CPU-s"), lines
    ), {"runs": runs}


def large(contest: Contest, sizes: list[int]) -> tuple[str, Run]:
    lines: list[list[object]] = []
    facts: Run = {}
    worst = 0.0
    for documents in sizes:
        free = available()
        if free < documents * 22:
            reason = f"not measured: {free / 1e9:.0f} GB of memory free, {documents * 20 / 1e9:.0f} GB needed"
            lines.append([f"{documents:,}", reason, "", "", ""])
            continue
        run = facts[str(documents)] = contest.call("tokenreel", "large", documents=documents)
        each = run["added"] / documents
        worst = max(worst, each)
        lines.append(
            [f"{documents:,}", f"{run['cpu']:.1f}", f"{run['wall']:.1f}", f"{run['added'] / MIB:,.0f}", f"{each:.1f}"]
        )
    done = " and ".join(f"{int(one) // 1_000_000:,} M" for one in facts)
    contest.claim(
        "many documents: at most 20 bytes a document", worst <= 20 if facts else None, f"{worst:.1f} at most, {done}"
    )
    head = ("documents", "CPU s", "wall s", "MiB added", "bytes a document")
    return "\n### Many documents, 1 epoch, `prepare` from lengths that take no memory\n\n" + table(head, lines), facts


def available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


def windows(contest: Contest) -> tuple[str, Run]:
    run = contest.call("tokenreel", "windows", windows=10**12)
    opened, seek = run["read"]["open"], run["read"]["seek"]
    told = f"open and first sample {opened * 1e6:.0f} us, a sample anywhere {seek * 1e6:.0f} us, 10,000 of each added {run['added'] / MIB:.1f} MiB"
    contest.claim("windows@1 over 10**12 windows: open and seek below 1 ms", max(opened, seek) < 1e-3, told)
    contest.claim("windows@1: O(1) memory", run["added"] < 16 * MIB, "")
    return "", run


def import_times(contest: Contest, rounds: int) -> tuple[str, Run]:
    seen = {
        side: [contest.call(side, "imports", names=MODULES[side]) for _ in range(rounds)] for side in contest.commands
    }
    lines = [
        [side, ", ".join(MODULES[side]), spread(run["cpu"] for run in runs), spread(run["wall"] for run in runs)]
        for side, runs in seen.items()
    ]
    text = "\n### Imports, apart\n\n" + table(("side", "modules", "CPU s", "wall s"), lines)
    return text + "\nnumpy is there already. Kernels come from tokenreel's cache on disk.\n", seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=int, nargs="*", default=[100_000_000, 500_000_000, 1_000_000_000])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=["indices", "blends", "extents", "large", "windows", "imports"],
        help="some parts; nothing is recorded then",
    )
    options = arguments(parser)
    contest = Contest({name: peer(name) for name in ("megatron", "maxtext")})
    facts = environment(("tokenreel", "numpy", "numba"))
    facts["peers"] = {name: one.versions or one.reason for name, one in contest.peers.items()}
    text = f"## order\n\n{conditions(facts)}\n\n{options.rounds} rounds, medians (least-greatest); MaxText's indices once. {' '.join((__doc__ or '').split())}\n"
    parts: dict[str, Callable[[], tuple[str, Run]]] = {
        "indices": lambda: indices(contest, options.documents, options.rounds),
        "null": lambda: null_test(contest, options.rounds),
        "blends": lambda: blends(contest, options.rounds),
        "extents": lambda: extents(contest, options.documents, options.rounds),
        "large": lambda: large(contest, options.large),
        "windows": lambda: windows(contest),
        "imports": lambda: import_times(contest, options.rounds),
    }
    if options.only:
        parts = {name: part for name, part in parts.items() if name in options.only}
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        for name, part in parts.items():
            note(f"{name}:")
            try:
                told, facts[name] = part()
                text += told
            except SideError as error:
                text += f"\n{name}: not measured: {str(error).strip().splitlines()[-1]}\n"
                note(str(error))
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    text += f"\n### Claims\n\nMean length {MEAN}, S = {ROW:,}. {contest.others()}\n{''.join(contest.claims)}"
    record("order", facts, text, forced=options.force or bool(options.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
