"""`maxtext-mmap@1`: the windows that MaxText's ``grain_file_type=mmap`` reads from one dataset, in Grain's order.

Window j is the tokens ``[j*L, j*L + L)`` of all shards end to end; the tail is dropped. There is no look-ahead: a window's
last label is lost, as in MaxText (``windows@1`` keeps it). Training shuffles each of `epochs` epochs with Grain's index
shuffle under seed + epoch; evaluation does not shuffle. Hosts then take samples h, h + H, ... (`StridedRows`). Documents
play no part, so that ``mmap_split_sentences`` changes nothing, and batches do not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Collection  # noqa: TC003
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError, UsageError
from tokenreel.order.grain_shuffle import (
    ROUNDS,
    grain_index_shuffle,
    half_bits,
    loses_an_element,
    scramble,
    seed_sequence,
)
from tokenreel.order.kernels import kernel
from tokenreel.order.maxtext_joined import JoinedTable, join
from tokenreel.order.maxtext_npy import check_seed
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, no_components, own_samples
from tokenreel.order.windows import covered
from tokenreel.spans import SpanTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.order.maxtext_joined import Tables
    from tokenreel.order.protocol import Order
    from tokenreel.spans import CorpusKey

    I64 = npt.NDArray[np.int64]

COMPAT = {"grain-shuffle": "windows that Grain's shuffle repeats and loses (2**B + 1 of them, even B >= 16) stay so"}
"""Quirks that are reproduced only when named."""


@dataclass(frozen=True, slots=True)
class MaxTextMmapOrder:
    """The windows of one dataset, `epochs` times over; make it with `over`. O(1) memory, nothing to prepare."""

    joined: JoinedTable = field(repr=False, compare=False)
    key: CorpusKey
    """Key of all tables end to end."""
    row_tokens: int
    seed: int = 0
    shuffled: bool = True
    epochs: int = 1

    row_ahead: ClassVar[int] = 0
    name: ClassVar[str] = "maxtext-mmap@1"
    children: ClassVar[tuple[Order, ...]] = ()
    locate_cost: ClassVar[Literal["closed"]] = "closed"

    @classmethod
    def over(
        cls,
        tables: Tables,
        row_tokens: int,
        *,
        seed: int = 0,
        shuffled: bool = True,
        epochs: int = 1,
        compat: Collection[str] = (),
    ) -> MaxTextMmapOrder:
        """Make the order over one table, or one for each shard in MaxText's order of prefixes.

        Raises `UsageError` (ORD002) for parameters; `OrderError`: ORD077 without a whole window, ORD086 where Grain's
        shuffle would repeat one window and lose another, unless `compat` holds "grain-shuffle".
        """
        joined = join(tables)
        check_seed(seed)
        for unknown in sorted(set(compat) - set(COMPAT)):
            raise UsageError("ORD002", "compat", expected=f"some of {', '.join(COMPAT)}", found=unknown)
        if not 1 <= row_tokens < 1 << 31:
            raise UsageError("ORD002", "row_tokens", expected="1 .. 2**31 - 1", found=row_tokens)
        if epochs < 1:
            raise UsageError("ORD002", "num_epoch", expected="1 or more", found=epochs)
        windows = joined.tokens // row_tokens
        if windows == 0:
            raise OrderError("ORD077", expected=f"{row_tokens} tokens for one window", found=joined.tokens)
        if shuffled and loses_an_element(windows) and "grain-shuffle" not in compat:
            raise OrderError("ORD086", expected="another number of windows", found=windows)
        return cls(joined, joined.key, row_tokens, seed, shuffled, epochs)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """One key for each table."""
        return tuple(table.key for table in self.joined.tables)

    @property
    def windows(self) -> int:
        """Whole windows: the samples of one epoch."""
        return self.key.tokens // self.row_tokens

    @property
    def length(self) -> int:
        """Samples of all epochs."""
        return self.windows * self.epochs

    @property
    def dropped(self) -> int:
        """Tokens of the tail, which no window holds."""
        return self.key.tokens % self.row_tokens

    @property
    def fingerprint(self) -> str:
        """Hash of parameters and keys; the seed enters only where it shuffles."""
        return fingerprint(self.name, {**self._parameters(), "epochs": self.epochs}, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return a hash that does not know how many epochs follow."""
        check_range(i, i, self.length)
        return fingerprint(self.name, self._parameters(), self.corpora)

    def _parameters(self) -> dict[str, object]:
        return {"row_tokens": self.row_tokens, "seed": self.seed if self.shuffled else None}

    def prepare(self, cache: object = None) -> MaxTextMmapOrder:  # noqa: ARG002
        """Return self: there is nothing to prepare."""
        return self

    def window_at(self, samples: npt.ArrayLike) -> I64:
        """Return the window that each sample reads."""
        wanted = own_samples(samples, self.length).reshape(-1)
        if not wanted.size:
            return wanted
        epoch, place = np.divmod(wanted, self.windows)
        if not self.shuffled:
            return place
        out = np.empty_like(place)
        for number in np.unique(epoch).tolist():
            mine = epoch == number
            out[mine] = grain_index_shuffle(place[mine], self.windows, self.seed + number)
        return out

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j): one extent a window and corpus it touches, documents unresolved."""
        check_range(i, j, self.length)
        return self.spans_at(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        windows = self.window_at(samples)
        splits = np.arange(len(windows) + 1, dtype=np.int64)
        return self.joined.apart(SpanTable.of(splits, windows * self.row_tokens, self.row_tokens))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return zeros: there is one component."""
        return no_components(samples)

    def samples_of(self, windows: npt.ArrayLike, epoch: int) -> tuple[I64, I64]:
        """Return (index into `windows`, sample) pairs of one epoch: one for each window, where the shuffle is one."""
        asked = np.asarray(windows, dtype=np.int64).reshape(-1)
        which = np.arange(len(asked), dtype=np.int64)
        if self.shuffled:
            which, asked = grain_places(asked, self.windows, self.seed + epoch)
        return which, asked + epoch * self.windows

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents of table number `corpus` occur among samples [lo, hi), by document, then by sample."""
        check_range(lo, hi, self.length)
        runs, windows = self.windows_of(corpus, documents)
        whichs, samples = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        if lo < hi:
            for epoch in range(lo // self.windows, (hi - 1) // self.windows + 1):
                which, found = self.samples_of(windows, epoch)
                inside = (lo <= found) & (found < hi)
                whichs.append(runs[which[inside]])
                samples.append(found[inside])
        return hits_in(self, corpus, documents, np.concatenate(whichs), np.concatenate(samples))

    def windows_of(self, corpus: int, documents: npt.ArrayLike) -> tuple[I64, I64]:
        """Return pairs of (index into `documents`, window it has tokens in)."""
        begin, end = self.runs_of(corpus, documents)
        return covered(begin, end, self.row_tokens, self.windows)

    def runs_of(self, corpus: int, documents: npt.ArrayLike) -> tuple[I64, I64]:
        """Return where documents of a table begin and end in the joined stream."""
        docs = self.joined.check_documents(corpus, documents) + self.joined.document_edges[corpus]
        return self.joined.offsets_at(docs), self.joined.offsets_at(docs + 1)

    def describe(self) -> Node:
        """Return one line."""
        shuffled = f"Grain's shuffle, seed {self.seed}" if self.shuffled else "in order"
        epochs = f"{self.epochs} epoch" + ("s" if self.epochs > 1 else "")
        text = f"{self.name} [{self.length:,} samples x {self.row_tokens:,} tokens, {epochs}, {shuffled}]"
        return Node(f"{text} {self.key.digest[:12]}")


def hits_in(order: MaxTextMmapOrder, corpus: int, documents: npt.ArrayLike, runs: I64, samples: I64) -> Hits:
    """Return the tokens of documents that pairs of (index into `documents`, sample of `order`) share, sorted."""
    by = np.lexsort((samples, runs))
    runs, samples = runs[by], samples[by]
    begin, end = order.runs_of(corpus, documents)
    window = order.window_at(samples) * order.row_tokens
    low = np.maximum(begin[runs], window)
    high = np.minimum(end[runs], window + order.row_tokens)
    base = int(order.joined.token_edges[corpus])
    # A window that began in earlier corpora has one extent for each of them that is not empty.
    filled = np.concatenate(([0], np.cumsum(np.diff(order.joined.token_edges) > 0)))
    extent = filled[corpus] - filled[order.joined.corpus_of(window)] if len(samples) else samples
    docs = np.asarray(documents, dtype=np.int64).reshape(-1)
    return Hits(docs[runs], samples, np.maximum(extent, 0), low - base, high - low)


def grain_places(elements: npt.ArrayLike, n: int, seed: int) -> tuple[I64, I64]:
    """Return pairs of (index into `elements`, its position) in Grain's shuffle of n items: `grain_index_shuffle` undone.

    One pair an element, except where the shuffle is no permutation (`loses_an_element`): there one element has none and
    another two. Raises `OrderError` (ORD001) for an element outside.

    >>> grain_places([0, 1, 2], 3, 1)[1].tolist()
    [2, 0, 1]
    """
    asked = np.ascontiguousarray(elements, dtype=np.int64).reshape(-1)
    which = np.arange(len(asked), dtype=np.int64)
    if asked.size and (int(asked.min()) < 0 or int(asked.max()) >= n):
        raise OrderError("ORD001", expected=f"0 .. {n - 1}", found=f"{int(asked.min())} .. {int(asked.max())}")
    places = np.zeros_like(asked)
    if n > 1:
        keys = np.array(seed_sequence(seed & 0xFFFFFFFF, ROUNDS), dtype=np.int64)
        _decipher(asked, n - 1, half_bits(n), keys, places)
    if loses_an_element(n):
        kept, twice = asked < n - 1, places == 0
        twice &= kept
        which = np.concatenate((which[kept], which[twice]))
        places = np.concatenate((places[kept], np.full(int(twice.sum()), n - 1, dtype=np.int64)))
    return which, places


@kernel("void(int64[::1], int64, int64, int64[::1], int64[::1])")
def _decipher(elements: Any, largest: int, bits: int, keys: Any, out: Any) -> None:
    mask = (1 << bits) - 1
    for n in range(len(elements)):
        value = elements[n]
        while True:
            left = (value >> bits) & mask
            right = value & mask
            for k in range(len(keys) - 2, -1, -2):
                right ^= scramble(left, bits, mask) ^ (keys[k + 1] & mask)
                left ^= scramble(right, bits, mask) ^ (keys[k] & mask)
            value = (left << bits) | right
            if value <= largest:
                break
        out[n] = value
