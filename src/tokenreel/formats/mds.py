"""Read MDS shards, as mosaicml-streaming writes them: records of named columns, one of which holds ids.

Little endian. A shard is a number of records n (u32), n + 1 offsets in the file (u32), the shard's own description as
JSON, and the records. A record is the sizes (u32) of its columns of varying size, then its columns, in the order of their
names. Ids are a column ``ndarray:uint16:2048`` (dtype and length fixed), ``ndarray:uint16`` (each record says its length),
``ndarray`` (and its dtype), or ``bytes``, whose dtype nothing says: it is given, or proved. Every record is a document.
Some writers cut one stream of documents into records of equal length: then records are windows, and say nothing of
documents.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError, StorageError
from tokenreel.formats.base import Found
from tokenreel.formats.indexed import parsed
from tokenreel.formats.loaded import LoadedShard, full_path
from tokenreel.formats.mds_index import (
    DTYPES,
    INDEX,
    Column,
    ShardInfo,
    array_of,
    columns_of,
    parse_index,
    token_column,
)
from tokenreel.formats.mds_records import Records, locate
from tokenreel.formats.unpacking import UnpackedReader
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tokenreel.formats.base import Edges, Ids
    from tokenreel.store.base import Entry, Reader, Store

FORMAT = "mds"
BYTES_DTYPES = {name: DTYPES[name] for name in ("uint16", "uint32", "int32", "int64")}
"""What a column of bytes may hold; the format is then called ``mds-uint16`` and so on."""
GIVEN = tuple(BYTES_DTYPES)
WAITING = f"{FORMAT}-"
_SUFFIX = ".mds"
_LARGEST_CONFIG = 1 << 20


def recognise(store: Store, entries: Sequence[Entry]) -> list[Found]:
    """Return the MDS shards of a listing, in the order of the index that names them; shards of bytes wait for a dtype.

    Shards that an index names count whether they are there or not, so that opening says what is missing; so does a file
    ``*.mds`` that no index names. Cost: one read of each index, and of the table of one shard of bytes.
    """
    have = {entry.path for entry in entries}
    folders = {path.rpartition("/")[0] for path in have if _SUFFIX in path.rpartition("/")[2]}
    indices = sorted(
        (path for path in have if path.rpartition("/")[2] == INDEX), key=lambda path: (path.count("/"), path)
    )
    found: dict[str, Found] = {}
    for index in indices:
        if index.rpartition("/")[0] not in folders and not _is_index(store, index):
            continue
        for path, info in parsed(store, index, parse_index).items():
            if path == info.raw.path:
                here = path if path in have or info.packed is None else info.packed.path
                name = path.removesuffix(_SUFFIX)
                order = f"{index.rpartition('/')[0]}/{info.order:012d}"
                found.setdefault(name, Found(kind_of(info.columns), name, (here,), order))
    taken = {file for shard in found.values() for file in shard.files}
    for path in sorted(have - taken):
        name = path.removesuffix(_SUFFIX)
        if path.endswith(_SUFFIX) and name not in found:
            columns = _own_columns(store, path)
            found[name] = Found(FORMAT if columns is None else kind_of(columns), name, (path,))
    return _told(store, list(found.values()))


def _is_index(store: Store, path: str) -> bool:
    """Return whether an ``index.json`` beside which no shards are is one of MDS, by its content."""
    data = store.read(path)
    try:
        value = loads_strict(data, path) if b'"shards"' in data else None
    except ValueError:
        return False
    shards = value.get("shards") if isinstance(value, dict) else None
    return isinstance(shards, list) and all(isinstance(one, dict) and one.get("format") == "mds" for one in shards)


def kind_of(columns: tuple[Column, ...]) -> str:
    """Return the name of the format of shards with these columns; that of bytes waits for a dtype."""
    column = token_column(columns)
    return WAITING if column is not None and column.encoding == "bytes" else FORMAT


def _told(store: Store, found: list[Found]) -> list[Found]:
    """Give shards of bytes their dtype where the sizes of the first one's records leave no other: only two divides them."""
    first = next((shard for shard in found if shard.format == WAITING), None)
    if first is None:
        return found
    try:
        shard = _open(store, first.files[0], np.dtype("u1"))
    except (FormatError, OSError):
        return found
    try:
        width = int(np.gcd.reduce(np.diff(shard.document_edges(0, shard.documents)), initial=0))
    except FormatError:
        return found
    finally:
        shard.close()
    if width % 4 == 2:
        return [
            Found(f"{FORMAT}-uint16", one.name, one.files, one.order) if one.format == WAITING else one for one in found
        ]
    return found


