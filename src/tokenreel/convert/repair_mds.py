"""Put damaged MDS shards together again: whole records, whatever their columns, and an index that says what is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.convert.repair_indexed import Kept, Rebuilt, beyond, folder_of, unpacked
from tokenreel.convert.virtual import Spliced
from tokenreel.formats.base import Found
from tokenreel.formats.indexed import parsed
from tokenreel.formats.mds import kind_of
from tokenreel.formats.mds_index import INDEX, VERSION, Column, array_of, columns_of, token_column
from tokenreel.formats.unpacking import ALGORITHMS
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.convert.repair_indexed import Wish
    from tokenreel.store import Store
    from tokenreel.store.base import Reader

WORD = 4
SUFFIX = ".mds"
_LARGEST_CONFIG = 1 << 20


def is_index(store: Store, path: str) -> bool:
    """Return whether an index is one of MDS that can be read."""
    return _entries(store, path) is not None


def _entries(store: Store, path: str) -> dict[str, dict[str, Any]] | None:
    """Return the entries of an index by the shard's raw name, as they stand there; None for what is no index."""
    return parsed(store, path, _parse_entries) if store.exists(path) else None


def _parse_entries(store: Store, path: str) -> dict[str, dict[str, Any]] | None:
    try:
        value = loads_strict(store.read(path), path)
    except ValueError:
        return None
    shards = value.get("shards") if isinstance(value, dict) else None
    if not isinstance(shards, list):
        return None
    out = {}
    for one in shards:
        raw = one.get("raw_data") if isinstance(one, dict) else None
        if not isinstance(raw, dict) or not isinstance(raw.get("basename"), str) or columns_of(one) is None:
            return None
        out[raw["basename"]] = one
    return out


def find(store: Store, paths: Sequence[str], wish: Wish) -> list[Found]:  # noqa: ARG001
    """Return the shards of folders whose index is gone or is none: files named as shards are."""
    out: list[Found] = []
    for path in paths:
        stem, dot, rest = path.partition(SUFFIX)
        if dot and rest in ("", *(f".{one}" for one in ALGORITHMS)) and not any(one.name == stem for one in out):
            out.append(Found("mds", stem, (path,)))
    return out


def rebuild(store: Store, found: Found, wish: Wish) -> Rebuilt:  # noqa: ARG001
    """Return a shard of the records that are whole.

    Their offsets are believed where they rise; else records are counted through, by the sizes that each says. Raises
    `FormatError` (FLT020) where neither header nor description can be read.
    """
    path, packed = _there(store, found)
    said = next((entry for _, entry in _named(store, found)), None)
    reader = store.reader(path) if not packed else unpacked(store, path, packed)
    try:
        return _rebuilt(found, path, packed, reader, said)
    finally:
        reader.close()


def _there(store: Store, found: Found) -> tuple[str, str]:
    for suffix in ("", *(f".{one}" for one in ALGORITHMS)):
        path = f"{found.name}{SUFFIX}{suffix}"
        if store.exists(path):
            return path, suffix[1:]
    raise beyond(found, "its file is gone", f"{found.name}{SUFFIX}")


def _rebuilt(found: Found, path: str, packed: str, reader: Reader, said: dict[str, Any] | None) -> Rebuilt:
    changes = [f"decompressed: {packed} was cut short or damaged"] if packed else []
    if reader.size < 2 * WORD:
        raise beyond(found, "there is no whole header", "a number of records and their offsets")
    count = int.from_bytes(reader.read(0, WORD), "little")
    head = WORD * (count + 2)
    if head > reader.size:
        raise beyond(found, f"it was cut inside its table of {count} offsets, or the number is wrong", f"{head} bytes")
    text, config = _config(reader, head)
    columns = columns_of(config) if config is not None else None
    foreign = columns is None and said is not None
    if columns is None and said is not None:
        columns, config = columns_of(said), {k: v for k, v in said.items() if not k.endswith("_data")}
        config.pop("samples", None)
        text = json.dumps(config, sort_keys=True).encode()
        changes.append("its description of columns was damaged: taken from the index")
    column = token_column(columns) if columns is not None else None
    if columns is None or config is None or column is None:
        raise beyond(found, "nothing says which columns its records have", "a description, in it or in the index")
    offsets = reader.array("<u4", WORD, count + 1).astype(np.int64)
    begin = int(offsets[0]) if foreign else head + len(text)
    if not head <= begin <= reader.size:
        raise beyond(found, "its description was damaged, and its first offset too", f"{head}..{reader.size}")
    # Ends are believed up to where they stop to rise, and a record is never shorter than its columns.
    fixed = sum(one.size or 0 for one in columns) + WORD * sum(one.size is None for one in columns)
    sound = offsets[0] == begin and bool((np.diff(offsets) >= fixed).all())
    if sound:
        edges = offsets[: int(np.searchsorted(offsets, reader.size, side="right"))]
    else:
        edges = _counted_through(reader, begin, count, columns)
        changes.append("its table of offsets was damaged: made anew from the sizes that records say")
    kept = len(edges) - 1
    if kept < count:
        changes.append(f"cut short: {kept} of {count} records are whole")
    end = int(edges[-1]) if kept else begin
    if kept == count and reader.size > end:
        changes.append(f"{reader.size - end} bytes behind the last record taken off")
    new = WORD * (kept + 2) + len(text)
    table = (edges - begin + new) if kept else np.array([new])
    top = np.array([kept, *table.tolist()], dtype="<u4").tobytes() + text
    body: bytes | tuple[int, int] = (begin, end) if not packed else reader.read(begin, end - begin)
    raw = f"{found.name}{SUFFIX}"
    entry = {
        **config,
        "compression": None,
        "raw_data": {"basename": raw.rpartition("/")[2], "bytes": len(top) + end - begin, "hashes": {}},
        "samples": kept,
        "zip_data": None,
    }
    kind = kind_of(columns)
    told = found.format if found.format.startswith("mds-") and len(found.format) > 4 else kind
    shard = Found(told if kind != "mds" else "mds", found.name, (raw,))
    lost = _ids_lost(offsets, sound, kept, fixed, columns, column)
    return Rebuilt(
        shard, {raw: Spliced((top, body), "" if packed else path)}, tuple(changes), count - kept, lost, entry=entry
    )


