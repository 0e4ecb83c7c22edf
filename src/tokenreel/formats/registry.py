"""Which formats there are, and which files of a folder belong to which."""

from __future__ import annotations

import importlib
import os
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
    """Imported when a shard of this format is first opened."""
    opener: str
    """The module's function ``(store, name, *, accept) -> Shard``."""


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
        opener="open_pair",
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
    """Return the shards among a folder's files, in byte order of name.

    Half a pair counts, so that opening it says what is missing. Sidecars, receipts and other files are left out.
    """
    names = {entry.path[:-4] for entry in entries if entry.path.endswith((".bin", ".idx"))}
    return [Found("megatron-v1", name, (f"{name}.bin", f"{name}.idx")) for name in sorted(names, key=os.fsencode)]


def format_named(name: str) -> Format:
    """Return a format by name; raises `FormatError` (MAN005)."""
    for row in FORMATS:
        if row.name == name:
            return row
    raise FormatError("MAN005", expected=", ".join(row.name for row in FORMATS), found=name, hint="tokenreel formats")


def open_shard(store: Store, found: Found, accept: tuple[str, ...] = ()) -> Shard:
    """Open one shard: header, size equation, first and last table entries are checked. `accept` overrules codes."""
    row = format_named(found.format)
    opener: Any = getattr(importlib.import_module(row.module), row.opener)
    shard: Shard = opener(store, found.name, accept=accept)
    return shard
