"""Read a column of a Parquet file in bounded memory: pages are streamed, never a whole row group."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.parquet_pages import Budget, column_pages
from tokenreel.build.records import Records, upstream_id
from tokenreel.errors import SourceError, nearest, require
from tokenreel.store.atomic import read_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from tokenreel.build.records import SourceShape


def read_parquet(path: str, shape: SourceShape, chunk_bytes: int) -> Iterator[Records]:
    """Yield the records of a Parquet file in chunks of about `chunk_bytes` of text; a longer text is one chunk.

    Text columns are any kind of string. Memory is bounded by what is decoded, not by what is stored: pages are told by
    their headers (`tokenreel.build.parquet_pages`), and a dictionary's values are spread a chunk at a time. Raises
    `SourceError`: SRC008 the file lacks a column or it is not of strings, SRC007 two columns have its name, SRC006 a
    null, SRC001 bytes that are not UTF-8, SRC013 the file cannot be read as Parquet, SRC017 a page is too large;
    `StorageError` (STO001, STO002). Cost: about 1.3 ms a MB of text, most of it decompression.
    """
    pa = require("pyarrow", extra="build")
    record = 0
    try:
        for batch in _batches(path, shape, chunk_bytes):
            for part in _cut(pa, batch, shape, path, record, chunk_bytes):
                yield part
                record += len(part)
    except OSError as error:
        if isinstance(error, pa.ArrowException) or error.errno is None:
            raise SourceError("SRC013", _first_line(error), path=path) from error
        raise read_error(path, error) from error
    except pa.ArrowException as error:
        raise SourceError("SRC013", _first_line(error), path=path) from error


def _batches(path: str, shape: SourceShape, chunk_bytes: int) -> Iterator[Any]:
    """Yield the rows in batches that decode to a bounded number of bytes.

    A column that is all dictionary in a row group, of short values, is read as indices and values; any other as strings.
    Small batches are put together.
    """
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    columns = list(dict.fromkeys([*_named(shape), *shape.extra]))
    with contextlib.ExitStack() as stack:
        file = os.open(path, os.O_RDONLY)
        stack.callback(os.close, file)
        opened: dict[frozenset[str], Any] = {}

        def opening(dictionaries: frozenset[str]) -> Any:
            if dictionaries not in opened:
                options = {"read_dictionary": sorted(dictionaries), "buffer_size": 1 << 20, "pre_buffer": False}
                opened[dictionaries] = stack.enter_context(parquet.ParquetFile(path, memory_map=False, **options))
            return opened[dictionaries]

        whole = opening(frozenset())
        _check_columns(pa, whole.schema_arrow, path, shape)
        for number in range(whole.metadata.num_row_groups):
            group = whole.metadata.row_group(number)
            found = column_pages(file, group, set(columns), path)
            kept = frozenset(name for name, one in found.items() if one.small_steps)
            bounds = [found[name].pages for name in columns if name in found and name not in kept]
            budget = Budget(bounds, group.num_rows, chunk_bytes)
            if not found:
                continue
            reading = opening(kept)
            batches = reading.iter_batches(budget.ask(), row_groups=[number], columns=columns, use_threads=False)
            waiting: list[Any] = []
            size = 0
            for batch in batches:
                budget.take(batch.num_rows)
                # Looked at by the reader before every batch: it holds for the next one.
                reading.reader.set_batch_size(budget.ask())
                waiting.append(batch)
                size += batch.nbytes
                if size >= chunk_bytes // 2 or kept:
                    yield _joined(pa, waiting)
                    waiting, size = [], 0
            if waiting:
                yield _joined(pa, waiting)


def _named(shape: SourceShape) -> list[str]:
    return [name for name in (shape.text, shape.id, shape.source_field) if name is not None]


def _joined(pa: Any, batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    names = batches[0].schema.names
    columns = [pa.concat_arrays([batch.column(name) for batch in batches]) for name in names]
    return pa.RecordBatch.from_arrays(columns, names)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__


def _check_columns(pa: Any, schema: Any, path: str, shape: SourceShape) -> None:
    for name in dict.fromkeys([*_named(shape), *shape.extra]):
        if name not in schema.names:
            near = nearest(name, schema.names)
            hint = f'text = "{near}" in [[source]]' if near and name == shape.text else None
            raise SourceError(
                "SRC008",
                f"The file has no column {name!r}.",
                path=path,
                expected=name,
                found=", ".join(schema.names[:12]),
                hint=hint,
            )
        if schema.names.count(name) > 1:
            raise SourceError(
                "SRC007",
                f"Two columns have the name {name!r}.",
                path=path,
                expected="each name once",
                found=", ".join(schema.names[:12]),
                hint="rename one of them",
            )
        if name not in _named(shape):
            continue
        kind = schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        strings = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        if not strings and not (name == shape.id and name != shape.text and pa.types.is_integer(kind)):
            wanted = "strings" if name != shape.id else "strings or integers"
            raise SourceError(
                "SRC008", f"The column {name!r} must hold {wanted}.", path=path, expected=wanted, found=str(kind)
            )


def _cut(pa: Any, batch: Any, shape: SourceShape, path: str, record: int, chunk_bytes: int) -> Iterator[Records]:
    columns = {name: batch.column(name) for name in _named(shape)}
    more = {name: batch.column(name) for name in shape.extra}
    _refuse_null(columns[shape.text], shape.text, path, record)
    for name, column in {**columns, **more}.items():
        _check_indices(pa, column, name, path, record)
    ends = np.cumsum(np.sum([_sizes(pa, column) for column in columns.values()], axis=0))
    named = {name: _as_list(columns[name], name, path) for name in (shape.id, shape.source_field) if name is not None}
    begin = 0
    while begin < len(ends):
        # Rows may be uneven: a batch with far more text than foreseen is cut again.
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + 2 * chunk_bytes, side="right")))
        texts = _strings(pa, columns[shape.text][begin:end])
        ids = sources = None
        if shape.id is not None:
            ids = _values(named[shape.id](begin, end), path, record + begin)
        if shape.source_field is not None:
            sources = _values(named[shape.source_field](begin, end), path, record + begin)
            if "" in sources:
                at = record + begin + sources.index("")
                message = f"The column {shape.source_field!r}, which says a document's source, is empty."
                raise SourceError("SRC006", message, path=path, document=at)
        explain = _explainer(pa, texts, path, record + begin)
        extra = {name: _as_list(column, name, path)(begin, end) for name, column in more.items()}
        listed: list[str | None] | None = None if ids is None else list(ids)
        yield Records(texts, record + begin, listed, sources, columns=extra, explain=explain)
        begin = end


def _check_indices(pa: Any, column: Any, name: str, path: str, record: int) -> None:
    """Raise `SourceError` (SRC013) if a row refers to a value that the dictionary lacks: Arrow does not look."""
    if not pa.types.is_dictionary(column.type):
        return
    indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    bad = (indices < 0) | (indices >= max(1, len(column.dictionary)))
    if bool(bad.any()) or (not len(column.dictionary) and column.null_count < len(column)):
        at = int(bad.argmax())
        raise SourceError(
            "SRC013",
            f"A row of the column {name!r} refers to a value that its dictionary does not have.",
            path=path,
            document=record + at,
            expected=f"0..{len(column.dictionary) - 1}",
            found=int(indices[at]),
        )


def _sizes(pa: Any, column: Any) -> npt.NDArray[np.int64]:
    """Return the bytes of every row of a column."""
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        sizes = pc.binary_length(column.dictionary).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return sizes[indices] if len(sizes) else np.zeros(len(column), np.int64)
    if pa.types.is_integer(column.type):
        return np.full(len(column), 16, np.int64)
    found: npt.NDArray[np.int64] = (
        pc.binary_length(column.cast(pa.large_string())).fill_null(0).to_numpy(zero_copy_only=False)
    )
    return found


def _as_list(column: Any, name: str, path: str) -> Callable[[int, int], list[Any]]:
    """Return a function that gives rows of a column as Python's values; a dictionary's are made once."""

    def decoded(array: Any) -> list[Any]:
        try:
            values: list[Any] = array.to_pylist()
        except UnicodeDecodeError as error:
            message = f"The column {name!r} is not UTF-8."
            raise SourceError("SRC001", message, path=path, expected="UTF-8", found=error.reason) from error
        return values

    if not hasattr(column, "dictionary"):
        return lambda begin, end: decoded(column[begin:end])
    words = decoded(column.dictionary)
    return lambda begin, end: [None if k is None else words[k] for k in column.indices[begin:end].to_pylist()]


def _explainer(pa: Any, texts: Any, path: str, record: int) -> Callable[[], None]:
    def explain() -> None:
        raise _not_utf8(texts.cast(pa.large_binary()), path, record)

    return explain


def _refuse_null(column: Any, name: str, path: str, record: int) -> None:
    if column.null_count:
        at = int(np.argmax(np.asarray(column.is_null())))
        message = f"The column {name!r} must hold a string, and holds null."
        raise SourceError("SRC006", message, path=path, document=record + at, expected="a string", found="null")


def _strings(pa: Any, column: Any) -> Any:
    """Return rows without nulls as a ``LargeStringArray``; its UTF-8 is not checked."""
    if pa.types.is_dictionary(column.type):
        # As large strings first: the values of one chunk may be more than 2 GiB.
        words = column.dictionary.cast(pa.large_string())
        indices = column.indices.to_numpy()
        first = int(indices[0])
        if np.array_equal(indices, np.arange(first, first + len(indices))):
            return words[first : first + len(indices)]  # texts that differ from one another, as most do: no copy
        return words.take(column.indices)
    return column if column.type == pa.large_string() else column.cast(pa.large_string())


def _values(values: list[Any], path: str, record: int) -> list[str]:
    """Return ids or sources as strings."""
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
