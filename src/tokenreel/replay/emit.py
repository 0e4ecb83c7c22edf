"""Found documents written in the order of the store: one Parquet file a task, in the columns of the index and the text."""

from __future__ import annotations

import shutil
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokenreel.errors import require
from tokenreel.replay.files import index_schema, read_batches
from tokenreel.replay.text_spill import temporary_folder
from tokenreel.store.atomic import atomic_write, write_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.replay.metadata import IndexFile, Manifest
    from tokenreel.replay.text_spill import TextSpill
    from tokenreel.store import Store

FOLDER = "documents"
WAITING = 1 << 20
"""Pairs held before they are put to their tasks."""
GROUP_ROWS, GROUP_BYTES = 1 << 14, 1 << 26
"""Rows of a row group, and bytes of their texts, at most (but one text of any size)."""
PAIR = np.dtype([("place", "<i8"), ("text", "<i8")])


def documents_schema() -> Any:
    """Return the Arrow schema: the index's columns, `row` (in the task's file) and `text`."""
    import pyarrow as pa

    extra = [pa.field("row", pa.int64(), nullable=False), pa.field("text", pa.large_string(), nullable=False)]
    return pa.schema([*index_schema(), *extra])


@dataclass(eq=False)
class Emission:
    """Gathers which text stands where, by task, then writes each task's texts in order. A context manager.

    Memory: 16 MiB, 16 bytes a row of one task, and a row group.
    """

    manifest: Manifest
    out: Path | None
    folder: Path | None = None

    def __post_init__(self) -> None:
        self._folder = temporary_folder(self.folder) if self.out is not None else Path()
        self._files = sorted(self.manifest.files, key=lambda file: file.task_id)
        self._base = list(accumulate((file.documents for file in self._files), initial=0))
        self._waiting: list[npt.NDArray[Any]] = []
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.out is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, place: npt.NDArray[np.int64], text: npt.NDArray[np.int64]) -> None:
        """Add numbers of rows in the store, and the number of each one's text."""
        pairs = np.empty(len(place), dtype=PAIR)
        pairs["place"], pairs["text"] = place, text
        self._waiting.append(pairs)
        self._count += len(pairs)
        if self._count >= WAITING:
            self._flush()

    def _flush(self) -> None:
        pairs = np.sort(np.concatenate([np.empty(0, dtype=PAIR), *self._waiting]), order="place")
        self._waiting, self._count = [], 0
        at = 0
        while at < len(pairs):
            task = bisect_right(self._base, int(pairs["place"][at])) - 1
            end = int(np.searchsorted(pairs["place"], self._base[task + 1]))
            try:
                with (self._folder / f"{task:06d}").open("ab") as file:
                    file.write(pairs[at:end].tobytes())
            except OSError as error:
                raise write_error(self._folder, error) from error
            at = end

    def write(self, store: Store, texts: TextSpill) -> list[str]:
        """Write all tasks and return their files, relative to `out`; tasks without a document found have none."""
        pa = require("pyarrow", extra="build")
        parquet = require("pyarrow.parquet", extra="build")
        if self.out is None:
            return []
        self._flush()
        written = []
        for task, file in enumerate(self._files):
            pairs = self._folder / f"{task:06d}"
            if not pairs.is_file():
                continue
            found = np.sort(np.fromfile(pairs, dtype=PAIR), order="place")
            found["place"] -= self._base[task]
            pairs.unlink()
            name = f"{FOLDER}/task-{file.task_id:06d}.parquet"
            with (
                atomic_write(self.out / name) as sink,
                parquet.ParquetWriter(pa.PythonFile(sink, mode="w"), documents_schema(), compression="zstd") as writer,
            ):
                for batch in _documents(store, file, found, texts):
                    writer.write_batch(batch)
            written.append(name)
        return written


def _documents(store: Store, file: IndexFile, found: npt.NDArray[Any], texts: TextSpill) -> Iterator[Any]:
    """Yield the documents of a task as batches of a row group each; `found` are its rows in order, with their texts."""
    import pyarrow as pa

    first = 0
    for batch in read_batches(store, file.path):
        low, end = np.searchsorted(found["place"], [first, first + batch.num_rows]).tolist()
        while low < end:
            rows, begin, size = (
                found[low : min(end, low + GROUP_ROWS)],
                *texts.places(found["text"][low : min(end, low + GROUP_ROWS)]),
            )
            keep = max(1, int(np.searchsorted(np.cumsum(size), GROUP_BYTES, "right")))
            rows = rows[:keep]
            index = batch.take(pa.array(rows["place"] - first))
            yield pa.record_batch(
                [
                    *(index.column(field.name).cast(field.type) for field in index_schema()),
                    pa.array(rows["place"]),
                    texts.read(begin[:keep], size[:keep]),
                ],
                schema=documents_schema(),
            )
            low += keep
        first += batch.num_rows
