"""LitData: what it wrote is read, what we write is read back, what is wrong has its code."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.command import run
from tests.formats.indexed_cases import (
    LARGEST,
    MANY,
    broken,
    documents,
    fewer,
    in_memory,
    look,
    look_at,
    opened,
    peak,
    read,
    write,
)
from tokenreel.errors import FormatError
from tokenreel.formats import shards_of
from tokenreel.formats.litdata import lost_to_blocks, open_file
from tokenreel.formats.litdata_index import KINDS
from tokenreel.store import LocalStore, MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden" / "litdata"
DOCUMENTS = json.loads((GOLDEN / "documents.json").read_text())
FILES = {path: data for path, data in in_memory(GOLDEN).items() if path == "index.json" or path.endswith(".bin")}
INDEX = json.loads(FILES["index.json"])


def indexed(**change: Any) -> bytes:
    """The golden index with other settings, or with another first chunk."""
    index = json.loads(FILES["index.json"])
    index["chunks"][0] |= {key: value for key, value in change.items() if key in index["chunks"][0]}
    index["config"] |= {key: value for key, value in change.items() if key not in index["chunks"][0]}
    return json.dumps(index).encode()


def code_of(change: dict[str, bytes | None], path: str = "chunk-0-0.bin") -> str:
    files = {name: data for name, data in (FILES | change).items() if data is not None}
    with pytest.raises(FormatError) as caught:
        open_file(MemoryStore(files), path).check_table()
    assert "path" in caught.value.where
    return caught.value.code


def test_golden() -> None:
    store = MemoryStore(FILES)
    assert read(store) == [DOCUMENTS[f"chunk-0-{k}.bin"] for k in range(5)]
    for shard in opened(store):
        assert shard.contiguous  # type: ignore[attr-defined]
        path, byte = shard.byte_at(shard.tokens - 1)
        assert int.from_bytes(store.files[path][byte : byte + 4], "little") == shard.read(0, shard.tokens)[-1]


def test_what_the_reader_drops() -> None:
    """The blocks that LitData's reader gives are those that are counted, and the rest is told."""
    golden = json.loads((GOLDEN / "reader.json").read_text())
    block = golden["block_size"]
    blocks = []
    for shard in opened(MemoryStore(FILES)):
        ids = shard.read(0, shard.tokens)
        blocks += ids[: len(ids) // block * block].reshape(-1, block).tolist()
    assert (blocks, len(blocks)) == (golden["blocks"], golden["len"])
    lost = lost_to_blocks(MemoryStore(FILES), "index.json", block)
    dims = [chunk["dim"] for chunk in INDEX["chunks"]]
    assert [problem.message for problem in lost] == [f"{dim % block} ids" for dim in dims]
    assert sum(dims) - sum(dim % block for dim in dims) == block * len(blocks)
    assert {problem.code for problem in lost} == {"LIT020"}
    assert lost_to_blocks(MemoryStore(FILES), "index.json", 1) == []


def test_chunks_go_by_their_index(tmp_path: Path) -> None:
    shards = [[[k]] for k in range(12)]
    write(tmp_path, "litdata", shards, "uint16")
    assert read(LocalStore(tmp_path)) == shards  # chunk-0-10 after chunk-0-9


def test_one_chunk_is_opened_by_its_name() -> None:
    store = MemoryStore(FILES)
    only = [entry for entry in store.list() if entry.path == "chunk-0-2.bin"]
    assert [(found.format, found.name) for found in shards_of(store, only)] == [("litdata", "chunk-0-2")]


def test_a_compressed_chunk() -> None:
    raw = FILES["chunk-0-0.bin"]
    data = zstandard.ZstdCompressor().compress(raw)
    index = json.loads(indexed(compression="zstd"))
    index["chunks"] = [index["chunks"][0] | {"filename": "chunk-0-0.zstd.bin"}]
    files = {"index.json": json.dumps(index).encode(), "chunk-0-0.zstd.bin": data}
    assert read(MemoryStore(files)) == [DOCUMENTS["chunk-0-0.bin"]]
    # LitData's reader unpacks a chunk beside it and removes it.
    unpacked = {"index.json": files["index.json"], "chunk-0-0.bin": raw}
    assert read(MemoryStore(unpacked)) == [DOCUMENTS["chunk-0-0.bin"]]
    assert look(files | {"chunk-0-0.zstd.bin": data[:-4]}) == "LIT010"
    assert look({"index.json": files["index.json"]}) == "LIT004"
    index["chunks"][0]["chunk_bytes"] = 1 << 33
    assert look(files | {"index.json": json.dumps(index).encode()}) == "LIT011"


def test_malformed_chunks_have_their_codes() -> None:
    name, data = "chunk-0-0.bin", FILES["chunk-0-0.bin"]
    assert code_of({"index.json": b'{"chunks": 3}'}) == "LIT001"
    assert code_of({"index.json": indexed(filename="../a.bin")}) == "LIT001"
    assert code_of({"index.json": indexed(filename="chunk-0-1.bin")}) == "LIT001"
    assert code_of({"index.json": indexed(dim="36")}) == "LIT001"
    assert code_of({"index.json": indexed(item_loader="PyTreeLoader")}) == "LIT002"
    assert code_of({"index.json": indexed(data_format=["int", "int"])}) == "LIT002"
    assert code_of({"index.json": indexed(data_format=["no_header_tensor:6"])}) == "LIT003"
    assert code_of({"index.json": indexed(data_format=["no_header_tensor:x"])}) == "LIT003"
    assert code_of({name: None}) == "LIT004"
    assert code_of({"index.json": None}) == "LIT005"
    assert code_of({"other.bin": data}, "other.bin") == "LIT005"
    assert code_of({name: data[:-1]}) == code_of({name: data + b"\0"}) == "LIT006"
    assert code_of({"index.json": indexed(dim=37)}) == code_of({"index.json": indexed(chunk_size=3)}) == "LIT007"
    assert code_of({name: struct.pack("<I", 3) + data[4:]}) == "LIT007"
    assert code_of({name: data[:4] + struct.pack("<I", 20) + data[8:]}) == "LIT008"
    assert code_of({name: data[:12] + struct.pack("<I", 156) + data[16:]}) == "LIT008"
    assert code_of({name: data[:8] + struct.pack("<I", 33) + data[12:]}) == "LIT008"
    assert code_of({name: data[:8] + struct.pack("<I", 164) + data[12:]}) == "LIT008"
    for change in ({"encryption": "fernet"}, {"compression": "lz4"}, {"ipc_compression": "zstd"}):
        assert code_of({"index.json": indexed(**change)}) == "LIT009"


def test_verify_lists_every_offset_that_is_wrong(tmp_path: Path) -> None:
    write(tmp_path, "litdata", [[[k] for k in range(9)]], "uint16")
    data = bytearray((tmp_path / "chunk-0-0.bin").read_bytes())
    for at in (12, 28):
        data[at] ^= 1
    (tmp_path / "chunk-0-0.bin").write_bytes(data)
    told = run("verify", str(tmp_path), "--json")
    assert told.status == 1
    assert [one["offset"] for one in told.json["findings"] if one["code"] == "LIT008"] == [12, 16, 28, 32]


@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind in KINDS for code in KINDS[kind]])
def test_every_dtype(kind: str, code: int) -> None:
    dtype = np.dtype(KINDS[kind][code])
    ids = np.array([0, 1, int(np.iinfo(dtype).max)], dtype=dtype)
    data = np.array([2, 16, 16 + dtype.itemsize, 16 + 3 * dtype.itemsize], "<u4").tobytes() + ids.tobytes()
    chunk = {"filename": "chunk-0-0.bin", "chunk_bytes": len(data), "chunk_size": 2, "dim": 3}
    index = {"chunks": [chunk], "config": {"data_format": [f"{kind}:{code}"], "item_loader": "TokensLoader"}}
    store = MemoryStore({"index.json": json.dumps(index).encode(), "chunk-0-0.bin": data})
    assert read(store) == [[ids[:1].tolist(), ids[1:].tolist()]]
    assert opened(store)[0].dtype == dtype


