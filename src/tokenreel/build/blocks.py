"""The bytes of an input: read once, hashed while read, decompressed without trusting the end of the file."""

from __future__ import annotations

import hashlib
import itertools
import lzma
import os
import zlib
from typing import TYPE_CHECKING, Any, Protocol

from tokenreel.errors import SourceError, TokenreelError, require
from tokenreel.store.atomic import read_error

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_BYTES = 1 << 20
_MARK = b"\xef\xbb\xbf"
_WINDOW_LOG = 27
"""zstd's own limit: a frame that needs a larger window needs as much memory to be read."""
_PORTIONS = {"gz": 1 << 16, "xz": 1 << 16, "zst": 1 << 14}
"""Compressed bytes handed on at a time: what bounds memory when a few bytes expand to very many."""


def compression(head: bytes) -> str | None:
    """Return ``gz``, ``zst``, ``xz`` or None for the first bytes of a file.

    >>> compression(bytes([0x1F, 0x8B, 8])), compression(b"{}")
    ('gz', None)
    """
    if head[:2] == b"\x1f\x8b":
        return "gz"
    if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[:1] and head[0] >> 4 == 5):
        return "zst"
    if head[:6] == b"\xfd7zXZ\x00":
        return "xz"
    return None


Stamp = tuple[int, int, int, int]
"""Size, last change of content, last change of status (ns), inode: no program can change a file and keep all four."""


def stamp_of(path: str | os.PathLike[str]) -> Stamp:
    """Return a file's stamp; raises `StorageError` (STO001, STO002)."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError as error:
        raise read_error(path, error) from error
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


class InputBytes:
    """Reads a file once from start to end; `check` says whether it was the file that was planned.

    With the `stamp` that the file had when it was hashed, its bytes are not hashed again: the stamp is compared when
    reading begins and when it ends.
    """

    __slots__ = ("_digest", "_stamp", "bytes", "path")

    def __init__(self, path: str | os.PathLike[str], stamp: Stamp | None = None) -> None:
        self.path = os.fspath(path)
        self.bytes = 0
        self._stamp = stamp
        self._digest = hashlib.sha256() if stamp is None else None

    def blocks(self, size: int = READ_BYTES) -> Iterator[bytes]:
        """Yield the file's bytes in blocks of at most `size`; raises `StorageError` (STO001, STO002) and SRC012."""
        self.check_stamp()
        try:
            with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123 (raw and unbuffered)
                while block := file.read(size):
                    if self._digest is not None:
                        self._digest.update(block)
                    self.bytes += len(block)
                    yield block
        except OSError as error:
            if isinstance(error, TokenreelError):
                raise
            raise read_error(self.path, error) from error

    def drain(self) -> None:
        """Read the whole file for its hash alone; with a stamp there is nothing to do."""
        if self._digest is not None:
            for _ in self.blocks(1 << 22):
                pass

    @property
    def sha256(self) -> str:
        """SHA-256 of what was read so far; empty where a stamp stands for it."""
        return "" if self._digest is None else self._digest.hexdigest()

    def check_stamp(self) -> None:
        """Raise `SourceError` (SRC012) if the file's stamp is not the one given."""
        if self._stamp is not None:
            found = stamp_of(self.path)
            if found != self._stamp:
                raise self._changed(f"size, times, inode {self._stamp}", f"{found}")

    def check(self, size: int, sha256: str) -> None:
        """Raise `SourceError` (SRC012) unless what was read is what was planned."""
        self.check_stamp()
        if self._digest is not None and (self.bytes, self.sha256) != (size, sha256):
            raise self._changed(f"{size} bytes, SHA-256 {sha256}", f"{self.bytes} bytes, SHA-256 {self.sha256}")

    def _changed(self, expected: str, found: str) -> SourceError:
        hint = "find what writes there, then run the build again into an empty folder"
        return SourceError("SRC012", path=self.path, expected=expected, found=found, hint=hint)


def decompressed(raw: Iterator[bytes], path: str) -> Decompressed:
    """Return an iterator of the bytes inside a file, whatever it is compressed with.

    That is told by content; a ``.gz`` name alone says nothing. Raises `SourceError`: SRC010 the compressed data end too
    early, SRC011 they are damaged, or the name promises a compression that the content is not. Offsets in these errors
    count bytes of the file as it is.
    """
    return Decompressed(raw, path)


