"""MDS: what mosaicml-streaming wrote is read, what we write is read back, what is wrong has its code."""

from __future__ import annotations

import bz2
import gzip
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
from tokenreel.formats.mds import contradiction, open_file, open_int64, open_uint16
from tokenreel.store import LocalStore, MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden" / "mds"
SAMPLES = json.loads((GOLDEN / "documents.json").read_text())
FOLDERS = ("mds_bytes", "mds_ndarray", "mds_ndarray_dyn")
RNG = np.random.default_rng(3)


def array_record(ids: np.ndarray[Any, Any], *, said: bool) -> bytes:
    """A record of one array, the slow and obvious way; `said`: with its dtype."""
    code = {"uint16": 16, "int32": 33, "int64": 65, "uint8": 8, "uint32": 32}[ids.dtype.name]
    shape = struct.pack("<B", len(ids)) if len(ids) < 256 else struct.pack("<H", len(ids))
    head = bytes([code] if said else []) + bytes([4 | (len(shape) == 2)]) + shape
    body = head + ids.tobytes()
    return struct.pack("<I", len(body)) + body


def shard(records: list[bytes], encoding: str, size: int | None = None, **more: Any) -> bytes:
    config = {"column_encodings": [encoding], "column_names": ["tokens"], "column_sizes": [size], **more}
    said = json.dumps(config, sort_keys=True).encode()
    at = 4 * (len(records) + 2) + len(said)
    ends = np.cumsum([0, *map(len, records)]) + at
    return struct.pack("<I", len(records)) + ends.astype("<u4").tobytes() + said + b"".join(records)


def code_of(files: dict[str, bytes], path: str = "shard.00000.mds", opener: Any = open_file) -> str:
    with pytest.raises(FormatError) as caught:
        opener(MemoryStore(files), path).check_table()
    assert "path" in caught.value.where
    return caught.value.code


@pytest.mark.parametrize("folder", FOLDERS)
def test_golden(folder: str) -> None:
    store = LocalStore(GOLDEN / folder)
    expected = [SAMPLES[f"{folder}/shard.0000{k}.mds"] for k in (0, 1)]
    assert read(store) == expected
    assert [one.contiguous for one in opened(store)] == [folder == "mds_ndarray"] * 2  # type: ignore[attr-defined]
    first = opened(store)[0]
    for at in (0, 33, 40):
        path, byte = first.byte_at(at)
        assert int.from_bytes(store.reader(path).read(byte, 2), "little") == first.read(at, at + 1)[0]


def test_a_column_of_bytes_waits_for_its_dtype() -> None:
    odd = np.arange(3, dtype="<u2").tobytes()
    even = np.arange(300, 304, dtype="<u2").tobytes()
    files = {"a.mds": shard([struct.pack("<I", len(odd)) + odd], "bytes")}
    store = MemoryStore(files)
    assert [found.format for found in shards_of(store, store.list())] == ["mds-uint16"]  # six is no multiple of four
    store = MemoryStore({"a.mds": shard([struct.pack("<I", len(even)) + even], "bytes")})
    with pytest.raises(FormatError, match="FLT001"):
        shards_of(store, store.list())
    assert [found.format for found in shards_of(store, store.list(), dtype="uint16")] == ["mds-uint16"]
    assert [found.format for found in shards_of(store, store.list(), vocab=1000)] == ["mds-uint16"]
    wide = np.arange(300, 400, dtype="<i8").tobytes()
    store = MemoryStore({"a.mds": shard([struct.pack("<I", len(wide)) + wide], "bytes")})
    assert [found.format for found in shards_of(store, store.list(), vocab=1000)] == ["mds-int64"]
    assert code_of({"a.mds": store.read("a.mds")}, "a.mds", open_uint16) == "MDS015"
    assert open_uint16(store, "a.mds", accept=["MDS015"]).tokens == 400
    assert read(store, dtype="int64") == [[list(range(300, 400))]]


def test_widths_contradict() -> None:
    for dtype in ("<u2", "<i4", "<i8"):
        data = RNG.integers(300, 60_000, 4000).astype(dtype).tobytes()
        for other in ("<u2", "<i4", "<i8"):
            assert bool(contradiction(data, np.dtype(other))) == (other != dtype)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int32", "int64"])
