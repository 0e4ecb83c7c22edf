"""What a step saw, when a document was seen, and what is unusual between two steps.

Answers come from a run file or lineage, through its orders' `spans` and `locate`; with a ledger they are about what
happened, without one about what the configuration says, and each says which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import ReplayError
from tokenreel.feed.placement import placement
from tokenreel.index.assemble import assemble
from tokenreel.index.ready import make_ready
from tokenreel.index.searching import find_in_order
from tokenreel.index.segments import chosen, sample_range, step_range
from tokenreel.replay.levels import step_level
from tokenreel.spans import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokenreel.config.run import Segment
    from tokenreel.feed.ledger_lines import Line
    from tokenreel.feed.placement import Placement
    from tokenreel.index.assemble import Assembled
    from tokenreel.spans import SpanTable


@dataclass(eq=False)
class Traced:
    """A run file's segments, each prepared when it is first needed; and the ledger's line of each step, if there is one."""

    segments: tuple[Segment, ...]
    folder: Path
    cache: Path | None = None
    accept: tuple[str, ...] = ()
    lines: dict[int, Line] | None = None
    """By step: its line in the highest attempt."""
    segment: int | None = None
    """The branch that is meant, where a step is in several."""
    warnings: list[str] = field(default_factory=list)
    _made: dict[int, Assembled] = field(default_factory=dict)

    def made(self, number: int) -> Assembled:
        """Return a segment's order, prepared; raises `ReplayError` (RPL050) where a ledger is of another order."""
        if number not in self._made:
            segment = self.segments[number]
            raw = assemble(segment.run, self.folder, accept=self.accept)
            made, said = make_ready(segment.run, raw, self.folder, self.cache)
            self.warnings += [str(one) for one in said]
            self._made[number] = made
        return self._made[number]

    @cached_property
    def names(self) -> list[str]:
        """Names of all corpora, in order of the file."""
        return list(dict.fromkeys(corpus.name for segment in self.segments for corpus in segment.run.corpus))

    def samples_of(self, step: int) -> tuple[int, Segment, int, int]:
        """Return (number of the segment, segment, first sample, end sample) of a step: the ledger's, else the schedule's.

        Raises `ReplayError`: RPL050 where the ledger's order is not the run's, RPL051 where it has no such step.
        """
        number, segment = chosen(self.segments, step=step, segment=self.segment)
        if self.lines is None:
            return (number, segment, *step_range(segment, step))
        line = self.lines.get(step)
        if line is None:
            raise ReplayError("RPL051", expected="a step of the ledger", found=step)
        order = self.made(number).order
        if (
            order.fingerprint != line.fingerprint
            and order.fingerprint_until(line.first + line.count) != line.fingerprint
        ):
            expected, found = line.fingerprint[:16], order.fingerprint[:16]
            raise ReplayError("RPL050", f"step {step}", expected=expected, found=found)
        return number, segment, line.first, line.first + line.count


def trace_step(
    traced: Traced,
    step: int,
    *,
    rank: int | None = None,
    world: int = 1,
    placed: str | Placement = "contiguous",
    decode: Any = None,
) -> dict[str, Any]:
    """Return the samples of a step, or of one rank's part of it, with extents, documents, sources and text.

    `decode` turns ids into text. Ranks take what a feed with the same placement gives them. Raises `ReplayError` (RPL052)
    for a rank that there is not, `UsageError` (STA011, STA014) for a placement that cannot deal the batch.
    """
    number, segment, lo, hi = traced.samples_of(step)
    samples = np.arange(lo, hi, dtype=np.int64)
    if rank is not None:
        if not 0 <= rank < world:
            raise ReplayError("RPL052", expected=f"a rank of {world}", found=f"rank {rank}")
        way = placement(placed)
        way.check(hi - lo, world)
        samples = way.of(lo, hi - lo, rank, world)
    made = traced.made(number)
    table = resolved(made, made.order.spans_at(samples))
    components = made.order.components_at(samples).tolist()
    rows = []
    for k, sample in enumerate(samples.tolist()):
        extents = [_extent(made, table, e) for e in range(int(table.splits[k]), int(table.splits[k + 1]))]
        row: dict[str, Any] = {"sample": sample, "component": components[k], "extents": extents}
        if decode is not None:
            row["text"] = [decode(_ids(made, table, e)) for e in range(int(table.splits[k]), int(table.splits[k + 1]))]
        rows.append(row)
    used = {extent["corpus"] for row in rows for extent in row["extents"]}
    level = step_level(segment, used, observed=traced.lines is not None)
    return {
        "step": step,
        "segment": number,
        "evidence": segment.evidence,
        "source": segment.source,
        "says": says(traced),
        **level.as_dict(),
        "first_sample": lo,
        "end_sample": hi,
        "samples": rows,
    }


