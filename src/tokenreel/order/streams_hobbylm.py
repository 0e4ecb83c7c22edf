"""`hobbylm-stream@1`: the order of HobbyLM's ``data_generator``, over shards whose names and sizes are given.

In every cycle the shards come sorted, shuffled or stratified; the block of ``B*S`` tokens number i of a shard belongs to
rank ``i % world``, and what is left behind its last whole block is never read. Ranks do not wait for each other: where a
shard's blocks do not divide evenly, some ranks have more of them per cycle and move on later, so the shards read at one
step drift apart. That is the loader's behaviour, and here every step of every rank is computed in closed form.

Sorted is the listing itself; shuffled is Python's ``Random(seed + cycle).shuffle`` of it. Stratified groups the files by
family (the name up to its first ``_``; ``edu_fineweb_train_*`` is "edu"), shuffles each family with one
``Random(seed + cycle)`` and then takes, at each place, the next file of the family that is furthest behind its share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.streams_rows import RowsOrder, check_shards, hits_of, rows_of_runs, shard_begins
from tokenreel.order.streams_words import python_shuffle

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.order.protocol import Hits
    from tokenreel.spans import CorpusKey, DocTable

    I64 = npt.NDArray[np.int64]

Walk = Literal["sorted", "shuffled", "stratified"]
WALKS = ("sorted", "shuffled", "stratified")


def shard_family(name: str) -> str:
    """Return the family of a shard by its file name.

    >>> shard_family("data/edu_fineweb_train_000001.bin"), shard_family("math_000002.bin")
    ('edu', 'math')
    """
    name = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "edu" if name.startswith("edu_fineweb_train_") else name.split("_", 1)[0]


@lru_cache(maxsize=1024)
def cycle_order(names: tuple[str, ...], walk: Walk, seed: int, cycle: int) -> tuple[int, ...]:
    """Return the numbers of the shards named, in the order that `cycle` reads them.

    >>> cycle_order(("a_1", "b_1", "a_2", "a_3"), "stratified", 1337, 0)
    (0, 2, 1, 3)
    """
    listed = list(range(len(names)))
    if walk == "sorted":
        return tuple(listed)
    if walk == "shuffled":
        python_shuffle([listed], seed + cycle)
        return tuple(listed)
    families: dict[str, list[int]] = {}
    for number in listed:
        families.setdefault(shard_family(names[number]), []).append(number)
    members = list(families.values())
    python_shuffle(members, seed + cycle)
    used = [0] * len(members)
    order = []
    for place in range(len(names)):
        # In floating point, the first of equals: as it was computed when those runs were made.
        family = max(
            (f for f in range(len(members)) if used[f] < len(members[f])),
            key=lambda f: (len(members[f]) * (place + 1) / len(names)) - used[f],
        )
        order.append(members[family][used[family]])
        used[family] += 1
    return tuple(order)


@dataclass(frozen=True, slots=True)
class HobbyStream(RowsOrder):
    """HobbyLM's loader for `world` ranks of `batch` rows; endless unless `steps` is given.

    `shard_tokens` and `shard_names` are those of the corpus in its own order; `listing` are the numbers of the shards in
    the order that the loader's patterns list them, all of them by default. Raises `OrderError`: ORD002 for parameters out
    of range, ORD121 where a rank never gets a block (the loader would search for ever).

    >>> from tokenreel.spans import CorpusKey
    >>> order = HobbyStream(CorpusKey("files", "00", 1, 20), 2, 1, (13, 7), ("a_1.bin", "a_2.bin"), world=2)
    >>> order.cycle_steps
    (5, 4)
    >>> order.spans(8, 12).begin.tolist()
    [17, 2, 0, 6]
    """

    key: CorpusKey
    row_tokens: int
    batch: int
    shard_tokens: tuple[int, ...]
    shard_names: tuple[str, ...]
    listing: tuple[int, ...] | None = None
    world: int = 1
    walk: Walk = "sorted"
    seed: int = 1337
    steps: int | None = None
    table: DocTable | None = field(default=None, repr=False, compare=False)
    """Needed by `locate` only."""

    name: ClassVar[str] = "hobbylm-stream@1"

    def __post_init__(self) -> None:
        self._check_shape()
        check_shards(self.key, self.shard_tokens)
        if len(self.shard_names) != len(self.shard_tokens):
            raise OrderError("ORD002", "shard names", expected=len(self.shard_tokens), found=len(self.shard_names))
        if self.walk not in WALKS:
            raise OrderError("ORD002", "walk", expected=" | ".join(WALKS), found=self.walk)
        listed = self.listed
        if len(set(listed)) != len(listed) or not set(listed) <= set(range(len(self.shard_tokens))):
            raise OrderError("ORD002", "listing", expected="numbers of shards, each once", found=list(listed[:10]))
        if not min(self.cycle_steps) > 0:
            rank = self.cycle_steps.index(0)
            raise OrderError(
                "ORD121", f"rank {rank} of {self.world}", expected="a block", found=f"{list(self.blocks)} blocks"
            )

    @property
    def listed(self) -> tuple[int, ...]:
        """The shards read, in listing order."""
        return tuple(range(len(self.shard_tokens))) if self.listing is None else self.listing

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks of each shard of the corpus."""
        return tuple(max(0, (tokens - 1) // (self.batch * self.row_tokens)) for tokens in self.shard_tokens)

    @property
    def cycle_steps(self) -> tuple[int, ...]:
        """Steps that each rank takes for one pass over the shards; ranks drift apart where they differ."""
        blocks = np.array(self.blocks, dtype=np.int64)[list(self.listed)]
        more = np.sort(blocks % self.world)
        extra = len(more) - np.searchsorted(more, np.arange(self.world), side="right")
        return tuple((int((blocks // self.world).sum()) + extra).tolist())

    @property
    def epoch_samples(self) -> int | None:
        """Samples of one pass over the shards; None where ranks differ."""
        steps = self.cycle_steps
        return steps[0] * self.step_samples if min(steps) == max(steps) else None

    def parameters(self) -> dict[str, object]:
        """Return what decides the samples; names and seed only where they are used."""
        listed = self.listed
        families = [shard_family(self.shard_names[s]) for s in listed] if self.walk == "stratified" else None
        return {
            "batch": self.batch,
            "families": families,
            "listing": list(listed),
            "row_tokens": self.row_tokens,
            "seed": None if self.walk == "sorted" else self.seed,
            "shard_tokens": list(self.shard_tokens),
            "walk": self.walk,
            "world": self.world,
        }

    def _shares(self, rank: int) -> I64:
        """Return the blocks of each listed shard that belong to a rank."""
        blocks = np.array(self.blocks, dtype=np.int64)[list(self.listed)]
        return blocks // self.world + (rank < blocks % self.world)

    def _order(self, cycle: int) -> I64:
        names = tuple(self.shard_names[s] for s in self.listed)
        return np.array(cycle_order(names, self.walk, self.seed, cycle), dtype=np.int64)

    def begins_at(self, samples: I64) -> I64:
        """Return the first token of each sample. Cost: 50 ns each, and one shard order per cycle and rank."""
        step, rank = samples // self.step_samples, samples // self.batch % self.world
        steps = np.array(self.cycle_steps, dtype=np.int64)
        cycle, at = step // steps[rank], step % steps[rank]
        begins = np.empty_like(samples)
        shards = np.array(self.listed, dtype=np.int64)
        edges = shard_begins(self.shard_tokens)
        for one_rank, one_cycle in np.unique(np.stack((rank, cycle)), axis=1).T.tolist():
            mine = (rank == one_rank) & (cycle == one_cycle)
            order = self._order(one_cycle)
            shares = self._shares(one_rank)[order]
            ends = np.cumsum(shares)
            place = np.searchsorted(ends, at[mine], side="right")
            block = one_rank + self.world * (at[mine] - (ends - shares)[place])
            begins[mine] = edges[shards[order[place]]] + block * (self.batch * self.row_tokens)
        return begins + samples % self.batch * self.row_tokens

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), by document as asked, then by sample; closed form."""
        docs, begin, end = self._runs(corpus, documents, lo, hi)
        read = np.zeros(len(self.shard_tokens), dtype=np.int64)
        read[list(self.listed)] = np.array(self.blocks, dtype=np.int64)[list(self.listed)] * self.batch
        run, shard, row = rows_of_runs(begin, end, self.shard_tokens, read, self.row_tokens)
        row_begin = shard_begins(self.shard_tokens)[shard] + row * self.row_tokens
        place_of = np.zeros(len(self.shard_tokens), dtype=np.int64)
        place_of[list(self.listed)] = np.arange(len(self.listed))
        block, within = row // self.batch, row % self.batch
        rank = block % self.world
        runs, samples, begins = [run[:0]], [run[:0]], [run[:0]]
        steps = np.array(self.cycle_steps, dtype=np.int64)
        first, last = lo // self.step_samples // int(steps.max()), hi // self.step_samples // int(steps.min())
        for cycle in range(first, last + 1) if len(run) else ():
            order = self._order(cycle)
            for one_rank in np.unique(rank).tolist():
                mine = np.flatnonzero(rank == one_rank)
                shares = self._shares(one_rank)
                before = np.empty_like(shares)
                before[order] = np.cumsum(shares[order]) - shares[order]
                step = cycle * steps[one_rank] + before[place_of[shard[mine]]] + block[mine] // self.world
                sample = (step * self.world + one_rank) * self.batch + within[mine]
                kept = (sample >= lo) & (sample < hi)
                runs.append(run[mine][kept])
                samples.append(sample[kept])
                begins.append(row_begin[mine][kept])
        columns = [np.concatenate(parts) for parts in (runs, samples, begins)]
        return hits_of(docs, begin, end, columns, self.row_tokens)
