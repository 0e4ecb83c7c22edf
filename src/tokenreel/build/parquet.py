"""Read a column of a Parquet file in bounded memory: pages are streamed, never a whole row group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.records import Records, upstream_id
from tokenreel.errors import SourceError, nearest, require
from tokenreel.store.atomic import read_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokenreel.build.records import SourceShape

_MOST_ROWS = 1 << 16


def read_parquet(path: str, shape: SourceShape, chunk_bytes: int) -> Iterator[Records]:
    """Yield the records of a Parquet file in chunks of about `chunk_bytes` of text; a longer text is one chunk.

    Text columns are any kind of string. Raises `SourceError`: SRC008 the file lacks a column or it is not of strings,
    SRC006 a null, SRC001 bytes that are not UTF-8, SRC013 the file cannot be read as Parquet; `StorageError` (STO001,
    STO002). Cost: about 1 ms a MB of text.
    """
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    columns = list(dict.fromkeys(n for n in (shape.text, shape.id, shape.source_field) if n is not None))
    record = 0
    try:
        with parquet.ParquetFile(path, memory_map=False, buffer_size=1 << 20, pre_buffer=False) as file:
            _check_columns(pa, file.schema_arrow, path, shape)
            rows = _batch_rows(file.metadata, shape.text, chunk_bytes)
            for batch in file.iter_batches(batch_size=rows, columns=columns, use_threads=False):
                for part in _cut(pa, batch, shape, path, record, chunk_bytes):
                    yield part
                    record += len(part)
    except OSError as error:
        if isinstance(error, pa.ArrowException) or error.errno is None:
            raise SourceError("SRC013", _first_line(error), path=path) from error
        raise read_error(path, error) from error
    except pa.ArrowException as error:
        raise SourceError("SRC013", _first_line(error), path=path) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__


def _check_columns(pa: Any, schema: Any, path: str, shape: SourceShape) -> None:
    for name in (shape.text, shape.id, shape.source_field):
        if name is None:
            continue
        if name not in schema.names:
            near = nearest(name, schema.names)
            hint = f'text = "{near}" in [[source]]' if near and name == shape.text else None
            raise SourceError(
                "SRC008", f"no column {name!r}", path=path, expected=name, found=", ".join(schema.names[:12]), hint=hint
            )
        kind = schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        strings = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        if not strings and not (name == shape.id and name != shape.text and pa.types.is_integer(kind)):
            wanted = "strings" if name != shape.id else "strings or integers"
            raise SourceError("SRC008", f"the column {name!r}", path=path, expected=wanted, found=str(kind))


def _batch_rows(metadata: Any, column: str, chunk_bytes: int) -> int:
    """Return how many rows have about `chunk_bytes` of text, by the densest row group's footer."""
    dense = 1.0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for at in range(group.num_columns):
            chunk = group.column(at)
            if chunk.path_in_schema == column and group.num_rows:
                dense = max(dense, chunk.total_uncompressed_size / group.num_rows)
    return max(1, min(_MOST_ROWS, int(chunk_bytes / dense)))


def _cut(pa: Any, batch: Any, shape: SourceShape, path: str, record: int, chunk_bytes: int) -> Iterator[Records]:
    texts = _strings(pa, batch.column(shape.text), shape.text, path, record)
    ids = None if shape.id is None else _values(batch.column(shape.id), shape.id, path, record)
    sources = None
    if shape.source_field is not None:
        sources = _values(batch.column(shape.source_field), shape.source_field, path, record)
        if "" in sources:
            message = f"the column {shape.source_field!r} is empty"
            raise SourceError("SRC006", message, path=path, document=record + sources.index(""))
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    begin = 0
    while begin < len(texts):
        # Rows may be uneven: a batch with far more text than foreseen is cut again.
        fit = int(np.searchsorted(offsets, offsets[begin] + 2 * chunk_bytes, side="right")) - 1
        end = min(len(texts), max(begin + 1, fit))
        yield Records(
            texts[begin:end],
            record + begin,
            None if ids is None else list(ids[begin:end]),
            None if sources is None else sources[begin:end],
            explain=_explainer(pa, texts[begin:end], path, record + begin),
        )
        begin = end


def _explainer(pa: Any, texts: Any, path: str, record: int) -> Callable[[], None]:
    def explain() -> None:
        raise _not_utf8(texts.cast(pa.large_binary()), path, record)

    return explain


def _strings(pa: Any, column: Any, name: str, path: str, record: int) -> Any:
    """Return a column as a ``LargeStringArray`` without nulls; its UTF-8 is not checked."""
    if column.null_count:
        at = int(np.argmax(np.asarray(column.is_null())))
        raise SourceError(
            "SRC006", f"the column {name!r}", path=path, document=record + at, expected="a string", found="null"
        )
    return column if column.type == pa.large_string() else column.cast(pa.large_string())


def _values(column: Any, name: str, path: str, record: int) -> list[str]:
    """Return a column of ids or sources as strings."""
    try:
        values = column.to_pylist()
    except UnicodeDecodeError as error:
        raise SourceError("SRC001", f"the column {name!r}", path=path, expected="UTF-8", found=error.reason) from error
    return [upstream_id(value, path=path, record=record + number) for number, value in enumerate(values)]


def _not_utf8(array: Any, path: str, record: int) -> SourceError:
    for number, value in enumerate(array):
        data = value.as_py()
        try:
            data.decode()
        except UnicodeDecodeError as error:
            found = f"0x{data[error.start]:02x} ({error.reason})"
            message = f"byte {error.start} of the text"
            return SourceError("SRC001", message, path=path, document=record + number, expected="UTF-8", found=found)
    return SourceError("SRC013", "a damaged column", path=path, document=record)
