"""Write Levanter caches: two Zarr arrays for each shard, as TensorStore writes them for Levanter, and the ledger."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import UsageError, require
from tokenreel.formats.headed import choice, only
from tokenreel.formats.levanter_ledger import FIELDS, LAYOUTS, LEDGER
from tokenreel.formats.litdata_write import by_folder, write_index
from tokenreel.formats.sink import SinkWriter
from tokenreel.formats.writing import Holds
from tokenreel.formats.zarr_array import ABSENT, METADATA, crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats.base import Ids, WrittenFile
    from tokenreel.formats.sink import Sink
    from tokenreel.formats.writing import FinishedShard, WriteOptions

HOLDS = Holds(table=True, empty=True, largest_id=(1 << 31) - 1, dtypes=("int32",))
INNER = 262_144
"""Items of a chunk that is compressed by itself."""
OUTER = INNER * 512
"""Items of a file."""
DECLARED = 1 << 54
"""Length that an array is declared with, so that it can grow."""
_LEVEL, _SHUFFLE = 5, 1


def shard_name(number: int, options: WriteOptions) -> str:  # noqa: ARG001
    """Name the folder of shard `number`."""
    return f"part-{number:05d}"


def open_writer(root: Path, name: str, options: WriteOptions) -> CacheWriter:
    """Return a writer of the store ``name/input_ids`` below `root`, or of ``input_ids`` beside it where consolidated.

    ``options.options["layout"]`` is ``sharded`` (left out: that) or ``consolidated``, which takes one shard.
    """
    only(options.options, "layout")
    return CacheWriter(root, f"{_folder(name, options)}{FIELDS[0]}")


def _folder(name: str, options: WriteOptions) -> str:
    if choice(options.options, "layout", LAYOUTS[::-1]) == "sharded":
        return f"{name}/"
    folder = name.rpartition("/")[0]
    return f"{folder}/" if folder else ""


class CacheWriter(SinkWriter):
    """Writes one store; a file at a time grows, the chunk that ids are collected in is of 1 MiB."""

    def __init__(self, root: Path, field: str) -> None:
        super().__init__()
        require("numcodecs.blosc", extra="levanter")
        self._data = ArraySink(self, root, f"{field}/data", "int32")
        self._offsets = ArraySink(self, root, f"{field}/offsets", "int64")
        self._offsets.add(np.zeros(1, dtype=np.int64))

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the format has no place for them)
    ) -> None:
        """Append documents, each one row."""
        self._data.add(ids)
        self._offsets.add(self.tokens + np.cumsum(lengths, dtype=np.int64))
        self.tokens += len(ids)
        self.documents += len(lengths)

    def _complete(self) -> None:
        self._data.complete()
        self._offsets.complete(first=self.documents)


class ArraySink:
    """One array being written: chunk by chunk to the files they belong in, whose indices come last.

    The first chunk is kept to the end: its first item may only then be known.
    """

    def __init__(self, writer: SinkWriter, root: Path, path: str, dtype: str) -> None:
        self._writer = writer
        self._root = root
        self._path = path
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._first: npt.NDArray[Any] | None = None
        self._chunk = np.zeros(INNER, dtype=self._dtype)
        self._used = 0
        self._number = 0
        self._files: list[tuple[Sink, npt.NDArray[np.uint64]]] = []

    def add(self, values: npt.NDArray[Any]) -> None:
        """Append items."""
        at = 0
        while at < len(values):
            take = min(INNER - self._used, len(values) - at)
            self._chunk[self._used : self._used + take] = values[at : at + take]
            self._used += take
            at += take
            if self._used == INNER:
                self._flush()

    def _flush(self) -> None:
        if self._number == 0:
            self._first = self._chunk
        else:
            self._store(self._number, self._chunk)
        self._number += 1
        self._chunk, self._used = np.zeros(INNER, dtype=self._dtype), 0

    def _store(self, number: int, chunk: npt.NDArray[Any]) -> None:
        file, within = divmod(number, OUTER // INNER)
        while len(self._files) <= file:
            sink = self._writer.sink(self._root, f"{self._path}/c/{len(self._files)}")
            self._files.append((sink, np.full(2 * (OUTER // INNER), ABSENT, dtype="<u8")))
        sink, index = self._files[file]
        blosc = require("numcodecs.blosc", extra="levanter")
        data = blosc.compress(chunk, b"lz4", _LEVEL, _SHUFFLE, 0)
        index[2 * within : 2 * within + 2] = sink.bytes, len(data)
        sink.write(data)

    def complete(self, first: int | None = None) -> None:
        """Write what is left, the indices and the description; `first` becomes the first item."""
        if self._used:
            self._flush()
        if self._first is not None:
            if first is not None:
                self._first[0] = first
            self._store(0, self._first)
        for sink, index in self._files:
            data = index.tobytes()
            sink.write(data + crc32c(data).to_bytes(4, "little"))
        self._writer.sink(self._root, f"{self._path}/{METADATA}").write(_described(self._dtype))


def _described(dtype: np.dtype[Any]) -> bytes:
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    blosc = {
        "name": "blosc",
        "configuration": {
            "blocksize": 0,
            "clevel": _LEVEL,
            "cname": "lz4",
            "shuffle": "shuffle",
            "typesize": dtype.itemsize,
        },
    }
    sharding = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [INNER],
            "codecs": [little, blosc],
            "index_codecs": [little, {"name": "crc32c"}],
        },
    }
    value = {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [OUTER]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [sharding],
        "data_type": dtype.name,
        "fill_value": 0,
        "node_type": "array",
        "shape": [DECLARED],
        "zarr_format": 3,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def finish_folder(root: Path, shards: Sequence[FinishedShard], options: WriteOptions) -> tuple[WrittenFile, ...]:
    """Write a ``shard_ledger.json`` into every folder that has shards.

    Raises `UsageError` (LEV011) for a consolidated cache of several shards.
    """
    layout = choice(options.options, "layout", LAYOUTS[::-1])
    written = []
    for folder, members in by_folder(shards).items():
        if layout == "consolidated" and len(members) != 1:
            raise UsageError("LEV011", path=root / folder, expected="one shard", found=len(members))
        names = [shard.name.rpartition("/")[2] for shard in members]
        tokens = {FIELDS[0]: sum(shard.tokens for shard in members)}
        ledger = {
            "total_num_rows": sum(shard.documents for shard in members),
            "shard_rows": {name: shard.documents for name, shard in zip(names, members, strict=True)},
            "is_finished": True,
            "finished_shards": names,
            "field_counts": tokens,
            "field_counts_by_shard": {name: {FIELDS[0]: one.tokens} for name, one in zip(names, members, strict=True)},
            "layout": layout,
            "metadata": {"preprocessor_metadata": {}},
        }
        written.append(write_index(root, f"{folder}/{LEDGER}" if folder else LEDGER, ledger))
    return tuple(written)
