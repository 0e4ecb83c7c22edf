"""Checks of stored ids against what is declared: the vocabulary, and the ids that begin and end documents; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.formats import Boundary

    I64 = npt.NDArray[np.int64]
    Ids = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Trouble:
    """One kind of trouble in a batch: where it is, in tokens of the batch, and in which documents of the batch."""

    code: str
    tokens: I64
    documents: I64
    found: tuple[int, ...]
    """The ids at `tokens`, -1 where there is none (an empty document)."""


def check_batch(ids: Ids, lengths: I64, boundary: Boundary, vocab: int | None) -> list[Trouble]:
    """Return what is wrong with whole documents laid end to end: TOK020 to TOK024.

    A document must begin with the prefix and end with the suffix (the prefix is taken first, then the suffix from what
    remains), and neither may stand anywhere else in it. Cost: about 0.5 ns a token.

    >>> from tokenreel.formats import Boundary
    >>> batch, lengths = np.array([5, 0, 0, 6, 7], np.uint16), np.array([3, 2])
    >>> [(t.code, t.tokens.tolist(), t.documents.tolist()) for t in check_batch(batch, lengths, Boundary((), (0,)), 7)]
    [('TOK020', [4], [1]), ('TOK021', [4], [1]), ('TOK022', [1], [0])]
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    begins = ends - lengths
    troubles = _beyond(ids, ends, vocab)
    has_prefix = _stands(ids, begins, ends, boundary.prefix)
    after = begins + len(boundary.prefix) * has_prefix
    has_suffix = _stands(ids, np.maximum(ends - len(boundary.suffix), after), ends, boundary.suffix)
    sides = (
        (boundary.suffix, has_suffix, ends - 1, "TOK021", "TOK022"),
        (boundary.prefix, has_prefix, begins, "TOK023", "TOK024"),
    )
    proper = [begins[has_prefix]] if boundary.prefix else []
    proper += [ends[has_suffix] - len(boundary.suffix)] if boundary.suffix else []
    for wanted, has, at, absent, inside in sides:
        if not wanted:
            continue
        lacking = np.flatnonzero(~has)
        if lacking.size:
            troubles.append(_trouble(absent, ids, np.clip(at[lacking], 0, max(0, len(ids) - 1)), lacking, lengths))
        # Where both sides are the same ids, what stands inside is reported once, as a suffix.
        if wanted == boundary.prefix == boundary.suffix and inside == "TOK024":
            continue
        hits = _occurrences(ids, wanted)
        expected = np.unique(np.concatenate(proper)) if len(proper) > 1 else proper[0]
        if len(hits) == len(expected) and np.array_equal(hits, expected):
            continue
        stray = np.setdiff1d(hits, expected, assume_unique=True)
        owner = np.searchsorted(ends, stray, side="right")
        within = stray + len(wanted) <= ends[owner]
        if within.any():
            troubles.append(_trouble(inside, ids, stray[within], owner[within], lengths))
    return troubles


def _beyond(ids: Ids, ends: I64, vocab: int | None) -> list[Trouble]:
    """Return ids that are negative, or not below the vocabulary."""
    if not ids.size or (vocab is None and ids.dtype.kind == "u"):
        return []
    limit = np.iinfo(ids.dtype).max if vocab is None else min(max(vocab - 1, -1), np.iinfo(ids.dtype).max)
    low_enough = int(ids.max()) <= limit
    if low_enough and (ids.dtype.kind == "u" or int(ids.min()) >= 0):
        return []
    bad = ids > limit if limit >= 0 else np.ones(len(ids), dtype=np.bool_)
    if ids.dtype.kind == "i":
        bad = bad | (ids < 0)
    at = np.flatnonzero(bad)
    owner = np.searchsorted(ends, at, side="right")
    return [Trouble("TOK020", at, owner, tuple(ids[at[:32]].tolist()))]


def _trouble(code: str, ids: Ids, at: I64, documents: I64, lengths: I64) -> Trouble:
    few = zip(at[:32].tolist(), documents[:32].tolist(), strict=True)
    return Trouble(code, at, documents, tuple(int(ids[token]) if lengths[owner] else -1 for token, owner in few))


def _stands(ids: Ids, first: I64, ends: I64, wanted: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return, per document, whether `wanted` stands at `first` and ends inside the document."""
    found: npt.NDArray[np.bool_] = first + len(wanted) <= ends
    if not wanted:
        return np.zeros(len(ends), dtype=np.bool_)
    if not ids.size or not _fits(ids, wanted):
        return found & False
    for k, value in enumerate(wanted):
        found = found & (ids[np.clip(first + k, 0, len(ids) - 1)] == value)
    return found


def _occurrences(ids: Ids, wanted: tuple[int, ...]) -> I64:
    """Return every position where the ids stand one after another, whatever document they are in."""
    if not ids.size or not _fits(ids, wanted):
        return np.empty(0, dtype=np.int64)
    hits = np.flatnonzero(ids == wanted[0])
    for k, value in enumerate(wanted[1:], 1):
        hits = hits[hits + k < len(ids)]
        hits = hits[ids[hits + k] == value]
    return hits


def _fits(ids: Ids, wanted: tuple[int, ...]) -> bool:
    """Return whether the ids could be stored at all: comparing with one that cannot is an error of its own."""
    kind = np.iinfo(ids.dtype)
    return all(kind.min <= value <= kind.max for value in wanted)
