"""`levanter-sequences@1`: what one component of a Levanter mixture gives: streams cut into sequences, shuffled, cut short.

A part is an order of its own: a stream in rows without look-ahead (`StreamOrder`), or packed documents. Parts stand one
behind the other (Levanter's ConcatDataset): each drops its own remainder, and one key shuffles across all of them. What
limits a component, simulated epoching or a cap on its batches, cuts after the shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.children import child_of, corpora_of, dearest, first_corpora, in_order, interleaved
from tokenreel.order.levanter_shuffle import NO_SHUFFLE, LevanterShuffle, Shuffles
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, no_components, own_samples
from tokenreel.order.stream import StreamOrder
from tokenreel.spans import SpanTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.order.threefry import Key
    from tokenreel.spans import CorpusKey

    I64 = npt.NDArray[np.int64]

FARTHEST = 1 << 62


def simulated_sequences(sequences: int, experiment_budget: int, target_budget: int) -> int:
    """Return how many sequences simulated epoching keeps: Python's division of whole numbers, cut.

    >>> simulated_sequences(1000, 3, 10)
    300
    """
    return int(sequences * experiment_budget / target_budget)


def sequences_of(parts: Sequence[Order]) -> int | None:
    """Return the sequences of all parts, None for endless; raises `OrderError` (ORD002) where more follow an endless one."""
    total = 0
    for number, part in enumerate(parts):
        if part.length is None:
            if number < len(parts) - 1:
                raise OrderError("ORD002", "an endless part", expected="the last", found=f"number {number}")
            return None
        total += part.length
    return total


def kept_of(sequences: int | None, take: int | None) -> int | None:
    """Return how many sequences are left of so many, where at most `take` are kept."""
    return sequences if take is None else take if sequences is None else min(sequences, take)


@dataclass(frozen=True, slots=True)
class LevanterSequences:
    """The sequences of one component, in the order in which the mixture takes them.

    Raises `OrderError`: ORD002 without parts or a key to shuffle by, ORD112 for parts whose rows differ.

    >>> from tokenreel.spans import CorpusKey
    >>> part = StreamOrder(CorpusKey("files", "00", 1, 43), row_tokens=4, row_ahead=0)
    >>> order = LevanterSequences((part,), LevanterShuffle(io_block=2, window_blocks=2), (0, 0))
    >>> order.length, (order.spans(0, 10).begin // 4).tolist()
    (10, [3, 1, 0, 2, 9, 5, 4, 8, 7, 6])
    """

    parts: tuple[Order, ...]
    shuffle: LevanterShuffle = NO_SHUFFLE
    key: Key | None = None
    take: int | None = None
    """Sequences kept, from the first of the shuffled ones on; None keeps all."""
    partitionable: bool = True
    numpy_major: int | None = None
    sequences: int | None = field(init=False, compare=False)
    """Sequences of all parts; None is endless."""
    length: int | None = field(init=False, compare=False)
    """Sequences kept."""

    name: ClassVar[str] = "levanter-sequences@1"

    def __post_init__(self) -> None:
        if not self.parts or (self.take is not None and self.take < 0):
            raise OrderError("ORD002", "a component", expected="parts, and 0 or more sequences kept", found=self.take)
        if self.shuffle.kind != "none" and self.key is None:
            raise OrderError("ORD002", "a key", expected=f"one, to shuffle by {self.shuffle.kind}", found=None)
        rows = (self.parts[0].row_tokens, self.parts[0].row_ahead)
        for part in self.parts:
            if (part.row_tokens, part.row_ahead) != rows:
                expected = f"{rows[0]} tokens and {rows[1]} ahead, as the first"
                raise OrderError("ORD112", part.name, expected=expected, found=(part.row_tokens, part.row_ahead))
        object.__setattr__(self, "sequences", sequences_of(self.parts))
        object.__setattr__(self, "length", kept_of(self.sequences, self.take))

    @property
    def children(self) -> tuple[Order, ...]:
        """The parts."""
        return self.parts

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The parts' corpora, one part after the other."""
        return corpora_of(self.parts)

    @property
    def row_tokens(self) -> int:
        """Input tokens of a sequence."""
        return self.parts[0].row_tokens

    @property
    def row_ahead(self) -> int:
        """0: Levanter masks the last position."""
        return self.parts[0].row_ahead

    @property
    def locate_cost(self) -> Literal["closed", "index", "scan"]:
        """That of the dearest part."""
        return dearest(self.parts)

    @property
    def plain(self) -> bool:
        """Whether every part is a stream in rows, whose extents are computed at once."""
        return all(isinstance(part, StreamOrder) for part in self.parts)

    @property
    def fingerprint(self) -> str:
        """Hash of name, key, shuffle, length and parts."""
        return fingerprint(self.name, {**self._parameters(), "take": self.length}, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return a hash that does not know where the component is cut."""
        self._check(i, i)
        return fingerprint(self.name, self._parameters(), self.corpora)

    def _parameters(self) -> dict[str, object]:
        shuffled = self.shuffle.kind != "none"
        return {
            "key": list(self.key) if shuffled and self.key is not None else None,
            "numpy_major": self.numpy_major if shuffled and self.shuffle.permutation == "linear" else None,
            "partitionable": self.partitionable if shuffled else None,
            "parts": [part.fingerprint for part in self.parts],
            "shuffle": self.shuffle.as_dict(),
        }

    @property
    def edges(self) -> I64:
        """First sequence of each part, and the end; an endless part ends at 2**62."""
        sizes = [FARTHEST if part.length is None else part.length for part in self.parts]
        return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))

    def _shuffles(self) -> Shuffles:
        return Shuffles.of(
            [self.sequences],
            [self.key or (0, 0)],
            self.shuffle,
            partitionable=self.partitionable,
            numpy_major=self.numpy_major,
        )

    def sequences_at(self, samples: npt.ArrayLike) -> I64:
        """Return which sequence of the parts, one behind the other, each sample is."""
        asked = own_samples(samples, self.length, FARTHEST).reshape(-1)
        return self._shuffles().sequences_at(0, asked)

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j)."""
        self._check(i, j)
        return self.spans_at(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked; each part is asked once."""
        sequences = self.sequences_at(samples)
        return self.spans_of(sequences)

    def spans_of(self, sequences: I64) -> SpanTable:
        """Return sequences of the parts, one behind the other, as stored."""
        edges = self.edges
        part = np.searchsorted(edges, sequences, side="right") - 1
        if self.plain and self.row_ahead == 0:
            begin = (sequences - edges[part]) * self.row_tokens
            return SpanTable.of(np.arange(len(sequences) + 1), begin, self.row_tokens, corpus=part)
        read = [one.spans_at for one in self.parts]
        return interleaved(part, sequences - edges[part], read, first_corpora(self.parts))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return zeros: it is one component."""
        return no_components(samples)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), through the parts and the inverse of the shuffle."""
        self._check(lo, hi)
        number, local = child_of(self.parts, corpus)
        part, docs = self.parts[number], np.asarray(documents, dtype=np.int64).reshape(-1)
        first = int(self.edges[number])
        low, high = 0, part.length
        if high is None:
            # Endless: only eras (or nothing) shuffle it, and what [lo, hi) takes lies in theirs.
            era = max(1, self.shuffle.era_length)
            low, high = max(0, lo // era * era - first), max(0, -(-hi // era) * era - first)
        hits = part.locate(local, docs, low, high)
        which, place = self._shuffles().places_of(0, hits.sample + first)
        kept = np.flatnonzero((place >= lo) & (place < hi))
        which, place = which[kept], place[kept]
        sort = in_order(docs, hits.document[which], place, hits.extent[which])
        which = which[sort]
        return Hits(hits.document[which], place[sort], hits.extent[which], hits.begin[which], hits.length[which])

    def prepare(self, cache: object = None) -> LevanterSequences:
        """Return the component of prepared parts."""
        return replace(self, parts=tuple(part.prepare(cache) for part in self.parts))

    def describe(self) -> Node:
        """Return a line, and the parts below it."""
        length = "endless" if self.length is None else f"{self.length:,} sequences"
        said = " ".join(f"{key} {value}" for key, value in self.shuffle.as_dict().items())
        return Node(f"{self.name} [{length}, shuffle: {said}]", tuple(part.describe() for part in self.parts))

    def _check(self, i: int, j: int) -> None:
        check_range(i, j, self.length, FARTHEST)
