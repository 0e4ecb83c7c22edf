"""Statistics of special tokens by shard: how documents begin and end, what stands inside them, and runs of zeros.

They are facts, never findings by themselves: a tokenizer that silently stopped to prepend a token shows in the share of
documents that begin with it, from one shard to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.formats import Boundary

    Ids = npt.NDArray[np.integer[Any]]
    I64 = npt.NDArray[np.int64]

ZERO_RUN = 32
"""Zeros in a row from which on they are counted as a run."""


@dataclass(slots=True)
class Special:
    """Counts over the documents of one shard that were read."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    documents: int = 0
    beginning: int = 0
    """Documents that begin with the prefix."""
    ending: int = 0
    """Documents that end with the suffix."""
    double: int = 0
    """Documents that begin with two prefixes or end with two suffixes."""
    inside: int = 0
    """Separators elsewhere than at the ends of documents."""
    empty: int = 0
    zero_runs: int = 0
    longest_zero_run: int = 0
    """Of those that are counted."""
    last: dict[tuple[tuple[int, ...], bool], tuple[int, int, int]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Of the last batch, by side and whether it is the suffix: documents that have it, twice, and how often it stands."""
    _scratch: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_), repr=False, compare=False)

    @classmethod
    def of(cls, boundary: Boundary) -> Special:
        """Return counters for a boundary; one without ids counts only what needs none."""
        return cls(boundary.prefix, boundary.suffix)

    def update(self, ids: Ids, lengths: I64) -> bool:
        """Add whole documents laid end to end; returns whether all of them have their boundary, and nothing of it inside.

        Cost: about 0.1 ns a token. ``False`` is not said for certain: `boundaries.check_batch` says what there is.

        >>> from tokenreel.formats import Boundary
        >>> counts = Special.of(Boundary((), (2,)))
        >>> counts.update(np.array([5, 2, 2, 6, 2, 7], np.uint16), np.array([3, 2, 1]))
        False
        >>> counts.ending, counts.double, counts.inside
        (2, 1, 1)
        """
        shortest = int(lengths.min(initial=len(self.prefix) + len(self.suffix)))
        plain = shortest >= len(self.prefix) + len(self.suffix)
        ends = np.cumsum(lengths, dtype=np.int64)
        begins = ends - lengths
        self.documents += len(lengths)
        if not shortest:
            self.empty += int(np.count_nonzero(lengths == 0))
        for side, at_end in ((self.prefix, False), (self.suffix, True)):
            if not side:
                continue
            hits = self._hits(ids, side)
            found = int(np.count_nonzero(hits))
            first = ends - len(side) if at_end else begins
            there = hits[first] if shortest >= len(side) and found else _stands(ids, first, begins, ends, side)
            proper, double = int(np.count_nonzero(there)), 0
            if found > proper:  # else none stands but where documents begin or end
                beyond = first + (-len(side) if at_end else len(side))
                double = int(np.count_nonzero(_stands(ids, beyond, begins, ends, side) & there))
            self.last[side, at_end] = proper, double, found
            if at_end:
                self.ending += proper
            else:
                self.beginning += proper
            self.double += double
            plain = plain and proper == len(lengths) and found == len(lengths) * (1 + (self.prefix == self.suffix))
            if self.prefix == self.suffix and at_end:
                # Counted once where both sides are the same; a document of one id has it on both.
                self.inside -= proper - int(np.count_nonzero(there & (lengths <= len(side))))
                continue
            self.inside += found - proper
        self._zeros(ids)
        return plain

    def _hits(self, ids: Ids, wanted: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Return, for each id, whether `wanted` begins there, in whatever document; valid until it is asked again."""
        count = max(0, len(ids) - len(wanted) + 1)
        if len(self._scratch) < count:
            self._scratch = np.empty(count, np.bool_)
        hits = self._scratch[:count]
        np.equal(ids[:count], wanted[0], out=hits)
        for k, value in enumerate(wanted[1:], 1):
            hits &= ids[k : count + k] == value
        return hits

    def _zeros(self, ids: Ids) -> None:
        # Most data has none: many tokenizers give no text the id 0. A run that is long enough to count holds one of every
        # 32nd id, and two neighbours among every 16th.
        if not len(ids) or int(ids.min()) > 0 or not (ids[::ZERO_RUN] == 0).any():
            return
        some = ids[:: ZERO_RUN // 2] == 0
        if not (some[1:] & some[:-1]).any():
            return
        zero = ids == 0
        edges = np.flatnonzero(np.diff(np.concatenate(([False], zero, [False])).astype(np.int8)))
        runs = edges[1::2] - edges[::2]
        runs = runs[runs >= ZERO_RUN]
        self.zero_runs += len(runs)
        self.longest_zero_run = max(self.longest_zero_run, int(runs.max(initial=0)))

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form: counts and shares; what was not declared is left out."""
        n = self.documents
        out: dict[str, object] = {"documents": n, "empty": self.empty}
        if self.prefix:
            out["beginning_with_prefix"] = round(self.beginning / n, 6) if n else None
        if self.suffix:
            out["ending_with_suffix"] = round(self.ending / n, 6) if n else None
        if self.prefix or self.suffix:
            out["double"], out["inside"] = self.double, self.inside
        out["zero_runs"], out["longest_zero_run"] = self.zero_runs, self.longest_zero_run
        return out


def _stands(ids: Ids, first: I64, begins: I64, ends: I64, wanted: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (first >= begins) & (first + len(wanted) <= ends)
    if not len(ids):
        return found & False
    for k, value in enumerate(wanted):
        found = found & (ids[np.clip(first + k, 0, len(ids) - 1)] == value)
    return found
