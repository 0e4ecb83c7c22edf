"""Save what an Arrow stream or file holds before it was cut or damaged: whole record batches, and whole rows of the last."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.convert.repair_indexed import Kept, Rebuilt, beyond, folder_of
from tokenreel.convert.virtual import Spliced, SplicedReader
from tokenreel.errors import FormatError, require
from tokenreel.formats.arrow import STATE
from tokenreel.formats.arrow_messages import Batch, Walk
from tokenreel.formats.base import Found
from tokenreel.formats.indexed import beside
from tokenreel.formats.parquet_footer import COLUMNS
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tokenreel.convert.repair_indexed import Wish
    from tokenreel.store import Store
    from tokenreel.store.base import Reader

END = b"\xff\xff\xff\xff" + bytes(4)
_RECORDS = 3
_LARGEST = 1 << 31
BESIDE = (STATE, "dataset_info.json", "dataset_dict.json")
"""What datasets keeps beside its files, and needs to load them."""


def rebuild(store: Store, found: Found, wish: Wish) -> Rebuilt:  # noqa: ARG001
    """Return a stream of the batches that are whole, and of the rows that are whole in the one where it was cut.

    Raises `FormatError` (FLT020) where the schema cannot be read.
    """
    path = found.files[0]
    reader = store.reader(path)
    try:
        try:
            walk = Walk(reader, COLUMNS)
        except FormatError as error:
            raise beyond(found, f"its schema cannot be read: {error.message or error.title}", "a schema") from error
        return _rebuilt(store, found, path, reader, walk)
    finally:
        reader.close()


def _rebuilt(store: Store, found: Found, path: str, reader: Reader, walk: Walk) -> Rebuilt:
    begin = 8 if walk.in_file else 0
    parts: list[bytes | tuple[int, int]] = [(begin, walk.at)]
    changes: list[str] = []
    lost_rows = lost_ids = 0
    known = True
    end = False
    while not end:
        first = walk.at
        try:
            batch, end = _next(walk)
        except (FormatError, struct.error, ValueError, IndexError) as error:
            rows, piece = _part(store, path, reader, walk, first)
            if piece:
                parts.append(piece)
            kept = f", and {rows} rows of the batch that was cut" if rows else ""
            changes.append(
                f"cut short or damaged at byte {first}: the batches before it are kept{kept} ({str(error)[:100]})"
            )
            known = False
            break
        wrong = "" if batch is None else _wrong(reader, walk, batch)
        if batch is not None and wrong:
            changes.append(f"the batch at byte {first} left out, {batch.rows} rows: {wrong}")
            lost_rows, lost_ids = lost_rows + batch.rows, lost_ids + batch.ids
        elif not end:
            parts.append((first, walk.at))
    if walk.in_file:
        changes.append("written as a stream: what stood behind the batches is not needed to read it")
    elif end and walk.at != reader.size:
        changes.append(f"{reader.size - walk.at} bytes behind the end mark taken off")
    file = Spliced((*parts, END), path)
    lost = lost_ids if known else None
    return Rebuilt(Found("arrow", found.name, (path,)), {path: file}, tuple(changes), lost_rows, lost)


def _next(walk: Walk) -> tuple[Batch | None, bool]:
    """Return (the batch, or None for another message; whether it was the end mark)."""
    first = walk.at
    kind, table, body, body_at = walk.message()
    if kind == 0:
        return None, True
    return (walk.batch(table, body, body_at, first), False) if kind == _RECORDS else (None, False)


def _wrong(reader: Reader, walk: Walk, batch: Batch) -> str:
    """Return what is wrong with a batch's offsets, empty for nothing."""
    if walk.column.size is not None or not batch.rows:
        return ""
    offsets = _offsets(reader, walk, batch)
    sound = bool((np.diff(offsets) >= 0).all()) and offsets[0] >= 0 and offsets[-1] <= batch.ids
    return "" if sound else "its offsets fall or lead outside"


def _offsets(reader: Reader, walk: Walk, batch: Batch) -> Any:
    kind = "<i8" if walk.column.wide else "<i4"
    return reader.array(kind, batch.offsets_at, batch.rows + 1).astype(np.int64)


def _part(store: Store, path: str, reader: Reader, walk: Walk, first: int) -> tuple[int, bytes]:
    """Return the rows that are whole in a batch whose body was cut, as a message of its own.

    Only where the ids stand last in it: then everything before them is there.
    """
    pa = require("pyarrow", extra="build")
    ipc = require("pyarrow.ipc", extra="build")
    try:
        length = int.from_bytes(reader.read(first + 4, 4), "little", signed=True)
        body = walk.body_of(reader.read(first + 8, length)) if 8 <= length <= reader.size - first - 8 else 0
        missing = first + 8 + length + body - reader.size
        if not 0 < missing < body <= _LARGEST or not walk.last:
            return 0, b""
        padded = SplicedReader(store, path, Spliced(((0, reader.size), bytes(missing)), path))
        whole = Walk(padded, COLUMNS)
        whole.at = first
        batch, _ = _next(whole)
        if batch is None or batch.validity:
            return 0, b""
        width = int(walk.column.dtype[-1])
        if walk.column.size is not None:
            ends = np.arange(batch.rows + 1, dtype=np.int64) * walk.column.size
        else:
            if batch.offsets_at + (8 if walk.column.wide else 4) * (batch.rows + 1) > reader.size:
                return 0, b""
            ends = _offsets(padded, walk, batch)
        rows = int(np.searchsorted(batch.ids_at + width * ends, reader.size, side="right")) - 1
        if rows < 1 or _wrong(padded, whole, batch):
            return 0, b""
        schema = ipc.read_schema(pa.py_buffer(reader.read(*walk.schema_at)))
        message = ipc.read_message(padded.read(first, whole.at - first))
        return rows, ipc.read_record_batch(message, schema).slice(0, rows).serialize().to_pybytes()
    except (FormatError, pa.ArrowException, OSError, struct.error, ValueError, IndexError):
        return 0, b""


def indices(store: Store, kept: Sequence[Kept]) -> dict[str, bytes]:
    """Return what datasets keeps beside its files, as it is but for the names of files that are left out."""
    there = {one.found.files[0] for one in kept}
    return {path: _without(store, path, there) for path in _beside(kept) if store.exists(path)}


def _without(store: Store, path: str, there: Collection[str]) -> bytes:
    """Return a ``state.json`` that names only files that are there; any other file as it is."""
    data = store.read(path)
    if path.rpartition("/")[2] != STATE:
        return data
    try:
        value = loads_strict(data, path)
    except ValueError:
        return data
    files = value.get("_data_files") if isinstance(value, dict) else None
    if not isinstance(files, list):
        return data
    left = [one for one in files if not isinstance(one, dict) or beside(path, one.get("filename")) in there]
    return data if len(left) == len(files) else json.dumps({**value, "_data_files": left}, sort_keys=True).encode()


def _beside(kept: Sequence[Kept]) -> Iterator[str]:
    folders = dict.fromkeys(folder_of(one.found.files[0]) for one in kept)
    above = dict.fromkeys(folder_of(folder[:-1]) for folder in folders if folder)
    for folder in {**folders, **above}:
        for name in BESIDE:
            yield f"{folder}{name}"
