"""Measure several programs side by side, in one run, without one disturbing another's interpreter.

Each *side* is a warm child process that answers calls over a pipe, so that imports are paid once and a side may run in a virtual environment
of its own. Sides take turns. This file needs only the standard library: a peer's
interpreter imports it too.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / ".results"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Measure:
    """One timed call of one side. Seconds; bytes; `foreign` is the share of all cores that other programs used meanwhile."""

    value: Any
    wall: float
    cpu: float  # user + system time of the process and of every child it waited for
    rss_tree: (
        int  # greatest sum of resident sets over the process tree, sampled; pages shared by two processes count twice
    )
    rss_process: int  # greatest resident set of one process of the tree so far, from the kernel; 0 if unknown
    foreign: float


def _cpu_and_rss() -> tuple[float, int]:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime, max(
        own.ru_maxrss, children.ru_maxrss
    ) * unit


def serve(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Answer calls until the pipe closes; run by a side's own script. What the code under test prints goes to stderr, never into the protocol."""
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        call = json.loads(line)
        cpu, _ = _cpu_and_rss()
        begin = time.perf_counter()
        try:
            answer: dict[str, Any] = {"value": functions[call["name"]](**call["arguments"])}
        except BaseException:  # an engine may panic with a BaseException; the harness reports it and goes on
            answer = {"error": traceback.format_exc()}
        wall = time.perf_counter() - begin
        after, rss = _cpu_and_rss()
        reply.write(json.dumps(answer | {"wall": wall, "cpu": after - cpu, "rss": rss}) + "\n")
        reply.flush()


class SideError(RuntimeError):
    """A side failed, died or took too long; the message ends with what it printed last."""


class Side:
    """A warm child process; a context manager. `call` runs one function of it and measures that."""

    def __init__(
        self, name: str, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None
    ) -> None:
        RESULTS.mkdir(exist_ok=True)
        self.name = name
        self.log = RESULTS / f"{name.replace(' ', '-')}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | (environment or {}),
                start_new_session=True,
            )

    def call(self, name: str, *, timeout: float = 1800.0, **arguments: Any) -> Measure:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise SideError(f"{self.name}: no pipe")
        with _Watch(self._process.pid) as watch:
            try:
                stdin.write(json.dumps({"name": name, "arguments": arguments}).encode() + b"\n")
                stdin.flush()
                ready, _, _ = select.select([stdout], [], [], timeout)
                line = stdout.readline() if ready else b""
            except BrokenPipeError:
                line = b""
        if not line:
            reason = (
                f"nothing within {timeout:.0f} s"
                if self._process.poll() is None
                else f"ended with status {self._process.returncode}"
            )
            raise SideError(f"{self.name}: {name}: {reason}\n{self._tail()}")
        answer = json.loads(line)
        if "error" in answer:
            raise SideError(f"{self.name}: {name}: {answer['error']}")
        cpu = max(answer["cpu"], watch.cpu)
        return Measure(
            answer["value"], answer["wall"], cpu, watch.tree, max(watch.process, answer["rss"]), watch.foreign(cpu)
        )

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def close(self) -> None:
        """End the child and whatever it started."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Watch:
    """Watch a process tree during a call: memory every 100 ms, processor time at both ends, and the machine's (Linux; else zeros)."""

    def __init__(self, pid: int) -> None:
        self._pid, self.tree, self.process = pid, 0, 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _Watch:
        self.cpu = -_tree_cpu(self._pid)
        self._busy, self._begin, self._own = _machine_busy(), time.perf_counter(), time.process_time()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self.cpu += _tree_cpu(self._pid)
        self._busy = _machine_busy() - self._busy
        self._wall = time.perf_counter() - self._begin
        self._own = time.process_time() - self._own

    def _sample(self) -> None:
        while True:
            sets = [_resident(pid) for pid in _tree(self._pid)]
            self.tree, self.process = max(self.tree, sum(sets)), max(self.process, *sets)
            if self._done.wait(0.1):
                return

    def foreign(self, cpu: float) -> float:
        return max(0.0, self._busy - cpu - self._own) / (max(self._wall, 0.01) * cores())


def _tree(pid: int) -> Iterable[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = [int(child) for child in children.read_text().split()]
        except OSError:
            continue
        for child in found:
            yield from _tree(child)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _tree_cpu(pid: int) -> float:
    """Seconds used by the living of a tree and by the dead that one of them waited for: no process is counted twice or lost."""
    ticks = 0
    for each in _tree(pid):
        try:
            ticks += sum(
                int(field) for field in Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]
            )
        except (OSError, ValueError):
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def _machine_busy() -> float:
    """Seconds that all cores together were busy since boot."""
    try:
        user, nice, system, _idle, _wait, irq, soft = (
            int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
        )
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def alternate(calls: Mapping[str, Callable[[], Measure]], rounds: int) -> dict[str, list[Measure]]:
    """Run every call once per round, the order turned about each round, so that a drift of the machine falls on all alike."""
    seen: dict[str, list[Measure]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name in list(calls) if turn % 2 == 0 else reversed(list(calls)):
            measure = calls[name]()
            seen[name].append(measure)
            note(
                f"  {name} [{turn + 1}/{rounds}]: {measure.wall:.2f} s wall, {measure.cpu:.2f} s CPU, others {measure.foreign:.0%}"
            )
    return seen


def note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
