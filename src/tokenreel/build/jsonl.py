"""Read JSON lines: one object a line, typed and strict; whatever is wrong is named with file, line and byte."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from tokenreel.build.blocks import without_mark
from tokenreel.build.jsonl_errors import Line, diagnose, escapes, refuse_twice
from tokenreel.build.records import Records
from tokenreel.errors import SourceError, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.build.records import SourceShape

_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_BLOCK = 1 << 17
_LONG_LINE = 512
"""Lines longer than this are found one by one faster than with NumPy."""
_FAST_LIMIT = (1 << 31) - 8
"""Arrow's parser takes blocks of less than 2 GiB."""
_NO_NUMBER = (r"NaN[ \t\r]*[,\]}]", r"Inf(?:inity)?[ \t\r]*[,\]}]")
"""Arrow's parser takes these for numbers, RFC 8259 does not."""


def read_jsonl(blocks: Iterator[bytes], path: str, shape: SourceShape, chunk_bytes: int) -> Iterator[Records]:
    """Yield the records of JSON lines (decompressed bytes) in chunks of about `chunk_bytes`; a longer line is one chunk.

    Lines are strict JSON (RFC 8259): no NaN, valid UTF-8 in every field, no lone surrogate; objects may nest to any
    depth. Whether a line is taken depends on that line alone. A byte order mark at the very beginning is passed over;
    blank lines are passed over and counted; CRLF is fine, and so is a last line without newline. Raises `SourceError`:
    SRC001 not UTF-8, SRC002 a lone surrogate, SRC003 not JSON, SRC004 not an object, SRC005 no such field, SRC006 a
    field of another type, SRC007 a key twice (of an extra field the last one counts). Cost: about 1.5 ms a MB.
    """
    skipped, rest = without_mark(blocks)
    reader = _Reader(path, shape, inside=getattr(blocks, "compression", None))
    reader.skip(skipped)
    for data in _whole_lines(rest, chunk_bytes):
        records = reader.with_extra(reader.chunk(data), data)
        if len(records) or records.blank:
            yield records


def _whole_lines(blocks: Iterator[bytes], chunk_bytes: int) -> Iterator[bytes]:
    """Yield runs of whole lines of about `chunk_bytes`, the last one as it is."""
    parts: list[bytes] = []
    size = 0
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size < chunk_bytes:
            continue
        # Only the newest block is searched: a line of a gigabyte is looked at once.
        cut = block.rfind(b"\n") + 1
        if cut:
            parts[-1] = block[:cut]
            yield b"".join(parts)
            parts = [block[cut:]]
            size = len(parts[0])
    rest = b"".join(parts)
    if rest:
        yield rest


class _Columns(NamedTuple):
    """What Arrow's parser made of some lines."""

    texts: Any
    ids: list[str | None] | None
    sources: list[str] | None


@dataclass(slots=True)
class _Position:
    """How far a reader has come: records, lines and bytes before the next chunk."""

    record: int = 0
    line: int = 1
    offset: int = 0


