"""Which format a file is: told by what is in it."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tokenreel.errors import FormatError
from tokenreel.formats import FORMATS, Found, find_shards, open_shard
from tokenreel.formats.registry import format_named
from tokenreel.store import MemoryStore

LLMC = struct.pack("<3i", 20240520, 1, 2).ljust(1024, b"\0") + b"abcd"
NPY = b"\x93NUMPY"


def told(files: dict[str, bytes], headerless: str | None = None) -> dict[str, str]:
    store = MemoryStore(files)
    return {found.files[0]: found.format for found in find_shards(store.list(), store, headerless)}


def test_a_lone_bin_is_looked_into() -> None:
    assert told({"a.bin": LLMC, "b.bin": b"abcd"}) == {"a.bin": "llmc-v1", "b.bin": "megatron-v1"}
    assert told({"a.bin": LLMC, "b.bin": b"abcd"}, "uint32") == {"a.bin": "llmc-v1", "b.bin": "raw-uint32"}
    # The .bin of a pair is never looked into, and beside a pair a lone .bin has lost its .idx.
    pair = {"a.bin": LLMC, "a.idx": b"", "b.bin": b"abcd"}
    assert told(pair, "uint16") == {"a.bin": "megatron-v1", "b.bin": "megatron-v1"}


def test_without_a_store_names_decide() -> None:
    store = MemoryStore({"a.bin": LLMC, "c.npy": NPY})
    assert [found.files for found in find_shards(store.list())] == [("a.bin", "a.idx")]


def test_npy_counts_where_nothing_else_does() -> None:
    assert told({"a.npy": NPY, "b.npy": b"abcd"}) == {"a.npy": "npy"}
    assert told({"a.npy": NPY, "b.npy": b"abcd"}, "uint16") == {"a.npy": "npy", "b.npy": "raw-uint16"}
    assert told({"cache/x_document_index.npy": NPY, "a.idx": b"", "a.bin": b""}) == {"a.bin": "megatron-v1"}


def test_every_row_opens() -> None:
    small = np.array([300, 301], "<u2").tobytes()
    store = MemoryStore({"a.bin": LLMC, "b.bin": small})
    assert open_shard(store, Found("llmc-v1", "a", ("a.bin",))).format == "llmc-v1"
    assert open_shard(store, Found("raw-uint16", "b", ("b.bin",))).read(0, 2).tolist() == [300, 301]
    assert open_shard(store, Found("raw-uint32", "b", ("b.bin",)), ("FLT003",)).tokens == 1
    assert len({row.name for row in FORMATS}) == len(FORMATS)
    with pytest.raises(FormatError, match="MAN005"):
        format_named("none")
