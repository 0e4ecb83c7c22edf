"""What the loaders that read flat shards have in common: rows at computed places of a stream, step by step, rank by rank.

Such an order numbers its samples by step, then by data-parallel rank, then by row: sample ``(step*world + rank)*batch +
row``. A batch of one step is therefore a contiguous stretch of samples, whatever its ranks read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import ENDLESS, blocks, check_range, no_components, own_samples
from tokenreel.order.windows import covered
from tokenreel.spans import CorpusKey, Flag, SpanTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.spans import DocTable

    I64 = npt.NDArray[np.int64]


class RowsOrder(ABC):
    """An order whose samples are single rows of `row_tokens` tokens with a look-ahead; subclasses say where they begin."""

    __slots__ = ()

    name: ClassVar[str]
    children: ClassVar[tuple[Order, ...]] = ()
    row_ahead: ClassVar[int] = 1
    key: CorpusKey
    row_tokens: int
    batch: int
    world: int
    steps: int | None
    table: DocTable | None

    @abstractmethod
    def begins_at(self, samples: I64) -> I64:
        """Return the first token of each sample, in the corpus's stream."""

    @abstractmethod
    def parameters(self) -> dict[str, object]:
        """Return what decides the samples, the number of steps aside."""

    @abstractmethod
    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents of the corpus occur among samples [lo, hi), by document as asked, then by sample."""

    @property
    def locate_cost(self) -> Literal["closed", "index", "scan"]:
        """What `locate` costs."""
        return "closed"

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The one corpus."""
        return (self.key,)

    @property
    def step_samples(self) -> int:
        """Samples of one step, all ranks together."""
        return self.world * self.batch

    @property
    def length(self) -> int | None:
        """Samples of all steps; None is endless."""
        return None if self.steps is None else self.steps * self.step_samples

    @property
    def fingerprint(self) -> str:
        """Hash of name, parameters and corpus key."""
        return fingerprint(self.name, {**self.parameters(), "steps": self.steps}, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return a hash that does not know how many steps follow."""
        self._check(i, i)
        return fingerprint(self.name, self.parameters(), self.corpora)

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j): one extent each, documents unresolved."""
        self._check(i, j)
        return self._table(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        return self._table(own_samples(samples, self.length).reshape(-1))

    def _table(self, samples: I64) -> SpanTable:
        splits = np.arange(len(samples) + 1, dtype=np.int64)
        begins = self.begins_at(samples) if len(samples) else samples
        return SpanTable.of(splits, begins, self.row_tokens, flags=int(Flag.AHEAD))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return zeros: there is one component."""
        return no_components(samples)

    def rank_of(self, samples: npt.ArrayLike) -> I64:
        """Return the data-parallel rank that reads each sample."""
        return np.asarray(samples, dtype=np.int64) // self.batch % self.world

    def prepare(self, cache: object = None) -> Self:  # noqa: ARG002
        """Return self: there is nothing to prepare."""
        return self

    def describe(self) -> Node:
        """Return one line."""
        length = "endless" if self.steps is None else f"{self.steps:,} steps"
        shape = f"{self.world:,} ranks x {self.batch:,} rows x {self.row_tokens:,} tokens"
        return Node(f"{self.name} [{length}, {shape}] {self.key.digest[:12]}")

    def _runs(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> tuple[I64, I64, I64]:
        """Return the documents asked for and where they begin and end in the stream."""
        self._check(lo, hi)
        if corpus != 0 or self.table is None:
            raise OrderError("ORD002", "locate needs the corpus's table", expected="corpus 0", found=corpus)
        docs = np.asarray(documents, dtype=np.int64).reshape(-1)
        return docs, self.table.offsets_at(docs), self.table.offsets_at(docs + 1)

    def _check(self, i: int, j: int) -> None:
        check_range(i, j, self.length)

    def _check_shape(self) -> None:
        for what in ("row_tokens", "batch", "world"):
            if not 1 <= getattr(self, what) <= (1 << 31) - 1:
                raise OrderError("ORD002", what, expected="1 .. 2**31 - 1", found=getattr(self, what))
        if self.steps is not None and not 0 <= self.steps * self.step_samples < 1 << 63:
            raise OrderError("ORD002", "steps", expected="0 or more, below 2**63 samples", found=self.steps)


def check_shards(key: CorpusKey, shard_tokens: tuple[int, ...]) -> None:
    """Raise `OrderError` (ORD002) unless the shards' tokens are those of the corpus."""
    if sum(shard_tokens) != key.tokens or not shard_tokens or min(shard_tokens) < 0:
        raise OrderError("ORD002", "the shards' tokens do not sum", expected=key.tokens, found=sum(shard_tokens))


def shard_begins(shard_tokens: tuple[int, ...]) -> I64:
    """Return the first token of each shard in the stream."""
    sizes = np.array(shard_tokens, dtype=np.int64)
    return np.cumsum(sizes) - sizes


def rows_of_runs(
    begin: I64, end: I64, shard_tokens: tuple[int, ...], shard_rows: I64, width: int
) -> tuple[I64, I64, I64]:
    """Return, for runs of the stream, triples (run, shard, row of that shard) that have tokens in common.

    A shard's rows of `width` tokens start at its first token; `shard_rows` of them are read.
    """
    edges = shard_begins(shard_tokens)
    sizes = np.array(shard_tokens, dtype=np.int64)
    first = np.searchsorted(edges + sizes, begin, side="right")
    last = np.searchsorted(edges, end, side="left")
    count = np.where(end > begin, np.maximum(last - first, 0), 0)
    run = np.repeat(np.arange(len(begin), dtype=np.int64), count)
    shard = first[run] + np.arange(len(run), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    low = np.maximum(begin[run] - edges[shard], 0)
    high = np.minimum(end[run] - edges[shard], sizes[shard])
    piece, row = _covered_each(low, high, width, shard_rows[shard])
    return run[piece], shard[piece], row


def _covered_each(begin: I64, end: I64, width: int, windows: I64) -> tuple[I64, I64]:
    piece, row = covered(begin, end, width, ENDLESS)
    kept = row < windows[piece]
    return piece[kept], row[kept]


def hits_of(docs: I64, begin: I64, end: I64, columns: list[I64], width: int) -> Hits:
    """Return hits by document as asked, then by sample, from columns: run, sample that holds part of it, its first token."""
    run, sample, row_begin = columns
    kept = np.lexsort((sample, run))
    run, sample, row_begin = run[kept], sample[kept], row_begin[kept]
    low = np.maximum(begin[run], row_begin)
    high = np.minimum(end[run], row_begin + width)
    return Hits(docs[run], sample, np.zeros_like(sample), low, high - low)
