"""llm.c shards, headerless files and .npy files, written: the bytes of the real tools, and read back."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.formats.flat_cases import documents, write
from tokenreel.errors import FormatError, StorageError, UsageError
from tokenreel.formats import FORMATS, llmc, llmc_write
from tokenreel.formats.hobbylm_write import shard_name as hobbylm_shard_name
from tokenreel.formats.llmc_write import open_writer, shard_name
from tokenreel.formats.raw import open_npy, open_raw
from tokenreel.formats.raw_write import open_npy_writer
from tokenreel.formats.raw_write import open_writer as open_raw_writer
from tokenreel.formats.writing import Holds, WriteOptions, writing_of
from tokenreel.store import LocalStore

GOLDEN = Path(__file__).parents[1] / "golden"
MINE = ("llmc-v1", "llmc-v7", "hobbylm-v1", "datatrove", "olmo-uint16", "olmo-uint32", "ounce-v1", "raw-uint16",
        "raw-uint32", "npy")  # fmt: skip


def flat(docs: list[list[int]]) -> list[int]:
    return [i for document in docs for i in document]


@pytest.mark.parametrize("name", MINE)
def test_every_format_says_what_it_holds(name: str) -> None:
    (row,) = (row for row in FORMATS if row.name == name)
    writing = writing_of(row)
    assert isinstance(writing.holds, Holds)
    assert writing.holds.largest_id == max(int(np.iinfo(dtype).max) for dtype in writing.holds.dtypes)
    sizes = [np.dtype(dtype).itemsize for dtype in writing.holds.dtypes]
    assert sizes == sorted(sizes)
    if writing.shard_name is not None:
        names = [writing.shard_name(k, WriteOptions("uint16")) for k in range(12)]
        assert names == sorted(names)
        assert len(set(names)) == 12


# ---- llm.c --------------------------------------------------------------------------------------------------------------


def test_llm_c_s_own_bytes(tmp_path: Path) -> None:
    shards = ["fineweb_val_000000", "fineweb_train_000001", "fineweb_train_000002", "llama3_train_000000"]
    for name in shards:
        golden = llmc.open_file(LocalStore(GOLDEN / "llmc"), f"{name}.bin")
        ids = golden.read(0, golden.tokens).tolist()
        write(open_writer, tmp_path, name, [ids], dtype=golden.dtype.name)
        assert (tmp_path / f"{name}.bin").read_bytes() == (GOLDEN / "llmc" / f"{name}.bin").read_bytes()


@settings(max_examples=25, deadline=None)
@given(documents(empty=False), st.integers(1, 3), st.sampled_from(["uint16", "uint32"]))
def test_llmc_written_and_read(
    tmp_path_factory: pytest.TempPathFactory, docs: list[list[int]], calls: int, dtype: str
) -> None:
    root = tmp_path_factory.mktemp("llmc")
    write(open_writer, root, "a/x", docs, calls=calls, dtype=dtype)
    shard = llmc.open_file(LocalStore(root), "a/x.bin")
    assert shard.read(0, shard.tokens).tolist() == flat(docs)
    assert shard.format == ("llmc-v1" if dtype == "uint16" else "llmc-v7")
    assert not any((root / "a/x.bin").read_bytes()[12:1024])


def test_a_document_may_go_on_in_the_next_shard(tmp_path: Path) -> None:
    docs = [[9, 1, 2, 3], [9, 4], [9, 5, 6, 7, 8], [9, 0]]
    ids = flat(docs)
    for number, begin in enumerate(range(0, len(ids), 4)):
        write(open_writer, tmp_path, f"x_{number:06d}", [ids[begin : begin + 4]])
    corpus = tokenreel.open(tmp_path, boundary="prefix=9")
    assert [document.tolist() for document in corpus] == docs
    assert corpus.head_fragment() == 0  # type: ignore[attr-defined]
    (tmp_path / "x_000000.bin").unlink()
    rest = tokenreel.open(tmp_path, boundary="prefix=9")
    assert [document.tolist() for document in rest] == docs[1:]
    (tmp_path / "x_000001.bin").unlink()
    rest = tokenreel.open(tmp_path, boundary="prefix=9")
    assert rest.head_fragment() == 3  # type: ignore[attr-defined]
    assert rest[0].tolist() == [6, 7, 8]


def test_too_many_ids_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match="LMC010"):
        write(open_writer, tmp_path, "x", [])
    monkeypatch.setattr(llmc_write, "MOST", 3)
    with pytest.raises(FormatError, match="LMC010"):
        write(open_writer, tmp_path, "x", [[1, 2], [3, 4]])
    assert not list(tmp_path.iterdir())
    assert shard_name(4, WriteOptions("uint16")) == "shard_000004"
    assert shard_name(4, WriteOptions("uint16", options={"name": "dclm"})) == "dclm_000004"


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", ".x", "a b", 3])
def test_names_that_are_none(name: object) -> None:
    for function in (shard_name, hobbylm_shard_name):
        with pytest.raises(UsageError, match="USE003"):
            function(0, WriteOptions("uint16", options={"name": name}))


def test_magics_of_both_versions(tmp_path: Path) -> None:
    write(open_writer, tmp_path, "a", [[1]])
    write(open_writer, tmp_path, "b", [[1]], dtype="uint32")
    heads = [struct.unpack("<3i", (tmp_path / name).read_bytes()[:12]) for name in ("a.bin", "b.bin")]
    assert heads == [(20240520, 1, 1), (20240801, 7, 1)]


# ---- without a header, and NumPy's --------------------------------------------------------------------------------------


def test_the_bytes_of_nanogpt_and_of_numpy(tmp_path: Path) -> None:
    tokens = json.loads((GOLDEN / "raw/tokens.json").read_text())
    write(open_raw_writer, tmp_path, "train", [tokens["train.bin"]])
    name = "edufineweb_train_000001.npy"
    write(open_npy_writer, tmp_path, name[:-4], [tokens[name]])
    for file in ("train.bin", name):
        assert (tmp_path / file).read_bytes() == (GOLDEN / "raw" / file).read_bytes()


@settings(max_examples=25, deadline=None)
@given(documents(empty=False), st.sampled_from(["uint16", "uint32"]))
def test_raw_written_and_read(tmp_path_factory: pytest.TempPathFactory, docs: list[list[int]], dtype: str) -> None:
    root = tmp_path_factory.mktemp("raw")
    write(open_raw_writer, root, "x", docs, dtype=dtype)
    shard = open_raw(LocalStore(root), "x.bin", dtype, accept=["FLT003"])
    assert shard.read(0, shard.tokens).tolist() == flat(docs)


@settings(max_examples=25, deadline=None)
@given(documents(127, empty=False), st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]))
def test_npy_is_what_numpy_writes(tmp_path_factory: pytest.TempPathFactory, docs: list[list[int]], dtype: str) -> None:
    root = tmp_path_factory.mktemp("npy")
    write(open_npy_writer, root, "x", docs, dtype=np.dtype(dtype).name)
    wanted = io.BytesIO()
    np.save(wanted, np.array(flat(docs), dtype=dtype))
    assert (root / "x.npy").read_bytes() == wanted.getvalue()
    shard = open_npy(LocalStore(root), "x.npy")
    assert (shard.dtype, shard.read(0, shard.tokens).tolist()) == (np.dtype(dtype), flat(docs))


def test_numpy_reads_any_length(tmp_path: Path) -> None:
    for count in (1, 10, 100_000):
        write(open_npy_writer, tmp_path, "x", [[7] * count])
        assert np.load(tmp_path / "x.npy").tolist() == [7] * count


@pytest.mark.parametrize("opener", [open_writer, open_raw_writer, open_npy_writer])
def test_abort_leaves_nothing_and_the_disk_s_errors_are_told(tmp_path: Path, opener: object) -> None:
    assert callable(opener)
    writer = opener(tmp_path, "x", WriteOptions("uint16"))
    writer.add_documents(np.array([1], "u2"), np.array([1]))
    writer.abort()
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="STO003"):
        opener(tmp_path / "file", "x", WriteOptions("uint16"))
