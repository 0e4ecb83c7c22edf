"""Progress of long commands on stderr: a bar on a terminal, lines of JSON when asked, nothing otherwise."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tokenreel.cli.output import bytes_text, note

if TYPE_CHECKING:
    from types import TracebackType

EVERY = 0.2
"""Seconds between two updates."""


@dataclass
class Progress:
    """Shows bytes, tokens a second and time left; called with running totals.

    ``with Progress("build", kind) as progress: progress(done_bytes, total_bytes, tokens)``
    """

    title: str
    kind: str = "auto"
    """``auto``, ``json`` or ``none``."""
    as_json: bool = False
    _began: float = field(default_factory=time.monotonic)
    _shown: float = 0.0
    _stage: str = ""
    _bar: Any = None
    _task: Any = None

    def __enter__(self) -> Self:
        if self.kind == "auto" and not self.as_json and sys.stderr.isatty():
            self._open_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}% {task.fields[facts]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self.title, total=None, facts="")
        self._bar.start()

    def stage(self, name: str) -> None:
        """Say that another stage begins; totals and the time that is left are those of the stage."""
        self._stage, self._began, self._shown = name, time.monotonic(), 0.0
        if self._bar is not None:
            self._bar.reset(self._task, description=f"{self.title}: {name}", total=None, facts="")
        elif self.kind == "json":
            note(json.dumps({"progress": self.title, "stage": name}))

    def __call__(self, done: int, total: int | None, tokens: int = 0) -> None:
        """Show running totals: bytes done, bytes in all (None: unknown), tokens written or read."""
        now = time.monotonic()
        finished = total is not None and done >= total
        if now - self._shown < EVERY and not finished:
            return
        self._shown = now
        seconds = max(1e-9, now - self._began)
        if self._bar is not None:
            facts = f"{bytes_text(done)}"
            if tokens:
                facts += f" {tokens / seconds / 1e6:.1f} Mtok/s"
            self._bar.update(self._task, completed=done, total=total, facts=facts)
        elif self.kind == "json":
            left = None if not total or not done else round(seconds * (total - done) / done, 1)
            event = {
                "progress": self.title,
                **({"stage": self._stage} if self._stage else {}),
                "bytes": done,
                "total_bytes": total,
                "tokens": tokens,
                "tokens_per_second": round(tokens / seconds),
                "seconds_left": left,
            }
            note(json.dumps(event))
