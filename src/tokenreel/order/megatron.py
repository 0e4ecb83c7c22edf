"""`megatron@1`: the order in which Megatron-Core's GPTDataset reads one split of one corpus, bit for bit.

It orders *sequences* (entries of the ``.idx``): give it `corpus.sequences()`, and `corpus.table()` as `documents` where
a document may hold several. The sequences of a split are repeated for as many whole epochs as the samples asked for
need, shuffled, laid end to end, and cut into samples of S tokens with a look-ahead; then the samples are shuffled.
A kept partial tail gives a last sample of fewer than S tokens, without a look-ahead.
"""

from __future__ import annotations

from collections.abc import Collection  # noqa: TC003
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.legacy_shuffle import LegacyShuffle
from tokenreel.order.locating import entries_of, inverse, select
from tokenreel.order.megatron_index import INT32_MAX, MegatronIndices, laid_out, sample_order, sample_rows
from tokenreel.order.megatron_plan import SPLITS, EpochPlan, plan_epochs, split_bounds, split_range, split_weights
from tokenreel.order.megatron_spans import LaidOut, lay_out
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, no_components, own_samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.spans import CorpusKey, DocTable, SpanTable

    I64 = npt.NDArray[np.int64]

CHUNK = 1 << 13
READ = 1 << 20
"""Sequences whose lengths are asked for at once."""


