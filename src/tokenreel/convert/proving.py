"""The proof that ends a conversion: two identities, computed by two different paths.

The source's comes through `hashing.IdentityHasher`, in order. The target's is computed here from the files that were
written, opened again from their bytes: leaf by leaf, by several threads, with the code that took boundaries off when they
were written. The two share no code for cutting contents or leaves, so what one of them gets wrong the other does not.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokenreel.convert.framing import contents
from tokenreel.hashing import DOCUMENT_LEAF, TOKEN_LEAF, Identity, identity_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from tokenreel.convert.framing import Contents
    from tokenreel.convert.source import Batch, Source
    from tokenreel.formats import Boundary

    I64 = npt.NDArray[np.int64]

BLOCK_TOKENS = 1 << 20
"""Stored ids whose contents are found together, about."""


def identity_by_leaves(source: Source, *, exceptions: bool = True, threads: int = 1) -> Identity:
    """Return the identity of a source, as `Corpus.identity` does, by another way: each leaf by itself.

    Reads everything once, and documents at the edges of leaves twice; where the boundary has ids, everything twice. With
    one thread, in order and everything once.
    """
    if threads == 1:
        return _in_one_pass(source, exceptions=exceptions)
    edges = _block_edges(source)
    lengths, flags = _Cut(8 * DOCUMENT_LEAF), _Cut(DOCUMENT_LEAF)
    starts = [0]
    with ThreadPoolExecutor(threads) as pool:
        for found, marked in pool.map(lambda run: _contents_of(source, *run), pairwise(edges)):
            lengths.add(found.astype("<u8"))
            if exceptions:
                flags.add(marked)
            starts.append(starts[-1] + int(found.sum()))
        total = starts[-1]
        begins = range(0, total, TOKEN_LEAF)
        tokens = tuple(pool.map(lambda at: _leaf(source, edges, starts, at, min(at + TOKEN_LEAF, total)), begins))
    streams = lengths.end(), flags.end(), tokens
    return Identity(identity_digest(source.documents, total, *streams), source.documents, total, *streams)


def _in_one_pass(source: Source, *, exceptions: bool) -> Identity:
    import numpy as np

    lengths, flags, tokens, total = _Cut(8 * DOCUMENT_LEAF), _Cut(DOCUMENT_LEAF), _Cut(4 * TOKEN_LEAF), 0
    for batch in source.batches(0, source.documents):
        whole = contents(batch.ids, batch.lengths, source.boundary)
        sizes = whole.ends - whole.begins
        lengths.add(sizes.astype("<u8"))
        if exceptions:
            flags.add(_marks(batch, whole, source.boundary))
        kept = _kept(batch.ids, whole)
        total += len(kept)
        tokens.add(np.ascontiguousarray(kept, dtype="<u4"))
    streams = lengths.end(), flags.end(), tokens.end()
    return Identity(identity_digest(source.documents, total, *streams), source.documents, total, *streams)


def _block_edges(source: Source) -> list[int]:
    """Return the documents with which blocks begin, and the number of all."""
    import numpy as np

    edges, held = [0], 0
    for first, lengths in source.blocks():
        ends = held + np.cumsum(lengths)
        edges += (np.flatnonzero(np.diff(ends // BLOCK_TOKENS, prepend=held // BLOCK_TOKENS)) + first + 1).tolist()
        held = int(ends[-1])
    return sorted({*edges, source.documents})


class _Cut:
    """Leaves of a fixed number of bytes, from arrays as they come."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._done = 0
        """Bytes of the open leaf."""
        self._open: Any = None
        self._leaves: list[bytes] = []

    def add(self, values: npt.NDArray[Any]) -> None:
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
        if self._open is not None:
            self._leaf()
        return tuple(self._leaves)


def _contents_of(source: Source, begin: int, end: int) -> tuple[I64, npt.NDArray[np.uint8]]:
    """Return the lengths of contents and the flags of documents [begin, end)."""
    import numpy as np

    boundary = source.boundary
    if not (boundary.prefix or boundary.suffix):
        lengths = source.lengths(begin, end)
        return lengths, np.zeros(len(lengths), dtype=np.uint8)
    sizes, flags = [], []
    for batch in source.batches(begin, end):
        whole = contents(batch.ids, batch.lengths, boundary)
        sizes.append(whole.ends - whole.begins)
        flags.append(_marks(batch, whole, boundary))
    return np.concatenate(sizes), np.concatenate(flags)


def _marks(batch: Batch, whole: Contents, boundary: Boundary) -> npt.NDArray[np.uint8]:
    """Return the flags of documents: 1 where the declared prefix is absent, 2 where the suffix is."""
    import numpy as np

    stops = np.cumsum(batch.lengths)
    bare = (whole.begins == stops - batch.lengths) & bool(boundary.prefix)
    open_ended = (whole.ends == stops) & bool(boundary.suffix)
    marks: npt.NDArray[np.uint8] = bare.astype(np.uint8) + np.uint8(2) * open_ended.astype(np.uint8)
    return marks


def _leaf(source: Source, edges: list[int], starts: list[int], low: int, high: int) -> bytes:
    """Return the leaf of content tokens [low, high)."""
    import bisect

    import blake3

    block = bisect.bisect_right(starts, low) - 1
    while starts[block + 1] <= low:
        block += 1
    digest = blake3.blake3()
    at = starts[block]
    for ids in _content_runs(source, edges[block], source.documents):
        if at + len(ids) > low:
            piece = ids[max(0, low - at) : high - at]
            for begin in range(0, len(piece), 1 << 18):
                digest.update(piece[begin : begin + (1 << 18)].astype("<u4").data.cast("B"))
        at += len(ids)
        if at >= high:
            break
    return digest.digest()


def _content_runs(source: Source, begin: int, end: int) -> Iterator[npt.NDArray[Any]]:
    """Yield the ids of contents, end to end."""
    boundary = source.boundary
    for batch in source.batches(begin, end):
        if boundary.prefix or boundary.suffix:
            yield _kept(batch.ids, contents(batch.ids, batch.lengths, boundary))
        else:
            yield batch.ids


def _kept(ids: npt.NDArray[Any], whole: Contents) -> npt.NDArray[Any]:
    """Return the ids of contents: documents lie end to end, and what is between two contents is cut out."""
    import numpy as np

    begins, ends = np.append(0, whole.ends), np.append(whole.begins, len(ids))
    width = int((ends - begins).max(initial=0))
    if width == 0:
        return ids
    keep = np.ones(len(ids), dtype=np.bool_)
    for k in range(width):
        at = begins + k
        keep[at[at < ends]] = False
    return ids[keep]