def prove(store: Store, path: str, vocab: int) -> str | None:
    """Return the one dtype under which the ids of a shard of bytes are all inside [0, vocab), or None. Reads 1 MiB.

    A number that is not negative is the same in uint32 and int32: of the two, int32 is told.
    """
    shard = _open(store, path, np.dtype("u1"))
    try:
        edges = shard.document_edges(0, shard.documents)
        whole = int(edges[max(1, int(np.searchsorted(edges, 1 << 20, side="right"))) - 1])
        data = shard.read(0, whole).tobytes()
        sizes = np.diff(edges)
    finally:
        shard.close()
    possible = []
    for dtype, kind in BYTES_DTYPES.items():
        if dtype == "uint32" or not data or bool((sizes % kind.itemsize).any()):
            continue
        ids = np.frombuffer(data, kind)
        if int(ids.min()) >= 0 and int(ids.max()) < vocab and not contradiction(data, kind):
            possible.append(dtype)
    return possible[0] if len(possible) == 1 else None


def contradiction(data: bytes, kind: np.dtype[Any]) -> str:
    """Return why ids of a dtype cannot be what some bytes hold, or an empty string.

    >>> contradiction(np.arange(1, 1000, dtype="<i8").tobytes(), np.dtype("<i4"))
    '100 % of every second id are zero: wider ids look like that'
    """
    ids = np.frombuffer(data, kind)
    if len(ids) < _EVIDENCE:
        return ""
    share, others = (float((ids[k::2] == 0).mean()) for k in (1, 0))
    if kind.itemsize < 8 and share >= _INTERLEAVED and others <= 0.6 * share:
        return f"{share:.0%} of every second id are zero: wider ids look like that".replace("%", " %")
    share = float(((ids < 0) | (ids >= _NO_VOCABULARY)).mean())
    if share >= _INTERLEAVED and kind.itemsize > 2:
        return f"{share:.0%} of the ids are in no vocabulary: narrower ids look like that".replace("%", " %")
    return ""


_EVIDENCE = 32
"""Ids that say something about their width."""
_INTERLEAVED = 0.4
_NO_VOCABULARY = 1 << 24


def open_file(store: Store, path: str, *, accept: Collection[str] = ()) -> MdsShard:
    """Open a shard of arrays; O(1) where it is not compressed, else it is decompressed.

    Raises `FormatError`: MDS001 an index that is none, MDS002 a file that is missing or that no index names, MDS003 a
    header that does not fit the file, MDS004 a size that the index does not say, MDS005 columns or MDS006 records that the
    index does not say, MDS007 no column of ids, or several, MDS008 a column of something else, MDS011 .. MDS013 compressed
    files that are not read, not whole, or absurd. `check_table` raises MDS009 and MDS010 for records that are not whole.

    >>> from tokenreel.store import MemoryStore
    >>> config = b'{"column_encodings": ["ndarray:uint16:2"], "column_names": ["tokens"], "column_sizes": [4]}'
    >>> head = np.array([1, 12 + len(config), 16 + len(config)], "<u4").tobytes()
    >>> shard = open_file(MemoryStore({"a.mds": head + config + b"abcd"}), "a.mds")
    >>> shard.documents, shard.dtype.name, shard.read(0, 2).tolist()
    (1, 'uint16', [25185, 25699])
    """
    return _open(store, path, None, accept)


def open_uint16(store: Store, path: str, *, accept: Collection[str] = ()) -> MdsShard:
    """Open a shard of bytes that hold uint16; as `open_file`, and MDS015 for bytes that look otherwise."""
    return _open(store, path, BYTES_DTYPES["uint16"], accept)


def open_uint32(store: Store, path: str, *, accept: Collection[str] = ()) -> MdsShard:
    """Open a shard of bytes that hold uint32."""
    return _open(store, path, BYTES_DTYPES["uint32"], accept)


def open_int32(store: Store, path: str, *, accept: Collection[str] = ()) -> MdsShard:
    """Open a shard of bytes that hold int32."""
    return _open(store, path, BYTES_DTYPES["int32"], accept)


def open_int64(store: Store, path: str, *, accept: Collection[str] = ()) -> MdsShard:
    """Open a shard of bytes that hold int64."""
    return _open(store, path, BYTES_DTYPES["int64"], accept)


