"""Read a compressed file as if it were not: decompressed whole, once, never further than its declared size.

What is decompressed is bounded before anything is: by the size that the file's index declares, and that size by a multiple
of what is stored. Compressed shards of ids come to a half or a third of their size; a file that declares a hundred times
its own is no shard of ids. At most `ROOM` bytes of decompressed files are kept, the last used ones.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from tokenreel.errors import FormatError, MissingExtra, require
from tokenreel.store.base import bounds_checked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import numpy.typing as npt

    from tokenreel.store.base import Reader

ROOM = 256 << 20
FREE = 32 << 20
"""Bytes that any file may decompress to."""
RATIO = 64
"""How many times its own size a larger one may."""
_STEP = 1 << 20
_BY_ARROW = {"br": "brotli", "snappy": "snappy"}
ALGORITHMS = ("zstd", "gz", "bz2", *_BY_ARROW)


def largest(packed: int) -> int:
    """Return the most bytes that a compressed file of `packed` bytes is decompressed to.

    >>> largest(1000) == FREE, largest(10**9)
    (True, 64000000000)
    """
    return max(FREE, RATIO * packed)


def unpack(data: bytes, algorithm: str, size: int) -> bytearray | bytes:
    """Return exactly `size` bytes; raises `ValueError` for data that is not that, `MissingExtra` (USE002).

    Never makes more than `size` bytes and a step. `size` was checked against `largest`.
    """
    if algorithm in _BY_ARROW:
        pa = require("pyarrow", extra="build")
        try:
            return bytes(pa.decompress(data, decompressed_size=size, codec=_BY_ARROW[algorithm], asbytes=True))
        except (OSError, pa.ArrowException) as error:
            raise ValueError(str(error).splitlines()[0][:200]) from error
    out = bytearray()
    for part in steps_of(data, algorithm):
        if len(out) + len(part) > size:
            raise ValueError(f"more than {size} bytes")
        out += part
    if len(out) != size:
        raise ValueError(f"{len(out)} bytes")
    return out


def steps_of(data: bytes, algorithm: str) -> Iterator[bytes]:
    """Yield what data decompresses to, a MiB or so at a time; raises `ValueError` where it goes no further."""
    if algorithm == "zstd":
        zstandard = require("zstandard", extra="build")
        try:
            # Without a limit, a frame may ask for a window of 2 GiB.
            reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data, read_across_frames=True)
            while part := reader.read(_STEP):
                yield part
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
        return
    left = data
    while left:
        machine = _machine(algorithm)
        while not machine.eof:
            try:
                part = machine.decompress(left, _STEP)
            except (OSError, EOFError, _zlib_error()) as error:
                raise ValueError(str(error)) from error
            left = machine.unconsumed_tail if algorithm == "gz" and not machine.eof else b""
            yield part
            if not part and not left and not machine.eof:
                raise ValueError("cut short")
        left = machine.unused_data


def _machine(algorithm: str) -> Any:
    if algorithm == "gz":
        import zlib

        return zlib.decompressobj(wbits=31)
    import bz2

    return bz2.BZ2Decompressor()


def _zlib_error() -> type[Exception]:
    import zlib

    return zlib.error


class UnpackedReader:
    """The content of a compressed file as a `Reader`; `offset` in its messages counts decompressed bytes.

    `wrong` are the codes of a size that is refused, unless it is in `accept`, and of content that is not what was declared.
    """

    def __init__(
        self,
        packed: Reader,
        path: str,
        algorithm: str,
        size: int,
        wrong: tuple[str, str],
        accept: Collection[str] = (),
    ) -> None:
        self._packed = packed
        self._algorithm = algorithm
        self._wrong = wrong[1]
        self.path = path
        self.size = size
        if size > largest(packed.size) and wrong[0] not in accept:
            raise FormatError(
                wrong[0],
                path=path,
                expected=f"at most {largest(packed.size)} bytes, of a file of {packed.size}",
                found=f"{size} bytes",
            )

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` decompressed bytes from `offset`."""
        bounds_checked(self.path, self.size, offset, length)
        return bytes(memoryview(self._content())[offset : offset + length])

    def array(self, dtype: npt.DTypeLike, offset: int, count: int) -> npt.NDArray[Any]:
        """Return `count` items from decompressed byte `offset`, read-only."""
        import numpy as np

        kind = np.dtype(dtype)
        bounds_checked(self.path, self.size, offset, count * kind.itemsize)
        view = np.frombuffer(self._content(), dtype=kind, count=count, offset=offset)
        view.flags.writeable = False
        return view

    def close(self) -> None:
        """Forget the content; arrays handed out stay valid."""
        _KEPT.drop(id(self))
        self._packed.close()

    def __del__(self) -> None:
        _KEPT.drop(id(self))

    def _content(self) -> bytearray | bytes:
        kept = _KEPT.get(id(self))
        if kept is None:
            data = self._packed.read(0, self._packed.size)
            try:
                kept = unpack(data, self._algorithm, self.size)
            except MissingExtra:
                raise
            except ValueError as error:
                raise FormatError(
                    self._wrong, path=self.path, expected=f"{self.size} bytes of {self._algorithm}", found=str(error)
                ) from error
            _KEPT.put(id(self), kept)
        return kept


class _Kept:
    """Decompressed files, the least recently used ones going first where they take more than `ROOM`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._files: OrderedDict[int, bytearray | bytes] = OrderedDict()
        self._bytes = 0

    def get(self, key: int) -> bytearray | bytes | None:
        with self._lock:
            found = self._files.get(key)
            if found is not None:
                self._files.move_to_end(key)
            return found

    def put(self, key: int, data: bytearray | bytes) -> None:
        with self._lock:
            self.drop(key)
            self._files[key] = data
            self._bytes += len(data)
            while self._bytes > ROOM and len(self._files) > 1:
                _, gone = self._files.popitem(last=False)
                self._bytes -= len(gone)

    def drop(self, key: int) -> None:
        with self._lock:
            gone = self._files.pop(key, None)
            self._bytes -= 0 if gone is None else len(gone)


_KEPT = _Kept()
