"""Overlap of documents with evaluation sets: shared n-grams of ids, with evidence. Pure.

Every n-gram of an item is kept by its place among the items' ids; a document's are found by a rolling hash and compared
id by id, so that a hit is one. A document with one shared n-gram is *flagged*; it is *strong* evidence where it shares at
least 30 % of an item's n-grams. An n-gram of several items belongs to the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    U32 = npt.NDArray[np.uint32]
    I64 = npt.NDArray[np.int64]

N = 13
STRONG = 0.3
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True, eq=False)
class Grams:
    """The n-grams of evaluation items, ready to be looked up; about 16 bytes an n-gram."""

    n: int
    ids: U32
    """Ids of all items, end to end."""
    edges: I64
    """Where items begin; one more than items."""
    table: npt.NDArray[np.int32]
    """Places of n-grams by hash; -1 is free."""
    sieve: npt.NDArray[np.uint64]
    """Bits of hashes, 8 to 16 an n-gram: most of what is looked for is found not to be there without the table."""
    distinct: I64
    """Different n-grams of each item that no earlier item has."""

    @property
    def items(self) -> int:
        """How many items there are."""
        return len(self.edges) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """Shared n-grams: one row a place in a document."""

    document: I64
    begin: I64
    """First id of the n-gram in its document."""
    item: I64
    place: I64
    """First id of the n-gram among the items' ids."""

    def pairs(self, grams: Grams) -> list[tuple[int, int, int, float]]:
        """Return (document, item, first place in the document, share of the item's n-grams), by document and item."""
        out = []
        if len(self.document):
            order = np.lexsort((self.begin, self.item, self.document))
            document, item, begin, place = (x[order] for x in (self.document, self.item, self.begin, self.place))
            edges = np.flatnonzero((np.diff(document) != 0) | (np.diff(item) != 0)) + 1
            for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(document)], strict=True):
                share = len(np.unique(place[low:high])) / max(1, int(grams.distinct[item[low]]))
                out.append((int(document[low]), int(item[low]), int(begin[low]), share))
        return out


def grams_of(ids: npt.ArrayLike, edges: npt.ArrayLike, n: int = N) -> Grams:
    """Return the n-grams of items whose ids stand end to end between `edges`; shorter items have none.

    >>> grams_of([1, 2, 3, 4], [0, 4], n=3).distinct.tolist()
    [2]
    """
    flat, ends = np.asarray(ids, dtype=np.uint32), np.asarray(edges, dtype=np.int64)
    total = int(np.maximum(np.diff(ends) - n + 1, 0).sum())
    table = np.full(1 << max(4, (2 * total).bit_length()), -1, dtype=np.int32)
    distinct = np.zeros(len(ends) - 1, dtype=np.int64)
    sieve = np.zeros(1 << max(0, (8 * total).bit_length() - 6), dtype=np.uint64)
    _insert(flat, ends, n, table, sieve, distinct)
    return Grams(n, flat, ends, table, sieve, distinct)


def overlap(grams: Grams, ids: npt.NDArray[Any], lengths: npt.ArrayLike, room: int = 1024) -> Overlap:
    """Return where documents, end to end with `lengths`, share n-grams with items. Cost: about 4 ns an id.

    Where more than `room` places are shared it is begun again with more.
    """
    flat = np.ascontiguousarray(ids, dtype=np.uint32)
    edges = np.concatenate(([0], np.cumsum(np.asarray(lengths, dtype=np.int64))))
    while True:
        out = np.empty((4, room), dtype=np.int64)
        used = _scan(flat, edges, grams.ids, grams.edges, grams.n, grams.table, grams.sieve, out)
        if used >= 0:
            break
        room *= 4
    found = out[:, :used]
    return Overlap(found[0], found[1], found[2], found[3])


