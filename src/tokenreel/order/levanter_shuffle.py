"""Levanter's shuffles of a component's sequences: whole, by eras, or by blocks; forward and inverse.

Whole: one permutation of all n. Eras of L: each permuted under ``fold_in(key, era)``. Blocks: the n // io full blocks of io
neighbours are permuted, then the contents of every window of `window` blocks, under a key per window; the n mod io left over
are the last block of the last window and stay behind it, permuted among themselves. A permutation of one item is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.levanter_prp import KINDS, Feistel, Linear, permutation_of
from tokenreel.order.levanter_shuffling import BLOCK, ERA, FULL, NONE, permute_blocks, permute_groups
from tokenreel.order.threefry import Key, fold_in, split_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    U32 = npt.NDArray[np.uint32]

ShuffleKind = Literal["none", "full", "era", "block"]
CODES = {"none": NONE, "full": FULL, "era": ERA, "block": BLOCK}


@dataclass(frozen=True, slots=True, kw_only=True)
class LevanterShuffle:
    """How every component is shuffled: Levanter's `shuffle`. Raises `OrderError` (ORD002) for what it does not know.

    ``True`` is "full", an era length "era", a BlockShuffleConfig "block" (its default: 256 and 512, feistel), ``False``
    "none". Older configurations shuffled linearly.
    """

    kind: ShuffleKind = "block"
    permutation: Literal["feistel", "linear"] = "feistel"
    era_length: int = 0
    io_block: int = 256
    window_blocks: int = 512

    def __post_init__(self) -> None:
        if self.kind not in CODES or self.permutation not in KINDS:
            expected = f"{' | '.join(CODES)} by {' or '.join(KINDS)}"
            raise OrderError("ORD002", "a shuffle", expected=expected, found=f"{self.kind} by {self.permutation}")
        if (self.kind == "era") != (self.era_length > 0):
            raise OrderError("ORD002", "era_length", expected="1 or more, of eras alone", found=self.era_length)
        if min(self.io_block, self.window_blocks) < 1 or self.io_block * self.window_blocks >= 1 << 40:
            expected = "io_block and window_blocks of 1 or more, a window below 2**40 sequences"
            raise OrderError("ORD002", "a shuffle", expected=expected, found=(self.io_block, self.window_blocks))

    def as_dict(self) -> dict[str, object]:
        """Return what decides the order, for fingerprints."""
        sizes: dict[str, dict[str, object]] = {
            "block": {"io_block": self.io_block, "window_blocks": self.window_blocks},
            "era": {"era_length": self.era_length},
        }
        permutation = {} if self.kind == "none" else {"permutation": self.permutation}
        return {"kind": self.kind, **permutation, **sizes.get(self.kind, {})}


NO_SHUFFLE = LevanterShuffle(kind="none")


@dataclass(frozen=True, slots=True, eq=False)
class Shuffles:
    """The shuffles of several components made ready: which sequence stands at each place of each. Feistel is compiled.

    Cost: about 30 ns a place where neighbours come together, 0.5 us where every one is of another window.
    """

    lengths: I64
    """Sequences of each component; -1 is endless, for eras and none."""
    shuffle: LevanterShuffle
    partitionable: bool
    numpy_major: int | None
    table: U32
    """``[component, 3, 2]``: the keys of blocks, windows and tail; or of the component, in the first."""

    @classmethod
    def of(
        cls,
        lengths: Sequence[int | None],
        keys: Sequence[Key],
        shuffle: LevanterShuffle,
        *,
        partitionable: bool = True,
        numpy_major: int | None = None,
    ) -> Shuffles:
        """Make shuffles ready; one key a component, or none where nothing is shuffled.

        Raises `OrderError` (ORD002) for an endless component whose shuffle needs its length. Cost: 0.1 us a component.

        >>> made = Shuffles.of([10], [(0, 0)], LevanterShuffle(io_block=2, window_blocks=2))
        >>> made.sequences_at(0, range(10)).tolist()
        [3, 1, 0, 2, 9, 5, 4, 8, 7, 6]
        """
        if None in lengths and shuffle.kind in ("full", "block"):
            raise OrderError("ORD002", "an endless component", expected=f"a length, to be shuffled by {shuffle.kind}")
        table = np.zeros((len(lengths), 3, 2), dtype=np.uint32)
        if shuffle.kind == "block":
            table = split_each(np.array(keys, dtype=np.uint32).reshape(-1, 2), 3, partitionable=partitionable)
        elif shuffle.kind != "none":
            table[:, 0] = np.array(keys, dtype=np.uint32).reshape(-1, 2)
        sizes = np.array([-1 if length is None else length for length in lengths], dtype=np.int64)
        return cls(sizes, shuffle, partitionable, numpy_major, table)

    def sequences_at(self, component: npt.ArrayLike, places: npt.ArrayLike) -> I64:
        """Return the sequence at each place of its component's shuffle; places are below its length."""
        return self._run(True, component, places)

    def places_of(self, component: int, sequences: npt.ArrayLike) -> tuple[I64, I64]:
        """Return pairs of (which of `sequences`, a place of it): one each, or what a linear map beyond 2**53 gives."""
        asked = np.asarray(sequences, dtype=np.int64).reshape(-1)
        if self.shuffle.permutation == "linear" and self.shuffle.kind != "none":
            return _linear_places(self, component, asked)
        return np.arange(len(asked), dtype=np.int64), self._run(False, component, asked)

    def _run(self, forward: bool, component: npt.ArrayLike, values: npt.ArrayLike) -> I64:
        asked = np.ascontiguousarray(values, dtype=np.int64).reshape(-1)
        which = np.empty(len(asked), dtype=np.int32)
        which[:] = component
        out = np.empty(len(asked), dtype=np.int64)
        said = self.shuffle
        if said.permutation == "linear" and said.kind != "none":
            for c in np.unique(which).tolist():
                mine = np.flatnonzero(which == c)
                out[mine] = _linear_at(self, c, asked[mine])
            return out
        out[:] = asked
        if said.kind == "none":
            return out
        block = said.kind == "block"
        if block and not forward:
            permute_blocks(False, which, out, self.lengths, said.io_block, self.partitionable, self.table)
        permute_groups(
            forward, which, out, self.lengths, CODES[said.kind], said.era_length, said.io_block, said.window_blocks,
            self.partitionable, self.table,
        )  # fmt: skip
        if block and forward:
            permute_blocks(True, which, out, self.lengths, said.io_block, self.partitionable, self.table)
        return out

    def permutation(self, n: int, key: Key) -> Feistel | Linear:
        """Return a permutation of the kind that this shuffle uses."""
        said = self.shuffle.permutation
        return permutation_of(said, n, key, partitionable=self.partitionable, numpy_major=self.numpy_major)

    def parts(self, component: int) -> _Parts:
        """Return one component's shuffle in parts."""
        return _Parts(self, int(self.lengths[component]), component)


