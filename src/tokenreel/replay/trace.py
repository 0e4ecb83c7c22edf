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
from tokenreel.feed.going_on import key_of_kind, rekeyed
from tokenreel.feed.placement import placement
from tokenreel.index.assemble import assemble
from tokenreel.index.ready import make_ready
from tokenreel.index.searching import find_in_order
from tokenreel.index.segments import chosen, holds, sample_range, step_range
from tokenreel.replay.levels import step_level
from tokenreel.spans import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.config.run import Segment
    from tokenreel.feed.ledger_lines import Line
    from tokenreel.feed.placement import Placement
    from tokenreel.index.assemble import Assembled
    from tokenreel.order.protocol import Order
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
    _alike: dict[int, list[tuple[Order, str]]] = field(default_factory=dict)

    def made(self, number: int) -> Assembled:
        """Return a segment's order, prepared."""
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

        The last step of an order that ends inside it is short, as a feed's is. Raises `ReplayError`: RPL050 where the
        ledger's order is not the run's, RPL051 where it has no such step.
        """
        number, segment = chosen(self.segments, step=step, segment=self.segment)
        if self.lines is None:
            lo, hi = step_range(segment, step)
            length = self.made(number).order.length
            return number, segment, lo, hi if length is None or lo >= length else min(hi, length)
        line = self.lines.get(step)
        if line is None:
            raise ReplayError("RPL051", expected="a step of the ledger", found=step)
        if not self._is_of(number, line):
            raise self._another(number, line)
        return number, segment, line.first, line.first + line.count

    @cached_property
    def lines_of(self) -> dict[int, list[Line]]:
        """The ledger's lines by the number of the segment whose order they are of.

        Raises `ReplayError` (RPL050) for a line of another order, `RecipeError` (RCP044) for a step of no segment.
        """
        found: dict[int, list[Line]] = {number: [] for number in range(len(self.segments))}
        for line in (self.lines or {}).values():
            there = [number for number, segment in enumerate(self.segments) if holds(segment, line.step)]
            if not there:
                chosen(self.segments, step=line.step)
            meant = [number for number in there if self.segment in (None, number)]
            mine = [number for number in meant if self._is_of(number, line)]
            if meant and not mine:
                raise self._another(meant[0], line)
            for number in mine:
                found[number].append(line)
        return found

    def _is_of(self, number: int, line: Line) -> bool:
        """Return whether a line is of a segment's order, as far as the line goes."""
        if number not in self._alike:
            self._alike[number] = [(order, order.fingerprint) for order in alike(self.made(number))]
        end = line.first + line.count
        if any(digest == line.fingerprint for _, digest in self._alike[number]):
            return True
        return any(
            (order.length is None or end <= order.length) and order.fingerprint_until(end) == line.fingerprint
            for order, _ in self._alike[number]
        )

    def _another(self, number: int, line: Line) -> ReplayError:
        expected, found = line.fingerprint[:16], self._alike[number][0][1][:16]
        hint = "tokenreel order show RUN"
        message = f"step {line.step:,} was read from another order"
        return ReplayError("RPL050", message, expected=expected, found=found, hint=hint)


def alike(made: Assembled) -> list[Order]:
    """Return an order, and the same with the keys that its corpora had before a manifest recorded their identities.

    A ledger that was written before a corpus was adopted has fingerprints of those.
    """
    orders = [made.order]
    for kind in ("tables", "files"):
        pairs = zip(made.order.corpora, made.corpora, strict=False)
        keys = {key: key_of_kind(corpus, key, kind) for key, corpus in pairs if key.kind == "identity"}
        if any(new != old for old, new in keys.items()):
            orders.append(rekeyed(made.order, keys))
    return orders


