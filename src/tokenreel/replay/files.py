"""The Parquet files of a replay index: three columns, one file a task, rows in the order of the store.

``source_id`` (string), ``document_id`` (16 bytes), ``bucket_id`` (int32). Source: Snowball's replay index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import ReplayError, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.store import Store

COLUMNS = ("source_id", "document_id", "bucket_id")
FOLDER = "index"
ROWS = 1 << 16
"""Rows of a batch and of a row group."""
GROUP_ROWS = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Documents of an index: parallel arrays."""

    source: npt.NDArray[np.int32]
    """Number in `sources`."""
    sources: tuple[str, ...]
    words: npt.NDArray[np.uint64]
    """The bytes of all ids, two words each as they lie in the file: most significant byte first."""
    bucket: npt.NDArray[np.int32]

    @property
    def ids(self) -> npt.NDArray[np.uint64]:
        """Return (rows, 2): high and low half of each 128-bit id."""
        import numpy as np

        return self.words.view(">u8").reshape(-1, 2).astype(np.uint64)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.bucket)


def index_schema() -> Any:
    """Return the Arrow schema of the files."""
    pa = require("pyarrow", extra="build")
    return pa.schema(
        [
            pa.field("source_id", pa.string(), nullable=False),
            pa.field("document_id", pa.binary(16), nullable=False),
            pa.field("bucket_id", pa.int32(), nullable=False),
        ]
    )


def file_name(task: int) -> str:
    """Return a task's path below the index.

    >>> file_name(12)
    'index/task-000012.parquet'
    """
    return f"{FOLDER}/task-{task:06d}.parquet"


def batch_of(sources: Sequence[str], ids: Sequence[bytes], buckets: npt.ArrayLike) -> Any:
    """Return an Arrow batch of rows."""
    import numpy as np
    import pyarrow as pa

    columns = [
        pa.array(sources, pa.string()),
        pa.array(ids, pa.binary(16)),
        pa.array(np.asarray(buckets, dtype=np.int32)),
    ]
    return pa.record_batch(columns, schema=index_schema())


def read_batches(store: Store, path: str, columns: Sequence[str] = COLUMNS) -> Iterator[Any]:
    """Yield a file's rows as Arrow batches, sources as dictionaries; about `GROUP_ROWS` rows are held at once.

    Raises `ReplayError` (RPL016) for another schema or broken bytes.
    """
    pa = require("pyarrow", extra="build")
    reader = store.reader(path)
    try:
        yield from batches_of(pa.PythonFile(StoreFile(reader), mode="r"), path, columns)
    finally:
        reader.close()


