"""Rows kept on disk by the top bits of their id, so that any number of them is matched in bounded memory."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("value", "<u8")])
"""An id and what belongs to it."""
PART_BYTES = 1 << 26
BUFFER_ROWS = 1 << 19
MOST_PARTS = 1 << 8


def parts_for(rows: int, limit: int = PART_BYTES) -> int:
    """Return how many parts keep each near `limit` bytes: a power of two.

    >>> parts_for(1000), parts_for(20_000_000)
    (1, 8)
    """
    parts = 1
    while parts < MOST_PARTS and rows * ROW.itemsize > parts * limit:
        parts *= 2
    return parts


@dataclass(eq=False)
class IdSpill:
    """Ids with a number each, in `parts` files of a temporary folder; 12 MiB of memory. A context manager."""

    parts: int
    folder: Path | None = None
    """Where the temporary folder is made; None: where the system keeps temporaries."""

    def __post_init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tokenreel-", dir=self.folder))
        self._files: list[Any] = [open(self._folder / f"{part:04d}", "w+b") for part in range(self.parts)]  # noqa: PTH123, SIM115
        self._waiting: list[npt.NDArray[Any]] = []
        self._count = 0
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything."""
        for file in self._files:
            file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, ids: npt.NDArray[np.uint64], values: npt.ArrayLike) -> None:
        """Add ids (rows, 2) with a number each."""
        rows = np.empty(len(ids), dtype=ROW)
        rows["high"], rows["low"], rows["value"] = ids[:, 0], ids[:, 1], values
        self._waiting.append(rows)
        self._count += len(rows)
        self.rows += len(rows)
        if self._count >= BUFFER_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._count:
            return
        rows = np.concatenate(self._waiting)
        self._waiting, self._count = [], 0
        if self.parts == 1:
            self._files[0].write(rows.tobytes())
            return
        part = part_of(rows["high"], self.parts)
        order = np.argsort(part, kind="stable")
        edges = np.searchsorted(part[order], np.arange(self.parts + 1))
        rows = rows[order]
        for number in range(self.parts):
            piece = rows[edges[number] : edges[number + 1]]
            if len(piece):
                self._files[number].write(piece.tobytes())

    def read(self) -> Iterator[npt.NDArray[Any]]:
        """Yield every part as rows of `ROW`, in the order they were added; parts by rising id."""
        self._flush()
        for number in range(self.parts):
            yield self.part(number)

    def part(self, number: int) -> npt.NDArray[Any]:
        """Return one part."""
        self._flush()
        file = self._files[number]
        file.flush()
        file.seek(0)
        found: npt.NDArray[Any] = np.frombuffer(file.read(), dtype=ROW)
        file.seek(0, 2)
        return found


def part_of(high: npt.NDArray[np.uint64], parts: int) -> npt.NDArray[np.int16]:
    """Return the part of each id by its top bits."""
    if parts == 1:
        return np.zeros(len(high), dtype=np.int16)
    return (high >> np.uint64(64 - (parts.bit_length() - 1))).astype(np.int16)


def ids_of(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the ids of rows as (rows, 2)."""
    return np.stack([rows["high"], rows["low"]], axis=1)
