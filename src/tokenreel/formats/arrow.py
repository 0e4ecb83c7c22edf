"""Read Arrow streams and files with a column of lists of integers, as datasets saves them. Every row is a document.

The ids are read where they lie; what is in the way of that is refused: compressed buffers, nulls. Opening walks the messages'
metadata, some hundred bytes for a thousand rows; the table is the lists' offsets. pyarrow, of the extra [build], reads the
schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.arrow_messages import Batch, Walk
from tokenreel.formats.base import Found
from tokenreel.formats.indexed import alike, beside
from tokenreel.formats.loaded import LoadedShard
from tokenreel.formats.parquet_footer import COLUMNS
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from tokenreel.formats.base import Edges, Ids
    from tokenreel.store.base import Entry, Reader, Store

FORMAT = "arrow"
STATE = "state.json"
"""What datasets keeps beside its files."""
_SUFFIX = ".arrow"


def recognise(store: Store, entries: Sequence[Entry]) -> list[Found]:
    """Return the ``.arrow`` files of a listing that have a column of ids, or cannot be read; reads the start of each.

    Where datasets' ``state.json`` stands beside, its order is theirs, and files that it names count whether they are there or
    not.
    """
    have = [entry.path for entry in entries if entry.path.endswith(_SUFFIX)]
    named = [path for entry in entries if entry.path.rpartition("/")[2] == STATE for path in _named(store, entry.path)]
    order = {path: f"{path.rpartition('/')[0]}/{number:012d}" for number, path in enumerate(named)}
    folders = {path.rpartition("/")[0] for path in have}
    ours = [path for path in named if path not in have and path.rpartition("/")[0] in folders]
    others = []
    for path in have:
        reader = store.reader(path)
        try:
            Walk(reader, COLUMNS)
        except FormatError as error:
            if error.code == "PQT002" and path not in order:
                others.append(path)
                continue
        finally:
            reader.close()
        ours.append(path)
    ours += alike(others, ours)
    return [Found(FORMAT, path.removesuffix(_SUFFIX), (path,), order.get(path, "")) for path in ours]


def _named(store: Store, state: str) -> list[str]:
    """Return the files that a ``state.json`` names, in its order; none where it is something else."""
    try:
        value = loads_strict(store.read(state), state)
    except ValueError:
        return []
    files = value.get("_data_files") if isinstance(value, dict) else None
    names = [beside(state, one.get("filename")) for one in files or () if isinstance(one, dict)]
    return list(dict.fromkeys(name for name in names if name is not None and name.endswith(_SUFFIX)))


def open_file(store: Store, path: str, *, accept: Collection[str] = ()) -> ArrowShard:  # noqa: ARG001
    """Open a stream or a file; O(record batches). Nothing is overruled.

    Raises `FormatError`: PQT002 no column of ids, PQT003 one that holds no integers, PQT006 nulls, PQT007 for what cannot be
    read. `check_table` raises PQT008 for offsets that fall or lead outside.
    """
    reader = store.reader(path)
    try:
        walk = Walk(reader, COLUMNS)
        return ArrowShard(store, path, reader, walk, list(walk.batches()))
    except BaseException:
        reader.close()
        raise


class ArrowShard(LoadedShard):
    """One open file. Its ids are contiguous only within a record batch; `byte_at` is exact."""

    def __init__(self, store: Store, path: str, reader: Reader, walk: Walk, batches: list[Batch]) -> None:
        self._batches = batches
        self._offset = np.dtype("<i8" if walk.column.wide else "<i4")
        self._size = walk.column.size
        self._reader = reader
        self._firsts = np.concatenate(([0], np.cumsum([batch.rows for batch in batches], dtype=np.int64)))
        spans = [self._span(batch) for batch in batches]
        self._starts = np.concatenate(([0], np.cumsum([high - low for low, high in spans], dtype=np.int64)))
        self._lows = [low for low, _ in spans]
        found = Found(FORMAT, path.removesuffix(_SUFFIX), (path,))
        super().__init__(store, found, reader, f"<{walk.column.dtype}", 0, int(self._starts[-1]), int(self._firsts[-1]))

    def _span(self, batch: Batch) -> tuple[int, int]:
        """Return the first id of a batch's lists, and the end of the last."""
        if not batch.rows:
            return 0, 0
        if self._size is not None:
            return 0, batch.rows * self._size
        low = int(self._reader.array(self._offset, batch.offsets_at, 1)[0])
        high = int(self._reader.array(self._offset, batch.offsets_at + batch.rows * self._offset.itemsize, 1)[0])
        if not 0 <= low <= high <= batch.ids:
            raise self._fault(batch, 0, f"0 .. {batch.ids}", f"{low} .. {high}")
        return low, high

    def _fault(self, batch: Batch, row: int, expected: object, found: object) -> FormatError:
        offset = batch.offsets_at + row * self._offset.itemsize
        return FormatError("PQT008", path=self._reader.path, offset=offset, expected=expected, found=found)

    def _load(self) -> Edges:
        edges = np.zeros(self.documents + 1, dtype=np.int64)
        for k, batch in enumerate(self._batches):
            for at, size, items in batch.validity:
                if _ones(self._reader.array("u1", at, size), items) != items:
                    raise FormatError("PQT006", path=self._reader.path, offset=at, expected="no nulls", found="a bit 0")
            if not batch.rows:
                continue
            first = int(self._firsts[k])
            if self._size is not None:
                ends = np.arange(1, batch.rows + 1, dtype=np.int64) * self._size
                edges[first + 1 : first + 1 + batch.rows] = ends + int(self._starts[k])
                continue
            offsets = self._reader.array(self._offset, batch.offsets_at, batch.rows + 1).astype(np.int64)
            falls = np.flatnonzero(offsets[1:] < offsets[:-1])
            if len(falls):
                row = int(falls[0]) + 1
                raise self._fault(batch, row, f">= {int(offsets[row - 1])}", int(offsets[row]))
            edges[first + 1 : first + 1 + batch.rows] = offsets[1:] - self._lows[k] + int(self._starts[k])
        return edges

    def _gather(self, begin: int, end: int) -> Ids:
        width = self.dtype.itemsize
        parts = []
        k = int(np.searchsorted(self._starts, begin, side="right")) - 1
        while begin < end:
            stop = min(end, int(self._starts[k + 1]))
            if stop > begin:
                at = self._batches[k].ids_at + (self._lows[k] + begin - int(self._starts[k])) * width
                parts.append(self._reader.array(self.dtype, at, stop - begin))
                begin = stop
            k += 1
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def byte_at(self, position: int) -> tuple[str, int]:
        """Return the file and the byte offset of a token."""
        if not self.tokens:
            return self.files[0], self._reader.size
        k = int(np.searchsorted(self._starts, min(position, self.tokens - 1), side="right")) - 1
        at = self._lows[k] + position - int(self._starts[k])
        return self.files[0], self._batches[k].ids_at + at * self.dtype.itemsize


def _ones(bitmap: npt.NDArray[np.uint8], items: int) -> int:
    """Return how many of the first bits of a bitmap are set."""
    return int(np.unpackbits(bitmap, count=items, bitorder="little").sum(dtype=np.int64))
