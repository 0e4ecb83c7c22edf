"""Write a file whose table stands before its records: the records go to a second temporary until all are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError, UsageError, nearest, require
from tokenreel.formats.sink import SinkWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats.sink import Sink

MOST = (1 << 32) - 1
"""Offsets in the file are u32."""
LEVEL = 3
_STEP = 1 << 22


class HeadedWriter(SinkWriter):
    """Writes ``n``, ``n + 1`` offsets from the start of the file, something fixed, and n records; packed where asked.

    A subclass calls `records` with the bytes of some records and the size of each.
    """

    def __init__(self, root: Path, path: str, compression: str, between: bytes, full: str) -> None:
        super().__init__()
        self._compression = compression
        self._between = between
        self._full = full
        self._sizes: list[npt.NDArray[np.uint32]] = []
        self._payload_bytes = 0
        self._file = self.sink(root, path)
        self._payload = self.sink(root, f"{path}.records", patched=True)  # copied, and only the copy is hashed

    def records(self, data: bytes | memoryview, sizes: npt.NDArray[np.int64]) -> None:
        """Append records. Raises `FormatError` (the code `full`) where the file would pass 2**32 - 1 bytes."""
        table = 4 * (self.documents + len(sizes) + 2)
        whole = table + len(self._between) + self._payload_bytes + len(data)
        if whole > MOST:
            found = f"{whole} bytes with document {self.documents + len(sizes) - 1}"
            raise FormatError(self._full, path=self._file.target, expected=f"<= {MOST} bytes", found=found)
        self._payload.write(data)
        self._sizes.append(sizes.astype(np.uint32))
        self.documents += len(sizes)
        self._payload_bytes += len(data)

    def _head(self) -> Iterator[bytes]:
        at = 4 * (self.documents + 2) + len(self._between)
        yield np.array([self.documents, at], dtype="<u4").tobytes()
        for sizes in self._sizes:
            ends = at + np.cumsum(sizes, dtype=np.int64)
            yield ends.astype("<u4").tobytes()
            at = int(ends[-1]) if len(ends) else at
        yield self._between

    def _complete(self) -> None:
        if self._compression:
            machine = _machine(self._compression, 4 * (self.documents + 2) + len(self._between) + self._payload_bytes)
            for part in (*self._head(), *_blocks(self._payload)):
                self._file.write(machine.compress(part))
            self._file.write(machine.flush())
        else:
            for part in self._head():
                self._file.write(part)
            self._file.append_from(self._payload)
        self._payload.discard()
        self.sinks.remove(self._payload)


def _blocks(sink: Sink) -> Iterator[bytes]:
    with open(sink.temporary, "rb") as file:  # noqa: PTH123
        while block := file.read(_STEP):
            yield block


def _machine(compression: str, size: int) -> Any:
    if compression == "gz":
        import zlib

        return zlib.compressobj(6, wbits=31)
    return require("zstandard", extra="build").ZstdCompressor(level=LEVEL).compressobj(size=size)


def only(options: Mapping[str, object], *names: str) -> None:
    """Raise `UsageError` (USE003) for an option that a format does not have.

    >>> only({"compression": "zstd"}, "compression", "column")
    """
    for name in options:
        if name not in names:
            near = nearest(name, names)
            raise UsageError(
                "USE003",
                f"the format has no option {name}",
                expected=", ".join(names),
                found=name,
                hint=f"--set {near}={options[name]}" if near else None,
            )


def choice(options: Mapping[str, object], name: str, allowed: tuple[str, ...]) -> str:
    """Return an option that is one of some words, the first where it is left out; raises `UsageError` (USE003).

    >>> choice({"compression": "zstd"}, "compression", ("", "zstd"))
    'zstd'
    """
    said = options.get(name)
    if said is None:
        return allowed[0]
    if said not in allowed:
        expected = ", ".join(word or "none" for word in allowed)
        raise UsageError("USE003", f"the option {name}", expected=expected, found=str(said)[:80])
    return str(said)
