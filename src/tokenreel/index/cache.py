"""Our own cache of prepared permutations: keyed by the lengths and parameters they follow from, verified when read.

The key is a hash of every length that entered the shuffle, so replaced data has another key and can never meet a stale
entry. An entry is two arrays and, written last, a small file with their hashes; a damaged one is made again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError, StorageError
from tokenreel.hashing import xxh3_128
from tokenreel.index.arrays import read_array, write_array
from tokenreel.index.laying import edges_of, owners_of, packed_entries
from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

    from tokenreel.order.megatron import MegatronOrder
    from tokenreel.order.protocol import Order

FORMAT = "tokenreel-index-cache-1"


def prepared(order: Order, folder: str | os.PathLike[str] | None = None) -> tuple[Order, tuple[StorageError, ...]]:
    """Return an order prepared, its permutations read from `folder` where they are there, and put there where not.

    Orders of orders are gone through; those with nothing to keep are prepared as they are. What could not be written is
    returned (IDX005) and costs nothing else.
    """
    from tokenreel.order.megatron import MegatronOrder
    from tokenreel.pack.packed import PackedOrder

    if folder is None:
        return order.prepare(), ()
    warnings: list[StorageError] = []

    def through(one: Any) -> Any:
        if isinstance(one, MegatronOrder):
            made, warning = _megatron(one, Path(folder))
            warnings.extend([warning] if warning else [])
            return made
        if isinstance(one, PackedOrder):
            from tokenreel.index.plans import planned

            rows, more = planned(one, folder)
            warnings.extend(more)
            return rows
        changes: dict[str, Any] = {}
        for item in fields(one):
            value = getattr(one, item.name)
            if item.name == "inner":
                changes["inner"] = through(value)
            elif item.name in ("children", "members"):
                changes[item.name] = tuple(through(child) for child in value)
            elif item.name == "components":
                changes["components"] = tuple(replace(part, order=through(part.order)) for part in value)
        return (replace(one, **changes) if changes else one).prepare()

    return through(order), tuple(warnings)


def cache_key(order: MegatronOrder, offsets: npt.NDArray[np.int64]) -> str:
    """Return the key of an order's permutations: 32 hex digits over parameters and the edges of its sequences."""
    plan = order.plan
    facts = [FORMAT, order.seed, order.first, order.last, plan.epochs, plan.separate, plan.before_last, plan.samples]
    digest = hashlib.sha256((json.dumps(facts) + "\n").encode())
    digest.update(xxh3_128(np.ascontiguousarray(offsets, dtype="<i8").view(np.uint8).data))
    return digest.hexdigest()[:32]


def _megatron(order: MegatronOrder, folder: Path) -> tuple[MegatronOrder, StorageError | None]:
    from tokenreel.order.megatron import Prepared
    from tokenreel.order.megatron_spans import lay_out

    if order.prepared is not None or order.table is None:
        return order.prepare(), None
    offsets = edges_of(order.table, order.first, order.last)
    stem = folder / cache_key(order, offsets)
    held = _read(stem)
    if held is None:
        made = order.prepare()
        return made, _write(stem, made, offsets)
    entries, shuffle = held
    owners, first_owner = owners_of(order.documents, offsets)
    laid = lay_out(
        np.array(entries), offsets, order.first, order.row_tokens, order.row_ahead, order.length, owners, first_owner
    )
    return replace(order, prepared=Prepared(laid, np.asarray(shuffle))), None


def _read(stem: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Return the two arrays of an entry, or None where it is not there or not what was written."""
    try:
        said = json.loads(stem.with_name(f"{stem.name}.json").read_bytes())
        arrays = [read_array(stem.with_name(f"{stem.name}-{name}.npy")) for name in ("entries", "order")]
    except (OSError, ValueError, FormatError):
        return None
    right = isinstance(said, dict) and said.get("format") == FORMAT and said.get("hashes") == [_hash(a) for a in arrays]
    return (arrays[0], arrays[1]) if right else None


def _write(stem: Path, order: MegatronOrder, offsets: npt.NDArray[np.int64]) -> StorageError | None:
    ready = order.prepared
    if ready is None:
        return None
    entries = packed_entries(ready.laid.documents, offsets, order.first)
    try:
        write_array(stem.with_name(f"{stem.name}-entries.npy"), entries)
        write_array(stem.with_name(f"{stem.name}-order.npy"), ready.shuffle)
        said = {"format": FORMAT, "hashes": [_hash(entries), _hash(ready.shuffle)]}
        write_bytes_atomic(stem.with_name(f"{stem.name}.json"), json.dumps(said).encode() + b"\n")
    except StorageError as error:
        return StorageError("IDX005", error.message, path=error.where.get("path", stem), hint=error.hint)
    return None


def _hash(array: npt.NDArray[Any]) -> str:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"{array.dtype.str} {array.size} {xxh3_128(flat.data).hex()}"
