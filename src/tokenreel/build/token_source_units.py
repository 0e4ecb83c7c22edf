"""Where the documents of a token corpus are: as its tables say, as its boundary says, or anew by an inline token.

A unit is what is read as one input: a shard, or all shards where documents may run across them. With ``split_by_eot`` every
document that a shard is said to hold, or the shard where nothing says so, is taken for a slice of a longer stream and cut
at the inline token. No id is lost: what stands before the first token is a document whose beginning is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.scanning import find_pattern
from tokenreel.corpus.streamed import StreamCorpus

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats.base import Boundary

    Ids = npt.NDArray[np.integer[Any]]
    I64 = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

WHOLE = -1
"""Number of the unit that is all shards."""


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Documents of one input, end to end in a stream of ids."""

    edges: I64
    """Where documents begin, and the end: document k is [edges[k], edges[k + 1])."""
    cut_start: Bools
    """Of each document: whether its beginning is elsewhere, as far as that can be told."""
    cut_end: Bools
    """Whether its end is, or may be: the last piece of a slice ends where the slice does."""
    read: Callable[[int, int], Ids]
    boundary: Boundary
    """What is taken off at the ends of documents."""
    shards: tuple[tuple[int, str], ...]
    """Where in the stream each shard begins, and its first file."""

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.edges) - 1

    def content(self, k: int) -> npt.NDArray[np.uint32]:
        """Return the ids of a document without its boundary."""
        return without_boundary(self.read(int(self.edges[k]), int(self.edges[k + 1])), self.boundary).astype(np.uint32)

    def origin(self, k: int) -> tuple[str, int]:
        """Return the file where a document begins, and at which id of it."""
        at = int(self.edges[k])
        begin, file = next((row for row in reversed(self.shards) if row[0] <= at), self.shards[0])
        return file, at - begin


def unit_numbers(corpus: Corpus, *, split: bool) -> list[int]:
    """Return the units of a corpus: its shards, or `WHOLE` where only a boundary tells documents, across shards.

    Raises `SplitError` (SPL001) where a split has to be named.
    """
    if isinstance(corpus, StreamCorpus) and not corpus.boundary.table and not split:
        return [WHOLE] if corpus.shard_tokens else []
    return list(range(len(corpus.shard_tokens)))


def unit_files(corpus: Corpus, number: int) -> tuple[str, ...]:
    """Return the files that decide what a unit holds."""
    entries = corpus.entries if number == WHOLE else (corpus.entries[number],)
    beside = corpus.sidecars if isinstance(corpus, StreamCorpus) else ()
    return (*(file for entry in entries for file in entry.files), *beside)


def open_unit(corpus: Corpus, number: int, boundary: Boundary, *, split: bool) -> Unit:
    """Return a unit; raises what finding documents raises (`StreamCorpus.edges`, `Shard.check_table`).

    Cost: 8 bytes a document; with `split`, or a boundary alone, every id is read once, about 1 ns each.
    """
    begins = list(accumulate(corpus.shard_tokens, initial=0))
    if isinstance(corpus, StreamCorpus) and number == WHOLE:
        shards = tuple((begin, entry.files[0]) for begin, entry in zip(begins, corpus.entries, strict=False))
        return cut(corpus.stream, corpus.edges(), boundary, split=False, shards=shards)
    shard, entry = corpus.shard(number), corpus.entries[number]
    if not isinstance(corpus, StreamCorpus):
        stored = shard.document_edges(0, entry.documents)
    elif corpus.boundary.table:
        edges = corpus.edges()
        inside = (edges >= begins[number]) & (edges <= begins[number + 1])
        stored = edges[inside] - begins[number]
    else:
        stored = np.array([0, entry.tokens])
    if split:
        return cut(shard.read, stored, boundary, split=True, shards=((0, entry.files[0]),))
    none = np.zeros(len(stored) - 1, np.bool_)
    return Unit(stored, none, none, shard.read, boundary, ((0, entry.files[0]),))


def cut(
    read: Callable[[int, int], Ids],
    stored: I64,
    boundary: Boundary,
    *,
    split: bool,
    shards: tuple[tuple[int, str], ...],
) -> Unit:
    """Return a stream whose stored documents are cut again before every prefix and behind every suffix.

    A stored document of no ids stays one.
    """
    tokens = int(stored[-1])
    begins = find_pattern(read, tokens, boundary.prefix) if boundary.prefix else np.empty(0, np.int64)
    ends = find_pattern(read, tokens, boundary.suffix) + len(boundary.suffix) if boundary.suffix else begins[:0]
    inside = np.setdiff1d(np.concatenate((begins, ends)), stored)
    edges = np.sort(np.concatenate((stored, inside)).astype(np.int64))
    starts, stops = edges[:-1], edges[1:]
    some = stops > starts
    cut_start = some & ~np.isin(starts, begins) if boundary.prefix else np.zeros(len(some), np.bool_)
    cut_end = some & ~np.isin(stops, ends) if boundary.suffix else np.zeros(len(some), np.bool_)
    if split and not (boundary.prefix and boundary.suffix):
        full = np.flatnonzero(some)
        owner = np.searchsorted(stored, starts[full], side="right")
        first = np.concatenate(([True], owner[1:] != owner[:-1])) if len(full) else np.empty(0, np.bool_)
        slices = np.cumsum(first) - 1
        # A stored document that is one whole piece is no slice.
        doubtful = (np.bincount(slices) > 1) | (np.bincount(slices, cut_start[full] | cut_end[full]) > 0)
        if boundary.prefix:
            cut_end[full[np.concatenate((first[1:], [True]))[: len(full)] & doubtful[slices]]] = True
        else:
            cut_start[full[first & doubtful[slices]]] = True
    return Unit(edges, cut_start, cut_end, read, boundary, shards)


def without_boundary(ids: Ids, boundary: Boundary) -> Ids:
    """Return ids without one prefix and one suffix, where they are there.

    >>> from tokenreel.formats.base import Boundary
    >>> without_boundary(np.array([0, 5, 0]), Boundary(prefix=(0,))).tolist()
    [5, 0]
    """
    prefix, suffix = boundary.prefix, boundary.suffix
    if prefix and tuple(ids[: len(prefix)].tolist()) == prefix:
        ids = ids[len(prefix) :]
    if suffix and len(ids) >= len(suffix) and tuple(ids[len(ids) - len(suffix) :].tolist()) == suffix:
        ids = ids[: len(ids) - len(suffix)]
    return ids
