"""Levanter's order: tokenreel beside a plain JAX rendering of it, over the Snowball mixture: 168 components in blocks of 49,152.

Levanter cannot be installed from the package index. Factors in "of Levanter" are taken from ids per CPU second that Levanter
itself with JAX reached on another machine (2 cores of an AMD EPYC): 81,163 consecutive ids of cold blocks, 165,682 of warm ones,
31 random, 6,411 of the block shuffle. The peer measured here beside us is `levanter_plain.py`: one `jax.random.permutation` a block,
a Python loop an id, scalar Feistel. Both answer the same ids, compared by checksum. Imports and compiling are not counted.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from harness import HERE, Side, SideError, alternate, note
from results import arguments, conditions, environment, median, record, spread, table

# What is asked: (name, kind, runs or ids of ours and of the peer, fresh, ids per CPU second of Levanter, factor asked for).
LOOK_UPS = (
    ("consecutive, cold blocks", "consecutive", 200, 16, True, 81_163, 45),
    ("consecutive, warm blocks", "consecutive", 60, 16, False, 165_682, 300),
    ("random, ungrouped", "random", 400, 48, True, 31, 15),
    ("grouped, 64 ids a block, mixed", "grouped", 120, 24, True, 31, 100),
)
SHUFFLE, PLACES, PLACES_PLAIN, SHUFFLE_FACTOR = 6_411, 3_000_000, 4_096, 1200
HEAD = ("what", "tokenreel ids/CPU s", "plain JAX ids/CPU s", "to plain JAX", "of Levanter", "asked", "same ids")


def per_second(run: Any) -> float:
    return float(run.value["ids"]) / max(1e-9, float(run.value["cpu"]))


def compared(
    name: str, ours: list[Any], theirs: list[Any], reference: int, asked: int, claims: list[str]
) -> list[object]:
    fast, slow = median(map(per_second, ours)), median(map(per_second, theirs)) if theirs else 0.0
    same = (
        ""
        if not theirs
        else "yes"
        if {one.value["crc"] for one in (*ours, *theirs)} == {ours[0].value["crc"]}
        else "NO"
    )
    factor = fast / reference
    claims.append(
        f"- {name}: at least {asked:,}x Levanter: {'holds' if factor >= asked else 'FAILS'} ({factor:,.0f}x)\n"
    )
    beside = f"{fast / slow:,.0f}x" if slow else "not measured"
    return [name, f"{fast:,.0f}", f"{slow:,.0f}", beside, f"{factor:,.0f}x", f"{asked:,}x", same]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="without the whole run; nothing is recorded then")
    options = arguments(parser)
    facts: dict[str, Any] = environment(("tokenreel", "numpy", "numba", "jax", "jaxlib"))
    claims: list[str] = []
    lines: list[list[object]] = []
    shares: list[float] = []
    script = HERE / "levanter_sides.py"
    with Side("levanter-tokenreel", [sys.executable, script, "tokenreel"]) as ours:
        try:
            peer = Side("levanter-plain", [sys.executable, script, "plain"])
        except OSError as error:
            raise SystemExit(str(error)) from error
        with peer:
            for name, kind, count, theirs, fresh, reference, asked in LOOK_UPS:
                note(f"{name}:")
                calls = {
                    "tokenreel": lambda k=kind, n=count, f=fresh: ours.call("look_up", kind=k, count=n, fresh=f),
                    "plain": lambda k=kind, n=theirs, f=fresh: peer.call("look_up", kind=k, count=n, fresh=f),
                }
                seen = _turns(calls, options.rounds)
                # The ids of fewer runs are others than those of more: the same are asked once more, and compared.
                again = [ours.call("look_up", kind=kind, count=theirs, fresh=fresh)]
                row = compared(name, seen["tokenreel"], seen.get("plain", []), reference, asked, claims)
                if seen.get("plain"):
                    row[-1] = "yes" if again[0].value["crc"] == seen["plain"][0].value["crc"] else "NO"
                lines.append(row)
                facts[name] = seen
                shares += [run.foreign for runs in seen.values() for run in runs]
            calls = {
                "tokenreel": lambda: ours.call("shuffle", count=PLACES),
                "plain": lambda: peer.call("shuffle", count=PLACES_PLAIN),
            }
            seen = _turns(calls, options.rounds)
            lines.append(
                compared("block shuffle map", seen["tokenreel"], seen.get("plain", []), SHUFFLE, SHUFFLE_FACTOR, claims)
            )
            facts["shuffle"] = seen
        found = ours.call("locate", rounds=20).value
        best = [wall * 1e3 for wall in found["walls"]]
        told = f"{spread(best)} ms, {found['hits']} places"
        claims.append(
            f"- open and locate over the whole run, below 5 ms: {'holds' if median(best) < 5 else 'FAILS'} ({told})\n"
        )
        facts["locate"] = found
        for spans in () if options.short else (False, True):
            whole = ours.call("everything", processes=2, spans=spans).value
            what = "all 25,000 blocks down to " + ("span tables" if spans else "stored sequences")
            facts[what] = whole
            holds = "holds" if whole["wall"] <= 180 else "FAILS"
            claims.append(
                f"- {what} on two cores, at most 180 s: {holds} ({whole['wall']:.0f} s for {whole['ids']:,} ids)\n"
            )
    text = f"## levanter\n\n{conditions(facts)}\n\n{options.rounds} rounds, medians. {' '.join((__doc__ or '').split())}\n\n"
    text += (
        table(HEAD, lines)
        + f"\nOther programs used at most {max(shares):.0%} of the cores.\n\n### Claims\n\n{''.join(claims)}"
    )
    record("levanter", facts, text, forced=options.force or options.short)
    return 0


def _turns(calls: dict[str, Any], rounds: int) -> dict[str, list[Any]]:
    """Take turns; a side that fails is left out."""
    try:
        return alternate(calls, rounds)
    except SideError as error:
        note(str(error))
        return alternate({"tokenreel": calls["tokenreel"]}, rounds)


if __name__ == "__main__":
    sys.exit(main())
