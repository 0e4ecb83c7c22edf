"""OLMo's and Dolma's tables of documents, ``.csv.gz``: one row a document, no header.

OLMo-core writes ``start,end``; Dolma writes ``start,end,id,src,loc`` as Python's csv module does. Both are in ids, half
open. Their readers look at the first two columns and check little; here the rows must tile the file: begin at 0, follow
each other, and end at its end, so that no id is in two documents or in none.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.formats.base import Problem
from tokenreel.formats.writing import DocumentFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.formats.base import Edges
    from tokenreel.store.base import Reader

CHUNK = 1 << 20
COLUMNS = (2, 5)
SPARE = 1 << 16
"""A table may have as many rows as the file has ids, and this many more: a limit to what a damaged one can ask for."""
_PLAIN = re.compile(rb"(?:[0-9]{1,18},[0-9]{1,18}\r?\n)*+")


class _File(io.RawIOBase):
    """A `Reader` as a file."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._reader.read(self._at, min(len(view), self._reader.size - self._at))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


class TableError(Exception):
    """What is wrong with a table, as a `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


def _bytes(reader: Reader, path: str) -> Iterator[bytes]:
    """Yield the text of a table in pieces that end where lines end; all but the last of about 1 MiB."""
    rest = b""
    try:
        with gzip.GzipFile(fileobj=io.BufferedReader(_File(reader)), mode="rb") as file:
            while data := file.read(CHUNK):
                whole, newline, tail = (rest + data).rpartition(b"\n")
                if newline:
                    yield whole + newline
                rest = tail
                if len(rest) > CHUNK:
                    raise TableError(Problem("OLM002", path, expected="short lines", found=f"more than {CHUNK} bytes"))
    except (EOFError, OSError, zlib.error) as error:
        raise TableError(Problem("OLM006", path, f"it cannot be unpacked: {error}", expected="a gzip file")) from error
    if rest:
        yield rest


def read_edges(reader: Reader, path: str, tokens: int, *, exact: bool = True) -> tuple[Edges, int]:
    """Return (edges of the documents of a table, [0, end, ...]; its columns, 2 or 5); raises `TableError` (OLM002 .. OLM007).

    No end may be beyond `tokens`, and with `exact` the last one is there. Memory: 8 bytes a document. Cost: about 0.2 us a
    document of two columns, 1 us of five.
    """
    parts: list[npt.NDArray[np.int64]] = []
    rows, end, columns = 0, 0, 2
    for pairs, columns in _pairs(reader, path):  # noqa: B007 (the last one is returned)
        if rows + len(pairs) > tokens + SPARE:
            expected = f"<= {tokens} rows, as many as ids"
            raise TableError(Problem("OLM005", path, document=tokens + SPARE, expected=expected, found="more"))
        starts, ends = pairs[:, 0], pairs[:, 1]
        before = np.concatenate(([end], ends[:-1]))
        wrong = np.flatnonzero((starts != before) | (ends < starts))
        beyond = np.flatnonzero(ends > tokens)
        if len(beyond) and not (len(wrong) and wrong[0] < beyond[0]):
            k = int(beyond[0])
            raise TableError(Problem("OLM003", path, document=rows + k, expected=f"<= {tokens}", found=int(ends[k])))
        if len(wrong):
            k = int(wrong[0])
            found = f"[{int(starts[k])}, {int(ends[k])})"
            expected = f"a document from {int(before[k])} on"
            raise TableError(Problem("OLM004", path, document=rows + k, expected=expected, found=found))
        parts.append(ends)
        rows += len(pairs)
        end = int(ends[-1]) if len(ends) else end
    if exact and end != tokens:
        raise TableError(Problem("OLM007", path, document=max(0, rows - 1), expected=tokens, found=end))
    return np.concatenate([np.zeros(1, dtype=np.int64), *parts]), columns


def _pairs(reader: Reader, path: str) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
    """Yield (start and end of a run of rows, columns)."""
    row = 0
    pieces = _bytes(reader, path)
    for piece in pieces:
        if _PLAIN.fullmatch(piece):
            numbers = np.fromstring(
                piece.replace(b"\r", b"").replace(b"\n", b",")[:-1].decode(), dtype=np.int64, sep=","
            )
            yield numbers.reshape(-1, 2), 2
            row += len(numbers) // 2
            continue
        # Not two plain columns: this row and all others by Python's own parser, since a quoted field may hold a newline.
        block: list[tuple[int, int]] = []
        columns = 2
        for fields in _fields(piece, pieces, path, row, 2 if row else None):
            columns = len(fields)
            block.append((int(fields[0]), int(fields[1])))
            if len(block) == CHUNK >> 4:
                yield np.array(block, dtype=np.int64), columns
                block.clear()
        yield np.array(block, dtype=np.int64).reshape(-1, 2), columns
        return


def _fields(
    first: bytes, more: Iterator[bytes], path: str, row: int = 0, columns: int | None = None
) -> Iterator[list[str]]:
    """Yield the columns of each row, checked: as many as in the first row, the first two numbers."""

    def lines() -> Iterator[str]:
        for piece in chain((first,), more):
            for line in piece.splitlines(keepends=True):  # of bytes: at line feeds and carriage returns only
                yield line.decode("utf-8")

    try:
        for fields in csv.reader(lines(), strict=True):
            columns = columns or len(fields)
            numbers = fields[:2]
            if len(fields) != columns or columns not in COLUMNS or not all(map(_is_number, numbers)):
                found = ",".join(fields)[:120]
                expected = f"start,end or start,end,id,src,loc, {columns if columns in COLUMNS else '2 or 5'} columns"
                raise TableError(Problem("OLM002", path, document=row, expected=expected, found=found))
            yield fields
            row += 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise TableError(Problem("OLM002", path, str(error)[:120], document=row, expected="rows of CSV")) from error


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def read_facts(reader: Reader, path: str) -> list[DocumentFacts]:
    """Return what a table of five columns says of each document; memory: all of it."""
    pieces = _bytes(reader, path)
    return [_facts(*fields[2:]) for fields in _fields(next(pieces, b""), pieces, path)]


_OURS = ("id", "kind", "upstream_id", "metadata")


def _facts(identifier: str, source: str, place: str) -> DocumentFacts:
    said: object = None
    if place.startswith("{"):
        try:
            said = json.loads(place)
        except (ValueError, RecursionError):
            said = None
    if isinstance(said, dict) and said.keys() <= set(_OURS) and all(isinstance(value, str) for value in said.values()):
        return DocumentFacts(source=source or None, **said)
    metadata = json.dumps({"loc": place}, ensure_ascii=False) if place else None
    return DocumentFacts(source=source or None, upstream_id=identifier or None, metadata=metadata)


def fact_columns(facts: DocumentFacts) -> tuple[str, str, str]:
    """Return the columns id, src and loc of a document; `read_facts` gives the same facts back.

    Dolma's loc is a line number or the like; where there is more to keep it is a JSON object.

    >>> fact_columns(DocumentFacts(source="web", upstream_id="a", metadata='{"loc": "7"}'))
    ('a', 'web', '7')
    >>> fact_columns(DocumentFacts("00ff", "text"))
    ('00ff', '', '{"id": "00ff", "kind": "text"}')
    """
    columns = facts.upstream_id or facts.id or "", facts.source or ""
    place = _loc(facts.metadata)
    if _facts(*columns, place) == facts:
        return *columns, place
    said = {name: getattr(facts, name) for name in _OURS if getattr(facts, name) is not None}
    return *columns, json.dumps(said, ensure_ascii=False)


def _loc(metadata: str | None) -> str:
    try:
        value = json.loads(metadata) if metadata is not None else None
    except (ValueError, RecursionError):
        return ""
    place = value.get("loc") if isinstance(value, dict) else None
    return place if isinstance(place, str) else ""
