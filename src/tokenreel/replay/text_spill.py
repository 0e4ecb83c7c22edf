"""Texts kept on disk, end to end in the order they came, until the rows that want them are known.

In memory are the ids alone, and those by parts (`IdSpill`); a text is read when it is written where it belongs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokenreel.build.id_spill import IdSpill
from tokenreel.errors import StorageError, require
from tokenreel.store.atomic import read_error, write_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

BUFFER_BYTES = 1 << 24
TEXT_BYTES = 64
"""What a text that waits takes besides its bytes."""
NUMBER_BITS = 40
"""Of a row's value: the number of the text; above them that of its source."""


def temporary_folder(inside: Path | None) -> Path:
    """Return a new folder in `inside`, or where the system keeps temporaries; raises `StorageError` (STO003)."""
    try:
        return Path(tempfile.mkdtemp(prefix="tokenreel-", dir=inside))
    except OSError as error:
        raise write_error(inside or tempfile.gettempdir(), error) from error


@dataclass(eq=False)
class TextSpill:
    """Texts with their ids and sources. A context manager. Memory: 16 MiB and that of an `IdSpill` with `parts` parts."""

    parts: int
    folder: Path | None = None

    def __post_init__(self) -> None:
        self._folder = temporary_folder(self.folder)
        flags = os.O_RDWR | os.O_CREAT
        self._files = [os.open(self._folder / name, flags, 0o600) for name in ("texts", "ends")]
        self.ids = IdSpill(self.parts, self.folder)
        """Rows of `ROW`; their value is ``source << 40 | number``."""
        self._waiting: list[bytes] = []
        self._ends = array("Q", [0])
        self._held = 0
        self._written = [0, 0]
        self.texts = 0
        self.bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            os.close(file)
        self.ids.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, ids: Sequence[bytes], texts: Sequence[str], source: int) -> None:
        """Add texts of one source."""
        if not ids:
            return
        numbers = np.arange(self.texts, self.texts + len(ids), dtype=np.uint64)
        keys = np.frombuffer(b"".join(ids), ">u8").reshape(-1, 2).astype(np.uint64)
        self.ids.add(keys, numbers | np.uint64(source << NUMBER_BITS))
        self.texts += len(ids)
        for text in texts:
            data = text.encode()
            self.bytes += len(data)
            self._held += len(data) + TEXT_BYTES
            self._waiting.append(data)
            self._ends.append(self.bytes)
        if self._held >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        for k, data in enumerate((b"".join(self._waiting), self._ends.tobytes())):
            done = 0
            try:
                while done < len(data):
                    done += os.pwrite(self._files[k], data[done:], self._written[k] + done)
            except OSError as error:
                raise write_error(self._folder, error) from error
            self._written[k] += len(data)
        self._waiting, self._held = [], 0
        del self._ends[:]

    def places(self, numbers: I64) -> tuple[I64, I64]:
        """Return (first bytes, lengths) of texts."""
        if self._ends:
            self._flush()
        begin, size = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
        for k, number in enumerate(numbers.tolist()):
            low, high = np.frombuffer(self._read(1, 8 * number, 16), "<u8").tolist()
            begin[k], size[k] = low, high - low
        return begin, size

    def read(self, begin: I64, size: I64) -> Any:
        """Return texts as an Arrow array, in the order asked; they are read in the order they lie in."""
        pa = require("pyarrow", extra="build")
        found: list[bytes] = [b""] * len(begin)
        for k in np.argsort(begin, kind="stable").tolist():
            found[k] = self._read(0, int(begin[k]), int(size[k]))
        return pa.array(found, pa.large_binary()).cast(pa.large_string())

    def _read(self, file: int, begin: int, length: int) -> bytes:
        parts, done = [], 0
        while done < length:
            try:
                data = os.pread(self._files[file], length - done, begin + done)
            except OSError as error:
                raise read_error(self._folder, error) from error
            if not data:
                raise StorageError("STO005", path=self._folder, expected=f"{length} bytes", found=f"{done} bytes")
            parts.append(data)
            done += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)
