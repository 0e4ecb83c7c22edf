"""Rows of ``documents.parquet`` while parts are built: one temporary per shard, put together in order at the end."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.documents import COLUMNS, DOCUMENTS, ID_KIND, RowsHasher, documents_schema, runs_by_shard
from tokenreel.errors import require
from tokenreel.store import atomic_write
from tokenreel.store.atomic import read_error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt

FOLDER = ".documents"
ROW_GROUP = 1 << 17


def rows_path(out: Path, part: str, split: str) -> Path:
    """Return where the rows of one shard wait."""
    return out / FOLDER / f"{part}.{split}.arrow"


class RowsWriter:
    """Streams the rows of one shard to its temporary; nothing is there unless the block ends well."""

    def __init__(self, stack: contextlib.ExitStack, out: Path, part: str, split: str) -> None:
        pa = require("pyarrow", extra="build")
        self._pa = pa
        self._schema = documents_schema()
        self._split = split
        self._shard = f"shards/{split}/{part}"
        self._count = 0
        self._hasher = RowsHasher()
        file = stack.enter_context(atomic_write(rows_path(out, part, split)))
        # One dictionary batch per record batch: sources may grow as records come.
        self._writer = stack.enter_context(pa.ipc.new_stream(file, self._schema))

    def add(
        self,
        ids: bytes,
        sources: Any,
        upstream: Sequence[str | None] | None,
        lengths: npt.NDArray[np.int64],
    ) -> None:
        """Append rows: 16 bytes of id each, a dictionary array of sources, upstream ids, stored lengths."""
        pa, count = self._pa, len(lengths)
        columns = [
            pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(ids)]),
            self._same(ID_KIND, count),
            sources,
            pa.nulls(count, pa.large_string()) if upstream is None else pa.array(upstream, pa.large_string()),
            self._same(self._split, count),
            self._same(self._shard, count),
            pa.array(np.arange(self._count, self._count + count)),
            pa.array(lengths.astype(np.int64, copy=False)),
            pa.nulls(count, pa.large_string()),
        ]
        batch = pa.record_batch(columns, schema=self._schema)
        self._hasher.update(batch)
        self._writer.write_batch(batch)
        self._count += count

    def _same(self, word: str, count: int) -> Any:
        pa = self._pa
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([word]))

    def hexdigest(self) -> str:
        """Return the digest of the rows, as `tokenreel.corpus.documents` defines it."""
        return self._hasher.hexdigest()


def rows_wait(out: Path, part: str, split: str, digest: str) -> bool:
    """Return whether the rows of one shard wait whole, with this digest."""
    pa = require("pyarrow", extra="build")
    hasher = RowsHasher()
    try:
        with rows_path(out, part, split).open("rb") as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                hasher.update(batch)
    except (OSError, pa.ArrowException, KeyError):
        return False
    return hasher.hexdigest() == digest


def restore_rows(out: Path, shards: Collection[str]) -> None:
    """Make the rows of these shards (names) wait again, from ``documents.parquet``; memory is a few batches.

    What reads back is checked by `rows_wait` afterwards.
    """
    if not shards:
        return
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    schema = documents_schema()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(parquet.ParquetFile(out / DOCUMENTS))
        inner = stack.enter_context(contextlib.ExitStack())
        open_shard, writer = "", None
        for batch in file.iter_batches(batch_size=1 << 16, columns=list(COLUMNS)):
            for shard, rows in runs_by_shard(batch):
                if shard not in shards:
                    continue
                if shard != open_shard:
                    inner.close()
                    _, split, part = shard.split("/")
                    target = inner.enter_context(atomic_write(rows_path(out, part, split)))
                    open_shard, writer = shard, inner.enter_context(pa.ipc.new_stream(target, schema))
                columns = [
                    column.dictionary_encode() if pa.types.is_dictionary(field.type) else column.cast(field.type)
                    for column, field in zip(rows.columns, schema, strict=True)
                ]
                if writer is not None:
                    writer.write_batch(pa.record_batch(columns, schema=schema))


def assemble(out: Path, shards: Iterable[tuple[str, str]]) -> None:
    """Write ``documents.parquet`` from the waiting rows of (part, split) in order; memory is one row group.

    The bytes depend on the rows and the version of pyarrow alone: rows are cut anew into groups of `ROW_GROUP`.
    """
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    plain = pa.schema([f.with_type(_plain(pa, f.type)) for f in documents_schema()])
    waiting: list[Any] = []
    count = 0
    with atomic_write(out / DOCUMENTS) as file:
        with parquet.ParquetWriter(file, plain, compression="zstd", store_schema=True) as writer:
            for part, split in shards:
                path = rows_path(out, part, split)
                try:
                    source = path.open("rb")
                except OSError as error:
                    raise read_error(path, error) from error
                with source, pa.ipc.open_stream(source) as batches:
                    for batch in batches:
                        waiting.append(pa.Table.from_batches([batch]).cast(plain))
                        count += batch.num_rows
                        while count >= ROW_GROUP:
                            table = pa.concat_tables(waiting)
                            writer.write_table(table.slice(0, ROW_GROUP).combine_chunks(), row_group_size=ROW_GROUP)
                            waiting = [table.slice(ROW_GROUP)]
                            count -= ROW_GROUP
            if count:
                writer.write_table(pa.concat_tables(waiting).combine_chunks(), row_group_size=ROW_GROUP)


def _plain(pa: Any, kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def clear(out: Path) -> None:
    """Remove all waiting rows."""
    shutil.rmtree(out / FOLDER, ignore_errors=True)
