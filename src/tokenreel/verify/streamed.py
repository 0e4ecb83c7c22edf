"""Files that are one stream cut into shards, as rules over documents see them: one unit for each split.

A document goes on from file to file, so no file has documents of its own. Where the boundary is known and everything is to
be read, documents are those of the stream; else the unit is looked at in pieces of a fixed size, which are no documents.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.layout import ShardEntry
from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.formats import Boundary, Found, open_shard
from tokenreel.formats.hobbylm import sidecars_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.formats.base import Edges, Ids
    from tokenreel.store import Store

NAME = "stream"
PIECE_FULL = 1 << 20
PIECE_QUICK = 1 << 12


def stream_unit(split: str, shards: Sequence[Found]) -> Found:
    """Return one unit for the files of a split."""
    files = tuple(file for shard in shards for file in shard.files)
    return Found(shards[0].format, f"{split}/{NAME}" if split else NAME, files)


def open_stream(
    store: Store,
    found: Found,
    shards: Sequence[Found],
    boundary: Boundary,
    piece: int | None,
    accept: tuple[str, ...],
) -> StreamUnit:
    """Open all files of a unit; raises `FormatError` for the first that cannot be."""
    entries = []
    for shard in shards:
        opened = open_shard(store, shard, accept)
        entries.append(ShardEntry(shard.format, shard.name, shard.files, 1, 1, opened.tokens, opened.dtype.name))
        opened.close()
    sidecars = tuple(dict.fromkeys(path for entry in entries for path in sidecars_of(store, entry.name)))
    return StreamUnit(store, found.name, entries, boundary, sidecars, piece=None if sidecars else piece)


class StreamUnit:
    """The stream of several files as a `Shard`; positions count over all of them."""

    contiguous = False

    def __init__(
        self,
        store: Store,
        name: str,
        entries: Sequence[ShardEntry],
        boundary: Boundary,
        sidecars: tuple[str, ...],
        *,
        piece: int | None,
    ) -> None:
        self.format = entries[0].format
        self.name = name
        self.files = tuple(file for entry in entries for file in entry.files)
        self.dtype: np.dtype[Any] = np.dtype(entries[0].dtype)
        self.entries = tuple(entries)
        self.boundary = Boundary(boundary.prefix, boundary.suffix, table=bool(sidecars))
        self.piece = piece
        """Ids of a piece, where documents are not looked for."""
        self._starts = list(accumulate((entry.tokens for entry in entries), initial=0))
        self._corpus = StreamCorpus(store, store.root, tuple(entries), self.boundary, sidecars=sidecars)

    @property
    def tokens(self) -> int:
        """Stored ids of all files."""
        return self._starts[-1]

    @property
    def documents(self) -> int:
        """Documents, or pieces."""
        return -(-self.tokens // self.piece) if self.piece else len(self._corpus.edges()) - 1

    @property
    def sequences(self) -> int:
        """As many as documents."""
        return self.documents

    def check_table(self) -> None:
        """Find the documents; raises `FormatError` where that cannot be done."""
        if not self.piece:
            self._corpus.edges()

    def document_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit documents [i, j)."""
        if self.piece:
            return np.minimum(np.arange(i, j + 1, dtype=np.int64) * self.piece, self.tokens)
        return self._corpus.edges()[i : j + 1]

    def sequence_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit sequences [i, j)."""
        return self.document_edges(i, j)

    def document_sequences(self, i: int, j: int) -> Edges:
        """Return the first sequence of each document of [i, j), and the end of the last."""
        return np.arange(i, j + 1, dtype=np.int64)

    def documents_at(self, positions: Edges) -> Edges:
        """Return which document holds each token position."""
        if self.piece:
            return np.asarray(positions, dtype=np.int64) // self.piece
        return np.searchsorted(self._corpus.edges(), positions, side="right") - 1

    def read(self, begin: int, end: int) -> Ids:
        """Return the stored ids [begin, end), read-only."""
        return self._corpus._read(begin, end)  # noqa: SLF001 (the stream of all shards, whatever its documents)

    def document(self, i: int) -> Ids:
        """Return the stored ids of document `i`, read-only."""
        begin, end = (int(edge) for edge in self.document_edges(i, i + 1))
        return self.read(begin, end)

    def byte_at(self, position: int) -> tuple[str, int]:
        """Return the file and the byte offset of a token."""
        number = self._number(position)
        return self._corpus.shard(number).byte_at(position - self._starts[number])

    def shard_at(self, position: int) -> tuple[str, int]:
        """Return the name of the file's shard that holds a token, and where it begins in the stream."""
        number = self._number(position)
        return self.entries[number].name, self._starts[number]

    def begins(self) -> list[int]:
        """Return how many documents begin in each file."""
        edges = self.document_edges(0, self.documents)[:-1]
        return [int(count) for count in np.diff(np.searchsorted(edges, self._starts))]

    def _number(self, position: int) -> int:
        return min(max(bisect_right(self._starts, position) - 1, 0), len(self.entries) - 1)

    def close(self) -> None:
        """Give all handles back; arrays handed out stay valid."""
        self._corpus.close()
