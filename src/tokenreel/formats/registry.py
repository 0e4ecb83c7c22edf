"""Which formats there are, and which files of a folder belong to which."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokenreel.formats.base import Shard
    from tokenreel.store import Entry, Store


@dataclass(frozen=True, slots=True)
class Format:
    """One row of the table that ``tokenreel formats`` prints."""

    name: str
    """Name and version, as manifests record it."""
    title: str
    files: str
    reads: bool
    writes: bool
    notes: str
    module: str
    """Imported when a shard of this format is first opened; offers ``open_shard(store, name, accept=())``."""


FORMATS: tuple[Format, ...] = (
    Format(
        "megatron-v1",
        "Megatron IndexedDataset v1",
        "NAME.bin + NAME.idx",
        reads=True,
        writes=True,
        notes="uint8, int8, int16, int32, int64, uint16; several sequences per document; float, multimodal and legacy "
        "files are refused by name",
        module="tokenreel.formats.megatron",
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """One shard found in a listing."""

    format: str
    name: str
    """Path below the root, without suffix."""
    files: tuple[str, ...]


def find_shards(entries: Iterable[Entry]) -> list[Found]:
    """Return the shards among a folder's files, in byte order of name; raises `FormatError` (MEG010) for half a pair.

    Sidecars, receipts and other files that are no shards are left out.
    """
    paths = {entry.path for entry in entries}
    names = sorted({path[:-4] for path in paths if path.endswith((".bin", ".idx"))}, key=str.encode)
    found = []
    for name in names:
        files = (f"{name}.bin", f"{name}.idx")
        missing = [path for path in files if path not in paths]
        if missing:
            raise FormatError(
                "MEG010", path=missing[0], expected="both files of the pair", found=f"only {_other(files, missing[0])}"
            )
        found.append(Found("megatron-v1", name, files))
    return found


def _other(files: tuple[str, str], missing: str) -> str:
    return next(path for path in files if path != missing)


def format_named(name: str) -> Format:
    """Return a format by name; raises `FormatError` (FMT001)."""
    for row in FORMATS:
        if row.name == name:
            return row
    raise FormatError("FMT001", expected=", ".join(row.name for row in FORMATS), found=name, hint="tokenreel formats")


def open_shard(store: Store, found: Found, accept: tuple[str, ...] = ()) -> Shard:
    """Open one shard: header, size equation, first and last table entries are checked. `accept` overrules codes."""
    module: Any = importlib.import_module(format_named(found.format).module)
    shard: Shard = module.open_shard(store, found.name, accept=accept)
    return shard
