"""Where the ids of every record of an MDS shard lie: the tables, checked record by record, 64 Ki records at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.formats.base import Edges
    from tokenreel.formats.mds_index import Column
    from tokenreel.store.base import Reader

WORD = 4
CHUNK = 1 << 16
KINDS: dict[int, np.dtype[Any]] = {
    8: np.dtype("u1"), 9: np.dtype("i1"), 16: np.dtype("<u2"), 17: np.dtype("<i2"), 32: np.dtype("<u4"),
    33: np.dtype("<i4"), 64: np.dtype("<u8"), 65: np.dtype("<i8"),
}  # fmt: skip
"""Integer types by the byte that a record of an ``ndarray`` begins with."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one shard whose header was checked."""

    reader: Reader
    count: int
    begin: int
    """Byte of the first record."""
    columns: tuple[Column, ...]
    number: int
    """Of the column with the ids."""
    shape: tuple[np.dtype[Any] | None, int | None] | None
    """Its dtype and length where the encoding says them; None for bytes."""

    @property
    def column(self) -> Column:
        """The column with the ids."""
        return self.columns[self.number]

    @property
    def varying(self) -> tuple[int, ...]:
        """Numbers of the columns of which every record says the size."""
        return tuple(k for k, column in enumerate(self.columns) if column.size is None)

    @property
    def fixed(self) -> int:
        """Bytes of a record besides its columns of varying size."""
        return WORD * len(self.varying) + sum(column.size or 0 for column in self.columns)

    def offsets(self, i: int, j: int) -> Edges:
        """Return where records [i, j) begin, and where the last ends."""
        return self.reader.array("<u4", WORD * (1 + i), j - i + 1).astype(np.int64)

    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of arrays: as the encoding says it, else as the first record does (MDS009)."""
        if self.shape is not None and self.shape[0] is not None:
            return self.shape[0]
        if self.count == 0:
            raise FormatError("MDS009", path=self.reader.path, expected="a record that says its dtype", found="none")
        begins, sizes, _ = _columns(self, 0, 1)
        first = int(begins[0])
        code = self.reader.read(first, 1)[0] if int(sizes[0]) else -1
        if code not in KINDS:
            raise _error(self, first, 0, "the code of an integer type", code)
        return KINDS[code]

    def check_sizes(self) -> None:
        """Hold what the columns say against the file: raises `FormatError` (MDS009, MDS010); O(1)."""
        said = self.shape
        if said is not None and said[0] is not None and said[1] is not None:
            size = said[0].itemsize * said[1]
            if size != self.column.size:
                raise _error(self, 0, 0, f"{size} bytes a record, of {self.column.encoding}", self.column.size)
        begin = self.begin
        room = self.reader.size - begin
        if room < self.count * self.fixed or (room != self.count * self.fixed and not self.varying):
            expected = f"{self.count} records of {self.fixed} bytes{' and more' if self.varying else ''}"
            raise FormatError("MDS010", path=self.reader.path, offset=begin, expected=expected, found=f"{room} bytes")

    @property
    def contiguous(self) -> bool:
        """Whether records are nothing but ids."""
        return len(self.columns) == 1 and self.shape is not None and self.shape[1] is not None

    def bytes_of_ids(self, width: int) -> int | None:
        """Return the bytes of all ids where sizes and offsets alone tell them, else None. Nothing of records is read.

        Of arrays that say their own length, what they say is expected to take as few bytes as it can; `locate` looks.
        """
        if self.shape is not None and self.shape[1] is not None:
            return self.count * (self.column.size or 0)
        if self.varying != (self.number,):
            return None
        if self.shape is None:
            return self.reader.size - self.begin - self.count * self.fixed
        total = 0
        for i in range(0, self.count, CHUNK):
            offsets = self.offsets(i, min(self.count, i + CHUNK))
            rooms = np.diff(offsets) - (self.fixed + (self.shape[0] is None) + 2)
            # A length of up to 255 takes one byte, a longer one two, four or eight.
            for bits, more in ((8, 1), (16, 2), (32, 4)):
                long = rooms >= width << bits
                if not long.any():
                    break
                rooms -= more * long
            total += int(rooms.sum())
        return total

    def sample(self, most: int) -> bytes:
        """Return the ids' bytes of the first records, about `most` of them."""
        if self.count == 0:
            return b""
        begins, sizes, _ = _columns(self, 0, min(self.count, 256))
        parts, have = [], 0
        for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True):
            if have >= most:
                break
            parts.append(self.reader.read(begin, min(size, most) // 8 * 8))
            have += len(parts[-1])
        return b"".join(parts)


def locate(records: Records) -> tuple[Edges, npt.NDArray[np.int64]]:
    """Return where the ids of every record begin, and how many bytes they are.

    Raises `FormatError`: MDS009 for an array that is not what its encoding and size say, MDS010 for records that are not
    what their columns say. Cost: 30 ns a record; where records say sizes, the page of each is read.
    """
    begins = np.empty(records.count, dtype=np.int64)
    sizes = np.empty(records.count, dtype=np.int64)
    for i in range(0, records.count, CHUNK):
        j = min(records.count, i + CHUNK)
        at, size, data = _columns(records, i, j)
        if records.shape is not None and records.shape[1] is None:
            at, size = _arrays(records, i, at, size, data)
        begins[i:j], sizes[i:j] = at, size
    return begins, sizes


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes of a stretch of the file."""

    data: npt.NDArray[np.uint8]
    begin: int

    def words(self, at: Edges, width: int) -> npt.NDArray[np.uint64]:
        """Return the little-endian numbers of `width` bytes at some places of the file."""
        found = np.zeros(len(at), dtype=np.uint64)
        for k in range(width):
            found |= self.data[at - self.begin + k].astype(np.uint64) << np.uint64(8 * k)
        return found


def _columns(records: Records, i: int, j: int) -> tuple[Edges, npt.NDArray[np.int64], _Window]:
    """Return where the id column of records [i, j) begins, its size, and the bytes of these records."""
    offsets = records.offsets(i, j)
    lengths = np.diff(offsets)
    short = np.flatnonzero(lengths < records.fixed)
    # The ends were checked with the header; between them offsets must rise.
    if len(short) or int(offsets[-1]) > records.reader.size or int(offsets[0]) < WORD * (records.count + 2):
        k = int(short[0]) if len(short) else 0
        raise FormatError(
            "MDS010",
            path=records.reader.path,
            offset=WORD * (1 + i + k),
            document=i + k,
            expected=f"a record of {records.fixed} bytes and more, inside the file",
            found=f"[{int(offsets[k])}, {int(offsets[k + 1])})",
        )
    begin = int(offsets[0])
    window = _Window(records.reader.array("u1", begin, int(offsets[-1]) - begin), begin)
    at = offsets[:-1] + WORD * len(records.varying)
    total = np.full(j - i, records.fixed, dtype=np.int64)
    begins, size = at, total
    word = 0
    for k, column in enumerate(records.columns):
        if column.size is None:
            sizes = window.words(offsets[:-1] + WORD * word, WORD).astype(np.int64)
            total = total + sizes
            word += 1
        else:
            sizes = np.full(j - i, column.size, dtype=np.int64)
        if k == records.number:
            begins, size = at, sizes
        at = at + sizes
    wrong = np.flatnonzero(total != lengths)
    if len(wrong):
        k = int(wrong[0])
        raise FormatError(
            "MDS010",
            path=records.reader.path,
            offset=int(offsets[k]),
            document=i + k,
            expected=f"columns of {int(lengths[k])} bytes, the record's length",
            found=int(total[k]),
        )
    return begins, size, window


def _arrays(
    records: Records, i: int, at: Edges, size: npt.NDArray[np.int64], window: _Window
) -> tuple[Edges, npt.NDArray[np.int64]]:
    """Return where the ids of arrays begin that say their own length, and their bytes: dtype, dimensions, length, ids."""
    kind = records.dtype()
    said = 0 if records.shape is not None and records.shape[0] is not None else 1
    small = np.flatnonzero(size < said + 2)
    if len(small):
        k = int(small[0])
        raise _error(records, int(at[k]), i + k, "dimensions and a length", f"{int(size[k])} bytes")
    if said:
        codes = window.words(at, 1)
        code = next(number for number, dtype in KINDS.items() if dtype == kind)
        other = np.flatnonzero(codes != code)
        if len(other):
            k = int(other[0])
            raise _error(records, int(at[k]), i + k, f"{kind.name}, as in the first record", int(codes[k]))
    head = window.words(at + said, 1)
    wrong = np.flatnonzero((head >> np.uint64(2)) != 1)
    if len(wrong):
        k = int(wrong[0])
        raise _error(records, int(at[k]) + said, i + k, "one dimension", int(head[k]) >> 2)
    width = np.left_shift(1, (head & np.uint64(3)).astype(np.int64))
    room = size - said - 1 - width
    counts = np.zeros(len(at), dtype=np.uint64)
    for step in (1, 2, 4, 8):
        here = np.flatnonzero((width == step) & (room >= 0))
        counts[here] = window.words(at[here] + said + 1, step)
    bad = np.flatnonzero((room < 0) | (counts > np.uint64(1 << 32)) | (counts.astype(np.int64) * kind.itemsize != room))
    if len(bad):
        k = int(bad[0])
        expected = f"{int(counts[k])} ids of {kind.name}, as the record says"
        raise _error(records, int(at[k]), i + k, expected, f"{max(0, int(room[k]))} bytes")
    return at + said + 1 + width, room


def _error(records: Records, offset: int, document: int, expected: object, found: object) -> FormatError:
    return FormatError(
        "MDS009", path=records.reader.path, offset=offset, document=document, expected=expected, found=found
    )
