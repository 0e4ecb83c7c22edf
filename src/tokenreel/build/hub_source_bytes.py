"""Bytes of a hub file on their way in: pulled by ranges in order, hashed as they come, never further than they are read."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokenreel.build.blocks import READ_BYTES, InputBytes
from tokenreel.build.hub_source_files import named
from tokenreel.errors import SourceError, StorageError, TokenreelError
from tokenreel.store.atomic import make_folder, read_error, temporary_name, write_error
from tokenreel.store.http import HttpReader
from tokenreel.store.hub_repository import endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

PULL_BYTES = 8 << 20
"""One request; what is read ahead of a budget at most."""


class Ranges(Protocol):
    """Where bytes come from."""

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes."""
        ...


class PulledBytes(InputBytes):
    """A hub file read once from start to end, by ranges; `path` is what receipts call it.

    Raises `StorageError`: SRC050, SRC051 a file that is gone, STO002 a connection that keeps breaking.
    """

    __slots__ = ("_ranges", "_source", "size")

    def __init__(self, path: str, size: int, source: str, ranges: Ranges) -> None:
        super().__init__(path)
        self.size = size
        self._source = source
        self._ranges = ranges

    def blocks(self, size: int = READ_BYTES) -> Iterator[bytes]:  # noqa: ARG002 (requests have a size of their own)
        """Yield the file's bytes, a request at a time."""
        while self.bytes < self.size:
            try:
                block = self._ranges.read(self.bytes, min(PULL_BYTES, self.size - self.bytes))
            except StorageError as error:
                raise named(error, self._source, self.path) from error
            if self._digest is not None:
                self._digest.update(block)
            self.bytes += len(block)
            yield block

    def check_published(self, sha256: str | None) -> None:
        """Raise `SourceError` (SRC052) unless the whole file has the hash that the hub publishes."""
        if sha256 is not None and self.sha256 != sha256:
            raise SourceError(
                "SRC052",
                f"source {self._source!r}",
                path=self.path,
                expected=f"SHA-256 {sha256}",
                found=f"{self.sha256} of {self.bytes} bytes",
            )


class LocalRanges:
    """A file of the local cache, by ranges; closed when its last byte was read, or with `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise read_error(path, error) from error

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes; raises `StorageError` (STO002, STO004)."""
        try:
            self._file.seek(offset)
            data = self._file.read(length)
        except OSError as error:
            raise read_error(self._path, error) from error
        if len(data) != length:
            raise StorageError("STO004", path=self._path, expected=f"{length} bytes", found=f"{len(data)} bytes")
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def remote(repo: str, commit: str, file: str, size: int) -> HttpReader:
    """Return a file of a data set at a commit, by ranges; nothing is asked yet."""
    import urllib.parse

    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{endpoint()}/datasets/{repo}/resolve/{commit}/{urllib.parse.quote(file)}"
    return HttpReader(url, size, headers)


@contextlib.contextmanager
def pulled(pulling: PulledBytes, folder: Path, sha256: str | None) -> Iterator[Path]:
    """Hold a whole file in a temporary below `folder` while the block runs; it goes with the block.

    A process that is killed leaves it behind under a name that `remove_leftovers` knows. Errors that name the temporary
    are raised again naming the file. Raises what pulling raises, SRC052, and `StorageError` (STO003).
    """
    temporary = temporary_name(folder / Path(pulling.path).name)
    try:
        try:
            make_folder(folder)
            with temporary.open("wb") as file:
                for block in pulling.blocks():
                    file.write(block)
        except OSError as error:
            if isinstance(error, TokenreelError):
                raise
            raise write_error(temporary, error) from error
        pulling.check_published(sha256)
        try:
            yield temporary
        except TokenreelError as error:
            if error.where.get("path") == str(temporary):
                error.where["path"] = pulling.path
            raise
    finally:
        temporary.unlink(missing_ok=True)
