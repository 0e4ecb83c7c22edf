"""Write the shards of a conversion, several at a time; and, from what is read for them, compute the source's identity."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tokenreel.convert.writing import write_shard
from tokenreel.hashing import Identity, IdentityHasher
from tokenreel.verify.beside import Beside, in_order

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from tokenreel.convert.facts import Known
    from tokenreel.convert.fitting import Target
    from tokenreel.convert.journal import Journal
    from tokenreel.convert.planning import PlannedShard
    from tokenreel.convert.source import Batch, Source
    from tokenreel.formats.writing import FinishedShard, Writing

    Seen = Callable[[Batch], None]

AHEAD = 2
"""Shards, for each thread, that may wait for one before them: each keeps up to 16 MiB of an identity."""
IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class Written:
    """What became of all shards."""

    shards: list[FinishedShard]
    kept: int
    """Shards that an earlier run had finished."""
    identity: Identity | None
    """Of the source, with flags; None where it was not wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is written, where, and how; `journal` None: everything stands, and is only hashed."""

    root: Path
    shards: list[PlannedShard]
    source: Source
    target: Target
    writing: Writing
    journal: Journal | None
    known: Known | None = None

    def hasher(self, begin: tuple[int, int]) -> IdentityHasher:
        """Return what computes the source's identity from `begin` on."""
        boundary = self.source.boundary
        return IdentityHasher(boundary.prefix, boundary.suffix, begin=begin)


_Result = tuple["FinishedShard | None", bool, "IdentityHasher | None"]


class _Stopped(Exception):
    """Another shard failed, or the user interrupted: what is half written is given up."""


def write_shards(plan: Plan, threads: int, counter: Callable[[int], None], *, identity: bool) -> Written:
    """Write the shards that are not there yet; the source is read once, for its identity too where that is wanted.

    Where a document lacks its boundary, the shard behind the one it is in may be read twice.
    """
    stop = threading.Event()
    failed: list[BaseException] = []
    done: list[FinishedShard] = []
    kept = 0
    whole = plan.hasher((0, 0)) if identity else None
    begin = (0, 0)

    def seen(tokens: int) -> None:
        if stop.is_set():
            raise _Stopped
        counter(tokens)

    def work(shard: PlannedShard, part: IdentityHasher | None) -> _Result:
        try:
            return *_write(plan, shard, part, seen, beside=len(plan.shards) < threads), part
        except BaseException as error:
            if not isinstance(error, _Stopped):
                failed.append(error)
            stop.set()
            raise

    with ThreadPoolExecutor(threads) as pool:

        def start(shard: PlannedShard) -> Future[_Result]:
            nonlocal begin
            part = None
            if identity:
                part = plan.hasher(begin)
                begin = (shard.end, begin[1] + _content(plan.source, shard))
            return pool.submit(work, shard, part)

        try:
            with contextlib.closing(in_order(plan.shards, start, (1 + AHEAD) * threads)) as results:
                for shard, (record, stood, part) in results:
                    kept += stood
                    if record is not None:
                        done.append(record)
                    if whole is not None and part is not None:
                        thought = part.end
                        _join(plan, whole, part, shard)
                        begin = (begin[0] + whole.end[0] - thought[0], begin[1] + whole.end[1] - thought[1])
        except _Stopped:
            raise failed[0] from None
        finally:
            stop.set()
    return Written(done, kept, None if whole is None else whole.finish())


def _content(source: Source, shard: PlannedShard) -> int:
    """Return the content tokens of a shard's documents, if all of them have their boundary."""
    around = len(source.boundary.prefix) + len(source.boundary.suffix)
    return max(0, source.stored(shard.begin, shard.end) - around * (shard.end - shard.begin))


def _join(plan: Plan, whole: IdentityHasher, part: IdentityHasher, shard: PlannedShard) -> None:
    if part.begin == whole.end:
        whole.join(part)
        return
    for batch in plan.source.batches(shard.begin, shard.end):
        whole.update(batch.ids, batch.lengths)


def _write(
    plan: Plan, shard: PlannedShard, part: IdentityHasher | None, seen: Callable[[int], None], *, beside: bool
) -> tuple[FinishedShard | None, bool]:
    """Write one shard and hash what is read for it; returns its record, and whether it stood already."""
    seen(0)
    stood, record = plan.journal is None, None
    if plan.journal is not None:
        record = plan.journal.finished(shard)
        stood = record is not None and (plan.writing.stands is None or plan.writing.stands(plan.root, shard.name))
    with Beside(threads=beside) as threads:

        def each(batch: Batch) -> None:
            if part is not None:
                threads.do(IDENTITY, partial(part.update, batch.ids, batch.lengths))
            seen(len(batch.ids))

        if not stood and plan.journal is not None:
            record = write_shard(plan.root, shard, plan.source, plan.target, plan.writing, facts=plan.known, seen=each)
            plan.journal.add(shard, record)
        elif part is not None:
            for batch in plan.source.batches(shard.begin, shard.end):
                each(batch)
        threads.wait(IDENTITY)
    return record, stood