class _Reader:
    """Decodes runs of whole lines of one file.

    Two parsers share the work. Arrow's is fast on whole chunks, and what it refuses, or might take and should not, is
    looked at line by line with msgspec's. A line that msgspec refuses is given to Arrow once more, alone: so what is
    taken is what either takes of the line by itself, whatever stands beside it.
    """

    def __init__(self, path: str, shape: SourceShape, inside: str | None = None) -> None:
        self._pa = require("pyarrow", extra="build")
        self._path = path
        self._shape = shape
        self._inside = inside
        self._at = _Position()
        self._names = list(dict.fromkeys(n for n in (shape.text, shape.id, shape.source_field) if n is not None))
        kinds: dict[str, tuple[str, Any]] = {shape.text: ("text", str)}
        if shape.id is not None:
            kinds.setdefault(shape.id, ("upstream", str | int))
        if shape.source_field is not None:
            kinds.setdefault(shape.source_field, ("source", str))
        self._id = kinds[shape.id][0] if shape.id is not None else ""
        self._source = kinds[shape.source_field][0] if shape.source_field is not None else ""
        self._struct = msgspec.defstruct(
            "Record", list(kinds.values()), rename={kind[0]: name for name, kind in kinds.items()}, gc=False
        )
        self._decode = msgspec.json.Decoder(self._struct).decode
        self._more = _extra_decoder(shape.extra) if shape.extra else None
        self._id_kind = self._pa.large_string()
        self._escaped = re.compile(b"|".join(map(escapes, self._names)))

    def skip(self, size: int) -> None:
        """Count bytes before the first line."""
        self._at.offset += size

    def chunk(self, data: bytes) -> Records:
        """Return the records of whole lines."""
        at = self._at
        found = self._fast(data)
        if found is None:
            lines = data.count(b"\n") + (not data.endswith(b"\n"))
            records = self._careful(data)
        else:
            lines = len(found.texts)
            numbers = range(at.line, at.line + lines)
            records = Records(found.texts, at.record, found.ids, found.sources, numbers)
        at.record += len(records)
        at.line += lines
        at.offset += len(data)
        return records

    def with_extra(self, records: Records, data: bytes) -> Records:
        """Return the records of these lines with the shape's extra fields, decoded in a pass of their own."""
        if self._more is None:
            return records
        lines = [line for line in data.split(b"\n") if line.strip(b" \t\r")]
        found = []
        for number, line in enumerate(lines):
            try:
                found.append(self._more(line))
            except (msgspec.DecodeError, RecursionError) as error:
                raise SourceError(
                    "SRC006",
                    f"one of {', '.join(self._shape.extra)}: {error}",
                    path=self._path,
                    document=records.first + number,
                    line=None if records.lines is None else records.lines[number],
                ) from error
        columns = {name: [getattr(one, f"f{k}") for one in found] for k, name in enumerate(self._shape.extra)}
        return replace(records, columns=columns)

    def _fast(self, data: bytes) -> _Columns | None:
        """Return the records as Arrow's parser sees them, or None where it, or the shape of the lines, is not certain.

        Every line begins with a brace and ends with one, and there are as many records as lines: then each line is one
        record, because no JSON value goes on across such a line end. Arrow refuses a field of ours that stands twice,
        however its name is spelled. What it would take and must not is looked for before: bytes that are not UTF-8
        and numbers that are none. Nulls and missing fields are left to `_careful`, which says what is wrong.
        """
        pa = self._pa
        offsets = _brace_lines(data)
        if offsets is None or len(data) >= _FAST_LIMIT or not _utf8(pa, data) or self._no_number(data, offsets):
            return None
        table = self._parse(data)
        if table is None or table.num_rows != len(offsets) - 1:
            return None
        columns = {name: _one_chunk(pa, table.column(name)) for name in self._names}
        if any(column.null_count for column in columns.values()):
            return None
        shape = self._shape
        ids = None if shape.id is None else columns[shape.id].cast(pa.large_string()).to_pylist()
        sources = None if shape.source_field is None else columns[shape.source_field].to_pylist()
        if sources is not None and "" in sources:
            return None
        return _Columns(columns[shape.text], ids, sources)

    def _no_number(self, data: bytes, offsets: npt.NDArray[np.int64]) -> bool:
        """Return whether NaN or an infinity may stand outside a string: whether msgspec refuses a line that spells one."""
        import pyarrow.compute as pc

        pa = self._pa
        lines = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, *map(pa.py_buffer, (offsets, data))])
        for pattern in _NO_NUMBER:
            # RE2 looks for a fixed beginning many times faster than Python's expressions do.
            if not pc.count_substring_regex(_as_one(pa, data, pa.large_binary()), pattern)[0].as_py():
                continue
            for line in lines.filter(pc.match_substring_regex(lines, pattern)).to_pylist():
                try:
                    self._decode(line)
                except (msgspec.DecodeError, RecursionError):
                    return True
        return False

    def _parse(self, data: bytes) -> Any:
        pa = self._pa
        from pyarrow import json as arrow_json

        for kind in dict.fromkeys((self._id_kind, pa.large_string(), pa.int64())):
            fields = {name: pa.large_string() for name in self._names}
            if self._shape.id is not None and self._shape.id not in (self._shape.text, self._shape.source_field):
                fields[self._shape.id] = kind
            try:
                table = arrow_json.read_json(
                    pa.BufferReader(data),
                    read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                    parse_options=arrow_json.ParseOptions(
                        explicit_schema=pa.schema(list(fields.items())), unexpected_field_behavior="ignore"
                    ),
                )
            except pa.ArrowException:
                if self._shape.id is None:
                    return None
                continue
            self._id_kind = kind
            return table
        return None

    def _careful(self, data: bytes) -> Records:
        """Return the records line by line; raises what is wrong with the first line that is wrong, with its place."""
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        decoded: list[Any] = []
        numbers: list[int] = []
        offset = self._at.offset
        unchecked = not _utf8(self._pa, data)
        for number, line in enumerate(lines, self._at.line):
            cut = number == self._at.line + len(lines) - 1 and not data.endswith(b"\n")
            place = Line(line, self._path, number, offset, self._inside, cut)
            try:
                if unchecked:
                    line.decode()
                record: Any = self._decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                bare = line.strip(b" \t\r")
                record = self._alone(bare) if bare else None
                if bare and record is None:
                    raise diagnose(place, self._shape, error) from error
            if record is not None:
                self._check(record, place)
                decoded.append(record)
                numbers.append(number)
            offset += len(line) + 1
        texts = self._pa.array([one.text for one in decoded], self._pa.large_string())
        ids: list[str | None] | None = None
        if self._id:
            ids = [str(getattr(one, self._id)) for one in decoded]
        sources = [getattr(one, self._source) for one in decoded] if self._source else None
        return Records(texts, self._at.record, ids, sources, numbers, len(lines) - len(decoded))

    def _alone(self, line: bytes) -> Any:
        """Return a line's record as Arrow's parser sees it (it follows any depth of nesting), or None."""
        found = self._fast(line)
        if found is None:
            return None
        facts = {"text": found.texts[0].as_py()}
        if self._id:
            facts[self._id] = (found.ids or [])[0]
        if self._source:
            facts[self._source] = (found.sources or [])[0]
        return self._struct(**facts)

    def _check(self, record: Any, place: Line) -> None:
        """Raise what msgspec does not look for: a field of ours that stands twice, a source without a name."""
        line = place.data
        if any(line.count(key) > 1 for key in map(_key, self._names)) or self._escaped.search(line):
            try:
                refuse_twice(place, self._names)
            except RecursionError:
                # Nested so deeply that only Arrow's parser can say; it does not say where.
                if self._alone(line.strip(b" \t\r")) is None:
                    raise place.error("SRC007", "A key stands twice in one object.") from None
        if self._source and not getattr(record, self._source):
            name = self._shape.source_field
            raise place.error(
                "SRC006",
                f"The field {name!r}, which says a document's source, is empty.",
                expected="the name of a source",
                found="an empty string",
            )


