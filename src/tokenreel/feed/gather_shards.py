"""Where the stored ids of a batch are in memory: shards are mapped when first used, and no more than a few at once.

A shard that is not mapped (too many are, the system refuses, or its ids do not lie end to end in one file) is read piece
by piece through its reader, in Python: some microseconds a piece, exact all the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError, StorageError, TokenError
from tokenreel.feed.gather_kernels import (
    ADDRESS,
    FULL,
    HIGHEST,
    KIND,
    LONG,
    LOW,
    LOWEST,
    PIECE_KIND,
    SHARD,
    WIDTH,
    cut,
)
from tokenreel.feed.gather_stored import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats import Shard
    from tokenreel.spans import SpanTable

    I64 = npt.NDArray[np.int64]

MAPS = 64
"""Shards mapped at once, where the store's pool says no number of its own."""
FEW = 4
"""Shards whose sizes are all checked before a batch, whichever of them it reads."""
STALE = 64
"""Batches after which a shard that was not used gives way to another."""
SPARE = 63
"""Pieces beyond one an extent that there is room for at first: extents that cross a shard's edge."""
WIDE = KINDS.index(np.dtype(np.int64))


@dataclass(slots=True)
class _Mapped:
    """One shard's file in memory."""

    file: Any
    used: int
    """Number of the last batch that read it."""