@dataclass(frozen=True, slots=True)
class _Parts:
    """One component's shuffle as its definition says: groups of places, each under a permutation of its own."""

    all: Shuffles
    n: int
    component: int

    @property
    def full_blocks(self) -> int:
        """Blocks of neighbours, the one left over not counted."""
        return self.n // self.all.shuffle.io_block

    @property
    def last_window(self) -> int:
        """Number of the last window."""
        blocks = -(-self.n // self.all.shuffle.io_block)
        return max(0, -(-blocks // self.all.shuffle.window_blocks) - 1)

    def key(self, which: int, fold: int | None = None) -> Key:
        """Return one of the component's keys, with a number folded in."""
        a, b = self.all.table[self.component, which].tolist()
        return (a, b) if fold is None else fold_in((a, b), fold)

    def whole(self) -> Feistel | Linear:
        """Return the permutation of all sequences, or of the blocks."""
        n = self.n if self.all.shuffle.kind == "full" else self.full_blocks
        return self.all.permutation(n, self.key(0))

    def era(self, number: int) -> Feistel | Linear:
        """Return the permutation of an era."""
        length = self.all.shuffle.era_length
        size = length if self.n < 0 else min(length, self.n - number * length)
        return self.all.permutation(size, self.key(0, number))

    def window(self, number: int) -> Feistel | Linear | None:
        """Return the permutation of a window's full blocks; None where there is nothing to permute."""
        size = self.window_items(number)
        return self.all.permutation(size, self.key(1, number)) if size > 1 else None

    def window_items(self, number: int) -> int:
        """Return the sequences of a window's full blocks."""
        said = self.all.shuffle
        return min(said.window_blocks, self.full_blocks - number * said.window_blocks) * said.io_block

    def tail(self) -> Feistel | Linear | None:
        """Return the permutation of what no block holds."""
        left = self.n - self.full_blocks * self.all.shuffle.io_block
        return self.all.permutation(left, self.key(2, self.last_window)) if left > 1 else None


def _linear_at(made: Shuffles, component: int, places: I64) -> I64:
    said, parts = made.shuffle, made.parts(component)
    if said.kind == "full":
        return parts.whole().at(places)
    out = np.empty_like(places)
    if said.kind == "era":
        for era in np.unique(places // said.era_length).tolist():
            mine = places // said.era_length == era
            out[mine] = era * said.era_length + parts.era(era).at(places[mine] - era * said.era_length)
        return out
    span = said.io_block * said.window_blocks
    windows = np.minimum(places // span, parts.last_window)
    blocks = parts.whole() if parts.full_blocks > 1 else None
    for number in np.unique(windows).tolist():
        mine = np.flatnonzero(windows == number)
        offset = places[mine] - number * span
        inner, items = parts.window(number), parts.window_items(number)
        full = offset < items
        q = offset[full] if inner is None else inner.at(offset[full])
        slot = number * said.window_blocks + q // said.io_block
        out[mine[full]] = (slot if blocks is None else blocks.at(slot)) * said.io_block + q % said.io_block
        tail, q = parts.tail(), offset[~full] - items
        out[mine[~full]] = parts.full_blocks * said.io_block + (q if tail is None else tail.at(q))
    return out


def _linear_places(made: Shuffles, component: int, sequences: I64) -> tuple[I64, I64]:
    said, parts = made.shuffle, made.parts(component)
    everyone = np.arange(len(sequences), dtype=np.int64)
    if said.kind == "full":
        return parts.whole().places(sequences)
    found: list[tuple[I64, I64]] = []
    if said.kind == "era":
        for era in np.unique(sequences // said.era_length).tolist():
            mine = np.flatnonzero(sequences // said.era_length == era)
            which, place = parts.era(era).places(sequences[mine] - era * said.era_length)
            found.append((mine[which], era * said.era_length + place))
        return _by_which(found)
    behind = sequences >= parts.full_blocks * said.io_block
    span, left = said.io_block * said.window_blocks, everyone[behind]
    if len(left):
        q, tail = sequences[left] - parts.full_blocks * said.io_block, parts.tail()
        which, place = (np.arange(len(left), dtype=np.int64), q) if tail is None else tail.places(q)
        found.append((left[which], parts.last_window * span + parts.window_items(parts.last_window) + place))
    full = everyone[~behind]
    which, slot = np.arange(len(full), dtype=np.int64), sequences[full] // said.io_block
    if parts.full_blocks > 1:
        which, slot = parts.whole().places(slot)
    full = full[which]
    for number in np.unique(slot // said.window_blocks).tolist():
        mine = np.flatnonzero(slot // said.window_blocks == number)
        q = (slot[mine] - number * said.window_blocks) * said.io_block + sequences[full[mine]] % said.io_block
        inner = parts.window(number)
        which, place = (np.arange(len(q), dtype=np.int64), q) if inner is None else inner.places(q)
        found.append((full[mine[which]], number * span + place))
    return _by_which(found)


def _by_which(found: list[tuple[Any, Any]]) -> tuple[I64, I64]:
    empty = np.empty(0, dtype=np.int64)
    which = np.concatenate([empty, *(w for w, _ in found)])
    place = np.concatenate([empty, *(p for _, p in found)])
    order = np.lexsort((place, which))
    return which[order], place[order]
