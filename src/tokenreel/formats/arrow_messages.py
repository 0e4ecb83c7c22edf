"""Walk the messages of an Arrow stream or file, and find a column of lists in each record batch.

A message is ``FF FF FF FF``, the length of its metadata (i32), the metadata (a flatbuffer), and a body of buffers. Of the
metadata only places and lengths are taken, each looked at before it is used; nothing is decoded. A stream that does not end
with its end mark was cut. Source: Arrow's ``Message.fbs`` and its description of the columnar format.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import FormatError, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.store.base import Reader

FILE_MAGIC = b"ARROW1"
_CONTINUATION = b"\xff\xff\xff\xff"
_SCHEMA, _RECORDS = 1, 3
_LARGEST_METADATA = 16 << 20
_MOST_MESSAGES = 1 << 24


@dataclass(frozen=True, slots=True)
class Column:
    """Where the column of ids stands among the nodes and buffers of a batch."""

    name: str
    node: int
    """Of the lists; the ids' is the next one."""
    buffer: int
    """The first of the lists'."""
    wide: bool
    """Whether offsets are of 64 bits."""
    dtype: str
    """Of the ids, in NumPy's spelling."""
    size: int | None = None
    """Ids of every list, where all have as many: then there are no offsets."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The column of ids in one record batch: places are bytes of the file."""

    rows: int
    ids: int
    """Ids that its buffer has room for."""
    offsets_at: int
    """Of no meaning where all lists have as many ids."""
    ids_at: int
    validity: tuple[tuple[int, int, int], ...]
    """(place, bytes, items) of the bitmaps that are there."""


class Walk:
    """The column and the batches of an open file; raises `FormatError` (PQT007, and PQT002, PQT003, PQT006)."""

    def __init__(self, reader: Reader, names: tuple[str, ...]) -> None:
        self._reader = reader
        self._names = names
        self.in_file = reader.size >= 8 and reader.read(0, 6) == FILE_MAGIC
        self.at = 8 if self.in_file else 0
        """Where the next message begins."""
        self.last = False
        """Whether the column of ids is the last."""
        self.schema_at = (self.at, 0)
        """Byte and size of the schema's message."""
        try:
            self.column = self._schema()
        except FormatError:
            raise
        except (struct.error, ValueError, IndexError) as error:
            raise self._wrong("a schema", error) from error

    def _schema(self) -> Column:
        begin = self.at
        kind, _, body, _ = self.message()
        if kind != _SCHEMA or body:
            raise ValueError("another message first")
        pa = require("pyarrow", extra="build")
        ipc = require("pyarrow.ipc", extra="build")
        try:
            schema = ipc.read_schema(pa.py_buffer(self._reader.read(begin, self.at - begin)))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(str(error).splitlines()[0][:200]) from error
        self.schema_at = (begin, self.at - begin)
        column = _column(schema, self._names, self._reader.path)
        self.last = schema.names[-1] == column.name
        return column

    def batches(self) -> Iterator[Batch]:
        """Yield the batches in their order, to the end mark."""
        try:
            for _ in range(_MOST_MESSAGES):
                begin = self.at
                kind, table, body, body_at = self.message()
                if kind == 0:
                    break
                if kind == _RECORDS:
                    yield self.batch(table, body, body_at, begin)
        except FormatError:
            raise
        except (struct.error, ValueError, IndexError) as error:
            raise self._wrong("a message, and an end mark after the last", error) from error
        if self.in_file:
            tail = self._reader.read(max(0, self._reader.size - 10), min(10, self._reader.size))
            if tail[4:] != FILE_MAGIC or self.at + int.from_bytes(tail[:4], "little") + 10 != self._reader.size:
                raise self._wrong("a footer to the end of the file", "none")
        elif self.at != self._reader.size:
            raise self._wrong("the end of the file", f"{self._reader.size - self.at} bytes more")

    def message(self) -> tuple[int, _Table, int, int]:
        """Return (kind, header, bytes of the body, its place) of the next message, kind 0 for the end mark."""
        head = self._reader.read(self.at, min(8, self._reader.size - self.at))
        if len(head) < 8 or head[:4] != _CONTINUATION:
            raise ValueError("no message here")
        (length,) = struct.unpack_from("<i", head, 4)
        if length == 0:
            self.at += 8
            return 0, _Table(b"", 0), 0, 0
        if not 8 <= length <= min(_LARGEST_METADATA, self._reader.size - self.at - 8):
            raise ValueError(f"metadata of {length} bytes")
        data = self._reader.read(self.at + 8, length)
        message = _Table(data, struct.unpack_from("<I", data)[0])
        body = message.number(3, "<q")
        body_at = self.at + 8 + length
        if not 0 <= body <= self._reader.size - body_at:
            raise ValueError(f"a body of {body} bytes")
        header = message.table(2)
        if header is None:
            raise ValueError("a message without header")
        self.at = body_at + body
        return message.number(1, "<B"), header, body, body_at

    def body_of(self, metadata: bytes) -> int:
        """Return the bytes of the body that a message's metadata announces; struct.error or ValueError for what is none."""
        return int(_Table(metadata, struct.unpack_from("<I", metadata)[0]).number(3, "<q"))

    def batch(self, table: _Table, body: int, body_at: int, begin: int) -> Batch:
        """Return where the column is in a record batch whose message begins at `begin`."""
        if table.table(3) is not None:
            raise ValueError("compressed buffers")
        column = self.column
        rows = table.number(0, "<q")
        nodes, buffers = table.pairs(1), table.pairs(2)
        (length, nulls), (count, more) = nodes[column.node], nodes[column.node + 1]
        if nulls or more:
            raise FormatError(
                "PQT006", path=self._reader.path, offset=begin, expected="no nulls", found=f"{nulls} lists, {more} ids"
            )
        if not 0 <= length == rows or count < 0:
            raise ValueError(f"{length} lists in {rows} rows, {count} ids")
        width, itemsize = 8 if column.wide else 4, int(column.dtype[-1])
        parts = buffers[column.buffer : column.buffer + 4]
        if column.size is not None:
            if count < rows * column.size:
                raise ValueError(f"{rows} lists of {column.size} ids, {count} ids")
            width, parts = 0, [*parts[:1], (0, 0), *parts[1:3]]
        needs = (0, width * (rows + 1), 0, itemsize * count)
        if len(parts) < 4 or any(at < 0 or size < 0 or at + size > body for at, size in parts):
            raise ValueError("a buffer outside its body")
        if (rows and parts[1][1] < needs[1]) or parts[3][1] < needs[3]:
            raise ValueError(f"{parts[1][1]} bytes of offsets, {parts[3][1]} of ids")
        bitmaps = tuple(
            (body_at + parts[k][0], parts[k][1], items) for k, items in ((0, rows), (2, count)) if parts[k][1] and items
        )
        if any(8 * size < items for _, size, items in bitmaps):
            raise ValueError("a bitmap that is too short")
        return Batch(rows, count, body_at + parts[1][0], body_at + parts[3][0], bitmaps)

    def _wrong(self, expected: str, found: object) -> FormatError:
        said = str(found)[:200] or type(found).__name__
        return FormatError("PQT007", path=self._reader.path, offset=self.at, expected=expected, found=said)


