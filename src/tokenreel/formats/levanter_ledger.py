"""The ``shard_ledger.json`` of a Levanter cache: whether it is finished, which shards it has, in what order, of what size.

``{"total_num_rows", "shard_rows": {shard: rows}, "is_finished", "finished_shards": [...], "field_counts": {field: items},
"metadata"}``, newer ones also ``field_counts_by_shard`` and ``layout``. *Consolidated*: one store beside the ledger, and
shards are only what it was made from. *Sharded*: one store for each shard, in a folder of that name, in this order.
Source: Levanter's cache, as its ledgers of 2025 and 2026 are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import FormatError
from tokenreel.formats.indexed import beside, is_count
from tokenreel.formats.loaded import full_path
from tokenreel.formats.zarr_array import METADATA
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from tokenreel.store.base import Store

LEDGER = "shard_ledger.json"
FIELDS = ("input_ids", "input_ids/0")
"""Where ids are: writers and readers have differed on the second name."""
LAYOUTS = ("consolidated", "sharded")


@dataclass(frozen=True, slots=True)
class Member:
    """One store of a cache."""

    path: str
    """Of its field of ids: ``input_ids``, or ``part-00000/input_ids``."""
    rows: int
    tokens: int | None
    """As the ledger says; None where it says only the sum of all."""
    order: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a ledger says."""

    finished: bool
    layout: str
    members: dict[str, Member]
    """By path."""
    rows: int
    tokens: int | None


def parse_ledger(store: Store, path: str) -> Ledger:
    """Return what a ledger says.

    Raises `FormatError`: LEV001 for what is no ledger, LEV003 for one that contradicts itself, LEV004 for a cache without
    ids; and `ManifestError` (MAN001, MAN002).
    """
    value = loads_strict(store.read(path), full_path(store, path))
    if not isinstance(value, dict) or not all(
        isinstance(value.get(key), kind)
        for key, kind in (("is_finished", bool), ("shard_rows", dict), ("finished_shards", list))
    ):
        raise _wrong(store, path, "LEV001", "is_finished, shard_rows and finished_shards", str(value)[:80])
    layout = value.get("layout")
    if layout is not None and layout not in LAYOUTS:
        raise _wrong(store, path, "LEV001", f"a layout: {' or '.join(LAYOUTS)}", str(layout)[:80])
    total: Any = value.get("total_num_rows")
    rows, order = value["shard_rows"], value["finished_shards"]
    counts, by_shard = (_mapping(value, key) for key in ("field_counts", "field_counts_by_shard"))
    if not is_count(total) or not all(is_count(count) for count in rows.values()):
        raise _wrong(store, path, "LEV001", "numbers of rows", str(total)[:80])
    if value["is_finished"]:
        if not all(isinstance(one, str) for one in order) or len(set(order)) != len(order) or set(order) - set(rows):
            raise _wrong(store, path, "LEV003", "each finished shard once, and its rows", f"{len(order)} shards")
        if sum(rows[one] for one in order) != total:
            raise _wrong(store, path, "LEV003", f"{total} rows", sum(rows[one] for one in order))
    tokens = _count(counts)
    if layout is None:
        here = any(store.exists(f"{beside(path, field)}/offsets/{METADATA}") for field in FIELDS)
        layout = LAYOUTS[0] if here or not order else LAYOUTS[1]
    if layout == LAYOUTS[0]:
        places = [("", total, tokens)]
    else:
        places = [(one, rows.get(one), _count(by_shard.get(one))) for one in order if isinstance(one, str)]
        told = [count for _, _, count in places if count is not None]
        if tokens is not None and len(told) == len(places) and sum(told) != tokens:
            raise _wrong(store, path, "LEV003", f"{tokens} ids in field_counts", sum(told))
    members = {}
    for number, (folder, count, ids) in enumerate(places):
        place = _field(store, path, folder)
        members[place] = Member(place, int(count or 0), ids, number)
    return Ledger(value["is_finished"], layout, members, total, tokens)


def _field(store: Store, path: str, folder: str) -> str:
    names = [beside(path, f"{folder}/{field}" if folder else field) for field in FIELDS]
    if names[0] is None:
        raise _wrong(store, path, "LEV003", "shards below the ledger's folder", folder[:80])
    for name in reversed(names):
        if name is not None and store.exists(f"{name}/offsets/{METADATA}"):
            return name
    raise FormatError(
        "LEV004",
        path=full_path(store, names[0]),
        expected=" or ".join(f"{name}/offsets" for name in names),
        found="neither",
    )


def _mapping(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _count(counts: Any) -> int | None:
    """Return the number of ids among the counts of fields, if it is there."""
    found = [counts[field] for field in FIELDS if field in counts] if isinstance(counts, dict) else []
    return int(found[0]) if found and is_count(found[0]) else None


def _wrong(store: Store, path: str, code: str, expected: object, found: object) -> FormatError:
    return FormatError(code, path=full_path(store, path), expected=expected, found=found)
