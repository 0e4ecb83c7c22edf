"""Workers: started, fed one job at a time, watched; the first thing that goes wrong stops all of them."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from tokenreel import errors
from tokenreel.build.unit import Job, build_unit
from tokenreel.build.worker import Answer, AnyJob, Failure, Setup, open_worker, take_met
from tokenreel.errors import IncompleteError, TokenreelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STALL_SECONDS = 3600.0
"""A worker that says nothing for this long is given up: an engine hangs."""


@dataclass(slots=True)
class _Worker:
    """One child process and the job it has."""

    process: subprocess.Popen[bytes]
    words: IO[bytes]
    """What it writes to stderr."""
    part: str = ""
    busy: bool = True
    """Starting, or with a job: it must be heard of."""
    heard: float = field(default_factory=time.monotonic)
    waiting: bytes = b""


def run_jobs(
    jobs: Sequence[Job], setup: Setup, workers: int, watch: Callable[[Answer], None], *, stall: float = STALL_SECONDS
) -> None:
    """Build all jobs, in no promised order; `watch` hears progress and every finished part.

    With ``workers=0`` they are built in this process, one after the other. Raises what a worker raised, and
    `IncompleteError` (SRC020) when one died or hangs; the others are stopped first, and finished parts stay.
    """
    if not jobs:
        return
    if workers <= 0:
        _run_here(jobs, setup, watch)
        return
    with contextlib.ExitStack() as stack:
        first = msgspec.json.encode(setup)
        pool = Pool(stack, "tokenreel.build.worker", first, min(workers, len(jobs)), watch, stall)
        try:
            pool.run(_Listed(jobs))
        finally:
            pool.stop()


def _run_here(jobs: Sequence[Job], setup: Setup, watch: Callable[[Answer], None]) -> None:
    encoder, rule = open_worker(setup)
    for job in jobs:
        began, cpu = time.monotonic(), time.process_time()

        def tick(read: int, tokens: int, part: str = job.part) -> None:
            watch(Answer(part=part, bytes=read, tokens=tokens))

        receipt = build_unit(job, setup.plan, encoder, rule, tick)
        tokens = sum(split.total_tokens for split in receipt.splits.values())
        seconds, used = time.monotonic() - began, time.process_time() - cpu
        watch(
            Answer(
                part=job.part,
                bytes=job.bytes,
                tokens=tokens,
                done=True,
                seconds=seconds,
                cpu_seconds=used,
                ids=take_met(rule),
            )
        )


class Supply(Protocol):
    """Jobs as they become ready."""

    def take(self) -> AnyJob | None:
        """Return a job that may be begun now; None where there is none, or none yet."""
        ...

    def finished(self, part: str) -> None:
        """Hear that a job is done, which may make others ready."""
        ...

    @property
    def left(self) -> bool:
        """Whether a job is not begun, or not finished."""
        ...


class _Listed:
    """Jobs that wait for nothing."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = list(reversed(jobs))
        self._unfinished = len(jobs)

    def take(self) -> Job | None:
        return self._jobs.pop() if self._jobs else None

    def finished(self, part: str) -> None:  # noqa: ARG002 (nobody waits for it)
        self._unfinished -= 1

    @property
    def left(self) -> bool:
        return self._unfinished > 0


