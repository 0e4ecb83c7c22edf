"""Read Modalities' packed files (``.pbin``): ids end to end, and an index that is a pickle, which is never unpickled.

Little endian: the bytes of the data section (u64), the bytes of an id (u32: 1, 2 or 4), the ids, and a pickled list of pairs
(begin, length) in bytes, one for each document; older files count begins from the start of the file. Of the pickle's
language only what such a list needs is understood, opcode by opcode; anything else is refused, and nothing is ever run.
Written from a description of the layout, without files of Modalities to try it on.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.base import Found
from tokenreel.formats.loaded import LoadedShard, full_path

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from tokenreel.formats.base import Edges, Ids
    from tokenreel.store.base import Entry, Reader, Store

FORMAT = "pbin"
HEADER_BYTES = 12
WIDTHS = {1: "u1", 2: "<u2", 4: "<u4"}
_SUFFIX = ".pbin"
_WINDOW = 1 << 20
_LONGEST = 128
"""Bytes that one step of the index takes at most."""

_FRAME = rb"(?:\x95.{8})?"
_MEMO = rb"(?:" + _FRAME + rb"(?:\x94|q.|r.{4}))?"
_NUMBER = (
    _FRAME
    + rb"(?:K(.)|M(..)|J(.{4})|\x8a(?:\x01(.)|\x02(..)|\x03(.{3})|\x04(.{4})|\x05(.{5})|\x06(.{6})|\x07(.{7})|\x08(.{8})))"
)
_START = re.compile(rb"\x80[\x02-\x05]" + _FRAME + rb"\]" + _MEMO, re.DOTALL)
_PAIR = re.compile(_NUMBER + _NUMBER + _FRAME + rb"\x86" + _MEMO, re.DOTALL)
_OTHER = re.compile(_FRAME + rb"([(ea.])", re.DOTALL)


def recognise(store: Store, entries: Sequence[Entry]) -> list[Found]:  # noqa: ARG001 (told by the suffix, which is theirs alone)
    """Return the ``.pbin`` files of a listing."""
    paths = (entry.path for entry in entries if entry.path.endswith(_SUFFIX))
    return [Found(FORMAT, path.removesuffix(_SUFFIX), (path,)) for path in paths]


def open_file(store: Store, path: str, *, accept: Collection[str] = ()) -> PbinShard:  # noqa: ARG001
    """Open a file; the index is read whole, at about 3 us a document. Nothing is overruled.

    Raises `FormatError`: PBN001 a header that does not fit the file, PBN002 a width that no id has, PBN003 an index that is
    no list of pairs of integers, PBN004 pairs that do not tile the ids, PBN005 one that cuts an id.

    >>> from tokenreel.store import MemoryStore
    >>> index = b"\\x80\\x04]\\x94(K\\x00K\\x04\\x86\\x94K\\x04K\\x02\\x86\\x94e."
    >>> data = (6).to_bytes(8, "little") + (2).to_bytes(4, "little") + b"abcdef" + index
    >>> shard = open_file(MemoryStore({"a.pbin": data}), "a.pbin")
    >>> shard.documents, shard.document(1).tolist()
    (2, [26213])
    """
    reader = store.reader(path)
    try:
        return PbinShard(store, path, reader)
    except BaseException:
        reader.close()
        raise


class PbinShard(LoadedShard):
    """One open file; its ids are contiguous."""

    contiguous = True

    def __init__(self, store: Store, path: str, reader: Reader) -> None:
        self._full = full_path(store, path)
        if reader.size < HEADER_BYTES:
            raise FormatError(
                "PBN001", path=self._full, expected=f">= {HEADER_BYTES} bytes", found=f"{reader.size} bytes"
            )
        size, width = (int.from_bytes(reader.read(at, count), "little") for at, count in ((0, 8), (8, 4)))
        if width not in WIDTHS:
            raise FormatError("PBN002", path=self._full, offset=8, expected="1, 2 or 4", found=width)
        if size % width or HEADER_BYTES + size >= reader.size:
            expected = f"a multiple of {width}, and an index after it, in a file of {reader.size} bytes"
            raise FormatError("PBN001", path=self._full, offset=0, expected=expected, found=size)
        found = Found(FORMAT, path.removesuffix(_SUFFIX), (path,))
        super().__init__(store, found, reader, WIDTHS[width], HEADER_BYTES, size // width, 0)
        self.check_table()
        self.documents = len(self._table) - 1

    def _load(self) -> Edges:
        width = self.dtype.itemsize
        size = self.tokens * width
        pairs = read_pairs(self._payload, HEADER_BYTES + size, self._full)
        begins, lengths = pairs[:, 0], pairs[:, 1]
        base = int(begins[0]) if len(begins) else 0
        # Files from before June 2024 count from the start of the file.
        base = base if base in (0, HEADER_BYTES) else 0
        negative = (begins < 0) | (lengths < 0) | (lengths > size)
        ends = base + np.concatenate(([0], np.cumsum(np.where(negative, 0, lengths))))
        wrong = np.flatnonzero(negative | (begins != ends[:-1]))
        if len(wrong) or int(ends[-1]) != base + size:
            k = int(wrong[0]) if len(wrong) else len(begins)
            found = (
                f"[{int(begins[k])}, {int(lengths[k])}]"
                if len(wrong)
                else f"the end after {int(ends[-1]) - base} bytes"
            )
            expected = f"a document from byte {int(ends[k])} of {size} on"
            raise FormatError("PBN004", path=self._full, document=k, expected=expected, found=found)
        odd = np.flatnonzero(lengths % width)
        if len(odd):
            k = int(odd[0])
            raise FormatError(
                "PBN005", path=self._full, document=k, expected=f"a multiple of {width} bytes", found=int(lengths[k])
            )
        edges: Edges = (ends - base) // width
        return edges

    def _gather(self, begin: int, end: int) -> Ids:
        width = self.dtype.itemsize
        return self._payload.array(self.dtype, HEADER_BYTES + begin * width, end - begin)


def read_pairs(reader: Reader, begin: int, path: str) -> npt.NDArray[np.int64]:
    """Return the pairs of a pickled list of pairs of integers that fills a file from `begin` to its end.

    Raises `FormatError` (PBN003) with the byte of the first opcode that is anything else. Reads 1 MiB at a time.
    """
    found = array("q")
    window = _Window(reader, begin)
    if not window.take(_START):
        raise _unknown(window, path, "the start of a list")
    inside = False
    pending = 0
    while True:
        pair = window.take(_PAIR)
        if pair is not None and (inside or not pending):
            numbers = [group for group in pair.groups() if group is not None]
            found.extend(_number(pair, half, data) for half, data in zip((0, 11), numbers, strict=True))
            pending += not inside
            continue
        step = window.take(_OTHER) if pair is None else None
        match step.group(1) if step is not None else b"":
            case b"(" if not inside and not pending:
                inside = True
            case b"e" if inside:
                inside = False
            case b"a" if pending:
                pending = 0
            case b"." if not inside and not pending and window.done:
                return np.frombuffer(found, dtype=np.int64).reshape(-1, 2)
            case _:
                raise _unknown(window, path, "pairs of integers, to the end of the file")


def _number(pair: re.Match[bytes], first: int, data: bytes) -> int:
    """Return one number of a pair, whose alternatives are the groups from `first` + 1 on: two are not signed."""
    unsigned = pair.group(first + 1) is not None or pair.group(first + 2) is not None
    return int.from_bytes(data, "little", signed=not unsigned)


class _Window:
    """A stretch of the index that is always long enough for one step."""

    def __init__(self, reader: Reader, begin: int) -> None:
        self._reader = reader
        self._data = b""
        self._begin = begin
        self._at = 0

    @property
    def offset(self) -> int:
        """Byte of the file that comes next."""
        return self._begin + self._at

    @property
    def done(self) -> bool:
        """Whether the file ends here."""
        return self.offset == self._reader.size

    def take(self, step: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """Return the match of a step here, and go past it; None where something else is."""
        end = self._begin + len(self._data)
        if len(self._data) - self._at < _LONGEST and end < self._reader.size:
            self._begin += self._at
            self._data = self._reader.read(self._begin, min(_WINDOW, self._reader.size - self._begin))
            self._at = 0
        found = step.match(self._data, self._at)
        if found is not None:
            self._at = found.end()
        return found


def _unknown(window: _Window, path: str, expected: str) -> FormatError:
    offset = window.offset
    return FormatError("PBN003", path=path, offset=offset, expected=expected, found="another opcode")
