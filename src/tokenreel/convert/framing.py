"""Take one boundary off documents and put another around them; and say what a separator cannot delimit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.formats import Boundary

    Ids = npt.NDArray[np.integer[Any]]
    I64 = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

LISTED = 20


@dataclass(slots=True)
class Exceptions:
    """Documents without the declared prefix or suffix: how many, and the first few by number."""

    count: int = 0
    documents: list[int] = field(default_factory=list)

    def add(self, lacking: Flags, first: int) -> None:
        """Add the documents of a batch that begins with document `first`."""
        at = np.flatnonzero(lacking)
        self.count += len(at)
        self.documents = sorted({*self.documents, *(at[:LISTED] + first).tolist()})[:LISTED]


@dataclass(frozen=True, slots=True)
class Contents:
    """Where the content of each document of a batch is."""

    begins: I64
    ends: I64
    lacking: Flags
    """Documents without a declared prefix or suffix."""


def contents(ids: Ids, lengths: I64, boundary: Boundary) -> Contents:
    """Return where the content of documents is: stored ids minus one prefix, then one suffix from what remains.

    >>> from tokenreel.formats import Boundary
    >>> found = contents(np.array([1, 7, 1, 1, 8]), np.array([3, 1, 1]), Boundary((1,), (1,)))
    >>> found.begins.tolist(), found.ends.tolist(), found.lacking.tolist()
    ([1, 4, 4], [2, 4, 5], [False, True, True])
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    begins = ends - lengths
    lacking = np.zeros(len(lengths), dtype=np.bool_)
    if boundary.prefix:
        there = _stands(ids, begins, ends, boundary.prefix, begins)
        begins = begins + len(boundary.prefix) * there
        lacking |= ~there
    if boundary.suffix:
        there = _stands(ids, begins, ends, boundary.suffix, ends - len(boundary.suffix))
        ends = ends - len(boundary.suffix) * there
        lacking |= ~there
    return Contents(begins, ends, lacking)


def _stands(ids: Ids, begins: I64, ends: I64, wanted: tuple[int, ...], at: I64) -> Flags:
    found: Flags = ends - begins >= len(wanted)
    if not len(ids):
        return found & False
    for k, value in enumerate(wanted):
        found = found & (ids[np.clip(at + k, 0, len(ids) - 1)] == value)
    return found


def reframe(
    ids: Ids, lengths: I64, boundary: Boundary, wanted: Boundary, *others: npt.NDArray[Any]
) -> tuple[Ids, I64, Contents, tuple[npt.NDArray[Any], ...]]:
    """Return documents with another boundary: (ids, lengths, where contents were, the other arrays cut alike).

    What is put around a document takes the value 1 in the other arrays (weights of tokens).

    >>> from tokenreel.formats import Boundary
    >>> out = reframe(np.array([7, 8, 0, 9]), np.array([3, 1]), Boundary((), (0,)), Boundary((5,), ()))
    >>> out[0].tolist(), out[1].tolist(), out[2].lacking.tolist()
    ([5, 7, 8, 5, 9], [3, 2], [False, True])
    """
    found = contents(ids, lengths, boundary)
    before, after = len(wanted.prefix), len(wanted.suffix)
    sizes = found.ends - found.begins
    framed = sizes + before + after
    ends = np.cumsum(framed, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    kind = np.result_type(ids.dtype, *(np.min_scalar_type(value) for value in (*wanted.prefix, *wanted.suffix)))
    out = np.empty(total, dtype=kind if kind.kind in "iu" else np.int64)
    keep = _inside(found.begins, found.ends, len(ids))
    place = _inside(ends - framed + before, ends - after, total)
    out[place] = ids[keep]
    for k, value in enumerate(wanted.prefix):
        out[ends - framed + k] = value
    for k, value in enumerate(wanted.suffix):
        out[ends - after + k] = value
    cut = []
    for other in others:
        new = np.ones(total, dtype=other.dtype)
        new[place] = other[keep]
        cut.append(new)
    return out, framed, found, tuple(cut)


def _inside(begins: I64, ends: I64, total: int) -> Flags:
    """Return a mask of the runs [begins, ends), which do not overlap."""
    steps = np.zeros(total + 1, dtype=np.int8)
    some = ends > begins
    np.add.at(steps, begins[some], 1)
    np.add.at(steps, ends[some], -1)
    return np.cumsum(steps[:-1], dtype=np.int8).astype(np.bool_)


class Separable:
    """Says whether documents laid end to end can be told apart again by the ids around them alone.

    Batches come in order. The stream is scanned as a reader would scan it, so what is said is what a reader finds: a
    separator inside a document, a document without one, an empty document. Separators must be `plain`: then no occurrence
    lies across the edge of two batches.
    """

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._opened = True
        """Whether a document edge stands at the end of what was seen so far, for a reader."""

    def first_wrong(self, ids: Ids, lengths: I64) -> tuple[int, bool] | None:
        """Return (document of the batch, whether a separator is inside it; else it lacks one), or None.

        >>> from tokenreel.formats import Boundary
        >>> Separable(Boundary((), (0,))).first_wrong(np.array([5, 0, 6, 0, 7, 0]), np.array([2, 4]))
        (1, True)
        >>> check = Separable(Boundary((), (0,)))
        >>> check.first_wrong(np.array([5, 0, 6]), np.array([2, 1])), check.first_wrong(np.array([7, 0]), np.array([2]))
        (None, (0, False))
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        begins = ends - lengths
        prefix, suffix = self._boundary.prefix, self._boundary.suffix
        edges = []
        inside = []
        if prefix:
            at = _places(ids, prefix)
            edges.append(at)
            inside.append(at)
        if suffix:
            at = _places(ids, suffix) + len(suffix)
            edges.append(at)
            inside.append(at)
        seen = np.unique(np.concatenate(edges)) if edges else np.empty(0, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        stray = seen[~np.isin(seen, np.append(begins, total))]
        if len(stray):
            return int(np.searchsorted(ends, stray[0], side="right")), True
        told = np.isin(begins, seen)
        told[lengths == 0] = False
        if len(told) and not told[0]:
            told[0] = self._opened and bool(lengths[0])
        self._opened = bool(len(seen) and seen[-1] == total) if total else self._opened
        lacking = np.flatnonzero(~told)
        return (int(lacking[0]), False) if len(lacking) else None


def plain(boundary: Boundary) -> bool:
    """Return whether prefix and suffix share no id, and neither can overlap itself.

    >>> from tokenreel.formats import Boundary
    >>> plain(Boundary((1,), (2,))), plain(Boundary((1,), (1,))), plain(Boundary((), (1, 2, 1)))
    (True, False, False)
    """
    sides = boundary.prefix, boundary.suffix
    overlap = any(side[:k] == side[-k:] for side in sides for k in range(1, len(side)))
    return not overlap and not set(boundary.prefix) & set(boundary.suffix)


def _places(ids: Ids, pattern: tuple[int, ...]) -> I64:
    from tokenreel.corpus.scanning import find_pattern

    limits = np.iinfo(ids.dtype)
    if any(not limits.min <= value <= limits.max for value in pattern):
        return np.empty(0, dtype=np.int64)
    return find_pattern(lambda begin, end: ids[begin:end], len(ids), pattern)
