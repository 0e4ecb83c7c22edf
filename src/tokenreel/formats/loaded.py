"""A shard whose table is read whole: where ids do not lie in one run, or their table not in one array on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.tabled import TableShard

if TYPE_CHECKING:
    from tokenreel.formats.base import Edges, Ids
    from tokenreel.store.base import Store


class LoadedShard(TableShard):
    """A `TableShard` that keeps the edges of its documents: 8 bytes a document once the table was looked at.

    A format has two methods of its own: `_load` reads the table, checks it and returns the edges of all documents, from 0
    to the number of ids; `_gather` returns the ids of a run that is not empty.
    """

    contiguous = False
    _table: Edges = np.empty(0, dtype=np.int64)

    def _load(self) -> Edges:
        raise NotImplementedError

    def _gather(self, begin: int, end: int) -> Ids:
        raise NotImplementedError

    def check_table(self) -> None:
        """Validate the whole table once; raises `FormatError` with the first problem, now and at every later call."""
        if self._wrong is not None:
            raise self._wrong
        if not self._checked:
            try:
                table = self._load()
            except FormatError as error:
                self._wrong = error
                raise
            table.flags.writeable = False
            self._table = table
            self._checked = True

    def _edges(self, i: int, j: int) -> Edges:
        return self._table[i : j + 1]

    def _ids(self, begin: int, end: int) -> Ids:
        if begin == end:
            return np.empty(0, dtype=self.dtype)
        ids = self._gather(begin, end)
        ids.flags.writeable = False
        return ids


def full_path(store: Store, path: str) -> str:
    """Return what messages call a file of a store."""
    return f"{store.root.rstrip('/')}/{path}"