class Pool:
    """The children of one build and what is known of them."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        module: str,
        setup: bytes,
        workers: int,
        watch: Callable[[Answer], None],
        stall: float,
    ) -> None:
        self._watch = watch
        self._stall = stall
        self._selector = stack.enter_context(selectors.DefaultSelector())
        self._workers: list[_Worker] = []
        self._first = setup + b"\n"
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109
        for _ in range(workers):
            words = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (the stack closes it)
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env={**os.environ, "PYTHONPATH": path},
                # Ctrl-C is the parent's to handle: it stops the workers itself.
                start_new_session=True,
            )
            worker = _Worker(process, words)
            self._workers.append(worker)
            if process.stdout is not None:
                os.set_blocking(process.stdout.fileno(), False)
                self._selector.register(process.stdout, selectors.EVENT_READ, worker)

    def run(self, supply: Supply) -> None:
        """Hand out all jobs and return when all are done."""
        # All are starting before the first is waited for: what they are sent is larger than a pipe holds.
        for one in self._workers:
            self._send(one, self._first)
        idle: list[_Worker] = []
        while supply.left:
            for key, _ in self._selector.select(timeout=1.0):
                worker: _Worker = key.data
                for answer in self._read(worker):
                    worker.heard = time.monotonic()
                    if answer.failure is not None:
                        raise raised(answer.failure, answer.part)
                    if answer.part:
                        self._watch(answer)
                    if answer.done:
                        supply.finished(answer.part)
                    if answer.done or not answer.part:
                        worker.part, worker.busy = "", False
                        idle.append(worker)
            while idle and (job := supply.take()) is not None:
                worker = idle.pop()
                worker.part, worker.busy, worker.heard = job.part, True, time.monotonic()
                self._send(worker, msgspec.json.encode(job) + b"\n")
            self._look_for_silence()

    def _send(self, worker: _Worker, line: bytes) -> None:
        try:
            if worker.process.stdin is not None:
                worker.process.stdin.write(line)
                worker.process.stdin.flush()
        except BrokenPipeError:
            raise self._died(worker) from None

    def _read(self, worker: _Worker) -> list[Answer]:
        stdout = worker.process.stdout
        data = os.read(stdout.fileno(), 1 << 16) if stdout is not None else b""
        if not data:
            raise self._died(worker)
        *lines, worker.waiting = (worker.waiting + data).split(b"\n")
        return [msgspec.json.decode(line, type=Answer) for line in lines]

    def _died(self, worker: _Worker) -> IncompleteError:
        try:
            status = worker.process.wait(10)
        except subprocess.TimeoutExpired:
            return self._incomplete("a worker closed its answers and goes on", worker)
        how = f"exit status {status}"
        if status < 0:
            name = signal.Signals(-status).name
            how = f"{name}: out of memory, or killed by hand" if -status == signal.SIGKILL else name
        return self._incomplete(f"a worker died ({how})", worker)

    def _incomplete(self, message: str, worker: _Worker) -> IncompleteError:
        worker.words.seek(0)
        lines = worker.words.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
        last = ": " + " | ".join(lines[-3:])[:500] if lines else ""
        return IncompleteError(
            "SRC020", f"{message}{last}", shard=worker.part or None, hint="run the same command again: it goes on"
        )

    def _look_for_silence(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.busy and now - worker.heard > self._stall:
                raise self._incomplete(f"a worker said nothing for {self._stall:.0f} seconds", worker)

    def stop(self) -> None:
        """End all children; those in the middle of a job are killed: their temporaries are removed at the next run."""
        for worker in self._workers:
            if worker.busy:
                worker.process.kill()
            with contextlib.suppress(OSError):
                if worker.process.stdin is not None:
                    worker.process.stdin.close()
        for worker in self._workers:
            try:
                worker.process.wait(5)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            if worker.process.stdout is not None:
                worker.process.stdout.close()


def raised(failure: Failure, part: str) -> BaseException:
    """Return the error that a worker's failure stands for.

    >>> from tokenreel.build.worker import failure_of
    >>> raised(failure_of(errors.SourceError("SRC004", path="a.jsonl", line=3)), "part-000000").where
    {'path': 'a.jsonl', 'line': 3}
    """
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, TokenreelError):
        again: TokenreelError = kind(
            failure.code, failure.message, expected=failure.expected, found=failure.found, hint=failure.hint
        )
        again.where = failure.where
        return again
    if failure.kind == "MemoryError":
        return IncompleteError(
            "SRC020", "a worker ran out of memory", shard=part, hint="use fewer workers (--workers 1), then run again"
        )
    return RuntimeError(f"{part}: {failure.message}")
