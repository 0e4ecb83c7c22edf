"""Texts kept on disk by the top bits of their id, until the rows that want them are known."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokenreel.build.id_spill import ROW, part_of
from tokenreel.errors import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

BUFFER_BYTES = 1 << 24


@dataclass(eq=False)
class TextSpill:
    """Texts with their ids and sources, in `parts` files of a temporary folder. A context manager."""

    parts: int
    folder: Path | None = None

    def __post_init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tokenreel-", dir=self.folder))
        self._ids: list[list[bytes]] = [[] for _ in range(self.parts)]
        self._texts: list[list[str]] = [[] for _ in range(self.parts)]
        self._sources: list[list[int]] = [[] for _ in range(self.parts)]
        self._waiting = 0
        self.bytes = 0
        """Characters of all texts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, ids: Sequence[bytes], texts: Sequence[str], source: int) -> None:
        """Add texts of one source."""
        if not ids:
            return
        high = np.frombuffer(b"".join(ids), ">u8")[::2].astype(np.uint64)
        for part, key, text in zip(part_of(high, self.parts).tolist(), ids, texts, strict=True):
            self._ids[part].append(key)
            self._texts[part].append(text)
            self._sources[part].append(source)
            self._waiting += len(text)
        self.bytes += sum(map(len, texts))
        if self._waiting >= BUFFER_BYTES:
            for part in range(self.parts):
                self._flush(part)
            self._waiting = 0

    def _flush(self, part: int) -> None:
        if not self._ids[part]:
            return
        pa = require("pyarrow", extra="build")
        batch = pa.record_batch(
            {
                "id": pa.array(self._ids[part], pa.binary(16)),
                "source": pa.array(self._sources[part], pa.uint64()),
                "text": pa.array(self._texts[part], pa.large_string()),
            }
        )
        # Every batch is a stream of its own: a file can then be gone on with, and is read to its end.
        with (self._folder / f"{part:04d}").open("ab") as file, pa.ipc.new_stream(file, batch.schema) as writer:
            writer.write_batch(batch)
        self._ids[part], self._texts[part], self._sources[part] = [], [], []

    def part(self, number: int) -> tuple[npt.NDArray[Any], Any]:
        """Return (rows of `ROW` whose value is the source, the texts as an Arrow array) of one part."""
        pa = require("pyarrow", extra="build")
        self._flush(number)
        batches = read_streams(self._folder / f"{number:04d}")
        table = pa.Table.from_batches(batches).combine_chunks() if batches else None
        if table is None or not table.num_rows:
            return np.empty(0, dtype=ROW), pa.array([], pa.large_string())
        batch = table.to_batches()[0]
        rows = np.empty(batch.num_rows, dtype=ROW)
        ids = np.frombuffer(batch.column("id").buffers()[1], ">u8").reshape(-1, 2)[: batch.num_rows]
        rows["high"], rows["low"] = ids[:, 0], ids[:, 1]
        rows["value"] = batch.column("source").to_numpy()
        return rows, batch.column("text")


def read_streams(path: Path) -> list[Any]:
    """Return the batches of a file of Arrow streams, one after another."""
    pa = require("pyarrow", extra="build")
    if not path.is_file():
        return []
    batches = []
    with path.open("rb") as file:
        size = path.stat().st_size
        while file.tell() < size:
            with pa.ipc.open_stream(file) as stream:
                batches += list(stream)
    return batches
