"""Which samples of a global batch each data-parallel rank takes.

``contiguous``: parts of neighbours, the first ranks one more where they do not divide. ``strided``: every world-th.
``megatron``: blocks of ``micro_batch * world`` samples, of which each rank takes a micro-batch, as Megatron's default
sampler deals them. Or a function of one's own, `(samples of the step, rank, world) -> samples`, which is checked: over all
ranks every sample once. Where a short last batch has fewer samples than ranks, some ranks take none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokenreel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    Deal = Callable[[I64, int, int], npt.ArrayLike]

NAMES = ("contiguous", "strided", "megatron")
PlacementName = Literal["contiguous", "strided", "megatron"]


def check_rank(rank: int, world: int) -> None:
    """Raise `UsageError` (STA010) unless `rank` is one of `world` ranks."""
    if type(world) is not int or world < 1:
        raise UsageError("STA010", "world", expected="1 or more", found=world)
    if type(rank) is not int or not 0 <= rank < world:
        raise UsageError("STA010", "rank", expected=f"0 .. {world - 1}", found=rank)


@dataclass(frozen=True, slots=True)
class Placement:
    """A way to deal a global batch out; made by `placement`."""

    name: str
    micro_batch: int | None = None
    """megatron: samples a micro-batch; None takes a rank's whole part as one."""
    deal: Deal | None = None
    """A function of one's own."""
    _seen: dict[tuple[int, int, int], I64] = field(default_factory=dict, repr=False, compare=False)

    def check(self, count: int, world: int) -> None:
        """Raise `UsageError` unless full batches of `count` can be dealt: STA011 too few, STA014 no whole micro-batches."""
        if count < world:
            raise UsageError("STA011", expected=f"a batch of {world} samples or more", found=count)
        if self.name != "megatron":
            return
        block = (self.micro_batch or 1) * world
        if count % block:
            raise UsageError("STA014", self.name, expected=f"batches of a multiple of {block} samples", found=count)

    def of(self, begin: int, count: int, rank: int, world: int) -> I64:
        """Return the samples of [begin, begin + count) that `rank` takes, in the order of its rows."""
        if self.deal is not None:
            return self._dealt(self.deal, begin, count, rank, world)
        key = count, rank, world
        found = self._seen.get(key)
        if found is None:
            if len(self._seen) > 64:
                self._seen.clear()
            found = self._seen[key] = self._offsets(count, rank, world)
        return begin + found

    def _offsets(self, count: int, rank: int, world: int) -> I64:
        every = np.arange(count, dtype=np.int64)
        if self.name == "strided":
            return every[rank::world]
        if self.name == "megatron" and self.micro_batch is not None:
            return np.flatnonzero(every // self.micro_batch % world == rank)
        share, more = divmod(count, world)
        low = rank * share + min(rank, more)
        return every[low : low + share + (rank < more)]

    def _dealt(self, deal: Deal, begin: int, count: int, rank: int, world: int) -> I64:
        whole = np.arange(begin, begin + count, dtype=np.int64)
        mine = _ids(deal(whole.copy(), rank, world))
        if (count, world, 0) not in self._seen:
            every = np.sort(np.concatenate([_ids(deal(whole.copy(), r, world)) for r in range(world)]))
            if not np.array_equal(every, whole):
                found = f"{len(every)} samples, {len(np.intersect1d(every, whole))} of the step's {count}"
                raise UsageError("STA014", f"over {world} ranks", expected="every sample once", found=found)
            self._seen[count, world, 0] = whole
        outside = len(mine) and not begin <= int(mine.min()) <= int(mine.max()) < begin + count
        if outside or len(np.unique(mine)) < len(mine):
            expected = f"samples of {begin} .. {begin + count - 1}, each once"
            raise UsageError("STA014", f"rank {rank}", expected=expected, found=mine[:8].tolist())
        return mine


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's share of global batches."""

    rank: int
    world: int
    placement: Placement

    def __post_init__(self) -> None:
        check_rank(self.rank, self.world)

    def of(self, begin: int, count: int) -> I64:
        """Return the samples of [begin, begin + count) that are this rank's."""
        return self.placement.of(begin, count, self.rank, self.world)

    def check(self, count: int) -> None:
        """Raise `UsageError` (STA011, STA014) unless full batches of `count` samples can be dealt."""
        self.placement.check(count, self.world)


def _ids(given: npt.ArrayLike) -> I64:
    ids = np.asarray(given)
    if ids.size == 0:
        return np.empty(0, dtype=np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        expected = "a one-dimensional array of integers"
        raise UsageError("STA014", expected=expected, found=f"{ids.dtype} of shape {ids.shape}")
    return ids.astype(np.int64)


def placement(said: str | Placement | Deal, micro_batch: int | None = None) -> Placement:
    """Return a placement by its name, or around a function; raises `UsageError` (STA014).

    >>> [placement("megatron", 2).of(8, 8, rank, 2).tolist() for rank in (0, 1)]
    [[8, 9, 12, 13], [10, 11, 14, 15]]
    """
    if isinstance(said, Placement):
        return said
    if callable(said):
        return Placement(getattr(said, "__name__", "function"), None, said)
    if said not in NAMES:
        raise UsageError("STA014", expected=f"{', '.join(NAMES)}, or a function", found=str(said))
    if micro_batch is not None and (said != "megatron" or type(micro_batch) is not int or micro_batch < 1):
        raise UsageError(
            "STA014", "micro_batch", expected="1 or more, with megatron", found=f"{micro_batch} with {said}"
        )
    return Placement(said, micro_batch)
