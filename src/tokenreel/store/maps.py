"""A bounded pool of read-only maps, with a `pread` fallback when mapping fails."""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StorageError
from tokenreel.store.atomic import read_error
from tokenreel.store.base import bounds_checked

if TYPE_CHECKING:
    import numpy.typing as npt

COPY_LIMIT = 1 << 22
"""Arrays of at most this many bytes are copied by `pread`: they cannot fault when the file shrinks."""


class MapPool:
    """Keeps at most `limit` files open, the least recently used going first.

    Dropping a map from the pool never invalidates an array: the array holds the map, which closes when the last view
    is gone. When the system refuses a map (EPERM, ENOMEM, ENODEV, EMFILE), reads go on through `pread`.
    """

    def __init__(self, limit: int = 64) -> None:
        if limit < 1:
            raise StorageError("STO002", "a pool needs room for one map", expected=">= 1", found=limit)
        self.limit = limit
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
            while len(self._open) >= self.limit:
                self._open.popitem(last=False)
            found = self._open[path] = _Handle(path)
            return found

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
        try:
            return handle.map()
        except (OSError, ValueError):
            self.fallbacks += 1
            handle.refused = True
            return None


class _Handle:
    """One open file: its descriptor, the size it had, and its map once asked for."""

    __slots__ = ("_map", "fd", "path", "refused", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        self.refused = False
        self._map: mmap.mmap | None = None
        self.fd = -1
        try:
            self.fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            self.size = os.fstat(self.fd).st_size
        except OSError as error:
            raise read_error(path, error) from error

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def check_size(self) -> None:
        now = os.fstat(self.fd).st_size
        if now != self.size:
            raise StorageError(
                "STO004",
                path=self.path,
                expected=f"{self.size} bytes",
                found=f"{now} bytes",
                hint=f"tokenreel verify {self.path}",
            )

    def map(self) -> mmap.mmap | None:
        if self._map is None and not self.refused:
            self._map = mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ)
        return self._map


class PooledReader:
    """Exact reads from one local file through a `MapPool`; opening costs one `open` and one `fstat`."""

    __slots__ = ("_path", "_pool", "_size")

    def __init__(self, path: str, pool: MapPool) -> None:
        self._path = path
        self._pool = pool
        self._size = pool.handle(path).size

    @property
    def path(self) -> str:
        """The file's path."""
        return self._path

    @property
    def size(self) -> int:
        """Size in bytes when the reader was made."""
        return self._size

    def _handle(self) -> _Handle:
        handle = self._pool.handle(self._path)
        if handle.size != self._size:  # evicted, replaced on disk, opened again
            self._pool.drop(self._path)
            raise StorageError(
                "STO004",
                path=self._path,
                expected=f"{self._size} bytes",
                found=f"{handle.size} bytes",
                hint=f"tokenreel verify {self._path}",
            )
        return handle

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`; STO004 when the file changed size, STO005 past its end."""
        bounds_checked(self._path, self._size, offset, length)
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

        The size is checked again at every call. A view of more than 4 MiB must not be read after its file was
        shortened by another program; call again instead, which raises STO004.
        """
        import numpy as np

        kind = np.dtype(dtype)
        length = count * kind.itemsize
        bounds_checked(self._path, self._size, offset, length)
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

    def close(self) -> None:
        """Give the handle back to the system; arrays handed out stay valid."""
        self._pool.drop(self._path)