def says(traced: Traced) -> str:
    """Return what an answer is about."""
    return "what happened (ledger)" if traced.lines is not None else "what the configuration says"


def resolved(made: Assembled, table: SpanTable) -> SpanTable:
    """Return a table with extents inside documents, where all boundaries are known."""
    return made.resolved(table) if all(corpus.boundary.known for corpus in made.corpora) else table


def _extent(made: Assembled, table: SpanTable, e: int) -> dict[str, Any]:
    flags = Flag(int(table.flags[e]))
    number = int(table.corpus[e])
    out: dict[str, Any] = {
        "corpus": made.names[number],
        "begin": int(table.begin[e]),
        "length": int(table.length[e]),
        "document": int(table.document[e]),
        "start": int(table.start[e]),
        "flags": [flag.name for flag in Flag if flag in flags],
    }
    if out["document"] >= 0:
        out.update(facts_of(made, number, out["document"]))
    return out


def facts_of(made: Assembled, number: int, document: int) -> dict[str, Any]:
    """Return id and source of a document, where ``documents.parquet`` says them."""
    from tokenreel.replay.document_facts import recorded

    return recorded(made.corpora[number], [document])[0]


def _ids(made: Assembled, table: SpanTable, e: int) -> Any:
    if int(table.flags[e]) & Flag.PAD:
        return np.empty(0, dtype=np.int64)
    begin = int(table.begin[e])
    return made.corpora[int(table.corpus[e])].stream(begin, begin + int(table.length[e]))


def trace_document(
    traced: Traced,
    wanted: Sequence[str],
    corpus: str | None,
    steps: tuple[int, int] | None = None,
    samples: int | None = None,
) -> dict[str, Any]:
    """Return every (segment, step, sample, place) where documents are read, by `locate`, no order read through.

    `steps` [first, end) and `samples` narrow the range; with a ledger only recorded steps count.
    """
    hits: list[dict[str, Any]] = []
    levels = []
    for number, segment in enumerate(traced.segments):
        made = traced.made(number)
        if corpus is not None and corpus not in made.names:
            continue
        lo, hi = _range(segment, made, steps, samples)
        if lo >= hi:
            continue
        found = [{"segment": number, **hit} for hit in find_in_order(made, segment, _numbers(wanted), corpus, lo, hi)]
        if traced.lines is not None:
            found = [hit for hit in found if _recorded(traced, hit)]
        if steps is not None:
            found = [hit for hit in found if hit["step"] is None or steps[0] <= hit["step"] < steps[1]]
        hits += found
        if found:
            names = {hit["corpus"] for hit in found}
            levels.append(
                {"segment": number, **step_level(segment, names, observed=traced.lines is not None).as_dict()}
            )
    return {"says": says(traced), "hits": hits, "levels": levels}


def _numbers(wanted: Sequence[str]) -> list[str]:
    # "#12" is document number 12; anything else is what `find_documents` takes.
    return [one.removeprefix("#") for one in wanted]


def _range(segment: Segment, made: Assembled, steps: tuple[int, int] | None, samples: int | None) -> tuple[int, int]:
    lo, hi = sample_range(segment, made.order, samples)
    if steps is None or segment.run.schedule is None or segment.first_sample is None:
        return lo, hi
    first, end = max(steps[0], segment.first), steps[1] if segment.last is None else min(steps[1], segment.last + 1)
    if first >= end:
        return lo, lo
    schedule = segment.run.schedule
    begin = segment.first_sample + schedule.samples(segment.first, first)
    return max(lo, begin), min(hi, begin + schedule.samples(first, end))


def _recorded(traced: Traced, hit: dict[str, Any]) -> bool:
    """Return whether the ledger has the hit, and put its step right."""
    lines = traced.lines or {}
    line = lines.get(hit["step"]) if hit["step"] is not None else None
    if line is not None and line.first <= hit["sample"] < line.first + line.count:
        return True
    for other in lines.values():
        if other.first <= hit["sample"] < other.first + other.count:
            hit["step"] = other.step
            return True
    return False