class Decompressed:
    """Yields blocks; see `decompressed`."""

    __slots__ = ("_blocks", "compression")

    def __init__(self, raw: Iterator[bytes], path: str) -> None:
        self.compression: str | None = None
        """What the file is compressed with; known when the first block is."""
        self._blocks = self._inside(raw, path)

    def __iter__(self) -> Iterator[bytes]:
        """Return itself."""
        return self

    def __next__(self) -> bytes:
        """Return the next block."""
        return next(self._blocks)

    def _inside(self, raw: Iterator[bytes], path: str) -> Iterator[bytes]:
        first = next(raw, b"")
        self.compression = compression(first)
        if self.compression is not None:
            yield from _inflate(self.compression, first, raw, path)
            return
        promised = path.rpartition(".")[2].lower()
        if first and promised in _PORTIONS:
            message = f"The file's name ends in .{promised}, and its bytes are something else."
            raise SourceError("SRC011", message, path=path, offset=0, found=first[:4].hex(), hint=f"file {path}")
        if first:
            yield first
        yield from raw


def without_mark(blocks: Iterator[bytes]) -> tuple[int, Iterator[bytes]]:
    """Return the size of the UTF-8 byte order mark at the very beginning, 0 or 3, and the blocks after it.

    Blocks may be of any size: each member of a compressed file begins a new one.

    >>> skipped, rest = without_mark(iter([bytes([0xEF]), bytes([0xBB, 0xBF, 0x61]), b"b"]))
    >>> skipped, list(rest)
    (3, [b'a', b'b'])
    """
    head = b""
    while len(head) < len(_MARK) and (block := next(blocks, b"")):
        head += block
    body = head.removeprefix(_MARK)
    return len(head) - len(body), itertools.chain((body,), blocks) if body else blocks


class _Member(Protocol):
    """One gzip member, zstandard frame or xz stream; the three libraries agree on this."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes) -> bytes: ...


def _inflate(kind: str, first: bytes, raw: Iterator[bytes], path: str) -> Iterator[bytes]:
    new = _opener(kind)
    member: _Member | None = None
    errors: tuple[type[Exception], ...] = (zlib.error, lzma.LZMAError, EOFError, *_zstd_errors(kind))
    offset = finished = 0
    for block in _portions(first, raw, _PORTIONS[kind]):
        data = block
        while data:
            if member is None:
                # Zeros may follow a finished member: padding of tapes and of xz.
                data = data.lstrip(b"\0") if finished and kind != "zst" else data
                if not data:
                    break
                member = new()
            try:
                out = member.decompress(data)
            except errors as error:
                raise _damaged(kind, error, path, offset) from error
            if out:
                yield out
            data = b""
            if member.eof:
                data, member, finished = member.unused_data, None, finished + 1
        offset += len(block)
    if member is not None:
        raise SourceError(
            "SRC010", path=path, offset=offset, expected=f"the end of the {kind} data", found="the end of the file"
        )


def _damaged(kind: str, error: Exception, path: str, offset: int) -> SourceError:
    message, hint = f"The {kind} data do not decompress: {error}.", f"fetch {path} again"
    if "too much memory" in str(error):
        message = (
            f"Reading this zstd frame takes a window of more than {1 << _WINDOW_LOG >> 20} MiB (zstd --long, --ultra)."
        )
        hint = f"zstd -dc --long=31 {path} | zstd --long={_WINDOW_LOG} -o SMALLER.zst"
    return SourceError("SRC011", message, path=path, offset=offset, hint=hint)


def _portions(first: bytes, raw: Iterator[bytes], size: int) -> Iterator[bytes]:
    for block in itertools.chain((first,), raw):
        for at in range(0, len(block), size):
            yield block[at : at + size]


def _opener(kind: str) -> Any:
    if kind == "gz":
        return lambda: zlib.decompressobj(wbits=31)
    if kind == "xz":
        return lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    zstandard = require("zstandard", extra="build")
    return lambda: zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).decompressobj()


def _zstd_errors(kind: str) -> tuple[type[Exception], ...]:
    return (require("zstandard", extra="build").ZstdError,) if kind == "zst" else ()
