"""Read plain text: a file is one document, or documents stand between separators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tokenreel.build.blocks import without_mark
from tokenreel.build.jsonl_errors import utf16_hint
from tokenreel.build.records import Records
from tokenreel.errors import SourceError, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.build.records import SourceShape

_FOREIGN = {
    b"\xff\xfe": ("UTF-16", None),
    b"\xfe\xff": ("UTF-16", None),
    b"PAR1": ("Parquet", 'set format = "parquet" in [[source]]'),
}
"""First bytes of files that are something else, what, and what would mend it."""


def read_text(blocks: Iterator[bytes], path: str, shape: SourceShape, chunk_bytes: int) -> Iterator[Records]:
    r"""Yield the documents of a text file (decompressed bytes) in chunks of about `chunk_bytes`.

    Without a separator the file is one document, exactly as it stands but for a byte order mark at the beginning (an
    empty file is none). With one, what stands between separators is a document; empty pieces are passed over and
    counted; with ``"\n"`` a carriage return before it belongs to the line's end. Raises `SourceError` (SRC001).
    """
    pa = require("pyarrow", extra="build")
    skipped, rest = without_mark(blocks)
    place = _Place(path, getattr(blocks, "compression", None))
    if shape.separator is None:
        data = b"".join(rest)
        if data:
            yield Records(_array(pa, [data], [skipped], place), 0, lines=[1])
        return
    separator = shape.separator.encode()
    pieces: list[bytes] = []
    offsets: list[int] = []
    record = blank = size = 0
    for offset, piece in _pieces(rest, separator, skipped):
        document = piece.removesuffix(b"\r") if separator == b"\n" else piece
        if not document:
            blank += 1
            continue
        pieces.append(document)
        offsets.append(offset)
        size += len(document)
        if size >= chunk_bytes:
            yield Records(_array(pa, pieces, offsets, place), record, blank=blank)
            record += len(pieces)
            pieces, offsets, blank, size = [], [], 0, 0
    if pieces or blank:
        yield Records(_array(pa, pieces, offsets, place), record, blank=blank)


def _pieces(blocks: Iterator[bytes], separator: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, piece) of everything between separators; what follows the last one only if not empty."""
    waiting: list[bytes] = []
    tail = b""
    for block in blocks:
        data = block
        # A separator may lie across blocks: its beginning is looked for together with the end of what waits.
        if waiting and separator not in tail + data:
            waiting.append(data)
            tail = (tail + data)[1 - len(separator) :] if len(separator) > 1 else b""
            continue
        data = b"".join([*waiting, data])
        *whole, rest = data.split(separator)
        for piece in whole:
            yield offset, piece
            offset += len(piece) + len(separator)
        waiting = [rest]
        tail = rest[1 - len(separator) :] if len(separator) > 1 else b""
    last = b"".join(waiting)
    if last:
        yield offset, last


class _Place(NamedTuple):
    """The file, and what it is compressed with."""

    path: str
    inside: str | None


def _array(pa: Any, pieces: list[bytes], offsets: list[int], place: _Place) -> Any:
    for piece, offset in zip(pieces, offsets, strict=True):
        try:
            piece.decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(piece, offset, error, place) from error
    return pa.array(pieces, pa.large_binary()).cast(pa.large_string())


def _not_utf8(piece: bytes, offset: int, error: UnicodeDecodeError, place: _Place) -> SourceError:
    message, hint = "The text is not UTF-8.", None
    for head, (name, mend) in _FOREIGN.items():
        if offset == 0 and piece.startswith(head):
            message, hint = f"The file is {name}, not UTF-8 text.", mend or utf16_hint(place.path)
    if place.inside:
        message += f" The byte is counted in the decompressed data ({place.inside})."
    return SourceError(
        "SRC001",
        message,
        path=place.path,
        offset=offset + error.start,
        expected="UTF-8",
        found=f"0x{piece[error.start]:02x} ({error.reason})",
        hint=hint,
    )
