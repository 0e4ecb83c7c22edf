"""Write LitData chunks of tokens and their ``index.json``: every document an item."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import UsageError
from tokenreel.formats.headed import HeadedWriter, choice, only
from tokenreel.formats.litdata_index import INDEX, KINDS
from tokenreel.formats.sink import Sink
from tokenreel.formats.writing import Holds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats.base import Ids, WrittenFile
    from tokenreel.formats.writing import FinishedShard, WriteOptions

CODES = {np.dtype(dtype).name: f"{kind}:{code}" for kind in reversed(KINDS) for code, dtype in KINDS[kind].items()}
"""How a dtype is named: as torch's where torch has it."""
HOLDS = Holds(
    table=True,
    empty=True,
    largest_id=(1 << 64) - 1,
    dtypes=("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    shard_bytes=1 << 31,
)
_SPEC = '[1, {"type": null, "context": null, "children_spec": []}]'
_COMPRESSIONS = ("", "zstd")


def shard_name(number: int, options: WriteOptions) -> str:  # noqa: ARG001
    """Name chunk `number`, as LitData's first worker does."""
    return f"chunk-0-{number}"


def open_writer(root: Path, name: str, options: WriteOptions) -> ChunkWriter:
    """Return a writer of ``name.bin`` below `root`; with ``options.options["compression"] = "zstd"``, ``name.zstd.bin``."""
    only(options.options, "compression")
    return ChunkWriter(root, name, options)


class ChunkWriter(HeadedWriter):
    """Writes one chunk. Raises `FormatError` (LIT012) past 4 GiB."""

    def __init__(self, root: Path, name: str, options: WriteOptions) -> None:
        packed = choice(options.options, "compression", _COMPRESSIONS)
        self._dtype = np.dtype(options.dtype).newbyteorder("<")
        super().__init__(root, _path(name, packed), packed, b"", "LIT012")

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the format has no place for them)
    ) -> None:
        """Append documents, each one item."""
        data = np.ascontiguousarray(ids, dtype=self._dtype).data.cast("B")
        self.records(data, lengths * self._dtype.itemsize)
        self.tokens += len(ids)


def finish_folder(root: Path, shards: Sequence[FinishedShard], options: WriteOptions) -> tuple[WrittenFile, ...]:
    """Write an ``index.json`` into every folder that has chunks."""
    packed = choice(options.options, "compression", _COMPRESSIONS)
    width = np.dtype(options.dtype).itemsize
    if options.dtype not in CODES:
        raise UsageError("USE003", "a dtype of LitData", expected=", ".join(CODES), found=options.dtype)
    written = []
    for folder, members in by_folder(shards).items():
        chunks: list[dict[str, Any]] = [
            {
                "chunk_bytes": 4 * (shard.documents + 2) + width * shard.tokens,
                "chunk_size": shard.documents,
                "dim": shard.tokens,
                "filename": _path(shard.name, packed).rpartition("/")[2],
            }
            for shard in members
        ]
        config = config_of(options.dtype, packed, max((chunk["chunk_bytes"] for chunk in chunks), default=0))
        # LitData writes a date here; it is no fact about the data.
        value = {"chunks": chunks, "config": config, "updated_at": "0"}
        written.append(write_index(root, f"{folder}/{INDEX}" if folder else INDEX, value))
    return tuple(written)


def config_of(dtype: str, packed: str, chunk_bytes: int) -> dict[str, Any]:
    """Return the settings of an index of chunks of tokens."""
    kind = CODES[dtype]
    return {
        "chunk_bytes": chunk_bytes,
        "chunk_size": None,
        "compression": packed or None,
        "compression_batch_size": None,
        "compression_level": None,
        "data_format": [kind],
        "data_spec": _SPEC,
        "encryption": None,
        "ipc_compression": None,
        "item_loader": "TokensLoader",
        "types": "tensor" if "tensor" in kind else "json",
    }


def by_folder(shards: Sequence[FinishedShard]) -> dict[str, list[FinishedShard]]:
    """Return shards by the folder they lie in, in order."""
    folders: dict[str, list[FinishedShard]] = {}
    for shard in shards:
        folders.setdefault(shard.name.rpartition("/")[0], []).append(shard)
    return folders


def write_index(root: Path, path: str, value: object) -> WrittenFile:
    """Write an ``index.json`` as its readers write it themselves, atomically."""
    sink = Sink(root, path)
    try:
        sink.write(json.dumps(value, sort_keys=True).encode())
        written = sink.finish()
        sink.commit()
    finally:
        sink.discard()
    return written


def _path(name: str, packed: str) -> str:
    return f"{name}.{packed}.bin" if packed else f"{name}.bin"
