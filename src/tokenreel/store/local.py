"""Local files below one folder."""

from __future__ import annotations

import os
from pathlib import Path

from tokenreel.errors import StorageError
from tokenreel.store.atomic import TEMPORARY_SUFFIX, read_error, write_bytes_atomic, write_error
from tokenreel.store.base import Entry
from tokenreel.store.maps import MapPool, PooledReader


class LocalStore:
    """Files below `root`; maps are bounded by `pool`.

    >>> import tempfile
    >>> store = LocalStore(tempfile.mkdtemp())
    >>> store.write("a/b.bin", b"12345")
    >>> store.list()
    [Entry(path='a/b.bin', size=5)]
    >>> store.reader("a/b.bin").read(1, 3)
    b'234'
    """

    def __init__(self, root: str | os.PathLike[str], pool: MapPool | None = None) -> None:
        self._root = Path(root)
        self.pool = pool or MapPool()

    @property
    def root(self) -> str:
        """The folder, as given."""
        return str(self._root)

    def _at(self, path: str) -> Path:
        parts = Path(path).parts
        if path.startswith("/") or ".." in parts:
            raise StorageError("STO006", path=path, expected=f"a path below {self._root}", found=path)
        return self._root / path

    def list(self, prefix: str = "") -> list[Entry]:
        """Return all files whose relative path starts with `prefix`, in byte order of path; temporaries left out."""
        folder = self._at(prefix.rpartition("/")[0]) if "/" in prefix else self._root
        if not self._root.is_dir():
            raise StorageError("STO001", path=self._root, hint=f"ls -l {self._root}")
        found = []
        for base, folders, names in os.walk(folder, onerror=_raise_read):
            folders.sort()
            relative = Path(base).relative_to(self._root).as_posix()
            for name in names:
                path = name if relative == "." else f"{relative}/{name}"
                if path.startswith(prefix) and not name.endswith(TEMPORARY_SUFFIX):
                    found.append(Entry(path, (Path(base) / name).stat().st_size))
        return sorted(found, key=lambda entry: os.fsencode(entry.path))

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        return self._at(path).is_file()

    def size(self, path: str) -> int:
        """Return a file's size in bytes; raises `StorageError` (STO001)."""
        try:
            return self._at(path).stat().st_size
        except OSError as error:
            raise read_error(self._at(path), error) from error

    def reader(self, path: str) -> PooledReader:
        """Open a file for exact reads; raises `StorageError` (STO001, STO002)."""
        return PooledReader(str(self._at(path)), self.pool)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        try:
            return self._at(path).read_bytes()
        except OSError as error:
            raise read_error(self._at(path), error) from error

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file atomically; raises `StorageError` (STO003)."""
        write_bytes_atomic(self._at(path), data)
        self.pool.drop(str(self._at(path)))

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        try:
            self._at(path).unlink(missing_ok=True)
        except OSError as error:
            raise write_error(self._at(path), error) from error
        self.pool.drop(str(self._at(path)))


def _raise_read(error: OSError) -> None:
    raise read_error(error.filename, error) from error
