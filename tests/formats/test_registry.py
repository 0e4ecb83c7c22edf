"""Which format a file is: told by what is in it."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tokenreel.errors import FormatError
from tokenreel.formats import FORMATS, Found, find_shards, open_shard, shards_of
from tokenreel.formats.recognising import group_of, recognise
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


def test_one_more_of_the_others_by_its_name() -> None:
    files = {"web_000001.bin": LLMC, "web_000002.bin": b"abcd"}
    assert told(files) == told(files, "uint16") == {"web_000001.bin": "llmc-v1", "web_000002.bin": "llmc-v1"}


def test_the_files_of_one_shard() -> None:
    assert group_of("a/b.npy") == group_of("a/b.csv.gz") == ("a/b", ("a/b.npy", "a/b.csv.gz"))
    assert group_of("b.idx") == ("b", ("b.bin", "b.idx"))
    assert group_of(".bin") is group_of("a/.npy") is group_of("README") is None


def test_what_waits_for_its_dtype_is_settled_or_refused() -> None:
    store = MemoryStore({"a.bin": np.arange(300, 1300, dtype="<u2").tobytes()})
    assert [found.format for found in recognise(store, store.list()).waiting] == ["raw-"]
    assert [found.format for found in shards_of(store, store.list(), dtype="uint32")] == ["raw-uint32"]
    assert [found.format for found in shards_of(store, store.list(), vocab=2000)] == ["raw-uint16"]
    for asked in ({}, {"vocab": 100}, {"dtype": "int8"}):
        with pytest.raises(FormatError, match="FLT001"):
            shards_of(store, store.list(), **asked)
