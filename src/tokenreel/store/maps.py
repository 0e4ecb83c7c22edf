"""A bounded pool of read-only maps, with a `pread` fallback when mapping fails."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StorageError, UsageError
from tokenreel.store.atomic import read_error
from tokenreel.store.base import bounds_checked

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

COPY_LIMIT = 1 << 22
"""Arrays of at most this many bytes are copied by `pread`: they cannot fault when the file shrinks."""


class MapPool:
    """Keeps at most `limit` files open, the least recently used going first.

    A mapped file costs two descriptors (Python's map keeps one of its own). Dropping a map from the pool never
    invalidates an array: the array holds the map, which closes when the last view is gone. When the system refuses a
    map (EPERM, ENOMEM, ENODEV, EMFILE), reads go on through `pread`; with ``maps=False`` they always do: slower for
    large arrays, and nothing another program does to a file can then end this one.
    """

    def __init__(self, limit: int = 64, *, maps: bool = True) -> None:
        if limit < 1:
            raise UsageError("USE003", "a pool needs room for one file", expected=">= 1", found=limit)
        self.limit = limit
        self.maps = maps
        self.fallbacks = 0
        """How often mapping failed and `pread` was used instead."""
        self._open: OrderedDict[str, _Handle] = OrderedDict()
        self._lock = threading.Lock()

    def handle(self, path: str) -> _Handle:
        """Return the open handle of a file, opening it and closing the least recently used one where needed."""
        with self._lock:
            found = self._open.get(path)
            if found is not None:
                self._open.move_to_end(path)
                return found
            return self._opened(path)

    def fresh(self, path: str) -> _Handle:
        """Return the handle as `handle` does, opened again when the path now leads to another file or size."""
        with self._lock:
            found = self._open.get(path)
            if found is not None:
                if found.is_still(path):
                    self._open.move_to_end(path)
                    return found
                del self._open[path]
            return self._opened(path)

    def _opened(self, path: str) -> _Handle:
        while len(self._open) >= self.limit:
            self._open.popitem(last=False)
        while True:
            try:
                found = self._open[path] = _Handle(path)
                return found
            except StorageError:
                raise
            except OSError as error:
                # Out of descriptors: give one of ours back before giving up.
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                    raise read_error(path, error) from error
                self._open.popitem(last=False)

    def drop(self, path: str) -> None:
        """Forget a file; arrays handed out stay valid."""
        with self._lock:
            self._open.pop(path, None)

    def clear(self) -> None:
        """Forget all files."""
        with self._lock:
            self._open.clear()

    def __len__(self) -> int:
        """Return the number of files held open."""
        return len(self._open)

    def map(self, handle: _Handle) -> mmap.mmap | None:
        """Return the file's map, made at first use, or None where the system refuses one."""
        if not self.maps:
            return None
        try:
            return handle.map()
        except (OSError, ValueError):
            self.fallbacks += 1
            handle.refused = True
            return None


class _Handle:
    """One open file: its descriptor, the size and stamp it had, and its map once asked for."""

    __slots__ = ("_map", "fd", "path", "refused", "size", "stamp")

    def __init__(self, path: str) -> None:
        self.path = path
        self.refused = False
        self._map: mmap.mmap | None = None
        self.fd = -1
        # Not blocking: opening a named pipe would wait for a writer.
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self.fd)
        if not S_ISREG(status.st_mode):
            raise StorageError("STO002", "could not read: not a regular file", path=path)
        self.size = status.st_size
        self.stamp = _Stamp(status.st_size, (status.st_dev, status.st_ino), status.st_mtime_ns)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # At the interpreter's end the module may be gone before its handles.
        if self.fd >= 0:
            close(self.fd)

    def is_still(self, path: str) -> bool:
        try:
            now = os.stat(path)  # noqa: PTH116 (called for every file opened)
        except OSError:
            return False
        return (now.st_size, (now.st_dev, now.st_ino)) == (self.size, self.stamp.inode)

    def check_size(self) -> None:
        now = os.fstat(self.fd).st_size
        if now != self.size:
            raise _changed(self.path, f"{self.size} bytes", f"{now} bytes")

    def map(self) -> mmap.mmap | None:
        if self._map is None and not self.refused:
            self._map = mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ)
        return self._map