def batches_of(source: Any, path: str, columns: Sequence[str] = COLUMNS) -> Iterator[Any]:
    """Yield the rows of an open Parquet file as `read_batches` does; `source` is what Arrow can read from."""
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    try:
        metadata = parquet.read_metadata(source)
        check_schema(metadata.schema.to_arrow_schema(), path)
        with parquet.ParquetFile(source, metadata=metadata, read_dictionary=["source_id"]) as file:
            for groups in _groups(metadata):
                yield from file.iter_batches(ROWS, row_groups=groups, columns=list(columns), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and hasattr(error, "code"):
            raise
        raise ReplayError("RPL016", f"cannot be read: {str(error).splitlines()[0]}", path=path) from error


def _groups(metadata: Any) -> Iterator[list[int]]:
    """Yield runs of row groups of about `GROUP_ROWS` rows: what one iterator gives stays in memory until its end."""
    run: list[int] = []
    rows = 0
    for group in range(metadata.num_row_groups):
        run.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= GROUP_ROWS:
            yield run
            run, rows = [], 0
    if run:
        yield run


def check_schema(found: Any, path: str) -> None:
    """Raise `ReplayError` (RPL016) unless a file has the three columns with types that can hold their values."""
    import pyarrow as pa

    def told() -> str:
        return ", ".join(f"{field.name}: {field.type}" for field in found)

    expected = "source_id: string, document_id: 16 bytes, bucket_id: an integer"
    if tuple(sorted(found.names)) != tuple(sorted(COLUMNS)):
        raise ReplayError("RPL016", path=path, expected=expected, found=told())
    text, key, bucket = (_plain_type(found.field(name).type) for name in COLUMNS)
    text_ok = pa.types.is_string(text) or pa.types.is_large_string(text) or _is(text, "string_view")
    key_ok = (
        pa.types.is_binary(key)
        or pa.types.is_large_binary(key)
        or (pa.types.is_fixed_size_binary(key) and key.byte_width == 16)
    )
    if not (text_ok and key_ok and pa.types.is_integer(bucket)):
        raise ReplayError("RPL016", path=path, expected=expected, found=told())


def rows_of(batch: Any, path: str, first: int = 0) -> Rows:
    """Return a batch's rows as arrays.

    Raises `ReplayError`: RPL017 for an id that is no 16 bytes, or a null, RPL016 for a source that is no UTF-8.
    """
    import numpy as np
    import pyarrow as pa

    for name in COLUMNS:
        if batch.column(name).null_count:
            row = int(np.asarray(batch.column(name).is_null()).argmax())
            raise ReplayError("RPL017", f"{name} is null", path=path, document=first + row)
    try:
        source, names = _coded(batch.column("source_id"))
    except (UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise ReplayError("RPL016", f"source_id is not UTF-8: {error}", path=path) from error
    bucket = batch.column("bucket_id")
    if pa.types.is_dictionary(bucket.type):
        bucket = bucket.dictionary_decode()
    numbers = bucket.to_numpy(zero_copy_only=False)
    if numbers.dtype != np.int32:
        numbers = np.clip(numbers.astype(np.int64), -1, 1 << 30).astype(np.int32)
    return Rows(source, names, _words(batch.column("document_id"), path, first), numbers)


def _coded(column: Any) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    """Return a column of sources as numbers and names."""
    import numpy as np
    import pyarrow as pa

    if not len(column):
        return np.empty(0, dtype=np.int32), ()
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    names = column.dictionary.cast(pa.string()).to_pylist()
    return np.asarray(column.indices.to_numpy(zero_copy_only=False), dtype=np.int32), tuple(names)


def _words(column: Any, path: str, first: int) -> npt.NDArray[np.uint64]:
    import numpy as np
    import pyarrow as pa

    rows = len(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not rows:
        return np.empty(0, dtype=np.uint64)
    if pa.types.is_fixed_size_binary(column.type):
        begin = column.offset * 16
        return np.frombuffer(column.buffers()[1], np.uint8)[begin : begin + 16 * rows].view(np.uint64)
    wide = column.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], "<i8")[wide.offset : wide.offset + rows + 1]
    sizes = np.diff(offsets)
    if bool((sizes != 16).any()):
        row = int((sizes != 16).argmax())
        raise ReplayError(
            "RPL017", path=path, document=first + row, expected="16 bytes", found=f"{int(sizes[row])} bytes"
        )
    data = np.frombuffer(wide.buffers()[2], np.uint8)[int(offsets[0]) : int(offsets[-1])]
    return data.copy().view(np.uint64)


def _plain_type(kind: Any) -> Any:
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is(kind: Any, name: str) -> bool:
    return str(kind) == name


class StoreFile:
    """A store's reader as a file that Arrow can read: `read`, `seek`, `tell`, `size`, no more."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._at = 0
        self.closed = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def size(self) -> int:
        """Return the bytes of the file."""
        return int(self._reader.size)

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position."""
        self._at = offset + (0 if whence == 0 else self._at if whence == 1 else self.size())
        return self._at

    def read(self, count: int | None = -1) -> bytes:
        """Return at most `count` bytes from the position on."""
        left = self.size() - self._at
        length = left if count is None or count < 0 else min(count, left)
        data = self._reader.read(self._at, length) if length > 0 else b""
        self._at += len(data)
        return bytes(data)

    def close(self) -> None:
        """Close; the reader stays its owner's."""
        self.closed = True

    def flush(self) -> None:
        """Do nothing."""