@fewer
@given(documents("int32"), st.sampled_from(["", "zstd"]), st.sampled_from(["uint16", "int32", "uint32", "int64"]))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, shards: list[Any], compression: str, dtype: str
) -> None:
    root = tmp_path_factory.mktemp("litdata")
    shards = [[[i % (1 << 16) for i in ids] for ids in members] for members in shards]
    write(root, "litdata", shards, dtype, compression=compression)
    assert read(LocalStore(root)) == shards


def fuzz(seed: int, count: int) -> set[str]:
    return {found for files in broken(FILES, seed, count) if isinstance(found := look(files), str)}


def test_broken_files_are_refused_or_read() -> None:
    codes = fuzz(1, 600)
    assert {"LIT004", "LIT006", "LIT007", "LIT008"} <= codes
    for files in broken(FILES, 2, 30):
        assert peak(files) < LARGEST


@pytest.mark.slow
def test_many_broken_files() -> None:
    files = {name: FILES[name] for name in ("index.json", "chunk-0-2.bin")}
    codes = {look_at(open_file, one, "chunk-0-2.bin") for one in broken(files, 7, MANY)}
    assert codes > {"", "LIT001", "LIT005", "LIT006", "LIT007", "LIT008"}


def test_verify_and_inspect_tell_what_the_reader_drops(tmp_path: Path) -> None:
    for command in ("verify", "inspect"):
        told = run(command, str(GOLDEN), "--json")
        assert told.status == 0
        (finding,) = [one for one in told.json["findings"] if one["code"] == "LIT020"]
        assert (finding["severity"], finding["path"]) == ("information", "index.json")
        assert "of 2049, 344 (100.00 %)" in finding["message"]
    write(tmp_path, "litdata", [[[1] * 2049 * 3]], "uint16")
    (finding,) = run("verify", str(tmp_path), "--json").json["findings"]
    assert finding["message"].startswith("with blocks of 4097,")  # nothing is lost with 2049