@pytest.mark.parametrize("said", [False, True])
def test_arrays_of_every_dtype(dtype: str, *, said: bool) -> None:
    members = [RNG.integers(0, 100, n).astype(dtype) for n in (0, 1, 255, 256, 700)]
    data = shard([array_record(ids, said=said) for ids in members], "ndarray" if said else f"ndarray:{dtype}")
    store = MemoryStore({"a.mds": data})
    assert read(store) == [[ids.tolist() for ids in members]]
    assert opened(store)[0].dtype == np.dtype(dtype)


def test_other_columns_are_passed_over() -> None:
    names, encodings, sizes = (
        ["id", "n", "tokens", "z"],
        ["str", "int", "ndarray:uint16", "json"],
        [None, 8, None, None],
    )
    config = json.dumps({"column_encodings": encodings, "column_names": names, "column_sizes": sizes}).encode()
    members = [RNG.integers(0, 60_000, n).astype("<u2") for n in (3, 0, 300)]
    records = []
    for k, ids in enumerate(members):
        array = array_record(ids, said=False)[4:]
        parts = [b"x" * k, bytes(8), array, b'{"a": 1}']
        heads = [len(parts[0]), len(parts[2]), len(parts[3])]
        records.append(struct.pack("<3I", *heads) + b"".join(parts))
    at = 4 * (len(records) + 2) + len(config)
    ends = (np.cumsum([0, *map(len, records)]) + at).astype("<u4")
    data = struct.pack("<I", 3) + ends.tobytes() + config + b"".join(records)
    assert read(MemoryStore({"a.mds": data})) == [[ids.tolist() for ids in members]]


@pytest.mark.parametrize("packed", ["zstd", "gz", "bz2", "br", "snappy"])
def test_compressed_shards(packed: str) -> None:
    import pyarrow as pa

    raw = (GOLDEN / "mds_ndarray_dyn" / "shard.00000.mds").read_bytes()
    index = json.loads((GOLDEN / "mds_ndarray_dyn" / "index.json").read_text())
    pack: Any = {
        "zstd": zstandard.ZstdCompressor().compress,
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "br": lambda data: pa.compress(data, codec="brotli", asbytes=True),
        "snappy": lambda data: pa.compress(data, codec="snappy", asbytes=True),
    }[packed]
    data = pack(raw)
    row = index["shards"][0]
    zipped = {"basename": f"shard.00000.mds.{packed}", "bytes": len(data), "hashes": {}}
    row |= {"compression": f"{packed}:3", "zip_data": zipped}
    index["shards"] = [row]
    path = zipped["basename"]
    files = {"index.json": json.dumps(index).encode(), path: data}
    # A shard says its columns only: that it is compressed stands in the index.
    assert read(MemoryStore(files)) == [SAMPLES["mds_ndarray_dyn/shard.00000.mds"]]
    assert not opened(MemoryStore(files))[0].contiguous  # type: ignore[attr-defined]
    assert code_of(files | {path: b"\xff" * 8 + data[8:]}, path) == "MDS012"
    assert code_of(files | {path: data[:-1]}, path) == "MDS004"
    assert code_of({path: data}, path) == "MDS002"
    row["raw_data"]["bytes"] = 1 << 40
    assert code_of(files | {"index.json": json.dumps(index).encode()}, path) == "MDS013"
    row["compression"] = "lzma"
    assert code_of(files | {"index.json": json.dumps(index).encode()}, path) == "MDS011"


