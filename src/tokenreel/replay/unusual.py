"""What is unusual between two steps: sources, lengths, repeats, rows of little variety, ids that are rare elsewhere.

The question after a spike in the loss. A stretch of steps is compared with samples drawn over the whole run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import UsageError
from tokenreel.index.segments import sample_range
from tokenreel.order.ranges import check_range
from tokenreel.replay.levels import step_level
from tokenreel.replay.trace import facts_of, resolved, says
from tokenreel.spans import Flag

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.index.assemble import Assembled
    from tokenreel.replay.trace import Traced
    from tokenreel.spans import SpanTable

    I64 = npt.NDArray[np.int64]

MOST = 4096
"""Samples of the stretch, and of the rest, that are looked at."""
SHOWN = 10
SEED = 0


def unusual(traced: Traced, first: int, end: int) -> dict[str, Any]:
    """Return what stands out in steps [first, end) of one segment against the rest of it. Reads up to 8,192 samples.

    Raises what `Traced.samples_of` raises, and `UsageError` (USE003) for steps of several segments.
    """
    number, segment, lo, _ = traced.samples_of(first)
    last, _, _, hi = traced.samples_of(end - 1)
    if last != number:
        expected, found = "steps of one segment", f"segments {number} .. {last}"
        raise UsageError("USE003", "--steps", expected=expected, found=found)
    made = traced.made(number)
    # Of a ledger, step by step: sizes of batches may have changed between attempts.
    edges = [(lo, hi)] if traced.lines is None else [traced.samples_of(step)[2:] for step in range(first, end)]
    if traced.lines is None:
        check_range(lo, hi, made.order.length)
    count, stretch = _spread(edges)
    if traced.lines is not None and made.order.length:
        stretch %= made.order.length
    rest = _elsewhere(_span(traced, number), lo, hi)
    if traced.lines is not None and made.order.length:
        rest %= made.order.length
    mine, theirs = _Look(made, stretch), _Look(made, rest)
    names = {name for name, tokens in mine.by_source.items() if tokens}
    return {
        "says": says(traced),
        **step_level(segment, names, observed=traced.lines is not None).as_dict(),
        "segment": number,
        "first_step": first,
        "end_step": end,
        "samples": count,
        "samples_read": len(stretch),
        "compared_with": len(rest),
        "sources": _sources(mine, theirs),
        "lengths": _lengths(mine, theirs),
        "repeats": _repeats(made, mine),
        "monotonous": _monotonous(mine, theirs),
        "rare_ids": _rare(mine, theirs),
    }


def _spread(edges: list[tuple[int, int]]) -> tuple[int, I64]:
    """Return how many samples ranges hold, and all of them or `MOST` spread over them."""
    begins, ends = np.array(edges, dtype=np.int64).T
    before = np.concatenate(([0], np.cumsum(ends - begins)))
    count = int(before[-1])
    chosen = np.arange(count) if count <= MOST else np.linspace(0, count - 1, MOST).astype(np.int64)
    of_range = np.searchsorted(before, chosen, side="right") - 1
    return count, begins[of_range] + chosen - before[of_range]


def _span(traced: Traced, number: int) -> tuple[int, int]:
    """Return the samples that a segment takes, or those that the ledger says it took."""
    if traced.lines is None:
        return sample_range(traced.segments[number], traced.made(number).order)
    lines = traced.lines_of[number]
    return min(line.first for line in lines), max(line.first + line.count for line in lines)


def _elsewhere(span: tuple[int, int], lo: int, hi: int) -> I64:
    rng = np.random.default_rng(SEED)
    before, after = max(0, lo - span[0]), max(0, span[1] - hi)
    total = before + after
    if total == 0:
        return np.empty(0, dtype=np.int64)
    picks = np.unique(rng.integers(0, total, min(total, MOST)))
    return np.where(picks < before, span[0] + picks, hi + picks - before)


class _Look:
    """Samples as counts: tokens by source, document pieces, ids, and each row's variety."""

    def __init__(self, made: Assembled, samples: I64) -> None:
        self.made = made
        self.samples = samples
        self.table: SpanTable = resolved(made, made.order.spans_at(samples))
        self.rows = self.table.sample_of()
        self.by_source: Counter[str] = Counter()
        stored = (self.table.flags & Flag.PAD) == 0
        for number, name in enumerate(made.names):
            self.by_source[name] += int(self.table.length[stored & (self.table.corpus == number)].sum())
        self.tokens = sum(self.by_source.values())
        self.ids: Counter[int] = Counter()
        self.variety = np.zeros(len(samples))
        self._read(stored)

    def _read(self, stored: npt.NDArray[np.bool_]) -> None:
        table = self.table
        for row in range(len(self.samples)):
            parts = [
                self.made.corpora[int(table.corpus[e])].stream(
                    int(table.begin[e]), int(table.begin[e] + table.length[e])
                )
                for e in range(int(table.splits[row]), int(table.splits[row + 1]))
                if stored[e] and table.length[e]
            ]
            ids = np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)
            values, counts = np.unique(ids, return_counts=True)
            self.ids.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
            self.variety[row] = len(values) / len(ids) if len(ids) else 1.0


