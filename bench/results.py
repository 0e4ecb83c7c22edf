"""What a benchmark says of itself: medians, tables, the machine, and the page of recorded results."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import HERE, RESULTS, cores, note


def spread(values: Iterable[float], digits: int = 2) -> str:
    """`median (least-greatest)`, or the one value there is."""
    seen = sorted(values)
    middle = f"{statistics.median(seen):.{digits}f}"
    return middle if len(seen) == 1 else f"{middle} ({seen[0]:.{digits}f}-{seen[-1]:.{digits}f})"


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def environment(packages: Sequence[str]) -> dict[str, Any]:
    """What a reader needs to judge a figure: processor, cores, memory, Python, versions, load. No host name, no path."""
    cpu = platform.processor() or platform.machine()
    try:
        cpu = next(
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        pass
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {
        "processor": cpu,
        "cores": cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "day": time.strftime("%Y-%m-%d"),
        "versions": versions,
    }


def conditions(facts: Mapping[str, Any]) -> str:
    """The machine, the versions and the peers' versions, in a few lines."""

    def listed(versions: Mapping[str, str] | str) -> str:
        return (
            versions
            if isinstance(versions, str)
            else ", ".join(f"{name} {version}" for name, version in versions.items())
        )

    lines = [
        f"{facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB, {facts['system']}, Python {facts['python']}; "
        f"{facts['day']}; load {facts['load_at_start']} at the start.",
        f"Here: {listed(facts['versions'])}.",
        *(f"Peer {name}: {listed(versions)}." for name, versions in facts.get("peers", {}).items()),
    ]
    return "\n".join(lines)


def arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse, and refuse a busy machine: with more load than cores a figure says nothing. `--force` runs, and records nothing."""
    parser.add_argument("--force", action="store_true", help="run on a busy machine too; nothing is recorded then")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    if load > cores():
        note(
            f"load {load:.1f} exceeds the {cores()} cores: "
            + ("running, but nothing will be recorded" if options.force else "refused; wait, or give --force")
        )
        if not options.force:
            raise SystemExit(1)
    return options


def record(name: str, facts: Mapping[str, Any], markdown: str, *, forced: bool) -> None:
    """Print the block; unless forced, put it in RESULTS.md in place of the block of the same name, with the raw figures beside."""
    print(markdown)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}{'.unrecorded' if forced else ''}.json").write_text(
        json.dumps(facts, indent=1, default=asdict) + "\n"
    )
    if forced:
        return
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    page = HERE / "RESULTS.md"
    text = page.read_text() if page.exists() else "# Benchmark results\n"
    head, _, rest = text.partition(begin)
    tail = rest.partition(end)[2]
    page.write_text(f"{head.rstrip()}\n\n{begin}{markdown.strip()}\n{end}{tail}")