def test_a_bomb_is_never_decompressed() -> None:
    raw = shard([struct.pack("<I", 200 << 20) + bytes(200 << 20)], "bytes")
    data = zstandard.ZstdCompressor().compress(raw)
    columns = {"column_encodings": ["bytes"], "column_names": ["tokens"], "column_sizes": [None]}
    for said in (len(raw), 1000):  # what it is, and what it is not
        row = columns | {
            "compression": "zstd",
            "format": "mds",
            "hashes": [],
            "samples": 1,
            "size_limit": None,
            "version": 2,
            "raw_data": {"basename": "a.mds", "bytes": said, "hashes": {}},
            "zip_data": {"basename": "a.mds.zstd", "bytes": len(data), "hashes": {}},
        }
        files = {"index.json": json.dumps({"version": 2, "shards": [row]}).encode(), "a.mds.zstd": data}
        assert look(files, dtype="uint16") == ("MDS013" if said == len(raw) else "MDS012")
        assert peak(files, dtype="uint16") < LARGEST
    row["raw_data"]["bytes"] = len(raw)
    files["index.json"] = json.dumps({"version": 2, "shards": [row]}).encode()
    assert open_uint16(MemoryStore(files), "a.mds.zstd", accept=["MDS013", "MDS015"]).tokens == 100 << 20


def test_malformed_shards_have_their_codes() -> None:
    index = json.loads((GOLDEN / "mds_ndarray_dyn" / "index.json").read_text())
    name = "shard.00000.mds"
    data = (GOLDEN / "mds_ndarray_dyn" / name).read_bytes()

    def told(data: bytes | None = data, **change: Any) -> dict[str, bytes]:
        row = json.loads(json.dumps(index["shards"][0])) | change
        row["raw_data"]["bytes"] = len(data or b"")
        return {"index.json": json.dumps({"version": 2, "shards": [row]}).encode()} | ({name: data} if data else {})

    assert code_of(told(None)) == "MDS002"
    assert code_of({name: b"abc"}) == "MDS003"
    assert code_of({name: struct.pack("<2I", 1 << 31, 0)}) == "MDS003"
    assert code_of(told(data[:-1])) == "MDS003"
    assert code_of(told() | {name: data + b"\0"}) == "MDS004"
    assert code_of(told(column_names=["id", "toks"])) == "MDS005"
    assert code_of(told(samples=6)) == "MDS006"
    assert code_of(told(data[:40] + b"!" + data[41:])) == "MDS005"
    assert code_of({name: shard([], "str")}) == "MDS007"
    assert code_of({name: shard([], "ndarray:float32")}) == "MDS008"
    assert code_of({name: shard([], "ndarray:uint16:2,2", 8)}) == "MDS008"
    assert code_of({name: shard([b"abcd"], "ndarray:uint16:3", 4)}) == "MDS009"
    assert code_of({name: shard([b"abcde"], "ndarray:uint16:2", 4)}) == "MDS010"
    record = array_record(np.arange(3, dtype="<u2"), said=True)
    assert code_of({name: shard([record, record[:4] + b"\x21" + record[5:]], "ndarray")}) == "MDS009"
    assert code_of({name: shard([record, record[:5] + b"\x08" + record[6:]], "ndarray")}) == "MDS009"
    assert code_of({name: shard([record, record[:6] + b"\x04" + record[7:]], "ndarray")}) == "MDS009"
    assert code_of({name: shard([record[:4] + b"\x12" + record[5:]], "ndarray")}) == "MDS009"
    assert code_of({name: shard([], "ndarray")}) == "MDS009"
    offsets = data[:8] + data[12:16] + data[8:12] + data[16:]
    assert code_of(told(offsets)) == "MDS010"
    odd = shard([struct.pack("<I", 3) + b"abc"], "bytes")
    assert code_of({name: odd}, opener=open_uint16) == code_of({name: odd}, opener=open_int64) == "MDS010"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"shards": {}},
        {"shards": [3]},
        {"shards": [{"format": "csv", "version": 2}]},
    ],
)
def test_an_index_that_is_none(change: dict[str, Any]) -> None:
    value = {"version": 2, "shards": []} | change
    assert code_of({"index.json": json.dumps(value).encode(), "shard.00000.mds": b""}) == "MDS001"


def test_an_index_stays_in_its_folder() -> None:
    index = json.loads((GOLDEN / "mds_bytes" / "index.json").read_text())
    for name in ("../shard.00000.mds", "/etc/passwd", "", "a//b", 3):
        index["shards"][0]["raw_data"]["basename"] = name
        assert look({"index.json": json.dumps(index).encode(), "shard.00000.mds": b""}) == "MDS001"