def _sources(mine: _Look, theirs: _Look) -> list[dict[str, Any]]:
    rows = []
    for name in mine.by_source:
        here = mine.by_source[name] / mine.tokens if mine.tokens else 0.0
        there = theirs.by_source[name] / theirs.tokens if theirs.tokens else None
        ratio = here / there if there else None
        rows.append({"source": name, "share": here, "elsewhere": there, "ratio": ratio})
    return sorted(rows, key=lambda row: -abs(row["share"] - (row["elsewhere"] or 0.0)))


def _lengths(mine: _Look, theirs: _Look) -> dict[str, Any]:
    def told(look: _Look) -> dict[str, Any] | None:
        known = (look.table.document >= 0) & (look.table.length > 0)
        lengths = look.table.length[known]
        if not len(lengths):
            return None
        return {"pieces": len(lengths), "median": float(np.median(lengths)), "longest": int(lengths.max())}

    return {"here": told(mine), "elsewhere": told(theirs)}


def _repeats(made: Assembled, mine: _Look) -> list[dict[str, Any]]:
    """Return the documents that most samples of the stretch read from."""
    table = mine.table
    known = np.flatnonzero((table.document >= 0) & (table.length > 0) & ((table.flags & Flag.PAD) == 0))
    seen: Counter[tuple[int, int]] = Counter()
    for e in known.tolist():
        if int(table.start[e]) == 0:
            seen[int(table.corpus[e]), int(table.document[e])] += 1
    rows = []
    for (number, document), count in seen.most_common(SHOWN):
        if count > 1:
            facts = facts_of(made, number, document)
            rows.append({"corpus": made.names[number], "document": document, "times": count, **facts})
    return rows


def _monotonous(mine: _Look, theirs: _Look) -> list[dict[str, Any]]:
    """Return the rows with the fewest distinct ids, where they are fewer than nearly all rows elsewhere have."""
    usual = float(np.quantile(theirs.variety, 0.01)) if len(theirs.variety) else 0.0
    rows = np.argsort(mine.variety, kind="stable")[:SHOWN].tolist()
    return [
        {"sample": int(mine.samples[row]), "distinct": float(mine.variety[row]), "usual_least": usual}
        for row in rows
        if mine.variety[row] < usual
    ]


def _rare(mine: _Look, theirs: _Look) -> list[dict[str, Any]]:
    """Return the ids that are far more frequent here than elsewhere."""
    if not mine.tokens or not theirs.tokens:
        return []
    scale = theirs.tokens / mine.tokens
    rows = []
    for number, count in mine.ids.items():
        ratio = count * scale / (theirs.ids.get(number, 0) + 1)
        if count >= 5 and ratio >= 5:
            rows.append({"id": number, "here": count, "elsewhere": theirs.ids.get(number, 0), "ratio": ratio})
    return sorted(rows, key=lambda row: (-row["ratio"], row["id"]))[:SHOWN]
