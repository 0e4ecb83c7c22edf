"""A store in memory: for tests, for fuzzing and for small things that need no folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StorageError
from tokenreel.store.atomic import TEMPORARY_SUFFIX
from tokenreel.store.base import Entry, bounds_checked, path_checked, prefix_checked

if TYPE_CHECKING:
    import numpy.typing as npt


class MemoryReader:
    """Exact reads from bytes in memory."""

    __slots__ = ("_data", "_path")

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data = data

    @property
    def path(self) -> str:
        """The file's path."""
        return self._path

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`; raises `StorageError` (STO005)."""
        bounds_checked(self._path, len(self._data), offset, length)
        return self._data[offset : offset + length]

    def array(self, dtype: npt.DTypeLike, offset: int, count: int) -> npt.NDArray[Any]:
        """Return `count` items from byte `offset` as a read-only view."""
        import numpy as np

        kind = np.dtype(dtype)
        bounds_checked(self._path, len(self._data), offset, count * kind.itemsize)
        return np.frombuffer(self._data, dtype=kind, count=count, offset=offset)

    def close(self) -> None:
        """Do nothing: there is no handle."""


class MemoryStore:
    """Files in a dictionary; what a folder would refuse (a file below a file) is refused here too.

    >>> store = MemoryStore({"a": b"1"})
    >>> store.write("b", b"22")
    >>> [entry.path for entry in store.list()]
    ['a', 'b']
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files: dict[str, bytes] = {}
        for path, data in (files or {}).items():
            self.write(path, data)

    @property
    def root(self) -> str:
        """What messages call the root."""
        return "memory:"

    def _get(self, path: str) -> bytes:
        if path_checked(path, self.root) not in self.files:
            raise StorageError("STO001", path=path)
        return self.files[path]

    def list(self, prefix: str = "") -> list[Entry]:
        """Return all files whose path starts with `prefix`, in byte order of path; temporaries left out."""
        prefix_checked(prefix, self.root)
        chosen = (path for path in self.files if path.startswith(prefix) and not path.endswith(TEMPORARY_SUFFIX))
        return [Entry(path, len(self.files[path])) for path in sorted(chosen, key=os.fsencode)]

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        return path_checked(path, self.root) in self.files

    def size(self, path: str) -> int:
        """Return a file's size in bytes; raises `StorageError` (STO001)."""
        return len(self._get(path))

    def reader(self, path: str) -> MemoryReader:
        """Open a file for exact reads; raises `StorageError` (STO001)."""
        return MemoryReader(path, self._get(path))

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        return self._get(path)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file; raises `StorageError` (STO003) where a file is a folder of another."""
        parts = path_checked(path, self.root).split("/")
        above = {"/".join(parts[:k]) for k in range(1, len(parts))}
        if not above.isdisjoint(self.files) or any(other.startswith(f"{path}/") for other in self.files):
            raise StorageError("STO003", "could not write: a file and a folder have one name", path=path)
        self.files[path] = bytes(data)

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        self.files.pop(path_checked(path, self.root), None)
