"""Put damaged LitData chunks together again: whole items, and an index that says what is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.convert.repair_indexed import Kept, Rebuilt, beyond, folder_of, unpacked
from tokenreel.convert.salvage import by_separators
from tokenreel.convert.virtual import Spliced
from tokenreel.errors import TokenreelError, require
from tokenreel.formats.base import Found
from tokenreel.formats.indexed import parsed
from tokenreel.formats.litdata import orphans
from tokenreel.formats.litdata_index import INDEX, KINDS, parse_index, stem
from tokenreel.formats.litdata_write import CODES, config_of
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.convert.repair_indexed import Wish
    from tokenreel.store import Store
    from tokenreel.store.base import Reader

WORD = 4


def is_index(store: Store, path: str) -> bool:
    """Return whether an index is one of LitData that can be read."""
    if not store.exists(path):
        return False
    try:
        parse_index(store, path)
    except TokenreelError:
        return False
    return True


def _index(store: Store, folder: str) -> dict[str, Any]:
    """Return what an index says, as it stands there; empty for one that is none."""
    path = f"{folder}{INDEX}"
    return parsed(store, path, _parse) if store.exists(path) else {}


def _parse(store: Store, path: str) -> dict[str, Any]:
    try:
        value = loads_strict(store.read(path), path)
    except ValueError:
        return {}
    sound = isinstance(value, dict) and isinstance(value.get("chunks"), list) and isinstance(value.get("config"), dict)
    if not sound:
        return {}
    chunks = {stem(str(one.get("filename"))): one for one in value["chunks"] if isinstance(one, dict)}
    return {**value, "by_stem": chunks}


def find(store: Store, paths: Sequence[str], wish: Wish) -> list[Found]:  # noqa: ARG001
    """Return the chunks of folders whose index is gone or is none: files named as chunks are, that begin like one."""
    return orphans(store, paths)


def rebuild(store: Store, found: Found, wish: Wish) -> Rebuilt:
    """Return a chunk of the items that are whole; one whose offsets are damaged is cut at separators.

    Raises `FormatError` (FLT020) where nothing says how wide an id is, or where items begin.
    """
    path = next((one for one in (*found.files, f"{found.name}.bin") if store.exists(one)), None)
    if path is None:
        raise beyond(found, "its file is gone", found.files[0])
    config, said = _said(store, path)
    name = _dtype(config) or wish.dtype
    if name is None or name not in CODES:
        raise beyond(found, "nothing says how wide an id is", "--dtype uint16, int32, ..")
    packed = ".zstd" in path.rpartition("/")[2]
    reader = unpacked(store, path, "zstd") if packed else store.reader(path)
    try:
        return _rebuilt(found, path, packed, reader, np.dtype(name).newbyteorder("<"), said, wish)
    finally:
        reader.close()


def _said(store: Store, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    index = _index(store, folder_of(path))
    return index.get("config", {}), index.get("by_stem", {}).get(stem(path.rpartition("/")[2]), {})


def _dtype(config: dict[str, Any]) -> str | None:
    kinds = config.get("data_format")
    one = kinds[0] if isinstance(kinds, list) and len(kinds) == 1 else None
    kind, _, number = one.partition(":") if isinstance(one, str) else ("", "", "")
    code = KINDS.get(kind, {}).get(int(number)) if number.isascii() and number.isdigit() and len(number) < 4 else None
    return np.dtype(code).name if code is not None else None


def _rebuilt(
    found: Found, path: str, packed: bool, reader: Reader, dtype: np.dtype[Any], said: dict[str, Any], wish: Wish
) -> Rebuilt:
    changes = []
    count = int.from_bytes(reader.read(0, WORD), "little") if reader.size >= WORD else 0
    told = said.get("chunk_size")
    first = int.from_bytes(reader.read(WORD, WORD), "little") if reader.size >= 2 * WORD else 0
    if isinstance(told, int) and told != count and first == WORD * (told + 2):
        changes.append(f"its header said {count} items: {told}, as the index and the first offset say")
        count = told
    head = WORD * (count + 2)
    if not count or head > reader.size:
        raise beyond(found, f"it was cut inside its table of {count} offsets, or the number is wrong", f"{head} bytes")
    offsets = reader.array("<u4", WORD, count + 1).astype(np.int64)
    steps = np.diff(offsets)
    width = dtype.itemsize
    if offsets[0] == head and bool(((steps >= 0) & (steps % width == 0)).all()):
        edges = offsets[: int(np.searchsorted(offsets, reader.size, side="right"))]
        promised = (int(offsets[-1]) - head) // width
    else:
        whole = (reader.size - head) // width
        cut = isinstance(said.get("dim"), int) and whole < said["dim"]
        edges = head + width * by_separators(reader, head, dtype.str, whole, wish.boundary, cut=cut, found=found)
        promised = said["dim"] if cut else whole
        changes.append("its table of offsets was damaged: made anew from separators")
    kept, end = len(edges) - 1, int(edges[-1])
    if end < head + width * promised:
        changes.append(f"cut short: {kept} of {count} items are whole")
    elif reader.size > end:
        changes.append(f"{reader.size - end} bytes behind the last item taken off")
    new = WORD * (kept + 2)
    top = np.array([kept, *(edges - head + new).tolist()], dtype="<u4").tobytes()
    size = len(top) + end - head
    if packed:
        data = require("zstandard", extra="build").ZstdCompressor(level=3).compress(top + reader.read(head, end - head))
        file = Spliced((data,))
    else:
        file = Spliced((top, (head, end)), path)
    tokens = (end - head) // width
    entry = {"chunk_bytes": size, "chunk_size": kept, "dim": tokens, "filename": path.rpartition("/")[2]}
    shard = Found("litdata", found.name, (path,))
    lost = max(0, promised - tokens)
    return Rebuilt(shard, {path: file}, tuple(changes), max(0, count - kept), lost, entry=(entry, dtype.name))


def indices(store: Store, kept: Sequence[Kept]) -> dict[str, bytes]:
    """Return the index of every folder: its settings as they were, where it had any that can be read."""
    folders: dict[str, tuple[list[Any], list[Kept]]] = {}
    for one in kept:
        rows, members = folders.setdefault(folder_of(one.found.files[0]), ([], []))
        members.append(one)
        if one.rebuilt is not None:
            rows.append(one.rebuilt.entry[0])
        else:
            rows.append(_said(store, one.found.files[0])[1])
    out = {}
    for folder, (rows, members) in folders.items():
        index = _index(store, folder)
        config = index.get("config") or {}
        if _dtype(config) is None:
            name = next(one.rebuilt.entry[1] for one in members if one.rebuilt is not None)
            packed = "zstd" if any(".zstd" in row["filename"] for row in rows) else ""
            config = config_of(name, packed, max(row["chunk_bytes"] for row in rows))
        value = {"chunks": rows, "config": config, "updated_at": index.get("updated_at", "0")}
        out[f"{folder}{INDEX}"] = json.dumps(value, sort_keys=True).encode()
    return out
