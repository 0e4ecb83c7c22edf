"""`llmc-stream@1`: the order of llm.c's training loader (``llmc/dataloader.h``), over shards whose sizes are given.

A shard's global blocks are ``world*B*T`` tokens; block b of rank r is B rows from ``b*world*B*T + r*B*T``. What is left
behind a shard's last whole block is never read. Without shuffling, shards and blocks follow each other and every rank is
at the same block. With it every rank walks the shards, and the blocks of each, in an order of its own: rank r shuffles with
an MT19937 seeded 42 + r, the shards at the start of every epoch (the last epoch's order is shuffled on), then the blocks
of a shard when it is opened. A rank reads only its own part of any block, so no two read the same row.

llm.c saves the shard and block of a stopped run but not its generator: a shuffled run resumed there goes on in another
order. This is the order without interruption.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.streams_rows import RowsOrder, check_shards, hits_of, rows_of_runs, shard_begins
from tokenreel.order.streams_words import llmc_shuffle

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.order.protocol import Hits
    from tokenreel.spans import CorpusKey, DocTable

    I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LlmcStream(RowsOrder):
    """llm.c's loader for `world` processes of `batch` rows; endless unless `steps` is given.

    `shard_tokens` are the token counts of the files, sorted by name as its glob lists them. Raises `OrderError`: ORD002 for
    parameters out of range, ORD120 for a shard without one block (llm.c aborts).

    >>> from tokenreel.spans import CorpusKey
    >>> order = LlmcStream(CorpusKey("files", "00", 1, 30), row_tokens=2, batch=2, shard_tokens=(17, 13))
    >>> order.epoch_samples, order.dropped
    (14, 0)
    >>> order.spans(6, 10).begin.tolist()
    [12, 14, 17, 19]
    """

    key: CorpusKey
    row_tokens: int
    batch: int
    shard_tokens: tuple[int, ...]
    world: int = 1
    shuffle: bool = False
    seed: int = 42
    steps: int | None = None
    table: DocTable | None = field(default=None, repr=False, compare=False)
    """Needed by `locate` only."""

    name: ClassVar[str] = "llmc-stream@1"

    def __post_init__(self) -> None:
        self._check_shape()
        check_shards(self.key, self.shard_tokens)
        if not (self.seed >= 0 and self.seed + self.world <= 1 << 32):
            raise OrderError("ORD002", "seed", expected="0 .. 2**32 - world", found=self.seed)
        least = self.step_samples * self.row_tokens + 1
        if min(self.shard_tokens) < least:
            shard = int(np.argmin(self.shard_tokens))
            raise OrderError(
                "ORD120", shard=str(shard), expected=f"{least} tokens or more", found=self.shard_tokens[shard]
            )

    @property
    def locate_cost(self) -> Literal["closed", "index", "scan"]:
        """A shuffled run inverts each rank's permutation of the shard that holds a document."""
        return "index" if self.shuffle else "closed"

    @property
    def blocks(self) -> tuple[int, ...]:
        """Global blocks of each shard: steps spent in it."""
        size = self.step_samples * self.row_tokens
        return tuple((tokens - 1) // size for tokens in self.shard_tokens)

    @property
    def epoch_samples(self) -> int:
        """Samples of one pass over the shards."""
        return sum(self.blocks) * self.step_samples

    @property
    def dropped(self) -> int:
        """Tokens of an epoch that are no input and no shard's last look-ahead."""
        return self.key.tokens - self.epoch_samples * self.row_tokens - len(self.shard_tokens)

    def parameters(self) -> dict[str, object]:
        """Return what decides the samples; the seed only where it is used."""
        return {
            "batch": self.batch,
            "row_tokens": self.row_tokens,
            "shard_tokens": list(self.shard_tokens),
            "shuffle_seed": self.seed if self.shuffle else None,
            "world": self.world,
        }

    def begins_at(self, samples: I64) -> I64:
        """Return the first token of each sample. Cost: 30 ns each; shuffled, one permutation per rank and shard besides."""
        blocks = np.array(self.blocks, dtype=np.int64)
        step, within = samples // self.step_samples, samples % self.step_samples
        epoch, at = step // int(blocks.sum()), step % int(blocks.sum())
        shard, block = np.empty_like(at), np.empty_like(at)
        if not self.shuffle:
            ends = np.cumsum(blocks)
            shard = np.searchsorted(ends, at, side="right")
            block = at - (ends - blocks)[shard]
        else:
            rank = within // self.batch
            for one_rank, one_epoch in np.unique(np.stack((rank, epoch)), axis=1).T.tolist():
                mine = np.flatnonzero((rank == one_rank) & (epoch == one_epoch))
                order = np.array(shard_order(self.seed + one_rank, self.blocks, one_epoch), dtype=np.int64)
                ends = np.cumsum(blocks[order])
                place = np.searchsorted(ends, at[mine], side="right")
                for one_place in np.unique(place).tolist():
                    these = mine[place == one_place]
                    walk = block_order(self.seed + one_rank, self.blocks, one_epoch, one_place)
                    shard[these] = order[one_place]
                    block[these] = walk[at[these] - (ends[one_place] - len(walk))]
        return shard_begins(self.shard_tokens)[shard] + (block * self.step_samples + within) * self.row_tokens

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), by document as asked, then by sample."""
        docs, begin, end = self._runs(corpus, documents, lo, hi)
        blocks = np.array(self.blocks, dtype=np.int64)
        run, shard, row = rows_of_runs(begin, end, self.shard_tokens, blocks * self.step_samples, self.row_tokens)
        block, within = row // self.step_samples, row % self.step_samples
        row_begin = shard_begins(self.shard_tokens)[shard] + row * self.row_tokens
        runs, samples, begins = [run[:0]], [run[:0]], [run[:0]]
        for epoch in range(lo // self.epoch_samples, -(-hi // self.epoch_samples)) if len(run) else ():
            step = self._steps_of(epoch, shard, block, within // self.batch)
            sample = (epoch * int(blocks.sum()) + step) * self.step_samples + within
            kept = (sample >= lo) & (sample < hi)
            runs.append(run[kept])
            samples.append(sample[kept])
            begins.append(row_begin[kept])
        columns = [np.concatenate(parts) for parts in (runs, samples, begins)]
        return hits_of(docs, begin, end, columns, self.row_tokens)

    def _steps_of(self, epoch: int, shard: I64, block: I64, rank: I64) -> I64:
        blocks = np.array(self.blocks, dtype=np.int64)
        if not self.shuffle:
            return (np.cumsum(blocks) - blocks)[shard] + block
        step = np.empty_like(block)
        for one_rank, one_shard in np.unique(np.stack((rank, shard)), axis=1).T.tolist():
            mine = (rank == one_rank) & (shard == one_shard)
            order = shard_order(self.seed + one_rank, self.blocks, epoch)
            place = order.index(one_shard)
            walk = block_order(self.seed + one_rank, self.blocks, epoch, place)
            step[mine] = int(blocks[list(order[:place])].sum()) + np.argsort(walk)[block[mine]]
        return step


def _epoch_words(blocks: tuple[int, ...]) -> int:
    return len(blocks) - 1 + sum(max(0, n - 1) for n in blocks)


@lru_cache(maxsize=4096)
def shard_order(seed: int, blocks: tuple[int, ...], epoch: int) -> tuple[int, ...]:
    """Return the shards as one rank opens them in `epoch`: the last epoch's order, shuffled on."""
    order = list(range(len(blocks)))
    for number in range(epoch + 1):
        llmc_shuffle(order, seed, number * _epoch_words(blocks))
    return tuple(order)


@lru_cache(maxsize=4096)
def block_order(seed: int, blocks: tuple[int, ...], epoch: int, place: int) -> I64:
    """Return the blocks of the shard opened at `place` of `epoch`, as one rank reads them."""
    order = shard_order(seed, blocks, epoch)
    first = epoch * _epoch_words(blocks) + len(blocks) - 1 + sum(max(0, blocks[s] - 1) for s in order[:place])
    walk = list(range(blocks[order[place]]))
    llmc_shuffle(walk, seed, first)
    made = np.array(walk, dtype=np.int64)
    made.flags.writeable = False
    return made
