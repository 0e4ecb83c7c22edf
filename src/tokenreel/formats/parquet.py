"""Read Parquet files with a column of lists of integers: ``input_ids``, or ``tokens``. Every row is a document.

A footer and page headers are looked at first (`parquet_footer`); then pyarrow decodes, about a million ids at a time. Where
documents begin is stored nowhere but in the column itself, so that the table is the column decoded once, and a document in
the middle of a row group costs what stands before it there. The extra [build] has pyarrow.
"""

from __future__ import annotations

import contextlib
import io
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError, require
from tokenreel.formats.base import Found
from tokenreel.formats.indexed import alike
from tokenreel.formats.loaded import LoadedShard
from tokenreel.formats.parquet_facts import FACTS, facts_of
from tokenreel.formats.parquet_footer import MAGIC, Footer, check_pages, read_footer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tokenreel.formats.base import Edges, Ids
    from tokenreel.formats.writing import DocumentFacts
    from tokenreel.store.base import Entry, Reader, Store

FORMAT = "parquet"
BATCH_IDS = 1 << 20
DOCUMENTS = "documents.parquet"
"""Of a corpus of ours: facts, no ids."""
_SUFFIX = ".parquet"
_KEPT = 3


def recognise(store: Store, entries: Sequence[Entry]) -> list[Found]:
    """Return the Parquet files of a listing that have a column of ids, or a footer that cannot be read.

    A file without such a column counts where its name is another's but for the digits, so that opening it says what is
    missing. Cost: the footer of each.
    """
    found: list[str] = []
    others: list[str] = []
    for path in (entry.path for entry in entries if entry.path.endswith(_SUFFIX)):
        if path.rpartition("/")[2] == DOCUMENTS:
            continue
        reader = store.reader(path)
        try:
            ours = bool(read_footer(reader).column)
        except FormatError:
            ours = True
        finally:
            reader.close()
        (found if ours else others).append(path)
    return [Found(FORMAT, path.removesuffix(_SUFFIX), (path,)) for path in (*found, *alike(others, found))]


def open_file(store: Store, path: str, *, accept: Collection[str] = ()) -> ParquetShard:
    """Open a file; O(row groups) where the footer says how many ids there are, else the column is decoded.

    Raises `FormatError`: PQT001 a file that is no Parquet file, PQT002 no column of ids, PQT003 one that holds no integers,
    PQT004 sizes that are absurd (may be accepted). `check_table` raises PQT005 for what does not decode to what the footer
    says, PQT006 for nulls.
    """
    reader = store.reader(path)
    try:
        footer = read_footer(reader)
        if not footer.column:
            found = ", ".join(footer.names)[:200]
            raise FormatError("PQT002", path=reader.path, expected="input_ids: list<int>", found=found)
        if "PQT004" not in accept:
            for chunk in footer.chunks:
                check_pages(reader, chunk, 8)
            for chunk in footer.facts:
                check_pages(reader, chunk, 1)
        kind = ParquetFactsShard if FACTS.intersection(footer.names) else ParquetShard
        return kind(store, path, reader, footer)
    except BaseException:
        reader.close()
        raise


