"""What a Parquet file says of its column of ids, told before anything of it is decoded.

The footer says rows and values by row group, and, where the writer put it there, how many of the values are ids and how many
stand for empty lists. Page headers say what each page comes to. A file that claims more than its size allows is refused here,
so that the decoder is never asked for it. The numbers of fields are those of the format's definition (parquet.thrift).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import FormatError
from tokenreel.formats.parquet_facts import FACTS
from tokenreel.formats.thrift import Compact
from tokenreel.formats.unpacking import largest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.store.base import Reader

MAGIC = b"PAR1"
COLUMNS = ("input_ids", "tokens")
"""The column of ids has one of these names, the first that is there."""
LARGEST_FOOTER = 64 << 20
_INT32, _INT64 = 1, 2
_OPTIONAL, _REPEATED = 1, 2
_HEADER_BYTES = 1 << 9


@dataclass(frozen=True, slots=True)
class Chunk:
    """The column of ids in one row group."""

    rows: int
    values: int
    """Ids, and one for each empty list."""
    tokens: int | None
    """Ids, where the footer says it."""
    begin: int
    size: int
    """Bytes, as they are stored."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What the footer says."""

    column: str
    """Name of the column of ids, empty where there is none."""
    leaf: str
    """Path of its ids, as in ``input_ids.list.element``."""
    names: tuple[str, ...]
    """All columns."""
    rows: int
    chunks: tuple[Chunk, ...]
    facts: tuple[Chunk, ...] = ()
    """Columns of what is known of documents, of all row groups."""


def read_footer(reader: Reader) -> Footer:
    """Return what a file's footer says; raises `FormatError` (PQT001) for a file that is no Parquet file."""
    size = reader.size
    try:
        if size < 12 or reader.read(0, 4) != MAGIC or reader.read(size - 4, 4) != MAGIC:
            raise ValueError("no PAR1 at both ends")
        length = int.from_bytes(reader.read(size - 8, 4), "little")
        if length > min(size - 12, LARGEST_FOOTER):
            raise ValueError(f"a footer of {length} bytes")
        value = Compact(reader.read(size - 8 - length, length)).struct()
        return _footer(value, size)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration) as error:
        said = str(error)[:200] or type(error).__name__
        raise FormatError(
            "PQT001", path=reader.path, offset=max(0, size - 8), expected="a footer", found=said
        ) from error


def _footer(value: dict[int, Any], size: int) -> Footer:
    names, leaves = _schema(value[2])
    column = next((name for name in COLUMNS if name in leaves), "")
    leaf, levels = leaves.get(column, ((), 0))
    rows = _positive(value[3])
    chunks: list[Chunk] = []
    facts: list[Chunk] = []
    for group in value[4] if column else ():
        if not group[3]:  # no pages, and nothing where they should begin
            chunks.append(Chunk(0, 0, 0, len(MAGIC), 0))
            continue
        metas = {tuple(part.decode() for part in chunk[3][3]): chunk[3] for chunk in group[1] if 3 in chunk}
        meta = metas[leaf]
        begin, length = _place(meta, size)
        facts += [
            Chunk(0, _positive(metas[name,][5]), 0, *_place(metas[name,], size)) for name in FACTS if (name,) in metas
        ]
        counts = meta.get(16, {}).get(3)
        told = _positive(counts[levels]) if isinstance(counts, list) and len(counts) == levels + 1 else None
        count, values = _positive(group[3]), _positive(meta[5])
        if count > values:  # an empty list is a value too
            raise ValueError(f"{count} rows of {values} values")
        chunks.append(Chunk(count, values, told, begin, length))
    if column and sum(chunk.rows for chunk in chunks) != rows:
        raise ValueError("row groups that do not add up")
    return Footer(column, ".".join(leaf), tuple(names), rows, tuple(chunks), tuple(facts))


def _place(meta: dict[int, Any], size: int) -> tuple[int, int]:
    begin, length = min(_positive(meta[key]) for key in (9, 11) if meta.get(key)), _positive(meta[7])
    if begin + length > size:
        raise ValueError("a column outside the file")
    return begin, length


def _schema(elements: list[dict[int, Any]]) -> tuple[list[str], dict[str, tuple[tuple[str, ...], int]]]:
    """Return the names of all columns, and (path of the leaf, its definition levels) of those that are lists of integers."""
    names: list[str] = []
    leaves: dict[str, tuple[tuple[str, ...], int]] = {}
    at = 1

    def walk(path: tuple[str, ...], levels: int, repeated: int) -> int:
        nonlocal at
        element = elements[at]
        at += 1
        path = (*path, element[4].decode())
        if len(path) > 8:
            raise ValueError("columns in columns")
        kind = element.get(3, 0)
        levels += kind in (_OPTIONAL, _REPEATED)
        repeated += kind == _REPEATED
        children = element.get(5) or 0
        count = sum(walk(path, levels, repeated) for _ in range(children)) if children else 1
        if not children and element.get(1) in (_INT32, _INT64) and repeated == 1:
            leaves[path[0]] = (path, levels)
        return count

    for _ in range(elements[0].get(5) or 0):
        begin = at
        name = elements[at][4].decode()
        if walk((), 0, 0) != 1:
            leaves.pop(name, None)
        if name in names:
            raise ValueError(f"two columns {name}")
        names.append(name)
        if begin == at:
            break
    return names, leaves


def _positive(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError(f"a number {value}")
    return value


def check_pages(reader: Reader, chunk: Chunk, width: int) -> None:
    """Walk the page headers of a column; raises `FormatError`: PQT001 for what is none, PQT004 for an absurd size.

    Cost: about 30 us a page, a MiB mostly.
    """
    most = largest(chunk.size)
    if chunk.values * width > most:
        expected = f"at most {most} bytes of ids in {chunk.size}"
        raise FormatError("PQT004", path=reader.path, offset=chunk.begin, expected=expected, found=chunk.values * width)
    values = 0
    for at, page in _headers(reader, chunk.begin, chunk.begin + chunk.size):
        inner: dict[int, Any] = next((page[key] for key in (5, 8, 7) if isinstance(page.get(key), dict)), {})
        size, count = page[2], inner.get(1, 0)
        if not isinstance(count, int):
            raise FormatError("PQT001", path=reader.path, offset=at, expected="a number of values", found=count)
        if not 0 <= size <= most or not 0 <= count * width <= most:
            expected = f"at most {most} bytes a page"
            raise FormatError("PQT004", path=reader.path, offset=at, expected=expected, found=max(size, count * width))
        values += count if page[1] in (0, 3) else 0
    if values != chunk.values:
        raise FormatError(
            "PQT001", path=reader.path, offset=chunk.begin, expected=f"{chunk.values} values in pages", found=values
        )


def _headers(reader: Reader, begin: int, end: int) -> Iterator[tuple[int, dict[int, Any]]]:
    while begin < end:
        size = _HEADER_BYTES
        while True:
            data = reader.read(begin, min(size, end - begin))
            try:
                thrift = Compact(data)
                page = thrift.struct()
                step = thrift.at + page[3]
                if not all(isinstance(page[key], int) for key in (1, 2, 3)) or page[3] < 0:
                    raise ValueError("a negative size")
                break
            except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
                # Statistics may make a header long.
                if isinstance(error, IndexError) and len(data) == size < LARGEST_FOOTER:
                    size <<= 3
                    continue
                raise FormatError("PQT001", path=reader.path, offset=begin, expected="a page", found="none") from error
        yield begin, page
        begin += step
