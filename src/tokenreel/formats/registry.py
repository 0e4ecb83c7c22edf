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
    notes: str
    module: str
    """Imported when a shard of this format is first opened."""
    opener: str
    """The module's function ``(store, name, *, accept) -> Shard``; of formats of one file, `name` has its suffix."""
    one_file: bool = False
    """A shard is one file, which does not say where its documents are: they go on from file to file."""
    writer: str = ""
    """What writes it: a function of `module`, or ``MODULE:FUNCTION``; empty where it is only read. See `formats.writing`."""

    @property
    def writes(self) -> bool:
        """Whether `convert` can write it."""
        return bool(self.writer)


FORMATS: tuple[Format, ...] = (
    Format(
        "megatron-v1",
        "Megatron IndexedDataset v1",
        "NAME.bin + NAME.idx",
        reads=True,
        notes="uint8, int8, int16, int32, int64, uint16; several sequences per document; float, multimodal and legacy "
        "files are refused by name",
        module="tokenreel.formats.megatron",
        opener="open_pair",
        writer="tokenreel.formats.megatron_writer:open_writer",
    ),
    Format(
        "llmc-v1",
        "llm.c, modded-nanogpt and HobbyLM shards",
        "NAME.bin",
        reads=True,
        notes="uint16; documents by a declared prefix or suffix, from shard to shard, or by HobbyLM's PREFIX_index.json "
        "and PREFIX_docs.jsonl; evaluation files are refused by name; for corpora and orders, not yet for verify",
        module="tokenreel.formats.llmc",
        opener="open_file",
        one_file=True,
    ),
    Format(
        "llmc-v7",
        "llm.c shards of Llama 3 ids",
        "NAME.bin",
        reads=True,
        notes="uint32; otherwise as llmc-v1",
        module="tokenreel.formats.llmc",
        opener="open_file",
        one_file=True,
    ),
    Format(
        "raw-uint16",
        "headerless ids, as nanoGPT's train.bin",
        "NAME.bin",
        reads=True,
        notes="the dtype is given, or follows from the vocabulary; documents by a declared prefix or suffix; for corpora "
        "and orders, not yet for verify",
        module="tokenreel.formats.raw",
        opener="open_uint16",
        one_file=True,
    ),
    Format(
        "raw-uint32",
        "headerless ids of 32 bits",
        "NAME.bin",
        reads=True,
        notes="otherwise as raw-uint16",
        module="tokenreel.formats.raw",
        opener="open_uint32",
        one_file=True,
    ),
    Format(
        "npy",
        "NumPy's files of one dimension, as build-nanogpt's",
        "NAME.npy",
        reads=True,
        notes="all little-endian integers; read where a folder has no other shards; otherwise as raw-uint16",
        module="tokenreel.formats.raw",
        opener="open_npy",
        one_file=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """One shard found in a listing."""

    format: str
    name: str
    """Path below the root, without suffix."""
    files: tuple[str, ...]


def find_shards(entries: Iterable[Entry], store: Store | None = None, headerless: str | None = None) -> list[Found]:
    """Return the shards among a folder's files, in byte order of name.

    With a `store`, a ``.bin`` without its ``.idx`` is looked into: an llm.c shard is told by its header, and where no file
    is half of a pair, the others are headerless files of dtype `headerless`, if one is given. ``.npy`` files count where
    nothing else does: Megatron keeps its index files beside its data. Half a pair counts, so that opening it says what is
    missing. Sidecars, receipts and other files are left out. Cost: one small read for each lone ``.bin``.
    """
    paths = [entry.path for entry in entries]
    have = set(paths)
    names = {path[:-4] for path in paths if path.endswith((".bin", ".idx"))}
    pairs = any(path.endswith(".idx") for path in paths)
    found = []
    for name in names:
        told = f"raw-{headerless}" if headerless and not pairs else None
        lone = f"{name}.idx" not in have
        form = (_form_of(store, f"{name}.bin") or told) if store is not None and lone else None
        files = (f"{name}.bin",) if form else (f"{name}.bin", f"{name}.idx")
        found.append(Found(form or "megatron-v1", name, files))
    if not found and store is not None:
        told = f"raw-{headerless}" if headerless else None
        for path in (path for path in paths if path.endswith(".npy")):
            form = "npy" if _is_npy(store, path) else told
            if form:
                found.append(Found(form, path[:-4], (path,)))
    return sorted(found, key=lambda shard: os.fsencode(shard.name))


def _form_of(store: Store, path: str) -> str | None:
    from tokenreel.formats.llmc import recognise

    reader = store.reader(path)
    try:
        return recognise(reader)
    finally:
        reader.close()


def _is_npy(store: Store, path: str) -> bool:
    from tokenreel.formats.raw import is_npy

    reader = store.reader(path)
    try:
        return is_npy(reader)
    finally:
        reader.close()


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
    shard: Shard = opener(store, found.files[0] if row.one_file else found.name, accept=accept)
    return shard
