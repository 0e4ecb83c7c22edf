"""Local files below one folder."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING

from tokenreel.errors import StorageError
from tokenreel.store.atomic import TEMPORARY_SUFFIX, read_error, write_bytes_atomic, write_error
from tokenreel.store.base import Entry, path_checked, prefix_checked
from tokenreel.store.maps import MapPool, PooledReader

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        self._text = str(self._root)
        self.pool = MapPool() if pool is None else pool  # an empty pool is falsy

    @property
    def root(self) -> str:
        """The folder, as given."""
        return self._text

    def _at(self, path: str) -> Path:
        return Path(self._name(path))

    def _name(self, path: str) -> str:
        # Put together as text: a `Path` costs more than opening the file, and a corpus may have 100,000 of them.
        plain = path_checked(path, self._text)
        return plain if self._text == "." else os.path.join(self._text, plain)  # noqa: PTH118

    def list(self, prefix: str = "") -> list[Entry]:
        """Return all files whose relative path starts with `prefix`, in byte order of path; temporaries left out.

        Links are followed, to folders too: a shard that a program can open is listed. Raises `StorageError`: STO001 a
        missing root, a link to nothing; STO002 a link to a folder above it, or a folder that cannot be read.
        """
        folder, slash, _ = prefix_checked(prefix, self.root).rpartition("/")
        if not self._root.is_dir():
            raise StorageError("STO001", path=self._root, hint=f"ls -l {self._root}")
        start = self._root / folder
        if not start.is_dir():
            return []
        found = [entry for entry in _walk(start, folder + slash, ()) if entry.path.startswith(prefix)]
        return sorted(found, key=lambda entry: os.fsencode(entry.path))

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        return os.path.isfile(self._name(path))  # noqa: PTH113

    def size(self, path: str) -> int:
        """Return a file's size in bytes; raises `StorageError` (STO001)."""
        try:
            status = self._at(path).stat()
        except OSError as error:
            raise read_error(self._at(path), error) from error
        if not S_ISREG(status.st_mode):
            raise StorageError("STO002", "could not read: not a regular file", path=self._at(path))
        return status.st_size

    def reader(self, path: str) -> PooledReader:
        """Open a file for exact reads; raises `StorageError` (STO001, STO002)."""
        return PooledReader(self._name(path), self.pool)

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
        except NotADirectoryError:  # below a file: not there either
            return
        except OSError as error:
            raise write_error(self._at(path), error) from error
        self.pool.drop(str(self._at(path)))


def _walk(folder: Path, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[Entry]:
    """Yield the regular files below `folder`, its own path being `prefix`; `above` are the folders it lies in."""
    try:
        status = folder.stat()
        with os.scandir(folder) as listing:
            items = list(listing)
    except OSError as error:
        raise read_error(folder, error) from error
    this = (status.st_dev, status.st_ino)
    if this in above:
        raise StorageError("STO002", "a link leads back to a folder above it", path=folder, hint=f"ls -l {folder}")
    for item in items:
        if item.name.endswith(TEMPORARY_SUFFIX):
            continue
        try:
            status = item.stat()
        except OSError as error:
            raise read_error(folder / item.name, error) from error
        if S_ISDIR(status.st_mode):
            yield from _walk(folder / item.name, f"{prefix}{item.name}/", (*above, this))
        elif S_ISREG(status.st_mode):
            yield Entry(prefix + item.name, status.st_size)
