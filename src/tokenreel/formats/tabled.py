"""Ids of a shard in one run, documents in a table: what ounce shards, datatrove's trios and OLMo's files have in common.

A format says where the ids lie and how to read its table; the rest is here. Tables are read in stretches of 64 Ki entries,
so that memory is bounded whatever a header claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import DocumentError, FormatError, OrderError
from tokenreel.formats.base import Boundary

if TYPE_CHECKING:
    from tokenreel.formats.base import Edges, Found, Ids, Problem
    from tokenreel.store.base import Reader, Store

CHUNK = 1 << 16
"""Entries of a table looked at together."""
SMALL = 1 << 12
"""Documents of a shard whose table is validated when it is opened."""


class TableShard:
    """One open shard with a table; see `formats.base.Shard` for the contract of each method.

    A subclass gives `_edges(i, j)`, the edges i to j of the documents as the table says them, unchecked, and `_examine`,
    which returns the first thing wrong with the table, or None.
    """

    boundary = Boundary(table=True)
    contiguous = True
    """Whether all ids lie end to end in one file, from `byte_at(0)` on, as they are read."""
    vocab: int | None = None
    """Ids are below this, where the file says so."""

    def __init__(
        self, store: Store, found: Found, payload: Reader, dtype: str, begin: int, tokens: int, documents: int
    ) -> None:
        self.format = found.format
        self.name = found.name
        self.files = found.files
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.tokens = tokens
        self.documents = documents
        self._store = store
        self._payload = payload
        self._begin = begin
        self._checked = False
        self._wrong: FormatError | None = None
        self._fences: Edges | None = None

    @property
    def sequences(self) -> int:
        """As many as documents."""
        return self.documents

    def _edges(self, i: int, j: int) -> Edges:
        raise NotImplementedError

    def _examine(self) -> Problem | None:
        raise NotImplementedError

    def check_table(self) -> None:
        """Validate the whole table once; raises `FormatError` with the first problem, now and at every later call."""
        if self._wrong is not None:
            raise self._wrong
        if not self._checked:
            problem = self._examine()
            if problem is not None:
                self._wrong = as_error(problem, self._store)
                raise self._wrong
            self._checked = True

    def check_if_small(self) -> None:
        """Validate a table of few entries: opening may as well."""
        if self.documents <= SMALL:
            self.check_table()

    def document_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit documents [i, j)."""
        self._in_range(i, j)
        return self._edges(i, j)

    def sequence_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit sequences [i, j): documents."""
        return self.document_edges(i, j)

    def document_sequences(self, i: int, j: int) -> Edges:
        """Return the first sequence of each document of [i, j), and the end of the last."""
        self._in_range(i, j)
        return np.arange(i, j + 1, dtype=np.int64)

    def documents_at(self, positions: Edges) -> Edges:
        """Return which document holds each token position; an empty document holds none."""
        self.check_table()
        wanted = np.asarray(positions, dtype=np.int64)
        if wanted.size and (int(wanted.min()) < 0 or int(wanted.max()) >= self.tokens):
            raise self._outside(int(wanted.min()), int(wanted.max()) + 1)
        if self._fences is None:
            firsts = range(0, max(1, self.documents), CHUNK)
            self._fences = np.array([int(self._edges(i, i)[0]) for i in firsts], dtype=np.int64)
        chunk = np.searchsorted(self._fences, wanted, side="right") - 1
        found = np.empty(wanted.shape, dtype=np.int64)
        for c in np.unique(chunk).tolist():
            here = chunk == c
            edges = self._edges(CHUNK * c, min(self.documents, CHUNK * (c + 1)))[:-1]
            found[here] = CHUNK * c + np.searchsorted(edges, wanted[here], side="right") - 1
        return found

    def read(self, begin: int, end: int) -> Ids:
        """Return the stored ids [begin, end), read-only; raises `StorageError` (STO004) when the file changed size."""
        self.check_table()
        if not 0 <= begin <= end <= self.tokens:
            raise self._outside(begin, end)
        return self._ids(begin, end)

    def _ids(self, begin: int, end: int) -> Ids:
        return self._payload.array(self.dtype, self._begin + begin * self.dtype.itemsize, end - begin)

    def document(self, i: int) -> Ids:
        """Return the stored ids of document `i`, read-only."""
        edges = self.document_edges(i, i + 1)
        return self.read(int(edges[0]), int(edges[1]))

    def byte_at(self, position: int) -> tuple[str, int]:
        """Return the file and the byte offset of a token."""
        return self.files[0], self._begin + position * self.dtype.itemsize

    def close(self) -> None:
        """Give the handles back; arrays handed out stay valid."""
        self._payload.close()

    def _in_range(self, i: int, j: int) -> None:
        self.check_table()
        if not 0 <= i <= j <= self.documents:
            expected = f"documents within [0, {self.documents}]"
            raise DocumentError("DOC001", shard=self.name, expected=expected, found=f"[{i}, {j})")

    def _outside(self, begin: int, end: int) -> OrderError:
        return OrderError(
            "ORD003",
            "tokens outside the shard",
            shard=self.name,
            expected=f"within [0, {self.tokens}]",
            found=f"[{begin}, {end})",
        )


def as_error(problem: Problem, store: Store) -> FormatError:
    """Return a problem as the error that a reader raises; its path is below the store's root."""
    return FormatError(
        problem.code,
        problem.message,
        path=f"{store.root.rstrip('/')}/{problem.path}",
        offset=problem.offset,
        document=problem.document,
        expected=problem.expected,
        found=problem.found,
    )
