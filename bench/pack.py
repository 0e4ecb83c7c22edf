"""Pack: plans of tokenreel beside Grain's first fit, OLMo-core's best fit and one in plain Python; padding; feeding packed rows.

Lengths are log-normal (web: median 700, sigma 1.0; long: median 18,000, sigma 0.9), the same on every side. Each measurement is a process of its
own that has imported everything and done a small job; sides take turns. A packer's time is for the documents it was given, which Grain gets as
arrays in memory, since it packs arrays; rates are documents a CPU second. Nobody reads a token but in "feeding".
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from harness import HERE, Side, SideError, note
from peers import peer
from results import arguments, conditions, environment, median, record, spread, table

MILLION = 1_000_000
Run = dict[str, Any]


class Contest:
    """Commands of the sides, and what was seen of other programs."""

    def __init__(self) -> None:
        script = HERE / "pack_sides.py"
        self.peers = {"grain": peer("maxtext"), "olmo": peer("olmo")}
        self.commands: dict[str, list[str | Path]] = {
            name: [sys.executable, script, name] for name in ("tokenreel", "plain")
        }
        for name, one in self.peers.items():
            if one.python:
                self.commands[name] = [one.python, "-W", "ignore", script, name]
        self.shares: list[float] = []

    def call(self, side: str, function: str, **given: Any) -> Run:
        with Side(f"pack-{side}", self.commands[side]) as child:
            measure = child.call(function, **given)
        self.shares.append(measure.foreign)
        value: Run = measure.value
        note(f"  {side} {function} {given}: {value.get('cpu', 0):.2f} s CPU")
        return value


def plans(contest: Contest, rounds: int, large: int) -> tuple[str, Run]:
    rows, facts = [], {}
    cases = [
        ("bestfit", "web", 10 * MILLION, 2048, rounds),
        ("bestfit", "web", 10 * MILLION, 8192, rounds),
        ("bestfit", "long", 10 * MILLION, 8192, rounds),
        ("firstfit", "web", 10 * MILLION, 2048, rounds),
        ("crop", "web", 10 * MILLION, 2048, rounds),
        ("bestfit", "web", large, 2048, 1),
    ]
    for policy, kind, documents, room, turns in cases:
        given = {"kind": kind, "documents": documents, "room": room, "policy": policy, "oversize": "split"}
        runs = [contest.call("tokenreel", "plan", **given) for _ in range(turns if documents else 0)]
        if not runs:
            continue
        facts[f"{policy} {kind} {documents} {room}"] = runs
        rows.append(
            (
                f"{policy}, split", kind, f"{documents:,}", f"{room:,}", spread(run["cpu"] for run in runs),
                "-" if runs[0]["padding"] is None else f"{runs[0]['padding']:.4%}", f"{runs[0]['plan_bytes']:.1f}", f"{runs[0]['bytes']:.1f}",
            )
        )  # fmt: skip
    head = ("policy", "lengths", "documents", "row", "CPU s", "padding", "bytes a document, plan", "with lengths")
    return f"### Plans\n\n{table(head, rows)}", facts


def packers(contest: Contest, rounds: int) -> tuple[str, Run]:
    rows, facts = [], {}
    for kind, room in (("web", 2048), ("long", 8192)):
        sides: dict[str, list[Run]] = {}
        given = {"kind": kind, "room": room}
        for _ in range(rounds):
            sides.setdefault("tokenreel bestfit", []).append(
                contest.call("tokenreel", "plan", documents=MILLION, policy="bestfit", oversize="split", **given)
            )
            sides.setdefault("tokenreel firstfit(8)", []).append(
                contest.call("tokenreel", "plan", documents=MILLION, policy="firstfit(8)", oversize="split", **given)
            )
            sides.setdefault("plain Python, best fit", []).append(
                contest.call("plain", "pack", documents=100_000, **given)
            )
            if "olmo" in contest.commands:
                sides.setdefault("OLMo-core, best fit", []).append(
                    contest.call("olmo", "pack", documents=100_000, **given)
                )
            if "grain" in contest.commands:
                sides.setdefault("Grain, first fit, 8 bins", []).append(
                    contest.call("grain", "pack", documents=20_000, bins=8, **given)
                )
        counts = {"plain": 100_000, "OLMo-core": 100_000, "Grain": 20_000}
        speed = {
            name: [counts.get(name.replace(",", "").split(maxsplit=1)[0], MILLION) / run["cpu"] for run in runs]
            for name, runs in sides.items()
        }
        ours = median(speed["tokenreel bestfit"])
        for name, runs in sides.items():
            rows.append(
                (
                    name, kind, f"{room:,}", spread((value / MILLION for value in speed[name]), 3),
                    f"{ours / median(speed[name]):.1f}x", f"{runs[0]['padding']:.3%}",
                )
            )  # fmt: skip
        facts[kind] = {"runs": sides, "ratio": {name: ours / median(values) for name, values in speed.items()}}
    head = ("packer", "lengths", "row", "M documents a CPU s", "bestfit to it", "padding")
    return f"### Packers\n\n{table(head, rows)}", facts


def feeding(contest: Contest, tokens: int) -> tuple[str, Run]:
    found = contest.call("tokenreel", "feeding", tokens=tokens, room=4096, batches=40, rows=64)
    rows = [(name, spread((value / MILLION for value in values), 0)) for name, values in found.items()]
    return f"### Feeding, rows of 4,096, row policy documents\n\n{table(('order', 'M tokens a CPU s'), rows)}", found


def claims(facts: Run) -> list[str]:
    out: list[str] = []

    def claim(what: str, holds: bool | None, told: str = "") -> None:
        said = "not measured" if holds is None else "holds" if holds else "FAILS"
        out.append(f"- {what}: {said}{f' ({told})' if told else ''}\n")

    runs = facts.get("plans", {})
    web, long = runs.get("bestfit web 10000000 2048"), runs.get("bestfit long 10000000 8192")
    large = next((value[0] for key, value in runs.items() if key.split()[2] == "100000000"), None)
    if web:
        cpu = median(run["cpu"] for run in web)
        claim("bestfit plan, 10 M documents: at most 2 CPU-s", cpu <= 2, f"{cpu:.2f} s")
        claim("padding, web, 2,048: at most 0.02 %", web[0]["padding"] <= 2e-4, f"{web[0]['padding']:.4%}")
    if long:
        claim("padding, long, 8,192: at most 0.16 %", long[0]["padding"] <= 1.6e-3, f"{long[0]['padding']:.4%}")
    claim("bestfit plan, 100 M documents: at most 25 CPU-s", None if large is None else large["cpu"] <= 25,
          "" if large is None else f"{large['cpu']:.1f} s")  # fmt: skip
    claim("100 M documents: at most 12 bytes each, lengths included", None if large is None else large["bytes"] <= 12,
          "" if large is None else f"{large['bytes']:.1f}")  # fmt: skip
    packs = facts.get("packers", {})
    ratios = [value for one in packs.values() for name, value in one["ratio"].items() if "tokenreel" not in name]
    claim("at least 20x the fastest peer's packer", min(ratios) >= 20 if ratios else None,
          f"{min(ratios):.0f}x" if ratios else "")  # fmt: skip
    fed = facts.get("feeding")
    if fed:
        ratio = median(fed["shuffled documents"]) / median(fed["bestfit"])
        claim("packed rows within 1.3x of shuffled documents", ratio <= 1.3, f"{ratio:.2f}x")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--large", type=int, default=100 * MILLION, help="documents of the largest plan; 0 leaves it out"
    )
    parser.add_argument("--tokens", type=int, default=60 * MILLION, help="tokens of the corpus that is fed")
    parser.add_argument("--only", nargs="+", choices=["plans", "packers", "feeding"], help="nothing is recorded then")
    options = arguments(parser)
    contest = Contest()
    facts = environment(("tokenreel", "numpy", "numba"))
    facts["peers"] = {name: one.versions or one.reason for name, one in contest.peers.items()}
    text = f"## pack\n\n{conditions(facts)}\n\n{options.rounds} rounds, medians (least-greatest). {' '.join((__doc__ or '').split())}\n"
    parts = {
        "plans": lambda: plans(contest, options.rounds, options.large),
        "packers": lambda: packers(contest, options.rounds),
        "feeding": lambda: feeding(contest, options.tokens),
    }
    for name in options.only or parts:
        note(f"{name}:")
        try:
            told, facts[name] = parts[name]()
            text += f"\n{told}"
        except SideError as error:
            text += f"\n{name}: not measured: {str(error).strip().splitlines()[-1]}\n"
            note(str(error))
    text += f"\n### Claims\n\nOther programs used at most {max(contest.shares, default=0):.0%} of the cores during any call.\n\n"
    text += "".join(claims(facts))
    record("pack", facts, text, forced=options.force or bool(options.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
