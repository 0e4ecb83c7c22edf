"""A worker process: takes jobs on stdin, builds them, answers on stdout; JSON lines both ways, nothing pickled.

It ends at once when its parent does: the end of stdin is noticed by a thread of its own, in the middle of a job too.
While it works it holds a shared lock on the output's receipts, so that a later build can wait until it is gone.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from tokenreel.build.lock import shared_lock
from tokenreel.build.unit import Job, Plan, build_unit
from tokenreel.corpus.splits import ById, split_rule
from tokenreel.errors import TokenreelError
from tokenreel.text import open_engine, tokenizer_from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.splits import SplitInput, SplitRule
    from tokenreel.text import Encoder

TICK_SECONDS = 0.1


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs before its first job."""

    plan: Plan
    rule: str
    rule_options: dict[str, Any]
    tokenizer: bytes | None
    """The tokenizer's file; None: ``bytes``."""
    tokenizer_name: str
    engine: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error on its way to the parent."""

    kind: str
    """Name of the error class in `tokenreel.errors`; another: the exception that was not foreseen."""
    code: str = ""
    message: str = ""
    where: dict[str, str | int] = {}
    expected: Any = None
    found: Any = None
    hint: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line from a worker: ready, progress, done, or failed."""

    part: str = ""
    bytes: int = 0
    tokens: int = 0
    done: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    ids: tuple[str, ...] = ()
    """For a split by id: the listed ids that the part met."""
    failure: Failure | None = None


@dataclass(slots=True)
class MetIds:
    """A split by id that remembers which of the listed ids it met: one that never occurs is a typo, or lost text."""

    rule: ById
    met: set[str] = field(default_factory=set)

    def validation(self, documents: SplitInput) -> npt.NDArray[np.bool_]:
        """Return what the rule returns."""
        chosen = self.rule.validation(documents)
        self.met.update(
            one for one, listed in zip(documents.ids or (), chosen, strict=True) if listed and one is not None
        )
        return chosen

    def as_dict(self) -> dict[str, Any]:
        """Return the rule's JSON form."""
        return self.rule.as_dict()


def take_met(rule: SplitRule) -> tuple[str, ...]:
    """Return, sorted, the ids that `rule` met since it was last asked; none for rules that know no ids."""
    if not isinstance(rule, MetIds):
        return ()
    met, rule.met = rule.met, set()
    return tuple(sorted(met))


def failure_of(error: BaseException) -> Failure:
    """Return an error as it travels."""
    if isinstance(error, TokenreelError):
        facts = error.as_dict()
        return Failure(
            kind=type(error).__name__,
            code=error.code,
            message=error.message,
            where=error.where,
            expected=facts.get("expected"),
            found=facts.get("found"),
            hint=error.hint,
        )
    if isinstance(error, MemoryError):
        return Failure(kind="MemoryError", message="out of memory")
    return Failure(kind=type(error).__name__, message="".join(traceback.format_exception(error)))


def open_worker(setup: Setup) -> tuple[Encoder, SplitRule]:
    """Return the encoder and the split rule of a build, in this process."""
    if setup.tokenizer is None:
        from tokenreel.text import load_tokenizer

        tok = load_tokenizer("bytes")
    else:
        tok = tokenizer_from_bytes(setup.tokenizer, name=setup.tokenizer_name)
    mode: Any = setup.plan.special_in_text
    rule = split_rule(setup.rule, setup.rule_options)
    return open_engine(tok, setup.engine, special_in_text=mode), MetIds(rule) if isinstance(rule, ById) else rule


def main() -> None:
    """Serve one parent until it closes stdin."""
    serve(Setup, Job, _open)


def _open(setup: Setup) -> tuple[Path, Callable[[Job, Callable[[int, int], None]], tuple[int, tuple[str, ...]]]]:
    encoder, rule = open_worker(setup)

    def perform(job: Job, tick: Callable[[int, int], None]) -> tuple[int, tuple[str, ...]]:
        receipt = build_unit(job, setup.plan, encoder, rule, tick)
        return sum(split.total_tokens for split in receipt.splits.values()), take_met(rule)

    return Path(setup.plan.out) / "receipts", perform


S = TypeVar("S")
J = TypeVar("J", bound="AnyJob")


class AnyJob(Protocol):
    """What a pool and its workers ask of a job."""

    @property
    def part(self) -> str:
        """What it is called."""
        ...

    @property
    def bytes(self) -> int:
        """How much of it there is."""
        ...


def serve(
    setup_type: type[S],
    job_type: type[J],
    opening: Callable[[S], tuple[Path, Callable[[J, Callable[[int, int], None]], tuple[int, tuple[str, ...]]]]],
) -> None:
    """Serve one parent until it closes stdin: a setup, then jobs, each answered.

    ``opening(setup)`` returns the folder that is locked while this process lives, and ``perform(job, tick)``, which
    returns the job's tokens and the listed ids that it met.
    """
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    # Whatever engines print must not mix with answers.
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()

    def answer(line: Answer) -> None:
        answers.write(msgspec.json.encode(line) + b"\n")

    try:
        setup = msgspec.json.decode(jobs.get(), type=setup_type)
        _few_threads()
        folder, perform = opening(setup)
        stack = contextlib.ExitStack()
        stack.enter_context(shared_lock(folder))
    except BaseException as error:  # noqa: BLE001 (a Rust panic is a BaseException; all of it is the parent's to raise)
        answer(Answer(failure=failure_of(error)))
        return
    answer(Answer())
    while True:
        job = msgspec.json.decode(jobs.get(), type=job_type)
        last = began = time.monotonic()
        cpu = time.process_time()

        def tick(read: int, tokens: int, part: str = job.part) -> None:
            nonlocal last
            if time.monotonic() - last >= TICK_SECONDS:
                last = time.monotonic()
                answer(Answer(part=part, bytes=read, tokens=tokens))

        try:
            tokens, ids = perform(job, tick)
        except BaseException as error:  # noqa: BLE001
            answer(Answer(part=job.part, failure=failure_of(error)))
            continue
        answer(
            Answer(
                part=job.part,
                bytes=job.bytes,
                tokens=tokens,
                done=True,
                seconds=time.monotonic() - began,
                cpu_seconds=time.process_time() - cpu,
                ids=ids,
            )
        )


def _listen(jobs: queue.SimpleQueue[bytes]) -> None:
    # The descriptor itself: a thread that waits inside sys.stdin would make the interpreter abort at its end.
    waiting = b""
    while data := os.read(0, 1 << 20):
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            jobs.put(line)
    os._exit(0)


def _few_threads() -> None:
    """Keep pyarrow to this worker's own core."""
    import pyarrow as pa

    pa.set_cpu_count(1)


if __name__ == "__main__":
    main()
