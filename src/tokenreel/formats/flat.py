"""One file, one stream: what llm.c shards, headerless files and ``.npy`` files have in common.

None of them says where documents begin, and their documents go on from one file into the next; so a shard here is one
document, and the corpus finds the real ones (`corpus.streamed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import DocumentError, OrderError
from tokenreel.formats.base import Boundary

if TYPE_CHECKING:
    from tokenreel.formats.base import Edges, Ids
    from tokenreel.store.base import Reader


class FlatShard:
    """The ids of one open file from byte `begin` on; see `formats.base.Shard` for the contract of each method.

    The file's size was checked by whoever opened it; every read checks it again.

    >>> from tokenreel.store import MemoryStore
    >>> shard = FlatShard(
    ...     "raw-uint16", "train.bin", MemoryStore({"train.bin": b"__abcd"}).reader("train.bin"), "<u2", 2
    ... )
    >>> shard.name, shard.tokens, shard.read(1, 2).tolist(), shard.byte_at(1)
    ('train', 2, [25699], ('train.bin', 4))
    """

    boundary = Boundary()
    contiguous = True

    def __init__(self, format_name: str, path: str, reader: Reader, dtype: str, begin: int) -> None:
        self.format = format_name
        self._path = path
        self._reader = reader
        self._dtype = np.dtype(dtype)
        self._begin = begin
        self._tokens = (reader.size - begin) // self._dtype.itemsize

    @property
    def name(self) -> str:
        """Path without suffix."""
        return self._path.rpartition(".")[0]

    @property
    def files(self) -> tuple[str, ...]:
        """The one file."""
        return (self._path,)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Stored integer type, little endian."""
        return self._dtype

    @property
    def tokens(self) -> int:
        """Stored ids."""
        return self._tokens

    @property
    def documents(self) -> int:
        """One: the file does not tell its documents apart."""
        return 1

    @property
    def sequences(self) -> int:
        """One."""
        return 1

    def check_table(self) -> None:
        """Do nothing: there is no table."""

    def document_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit documents [i, j)."""
        self._in_range(i, j)
        return np.array([0, self._tokens], dtype=np.int64)[i : j + 1]

    def sequence_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit sequences [i, j)."""
        return self.document_edges(i, j)

    def document_sequences(self, i: int, j: int) -> Edges:
        """Return the first sequence of each document of [i, j), and the end of the last."""
        self._in_range(i, j)
        return np.arange(i, j + 1, dtype=np.int64)

    def documents_at(self, positions: Edges) -> Edges:
        """Return which document holds each token position: the one."""
        wanted = np.asarray(positions, dtype=np.int64)
        if wanted.size and (int(wanted.min()) < 0 or int(wanted.max()) >= self._tokens):
            raise self._outside(int(wanted.min()), int(wanted.max()) + 1)
        return np.zeros(wanted.shape, dtype=np.int64)

    def read(self, begin: int, end: int) -> Ids:
        """Return the stored ids [begin, end), read-only; raises `StorageError` (STO004) when the file changed size."""
        if not 0 <= begin <= end <= self._tokens:
            raise self._outside(begin, end)
        return self._reader.array(self._dtype, self._begin + begin * self._dtype.itemsize, end - begin)

    def document(self, i: int) -> Ids:
        """Return the stored ids of the one document."""
        edges = self.document_edges(i, i + 1)
        return self.read(int(edges[0]), int(edges[1]))

    def byte_at(self, position: int) -> tuple[str, int]:
        """Return the file and the byte offset of a token."""
        return self._path, self._begin + position * self._dtype.itemsize

    def close(self) -> None:
        """Give the handle back; arrays handed out stay valid."""
        self._reader.close()

    def _in_range(self, i: int, j: int) -> None:
        if not 0 <= i <= j <= 1:
            raise DocumentError("DOC001", shard=self.name, expected="documents within [0, 1]", found=f"[{i}, {j})")

    def _outside(self, begin: int, end: int) -> OrderError:
        return OrderError(
            "ORD003",
            "tokens outside the shard",
            shard=self.name,
            expected=f"within [0, {self._tokens}]",
            found=f"[{begin}, {end})",
        )