@dataclass(eq=False, slots=True)
class Prepared:
    """What `prepare` computed. The inverses are made at the first `locate`."""

    laid: LaidOut
    shuffle: npt.NDArray[np.unsignedinteger | np.int64]
    """Laid-out sample of each sample."""
    by_sequence: I64 | npt.NDArray[np.int32] | None = None
    by_row: I64 | npt.NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class MegatronOrder:
    """Sequences [first, last) of a corpus in Megatron's order; make it with `over`, then `prepare` it."""

    key: CorpusKey
    first: int
    last: int
    plan: EpochPlan
    row_tokens: int
    seed: int
    row_ahead: int = 1
    keep_partial: bool = False
    table: DocTable | None = field(default=None, repr=False, compare=False)
    """The corpus's sequences; needed by `prepare`."""
    documents: DocTable | None = field(default=None, repr=False, compare=False)
    """The corpus's documents, where one may hold several sequences."""
    prepared: Prepared | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "megatron@1"
    children: ClassVar[tuple[Order, ...]] = ()
    locate_cost: ClassVar[Literal["index"]] = "index"

    @classmethod
    def over(
        cls,
        table: DocTable,
        row_tokens: int,
        *,
        seed: int,
        samples: int | None,
        split: str | None = "1",
        part: str = "train",
        row_ahead: int = 1,
        keep_partial: bool = False,
        documents: DocTable | None = None,
        compat: Collection[str] = (),
    ) -> MegatronOrder:
        """Make the order of one part ("train", "valid", "test") of a split string (None: every part is the whole corpus).

        `samples` None is one epoch.

        `keep_partial` is Megatron's ``drop_last_partial_validation_sequence=False`` and legal for "valid" only, as
        there. Raises `OrderError`: ORD002 for parameters, ORD010 for the split string, ORD011 for a part with too few
        tokens, ORD012 where the kept tail is miscounted. O(1): no length is read.
        """
        if part not in SPLITS:
            raise OrderError("ORD002", "part", expected=f"one of: {', '.join(SPLITS)}", found=part)
        if keep_partial and part != "valid":
            raise OrderError("ORD002", "keep_partial", expected="part valid", found=part)
        if not 0 <= seed < 1 << 32:
            raise OrderError("ORD002", "seed", expected="0 .. 2**32 - 1", found=seed)
        bounds = (0.0, 1.0) if split is None else split_bounds(split_weights(split, compat=compat))[SPLITS.index(part)]
        first, last = split_range(bounds, table.documents) if bounds else (0, 0)
        tokens = edge(table, last) - edge(table, first)
        plan = plan_epochs(
            tokens, row_tokens, samples, row_ahead=row_ahead, keep_partial=keep_partial, compat=compat, split=part
        )
        return cls(table.key, first, last, plan, row_tokens, seed, row_ahead, keep_partial, table, documents)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The one corpus."""
        return (self.key,)

    @property
    def length(self) -> int:
        """Samples: those of whole epochs, usually more than were asked for."""
        return self.plan.samples

    @property
    def fingerprint(self) -> str:
        """Hash of what the permutations depend on; the samples asked for enter through epochs and separation alone."""
        parameters = {
            "epochs": self.plan.epochs,
            "first": self.first,
            "last": self.last,
            "length": self.length,
            "row_ahead": self.row_ahead,
            "row_tokens": self.row_tokens,
            "seed": self.seed,
            "separate": self.plan.separate,
        }
        return fingerprint(self.name, parameters, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return the whole fingerprint: other epochs or another seed shuffle everything from the first sample on."""
        self._check(i, i)
        return self.fingerprint

    # -- preparing ------------------------------------------------------------------------------------------------------

    def prepare(self, cache: object = None) -> MegatronOrder:  # noqa: ARG002
        """Return the order with its permutations computed.

        Cost for 10 million sequences: 0.15 s; at its end 16 bytes a sequence for one epoch (8 more for each further one),
        4 bytes a sample. Raises `OrderError`: ORD002 without the table, ORD013 for a tail Megatron fails on.
        """
        if self.prepared is not None:
            return self
        offsets = self._edges()
        shuffle = LegacyShuffle(self.seed)
        packed = laid_out(shuffle, offsets, self.first, self.plan, edges=True)
        self._check_tail(packed)
        owners, first_owner = self._owners(offsets)
        with ThreadPoolExecutor(1) as pool:
            order = pool.submit(sample_order, shuffle, self.plan)
            laid = lay_out(
                packed, offsets, self.first, self.row_tokens, self.row_ahead, self.length, owners, first_owner
            )
            return replace(self, prepared=Prepared(laid, order.result()))

    def indices(self) -> MegatronIndices:
        """Return the three arrays a Megatron job would load; raises `OrderError` (ORD014) unless prepared."""
        ready = self._ready()
        lengths = np.diff(ready.laid.offsets).astype(np.int32)
        documents = ready.laid.documents
        rows = sample_rows(documents, lengths, self.row_tokens, self.row_ahead, self.length, first=self.first)
        return MegatronIndices(documents, rows, ready.shuffle)

    def _edges(self) -> I64:
        """Return the edges of the split's sequences in the stream."""
        if self.table is None:
            raise OrderError("ORD002", "the order was made without its table", expected="MegatronOrder.over(table, ..)")
        count = self.last - self.first
        offsets = np.empty(count + 1, dtype=np.int64)
        offsets[0] = edge(self.table, self.first)
        for low in range(0, count, READ):
            high = min(count, low + READ)
            some = self.table.lengths(self.first + low, self.first + high)
            if int(some.max()) > INT32_MAX:
                raise OrderError("ORD002", "tokens of a sequence", expected="at most 2**31 - 1", found=int(some.max()))
            np.cumsum(some, out=offsets[low + 1 : high + 1])
            offsets[low + 1 : high + 1] += offsets[low]
        return offsets

    def _check_tail(self, packed: I64) -> None:
        overrun = self.length * self.row_tokens + self.row_ahead > self.plan.epochs * self.plan.tokens
        if self.row_ahead and overrun and self.length and int(packed[-1] >> 32) == 0:
            last = int(packed[-1] & INT32_MAX)
            raise OrderError("ORD013", document=last, expected="a last entry with tokens", found="an empty sequence")

    def _owners(self, offsets: I64) -> tuple[I64 | None, int]:
        """Return the edges of the documents that hold the split's sequences, and the first one's number."""
        begin, end = int(offsets[0]), int(offsets[-1])
        if self.documents is None or begin == end:
            return None, 0
        low, high = self.documents.at_tokens(np.array([begin, end - 1])).tolist()
        edges = np.empty(high - low + 2, dtype=np.int64)
        edges[0] = self.documents.offsets_at(np.array([low]))[0]
        np.cumsum(self.documents.lengths(low, high + 1), out=edges[1:])
        edges[1:] += edges[0]
        same = low == self.first and np.array_equal(edges, offsets)
        return (None, 0) if same else (edges, low)

    # -- reading ----------------------------------------------------------------------------------------------------------

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j)."""
        self._check(i, j)
        ready = self._ready()
        return ready.laid.extents(ready.shuffle[i:j].astype(np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        wanted = own_samples(samples, self.length)
        ready = self._ready()
        return ready.laid.extents(ready.shuffle[wanted].astype(np.int64))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 8,192 samples."""
        return blocks(self, i, j, CHUNK)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return zeros: there is one component."""
        return no_components(samples)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), by document as asked, then by sample.

        The first call inverts the permutations: 4 bytes an entry and a sample (8 beyond 2**31). Afterwards the cost is
        that of the samples found. Raises `OrderError`: ORD001 for samples, ORD002 for another corpus, ORD014.
        """
        self._check(lo, hi)
        if corpus != 0:
            raise OrderError("ORD002", "corpus", expected="0", found=corpus)
        ready = self._ready()
        wanted = np.asarray(documents, dtype=np.int64).reshape(-1)
        if ready.by_sequence is None or ready.by_row is None:
            ready.by_sequence = entries_of(ready.laid.documents, self.first, self.last, self.plan.epochs)
            ready.by_row = inverse(ready.shuffle)
        rows = self._rows_of(ready, self._sequences_of(ready, wanted))
        found = np.unique(ready.by_row[rows].astype(np.int64))
        return select(self.spans_at(found[(lo <= found) & (found < hi)]), found[(lo <= found) & (found < hi)], wanted)

    def _sequences_of(self, ready: Prepared, documents: I64) -> I64:
        """Return the sequences of this split that documents own, counted from its first."""
        if ready.laid.owners is None:
            local = documents - self.first
            return local[(local >= 0) & (local < self.last - self.first)]
        local = documents - ready.laid.first_owner
        local = local[(local >= 0) & (local < len(ready.laid.owners) - 1)]
        begins, ends = ready.laid.owners[local], ready.laid.owners[local + 1]
        low = np.searchsorted(ready.laid.offsets, begins, side="left")
        high = np.searchsorted(ready.laid.offsets, ends, side="left")
        ranges = [
            np.arange(a, min(b, self.last - self.first)) for a, b in zip(low.tolist(), high.tolist(), strict=True)
        ]
        return np.concatenate([np.empty(0, dtype=np.int64), *ranges])

    def _rows_of(self, ready: Prepared, sequences: I64) -> I64:
        """Return the laid-out samples that hold tokens of sequences, some twice."""
        if ready.by_sequence is None:
            return np.empty(0, dtype=np.int64)
        sequences = sequences[ready.laid.offsets[sequences + 1] > ready.laid.offsets[sequences]]
        entries = ready.by_sequence.reshape(-1, self.plan.epochs)[sequences].reshape(-1).astype(np.int64)
        sizes = np.repeat(ready.laid.offsets[sequences + 1] - ready.laid.offsets[sequences], self.plan.epochs)
        begins = ready.laid.starts_of(np.ascontiguousarray(entries))
        low = begins // self.row_tokens
        high = np.minimum((begins + sizes - 1) // self.row_tokens, self.length - 1)
        counts = np.maximum(high - low + 1, 0)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.asarray(np.repeat(low, counts) + within, dtype=np.int64)

    def describe(self) -> Node:
        """Return one line: samples, epochs and what is separate."""
        epochs = f"{self.plan.epochs} epoch" + ("s" if self.plan.epochs > 1 else "")
        apart = ", the last apart" if self.plan.separate else ""
        text = f"{self.name} [{self.length:,} samples x {self.row_tokens:,} tokens, {epochs}{apart}, seed {self.seed}]"
        return Node(f"{text} {self.key.digest[:12]}")

    def _ready(self) -> Prepared:
        if self.prepared is None:
            raise OrderError("ORD014", hint="order = order.prepare()")
        return self.prepared

    def _check(self, i: int, j: int) -> None:
        check_range(i, j, self.length)


def edge(table: DocTable, unit: int) -> int:
    """Return where a unit begins in the stream; the number of units stands for its end."""
    return table.tokens if unit == table.documents else int(table.offsets_at(np.array([unit], dtype=np.int64))[0])