def _extra_decoder(names: tuple[str, ...]) -> Any:
    fields: list[tuple[str, Any, Any]] = [(f"f{k}", Any, None) for k in range(len(names))]
    rename = {f"f{k}": name for k, name in enumerate(names)}
    return msgspec.json.Decoder(msgspec.defstruct("Extra", fields, rename=rename)).decode


def _utf8(pa: Any, data: bytes) -> bool:
    try:
        _as_one(pa, data, pa.large_string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _as_one(pa: Any, data: bytes, kind: Any) -> Any:
    ends = np.array([0, len(data)], np.int64)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _brace_lines(data: bytes) -> npt.NDArray[np.int64] | None:
    """Return where lines begin, and the end, if every line begins with ``{`` and ends with ``}`` (perhaps CR); else None.

    >>> _brace_lines(b'{"a":1}\\n{"a":2}\\r\\n'), _brace_lines(b'{"a":1}\\n\\n'), _brace_lines(b'{"a":\\n1}')
    (array([ 0,  8, 17]), None, None)
    """
    text = np.frombuffer(data, np.uint8)
    ends = _newlines(data, text)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    begins = np.concatenate(([0], ends[:-1] + 1))
    if bool((ends - begins < 2).any()) or bool((text[begins] != _OPEN).any()):
        return None
    last = text[ends - 1]
    returned = last == _RETURN
    if bool(returned.any()):
        last = np.where(returned, text[ends - 2], last)
    return None if bool((last != _CLOSE).any()) else np.append(begins, len(data))


def _newlines(data: bytes, text: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return where the newlines of `data` are; `text` is the same bytes."""
    if data.count(b"\n", 0, _BLOCK) > _BLOCK // _LONG_LINE:
        # A block at a time stays in the cache: several times faster than one pass over everything.
        return np.concatenate(
            [np.flatnonzero(text[k : k + _BLOCK] == _NEWLINE) + k for k in range(0, len(text), _BLOCK)]
        )
    found = []
    at = data.find(b"\n")
    while at >= 0:
        found.append(at)
        at = data.find(b"\n", at + 1)
    return np.array(found, np.int64)


def _one_chunk(pa: Any, column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _key(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode()
