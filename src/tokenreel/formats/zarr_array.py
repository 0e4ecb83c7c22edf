"""Read one array of one dimension in Zarr's format 3, a few chunks at a time; what is not stored is refused, not zero.

``zarr.json`` says dtype, sizes of chunks and codecs. A file ``c/K`` is chunk K; with the codec ``sharding_indexed`` it holds
many smaller chunks, and an index of their places with its CRC-32C. Sizes in ``zarr.json`` are looked at before anything is
decoded, and sizes in chunks before they are. Needs the extra [levanter] for Blosc and CRC-32C.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError, ManifestError, require
from tokenreel.formats.indexed import is_count
from tokenreel.formats.loaded import full_path
from tokenreel.formats.unpacking import unpack
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from tokenreel.store.base import Store

METADATA = "zarr.json"
LARGEST_CHUNK = 32 << 20
"""Bytes of a chunk that is decoded at once; Levanter's come to 1 and 2 MiB."""
MOST_CHUNKS = 1 << 20
ABSENT = (1 << 64) - 1
"""Offset and size, in an index, of a chunk that is not stored."""
_DTYPES = {
    f"{sign}int{bits}": np.dtype(f"<{sign[:1] or 'i'}{bits // 8}") for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_KEPT = 4
_BLOSC_HEAD = 16


@dataclass(frozen=True, slots=True)
class Description:
    """What a ``zarr.json`` says."""

    dtype: np.dtype[Any]
    length: int
    outer: int
    """Items in a file."""
    inner: int
    """Items decoded at once: those of a file where it is one chunk."""
    sharded: bool
    codecs: tuple[str, ...]
    """Of an inner chunk, in the order they are undone: ``blosc``, ``gzip``, ``zstd``, ``crc32c``."""
    index_first: bool
    index_checked: bool
    separator: str
    """Between ``c`` and the number of a chunk; empty where the number is all."""


def describe(store: Store, path: str) -> Description:
    """Return what the ``zarr.json`` of an array says; raises `FormatError` (LEV005) for what is not read.

    LEV010 for chunks larger than 32 MiB.
    """
    place = f"{path}/{METADATA}"
    try:
        value = loads_strict(store.read(place), full_path(store, place))
    except ManifestError as error:
        raise FormatError("LEV005", path=full_path(store, place), expected="JSON", found=error.message) from error
    try:
        found = _described(value)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        said = str(error)[:200] or type(error).__name__
        raise FormatError(
            "LEV005", path=full_path(store, place), expected="a Zarr array as Levanter has it", found=said
        ) from error
    if found.inner * found.dtype.itemsize > LARGEST_CHUNK or found.outer // found.inner > MOST_CHUNKS:
        raise FormatError(
            "LEV010",
            path=full_path(store, place),
            expected=f"chunks of at most {LARGEST_CHUNK} bytes, {MOST_CHUNKS} in a file",
            found=f"{found.inner * found.dtype.itemsize} bytes, {found.outer // found.inner}",
        )
    return found


def _described(value: Any) -> Description:
    if (value["zarr_format"], value["node_type"]) != (3, "array"):
        raise ValueError("not an array of format 3")
    (length,), grid = value["shape"], value["chunk_grid"]
    if grid["name"] != "regular" or value["data_type"] not in _DTYPES:
        raise ValueError(f"grid {grid['name']}, dtype {value['data_type']}")
    (outer,) = grid["configuration"]["chunk_shape"]
    dtype = _DTYPES[value["data_type"]]
    codecs = [
        (one, {}) if isinstance(one, str) else (one["name"], one.get("configuration", {})) for one in value["codecs"]
    ]
    sharded = len(codecs) == 1 and codecs[0][0] == "sharding_indexed"
    inner, first, checked = outer, False, True
    if sharded:
        said = codecs[0][1]
        (inner,) = said["chunk_shape"]
        first = said.get("index_location", "end") == "start"
        names = [one["name"] for one in said["index_codecs"]]
        if names not in (["bytes", "crc32c"], ["bytes"]) or _endian(said["index_codecs"][0]) != "little":
            raise ValueError(f"index codecs {names}")
        checked = names[-1] == "crc32c"
        codecs = [(one["name"], one.get("configuration", {})) for one in said["codecs"]]
    for count in (length, outer, inner):
        if not is_count(count):
            raise ValueError(f"a size {count}")
    if inner < 1 or outer < 1 or outer % inner:
        raise ValueError(f"chunks of {inner} in {outer}")
    if codecs[0][0] != "bytes" or (dtype.itemsize > 1 and codecs[0][1].get("endian") != "little"):
        raise ValueError(f"codecs {[name for name, _ in codecs]}")
    undone = tuple(name for name, _ in reversed(codecs[1:]))
    if not set(undone) <= {"blosc", "gzip", "zstd", "crc32c"}:
        raise ValueError(f"codecs {[name for name, _ in codecs]}")
    keys = value["chunk_key_encoding"]
    separator = keys.get("configuration", {}).get("separator", "/" if keys["name"] == "default" else ".")
    if keys["name"] not in ("default", "v2") or separator not in ("/", "."):
        raise ValueError(f"keys {keys['name']}")
    separator = separator if keys["name"] == "default" else ""
    return Description(dtype, length, outer, inner, sharded, undone, first, checked, separator)


def _endian(codec: Mapping[str, Any]) -> object:
    return codec.get("configuration", {}).get("endian")


class ZarrArray:
    """An open array. A chunk is decoded whole; the last four are kept. Raises `FormatError` LEV008, LEV009."""

    def __init__(self, store: Store, path: str, accept: frozenset[str] = frozenset()) -> None:
        self.described = describe(store, path)
        self._store = store
        self._path = path
        self._accept = accept
        self._indices: dict[int, npt.NDArray[np.uint64]] = {}
        self._chunks: OrderedDict[int, npt.NDArray[Any]] = OrderedDict()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the items, little endian."""
        return self.described.dtype

    def file_of(self, item: int) -> str:
        """Return the file that holds an item."""
        separator = self.described.separator
        number = item // self.described.outer
        return f"{self._path}/c{separator}{number}" if separator else f"{self._path}/{number}"

    def place_of(self, item: int) -> tuple[str, int]:
        """Return the file and the byte where the stored chunk begins that holds an item."""
        if not self.described.sharded:
            return self.file_of(item), 0
        at, _ = self._place(item // self.described.inner)
        return self.file_of(item), 0 if at == ABSENT else at

    def read(self, begin: int, end: int) -> npt.NDArray[Any]:
        """Return items [begin, end); raises `FormatError` (LEV008) for a chunk that is not there."""
        inner = self.described.inner
        first, last = begin // inner, max(begin, end - 1) // inner
        if begin >= end:
            return np.empty(0, dtype=self.dtype)
        if first == last:
            return self._chunk(first)[begin - first * inner : end - first * inner].copy()
        out = np.empty(end - begin, dtype=self.dtype)
        for number in range(first, last + 1):
            low, high = max(begin, number * inner), min(end, (number + 1) * inner)
            out[low - begin : high - begin] = self._chunk(number)[low - number * inner : high - number * inner]
        return out

    def check(self, items: int) -> None:
        """Look whether every chunk of the first `items` items is stored, and inside its file: reads indices, no chunk."""
        for number in range(-(-items // self.described.outer)):
            begin = number * self.described.outer
            if not self.described.sharded:
                self._missing(begin, self._store.exists(self.file_of(begin)))
                continue
            for chunk in range(
                begin // self.described.inner, -(-min(items, begin + self.described.outer) // self.described.inner)
            ):
                at, _ = self._place(chunk)
                self._missing(chunk * self.described.inner, at != ABSENT)

    def _missing(self, item: int, there: bool) -> None:
        if there or "LEV008" in self._accept:
            return
        raise FormatError(
            "LEV008",
            path=full_path(self._store, self.file_of(item)),
            expected=f"the chunk of items from {item} on",
            found="not stored, which Zarr reads as zeros",
        )

    def _chunk(self, number: int) -> npt.NDArray[Any]:
        found = self._chunks.get(number)
        if found is None:
            found = self._decoded(number)
            self._chunks[number] = found
            if len(self._chunks) > _KEPT:
                self._chunks.popitem(last=False)
        else:
            self._chunks.move_to_end(number)
        return found

    def _decoded(self, number: int) -> npt.NDArray[Any]:
        item = number * self.described.inner
        path = self.file_of(item)
        size = self.described.inner * self.dtype.itemsize
        at, length = self._place(number) if self.described.sharded else (0, -1 if self._store.exists(path) else ABSENT)
        if ABSENT in (at, length):
            self._missing(item, there=False)
            return np.zeros(self.described.inner, dtype=self.dtype)
        reader = self._store.reader(path)
        try:
            data = reader.read(at, reader.size if length < 0 else length)
        finally:
            reader.close()
        try:
            for codec in self.described.codecs:
                data = _undo(data, codec, size)
            if len(data) != size:
                raise ValueError(f"{len(data)} bytes")
        except ValueError as error:
            raise self._damaged(
                path, at, f"{size} bytes, by {', '.join(self.described.codecs) or 'no codec'}", error
            ) from error
        return np.frombuffer(data, dtype=self.dtype)

    def _place(self, number: int) -> tuple[int, int]:
        """Return byte and size of a stored inner chunk, `ABSENT` twice for one that is not."""
        per_file = self.described.outer // self.described.inner
        file, within = divmod(number, per_file)
        index = self._indices.get(file)
        if index is None:
            index = self._indices[file] = self._index(self.file_of(number * self.described.inner), per_file)
        return int(index[2 * within]), int(index[2 * within + 1])

    def _index(self, path: str, count: int) -> npt.NDArray[np.uint64]:
        if not self._store.exists(path):
            return np.full(2 * count, ABSENT, dtype=np.uint64)
        size = 16 * count + 4 * self.described.index_checked
        reader = self._store.reader(path)
        try:
            begin = 0 if self.described.index_first else reader.size - size
            if reader.size < size:
                raise self._damaged(path, 0, f"an index of {size} bytes", f"{reader.size} bytes")
            data = reader.read(begin, size)
            room = reader.size
        finally:
            reader.close()
        if self.described.index_checked:
            right, said = crc32c(data[:-4]), int.from_bytes(data[-4:], "little")
            if right != said:
                raise self._damaged(path, begin, f"CRC-32C {right:08x} of the index", f"{said:08x}")
        index = np.frombuffer(data, dtype="<u8", count=2 * count)
        begins, sizes = index[::2], index[1::2]
        stored = begins != ABSENT
        wrong = np.flatnonzero(stored & ((begins > room) | (sizes > room) | (begins + sizes > room)))
        if len(wrong):
            k = int(wrong[0])
            raise self._damaged(
                path, begin + 16 * k, f"a chunk inside {room} bytes", f"{int(sizes[k])} from {int(begins[k])}"
            )
        return index

    def _damaged(self, path: str, offset: int, expected: object, found: object) -> FormatError:
        return FormatError(
            "LEV009", path=full_path(self._store, path), offset=offset, expected=expected, found=str(found)[:200]
        )

    def files(self, items: int) -> Iterator[str]:
        """Yield the files that hold the first `items` items."""
        for number in range(-(-items // self.described.outer)):
            yield self.file_of(number * self.described.outer)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes."""
    return int(require("google_crc32c", extra="levanter").value(data))


def _undo(data: bytes, codec: str, size: int) -> bytes:
    if codec == "crc32c":
        if len(data) < 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise ValueError("another CRC-32C")
        return data[:-4]
    if codec != "blosc":
        return bytes(unpack(data, "gz" if codec == "gzip" else codec, size))
    blosc = require("numcodecs.blosc", extra="levanter")
    if len(data) < _BLOSC_HEAD:
        raise ValueError(f"{len(data)} bytes")
    sizes = [int.from_bytes(data[at : at + 4], "little") for at in (4, 8, 12)]
    if sizes[0] != size or sizes[2] != len(data) or not 0 < sizes[1] <= size:
        raise ValueError(f"Blosc of {sizes[0]} bytes in blocks of {sizes[1]}, packed in {sizes[2]}")
    try:
        return bytes(blosc.decompress(data))
    except RuntimeError as error:
        raise ValueError(str(error)) from error