def passes(order: Order, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Yield samples consumed [lo, hi) as samples of an order, cut where one that repeats begins again.

    >>> from tokenreel.order.stream import StreamOrder
    >>> from tokenreel.spans import CorpusKey
    >>> list(passes(StreamOrder(CorpusKey("files", "00", 1, 41), row_tokens=4), 8, 14))
    [(8, 10), (0, 4)]
    """
    length = order.length
    while length and lo < hi:
        begin, end = lo % length, min(hi, (lo // length + 1) * length)
        yield begin, begin + end - lo
        lo = end
    if not length:
        yield lo, hi


def samples_in(order: Order, lo: int, hi: int) -> npt.NDArray[np.int64]:
    """Return samples consumed [lo, hi) as samples of an order that may have begun again."""
    samples = np.arange(lo, hi, dtype=np.int64)
    return samples % order.length if order.length and hi > order.length else samples


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
    made = traced.made(number)
    samples = np.arange(lo, hi, dtype=np.int64) if traced.lines is None else samples_in(made.order, lo, hi)
    if rank is not None:
        if not 0 <= rank < world:
            raise ReplayError("RPL052", expected=f"a rank of {world}", found=f"rank {rank}")
        way = placement(placed)
        way.check(_full_batch(traced, segment, step, hi - lo), world)
        samples = samples[way.of(lo, hi - lo, rank, world) - lo]
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


def _full_batch(traced: Traced, segment: Segment, step: int, count: int) -> int:
    """Return the samples of a step that is not cut short: of a short last one ranks take what there is."""
    if traced.lines is None:
        return count if segment.run.schedule is None else segment.run.schedule.batch_at(step)
    before = traced.lines.get(step - 1)
    return count if before is None else max(count, before.count)


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

    `steps` [first, end) and `samples` narrow the range. With a ledger the samples are those of its lines, whatever the
    schedule says. Raises what `Traced.lines_of` raises.
    """
    hits: list[dict[str, Any]] = []
    levels = []
    for number, segment in enumerate(traced.segments):
        made = traced.made(number)
        if corpus is not None and corpus not in made.names:
            continue
        if traced.lines is not None:
            places = _recorded(traced, number, _numbers(wanted), corpus, steps, samples)
        else:
            places = _declared(segment, made, _numbers(wanted), corpus, steps, samples)
        found = [{"segment": number, **hit} for hit in places]
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


def _declared(
    segment: Segment,
    made: Assembled,
    wanted: Sequence[str],
    corpus: str | None,
    steps: tuple[int, int] | None,
    samples: int | None,
) -> Iterator[dict[str, Any]]:
    lo, hi = _range(segment, made, steps, samples)
    if lo < hi:
        for hit in find_in_order(made, segment, wanted, corpus, lo, hi):
            if steps is None or hit["step"] is None or steps[0] <= hit["step"] < steps[1]:
                yield hit


def _recorded(
    traced: Traced,
    number: int,
    wanted: Sequence[str],
    corpus: str | None,
    steps: tuple[int, int] | None,
    samples: int | None,
) -> Iterator[dict[str, Any]]:
    """Yield the hits among the samples that a ledger's lines took, once for every step that took one."""
    made, segment = traced.made(number), traced.segments[number]
    pieces = sorted(
        (begin, end, line.step)
        for line in traced.lines_of[number]
        if steps is None or steps[0] <= line.step < steps[1]
        for begin, end in passes(made.order, line.first, line.first + line.count)
    )
    if not pieces:
        return
    begins, ends, of_step = np.array(pieces, dtype=np.int64).T
    lo, hi, widest = int(begins[0]), int(ends.max()), int((ends - begins).max())
    hi = hi if samples is None else min(hi, (segment.first_sample or 0) + samples)
    for hit in find_in_order(made, segment, wanted, corpus, lo, max(lo, hi)):
        sample = hit["sample"]
        first, end = np.searchsorted(begins, [sample - widest, sample], side="right").tolist()
        near = slice(first, end)
        for step in sorted(of_step[near][ends[near] > sample].tolist()):
            yield {**hit, "step": step}