@dataclass(frozen=True, slots=True)
class _Stamp:
    """What tells one file from another that was put in its place."""

    size: int
    inode: tuple[int, int]
    modified: int

    def same(self, other: _Stamp) -> bool:
        # A touch keeps the inode; some network file systems give a new inode at each opening but keep the time.
        return self.size == other.size and (self.inode == other.inode or self.modified == other.modified)


def _changed(path: str, expected: str, found: str) -> StorageError:
    return StorageError("STO004", path=path, expected=expected, found=found, hint=f"tokenreel verify {path}")


class PooledReader:
    """Exact reads from one local file through a `MapPool`; opening costs one `open` and one `fstat`.

    A reader reads one file for good: where another one was put in its place, reads go on from the first while the pool
    holds it, and raise `StorageError` (STO004) from then on.
    """

    __slots__ = ("_path", "_pool", "_stamp")

    def __init__(self, path: str, pool: MapPool) -> None:
        self._path = path
        self._pool = pool
        self._stamp = pool.fresh(path).stamp

    @property
    def path(self) -> str:
        """The file's path."""
        return self._path

    @property
    def size(self) -> int:
        """Size in bytes when the reader was made."""
        return self._stamp.size

    def _handle(self) -> _Handle:
        handle = self._pool.handle(self._path)
        if not handle.stamp.same(self._stamp):  # replaced on disk and opened again
            now = "the same size, another file" if handle.size == self.size else f"{handle.size} bytes"
            raise _changed(self._path, f"{self.size} bytes", now)
        return handle

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`; STO004 when the file changed size, STO005 past its end."""
        bounds_checked(self._path, self.size, offset, length)
        handle = self._handle()
        handle.check_size()
        parts = []
        left = length
        while left:
            try:
                part = os.pread(handle.fd, left, offset + length - left)
            except OSError as error:
                raise read_error(self._path, error) from error
            if not part:
                handle.check_size()
                bounds_checked(self._path, offset + length - left, offset + length - left, left)
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def array(self, dtype: npt.DTypeLike, offset: int, count: int) -> npt.NDArray[Any]:
        """Return `count` items from byte `offset`, read-only. Up to 4 MiB: a copy; beyond: a view that keeps its map.

        The size is checked again at every call, so a file that shrank is STO004 at the next one. What no check can
        prevent: reading on in a view of more than 4 MiB that was handed out before another program cut its file short
        ends the process with SIGBUS. Ask for at most 4 MiB at a time, or use ``MapPool(maps=False)``, where files may
        be cut.
        """
        import numpy as np

        kind = np.dtype(dtype)
        length = count * kind.itemsize
        bounds_checked(self._path, self.size, offset, length)
        if length <= COPY_LIMIT:
            return np.frombuffer(self.read(offset, length), dtype=kind)
        handle = self._handle()
        handle.check_size()
        mapped = self._pool.map(handle)
        if mapped is None:
            return np.frombuffer(self.read(offset, length), dtype=kind)
        view = np.frombuffer(mapped, dtype=kind, count=count, offset=offset)
        view.flags.writeable = False
        return view

    def mapped(self) -> MappedFile | None:
        """Return the whole file as memory, or None where it cannot be mapped; raises `StorageError` (STO004).

        For reading many places at once. The memory stays as long as what is returned; ask `MappedFile.check` before each
        use, because a file that was cut short since would end the process.
        """
        import numpy as np

        handle = self._handle()
        handle.check_size()
        found = self._pool.map(handle)
        return None if found is None else MappedFile(np.frombuffer(found, dtype=np.uint8), handle)

    def close(self) -> None:
        """Give the handle back to the system; arrays handed out stay valid."""
        self._pool.drop(self._path)


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """A file's bytes as memory, with the means to see that it still has its size."""

    data: npt.NDArray[np.uint8]
    _handle: _Handle

    def check(self) -> None:
        """Raise `StorageError` (STO004) when the file changed size. Cost: one call of the system, 0.3 us."""
        if os.lseek(self._handle.fd, 0, os.SEEK_END) != self._handle.size:
            self._handle.check_size()
