"""The parts of a build: jobs made, handed to workers, and what is heard of them: progress, and lines for the log."""

from __future__ import annotations

import contextlib
import platform
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.build.pool import run_jobs
from tokenreel.build.report import log_event, read_log
from tokenreel.build.resume import receipt_of, sweep
from tokenreel.build.unit import Job, Plan
from tokenreel.build.worker import Setup
from tokenreel.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from tokenreel.build.inputs import HashedInput
    from tokenreel.build.settings import Settings
    from tokenreel.build.worker import Answer
    from tokenreel.config import Recipe
    from tokenreel.corpus.receipts import Receipt
    from tokenreel.text import EngineChoice


@dataclass(frozen=True, slots=True)
class Work:
    """What all parts of a build share."""

    recipe: Recipe
    settings: Settings
    choice: EngineChoice
    rule: tuple[str, dict[str, Any]]
    """Name and options."""
    out: Path
    run_config_sha256: str

    def setup(self) -> Setup:
        """Return what a worker needs before its first job."""
        tokenizer, settings = self.recipe.tokenizer, self.settings
        plan = Plan(
            out=str(self.out.absolute()),
            layout=self.recipe.corpus.layout,
            run_config_sha256=self.run_config_sha256,
            dtype=settings.dtype,
            eod_id=settings.eod_id,
            special_in_text=tokenizer.special_in_text,
            recheck=tokenizer.recheck,
            empty=self.recipe.documents.empty,
            empty_inputs=self.recipe.documents.empty_inputs,
            chunk_bytes=self.recipe.output.chunk_bytes,
            lossless=settings.tok.lossless and tokenizer.special_in_text in ("text", "error"),
        )
        return Setup(
            plan=plan,
            rule=self.rule[0],
            rule_options=self.rule[1],
            tokenizer=None if settings.spec.kind == "bytes" else settings.tok.data,
            tokenizer_name=settings.tok.name,
            engine=self.choice.name,
        )


@dataclass(slots=True)
class Heard:
    """What workers said so far."""

    out: Path
    run_config_sha256: str
    by_id: bool
    """Whether the ids that parts met are kept in the log."""
    total: int
    """Bytes of all inputs."""
    progress: Callable[[int, int | None, int], None] | None = None
    cpu_seconds: float = 0.0
    done: int = 0
    """Bytes of inputs that are built, or were before, and of those at work."""
    tokens: int = 0
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)

    def hear(self, answer: Answer) -> None:
        """Take one answer: count, log a part that is done, tell the progress."""
        read, tokens = self._last.get(answer.part, (0, 0))
        self.done += answer.bytes - read
        self.tokens += answer.tokens - tokens
        self._last[answer.part] = answer.bytes, answer.tokens
        if answer.done:
            del self._last[answer.part]
            self.cpu_seconds += answer.cpu_seconds
            log_event(
                self.out,
                "part",
                part=answer.part,
                bytes=answer.bytes,
                tokens=answer.tokens,
                seconds=round(answer.seconds, 3),
                cpu_seconds=round(answer.cpu_seconds, 3),
            )
            receipt = receipt_of(self.out, answer.part, self.run_config_sha256) if self.by_id else None
            if receipt is not None:
                log_event(self.out, "ids", part=answer.part, receipt=receipt.receipt_sha256, met=answer.ids)
        if self.progress is not None:
            self.progress(self.done, self.total, self.tokens)


def build_parts(work: Work, todo: Sequence[HashedInput], heard: Heard, workers: int, stall: float) -> None:
    """Build these inputs; raises what `run_jobs` raises, and leaves finished parts alone."""
    jobs = [
        Job(
            part=str(one.record.part),
            shape=one.planned.shape,
            location=str(Path(one.planned.location).absolute()),
            path=one.planned.path,
            bytes=one.record.bytes or 0,
            sha256=str(one.record.sha256),
            stamp=one.stamp if one.settled else None,
        )
        for one in todo
    ]
    heard.done = heard.total - sum(job.bytes for job in jobs)
    log_event(work.out, "start", parts=len(jobs), workers=workers, versions=_versions())
    try:
        run_jobs(jobs, work.setup(), workers, heard.hear, stall=stall)
    except BaseException as error:
        # The workers are gone: what they had in hand is removed, what they finished stays.
        sweep(work.out, [job.part for job in jobs])
        with contextlib.suppress(StorageError):
            log_event(work.out, "stopped", error=type(error).__name__, message=str(error))
        raise


def ids_met(out: Path, receipts: Iterable[Receipt]) -> dict[str, AbstractSet[str]]:
    """Return, by part, the listed ids that it met: as the log says for exactly this receipt, in this run or an earlier one."""
    sealed = {receipt.part: receipt.receipt_sha256 for receipt in receipts}
    met: dict[str, AbstractSet[str]] = {}
    for event in read_log(out, "ids"):
        part, ids = str(event.get("part")), event.get("met")
        if event.get("receipt") == sealed.get(part) and isinstance(ids, list):
            met[part] = set(map(str, ids))
    return met


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("tokenreel", "numpy", "pyarrow", "tokenizers", "sentencepiece", "zstandard", "gigatoken", "fastokens"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
