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

from tokenreel.errors import StorageError, TokenError
from tokenreel.feed.gather_stored import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats import Shard

    I64 = npt.NDArray[np.int64]

MAPS = 64
"""Shards mapped at once, where the store's pool says no number of its own."""
STALE = 64
"""Batches after which a shard that was not used gives way to another."""
WIDE = KINDS.index(np.dtype(np.int64))


@dataclass(slots=True)
class _Mapped:
    """One shard's file in memory."""

    file: Any
    address: int
    """Of the shard's first id."""
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
        self.edges = np.concatenate([np.concatenate(([0], np.cumsum(one))) for one in sizes] or [[0]]).astype(np.int64)
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
        self.kinds = np.repeat(np.array(kinds, dtype=np.uint8), shards)
        """Stored type of each shard, as its place in `KINDS`."""
        self._widths = np.repeat(np.array([one.itemsize for one in dtypes], dtype=np.int64), shards)
        self._base = np.zeros(int(self.first_shard[-1]), dtype=np.int64)
        pools = {getattr(getattr(corpus.store, "pool", None), "limit", MAPS) for corpus in self._corpora}
        self._limit = limit if limit is not None else min(pools, default=MAPS)

    @property
    def shards(self) -> int:
        """Number of shards of all corpora."""
        return len(self._base)

    @property
    def maps(self) -> int:
        """Number of shards mapped now."""
        return len(self._mapped)

    def owner(self, shard: int) -> tuple[Corpus, int]:
        """Return the corpus of a shard, and the shard's number there."""
        c = int(np.searchsorted(self.first_shard, shard, side="right")) - 1
        return self._corpora[c], shard - int(self.first_shard[c])

    def addresses(
        self, touched: npt.NDArray[np.uint8], shard: npt.NDArray[np.int32], low: I64, tokens: I64
    ) -> tuple[I64, npt.NDArray[np.uint8], list[Any]]:
        """Return the address and the stored type of each piece, and what has to be kept until they were read.

        Raises `StorageError` (STO004) for a file that changed size since it was opened, and what opening a shard raises.
        Cost: one `fstat` for each shard touched.
        """
        kept: list[Any] = []
        with self._lock:
            self._batch += 1
            loose = [number for number in np.flatnonzero(touched).tolist() if not self._ready(number, kept)]
            address = self._base[shard] + low * self._widths[shard]
        kind = self.kinds[shard]
        if loose:
            for p in np.flatnonzero(np.isin(shard, loose)).tolist():
                ids = self.read(int(shard[p]), int(low[p]), int(low[p] + tokens[p]))
                kept.append(ids)
                address[p], kind[p] = ids.ctypes.data, WIDE
        return address, kind, kept

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

    def _ready(self, number: int, kept: list[Any]) -> bool:
        """See that a shard is mapped and has its size; False where it has to be read."""
        found = self._mapped.get(number)
        if found is None:
            found = None if number in self._never else self._map(number)
            if found is None:
                return False
        else:
            found.file.check()
            self._mapped.move_to_end(number)
        found.used = self._batch
        kept.append(found.file)
        return True

    def _map(self, number: int) -> _Mapped | None:
        if len(self._mapped) >= self._limit and not self._give_way():
            return None
        corpus, local = self.owner(number)
        shard = corpus.shard(local)
        place = _end_to_end(shard) if shard.dtype == corpus.dtype and shard.dtype in KINDS else None
        reader = corpus.store.reader(place[0]) if place is not None else None
        file = reader.mapped() if reader is not None and hasattr(reader, "mapped") else None
        if file is None or place is None:
            self._never.add(number)
            return None
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
        found = self._mapped[number] = _Mapped(file, file.data.ctypes.data + place[1], self._batch)
        self._base[number] = found.address
        return found

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
        self._base[number] = 0

    def close(self) -> None:
        """Give all maps back; a batch being read keeps its own."""
        with self._lock:
            for number in list(self._mapped):
                self._drop(number)


def _end_to_end(shard: Shard) -> tuple[str, int] | None:
    """Return file and offset of a shard's first id, or None unless all its ids follow one another there."""
    if shard.tokens == 0:
        return None
    path, begin = shard.byte_at(0)
    last = begin + (shard.tokens - 1) * shard.dtype.itemsize
    return (path, begin) if shard.byte_at(shard.tokens - 1) == (path, last) else None
