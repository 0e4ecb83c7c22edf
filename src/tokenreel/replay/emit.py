"""Found documents written in the order of the store: one Parquet file a task, in the columns of the index and the text."""

from __future__ import annotations

import shutil
import tempfile
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokenreel.errors import require
from tokenreel.replay.files import index_schema, read_batches
from tokenreel.replay.text_spill import read_streams
from tokenreel.store.atomic import atomic_write

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.replay.metadata import Manifest
    from tokenreel.store import Store

FOLDER = "documents"


def documents_schema() -> Any:
    """Return the Arrow schema: the index's columns, `row` (in the task's file) and `text`."""
    import pyarrow as pa

    extra = [pa.field("row", pa.int64(), nullable=False), pa.field("text", pa.large_string(), nullable=False)]
    return pa.schema([*index_schema(), *extra])


@dataclass(eq=False)
class Emission:
    """Gathers found texts by task, then writes each task's in order. A context manager; nothing is kept on leaving."""

    manifest: Manifest
    out: Path | None
    folder: Path | None = None

    def __post_init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tokenreel-", dir=self.folder)) if self.out is not None else Path()
        self._files = sorted(self.manifest.files, key=lambda file: file.task_id)
        self._base = list(accumulate((file.documents for file in self._files), initial=0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.out is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, place: npt.NDArray[np.int64], texts: Any) -> None:
        """Add texts with their numbers in the store."""
        pa = require("pyarrow", extra="build")
        order = np.argsort(place, kind="stable")
        place, texts = place[order], texts.take(pa.array(order))
        at = 0
        while at < len(place):
            task = bisect_right(self._base, int(place[at])) - 1
            end = int(np.searchsorted(place, self._base[task + 1]))
            rows = pa.record_batch({"row": pa.array(place[at:end] - self._base[task]), "text": texts[at:end]})
            with (self._folder / f"{task:06d}").open("ab") as file, pa.ipc.new_stream(file, rows.schema) as writer:
                writer.write_batch(rows)
            at = end

    def write(self, store: Store) -> list[str]:
        """Write all tasks and return their files, relative to `out`; tasks without a document found have none."""
        pa = require("pyarrow", extra="build")
        parquet = require("pyarrow.parquet", extra="build")
        if self.out is None:
            return []
        written = []
        for task, file in enumerate(self._files):
            batches = read_streams(self._folder / f"{task:06d}")
            if not batches:
                continue
            found = pa.Table.from_batches(batches).sort_by("row").combine_chunks()
            index = pa.Table.from_batches(list(read_batches(store, file.path))).take(found.column("row"))
            columns = [
                *(index.column(name) for name in index_schema().names),
                found.column("row"),
                found.column("text"),
            ]
            table = pa.table(columns, names=documents_schema().names).cast(documents_schema())
            name = f"{FOLDER}/task-{file.task_id:06d}.parquet"
            with atomic_write(self.out / name) as sink:
                parquet.write_table(table, pa.PythonFile(sink, mode="w"), compression="zstd", row_group_size=1 << 14)
            written.append(name)
        return written