class Words:
    """Numbers for words, so that n-grams of words are n-grams of ids: lower case, letters and digits alone.

    >>> words = Words()
    >>> words.ids("Red, RED; blue_1!").tolist()
    [0, 0, 1, 2]
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def ids(self, text: str, *, add: bool = True) -> U32:
        """Return a text's words as numbers; without `add` a word that is not known is the largest number."""
        found = _WORD.findall(text.lower())
        if add:
            return np.array([self._known.setdefault(word, len(self._known)) for word in found], dtype=np.uint32)
        return np.array([self._known.get(word, 0xFFFFFFFF) for word in found], dtype=np.uint32)


def word_items(texts: Sequence[str], words: Words) -> tuple[U32, I64]:
    """Return (ids end to end, edges) of items' words."""
    parts = [words.ids(text) for text in texts]
    edges = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64)
    return (np.concatenate(parts) if parts else np.empty(0, np.uint32)), edges


_U32, _I64, _I32, _U64 = (f"Array({kind}, 1, 'C', True)" for kind in ("uint32", "int64", "int32", "uint64"))
_P = 0x9E3779B97F4A7C15


@kernel(f"void({_U32}, {_I64}, int64, int32[::1], uint64[::1], int64[::1])")
def _insert(ids: Any, edges: Any, n: int, table: Any, sieve: Any, distinct: Any) -> None:
    mask = np.uint64(len(table) - 1)
    words = np.uint64(len(sieve) - 1)
    for item in range(len(edges) - 1):
        for place in range(edges[item], edges[item + 1] - n + 1):
            value = np.uint64(0)
            for k in range(n):
                value = value * np.uint64(0x9E3779B97F4A7C15) + np.uint64(ids[place + k]) + np.uint64(1)
            value = (value ^ (value >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
            sieve[np.int64((value >> np.uint64(38)) & words)] |= np.uint64(1) << (
                value >> np.uint64(32) & np.uint64(63)
            )
            slot = np.int64((value ^ (value >> np.uint64(32))) & mask)
            while True:
                held = table[slot]
                if held < 0:
                    table[slot] = np.int32(place)
                    distinct[item] += 1
                    break
                same = True
                for k in range(n):
                    if ids[held + k] != ids[place + k]:
                        same = False
                        break
                if same:
                    break
                slot = (slot + 1) & np.int64(mask)


@kernel(f"int64({_U32}, {_I64}, {_U32}, {_I64}, int64, {_I32}, {_U64}, int64[:, ::1])")
def _scan(ids: Any, edges: Any, known: Any, items: Any, n: int, table: Any, sieve: Any, out: Any) -> int:
    """Write (document, begin, item, place) of every hit; return how many, or -1 where `out` is too small."""
    mask = np.uint64(len(table) - 1)
    words = np.uint64(len(sieve) - 1)
    used = 0
    power = np.uint64(1)
    for _ in range(n):
        power *= np.uint64(0x9E3779B97F4A7C15)
    for document in range(len(edges) - 1):
        low, high = edges[document], edges[document + 1]
        if high - low < n:
            continue
        rolling = np.uint64(0)
        for at in range(low, high):
            rolling = rolling * np.uint64(0x9E3779B97F4A7C15) + np.uint64(ids[at]) + np.uint64(1)
            begin = at - n + 1
            if begin < low:
                continue
            if begin > low:
                rolling -= (np.uint64(ids[begin - 1]) + np.uint64(1)) * power
            value = (rolling ^ (rolling >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
            bits = sieve[np.int64((value >> np.uint64(38)) & words)]
            if not (bits >> (value >> np.uint64(32) & np.uint64(63))) & np.uint64(1):
                continue
            slot = np.int64((value ^ (value >> np.uint64(32))) & mask)
            while True:
                held = table[slot]
                if held < 0:
                    break
                same = True
                for k in range(n):
                    if known[held + k] != ids[begin + k]:
                        same = False
                        break
                if same:
                    if used == out.shape[1]:
                        return -1
                    item = np.searchsorted(items, np.int64(held), side="right") - 1
                    out[0, used] = document
                    out[1, used] = begin - low
                    out[2, used] = item
                    out[3, used] = held
                    used += 1
                    break
                slot = (slot + 1) & np.int64(mask)
    return used
