"""One file of a shard being written: under a temporary name, counted, hashed, synced, then given its own name."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.formats.base import WrittenFile
from tokenreel.hashing import sha256_file
from tokenreel.store.atomic import commit, make_folder, temporary_name, write_error
from tokenreel.store.writeback import WriteBack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

_STEP = 1 << 20
"""Items cast and written together."""


class Sink:
    """A temporary beside ``root / path``; raises `StorageError` (STO003) for what the operating system refuses.

    One that is `patched` may have its first bytes replaced, and is read again at the end to be hashed. `commit` publishes it; `discard` removes it, and does nothing after `commit`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> sink = Sink(Path(tempfile.mkdtemp()), "a/b.bin")
    >>> sink.write(b"abc")
    >>> sink.finish().bytes, sink.commit()
    (3, None)
    """

    def __init__(self, root: Path, path: str, *, patched: bool = False) -> None:
        self.path = path
        self.target = root / path
        self.bytes = 0
        self._sha: Any = None if patched else hashlib.sha256()
        self._committed = False
        with self._guard():
            make_folder(self.target.parent)
            self.temporary = temporary_name(self.target)
            self._file = open(self.temporary, "w+b", buffering=0)  # noqa: PTH123, SIM115 (raw; closed by discard)
        self._written = WriteBack(self.temporary)

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_error(self.target, error) from error

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        with self._guard():
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        self.bytes += len(data)
        self._written.wrote(len(data))
        if self._sha is not None:
            self._sha.update(data)

    def add(self, values: npt.NDArray[np.integer[Any]], dtype: str) -> None:
        """Append integers as another type, little endian; that they fit was checked."""
        for begin in range(0, len(values), _STEP):
            part = np.ascontiguousarray(values[begin : begin + _STEP], dtype=dtype)
            self.write(part.data.cast("B"))

    def overwrite(self, data: bytes) -> None:
        """Replace the first bytes, of a file that is patched."""
        with self._guard():
            if os.pwrite(self._file.fileno(), data, 0) != len(data):
                raise OSError(f"{self.temporary}: short write of the first bytes")

    def append_from(self, other: Sink) -> None:
        """Append all that another sink holds."""
        with self._guard():
            at = 0
            while block := os.pread(other._file.fileno(), _STEP << 2, at):
                self.write(block)
                at += len(block)

    def finish(self) -> WrittenFile:
        """Make what was written durable; it still has its temporary name."""
        with self._guard():
            os.fsync(self._file.fileno())
        digest = self._sha.hexdigest() if self._sha is not None else sha256_file(self.temporary)
        return WrittenFile(self.path, self.bytes, digest)

    def commit(self) -> None:
        """Give the file its name."""
        with self._guard():
            commit(self.temporary, self.target)
        self._committed = True
        self._file.close()

    def withdraw(self) -> None:
        """Remove the file again if it was given its name: the rest of its shard was not."""
        if self._committed:
            with contextlib.suppress(OSError):
                self.target.unlink(missing_ok=True)

    def discard(self) -> None:
        """Close and remove the temporary, if it is still there."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)


class SinkWriter:
    """What the writers of shards have in common: some sinks, published together at `finish`.

    A subclass keeps its sinks in `sinks`, in the order of their names' appearance, and gives `_complete`, which writes what
    is missing. An error on the way removes everything.
    """

    def __init__(self) -> None:
        self.sinks: list[Sink] = []
        self.documents = 0
        self.tokens = 0

    def sink(self, root: Path, path: str, *, patched: bool = False) -> Sink:
        """Begin one file of the shard."""
        try:
            sink = Sink(root, path, patched=patched)
        except BaseException:
            self.abort()
            raise
        self.sinks.append(sink)
        return sink

    def _complete(self) -> None:
        """Write what can only be written at the end."""

    def finish(self) -> tuple[WrittenFile, ...]:
        """Complete the files, give them their names and return them: paths below the root, sizes, SHA-256."""
        try:
            self._complete()
            written = tuple(sink.finish() for sink in self.sinks)
            for sink in self.sinks:
                sink.commit()
        except BaseException:
            self.abort()
            for sink in self.sinks:
                sink.withdraw()
            raise
        return written

    def abort(self) -> None:
        """Remove what was written; harmless after `finish`."""
        for sink in self.sinks:
            sink.discard()