def test_shards_go_by_their_index() -> None:
    files = in_memory(GOLDEN / "mds_ndarray")
    index = json.loads(files["index.json"])
    index["shards"].reverse()
    store = MemoryStore(files | {"index.json": json.dumps(index).encode()})
    assert [shard.name for shard in opened(store)] == ["shard.00001", "shard.00000"]
    # A merged index at the root names shards in folders; theirs are not asked again.
    for shard, folder in zip(index["shards"], ("b", "a"), strict=True):
        shard["raw_data"]["basename"] = f"{folder}/{shard['raw_data']['basename']}"
    merged = {"index.json": json.dumps(index).encode()}
    for k, folder in enumerate("ab"):
        merged[f"{folder}/index.json"] = json.dumps(
            {"version": 2, "shards": [json.loads(files["index.json"])["shards"][k]]}
        ).encode()
        merged[f"{folder}/shard.0000{k}.mds"] = files[f"shard.0000{k}.mds"]
    assert [shard.name for shard in opened(MemoryStore(merged))] == ["b/shard.00001", "a/shard.00000"]


@fewer
@given(documents("uint16"), st.sampled_from(["", "zstd", "gz"]), st.sampled_from(["ndarray", "bytes"]))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, shards: list[Any], compression: str, encoding: str
) -> None:
    root = tmp_path_factory.mktemp("mds")
    write(root, "mds", shards, "uint16", compression=compression, encoding=encoding)
    assert read(LocalStore(root), **({"dtype": "uint16"} if encoding == "bytes" else {})) == shards


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint32", "int32", "uint64", "int64"])
def test_every_dtype_is_written(tmp_path: Path, dtype: str) -> None:
    shards = [[[0, int(np.iinfo(dtype).max)], [], list(range(100)) * 700]]
    write(tmp_path, "mds", shards, dtype, column="input_ids")
    assert read(LocalStore(tmp_path)) == shards
    assert json.loads((tmp_path / "index.json").read_text())["shards"][0]["column_names"] == ["input_ids"]


def fuzz(seed: int, count: int) -> set[str]:
    codes = set()
    for folder in FOLDERS:
        whole = in_memory(GOLDEN / folder)
        for files in broken(whole, seed, count // len(FOLDERS)):
            found = look(files, dtype="uint16")
            codes |= {found} if isinstance(found, str) else set()
    return codes


def test_broken_files_are_refused_or_read() -> None:
    codes = fuzz(1, 900)
    assert {"MDS001", "MDS002", "MDS003", "MDS004", "MDS005", "MDS010"} <= codes
    for files in broken(in_memory(GOLDEN / "mds_ndarray_dyn"), 2, 30):
        assert peak(files) < LARGEST


@pytest.mark.slow
def test_many_broken_files() -> None:
    files = in_memory(GOLDEN / "mds_ndarray_dyn")
    codes = {look_at(open_file, one, "shard.00000.mds") for one in broken(files, 7, MANY)}
    assert codes > {"", "MDS001", "MDS002", "MDS003", "MDS004", "MDS005", "MDS009", "MDS010"}


@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64", "uint32"])
def test_every_dtype_of_bytes_is_taken_by_every_command(tmp_path: Path, dtype: str) -> None:
    """Also where llm-foundry wrote ids of 64 bits."""
    members = [[5, 60_000, 2], [700, 2] * 40, [8, 2]]
    write(tmp_path, "mds", [members], dtype, encoding="bytes")
    assert read(LocalStore(tmp_path), dtype=dtype) == [members]
    for command in (["inspect"], ["verify", "--level", "full"]):
        done = run(*command, str(tmp_path), "--dtype", dtype, "--json")
        assert done.status == 0, done.out
        assert f"mds-{dtype}" in done.out or command[0] == "verify"
    if dtype == "uint16":  # only two divides the sizes of these records: they prove it
        return
    refused = run("inspect", str(tmp_path))
    assert "--dtype uint16 or uint32 or int32 or int64" in refused.out + refused.err
