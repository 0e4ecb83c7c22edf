"""Write MDS shards and their ``index.json``: every document a record, with one column of ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import UsageError, require
from tokenreel.formats.headed import LEVEL, HeadedWriter, choice, only
from tokenreel.formats.litdata_write import by_folder, write_index
from tokenreel.formats.mds import BYTES_DTYPES
from tokenreel.formats.mds_index import DTYPES, INDEX, TOKEN_NAMES
from tokenreel.formats.writing import Holds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats.base import Ids, WrittenFile
    from tokenreel.formats.writing import FinishedShard, WriteOptions

HOLDS = Holds(
    table=True,
    empty=True,
    largest_id=(1 << 64) - 1,
    dtypes=("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    shard_bytes=1 << 31,
)
_SUFFIX = ".mds"
_COMPRESSIONS = ("", "zstd", "gz")
_TAIL = 8


def shard_name(number: int, options: WriteOptions) -> str:  # noqa: ARG001
    """Name shard `number`, as mosaicml-streaming does."""
    return f"shard.{number:05d}"


def open_writer(root: Path, name: str, options: WriteOptions) -> RecordWriter:
    """Return a writer of ``name.mds`` below `root`.

    ``options.options`` may say ``encoding`` (``ndarray``, which says dtype and length, or ``bytes``, which says neither),
    ``column`` (``tokens`` or ``input_ids``) and ``compression`` (``zstd``, ``gz``: ``name.mds.zstd``).
    """
    only(options.options, "encoding", "column", "compression")
    return RecordWriter(root, name, options)


class RecordWriter(HeadedWriter):
    """Writes one shard. Raises `FormatError` (MDS016) past 4 GiB."""

    def __init__(self, root: Path, name: str, options: WriteOptions) -> None:
        self._dtype = DTYPES[options.dtype]
        config = _config(options)
        self._array = config["column_encodings"][0] != "bytes"
        packed = choice(options.options, "compression", _COMPRESSIONS)
        between = json.dumps(config, sort_keys=True).encode()
        super().__init__(root, _path(name, packed), packed, between, "MDS016")

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the format has no place for them)
    ) -> None:
        """Append documents, each one record."""
        view = np.ascontiguousarray(ids, dtype=self._dtype).data.cast("B")
        sizes = lengths * self._dtype.itemsize
        parts: list[bytes | memoryview] = []
        at = 0
        for length, size in zip(lengths.tolist(), sizes.tolist(), strict=True):
            parts.append(_array_head(length, size) if self._array else size.to_bytes(4, "little"))
            parts.append(view[at : at + size])
            at += size
        heads = 4 + np.where(self._array, 1 + _shape_bytes(lengths), 0)
        self.records(b"".join(parts), sizes + heads)
        self.tokens += len(ids)


def _shape_bytes(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.select([lengths < 1 << 8, lengths < 1 << 16], [1, 2], 4).astype(np.int64)


def _array_head(length: int, size: int) -> bytes:
    """Return what stands before the ids of an array of one dimension: its bytes, dimensions, and length.

    >>> _array_head(33, 66).hex()
    '440000000421'
    """
    bits = 0 if length < 1 << 8 else 1 if length < 1 << 16 else 2
    width = 1 << bits
    return (1 + width + size).to_bytes(4, "little") + bytes([(1 << 2) | bits]) + length.to_bytes(width, "little")


def _config(options: WriteOptions) -> dict[str, Any]:
    encoding = choice(options.options, "encoding", ("ndarray", "bytes"))
    if encoding == "bytes" and options.dtype not in BYTES_DTYPES:
        raise UsageError("USE003", "a dtype of bytes", expected=", ".join(BYTES_DTYPES), found=options.dtype)
    packed = choice(options.options, "compression", _COMPRESSIONS)
    return {
        "column_encodings": [encoding if encoding == "bytes" else f"ndarray:{options.dtype}"],
        "column_names": [choice(options.options, "column", TOKEN_NAMES)],
        "column_sizes": [None],
        "compression": f"{packed}:{LEVEL if packed == 'zstd' else 6}" if packed else None,
        "format": "mds",
        "hashes": ["sha256"],
        "size_limit": None,
        "version": 2,
    }


def finish_folder(root: Path, shards: Sequence[FinishedShard], options: WriteOptions) -> tuple[WrittenFile, ...]:
    """Write an ``index.json`` into every folder that has shards."""
    config = _config(options)
    packed = choice(options.options, "compression", _COMPRESSIONS)
    written = []
    for folder, members in by_folder(shards).items():
        rows = []
        for shard in members:
            file = shard.files[0]
            name = shard.name.rpartition("/")[2]
            said = {"bytes": file.bytes, "hashes": {"sha256": file.sha256}}
            raw = {"basename": f"{name}{_SUFFIX}", **said}
            if packed:
                raw |= {"bytes": _unpacked(root / file.path, packed), "hashes": {}}
            zipped = {"basename": _path(name, packed), **said} if packed else None
            rows.append({**config, "raw_data": raw, "samples": shard.documents, "zip_data": zipped})
        written.append(write_index(root, f"{folder}/{INDEX}" if folder else INDEX, {"shards": rows, "version": 2}))
    return tuple(written)


def _unpacked(path: Path, packed: str) -> int:
    """Return the size that a compressed file of ours says it had: before its data or after it, less than 4 GiB."""
    with path.open("rb") as file:
        if packed == "zstd":
            return int(require("zstandard", extra="build").frame_content_size(file.read(32)))
        file.seek(-_TAIL, 2)
        return int.from_bytes(file.read(_TAIL)[4:], "little")


def _path(name: str, packed: str) -> str:
    return f"{name}{_SUFFIX}.{packed}" if packed else f"{name}{_SUFFIX}"
