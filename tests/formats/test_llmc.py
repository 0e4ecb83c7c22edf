"""llm.c shards: what llm.c wrote is read, and everything wrong is refused by its own code."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import DocumentError, FormatError, OrderError, StorageError
from tokenreel.formats.llmc import HEADER_BYTES, open_file, recognise
from tokenreel.store import LocalStore, MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden" / "llmc"
SHARDS = ["fineweb_val_000000.bin", "fineweb_train_000001.bin", "fineweb_train_000002.bin"]
BAD = {
    "bad_magic": ("LMC001", 0),
    "bad_version": ("LMC004", 4),
    "negative_count": ("LMC005", 8),
    "truncated": ("LMC006", 1277),
    "trailing": ("LMC007", 1280),
    "v7_dtype_confusion": ("LMC008", 1024),
}


def made(ids: list[int], *, magic: int = 20240520, version: int = 1, count: int | None = None) -> bytes:
    head = struct.pack("<3i", magic, version, len(ids) if count is None else count).ljust(HEADER_BYTES, b"\0")
    return head + np.array(ids, "<u4" if magic == 20240801 else "<u2").tobytes()


def refused(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        open_file(MemoryStore({"x.bin": data}), "x.bin")
    return caught.value


def test_what_llm_c_wrote() -> None:
    store = LocalStore(GOLDEN)
    expected = json.loads((GOLDEN / "documents.json").read_text())
    shards = [open_file(store, name) for name in SHARDS]
    ids = np.concatenate([shard.read(0, shard.tokens) for shard in shards])
    assert ids.tolist() == [i for document in expected["documents_prefix_50256"] for i in document]
    assert [shard.tokens for shard in shards] == [128, 128, 88]
    llama = open_file(store, "llama3_train_000000.bin")
    assert (llama.format, llama.dtype.name) == ("llmc-v7", "uint32")
    assert llama.read(0, llama.tokens).tolist() == expected["llama3"]["tokens"]


def test_a_shard_is_one_document() -> None:
    shard = open_file(LocalStore(GOLDEN), SHARDS[0])
    assert (shard.name, shard.files, shard.documents, shard.sequences) == (SHARDS[0][:-4], (SHARDS[0],), 1, 1)
    assert not shard.boundary.known
    assert shard.document_edges(0, 1).tolist() == shard.sequence_edges(0, 1).tolist() == [0, 128]
    assert shard.document_sequences(0, 1).tolist() == [0, 1]
    assert shard.documents_at(np.array([0, 127])).tolist() == [0, 0]
    assert shard.document(0).tolist() == shard.read(0, 128).tolist()
    assert shard.byte_at(3) == (SHARDS[0], 1030)
    assert not shard.read(0, 4).flags.writeable
    with pytest.raises(DocumentError, match="DOC001"):
        shard.document_edges(0, 2)
    for begin, end in ((-1, 2), (3, 2), (0, 129)):
        with pytest.raises(OrderError, match="ORD003"):
            shard.read(begin, end)
    with pytest.raises(OrderError, match="ORD003"):
        shard.documents_at(np.array([128]))


@pytest.mark.parametrize("name", sorted(BAD))
def test_each_bad_shard_has_a_code_of_its_own(name: str) -> None:
    error = refused((GOLDEN / "bad" / f"{name}.bin").read_bytes())
    assert (error.code, error.where["offset"]) == BAD[name]


def test_codes_are_distinct() -> None:
    assert len({code for code, _ in BAD.values()}) == len(BAD)


def test_evaluation_files_and_other_byte_orders_are_refused_by_name() -> None:
    assert refused((GOLDEN / "hellaswag_val.bin").read_bytes()).code == "LMC003"
    for magic in (20240520, 20240801, 20240522):
        swapped = struct.pack(">3i", magic, 1, 2).ljust(HEADER_BYTES, b"\0") + b"abcd"
        error = refused(swapped)
        assert (error.code, error.expected) == ("LMC002", magic)
        assert recognise(MemoryStore({"x": swapped}).reader("x")) == "llmc-v1"
    assert refused(made([1])[:1000]).code == "LMC009"
    assert refused(made([], count=0)).code == "LMC005"
    assert refused(made([1, 2, 3, 4], count=2)).code == "LMC008"
    assert refused(made([1, 2], magic=20240801, version=1)).code == "LMC004"
    with pytest.raises(StorageError, match="STO001"):
        open_file(MemoryStore(), "x.bin")


def test_recognised_by_content() -> None:
    def told(data: bytes) -> str | None:
        return recognise(MemoryStore({"x": data}).reader("x"))

    assert told(made([5])) == "llmc-v1"
    assert told(made([5], magic=20240801, version=7)) == "llmc-v7"
    assert told((GOLDEN / "hellaswag_val.bin").read_bytes()) == "llmc-v1"
    assert told((GOLDEN / "bad/bad_magic.bin").read_bytes()) == "llmc-v1"
    assert told(made([5], magic=1)[:-1]) is None
    assert told(b"") is told(b"ab") is told(bytes(4)) is told(np.arange(900, dtype="<u2").tobytes()) is None


@given(st.lists(st.integers(0, 65535), min_size=1, max_size=40), st.booleans())
def test_any_ids(ids: list[int], wide: bool) -> None:
    data = made(ids, magic=20240801, version=7) if wide else made(ids)
    shard = open_file(MemoryStore({"a/x.bin": data}), "a/x.bin")
    assert shard.read(0, len(ids)).tolist() == ids
    assert shard.dtype.itemsize == (4 if wide else 2)


@given(st.integers(0, 1100), st.binary(max_size=3))
def test_no_other_size_is_accepted(cut: int, more: bytes) -> None:
    data = made(list(range(20)))
    damaged = data[:cut] + more
    if len(damaged) != len(data):
        assert refused(damaged).code in {"LMC001", "LMC002", "LMC004", "LMC005", "LMC006", "LMC007", "LMC008", "LMC009"}


def test_a_file_that_shrinks_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(made(list(range(20))))
    shard = open_file(LocalStore(tmp_path), "x.bin")
    (tmp_path / "x.bin").write_bytes(made(list(range(10))))
    with pytest.raises(StorageError, match="STO00"):
        shard.read(0, 20)