class ParquetShard(LoadedShard):
    """One open file. Its ids are not contiguous: they are decoded. `byte_at` names where the row group's column begins."""

    def __init__(self, store: Store, path: str, reader: Reader, footer: Footer) -> None:
        self._footer = footer
        self._reader = reader
        self._file = opened(reader, FACTS.intersection(footer.names))
        dtype = self._dtype()
        told = [chunk.tokens for chunk in footer.chunks]
        tokens = sum(count for count in told if count is not None)
        found = Found(FORMAT, path.removesuffix(_SUFFIX), (path,))
        super().__init__(store, found, reader, dtype.str, 0, tokens, footer.rows)
        self._steps: list[int] = []
        self._batches: OrderedDict[tuple[int, int], Ids] = OrderedDict()
        self._stream: tuple[int, int, Iterator[Any]] | None = None
        self._firsts = np.concatenate(([0], np.cumsum([chunk.rows for chunk in footer.chunks], dtype=np.int64)))
        self._told = None not in told
        for chunk in footer.chunks:
            self._steps.append(max(1, min(chunk.rows, BATCH_IDS * chunk.rows // max(1, chunk.values))))
        if not self._told:
            self.check_table()
            self.tokens = int(self._table[-1])

    def _dtype(self) -> np.dtype[Any]:
        pa = require("pyarrow", extra="build")
        kind = self._file.schema_arrow.field(self._footer.column).type
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        if not lists or not pa.types.is_integer(kind.value_type):
            raise FormatError("PQT003", path=self._reader.path, expected="list<int>", found=str(kind)[:200])
        dtype: np.dtype[Any] = np.dtype(kind.value_type.to_pandas_dtype()).newbyteorder("<")
        return dtype

    def _load(self) -> Edges:
        edges = np.zeros(self.documents + 1, dtype=np.int64)
        at = 0
        for group, chunk in enumerate(self._footer.chunks):
            first = at
            for number in range(-(-chunk.rows // self._steps[group])):
                lengths = self._lengths(group, number)
                edges[at + 1 : at + 1 + len(lengths)] = lengths
                at += len(lengths)
            count = int(edges[first + 1 : at + 1].sum())
            if at - first != chunk.rows or count != (count if chunk.tokens is None else chunk.tokens):
                raise FormatError(
                    "PQT005",
                    path=self._reader.path,
                    offset=chunk.begin,
                    expected=f"{chunk.rows} rows of {chunk.tokens} ids, as the footer says",
                    found=f"{at - first} of {count}",
                )
        np.cumsum(edges, out=edges)
        return edges

    def _lengths(self, group: int, number: int) -> Edges:
        lengths: Edges
        lengths, ids = self._decoded(group, number)
        self._keep(group, number, ids)
        return lengths

    def _keep(self, group: int, number: int, ids: Ids) -> None:
        self._batches[group, number] = ids
        self._batches.move_to_end((group, number))
        if len(self._batches) > _KEPT:
            self._batches.popitem(last=False)

    def _batch(self, group: int, number: int) -> Ids:
        """Return the ids of a batch; of one that comes before the last that was read, its row group is read again."""
        found = self._batches.get((group, number))
        if found is None:
            _, found = self._decoded(group, number)
        self._keep(group, number, found)
        return found

    def _decoded(self, group: int, number: int) -> tuple[Edges, Ids]:
        stream = self._stream
        if stream is None or stream[0] != group or stream[1] > number:
            batches = self._file.iter_batches(
                self._steps[group], row_groups=[group], columns=[self._footer.column], use_threads=False
            )
            stream = (group, 0, batches)
        with _arrow_errors(self._reader, self._footer.chunks[group].begin):
            for _ in range(number - stream[1]):
                next(stream[2], None)
            batch = next(stream[2], None)
        self._stream = (group, number + 1, stream[2])
        if batch is None:
            begin = self._footer.chunks[group].begin
            raise FormatError("PQT005", path=self._reader.path, offset=begin, expected="more rows", found="none")
        return lists_of(batch.column(0), self._reader.path, int(self._firsts[group]) + number * self._steps[group])

    def _gather(self, begin: int, end: int) -> Ids:
        first = int(np.searchsorted(self._table, begin, side="right")) - 1
        last = int(np.searchsorted(self._table, end, side="left"))
        parts = []
        row = first
        while row < last:
            group = int(np.searchsorted(self._firsts, row, side="right")) - 1
            step = self._steps[group]
            number = (row - int(self._firsts[group])) // step
            at = int(self._firsts[group]) + number * step
            stop = min(at + step, int(self._firsts[group + 1]))
            ids = self._batch(group, number)
            low, high = int(self._table[at]), int(self._table[stop])
            parts.append(ids[max(begin, low) - low : min(end, high) - low])
            row = stop
        return np.concatenate(parts) if len(parts) > 1 else parts[0].view()

    def byte_at(self, position: int) -> tuple[str, int]:
        """Return the file, and the byte where the column of a token's row group begins."""
        self.check_table()
        row = int(np.searchsorted(self._table, position, side="right")) - 1
        group = min(int(np.searchsorted(self._firsts, row, side="right")) - 1, len(self._footer.chunks) - 1)
        return self.files[0], self._footer.chunks[group].begin if group >= 0 else len(MAGIC)

    def close(self) -> None:
        """Give the handle back; arrays handed out stay valid."""
        self._stream = None
        self._batches.clear()
        super().close()


class ParquetFactsShard(ParquetShard):
    """A file that has columns of what is known of documents, too."""

    def facts(self, i: int, j: int) -> Sequence[DocumentFacts]:
        """Return ids, sources and metadata of documents [i, j)."""
        self._in_range(i, j)
        with _arrow_errors(self._reader, 0):
            return facts_of(self._file, self._reader.path, self._firsts, i, j)


def lists_of(column: Any, path: str, first: int) -> tuple[Edges, Ids]:
    """Return (lengths, ids) of a batch of lists; raises `FormatError` (PQT006) for nulls."""
    compute = require("pyarrow.compute", extra="build")
    if column.null_count:
        row = first + int(compute.index(column.is_null(), value=True).as_py())
        raise FormatError("PQT006", path=path, document=row, expected="a list", found="null")
    values = column.flatten()
    lengths: Edges = compute.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    if values.null_count:
        at = int(compute.index(values.is_null(), value=True).as_py())
        row = int(np.searchsorted(np.cumsum(lengths), at, side="right"))
        raise FormatError("PQT006", path=path, document=first + row, expected="an id", found="null")
    ids: Ids = values.to_numpy(zero_copy_only=True)
    return lengths, ids


def opened(reader: Reader, dictionaries: frozenset[str]) -> Any:
    """Return a file as pyarrow reads it, checksums of pages included; raises `FormatError` (PQT005)."""
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    with _arrow_errors(reader, 0):
        source = pa.PythonFile(_Stream(reader), mode="r")
        return parquet.ParquetFile(
            source,
            memory_map=False,
            pre_buffer=False,
            buffer_size=1 << 20,
            page_checksum_verification=True,
            read_dictionary=sorted(dictionaries),
        )


@contextlib.contextmanager
def _arrow_errors(reader: Reader, offset: int) -> Iterator[None]:
    pa = require("pyarrow", extra="build")
    try:
        yield
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        if getattr(error, "code", None) is not None:  # ours, from the reader below
            raise
        said = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        raise FormatError(
            "PQT005", path=reader.path, offset=offset, expected="pages that decode", found=said
        ) from error


class _Stream(io.RawIOBase):
    """A `Reader` as a file of Python's, for pyarrow."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._reader.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._reader.size - self._at)
        take = left if size is None or size < 0 else min(left, size)
        data = self._reader.read(self._at, take)
        self._at += take
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
