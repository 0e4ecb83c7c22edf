"""The two protocols of storage: a store lists and opens, a reader reads one file exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tokenreel.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One file of a store."""

    path: str
    """POSIX, relative to the store's root."""
    size: int
    """Bytes."""


class Reader(Protocol):
    """Exact reads from one file whose size was taken when it was opened."""

    @property
    def path(self) -> str:
        """What messages call the file."""
        ...

    @property
    def size(self) -> int:
        """Size in bytes when the file was opened."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`; raises `StorageError` (STO004, STO005) otherwise."""
        ...

    def array(self, dtype: npt.DTypeLike, offset: int, count: int) -> npt.NDArray[Any]:
        """Return `count` items from byte `offset` as a read-only one-dimensional array that stays valid by itself."""
        ...

    def close(self) -> None:
        """Give the handle back; arrays handed out stay valid."""
        ...


class Store(Protocol):
    """A flat namespace of files below one root."""

    @property
    def root(self) -> str:
        """What messages call the root."""
        ...

    def list(self, prefix: str = "") -> list[Entry]:
        """Return all files whose path starts with `prefix`, in byte order of path."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        ...

    def size(self, path: str) -> int:
        """Return a file's size in bytes; raises `StorageError` (STO001) when it is not there."""
        ...

    def reader(self, path: str) -> Reader:
        """Open a file for exact reads; raises `StorageError` (STO001, STO002)."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file atomically; raises `StorageError` (STO003)."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a file that is not there is no error."""
        ...


def blocks(reader: Reader, begin: int, end: int, step: int = 1 << 22) -> Iterator[bytes]:
    """Yield the bytes [begin, end) of a file in pieces of at most `step` bytes."""
    for offset in range(begin, end, step):
        yield reader.read(offset, min(step, end - offset))


def path_checked(path: str, root: str) -> str:
    """Return `path`, or raise `StorageError` (STO006) unless it is the one plain spelling of a path below the root."""
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise StorageError("STO006", path=path, expected=f"a plain relative path below {root}", found=path)
    return path


def prefix_checked(prefix: str, root: str) -> str:
    """Return `prefix`, or raise `StorageError` (STO006) for one that no plain path can start with."""
    folder = prefix.rpartition("/")[0]
    if "\0" in prefix or "/" in prefix:
        path_checked(folder, root)
    return prefix


def bounds_checked(path: str, size: int, offset: int, length: int) -> None:
    """Raise `StorageError` (STO005) unless [offset, offset + length) lies inside a file of `size` bytes."""
    if offset < 0 or length < 0 or offset + length > size:
        raise StorageError(
            "STO005",
            path=path,
            offset=offset,
            expected=f"{length} bytes",
            found=f"{max(0, size - offset)} bytes to the end of the file",
            hint=f"tokenreel verify {path}",
        )


def items_checked(path: str, size: int, offset: int, count: int, dtype: np.dtype[Any]) -> int:
    """Return the bytes that `count` items take, after the same check."""
    length = count * dtype.itemsize
    bounds_checked(path, size, offset, length)
    return length
