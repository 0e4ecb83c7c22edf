"""The ``index.json`` of an MDS folder: which shards there are, their columns, sizes and hashes.

``{"version": 2, "shards": [...]}``, each shard with ``column_names``, ``column_encodings``, ``column_sizes`` (null where it
varies), ``samples``, ``compression``, ``raw_data`` and ``zip_data`` (each ``basename``, ``bytes``, ``hashes`` by algorithm;
the second null where nothing is compressed). A shard holds the same words about its columns itself.
Source: MDS as mosaicml-streaming writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.indexed import beside, is_count
from tokenreel.formats.loaded import full_path
from tokenreel.formats.unpacking import ALGORITHMS
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenreel.store.base import Store

INDEX = "index.json"
VERSION = 2
DTYPES: dict[str, np.dtype[Any]] = {
    f"{sign}int{8 * width}": np.dtype(f"<{sign or 'i'}{width}") for width in (1, 2, 4, 8) for sign in ("u", "")
}
TOKEN_NAMES = ("tokens", "input_ids")
"""Of several columns that could hold ids, the first of these that is there."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a shard's records."""

    name: str
    encoding: str
    size: int | None
    """Bytes in every record, or None: then each record says it."""


@dataclass(frozen=True, slots=True)
class Packed:
    """One file that an index names."""

    path: str
    bytes: int
    hashes: Mapping[str, str]
    """Hexadecimal digests by the name of their algorithm."""


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """What an index says of one shard."""

    columns: tuple[Column, ...]
    samples: int
    raw: Packed
    packed: Packed | None
    algorithm: str
    """Of `packed`: zstd, gz, bz2, br, snappy; empty where nothing is compressed."""
    order: int
    """Its place in the index."""


def parse_index(store: Store, path: str) -> dict[str, ShardInfo]:
    """Return the shards of an index by the path of each one's file, compressed or not, in its order.

    Raises `FormatError`: MDS001 for what is no index of this version, MDS011 for a compression that is not read; and
    `ManifestError` (MAN001, MAN002) for what is no JSON.
    """
    value = loads_strict(store.read(path), full_path(store, path))
    shards = value.get("shards") if isinstance(value, dict) else None
    if not isinstance(shards, list):
        raise _wrong(store, path, "a list of shards", type(shards).__name__)
    if value.get("version") != VERSION:
        raise _wrong(store, path, f"version {VERSION}", value.get("version"))
    found: dict[str, ShardInfo] = {}
    for number, shard in enumerate(shards):
        info = _shard(store, path, shard, number)
        for file in (info.raw, info.packed):
            if file is not None:
                if file.path in found:
                    raise _wrong(store, path, "each shard once", file.path)
                found[file.path] = info
    return found


def _shard(store: Store, path: str, shard: Any, number: int) -> ShardInfo:
    if not isinstance(shard, dict) or shard.get("format") != "mds" or shard.get("version") != VERSION:
        raise _wrong(store, path, f"format mds of version {VERSION} in shard {number}", str(shard)[:80])
    if not is_count(shard.get("samples")):
        raise _wrong(store, path, f"a number of samples in shard {number}", str(shard.get("samples"))[:80])
    columns = columns_of(shard)
    raw = _file(path, shard.get("raw_data"))
    zipped = shard.get("zip_data")
    packed = None if zipped is None else _file(path, zipped)
    if columns is None or raw is None or (zipped is not None and packed is None):
        raise _wrong(store, path, f"columns and files in shard {number}", str(shard)[:200])
    said = shard.get("compression")
    algorithm = said.partition(":")[0] if isinstance(said, str) else ""
    if (packed is None) != (said is None) or (packed is not None and algorithm not in ALGORITHMS):
        raise FormatError(
            "MDS011",
            f"shard {number}",
            path=full_path(store, path),
            expected=f"none, or one of {', '.join(ALGORITHMS)} with zip_data",
            found=str(said)[:80],
        )
    return ShardInfo(columns, shard["samples"], raw, packed, algorithm if packed else "", number)


def columns_of(shard: Mapping[str, Any]) -> tuple[Column, ...] | None:
    """Return the columns that an index, or a shard itself, describes; None where it does not."""
    lists = [shard.get(key) for key in ("column_names", "column_encodings", "column_sizes")]
    if not all(isinstance(one, list) for one in lists) or len({len(one) for one in lists if one is not None}) != 1:
        return None
    names, encodings, sizes = lists
    columns = []
    for name, encoding, size in zip(names or (), encodings or (), sizes or (), strict=True):
        if not isinstance(name, str) or not isinstance(encoding, str) or not (size is None or is_count(size)):
            return None
        columns.append(Column(name, encoding, size))
    if not columns or [column.name for column in columns] != sorted({column.name for column in columns}):
        return None  # records hold their columns in the order of their names
    return tuple(columns)


def token_column(columns: tuple[Column, ...]) -> Column | None:
    """Return the column that holds ids: of bytes or of an array; None where there is none, or one too many.

    >>> token_column((Column("id", "str", None), Column("tokens", "ndarray:uint16", None))).name
    'tokens'
    """
    able = [column for column in columns if column.encoding == "bytes" or column.encoding.startswith("ndarray")]
    if len(able) == 1:
        return able[0]
    return next((column for name in TOKEN_NAMES for column in able if column.name == name), None)


def array_of(encoding: str) -> tuple[np.dtype[Any] | None, int | None] | None:
    """Return (dtype, ids in each record) of an ``ndarray`` encoding, None for what each record says; None for others.

    >>> array_of("ndarray:uint16:33"), array_of("ndarray"), array_of("ndarray:float32"), array_of("ndarray:int32:2,2")
    ((dtype('uint16'), 33), (None, None), None, None)
    """
    kind, *said = encoding.split(":")
    if kind != "ndarray" or len(said) > 2:
        return None
    if not said:
        return None, None
    if said[0] not in DTYPES:
        return None
    if len(said) == 1:
        return DTYPES[said[0]], None
    if not (said[1].isascii() and said[1].isdigit() and len(said[1]) < 10):
        return None
    return DTYPES[said[0]], int(said[1])


def _file(index: str, value: Any) -> Packed | None:
    if not isinstance(value, dict):
        return None
    path, size, hashes = beside(index, value.get("basename")), value.get("bytes"), value.get("hashes")
    if path is None or not is_count(size) or not isinstance(hashes, dict):
        return None
    if not all(isinstance(digest, str) for digest in hashes.values()):
        return None
    return Packed(path, int(value["bytes"]), hashes)


def _wrong(store: Store, path: str, expected: object, found: object) -> FormatError:
    return FormatError("MDS001", path=full_path(store, path), expected=expected, found=found)
