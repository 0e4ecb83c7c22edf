"""Text to a tokenised corpus: `tokenreel build` beside datatrove, HF datasets and litdata as shipped, and beside the bare engine.

GPT-2 tokenizer file, two workers, eight input files, everything in the page cache. tokenreel writes Megatron pairs by the split rule, with
receipts, hashes, a re-check of one document in 1,000 and a final re-reading of every file; its time is the whole command: a new process, imports,
probe, fsync. A peer writes its own format and does none of that; its imports and a first small run are done before the clock starts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from build_speed import engine_report, find_tokenizer, recipe
from data import DATA, WANTED, Dataset, prepare
from harness import HERE, MIB, Measure, Side, SideError, alternate, note
from peers import Peer, peer
from results import arguments, conditions, environment, median, record, spread, table

OUT = DATA / "out"
PEERS = ("datatrove", "datasets", "litdata")
Runs = dict[str, list[Measure]]


def call(side: Side, name: str, dataset: Dataset, container: str, tokenizer: Path) -> Measure:
    """One build by one side into an empty place; emptying it is not measured."""
    out = OUT / name.replace(" ", "-")
    shutil.rmtree(out, ignore_errors=True)
    OUT.mkdir(exist_ok=True)
    if name.startswith("tokenreel"):
        return side.call("build", recipe=str(recipe(dataset, container, tokenizer)), out=str(out))
    source = str(dataset.folder / container)
    return side.call("build", source=source, container=container, tokenizer=str(tokenizer), out=str(out))


def tokens(measure: Measure) -> int:
    return int(measure.value["tokens"] if isinstance(measure.value, dict) else measure.value)


def compare(title: str, dataset: Dataset, runs: Runs, peers: dict[str, Peer], failed: dict[str, str]) -> str:
    """One table: every side on the same data set and container."""
    ours = runs["tokenreel"]
    rows: list[list[object]] = []
    for name in ("tokenreel", *PEERS):
        if name not in runs:
            rows.append([name, f"not measured: {failed.get(name) or peers[name].reason}", *[""] * 6])
            continue
        seen = runs[name]
        wall, cpu = (median(getattr(one, key) for one in seen) for key in ("wall", "cpu"))
        ratio = wall / median(one.wall for one in ours), cpu / median(one.cpu for one in ours)
        rows.append(
            [
                name,
                len(seen),
                spread(one.wall for one in seen),
                f"{dataset.bytes / 1e6 / wall:.1f}",
                spread(one.cpu for one in seen),
                f"{max(one.rss_tree for one in seen) / MIB:,.0f}",
                f"{ratio[0]:.1f}x",
                f"{ratio[1]:.1f}x",
            ]
        )
    head = ("side", "runs", "wall s", "MB/s", "CPU s", "RSS MiB, summed", "wall to ours", "CPU to ours")
    counts = {name: tokens(seen[0]) for name, seen in runs.items()}
    same = len(set(counts.values())) == 1
    others = max(one.foreign for seen in runs.values() for one in seen)
    text = (
        f"\n### {title}: {dataset.documents:,} documents, {dataset.bytes / 1e6:.1f} MB of text\n\n{table(head, rows)}\n"
    )
    text += f"All sides made {ours and counts['tokenreel']:,} tokens. " if same else f"Tokens DIFFER: {counts}. "
    return text + f"Other programs used at most {others:.0%} of the cores during any run.\n"


def claim(dataset: Dataset, container: str, runs: Runs) -> str:
    ours = median(one.wall for one in runs["tokenreel"])
    ratios = {name: median(one.wall for one in seen) / ours for name, seen in runs.items() if name != "tokenreel"}
    if not ratios:
        return f"- {container}: at least 10x each peer: not measured\n"
    holds = "holds" if min(ratios.values()) >= 10 and dataset.bytes >= WANTED else "FAILS"
    return f"- {container}: at least 10x each peer as shipped: {holds} ({', '.join(f'{name} {ratio:.1f}x' for name, ratio in ratios.items())})\n"


class Contest:
    """The sides of one run, warm."""

    def __init__(self, stack: ExitStack, peers: dict[str, Peer], tokenizer: Path) -> None:
        self.tokenizer, self.peers = tokenizer, peers
        self.failed: dict[str, str] = {}
        commands: dict[str, list[str | Path]] = {"tokenreel": [sys.executable, HERE / "build_ours.py"]}
        for name, one in peers.items():
            if one.python:
                commands[name] = [one.python, "-W", "ignore", HERE / "build_sides.py", name]
        if "datatrove" in commands:
            commands["datatrove again"] = commands["datatrove"]
        self.sides = {name: stack.enter_context(Side(f"build-{name}", command)) for name, command in commands.items()}

    def warm(self, spark: Dataset, container: str) -> None:
        """A first small run of each; a peer that fails it is not measured, and why is printed."""
        for name in list(self.sides):
            try:
                call(self.sides[name], name, spark, container, self.tokenizer)
            except SideError as error:
                if name == "tokenreel":
                    raise
                self.failed[name] = str(error).strip().splitlines()[-1]
                note(f"{name}: not measured: {error}")
                self.sides.pop(name).close()

    def calls(self, names: list[str], dataset: Dataset, container: str) -> dict[str, Callable[[], Measure]]:
        return {
            name: partial(call, self.sides[name], name, dataset, container, self.tokenizer)
            for name in names
            if name in self.sides
        }

    def full(self, dataset: Dataset, container: str) -> Runs:
        """Every peer once, tokenreel before each and after the last."""
        seen: Runs = {"tokenreel": []}
        for name in [one for one in PEERS if one in self.sides]:
            for key, measure in alternate(self.calls(["tokenreel", name], dataset, container), 1).items():
                seen.setdefault(key, []).extend(measure)
        seen["tokenreel"].append(call(self.sides["tokenreel"], "tokenreel", dataset, container, self.tokenizer))
        return seen


def null_test(contest: Contest, dataset: Dataset, rounds: int) -> tuple[str, Runs]:
    """A peer beside itself: what a ratio of 1 looks like on this machine."""
    runs = alternate(contest.calls(["datatrove", "datatrove again"], dataset, "jsonl"), rounds)
    if len(runs) < 2:
        return "\nNull test: not measured, datatrove is absent.\n", runs
    first, second = (runs[name] for name in ("datatrove", "datatrove again"))
    wall, cpu = (
        median(getattr(one, key) for one in second) / median(getattr(one, key) for one in first)
        for key in ("wall", "cpu")
    )
    return (
        f"\nNull test, datatrove beside itself on {dataset.bytes / 1e6:.0f} MB of JSONL, {rounds} runs each in turn: "
        f"wall {spread(one.wall for one in first)} s and {spread(one.wall for one in second)} s, ratio {wall:.2f}; CPU ratio {cpu:.2f}.\n",
        runs,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="runs of each side on the slice, and of each engine measurement"
    )
    parser.add_argument("--containers", nargs="+", default=["jsonl", "parquet"], choices=["jsonl", "parquet"])
    parser.add_argument(
        "--peers", nargs="*", default=list(PEERS), choices=list(PEERS), help="none: only beside the bare engine"
    )
    parser.add_argument("--no-full", action="store_true", help="peers on the slice only; the claim then reads FAILS")
    parser.add_argument("--no-engine", action="store_true")
    options = arguments(parser)
    tokenizer = find_tokenizer()
    sets = prepare()
    os.environ["HF_HUB_OFFLINE"] = "1"
    peers = {name: peer(name) if name in options.peers else Peer(name, None, "not asked for", {}) for name in PEERS}
    facts = environment(("tokenreel", "gigatoken", "fastokens", "tokenizers", "pyarrow", "numpy", "msgspec", "blake3"))
    facts["peers"] = {name: one.versions or one.reason for name, one in peers.items()}
    text = f"## build\n\n{conditions(facts)}\n\n{' '.join((__doc__ or '').split())}\n"
    claims = ""
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, OUT, ignore_errors=True)
        contest = Contest(stack, peers, tokenizer)
        for container in options.containers:
            note(f"{container}:")
            contest.warm(sets["spark"], container)
            names = ["tokenreel", *PEERS]
            small = alternate(contest.calls(names, sets["slice"], container), options.rounds)
            if options.no_full:
                text += compare(f"{container}, small", sets["slice"], small, peers, contest.failed)
                claims += claim(sets["slice"], container, small)
                facts[container] = {"slice": small}
                continue
            full = contest.full(sets["full"], container)
            text += compare(container, sets["full"], full, peers, contest.failed)
            text += compare(f"{container}, small", sets["slice"], small, peers, contest.failed)
            claims += claim(sets["full"], container, full)
            facts[container] = {"slice": small, "full": full}
        told, facts["null"] = null_test(contest, sets["slice"], options.rounds)
        text += told
        if not options.no_engine:
            told, promised, facts["engine"] = engine_report(
                contest.sides["tokenreel"], sets, tokenizer, options.rounds, OUT
            )
            text += told
            claims += promised
    record("build", facts, f"{text}\n### Claims\n\n{claims}", forced=options.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
