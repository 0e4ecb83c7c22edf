"""Write Parquet files with a column ``input_ids`` of lists with 64-bit offsets, one row a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import UsageError, require
from tokenreel.formats.headed import choice, only
from tokenreel.formats.parquet_facts import COLUMNS, table_of
from tokenreel.formats.parquet_footer import COLUMNS as ID_COLUMNS
from tokenreel.formats.sink import SinkWriter
from tokenreel.formats.writing import DocumentFacts, Holds
from tokenreel.store.atomic import write_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats.base import Ids
    from tokenreel.formats.writing import WriteOptions

HOLDS = Holds(
    table=True,
    empty=True,
    largest_id=(1 << 64) - 1,
    metadata=True,
    dtypes=("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
)
GROUP_BYTES = 16 << 20
"""Ids of a row group: one that is smaller is always read, however well it compresses."""
GROUP_ROWS = 1 << 20


def open_writer(root: Path, name: str, options: WriteOptions) -> ParquetWriter:
    """Return a writer of ``name.parquet`` below `root`.

    ``options.options`` may say ``column`` (``input_ids`` or ``tokens``) and ``compression`` (``zstd``, ``snappy`` or ``none``).
    """
    only(options.options, "column", "compression")
    return ParquetWriter(root, name, options)


class ParquetWriter(SinkWriter):
    """Writes one file, a row group of at most 16 MiB of ids at a time; a longer document is a row group."""

    suffix = ".parquet"
    compressions: tuple[str, ...] = ("zstd", "snappy", "none")

    def __init__(self, root: Path, name: str, options: WriteOptions) -> None:
        super().__init__()
        self._pa = require("pyarrow", extra="build")
        self._dtype = np.dtype(options.dtype)
        column = choice(options.options, "column", ID_COLUMNS)
        ids = self._pa.large_list(self._pa.field("element", self._pa.from_numpy_dtype(self._dtype), nullable=False))
        self._ids = self._pa.field(column, ids, nullable=False)
        self._compression = choice(options.options, "compression", self.compressions)
        self._writer: Any = None
        self._facts: list[DocumentFacts] | None = None
        self._columns: bool | None = None
        self._waiting: list[tuple[Ids, npt.NDArray[np.int64]]] = []
        self._waiting_facts: list[DocumentFacts] = []
        self._waiting_bytes = self._waiting_rows = 0
        self._sink = self.sink(root, f"{name}{self.suffix}")

    def add_facts(self, facts: Sequence[DocumentFacts]) -> None:
        """Say what is known of the documents that the next `add_documents` brings."""
        if self._columns is None:
            self._columns = not self.documents
        if not self._columns and any(one != DocumentFacts() for one in facts):
            raise UsageError(
                "USE003", "what is known of documents begins with the first of them", document=self.documents
            )
        self._facts = list(facts)

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the format has no place for them)
    ) -> None:
        """Append documents, each one row."""
        width = self._dtype.itemsize
        facts = self._facts or [DocumentFacts()] * len(lengths)
        self._facts = None
        ends = np.cumsum(lengths, dtype=np.int64)
        row = at = 0
        while row < len(lengths):
            room = (GROUP_BYTES - self._waiting_bytes) // width
            stop = int(np.searchsorted(ends, at + room, side="right"))
            stop = min(max(stop, row), row + GROUP_ROWS - self._waiting_rows)
            if stop == row and not self._waiting_rows:
                stop = row + 1
            if stop > row:
                end = int(ends[stop - 1])
                self._waiting.append((np.array(ids[at:end], dtype=self._dtype), lengths[row:stop]))
                self._waiting_facts += facts[row:stop]
                self._waiting_bytes += width * (end - at)
                self._waiting_rows += stop - row
                row, at = stop, end
            if row < len(lengths) or self._waiting_bytes >= GROUP_BYTES or self._waiting_rows >= GROUP_ROWS:
                self._flush()
        self.documents += len(lengths)
        self.tokens += len(ids)

    def _begin(self, target: Any) -> Any:
        parquet = require("pyarrow.parquet", extra="build")
        return parquet.ParquetWriter(
            target,
            self._schema,
            compression=self._compression,
            use_dictionary=[],
            store_schema=True,
            write_page_checksum=True,
        )

    def _flush(self) -> None:
        if not self._waiting_rows and self._writer is not None:
            return
        if self._writer is None:
            fields = [self._ids]
            if self._columns:
                fields += [self._pa.field(name, self._pa.string()) for name in COLUMNS]
            self._schema = self._pa.schema(fields)
            self._writer = self._begin(self._pa.PythonFile(_Target(self._sink), mode="w"))
            if not self._waiting_rows:
                return
        values = np.concatenate([ids for ids, _ in self._waiting])
        lengths = np.concatenate([lengths for _, lengths in self._waiting])
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        lists = self._pa.LargeListArray.from_arrays(
            self._pa.array(offsets), self._pa.array(values), type=self._ids.type
        )
        columns = {self._ids.name: lists}
        if len(self._schema) > 1:
            said = table_of(self._waiting_facts)
            columns |= {name: self._pa.array(said[name], self._pa.string()) for name in COLUMNS}
        try:
            self._writer.write_batch(self._pa.RecordBatch.from_arrays(list(columns.values()), schema=self._schema))
        except self._pa.ArrowException as error:
            raise write_error(self._sink.target, OSError(str(error))) from error
        self._waiting, self._waiting_facts, self._waiting_bytes, self._waiting_rows = [], [], 0, 0

    def _complete(self) -> None:
        self._flush()
        self._writer.close()


class _Target:
    """A sink as a file of Python's, for pyarrow."""

    closed = False

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sink.write(view)
        return len(view)

    def tell(self) -> int:
        return int(self._sink.bytes)

    def flush(self) -> None:
        """Do nothing: every write is one."""

    def close(self) -> None:
        self.closed = True