def _config(reader: Reader, head: int) -> tuple[bytes, dict[str, Any] | None]:
    """Return the description behind the table, as it stands there and parsed; it ends where its JSON does."""
    data = reader.read(head, min(_LARGEST_CONFIG, reader.size - head))
    text = data.decode("utf-8", "surrogateescape")
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return b"", None
    used = text[:end].encode("utf-8", "surrogateescape")
    return (used, value) if isinstance(value, dict) and columns_of(value) is not None else (b"", None)


def _counted_through(reader: Reader, begin: int, count: int, columns: tuple[Column, ...]) -> Any:
    """Return the ends of records, from the sizes that each says of its columns."""
    varying = sum(one.size is None for one in columns)
    fixed = sum(one.size or 0 for one in columns) + WORD * varying
    edges = [begin]
    for _ in range(count):
        at = edges[-1]
        if at + fixed > reader.size:
            break
        end = at + fixed + int(reader.array("<u4", at, varying).sum(dtype=np.int64))
        if end > reader.size:
            break
        edges.append(end)
    return np.array(edges, dtype=np.int64)


def _ids_lost(
    offsets: Any, sound: bool, kept: int, fixed: int, columns: tuple[Column, ...], column: Column
) -> int | None:
    """Return how many ids the records that are gone had, where the table and the columns tell it."""
    gone = len(offsets) - 1 - kept
    if not gone:
        return 0
    known = array_of(column.encoding)
    width = known[0].itemsize if known is not None and known[0] is not None else None
    if known is not None and known[1] is not None:
        return gone * known[1]
    if not sound or width is None or [one for one in columns if one.size is None] != [column]:
        return None
    heads = gone * (fixed + 2)  # a byte for dimensions, one at least for the length
    return max(0, int(offsets[-1] - offsets[kept]) - heads) // width


def indices(store: Store, kept: Sequence[Kept]) -> dict[str, bytes]:
    """Return every index, of folders and of what is above them: entries of shards that were whole as they were."""
    folders: dict[str, list[dict[str, Any]]] = {}
    for one in kept:
        homes: list[tuple[str, dict[str, Any] | None]] = [*_named(store, one.found)]
        homes = homes or [(folder_of(one.found.files[0]), None)]
        for folder, old in homes:
            entry = one.rebuilt.entry if one.rebuilt is not None else old or _own_entry(store, one.found)
            raw = {**entry["raw_data"], "basename": f"{one.found.name}{SUFFIX}".removeprefix(folder)}
            folders.setdefault(folder, []).append({**entry, "raw_data": raw})
    return {
        f"{folder}{INDEX}": json.dumps({"shards": rows, "version": VERSION}, sort_keys=True).encode()
        for folder, rows in folders.items()
    }


def is_named(store: Store, found: Found) -> bool:
    """Return whether an index names a shard, in its folder or above."""
    return bool(_named(store, found))


def _named(store: Store, found: Found) -> list[tuple[str, dict[str, Any]]]:
    """Return (folder with its slash, entry) of every index that names a shard, the nearest first."""
    raw = f"{found.name}{SUFFIX}"
    out = []
    folder = folder_of(raw)
    while True:
        entry = (_entries(store, f"{folder}{INDEX}") or {}).get(raw.removeprefix(folder))
        if entry is not None:
            out.append((folder, entry))
        if not folder:
            return out
        folder = folder_of(folder[:-1])


def _own_entry(store: Store, found: Found) -> dict[str, Any]:
    entry: dict[str, Any] = _rebuilt(found, found.files[0], "", store.reader(found.files[0]), None).entry
    return entry
