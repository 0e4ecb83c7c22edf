"""Levanter caches: what TensorStore wrote is read, what we write is read back, nothing missing is taken for zeros."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
from tokenreel.errors import FormatError, UsageError
from tokenreel.formats import levanter_write
from tokenreel.formats.levanter import open_cache
from tokenreel.formats.zarr_array import ZarrArray, crc32c
from tokenreel.store import LocalStore, MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden" / "levanter_cache"
DOCUMENTS = json.loads((GOLDEN / "documents.json").read_text())
CACHES = ("consolidated", "sharded", "plain")
FILES = {name: in_memory(GOLDEN / name) for name in CACHES}


def code_of(files: dict[str, bytes | None], name: str = "input_ids", cache: str = "consolidated", **given: Any) -> str:
    there = {path: data for path, data in (FILES[cache] | files).items() if data is not None}

    def whole() -> None:
        shard = open_cache(MemoryStore(there), name, **given)
        shard.check_table()
        shard.read(0, shard.tokens)

    with pytest.raises(FormatError) as caught:
        whole()
    assert "path" in caught.value.where
    return caught.value.code


def ledger(cache: str = "consolidated", **change: Any) -> dict[str, bytes | None]:
    return {"shard_ledger.json": json.dumps(json.loads(FILES[cache]["shard_ledger.json"]) | change).encode()}


def described(path: str, **change: Any) -> dict[str, bytes | None]:
    name = f"{path}/zarr.json"
    return {name: json.dumps(json.loads(FILES["consolidated"][name]) | change).encode()}


@pytest.mark.parametrize("cache", CACHES)
def test_golden(cache: str) -> None:
    assert read(LocalStore(GOLDEN / cache)) == DOCUMENTS[cache]


def test_shards_go_by_their_ledger() -> None:
    assert [shard.name for shard in opened(MemoryStore(FILES["sharded"]))] == ["b/input_ids", "a/input_ids"]
    older = {key: value for key, value in json.loads(FILES["sharded"]["shard_ledger.json"]).items() if key != "layout"}
    del older["field_counts_by_shard"]
    files = FILES["sharded"] | {"shard_ledger.json": json.dumps(older).encode()}
    assert read(MemoryStore(files)) == DOCUMENTS["sharded"]
    assert "DOC010" not in run("verify", str(GOLDEN / "sharded")).out  # the ledger's order is no mistake in names
    # What a shard was made with is no cache of its own.
    files["a/shard_ledger.json"] = FILES["consolidated"]["shard_ledger.json"]
    assert read(MemoryStore(files)) == DOCUMENTS["sharded"]


def test_the_other_name_of_the_field() -> None:
    moved = {path.replace("input_ids/", "input_ids/0/"): data for path, data in FILES["consolidated"].items()}
    counts = json.loads(moved["shard_ledger.json"])
    counts["field_counts"] = {"input_ids/0": counts["field_counts"]["input_ids"]}
    moved["shard_ledger.json"] = json.dumps(counts).encode()
    assert read(MemoryStore(moved)) == DOCUMENTS["consolidated"]
    assert look({"shard_ledger.json": moved["shard_ledger.json"]}) == "LEV004"


def test_a_cache_that_is_not_finished() -> None:
    unfinished = ledger(is_finished=False, total_num_rows=0, field_counts={})
    assert code_of(unfinished) == "LEV002"
    shard = open_cache(MemoryStore(FILES["consolidated"] | unfinished), "input_ids", accept=["LEV002"])  # type: ignore[arg-type]
    assert shard.documents == len(DOCUMENTS["consolidated"][0])


def test_ledgers_have_their_codes() -> None:
    assert code_of({"shard_ledger.json": None}) == code_of({}, "other/input_ids") == "LEV001"
    assert code_of(ledger(is_finished=1)) == code_of(ledger(layout="round")) == "LEV001"
    assert code_of(ledger(total_num_rows=-1)) == "LEV001"
    rows = json.loads(FILES["sharded"]["shard_ledger.json"])["shard_rows"]
    for change in (
        {"finished_shards": ["a", "a"]},
        {"finished_shards": ["a", "c"]},
        {"total_num_rows": 3},
        {"finished_shards": ["../a", "b"], "shard_rows": {"../a": rows["a"], "b": rows["b"]}},
        {"field_counts": {"input_ids": 3}},
    ):
        assert code_of(ledger("sharded", **change), "a/input_ids", "sharded") == "LEV003"
    total = json.loads(FILES["consolidated"]["shard_ledger.json"])["total_num_rows"]
    names = {"shard_rows": {"x": total + 1}, "finished_shards": ["x"]}
    assert (
        code_of(ledger(total_num_rows=total + 1, **names)) == code_of(ledger(field_counts={"input_ids": 1})) == "LEV006"
    )


def test_arrays_have_their_codes() -> None:
    grid = {"name": "regular", "configuration": {"chunk_shape": [1 << 40]}}
    assert code_of({"input_ids/data/zarr.json": b"{"}) == "LEV005"
    for change in (
        {"zarr_format": 2},
        {"node_type": "group"},
        {"shape": [3, 4]},
        {"shape": [-1]},
        {"data_type": "float32"},
        {"codecs": []},
        {"codecs": [{"name": "transpose"}]},
        {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]},
        {"chunk_grid": {"name": "odd"}},
        {"chunk_key_encoding": {"name": "odd"}},
    ):
        assert code_of(described("input_ids/data", **change)) == "LEV005", change
    assert code_of(described("input_ids/offsets", data_type="int32")) in {"LEV005", "LEV009"}
    plain = [{"name": "bytes", "configuration": {"endian": "little"}}]
    assert code_of(described("input_ids/data", chunk_grid=grid, codecs=plain)) == "LEV010"
    assert code_of({"input_ids/data/c/0": None}) == "LEV008"
    assert code_of({"input_ids/data/c/0": b""}) == "LEV009"
    data = FILES["consolidated"]["input_ids/data/c/0"]
    assert code_of({"input_ids/data/c/0": data[:4] + bytes([data[4] ^ 1]) + data[5:]}) == "LEV009"
    assert code_of({"input_ids/data/c/0": data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]}) == "LEV009"
    assert code_of({"input_ids/data/c/0": data[1:]}) == "LEV009"


def test_a_missing_chunk_is_not_zeros() -> None:
    files = {path: data for path, data in FILES["plain"].items() if path != "input_ids/data/c/1"}
    assert look(files) == "LEV008"
    shard = open_cache(MemoryStore(files), "input_ids", accept=["LEV008"])
    whole = [i for ids in DOCUMENTS["plain"][0] for i in ids]
    assert shard.read(0, shard.tokens).tolist() == whole[:64] + [0] * 64 + whole[128:]
    # In an index, too: what it says is not stored.
    index = bytearray(FILES["consolidated"]["input_ids/data/c/0"][-8196:])
    index[:16] = b"\xff" * 16
    index[-4:] = crc32c(bytes(index[:-4])).to_bytes(4, "little")
    data = FILES["consolidated"]["input_ids/data/c/0"][:-8196] + bytes(index)
    assert code_of({"input_ids/data/c/0": data}) == "LEV008"


def test_offsets_that_fall(tmp_path: Path) -> None:
    write(tmp_path, "levanter", [[[1], [2, 3], [4]]], "int32", layout="consolidated")
    sink = levanter_write.CacheWriter(tmp_path, "other")
    sink.add_documents(np.arange(4, dtype=np.int32), np.array([3, -1, 2]))  # ends 3, 2, 4
    sink.finish()
    files = in_memory(tmp_path)
    swapped = {path.replace("other/", "input_ids/"): data for path, data in files.items() if path.startswith("other/")}
    assert look(files | swapped) == "LEV007"


def test_arrays_are_read_in_any_stretch() -> None:
    whole = np.array([i for ids in DOCUMENTS["plain"][0] for i in ids])
    array = ZarrArray(MemoryStore(FILES["plain"]), "input_ids/data")
    for begin in range(0, len(whole), 13):
        for end in range(begin, len(whole), 29):
            assert array.read(begin, end).tolist() == whole[begin:end].tolist()
    assert array.place_of(65) == ("input_ids/data/c/1", 0)
    assert array.place_of(80)[1] > 0  # the second chunk of the file


def test_long_arrays_take_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levanter_write, "INNER", 64)
    monkeypatch.setattr(levanter_write, "OUTER", 256)
    shards = [[list(range(k % 50)) for k in range(200)], [[5] * 1000]]
    write(tmp_path, "levanter", shards, "int32")
    assert read(LocalStore(tmp_path)) == shards
    assert (tmp_path / "part-00000/input_ids/data/c/18").is_file()


def test_consolidated_caches_have_one_shard(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="LEV011"):
        write(tmp_path, "levanter", [[[1]], [[2]]], "int32", layout="consolidated")


@fewer
@given(documents("int32"), st.sampled_from(["sharded", "consolidated"]))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, shards: list[Any], layout: str) -> None:
    root = tmp_path_factory.mktemp("levanter")
    shards = shards[:1] if layout == "consolidated" else shards
    write(root, "levanter", shards, "int32", layout=layout)
    assert read(LocalStore(root)) == shards


def test_broken_files_are_refused_or_read() -> None:
    codes = {found for name in CACHES for files in broken(FILES[name], 1, 250) if isinstance(found := look(files), str)}
    assert {"LEV001", "LEV003", "LEV005", "LEV008", "LEV009"} <= codes
    for files in broken(FILES["consolidated"], 2, 30):
        assert peak(files) < LARGEST


@pytest.mark.slow
def test_many_broken_files() -> None:
    def opener(store: MemoryStore, path: str) -> Any:
        return open_cache(store, path)

    # Of small chunks, which are quick to unpack.
    codes = {look_at(opener, one, "input_ids") for one in broken(FILES["plain"], 7, 10 * MANY)}
    assert codes > {"", "LEV001", "LEV003", "LEV005", "LEV006", "LEV008", "LEV009"}


def test_a_store_without_rows_need_not_be_stored() -> None:
    """TensorStore stores no chunk that is all zeros: of an empty cache there is nothing but what describes it."""
    stored = {path: data for path, data in FILES["consolidated"].items() if path.endswith("zarr.json")}
    said = ledger(total_num_rows=0, shard_rows={"x": 0}, finished_shards=["x"], field_counts={"input_ids": 0})
    shard = open_cache(MemoryStore(stored | said), "input_ids")  # type: ignore[arg-type]
    shard.check_table()
    assert (shard.documents, shard.tokens, shard.document_edges(0, 0).tolist()) == (0, 0, [0])


def test_stores_without_a_ledger_are_known() -> None:
    for cache in ("consolidated", "sharded"):
        assert look({path: data for path, data in FILES[cache].items() if path != "shard_ledger.json"}) == "LEV001"