def info_of(store: Store, path: str) -> ShardInfo | None:
    """Return what the nearest index above a shard's file says of it, or None where none names it."""
    folder = path.rpartition("/")[0]
    while True:
        index = f"{folder}/{INDEX}" if folder else INDEX
        if store.exists(index):
            info = parsed(store, index, parse_index).get(path)
            if info is not None:
                return info
        if not folder:
            return None
        folder = folder.rpartition("/")[0]


def _open(store: Store, path: str, dtype: np.dtype[Any] | None, accept: Collection[str] = ()) -> MdsShard:
    info = info_of(store, path)
    reader = _reader(store, path, info, accept)
    try:
        count, begin, columns = _header(store, reader, info)
        column = token_column(columns)
        if column is None:
            names = ", ".join(f"{one.name}: {one.encoding}" for one in columns)
            raise _wrong(store, "MDS007", reader, "one column of bytes or of an array", names)
        shape = array_of(column.encoding)
        if (column.encoding == "bytes") == (dtype is None) or (dtype is None and shape is None):
            known = ", ".join(BYTES_DTYPES)
            expected = f"bytes of {known}" if dtype is not None else "an array of integers in one dimension"
            raise _wrong(store, "MDS008", reader, expected, f"{column.name}: {column.encoding}")
        records = Records(reader, count, begin, columns, columns.index(column), shape)
        records.check_sizes()
        if dtype is None:
            dtype = records.dtype()
        shard = MdsShard(store, path, reader, records, dtype)
        if column.encoding == "bytes" and dtype.itemsize > 1 and "MDS015" not in accept:
            said = contradiction(records.sample(1 << 16), dtype)
            if said:
                raise FormatError(
                    "MDS015",
                    said,
                    path=reader.path,
                    expected=dtype.name,
                    hint="--accept MDS015 to read it all the same",
                )
        return shard
    except BaseException:
        reader.close()
        raise


def _reader(store: Store, path: str, info: ShardInfo | None, accept: Collection[str]) -> Reader:
    if info is None:
        if path.endswith(_SUFFIX):
            return store.reader(path)
        expected = f"an {INDEX} that names it, for its size"
        raise FormatError("MDS002", path=full_path(store, path), expected=expected)
    raw = _there(store, info.raw.path)
    if raw is not None:
        said, reader = info.raw, raw
    elif info.packed is not None and store.exists(info.packed.path):
        said, reader = info.packed, store.reader(info.packed.path)
    else:
        path = (info.packed or info.raw).path
        raise FormatError(
            "MDS002", path=full_path(store, path), expected=f"{info.raw.bytes} bytes", found="no such file"
        )
    if reader.size != said.bytes:
        found = reader.size
        reader.close()
        raise FormatError(
            "MDS004", path=full_path(store, said.path), expected=f"{said.bytes} bytes, as {INDEX} says", found=found
        )
    if said is info.raw:
        return reader
    full = full_path(store, said.path)
    try:
        return UnpackedReader(reader, full, info.algorithm, info.raw.bytes, ("MDS013", "MDS012"), accept)
    except FormatError:
        reader.close()
        raise


def _there(store: Store, path: str) -> Reader | None:
    try:
        return store.reader(path)
    except StorageError as error:
        if error.code != "STO001":
            raise
        return None


def _header(store: Store, reader: Reader, info: ShardInfo | None) -> tuple[int, int, tuple[Column, ...]]:
    """Return the number of records, where they begin, and the columns that a shard says; checked against its size and its index."""
    if reader.size < 8:
        raise _wrong(store, "MDS003", reader, "a number of records and their offsets", f"{reader.size} bytes", 0)
    count = int.from_bytes(reader.read(0, 4), "little")
    table = 4 * (count + 2)
    if table > reader.size:
        raise _wrong(
            store, "MDS003", reader, f"{table} bytes of offsets for {count} records", f"{reader.size} bytes", 0
        )
    first, last = (int.from_bytes(reader.read(at, 4), "little") for at in (4, table - 4))
    if not table <= first <= min(last, table + _LARGEST_CONFIG):
        raise _wrong(store, "MDS003", reader, f"the first record after byte {table}", first, 4)
    if last != reader.size:
        raise _wrong(store, "MDS003", reader, f"the last record's end at {reader.size}", last, table - 4)
    columns = _config(reader, table, first)
    if columns is None or (info is not None and columns != info.columns):
        expected = "a description of columns" if columns is None else f"{_words(info)}, as {INDEX} says"
        found = "something else" if columns is None else ", ".join(f"{one.name}: {one.encoding}" for one in columns)
        raise _wrong(store, "MDS005", reader, expected, found, table)
    if info is not None and info.samples != count:
        raise _wrong(store, "MDS006", reader, f"{info.samples} records, as {INDEX} says", count, 0)
    return count, first, columns


