"""Read plain text: a file is one document, or documents stand between separators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.build.records import Records
from tokenreel.errors import SourceError, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.build.records import SourceShape

_BOM = b"\xef\xbb\xbf"


def read_text(blocks: Iterator[bytes], path: str, shape: SourceShape, chunk_bytes: int) -> Iterator[Records]:
    r"""Yield the documents of a text file (decompressed bytes) in chunks of about `chunk_bytes`.

    Without a separator the file is one document, exactly as it stands but for a byte order mark at the beginning (an
    empty file is none). With one, what stands between separators is a document; empty pieces are passed over and
    counted; with ``"\n"`` a carriage return before it belongs to the line's end. Raises `SourceError` (SRC001).
    """
    pa = require("pyarrow", extra="build")
    if shape.separator is None:
        data = b"".join(blocks).removeprefix(_BOM)
        if data:
            yield Records(_array(pa, [data], [0], path), 0, lines=[1])
        return
    separator = shape.separator.encode()
    pieces: list[bytes] = []
    offsets: list[int] = []
    record = blank = size = 0
    for offset, piece in _pieces(blocks, separator):
        document = piece.removesuffix(b"\r") if separator == b"\n" else piece
        if not document:
            blank += 1
            continue
        pieces.append(document)
        offsets.append(offset)
        size += len(document)
        if size >= chunk_bytes:
            yield Records(_array(pa, pieces, offsets, path), record, blank=blank)
            record += len(pieces)
            pieces, offsets, blank, size = [], [], 0, 0
    if pieces or blank:
        yield Records(_array(pa, pieces, offsets, path), record, blank=blank)


def _pieces(blocks: Iterator[bytes], separator: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, piece) of everything between separators; what follows the last one only if not empty."""
    waiting: list[bytes] = []
    tail = b""
    offset = 0
    for number, block in enumerate(blocks):
        data = block if number else block.removeprefix(_BOM)
        if not number:
            offset = len(block) - len(data)
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


def _array(pa: Any, pieces: list[bytes], offsets: list[int], path: str) -> Any:
    for piece, offset in zip(pieces, offsets, strict=True):
        try:
            piece.decode()
        except UnicodeDecodeError as error:
            raise SourceError(
                "SRC001",
                path=path,
                offset=offset + error.start,
                expected="UTF-8",
                found=f"0x{piece[error.start]:02x} ({error.reason})",
            ) from error
    return pa.array(pieces, pa.large_binary()).cast(pa.large_string())
