"""The rows of ``documents.parquet``, and the digest of their contents that no version of pyarrow changes.

Rows stand in the order of the corpus: shards in order, documents in order within each. Columns, all but `upstream_id`
and `metadata` without nulls: ``id`` (16 bytes: XXH3-128 of the document's exact UTF-8 text, canonical order), ``kind``
(of the id: ``text``), ``source``, ``upstream_id``, ``split``, ``shard`` (its name), ``index`` (in the shard), ``length``
(stored tokens), ``metadata`` (JSON).

The digest of a shard's rows is the SHA-256 over the SHA-256 of each column in that order; a column's covers, per row,
its length in bytes (int64 LE, -1 for null) in one stream and the bytes end to end in a second, integers as int64 LE.
The digest of a file is `sha256_lines` over (digest, shard name). Neither depends on batches or row groups.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import ManifestError, require
from tokenreel.hashing import sha256_lines

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

DOCUMENTS = "documents.parquet"
COLUMNS = ("id", "kind", "source", "upstream_id", "split", "shard", "index", "length", "metadata")
ID_KIND = "text"


def documents_schema() -> Any:
    """Return the Arrow schema of the file."""
    pa = require("pyarrow", extra="build")
    word = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            pa.field("id", pa.binary(16), nullable=False),
            pa.field("kind", word, nullable=False),
            pa.field("source", word, nullable=False),
            pa.field("upstream_id", pa.large_string()),
            pa.field("split", word, nullable=False),
            pa.field("shard", word, nullable=False),
            pa.field("index", pa.int64(), nullable=False),
            pa.field("length", pa.int64(), nullable=False),
            pa.field("metadata", pa.large_string()),
        ]
    )


class RowsHasher:
    """Digest of one shard's rows, batch by batch.

    >>> RowsHasher().hexdigest()[:8]
    '6ec84222'
    """

    def __init__(self) -> None:
        self._columns = [(hashlib.sha256(), hashlib.sha256()) for _ in COLUMNS]
        self.rows = 0

    def update(self, batch: Any) -> None:
        """Add the rows of a record batch or table with the columns of `documents_schema`."""
        for name, (sizes, data) in zip(COLUMNS, self._columns, strict=True):
            for chunk in _chunks(batch.column(name)):
                _add(chunk, sizes, data)
        self.rows += batch.num_rows

    def hexdigest(self) -> str:
        """Return the digest of everything added."""
        whole = hashlib.sha256()
        for sizes, data in self._columns:
            whole.update(hashlib.sha256(sizes.digest() + data.digest()).digest())
        return whole.hexdigest()


def _chunks(column: Any) -> Iterator[Any]:
    yield from getattr(column, "chunks", None) or ([column] if not hasattr(column, "chunks") else [])


def _add(array: Any, sizes: Any, data: Any) -> None:
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_integer(array.type):
        data.update(array.cast(pa.int64()).to_numpy(zero_copy_only=False).astype("<i8").tobytes())
        sizes.update(np.full(len(array), 8, "<i8").tobytes())
        return
    if pa.types.is_fixed_size_binary(array.type) or array.type != pa.large_binary():
        array = array.cast(pa.large_binary())
    offsets = np.frombuffer(array.buffers()[1], "<i8")[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets).astype("<i8")
    if array.null_count:
        lengths[np.asarray(array.is_null())] = -1
    sizes.update(lengths.tobytes())
    if array.buffers()[2] is not None and len(array):
        data.update(memoryview(array.buffers()[2])[int(offsets[0]) : int(offsets[-1])])


def file_digest(shards: dict[str, str]) -> str:
    """Return the digest of a file's contents from those of its shards' rows, by shard name."""
    return sha256_lines(shards.items())


def documents_digests(path: str | os.PathLike[str]) -> dict[str, tuple[int, str]]:
    """Return (rows, digest of the rows) by shard for a file on disk; streams, a row group at a time.

    Raises `ManifestError` (MAN003) if it is no such file, or the rows of a shard do not stand together.
    """
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    done: dict[str, tuple[int, str]] = {}
    open_shard, hasher = None, RowsHasher()
    try:
        with parquet.ParquetFile(path) as file:
            missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
            if missing:
                raise ManifestError("MAN003", f"it lacks the column {missing[0]!r}", path=path)
            for batch in file.iter_batches(batch_size=1 << 16, columns=list(COLUMNS)):
                for shard, rows in runs_by_shard(batch):
                    if shard != open_shard:
                        if open_shard is not None:
                            done[open_shard] = (hasher.rows, hasher.hexdigest())
                        if shard in done:
                            raise ManifestError("MAN003", f"rows of {shard} do not stand together", path=path)
                        open_shard, hasher = shard, RowsHasher()
                    hasher.update(rows)
    except pa.ArrowException as error:
        raise ManifestError("MAN003", f"cannot be read: {str(error).splitlines()[0]}", path=path) from error
    if open_shard is not None:
        done[open_shard] = (hasher.rows, hasher.hexdigest())
    return done


def runs_by_shard(batch: Any) -> Iterator[tuple[str, Any]]:
    """Yield (shard's name, rows) for every run of rows of one shard in a batch, in order."""
    import pyarrow as pa

    names = batch.column("shard")
    codes = names.indices if pa.types.is_dictionary(names.type) else names.dictionary_encode().indices
    numbers = codes.to_numpy(zero_copy_only=False)
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for begin, end in pairwise(edges):
        if end > begin:
            yield str(names[begin].as_py()), batch.slice(begin, end - begin)
