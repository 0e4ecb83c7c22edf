"""Which formats there are: the table that ``tokenreel formats`` prints. Which files are of which: `recognising`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import FormatError

if TYPE_CHECKING:
    from tokenreel.formats.base import Found, Shard
    from tokenreel.store import Store


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
    """The module's function ``(store, name, *, accept) -> Shard``."""
    one_file: bool = False
    """`opener` is given the path of the file with the ids, not the shard's name."""
    streamed: bool = False
    """A shard does not say where its documents are: they go on from file to file."""
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
        streamed=True,
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
        streamed=True,
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
        streamed=True,
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
        streamed=True,
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
        streamed=True,
    ),
)


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
