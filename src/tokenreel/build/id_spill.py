"""Rows kept by the top bits of their id, in memory up to a limit and on disk beyond, so that any number is matched in bounded memory.

A kernel puts rows into blocks by part; full blocks are kept, or written one after another. Nothing is mapped: what lies
on disk takes no memory until its part is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokenreel.errors import StorageError
from tokenreel.order.kernels import kernel
from tokenreel.store.atomic import read_error, write_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("value", "<u8")])
"""An id and what belongs to it."""
PART_BYTES = 1 << 23
"""What a part holds, about: its table of 4 bytes a row then stays near the second level of the cache."""
MEMORY = 1 << 27
"""Bytes of full blocks kept in memory before the first is written."""
STAGE_BYTES = 1 << 23
LEAST_ROWS, MOST_ROWS = 1 << 9, 1 << 14
"""Rows of a block; every size is whole pages."""
MOST_PARTS = 1 << 12
MOST_OPEN = 1 << 8
"""Files kept open; with more parts each is opened for every block."""


def parts_for(rows: int, limit: int = PART_BYTES) -> int:
    """Return how many parts keep each near `limit` bytes: a power of two.

    >>> parts_for(1000), parts_for(20_000_000)
    (1, 64)
    """
    parts = 1
    while parts < MOST_PARTS and rows * ROW.itemsize > parts * limit:
        parts *= 2
    return parts


@dataclass(eq=False)
class IdSpill:
    """Ids with a number each, in `parts` parts. A context manager.

    Memory: `memory` bytes and 12 MiB (50 MiB with more than a thousand parts). Rows are added by one thread; parts may be
    read by several at once after that.
    """

    parts: int
    folder: Path | None = None
    """Where a temporary folder is made when it is needed; None: where the system keeps temporaries."""
    memory: int = MEMORY

    def __post_init__(self) -> None:
        rows = min(MOST_ROWS, max(LEAST_ROWS, STAGE_BYTES // (ROW.itemsize * self.parts)))
        self._block = 1 << (rows.bit_length() - 1)
        self._stage: npt.NDArray[Any] = np.empty(self.parts * self._block, dtype=ROW)
        self._words = self._stage.view("<u8")
        self._fill = np.zeros(self.parts, dtype=np.int64)
        self._kept: list[list[npt.NDArray[Any]]] = [[] for _ in range(self.parts)]
        self._left = self.memory
        self._written = np.zeros(self.parts, dtype=np.int64)
        self._open: dict[int, int] = {}
        self._at: Path | None = None
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open, self._kept = {}, [[] for _ in range(self.parts)]
        if self._at is not None:
            shutil.rmtree(self._at, ignore_errors=True)
            self._at = None

    def add(self, ids: npt.NDArray[np.uint64], values: npt.ArrayLike) -> None:
        """Add ids (rows, 2) with a number each. Cost: 10 ns a row in memory, 30 on disk."""
        numbers = np.asarray(values, dtype=np.uint64)
        at, bits = 0, self.parts.bit_length() - 1
        while True:
            at = _stage_rows(ids[:, 0], ids[:, 1], numbers, at, bits, self._block, self._words, self._fill)
            if at == len(ids):
                break
            self._put_away(int(part_of(ids[at : at + 1, 0], self.parts)[0]))
        self.rows += len(ids)

    def _put_away(self, number: int) -> None:
        """Keep or write the full block of a part, and begin a new one."""
        begin = number * self._block
        block = self._stage[begin : begin + self._block]
        if self._left >= block.nbytes:
            self._left -= block.nbytes
            self._kept[number].append(block.copy())
        else:
            data = self._words[3 * begin : 3 * (begin + self._block)].data.cast("B")
            with self._descriptor(number) as descriptor:
                _write(descriptor, data, int(self._written[number]), self._at)
            self._written[number] += len(data)
        self._fill[number] = 0

    @contextlib.contextmanager
    def _descriptor(self, number: int) -> Iterator[int]:
        if number in self._open:
            yield self._open[number]
            return
        try:
            if self._at is None:
                self._at = Path(tempfile.mkdtemp(prefix="tokenreel-", dir=self.folder))
            descriptor = os.open(self._at / f"{number:04d}", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise write_error(self._at or self.folder or tempfile.gettempdir(), error) from error
        if self.parts <= MOST_OPEN:
            self._open[number] = descriptor
            yield descriptor
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self) -> Iterator[npt.NDArray[Any]]:
        """Yield every part as rows of `ROW`, in the order they were added; parts by rising id."""
        for number in range(self.parts):
            yield self.part(number)

    def part(self, number: int) -> npt.NDArray[Any]:
        """Return one part."""
        begin, fill = number * self._block, int(self._fill[number])
        size = int(self._written[number]) // ROW.itemsize
        kept = self._kept[number]
        out: npt.NDArray[Any] = np.empty(sum(map(len, kept)) + size + fill, dtype=ROW)
        at = 0
        for block in kept:
            out[at : at + len(block)] = block
            at += len(block)
        if size:
            with self._descriptor(number) as descriptor:
                _read(descriptor, out[at : at + size].view(np.uint8).data, self._at)
        out[at + size :] = self._stage[begin : begin + fill]
        return out

    def give_back(self, number: int) -> None:
        """Give the memory of a part's kept blocks back: it is not read again."""
        self._kept[number] = []


def _write(descriptor: int, data: memoryview, begin: int, where: Path | None) -> None:
    done = 0
    try:
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], begin + done)
    except OSError as error:
        raise write_error(where, error) from error


def _read(descriptor: int, data: memoryview, where: Path | None) -> None:
    done = 0
    while done < len(data):
        try:
            read = os.preadv(descriptor, [data[done:]], done)
        except OSError as error:
            raise read_error(where, error) from error
        if not read:
            raise StorageError("STO005", path=where, expected=f"{len(data)} bytes", found=f"{done} bytes")
        done += read


def part_of(high: npt.NDArray[np.uint64], parts: int) -> npt.NDArray[np.int16]:
    """Return the part of each id by its top bits."""
    if parts == 1:
        return np.zeros(len(high), dtype=np.int16)
    return (high >> np.uint64(64 - (parts.bit_length() - 1))).astype(np.int16)


def ids_of(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the ids of rows as (rows, 2), a view."""
    return np.ascontiguousarray(rows).view("<u8").reshape(-1, 3)[:, :2]


_COLUMN = "Array(uint64, 1, 'A', True)"


@kernel(f"int64({_COLUMN}, {_COLUMN}, {_COLUMN}, int64, int64, int64, uint64[::1], int64[::1])")
def _stage_rows(high: Any, low: Any, value: Any, begin: int, bits: int, block: int, stage: Any, fill: Any) -> int:
    """Put rows from `begin` on into their parts' blocks; return the first one that found its block full, or their number."""
    shift = np.uint64(64 - bits) if bits else np.uint64(63)
    mask = np.uint64((1 << bits) - 1)
    for k in range(begin, len(high)):
        part = np.int64((high[k] >> shift) & mask)
        held = fill[part]
        if held == block:
            return k
        at = 3 * (part * block + held)
        stage[at], stage[at + 1], stage[at + 2] = high[k], low[k], value[k]
        fill[part] = held + 1
    return len(high)