def _words(info: ShardInfo | None) -> str:
    return "" if info is None else ", ".join(f"{one.name}: {one.encoding}" for one in info.columns)


def _config(reader: Reader, begin: int, end: int) -> tuple[Column, ...] | None:
    return _described(reader.read(begin, end - begin))


@lru_cache(16)  # all shards of a folder say the same
def _described(config: bytes) -> tuple[Column, ...] | None:
    try:
        value = json.loads(config)
    except (ValueError, RecursionError):
        return None
    return columns_of(value) if isinstance(value, dict) else None


def _own_columns(store: Store, path: str) -> tuple[Column, ...] | None:
    reader = store.reader(path)
    try:
        return _header(store, reader, None)[2]
    except FormatError:
        return None
    finally:
        reader.close()


def _wrong(
    store: Store, code: str, reader: Reader, expected: object, found: object, offset: int | None = None
) -> FormatError:
    return FormatError(code, path=reader.path or store.root, offset=offset, expected=expected, found=found)


class MdsShard(LoadedShard):
    """One open shard. Its ids are contiguous only where records are nothing else; `read` puts together what they hold.

    `byte_at` names the shard's file; in a compressed one the offset counts decompressed bytes.
    """

    def __init__(self, store: Store, path: str, reader: Reader, records: Records, dtype: np.dtype[Any]) -> None:
        kind = FORMAT if records.column.encoding != "bytes" else f"{FORMAT}-{dtype.name}"
        found = Found(kind, path.partition(_SUFFIX)[0], (path,))
        width = dtype.itemsize
        self._records = records
        self._begins: Edges = np.empty(0, dtype=np.int64)
        self._told = records.bytes_of_ids(width)
        super().__init__(store, found, reader, dtype.str, 0, (self._told or 0) // width, records.count)
        self.contiguous = records.contiguous and not isinstance(reader, UnpackedReader)
        if self._told is None:
            self.check_table()
            self.tokens = int(self._table[-1])

    def _load(self) -> Edges:
        begins, sizes = locate(self._records)
        width = self.dtype.itemsize
        odd = np.flatnonzero(sizes % width)
        if len(odd):
            k = int(odd[0])
            raise FormatError(
                "MDS010",
                path=self._payload.path,
                offset=int(begins[k]),
                document=k,
                expected=f"a multiple of {width} bytes, for {self.dtype.name}",
                found=int(sizes[k]),
            )
        self._begins = begins
        edges = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes // width, out=edges[1:])
        if self._told is not None and self.tokens != edges[-1]:
            expected = f"{self.tokens} ids, by the sizes of the records"
            raise FormatError("MDS009", path=self._payload.path, expected=expected, found=int(edges[-1]))
        return edges

    def _gather(self, begin: int, end: int) -> Ids:
        edges, begins = self._table, self._begins
        width = self.dtype.itemsize
        if self.contiguous:
            return self._payload.array(self.dtype, int(begins[0]) + begin * width, end - begin)
        first = int(np.searchsorted(edges, begin, side="right")) - 1
        last = int(np.searchsorted(edges, end, side="left"))
        starts = begins[first:last].copy()
        counts = np.diff(edges[first : last + 1])
        skipped = begin - int(edges[first])
        starts[0] += skipped * width
        counts[0] -= skipped
        counts[-1] -= int(edges[last]) - end
        low = int(starts[0])
        view = self._payload.array("u1", low, int(starts[-1]) + int(counts[-1]) * width - low).data
        at = (starts - low).tolist()
        data = b"".join([view[a : a + n] for a, n in zip(at, (counts * width).tolist(), strict=True)])
        return np.frombuffer(data, dtype=self.dtype)

    def byte_at(self, position: int) -> tuple[str, int]:
        """Return the file and the byte offset of a token."""
        self.check_table()
        if not self.documents:
            return self.files[0], self._payload.size
        k = min(int(np.searchsorted(self._table, position, side="right")) - 1, self.documents - 1)
        return self.files[0], int(self._begins[k]) + (position - int(self._table[k])) * self.dtype.itemsize
