"""How many bytes the rows of a Parquet column can decode to: told by its page headers, before anything is decoded.

A page is the smallest thing that can be read of a column. Its header says its size without compression and how many
values it has, and so what any run of its rows can come to at most:

| pages of strings | rows of a page come to at most |
|---|---|
| PLAIN, DELTA_LENGTH_BYTE_ARRAY | the page's size, all together |
| dictionary, DELTA_BYTE_ARRAY | the size of the dictionary, of the page, each |

Headers are Thrift structs in its compact protocol; the format's own definition (parquet.thrift) gives the numbers.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import SourceError
from tokenreel.formats.thrift import Compact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_ROWS = 1 << 16
LARGEST_PAGE = 640 << 20
LARGEST_DICTIONARY = 320 << 20
"""A dictionary is in memory twice, as a page and as values."""
UNSURE = 128 << 20
"""Room for rows of which only the most that one of them can be is known: they hardly ever are that long."""
_WHOLE_PAGE = 128 << 20
_FEW_ROWS = 8
_SMALL_STEP = 1 << 16
_HEADER_BYTES = 1 << 9
_LARGEST_HEADER = 1 << 24
_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
_PLAIN_DICTIONARY, _DELTA_BYTE_ARRAY, _RLE_DICTIONARY = 2, 7, 8


@dataclass(frozen=True, slots=True)
class Pages:
    """A run of rows of one column whose decoded size has one bound."""

    rows: int
    whole: int
    """Bytes that all of them come to at most."""
    each: int
    """Bytes that one of them comes to at most."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of one row group."""

    pages: tuple[Pages, ...]
    dictionary: int
    """Bytes of its dictionary where every page refers to it, else 0."""
    words: int
    """Values of that dictionary."""

    @property
    def small_steps(self) -> bool:
        """Whether so few rows at a time are sure that reading them as strings takes long: their values are short."""
        return (
            self.dictionary > 0 and UNSURE // max(1, self.words) < _SMALL_STEP and self.dictionary > UNSURE // MOST_ROWS
        )


def column_pages(file: int, group: Any, names: set[str], path: str) -> dict[str, Column]:
    """Return the columns `names` of a row group (``RowGroupMetaData``), read from the open descriptor `file`.

    Raises `SourceError`: SRC013 for headers that cannot be read, SRC017 for a page of several values that is too large.
    Cost: about 30 us a page.
    """
    found: dict[str, Column] = {}
    # A group without rows may have no pages, and nothing where they should begin.
    for number in range(group.num_columns if group.num_rows else 0):
        chunk = group.column(number)
        if chunk.path_in_schema in names:
            found[chunk.path_in_schema] = _column(file, chunk, group.num_rows, path)
    return found


def _column(file: int, chunk: Any, rows: int, path: str) -> Column:
    if chunk.physical_type not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return Column((Pages(rows, 16 * rows, 16),), 0, 0)
    pages = []
    dictionary = words = 0
    whole = True
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        begin = min(begin, chunk.dictionary_page_offset)
    for page in _headers(file, begin, begin + chunk.total_compressed_size, path):
        if page.kind == _DICTIONARY:
            dictionary, words = page.size, page.values
        elif page.kind in (_DATA, _DATA_V2):
            refers = page.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY)
            whole = whole and refers
            each = dictionary if refers else page.size
            shares = refers or page.encoding == _DELTA_BYTE_ARRAY
            pages.append(Pages(page.values, each * page.values if shares else page.size, each))
        # What is read of the file comes from these headers: none is trusted with memory before it was looked at.
        limit = LARGEST_DICTIONARY if page.kind == _DICTIONARY else LARGEST_PAGE
        if page.size > limit and page.values > 1:
            raise SourceError(
                "SRC017",
                f"A page of the column {chunk.path_in_schema!r} holds {page.values} values.",
                path=path,
                offset=page.offset,
                expected=f"at most {limit >> 20} MiB a page",
                found=f"{page.size} bytes",
                hint="write the file again with pyarrow.parquet.write_table(..., write_batch_size=16, use_dictionary=False)",
            )
    if sum(page.rows for page in pages) != rows:
        found = sum(page.rows for page in pages)
        message = f"The pages of the column {chunk.path_in_schema!r} do not have the rows of their group."
        raise SourceError("SRC013", message, path=path, offset=begin, expected=rows, found=found)
    return Column(tuple(pages), dictionary if whole and pages else 0, words)


class _Page:
    """A page's header: kind, size without compression, values, encoding, offset, and where the next one begins."""

    __slots__ = ("encoding", "kind", "next", "offset", "size", "values")

    def __init__(self, fields: dict[int, Any], offset: int, length: int) -> None:
        inner = fields.get(5) or fields.get(7) or fields.get(8) or {}
        self.kind = int(fields[1])
        self.size = int(fields[2])
        self.values = int(inner.get(1, 0))
        self.encoding = int(inner.get(4 if self.kind == _DATA_V2 else 2, 0))
        self.offset = offset
        self.next = offset + length + int(fields[3])
        if self.size < 0 or self.values < 0 or int(fields[3]) < 0:
            raise ValueError("a negative number")


def _headers(file: int, begin: int, end: int, path: str) -> Iterator[_Page]:
    while begin < end:
        size = _HEADER_BYTES
        while True:
            data = os.pread(file, min(size, end - begin), begin)
            try:
                thrift = Compact(data)
                page = _Page(thrift.struct(), begin, thrift.at)
                break
            except (IndexError, KeyError, ValueError, TypeError, RecursionError) as error:
                # Statistics may make a header long.
                if isinstance(error, IndexError) and len(data) == size < _LARGEST_HEADER:
                    size <<= 3
                    continue
                raise SourceError("SRC013", "A page's header cannot be read.", path=path, offset=begin) from error
        yield page
        begin = page.next


class Budget:
    """Says how many rows of a row group to decode next, so that they come to about `room` bytes a column at most.

    A page of up to 128 MiB may be decoded whole: it is in memory whole anyway. Of a larger one, eight rows at a time are.

    >>> budget = Budget([(Pages(5, 50, 50), Pages(3, 900, 900))], 8, 400)
    >>> budget.ask(), budget.take(5), budget.ask()
    (5, None, 3)
    >>> Budget([(Pages(4, 4 << 30, 1 << 30),)], 4, 400).ask()
    1
    """

    def __init__(self, columns: Iterable[tuple[Pages, ...]], rows: int, room: int) -> None:
        self._columns = [deque((page.rows, page) for page in pages if page.rows) for pages in columns]
        self._left = rows
        self._room = room

    def ask(self) -> int:
        """Return the number of rows, at least one."""
        return max(1, min(MOST_ROWS, self._left, *map(self._fitting, self._columns)))

    def take(self, rows: int) -> None:
        """Count rows as decoded."""
        self._left -= rows
        for pages in self._columns:
            taken = rows
            while taken and pages:
                there, page = pages.popleft()
                if there > taken:
                    pages.appendleft((there - taken, page))
                taken -= min(there, taken)

    def _fitting(self, pages: deque[tuple[int, Pages]]) -> int:
        rows = used = 0
        for there, page in pages:
            if used + page.whole <= self._room or (not rows and page.whole <= _WHOLE_PAGE):
                rows += there
                used += page.whole
                if rows < MOST_ROWS:
                    continue
            elif page.each * page.rows <= page.whole:  # what each comes to is known
                rows += min(there, max(0, UNSURE - used) // max(1, page.each))
            elif not rows:
                rows = min(there, _FEW_ROWS)
            break
        return rows
