"""Levanter's MixtureDataset: which sequence of which component stands at each place of the mixture, and the inverse.

The mixture goes in blocks of `block` sequences. A stage fixes how many of each component a block holds; block b, counted
over the whole mixture, is one permutation under ``fold_in(key, b)``. Inside a block a component's sequences come in an
order of their own: the number of one is its rank in the unpermuted block, behind all that earlier blocks took. Components
that run out start again at their first sequence, unless the mixture stops there. All counts are 64-bit: Levanter's own are
32-bit in places, and agree below 2**31 sequences of a component.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.levanter_counts import DEFAULT_BLOCK, LARGEST_BLOCK, RoundedShare, counts_of, normalised
from tokenreel.order.levanter_keys import LevanterReplay
from tokenreel.order.levanter_places import BlockCache, find_in_block, lay_out_block, read_block, tally
from tokenreel.order.threefry import Key, fold_in, fold_in_array
from tokenreel.order.threefry_permutation import item_at, permutations, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    I32 = npt.NDArray[np.int32]
    I64 = npt.NDArray[np.int64]

Stop = Literal["restart", "first_exhausted", "all_exhausted"]
STOPS = ("restart", "first_exhausted", "all_exhausted")
FARTHEST = 1 << 62
FEW = 3
"""Places of a block that are selected one by one before the block is sorted."""
MOST_COMPONENTS = 32767


@dataclass(frozen=True, slots=True)
class LevanterMixture:
    """Components of given lengths (None: endless) mixed by stages. `of` takes names and weights as Levanter does.

    Raises `OrderError`: ORD111 for weights, ORD113 for stages that do not begin at 0 and rise by whole blocks, ORD131 where
    two Pythons count differently and none is named, ORD002 for other parameters.
    Cost: to make, 1 us a component and stage; a place, 5 ns in a block met before; a block, 1 ms at 49,152, of which a
    few places alone take a third.

    >>> made = LevanterMixture.of({"a": 100, "b": 37, "c": 5}, {"a": 0.5, "b": 0.3, "c": 0.2}, block=16, key=(0, 42))
    >>> made.counts.tolist(), made.length
    ([[9, 4, 3]], None)
    >>> component, sequence = made.places_at(range(5))
    >>> component.tolist(), sequence.tolist()
    ([0, 0, 1, 1, 0], [1, 3, 0, 2, 5])
    >>> [made.samples_of(c, [s]).tolist() for c, s in zip(component.tolist(), sequence.tolist())]
    [[0], [1], [2], [3], [4]]
    """

    names: tuple[str, ...]
    """Components that have a weight in some stage, in the order of the configuration."""
    lengths: tuple[int | None, ...]
    starts: tuple[int, ...]
    """First place of each stage."""
    shares: tuple[tuple[float, ...], ...]
    """Normalised weights of each stage."""
    stage_counts: tuple[tuple[int, ...], ...]
    """Sequences of each component in a block of each stage."""
    block: int
    key: Key
    stop: Stop = "restart"
    randomized: bool = True
    partitionable: bool = True
    counts: I64 = field(init=False, repr=False, compare=False)
    """``[stage, component]``."""
    base: I64 = field(init=False, repr=False, compare=False)
    """``[stage, component]``: sequences of each component before the stage."""
    length: int | None = field(init=False, compare=False)
    """Places; None is endless."""
    _sizes: I64 = field(init=False, repr=False, compare=False)
    _unpermuted: tuple[I32, ...] = field(init=False, repr=False, compare=False)
    _cache: BlockCache = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_parameters()
        counts = np.array(self.stage_counts, dtype=np.int64).reshape(len(self.starts), len(self.names))
        base = np.zeros_like(counts)
        firsts = [start // self.block for start in self.starts]
        for s in range(1, len(firsts)):
            base[s] = base[s - 1] + counts[s - 1] * (firsts[s] - firsts[s - 1])
        put = object.__setattr__
        put(self, "counts", counts)
        put(self, "base", base)
        put(self, "_sizes", np.array([-1 if n is None else n for n in self.lengths], dtype=np.int64))
        put(self, "_unpermuted", tuple(_unpermuted(row) for row in counts))
        put(self, "_cache", BlockCache(self.block))
        put(self, "length", self._length())

    @classmethod
    def of(
        cls,
        components: Mapping[str, int | None],
        weights: Mapping[str, float] | Sequence[tuple[int, Mapping[str, float]]],
        *,
        block: int = DEFAULT_BLOCK,
        key: Key = (0, 0),
        stop: Stop = "restart",
        randomized: bool = True,
        replay: LevanterReplay | None = None,
    ) -> LevanterMixture:
        """Make a mixture of components (name -> length) by weights, or by stages of (first place, weights)."""
        said = replay or LevanterReplay()
        said.check()
        stages = [(0, weights)] if not isinstance(weights, (list, tuple)) else [(int(s), w) for s, w in weights]
        _check_block(block)
        made = [_staged(components, stages, block, way) for way in said.sums()]
        if len(made) == 2 and made[0][2] != made[1][2]:
            stage = next(s for s, (a, b) in enumerate(zip(made[0][2], made[1][2], strict=True)) if a != b)
            raise OrderError("ORD131", expected="python_sum plain or compensated", found=f"the counts of stage {stage}")
        names, shares, counts = made[0]
        lengths = tuple(components[name] for name in names)
        starts = tuple(start for start, _ in stages)
        return cls(names, lengths, starts, shares, counts, block, key, stop, randomized, said.threefry_partitionable)

    def _check_parameters(self) -> None:
        _check_block(self.block)
        if self.stop not in STOPS:
            raise OrderError("ORD002", "stop", expected=" | ".join(STOPS), found=self.stop)
        if len(self.names) > MOST_COMPONENTS:
            raise OrderError("ORD002", "components", expected=f"at most {MOST_COMPONENTS}", found=len(self.names))
        for s, start in enumerate(self.starts):
            least = self.starts[s - 1] + 1 if s else 0
            if start % self.block or start < least or (s == 0 and start) or start >= FARTHEST:
                expected = "0" if s == 0 else f"a multiple of the block of {self.block:,}, {least:,} or more"
                raise OrderError("ORD113", f"stage {s} begins", expected=expected, found=start)
        for name, length in zip(self.names, self.lengths, strict=True):
            if length is not None and length < 1:
                raise OrderError("ORD100", f"component {name}", expected="a sequence", found=length)

    # -- what a stage is -----------------------------------------------------------------------------------------------

    def rounded(self, stage: int) -> tuple[RoundedShare, ...]:
        """Return every component of a stage as asked for and as realised."""
        each = zip(self.names, self.shares[stage], self.stage_counts[stage], strict=True)
        return tuple(RoundedShare(name, share, count, self.block) for name, share, count in each)

    def stage_at(self, sample: int) -> int:
        """Return the stage of a place."""
        return int(np.searchsorted(np.array(self.starts), sample, side="right")) - 1

    def ids_of(self, number: int) -> I32:
        """Return a block's packed ids, component << 16 | rank, in permuted order; read-only."""
        found = self._ids(number).view()
        found.flags.writeable = False
        return found

    def _ids(self, number: int) -> I32:
        """Return a block's packed ids, kept for the next use."""
        found = self._cache.get(number)
        if found is None:
            plain = self._unpermuted[self.stage_at(number * self.block)]
            found = plain
            if self.randomized:
                keys = fold_in_array(self.key, np.array([number]))
                found = permutations(keys, plain, self.partitionable)[0]
            self._cache.put(number, found)
        return found

    # -- forward -------------------------------------------------------------------------------------------------------

    def places_at(self, samples: npt.ArrayLike) -> tuple[I32, I64]:
        """Return each place's component and which of its sequences it is, from the first again where it ran out."""
        return self._read(samples, self.stop != "first_exhausted")

    def numbers_at(self, samples: npt.ArrayLike) -> tuple[I32, I64]:
        """Return each place's component and its number there, counted on over all passes."""
        return self._read(samples, False)

    def _read(self, samples: npt.ArrayLike, wrap: bool) -> tuple[I32, I64]:
        asked = np.ascontiguousarray(samples, dtype=np.int64)
        flat = asked.reshape(-1)
        component, number = np.empty(len(flat), dtype=np.int32), np.empty(len(flat), dtype=np.int64)
        if len(flat):
            first, last = int(flat.min()), int(flat.max())
            self.check_range(first, last + 1)
            if first // self.block == last // self.block:
                self._read_block(first // self.block, flat, wrap, component, number)
            else:
                self._read_blocks(flat, wrap, component, number)
        return component.reshape(asked.shape), number.reshape(asked.shape)

    def _read_blocks(self, flat: I64, wrap: bool, component: I32, number: I64) -> None:
        blocks = flat // self.block
        sort = None if bool((blocks[1:] >= blocks[:-1]).all()) else np.argsort(blocks, kind="stable")
        if sort is not None:
            flat, blocks = flat[sort], blocks[sort]
        into = (component, number) if sort is None else (np.empty_like(component), np.empty_like(number))
        edges = np.flatnonzero(np.diff(blocks, prepend=-1, append=-1)).tolist()
        for low, high in pairwise(edges):
            self._read_block(int(blocks[low]), flat[low:high], wrap, into[0][low:high], into[1][low:high])
        if sort is not None:
            component[sort], number[sort] = into

    def _read_block(self, block: int, flat: I64, wrap: bool, component: I32, number: I64) -> None:
        stage, first = self.stage_at(block * self.block), block * self.block
        turn = block - self.starts[stage] // self.block
        ids = self._cache.get(block)
        if ids is None and len(flat) <= FEW and self.randomized and not self._cache.met_before(block):
            key, plain = fold_in(self.key, block), self._unpermuted[stage]
            places = [item_at(key, self.block, at - first, self.partitionable) for at in flat.tolist()]
            ids, flat, first = plain[places], np.arange(len(places), dtype=np.int64), 0
        elif ids is None:
            ids = self._ids(block)
        read_block(ids, flat, first, self.counts[stage], self.base[stage], turn, self._sizes, wrap, component, number)

    # -- inverse -------------------------------------------------------------------------------------------------------

    def samples_of(self, component: int, numbers: npt.ArrayLike) -> I64:
        """Return the place of each of a component's numbers, counted on over all passes; -1 for never.

        Cost: one count over a block for each number alone in its block, one sort for several.
        """
        asked = np.asarray(numbers, dtype=np.int64).reshape(-1)
        out = np.full(len(asked), -1, dtype=np.int64)
        stages = np.searchsorted(self.base[:, component], asked, side="right") - 1
        per_block = self.counts[stages, component]
        sought = np.flatnonzero((per_block > 0) & (asked >= 0))
        within = asked[sought] - self.base[stages[sought], component]
        begins = np.array(self.starts, dtype=np.int64)[stages[sought]] // self.block
        blocks = begins + within // per_block[sought]
        ranks = within % per_block[sought]
        sort = np.argsort(blocks, kind="stable")
        edges = np.flatnonzero(np.diff(blocks[sort], prepend=-1, append=-1)).tolist()
        for low, high in pairwise(edges):
            mine = sort[low:high]
            block = int(blocks[mine[0]])
            if (block + 1) * self.block < FARTHEST:
                out[sought[mine]] = block * self.block + self._find(block, component, ranks[mine])
        return out

    def _find(self, block: int, component: int, ranks: I64) -> I64:
        """Return the positions in a block of ranks of a component."""
        held = self.counts[self.stage_at(block * self.block)]
        starts = np.concatenate(([0], np.cumsum(held)[:-1]))
        if not self.randomized:
            return np.asarray(starts[component] + ranks, dtype=np.int64)
        if self._cache.get(block) is None and len(ranks) <= FEW:
            key = fold_in(self.key, block)
            found = [
                place_of(key, self.block, int(starts[component]) + rank, self.partitionable) for rank in ranks.tolist()
            ]
            return np.array(found, dtype=np.int64)
        out = np.empty(len(ranks), dtype=np.int64)
        same = np.full(len(ranks), component, dtype=np.int64)
        find_in_block(self._ids(block), starts, same, np.ascontiguousarray(ranks), out)
        return out

    # -- counts --------------------------------------------------------------------------------------------------------

    def counts_before(self, block: int) -> I64:
        """Return how many sequences of each component all blocks before one hold."""
        stage = self.stage_at(block * self.block)
        before: I64 = self.base[stage] + (block - self.starts[stage] // self.block) * self.counts[stage]
        return before

    def cursors_at(self, samples: npt.ArrayLike) -> I64:
        """Return ``[n, component]``: sequences of each component before each place."""
        asked = np.asarray(samples, dtype=np.int64).reshape(-1)
        out = np.empty((len(asked), len(self.names)), dtype=np.int64)
        for row, sample in enumerate(asked.tolist()):
            block, at = divmod(sample, self.block)
            out[row] = self.counts_before(block)
            if at:
                tally(self._ids(block), at, out[row])
        return out

    # -- ends ----------------------------------------------------------------------------------------------------------

    def exhausted_at(self, component: int) -> int | None:
        """Return the place at which a component has given all its sequences; None for never."""
        target = self.lengths[component]
        if target is None:
            return None
        stages = range(len(self.starts))
        ends = [int(self.base[s + 1, component]) if s + 1 < len(self.starts) else None for s in stages]
        stage = next((s for s in stages if ends[s] is None or target <= ends[s]), 0)  # type: ignore[operator]
        per_block = int(self.counts[stage, component])
        if per_block == 0:
            return None
        turn, occurrence = divmod(target - int(self.base[stage, component]) - 1, per_block)
        block = self.starts[stage] // self.block + turn
        if (block + 1) * self.block >= FARTHEST:
            return None
        return block * self.block + int(np.flatnonzero(self.ids_of(block) >> 16 == component)[occurrence])

    def _length(self) -> int | None:
        if self.stop == "restart":
            return None
        ends = [self.exhausted_at(c) for c in range(len(self.names))]
        reached = [end for end in ends if end is not None]
        if self.stop == "all_exhausted":
            return None if len(reached) < len(ends) else 1 + max(reached)
        return 1 + min(reached) if reached else None

    def overruns(self) -> tuple[tuple[int, int, int], ...]:
        """Return (place, component, number) where a mixture that stops at the first end asks past a component's end.

        Ranks, not positions, choose sequences: in its last block a component may be asked for one beyond its last before
        all of them came. Levanter raises an IndexError there.
        """
        if self.stop != "first_exhausted" or self.length is None:
            return ()
        first = (self.length - 1) // self.block * self.block
        component, number = self.numbers_at(np.arange(first, self.length))
        sizes = self._sizes[component]
        past = np.flatnonzero((sizes >= 0) & (number >= sizes))
        return tuple((first + k, int(component[k]), int(number[k])) for k in past.tolist())

    def check_range(self, i: int, j: int) -> None:
        """Raise `OrderError` (ORD001) unless [i, j) lies in the mixture."""
        limit = FARTHEST if self.length is None else self.length
        if not 0 <= i <= j <= limit:
            raise OrderError("ORD001", expected=f"0 <= i <= j <= {limit}", found=f"[{i}, {j})")


def _check_block(block: int) -> None:
    if not 1 <= block <= LARGEST_BLOCK:
        raise OrderError("ORD002", "block", expected=f"1 .. {LARGEST_BLOCK}", found=block)


def _staged(components: Mapping[str, Any], stages: Sequence[tuple[int, Any]], block: int, way: Any) -> Any:
    """Return (names, shares, counts) of the components that have a weight in some stage."""
    shares = [normalised(weights, way) for _, weights in stages]
    for number, made in enumerate(shares):
        unknown = next((name for name in stages[number][1] if name not in components), None)
        if unknown is not None:
            raise OrderError("ORD111", f"stage {number}", expected="weights of components", found=unknown)
        if not made:
            raise OrderError("ORD111", f"stage {number}", expected="a weight above 0", found="none")
    names = tuple(name for name in components if any(name in made for made in shares))
    rows = tuple(tuple(made.get(name, 0.0) for name in names) for made in shares)
    return names, rows, tuple(tuple(counts_of(row, block).tolist()) for row in rows)


def _unpermuted(counts: I64) -> I32:
    """Return a block before it is permuted: every component's ranks, component by component."""
    out = np.empty(int(counts.sum()), dtype=np.int32)
    lay_out_block(np.ascontiguousarray(counts), out)
    return out
