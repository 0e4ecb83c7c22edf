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
        "llm.c, modded-nanogpt and HobbyLM shards, without tables",
        "NAME.bin",
        reads=True,
        notes="uint16; documents by a declared prefix or suffix, from shard to shard; evaluation files and the other byte order "
        "are refused by name",
        module="tokenreel.formats.llmc",
        opener="open_file",
        writer="tokenreel.formats.llmc_write:open_writer",
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
        writer="tokenreel.formats.llmc_write:open_writer",
        one_file=True,
        streamed=True,
    ),
    Format(
        "hobbylm-v1",
        "HobbyLM's long-context shards with their tables",
        "NAME_000000.bin + NAME_index.json + NAME_docs.jsonl",
        reads=True,
        notes="llmc-v1 shards; the tables must agree and tile every shard; metadata in an object of its own",
        module="tokenreel.formats.hobbylm",
        opener="open_file",
        writer="tokenreel.formats.hobbylm_write:open_writer",
        one_file=True,
        streamed=True,
    ),
    Format(
        "datatrove",
        "datatrove's tokenised files, as nanotron reads them",
        "NAME.ds + NAME.ds.index",
        reads=True,
        notes="uint16, uint32; NAME.ds.metadata says the width, or the index proves it; NAME.ds.loss holds weights of 0 and 1; "
        "the index is believed, not the ids",
        module="tokenreel.formats.datatrove",
        opener="open_file",
        writer="open_writer",
        one_file=True,
    ),
    Format(
        "olmo-uint16",
        "OLMo's and Dolma's headerless .npy with a table",
        "NAME.npy + NAME.csv.gz",
        reads=True,
        notes="the table proves the dtype, and is believed; two columns, or five with id, src and loc",
        module="tokenreel.formats.olmo",
        opener="open_uint16",
        writer="open_writer",
        one_file=True,
    ),
    Format(
        "olmo-uint32",
        "the same with ids of 32 bits",
        "NAME.npy + NAME.csv.gz",
        reads=True,
        notes="otherwise as olmo-uint16",
        module="tokenreel.formats.olmo",
        opener="open_uint32",
        writer="open_writer",
        one_file=True,
    ),
    Format(
        "ounce-v1",
        "offset shards, as ounce100m has them",
        "NAME.bin",
        reads=True,
        notes="uint16; no magic: size, table and ids must fit the header; unknown flags are refused; manifest.json says the "
        "splits and what each shard should be",
        module="tokenreel.formats.ounce",
        opener="open_file",
        writer="open_writer",
        one_file=True,
    ),
    Format(
        "levanter",
        "Levanter cache",
        "shard_ledger.json + input_ids/",
        reads=True,
        notes="consolidated and sharded; Zarr 3 with Blosc, zstd, gzip or nothing; the ledger is held against the arrays; "
        "written as int32; needs the extra [levanter]",
        module="tokenreel.formats.levanter",
        opener="open_cache",
        writer="tokenreel.formats.levanter_write:open_writer",
    ),
    Format(
        "litdata",
        "LitData chunks of tokens",
        "chunk-*.bin + index.json",
        reads=True,
        notes="all integers; zstd; every item is a document, although LitData's reader cuts blocks across them and drops what "
        "is left of a chunk",
        module="tokenreel.formats.litdata",
        opener="open_file",
        writer="tokenreel.formats.litdata_write:open_writer",
        one_file=True,
    ),
    Format(
        "mds",
        "MDS shards with a column of arrays",
        "*.mds + index.json",
        reads=True,
        notes="all integers; zstd, gz, bz2, br, snappy; every record is a document, or a window where a writer cut them so; "
        "other columns are passed over",
        module="tokenreel.formats.mds",
        opener="open_file",
        writer="tokenreel.formats.mds_write:open_writer",
        one_file=True,
    ),
    *(
        Format(
            f"mds-{dtype}",
            f"MDS shards with a column of bytes that are {dtype}",
            "*.mds + index.json",
            reads=True,
            notes="nothing says the dtype: it is given, or proved by the sizes of records or the vocabulary",
            module="tokenreel.formats.mds",
            opener=f"open_{dtype}",
            one_file=True,
        )
        for dtype in ("uint16", "uint32", "int32", "int64")
    ),
    Format(
        "parquet",
        "Parquet with a column of lists of ids",
        "NAME.parquet",
        reads=True,
        notes="input_ids or tokens, list<int> of any width, written with 64-bit offsets; ids, sources and metadata of documents "
        "as columns; read where a folder has no other shards; needs the extra [build]",
        module="tokenreel.formats.parquet",
        opener="open_file",
        writer="tokenreel.formats.parquet_write:open_writer",
        one_file=True,
    ),
    Format(
        "arrow",
        "Arrow files with a column of lists of ids, as datasets saves them",
        "NAME.arrow",
        reads=True,
        notes="streams and files, not compressed, lists of one length too; datasets' state.json says which and in what order; "
        "otherwise as parquet",
        module="tokenreel.formats.arrow",
        opener="open_file",
        writer="tokenreel.formats.arrow_write:open_writer",
        one_file=True,
    ),
    Format(
        "pbin",
        "Modalities' packed files",
        "NAME.pbin",
        reads=True,
        notes="uint8, uint16, uint32; the index is a pickle, of which lists of pairs of integers are parsed and nothing is run; "
        "written from a description of the layout, not tried on files of Modalities",
        module="tokenreel.formats.pbin",
        opener="open_file",
        one_file=True,
    ),
    Format(
        "raw-uint16",
        "headerless ids, as nanoGPT's train.bin",
        "NAME.bin",
        reads=True,
        notes="the dtype is given, or follows from the vocabulary; documents by a declared prefix or suffix, from file to file",
        module="tokenreel.formats.raw",
        opener="open_uint16",
        writer="tokenreel.formats.raw_write:open_writer",
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
        writer="tokenreel.formats.raw_write:open_writer",
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
        writer="tokenreel.formats.raw_write:open_npy_writer",
        one_file=True,
        streamed=True,
    ),
)


def all_formats() -> tuple[Format, ...]:
    """Return the table, and the formats that other packages add; see `plugins`."""
    from tokenreel.formats.plugins import added

    return FORMATS + added()


def format_named(name: str) -> Format:
    """Return a format by name; raises `FormatError` (MAN005)."""
    for row in FORMATS:
        if row.name == name:
            return row
    rows = all_formats()
    for row in rows[len(FORMATS) :]:
        if row.name == name:
            return row
    raise FormatError("MAN005", expected=", ".join(row.name for row in rows), found=name, hint="tokenreel formats")


def open_shard(store: Store, found: Found, accept: tuple[str, ...] = ()) -> Shard:
    """Open one shard: header, size equation, first and last table entries are checked. `accept` overrules codes."""
    row = format_named(found.format)
    opener: Any = getattr(importlib.import_module(row.module), row.opener)
    shard: Shard = opener(store, found.files[0] if row.one_file else found.name, accept=accept)
    return shard