def test_a_level_of_compression_in_the_name() -> None:
    """LitData writes ``chunk-0-0.zstd:9.bin`` for ``compression="zstd:9"``, and says so in its index."""
    raw = FILES["chunk-0-0.bin"]
    index = json.loads(indexed(compression="zstd:9"))
    index["chunks"] = [index["chunks"][0] | {"filename": "chunk-0-0.zstd:9.bin"}]
    said = {"index.json": json.dumps(index).encode()}
    for file in ({"chunk-0-0.zstd:9.bin": zstandard.ZstdCompressor(9).compress(raw)}, {"chunk-0-0.bin": raw}):
        assert read(MemoryStore(said | file)) == [DOCUMENTS["chunk-0-0.bin"]]


def test_chunks_without_an_index_are_known_by_their_beginning() -> None:
    bare = {path: data for path, data in FILES.items() if path != "index.json"}
    assert look({**bare, "chunk-0-99.bin": b"ids, and no chunk"}) == "LIT005"


def test_a_chunk_that_begins_with_an_empty_item_has_no_dim() -> None:
    """LitData writes null for the number of ids where the first item has none."""
    data = np.array([2, 16, 16, 22], "<u4").tobytes() + np.array([5, 6, 7], "<u2").tobytes()
    chunk = {"filename": "chunk-0-0.bin", "chunk_bytes": 22, "chunk_size": 2, "dim": None}
    index = {"chunks": [chunk], "config": {"data_format": ["no_header_tensor:20"], "item_loader": "TokensLoader"}}
    files = {"index.json": json.dumps(index).encode(), "chunk-0-0.bin": data}
    assert read(MemoryStore(files)) == [[[], [5, 6, 7]]]
    assert look(files | {"chunk-0-0.bin": data[:-2]}) == "LIT006"