class _Table:
    """A table of a flatbuffer; struct.error, IndexError or ValueError for places outside it."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def _field(self, number: int) -> int:
        vtable = self._at - struct.unpack_from("<i", self._data, self._at)[0]
        if vtable < 0:
            raise ValueError("a table outside its message")
        (size,) = struct.unpack_from("<H", self._data, vtable)
        if 4 + 2 * number + 2 > size:
            return 0
        (offset,) = struct.unpack_from("<H", self._data, vtable + 4 + 2 * number)
        return self._at + offset if offset else 0

    def number(self, number: int, kind: str) -> int:
        """Return a scalar, 0 where it is left out."""
        at = self._field(number)
        return int(struct.unpack_from(kind, self._data, at)[0]) if at else 0

    def table(self, number: int) -> _Table | None:
        """Return a table that a field refers to."""
        at = self._field(number)
        return _Table(self._data, at + struct.unpack_from("<I", self._data, at)[0]) if at else None

    def pairs(self, number: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two 64-bit integers."""
        at = self._field(number)
        if not at:
            return []
        at += struct.unpack_from("<I", self._data, at)[0]
        (count,) = struct.unpack_from("<I", self._data, at)
        if count > len(self._data) // 16:
            raise ValueError(f"a vector of {count}")
        return [struct.unpack_from("<qq", self._data, at + 4 + 16 * k) for k in range(count)]


def _column(schema: Any, names: tuple[str, ...], path: str) -> Column:
    pa = require("pyarrow", extra="build")
    wanted = next((name for name in names if name in schema.names), None)
    if wanted is None:
        raise FormatError("PQT002", path=path, expected="input_ids: list<int>", found=", ".join(schema.names)[:200])
    node = buffer = 0
    for field in schema:
        if field.name == wanted:
            kind = field.type
            fixed = pa.types.is_fixed_size_list(kind)
            lists = fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind)
            if not lists or not pa.types.is_integer(kind.value_type):
                raise FormatError("PQT003", path=path, expected="list<int>", found=str(kind)[:200])
            name = str(kind.value_type)
            dtype = f"{'u' if name[0] == 'u' else 'i'}{_bytes(name)}"
            wide = pa.types.is_large_list(kind)
            return Column(wanted, node, buffer, wide, dtype, int(kind.list_size) if fixed else None)
        nodes, buffers = _counts(pa, field.type)
        node, buffer = node + nodes, buffer + buffers
    raise FormatError("PQT002", path=path)


def _bytes(name: str) -> int:
    return int(name.removeprefix("u").removeprefix("int")) // 8


def _counts(pa: Any, kind: Any) -> tuple[int, int]:
    """Return the nodes and buffers that a column of a type has in a batch."""
    is_ = pa.types
    if is_.is_null(kind):
        return 1, 0
    if is_.is_dictionary(kind) or is_.is_primitive(kind) or is_.is_fixed_size_binary(kind) or is_.is_decimal(kind):
        return 1, 2
    if is_.is_string(kind) or is_.is_binary(kind) or is_.is_large_string(kind) or is_.is_large_binary(kind):
        return 1, 3
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind) or is_.is_map(kind):
        nodes, buffers = _counts(pa, kind.field(0).type if is_.is_map(kind) else kind.value_type)
        return 1 + nodes, (1 if is_.is_fixed_size_list(kind) else 2) + buffers
    if is_.is_struct(kind):
        inner = [_counts(pa, kind.field(k).type) for k in range(kind.num_fields)]
        return 1 + sum(nodes for nodes, _ in inner), 1 + sum(buffers for _, buffers in inner)
    raise ValueError(f"a column of {str(kind)[:100]}")
