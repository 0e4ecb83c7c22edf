"""Where the processor time of a function goes, by module of tokenreel: a sampling profiler of the main thread in forty lines.

The kernel sends SIGPROF every millisecond of processor time. Python runs the handler when the C call under way returns, in the frame that made
it; so the handler books the time since its last run, not one tick, on that frame.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

INTERVAL = 0.001
# Whatever else is on the stack, time under these is theirs: they call the same encoders as the main path.
OWNERS = ("probe", "recheck")


def sample(work: Callable[[], Any], package: Path) -> tuple[Any, dict[str, float], float]:
    """Run `work` in this thread; returns its value, CPU seconds by `module.function` of `package`, and CPU seconds in all."""
    root = f"{package}/"
    spent: defaultdict[str, float] = defaultdict(float)
    begin = last = time.process_time()

    def place(frame: FrameType | None) -> str:
        inner = ""
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(root):
                module = file[len(root) :].removesuffix(".py").replace("/", ".")
                if module.rpartition(".")[2] in OWNERS:
                    return f"{module}.{frame.f_code.co_name}"
                inner = inner or f"{module}.{frame.f_code.co_name}"
            frame = frame.f_back
        return inner or "outside"

    def tick(_signal: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.process_time()
        spent[place(frame)] += now - last
        last = now

    before = signal.signal(signal.SIGPROF, tick)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        value = work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    total = time.process_time() - begin
    spent["outside"] += begin + total - last
    return value, dict(spent), total
