"""Files as they will be, before they are written: runs of bytes of the source and new bytes, read as one file.

A damaged shard is put together so, read through its format's own reader, and only then written; what was read before and what
is read afterwards have one SHA-256.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StorageError
from tokenreel.store.atomic import atomic_write
from tokenreel.store.base import Entry, blocks, bounds_checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.store import Store
    from tokenreel.store.base import Reader


@dataclass(frozen=True, slots=True)
class Spliced:
    """One file: parts are new bytes, or (begin, end) in the source's file."""

    parts: tuple[bytes | tuple[int, int], ...]
    source: str = ""
    """Path in the source, where any part is of it."""

    @classmethod
    def whole(cls, store: Store, path: str) -> Spliced:
        """Return a file of the source as it is."""
        return cls(((0, store.size(path)),), path)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(_size(part) for part in self.parts)

    @property
    def untouched(self) -> bool:
        """Whether it is a file of the source, byte for byte."""
        return len(self.parts) == 1 and not isinstance(self.parts[0], bytes) and self.parts[0][0] == 0


def _size(part: bytes | tuple[int, int]) -> int:
    return len(part) if isinstance(part, bytes) else part[1] - part[0]


class VirtualStore:
    """Spliced files over a source, as a `Store` that is only read."""

    def __init__(self, source: Store, files: Mapping[str, Spliced]) -> None:
        self.source = source
        self.files = dict(files)

    @property
    def root(self) -> str:
        """What messages call the root."""
        return self.source.root

    def list(self, prefix: str = "") -> list[Entry]:
        """Return all files whose path starts with `prefix`, in byte order of path."""
        chosen = sorted((path for path in self.files if path.startswith(prefix)), key=os.fsencode)
        return [Entry(path, self.files[path].size) for path in chosen]

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        return path in self.files

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        return self._get(path).size

    def reader(self, path: str) -> Reader:
        """Open a file for exact reads."""
        file = self._get(path)
        return SplicedReader(self.source, path, file)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        reader = self.reader(path)
        try:
            return reader.read(0, reader.size)
        finally:
            reader.close()

    def write(self, path: str, data: bytes) -> None:
        """Raise `StorageError` (STO003): nothing is written here."""
        raise StorageError("STO003", path=path, found=f"{len(data)} bytes for a store that is only read")

    def remove(self, path: str) -> None:
        """Leave a file out."""
        self.files.pop(path, None)

    def _get(self, path: str) -> Spliced:
        if path not in self.files:
            raise StorageError("STO001", path=path)
        return self.files[path]


class SplicedReader:
    """Exact reads from a spliced file."""

    def __init__(self, source: Store, path: str, file: Spliced) -> None:
        self.path = path
        self.size = file.size
        self._parts = file.parts
        self._reader = source.reader(file.source) if file.source else None

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`; raises `StorageError` (STO005)."""
        bounds_checked(self.path, self.size, offset, length)
        out, at = [], 0
        for part in self._parts:
            size = _size(part)
            low, high = max(offset - at, 0), min(offset + length - at, size)
            if low < high:
                out.append(self._piece(part, low, high))
            at += size
        return out[0] if len(out) == 1 else b"".join(out)

    def _piece(self, part: bytes | tuple[int, int], low: int, high: int) -> bytes:
        if isinstance(part, bytes):
            return part[low:high]
        if self._reader is None:
            raise StorageError("STO001", path=self.path)
        return self._reader.read(part[0] + low, high - low)

    def array(self, dtype: npt.DTypeLike, offset: int, count: int) -> npt.NDArray[Any]:
        """Return `count` items from byte `offset`, read-only."""
        import numpy as np

        kind = np.dtype(dtype)
        return np.frombuffer(self.read(offset, count * kind.itemsize), dtype=kind)

    def close(self) -> None:
        """Give the handle back."""
        if self._reader is not None:
            self._reader.close()


def write_spliced(source: Store, path: str, file: Spliced, target: Path) -> None:
    """Write a spliced file atomically, 4 MiB at a time."""
    reader = SplicedReader(source, path, file)
    try:
        with atomic_write(target) as out:
            for block in _blocks(reader):
                out.write(block)
    finally:
        reader.close()


def _blocks(reader: SplicedReader) -> Iterator[bytes]:
    return blocks(reader, 0, reader.size)
