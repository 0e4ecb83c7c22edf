"""The proof that ends a conversion: two identities, computed by two different paths.

The source's comes through `hashing.IdentityHasher`, from what was read to be written (see `shards`). The target's is
computed here from the files that were written, opened again from their bytes: leaf by leaf, by several threads, with the
code that took boundaries off when they were written. The two share no code for cutting contents or leaves, so what one of
them gets wrong the other does not.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokenreel.convert.framing import contents
from tokenreel.hashing import DOCUMENT_LEAF, TOKEN_LEAF, Identity, identity_digest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tokenreel.convert.framing import Contents
    from tokenreel.convert.source import Batch, Source
    from tokenreel.formats import Boundary

    I64 = npt.NDArray[np.int64]

PIECE = 1 << 18
"""Ids widened and hashed together: few enough to stay in the processor's cache."""
MOST_DOCUMENTS = 1 << 22
"""Documents of a leaf beyond which, as their lengths are kept until its turn comes, everything is read in order."""


def identity_by_leaves(source: Source, *, exceptions: bool = True, threads: int = 1) -> Identity:
    """Return the identity of a source, as `Corpus.identity` does, by another way: each leaf by itself.

    Reads everything once, and documents at the edges of leaves twice. Where a leaf begins is told from lengths alone, for
    documents that all have their boundary; where one has not, or is longer than a leaf, everything is read in order,
    in one thread.
    """
    found = _side_by_side(source, exceptions, threads) if threads > 1 else None
    return _in_one_pass(source, exceptions=exceptions) if found is None else found


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The documents of which the first content token, as told from lengths, is in one leaf."""

    begin: int
    end: int
    spill: int
    """Content tokens of the document before `begin` that are in this leaf, its last ones."""
    tokens: int
    """Content tokens of the documents [begin, end)."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What reading the documents of a leaf gave."""

    lengths: list[I64]
    flags: list[npt.NDArray[np.uint8]]
    digests: tuple[bytes, ...]
    tokens: int


def _side_by_side(source: Source, exceptions: bool, threads: int) -> Identity | None:
    """Return the identity from leaves read by several threads, or None where lengths do not tell where they begin."""
    leaves = _leaves(source)
    if leaves is None:
        return None
    lengths, flags = _Cut(8 * DOCUMENT_LEAF), _Cut(DOCUMENT_LEAF)
    tokens: list[bytes] = []
    with ThreadPoolExecutor(threads) as pool:
        tasks = deque(pool.submit(_read, source, leaf, exceptions) for leaf in leaves)
        for leaf in leaves:
            part = tasks.popleft().result()
            if part.tokens != leaf.tokens:
                pool.shutdown(cancel_futures=True)
                return None
            for found in part.lengths:
                lengths.add(found.astype("<u8"))
            for marks in part.flags:
                flags.add(marks)
            tokens += part.digests
    total = sum(leaf.tokens for leaf in leaves)
    streams = lengths.end(), flags.end(), tuple(tokens)
    return Identity(identity_digest(source.documents, total, *streams), source.documents, total, *streams)


