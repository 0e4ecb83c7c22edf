"""What is computed over a whole split, identity and statistics, from shards that are read at the same time.

The identity is one stream over all shards, cut into leaves. A shard's part of it begins where those before it end: told
from counts alone, for documents that all have their boundary. Where that turns out wrong, the shard is read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.corpus.statistics import StatisticsCounter
from tokenreel.errors import TokenError
from tokenreel.hashing import Identity, IdentityHasher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.statistics import Statistics
    from tokenreel.formats import Boundary

    Ids = npt.NDArray[np.integer[Any]]
    I64 = npt.NDArray[np.int64]


class Part:
    """What one shard adds to its split; made by `Split.part`."""

    def __init__(self, hasher: IdentityHasher | None, counter: StatisticsCounter | None) -> None:
        self.hasher = hasher
        self.counter = counter
        self.holds = True
        """Whether the shard was read whole, so that the split still has an identity."""

    def stop(self) -> None:
        """Say that the shard was not read whole."""
        self.hasher = self.counter = None
        self.holds = False

    def identify(self, ids: Ids, lengths: I64) -> None:
        """Add documents to the identity."""
        if self.hasher is None:
            return
        try:
            self.hasher.update(ids, lengths)
        except TokenError:
            self.hasher = None  # an id that no identity holds: reported as an id


class Split:
    """Joins the parts of one split, in order."""

    def __init__(self, boundary: Boundary, *, identity: bool, statistics: bool) -> None:
        self._boundary = boundary
        self._hasher = IdentityHasher(boundary.prefix, boundary.suffix) if identity else None
        self._counter = StatisticsCounter(boundary) if statistics else None
        self._next = (0, 0)
        """Where the next part is thought to begin."""

    @property
    def streamed(self) -> bool:
        """Whether anything is computed over the whole split, or still can be."""
        return self._hasher is not None or self._counter is not None

    def part(self, counts: tuple[int, int] | None) -> Part:
        """Return what the next shard is to be added to; `counts` are its documents and stored tokens, None not known."""
        hasher = None
        if self._hasher is not None:
            boundary = self._boundary
            hasher = IdentityHasher(boundary.prefix, boundary.suffix, begin=self._next)
            if counts is not None:
                documents, tokens = counts
                content = max(0, tokens - documents * (len(boundary.prefix) + len(boundary.suffix)))
                self._next = (self._next[0] + documents, self._next[1] + content)
        return Part(hasher, None if self._counter is None else StatisticsCounter(self._boundary))

    def add(self, part: Part, again: Callable[[], Iterable[tuple[Ids, I64]]]) -> None:
        """Add the next part; `again` reads its documents once more, where it began elsewhere than was thought."""
        if not part.holds:
            self._hasher = self._counter = None
        if self._counter is not None and part.counter is not None:
            self._counter.join(part.counter)
        if self._hasher is None or part.hasher is None:
            self._hasher = None
            return
        thought = part.hasher.end
        if part.hasher.begin == self._hasher.end:
            self._hasher.join(part.hasher)
        else:
            for ids, lengths in again():
                self._hasher.update(ids, lengths)
        # Those that are read already keep where they were thought to begin; those to come are told better.
        documents, tokens = self._hasher.end
        self._next = (self._next[0] + documents - thought[0], self._next[1] + tokens - thought[1])

    def identity(self) -> Identity | None:
        """Return the identity of all parts, or None where it was not wanted or cannot be."""
        return None if self._hasher is None else self._hasher.finish()

    def statistics(self) -> Statistics | None:
        """Return the statistics of all parts, or None."""
        return None if self._counter is None else self._counter.finish()