class ShardMemory:
    """Addresses of stored ids, over all shards of several corpora; safe to use from several threads.

    Shards are numbered through all corpora. Nothing is opened before it is used.
    """

    def __init__(self, corpora: Sequence[Corpus], limit: int | None = None) -> None:
        self._corpora = tuple(corpora)
        self._lock = threading.Lock()
        self._mapped: OrderedDict[int, _Mapped] = OrderedDict()
        self._never: set[int] = set()
        self._batch = 0
        sizes = [corpus.shard_tokens for corpus in self._corpora]
        shards = [len(one) for one in sizes]
        self.first_shard = np.concatenate(([0], np.cumsum(shards))).astype(np.int64)
        """First shard of each corpus, and the number of all."""
        edges = [np.concatenate(([0], np.cumsum(one))) for one in sizes]
        self.edges = np.concatenate([np.empty(0, dtype=np.int64), *edges])
        """Where shards begin in their corpus's stream of all shards, and its end; corpus after corpus."""
        self.corpora = np.array(
            [
                (corpus.first_token, corpus.tokens, self.first_shard[c] + c, shards[c], self.first_shard[c])
                for c, corpus in enumerate(self._corpora)
            ],
            dtype=np.int64,
        ).reshape(-1, 5)
        """First token, tokens, first edge, shards, first shard of each corpus: what `gather_kernels.cut` takes."""
        dtypes = [corpus.dtype for corpus in self._corpora]
        kinds = [KINDS.index(one) if one in KINDS else WIDE for one in dtypes]
        self.shards = np.zeros((int(self.first_shard[-1]), 5), dtype=np.int64)
        """One row a shard, as `gather_kernels` says."""
        self.shards[:, WIDTH] = np.repeat(np.array([one.itemsize for one in dtypes], dtype=np.int64), shards)
        self.shards[:, KIND] = np.repeat(np.array(kinds, dtype=np.int64), shards)
        self.shards[:, LOWEST], self.shards[:, HIGHEST] = 0, -1
        self.bases = np.zeros(len(self.shards), dtype=np.int64)
        self.quick: tuple[I64, tuple[Any, ...]] | None = None
        """Bases and files of the shards that are mapped, while they are few and no other is in use: see `gather_rows`."""
        self._seen = np.empty(len(self.shards), dtype=np.int64)
        pools = {getattr(getattr(corpus.store, "pool", None), "limit", MAPS) for corpus in self._corpora}
        self._limit = limit if limit is not None else min(pools, default=MAPS)

    def allow(self, number: int, lowest: int, highest: int) -> None:
        """Have every id of the shards of one stored type checked: ``lowest .. highest`` are allowed."""
        mine = self.shards[:, KIND] == number
        self.shards[mine, LOWEST], self.shards[mine, HIGHEST] = lowest, highest

    @property
    def maps(self) -> int:
        """Number of shards mapped now."""
        return len(self._mapped)

    def owner(self, shard: int) -> tuple[Corpus, int]:
        """Return the corpus of a shard, and the shard's number there."""
        c = int(np.searchsorted(self.first_shard, shard, side="right")) - 1
        return self._corpora[c], shard - int(self.first_shard[c])

    def pieces(self, table: SpanTable, row_tokens: int) -> tuple[I64, I64, list[Any]]:
        """Return first pieces and pieces of a table's extents, and what has to be kept until they were read.

        Raises `OrderError`: ORD003, ORD004 for a table that is not well formed over these corpora, PCK001 for a sample
        longer than `row_tokens`; `StorageError` (STO004) for a file that changed size since it was opened, and what
        opening a shard raises. Cost: one `fstat` for each shard touched.
        """
        first = np.empty(len(table.begin) + 1, dtype=np.int64)
        capacity = len(first) + SPARE
        kept: list[Any] = []
        with self._lock:
            while True:
                self._batch += 1
                pieces = np.empty((capacity, 5), dtype=np.int64)
                used, known, _ = cut(
                    table.splits, table.corpus, table.begin, table.length, table.flags, row_tokens, self._batch,
                    self.corpora, self.edges, self.shards, self.bases, first, pieces, self._seen,
                )  # fmt: skip
                if used != FULL:
                    break
                capacity *= 2
            if used < 0:
                raise self._refused(table, used, known, row_tokens)
            pieces = pieces[:used]
            moved, loose = [], []
            for number in self._seen[:known].tolist():
                before = self._mapped.get(number)
                if before is None and not self._map(number):
                    loose.append(number)
                    continue
                found = self._mapped[number]
                if before is None:
                    moved.append(number)
                else:
                    found.file.check()
                    self._mapped.move_to_end(number)
                found.used = self._batch
                kept.append(found.file)
            if moved:
                p = np.flatnonzero(np.isin(pieces[:, SHARD], moved))
                s = pieces[p, SHARD]
                pieces[p, ADDRESS] = self.bases[s] + pieces[p, LOW] * self.shards[s, WIDTH]
        if loose:
            for k in np.flatnonzero(np.isin(pieces[:, SHARD], loose)).tolist():
                shard, low, tokens = pieces[k, :ADDRESS].tolist()
                ids = self.read(shard, low, low + tokens)
                kept.append(ids)
                pieces[k, ADDRESS], pieces[k, PIECE_KIND] = ids.ctypes.data, WIDE
        return first, pieces, kept

    def _refused(self, table: SpanTable, why: int, row: int, row_tokens: int) -> OrderError:
        if why == LONG:
            found = int(table.sample_tokens()[row])
            return OrderError(
                "PCK001", f"sample {row} of the table", expected=f"at most {row_tokens} tokens", found=found
            )
        table.check([corpus.tokens for corpus in self._corpora])
        return OrderError("ORD004", f"sample {row} of the table")

    def read(self, shard: int, low: int, high: int) -> I64:
        """Return the ids [low, high) of a shard as int64, through its reader."""
        corpus, number = self.owner(shard)
        ids = corpus.shard(number).read(low, high)
        wide = np.ascontiguousarray(ids, dtype=np.int64)
        if ids.dtype.kind == "u" and ids.dtype.itemsize == wide.itemsize and bool((wide < 0).any()):
            k = int((wide < 0).argmax())
            raise TokenError(
                "TOK041", path=corpus.path, shard=str(number), expected="ids below 2**63", found=int(ids[k])
            )
        return wide

    def _map(self, number: int) -> bool:
        """Map a shard; False where that cannot be, or not now."""
        if number in self._never:
            return False
        if len(self._mapped) >= self._limit and not self._give_way():
            return False
        corpus, local = self.owner(number)
        shard = corpus.shard(local)
        place = _end_to_end(shard) if shard.dtype == corpus.dtype and shard.dtype in KINDS else None
        reader = corpus.store.reader(place[0]) if place is not None else None
        file = reader.mapped() if reader is not None and hasattr(reader, "mapped") else None
        if file is None or place is None:
            self._never.add(number)
            return False
        if len(file.data) < place[1] + shard.tokens * shard.dtype.itemsize:
            raise StorageError(
                "STO004",
                path=place[0],
                shard=shard.name,
                expected=f"{place[1] + shard.tokens * shard.dtype.itemsize} bytes",
                found=f"{len(file.data)} bytes",
            )
        # The shard's own reader knows whether this is the file that it opened.
        shard.read(0, 1)
        self._mapped[number] = _Mapped(file, self._batch)
        self.bases[number] = file.data.ctypes.data + place[1]
        self._remember()
        return True

    def _give_way(self) -> bool:
        """Drop the shard that was not used for longest; False where all were used lately."""
        if not self._mapped:
            return False
        number, oldest = next(iter(self._mapped.items()))
        if self._batch - oldest.used <= STALE:
            return False
        self._drop(number)
        return True

    def _drop(self, number: int) -> None:
        del self._mapped[number]
        self.bases[number] = 0
        self._remember()

    def _remember(self) -> None:
        few = len(self._mapped) <= FEW
        self.quick = (self.bases.copy(), tuple(one.file for one in self._mapped.values())) if few else None

    def close(self) -> None:
        """Give all maps back; a batch being read keeps its own."""
        with self._lock:
            for number in list(self._mapped):
                self._drop(number)


def _end_to_end(shard: Shard) -> tuple[str, int] | None:
    """Return file and offset of a shard's first id, or None unless all its ids follow one another there."""
    if shard.tokens == 0 or not shard.contiguous:
        return None
    path, begin = shard.byte_at(0)
    last = begin + (shard.tokens - 1) * shard.dtype.itemsize
    return (path, begin) if shard.byte_at(shard.tokens - 1) == (path, last) else None