def _leaves(source: Source) -> list[_Leaf] | None:
    """Return the leaves, from lengths alone; None where that is not for us."""
    import numpy as np

    around = len(source.boundary.prefix) + len(source.boundary.suffix)
    edges: list[tuple[int, int]] = []
    held = 0
    for first, lengths in source.blocks():
        sizes = np.maximum(lengths - around, 0)
        if int(sizes.max(initial=0)) > TOKEN_LEAF:
            return None  # it would be read once for every leaf that it is in
        starts = held + np.cumsum(sizes) - sizes
        held += int(sizes.sum())
        last = int(starts[-1]) // TOKEN_LEAF + 1
        at = np.searchsorted(starts, np.arange(len(edges), last) * TOKEN_LEAF)
        edges += zip((at + first).tolist(), starts[at].tolist(), strict=True)
    edges += [(source.documents, held)] * (-(-held // TOKEN_LEAF) - len(edges) + 1)
    leaves = [
        _Leaf(begin, end, start - k * TOKEN_LEAF, stop - start)
        for k, ((begin, start), (end, stop)) in enumerate(pairwise(edges))
    ]
    many = any(leaf.end - leaf.begin > MOST_DOCUMENTS for leaf in leaves)
    return None if many or not held else leaves


def _read(source: Source, leaf: _Leaf, exceptions: bool) -> _Part:
    """Read the documents of a leaf, and the one before where it reaches into it."""
    tokens, sizes, flags, cut_out = _Cut(4 * TOKEN_LEAF), [], [], _Kept()
    first = leaf.begin - bool(leaf.spill)
    room = TOKEN_LEAF
    for batch in source.batches(first, leaf.end):
        whole = contents(batch.ids, batch.lengths, source.boundary)
        lengths = whole.ends - whole.begins
        kept = cut_out(batch.ids, whole)
        if batch.first < leaf.begin:
            kept = kept[int(lengths[0]) - leaf.spill :]
        before = max(0, leaf.begin - batch.first)
        sizes.append(lengths[before:])
        if exceptions:
            flags.append(_marks(batch, whole, source.boundary)[before:])
        tokens.add_ids(kept[:room])
        room = max(0, room - len(kept))
    return _Part(sizes, flags, tokens.end(), sum(int(part.sum()) for part in sizes))


def _in_one_pass(source: Source, *, exceptions: bool) -> Identity:
    lengths, flags, tokens, total = _Cut(8 * DOCUMENT_LEAF), _Cut(DOCUMENT_LEAF), _Cut(4 * TOKEN_LEAF), 0
    cut_out = _Kept()
    for batch in source.batches(0, source.documents):
        whole = contents(batch.ids, batch.lengths, source.boundary)
        sizes = whole.ends - whole.begins
        lengths.add(sizes.astype("<u8"))
        if exceptions:
            flags.add(_marks(batch, whole, source.boundary))
        kept = cut_out(batch.ids, whole)
        total += len(kept)
        tokens.add_ids(kept)
    streams = lengths.end(), flags.end(), tokens.end()
    return Identity(identity_digest(source.documents, total, *streams), source.documents, total, *streams)


class _Cut:
    """Leaves of a fixed number of bytes, from arrays as they come."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._done = 0
        """Bytes of the open leaf."""
        self._open: Any = None
        self._leaves: list[bytes] = []
        self._wide: npt.NDArray[np.uint32] | None = None
        self._filled = 0
        """Ids that wait in `_wide`."""

    def add_ids(self, ids: npt.NDArray[Any]) -> None:
        """Add ids as uint32, a whole piece at a time."""
        import numpy as np

        if self._wide is None:
            self._wide = np.empty(PIECE, dtype="<u4")
        while len(ids):
            part = ids[: PIECE - self._filled]
            self._wide[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            ids = ids[len(part) :]
            if self._filled == PIECE:
                self._hash_ids()

    def _hash_ids(self) -> None:
        if self._wide is not None and self._filled:
            self.add(self._wide[: self._filled])
        self._filled = 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add the bytes of an array."""
        import blake3

        data = values.data.cast("B") if values.size else memoryview(b"")
        while data:
            if self._open is None:
                self._open = blake3.blake3()
            part = data[: self._size - self._done]
            self._open.update(part)
            self._done += len(part)
            data = data[len(part) :]
            if self._done == self._size:
                self._leaf()

    def _leaf(self) -> None:
        self._leaves.append(self._open.digest())
        self._open, self._done = None, 0

    def end(self) -> tuple[bytes, ...]:
        """Return all leaves, the last one as it is."""
        self._hash_ids()
        if self._open is not None:
            self._leaf()
        return tuple(self._leaves)


def _marks(batch: Batch, whole: Contents, boundary: Boundary) -> npt.NDArray[np.uint8]:
    """Return the flags of documents: 1 where the declared prefix is absent, 2 where the suffix is."""
    import numpy as np

    stops = np.cumsum(batch.lengths)
    bare = (whole.begins == stops - batch.lengths) & bool(boundary.prefix)
    open_ended = (whole.ends == stops) & bool(boundary.suffix)
    marks: npt.NDArray[np.uint8] = bare.astype(np.uint8) + np.uint8(2) * open_ended.astype(np.uint8)
    return marks


class _Kept:
    """Cuts out what is between two contents; documents lie end to end."""

    def __init__(self) -> None:
        self._mask: Any = ()
        """True everywhere between two calls; kept, since making it anew costs as much as using it."""

    def __call__(self, ids: npt.NDArray[Any], whole: Contents) -> npt.NDArray[Any]:
        """Return the ids of contents."""
        import numpy as np

        begins, ends = np.append(0, whole.ends), np.append(whole.begins, len(ids))
        width = int((ends - begins).max(initial=0))
        if width == 0:
            return ids
        if len(self._mask) < len(ids):
            self._mask = np.ones(len(ids), dtype=np.bool_)
        mask = self._mask[: len(ids)]
        cut = [at[at < ends] for at in (begins + k for k in range(width))]
        for at in cut:
            mask[at] = False
        kept: npt.NDArray[Any] = ids[mask]
        for at in cut:
            mask[at] = True
        return kept
