"""Parquet and Arrow with lists of ids: what pyarrow writes in its many ways is read, what we write is read back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.indexed_cases import (
    LARGEST,
    MANY,
    broken,
    documents,
    fewer,
    look,
    look_at,
    opened,
    peak,
    read,
    write,
)
from tokenreel.errors import FormatError, StorageError, UsageError
from tokenreel.formats import arrow, parquet, parquet_write, shards_of
from tokenreel.formats.arrow_write import open_writer as open_arrow_writer
from tokenreel.formats.parquet_footer import read_footer
from tokenreel.formats.writing import DocumentFacts, FactsShard, WriteOptions
from tokenreel.store import LocalStore, MemoryStore

DOCUMENTS = [[1, 2, 3], [], [4], [5] * 1000, [], [6, 7]]
RNG = np.random.default_rng(3)


def table(members: list[Any], kind: pa.DataType | None = None, name: str = "input_ids", **more: Any) -> pa.Table:
    return pa.table(more | {name: pa.array(members, type=kind or pa.list_(pa.int32()))})


def stored(found: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(found, file, **options)
    return file.getvalue()


def streamed(found: pa.Table, batch: int = 2, make: Any = pa.ipc.new_stream, **options: Any) -> bytes:
    file = io.BytesIO()
    with make(file, found.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(found, max_chunksize=batch)
    return file.getvalue()


def code_of(data: bytes, name: str = "a.parquet", **given: Any) -> str:
    module = parquet if name.endswith("parquet") else arrow
    with pytest.raises(FormatError) as caught:
        module.open_file(MemoryStore({name: data}), name, **given).check_table()
    assert "path" in caught.value.where
    return caught.value.code


WAYS: list[dict[str, Any]] = [
    {},
    {"compression": "zstd", "data_page_version": "2.0"},
    {"compression": "none", "use_dictionary": False, "row_group_size": 2},
    {"compression": "gzip", "version": "1.0", "write_statistics": False},
    {"compression": "brotli", "data_page_size": 64, "write_page_index": True},
    {"use_compliant_nested_type": False, "store_schema": False},
    {"column_encoding": {"input_ids.list.element": "DELTA_BINARY_PACKED"}, "use_dictionary": False},
]


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_write_parquet(way: dict[str, Any]) -> None:
    found = table(DOCUMENTS, id=list("abcdef"), z=[1.5] * 6)
    store = MemoryStore({"a.parquet": stored(found, **way)})
    assert read(store) == [DOCUMENTS]
    footer = read_footer(store.reader("a.parquet"))
    assert sum(chunk.tokens or 0 for chunk in footer.chunks) == (
        0 if None in [c.tokens for c in footer.chunks] else 1006
    )


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.uint32(), pa.int64(), pa.uint64()])
def test_every_width(kind: pa.DataType) -> None:
    members = [[0, 1, 100], [], [127]]
    for lists in (pa.list_(kind), pa.large_list(kind)):
        for data, name in ((stored(table(members, lists)), "a.parquet"), (streamed(table(members, lists)), "a.arrow")):
            (shard,) = opened(MemoryStore({name: data}))
            assert shard.dtype.name == str(kind)
            assert read(MemoryStore({name: data})) == [members]


def test_lists_of_one_length() -> None:
    data = stored(table([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)))
    assert read(MemoryStore({"a.parquet": data})) == [[[1, 2], [3, 4]]]


def test_other_parquet_files_are_left_out() -> None:
    text = stored(pa.table({"text": ["a"], "input_ids": [1]}))
    store = MemoryStore({"text.parquet": text, "documents.parquet": stored(table(DOCUMENTS))})
    assert shards_of(store, store.list()) == []
    assert code_of(text) == "PQT002"
    assert read(MemoryStore({"a.parquet": stored(table(DOCUMENTS, name="tokens"))})) == [DOCUMENTS]


def test_a_footer_without_counts_costs_a_look() -> None:
    data = stored(table(DOCUMENTS), row_group_size=4)
    store = MemoryStore({"a.parquet": data})
    whole = read_footer(store.reader("a.parquet"))
    assert [chunk.tokens for chunk in whole.chunks] == [1004, 2]
    shard = parquet.ParquetShard(
        store,
        "a.parquet",
        store.reader("a.parquet"),
        parquet.Footer(
            whole.column,
            whole.leaf,
            whole.names,
            whole.rows,
            tuple(type(c)(c.rows, c.values, None, c.begin, c.size) for c in whole.chunks),
        ),
    )
    assert (shard.tokens, shard.document(3).tolist()) == (1006, [5] * 1000)


def test_documents_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_IDS", 200)
    members = [RNG.integers(0, 60_000, n).tolist() for n in RNG.integers(0, 60, 300)]
    (shard,) = opened(MemoryStore({"a.parquet": stored(table(members), row_group_size=70)}))
    for i in RNG.integers(0, 300, 60).tolist():
        assert shard.document(i).tolist() == members[i]
    whole = [i for ids in members for i in ids]
    for begin, end in np.sort(RNG.integers(0, len(whole) + 1, (40, 2))).tolist():
        assert shard.read(begin, end).tolist() == whole[begin:end]
    path, at = shard.byte_at(len(whole) - 1)
    assert (path, at > shard.byte_at(0)[1]) == ("a.parquet", True)


def test_malformed_parquet_has_its_codes() -> None:
    good = stored(table(DOCUMENTS))
    at = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    for data in (
        b"",
        b"PAR1",
        good[:-1],
        good[:-8] + b"\xff\xff\xff\x7fPAR1",
        good[:at] + bytes(32) + good[at + 32 :],
        good[4:],
    ):
        assert code_of(data) == "PQT001"
    assert code_of(stored(table([[1.5]], pa.list_(pa.float32())))) == "PQT002"
    assert code_of(stored(table([[None]], pa.list_(pa.timestamp("us"))))) == "PQT003"
    assert code_of(stored(table([[1], None]))) == code_of(stored(table([[1], [None]]))) == "PQT006"
    begin = read_footer(MemoryStore({"a": good}).reader("a")).chunks[0].begin
    assert code_of(good[: begin + 30] + bytes(20) + good[begin + 50 :]) in {"PQT001", "PQT005"}


def test_absurd_sizes_are_never_decoded() -> None:
    zeros = pa.LargeListArray.from_arrays(np.array([0, 5 << 20]), pa.array(np.zeros(5 << 20, dtype=np.int64)))
    bomb = stored(pa.table({"input_ids": zeros}))
    assert len(bomb) < 1 << 20
    assert code_of(bomb) == "PQT004"
    before = pa.total_allocated_bytes()
    assert peak({"a.parquet": bomb}) < LARGEST
    assert pa.total_allocated_bytes() - before < LARGEST
    (shard,) = [parquet.open_file(MemoryStore({"a.parquet": bomb}), "a.parquet", accept=["PQT004"])]
    assert shard.tokens == 5 << 20


@pytest.mark.parametrize("make", [pa.ipc.new_stream, pa.ipc.new_file])
@pytest.mark.parametrize("large", [False, True])
def test_arrow_streams_and_files(make: Any, *, large: bool) -> None:
    kind = pa.large_list(pa.uint16()) if large else pa.list_(pa.uint16())
    before = {
        "a": ["x", None],
        "b": [{"x": 1, "y": ["q"]}] * 2,
        "c": [b"1", b"2"],
        "d": [None, None],
        "e": [True, False],
    }
    members = [[1, 2, 3], []]
    data = streamed(pa.concat_tables([table(members, kind, **before)] * 3), 1, make)
    store = MemoryStore({"a.arrow": data})
    assert read(store) == [members * 3]
    shard = opened(store)[0]
    for at in range(shard.tokens):
        path, byte = shard.byte_at(at)
        assert int.from_bytes(store.files[path][byte : byte + 2], "little") == shard.read(at, at + 1)[0]


def test_slices_begin_in_the_middle() -> None:
    found = table(DOCUMENTS).slice(2)
    assert read(MemoryStore({"a.arrow": streamed(found, 3)})) == [DOCUMENTS[2:]]


def test_malformed_arrow_has_its_codes() -> None:
    good, whole = streamed(table(DOCUMENTS)), streamed(table(DOCUMENTS), 2, pa.ipc.new_file)
    for data in (b"", good[:-1], good[:-8], good + b"\0", good[8:], whole[:-1], whole[:-20], good[:300]):
        assert code_of(data, "a.arrow") == "PQT007"
    assert code_of(streamed(table(DOCUMENTS), compression="zstd"), "a.arrow") == "PQT007"
    assert code_of(streamed(pa.table({"text": ["a"]})), "a.arrow") == "PQT002"
    assert code_of(streamed(table([[1.5]], pa.list_(pa.float32()))), "a.arrow") == "PQT003"
    assert code_of(streamed(table([[1], None])), "a.arrow") == code_of(streamed(table([[None]])), "a.arrow") == "PQT006"
    offsets = np.array([0, 3, 3], "<i4").tobytes()
    assert good.count(offsets) == 1
    for wrong in ([0, 4, 3], [0, -1, 3], [3, 3, 0]):
        assert code_of(good.replace(offsets, np.array(wrong, "<i4").tobytes()), "a.arrow") == "PQT008"


@fewer
@given(documents("int32"), st.sampled_from(["parquet", "arrow"]), st.sampled_from(["uint16", "int32", "int64"]))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, shards: list[Any], name: str, dtype: str
) -> None:
    root = tmp_path_factory.mktemp(name)
    shards = [[[i % (1 << 16) for i in ids] for ids in members] for members in shards]
    write(root, name, shards, dtype)
    assert read(LocalStore(root)) == shards


def test_offsets_are_of_64_bits_and_pyarrow_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_write, "GROUP_BYTES", 4000)
    members = [RNG.integers(0, 60_000, n).tolist() for n in [3, 0, 5000, 1, *RNG.integers(0, 300, 60).tolist()]]
    write(tmp_path, "parquet", [members], "uint16", compression="snappy")
    write(tmp_path / "b", "arrow", [members], "uint16")
    file = pq.ParquetFile(tmp_path / "part-000000.parquet")
    assert file.schema_arrow.field("input_ids").type == pa.large_list(pa.field("element", pa.uint16(), nullable=False))
    assert file.read().column("input_ids").to_pylist() == members
    assert file.metadata.num_row_groups > 5
    with pa.ipc.open_stream(tmp_path / "b" / "part-000000.arrow") as stream:
        assert stream.read_all().column("input_ids").to_pylist() == members


def test_facts_are_columns(tmp_path: Path) -> None:
    facts = [DocumentFacts(str(k), "text", None if k % 2 else "web", f"u{k}", json.dumps({"k": k})) for k in range(9)]
    writer = parquet_write.open_writer(tmp_path, "a", WriteOptions("uint16"))
    for part in (facts[:4], facts[4:]):
        writer.add_facts(part)
        writer.add_documents(np.arange(len(part), dtype=np.uint16), np.ones(len(part), dtype=np.int64))
    writer.finish()
    (shard,) = opened(LocalStore(tmp_path))
    assert list(shard.facts(0, 9)) == facts  # type: ignore[attr-defined]
    assert list(shard.facts(3, 6)) == facts[3:6]  # type: ignore[attr-defined]
    assert isinstance(shard, FactsShard)
    bare = MemoryStore({"a.parquet": stored(table(DOCUMENTS, z=[1] * 6))})
    assert not isinstance(opened(bare)[0], FactsShard)
    late = parquet_write.open_writer(tmp_path, "b", WriteOptions("uint16"))
    late.add_documents(np.zeros(1, dtype=np.uint16), np.ones(1, dtype=np.int64))
    with pytest.raises(UsageError, match="USE003"):
        late.add_facts(facts[:1])
    late.abort()
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_options_are_named(tmp_path: Path) -> None:
    for name in ("parquet", "arrow", "mds", "litdata", "levanter"):
        with pytest.raises(UsageError, match="no option compresion"):
            write(tmp_path / name, name, [[[1]]], "int32", compresion="zstd")
        assert not list(tmp_path.rglob("*"))
    for open_writer in (parquet_write.open_writer, open_arrow_writer):
        with pytest.raises(UsageError, match="USE003"):
            open_writer(tmp_path, "a", WriteOptions("uint16", options={"compression": "lzma"}))


def test_an_empty_shard(tmp_path: Path) -> None:
    for name in ("parquet", "arrow"):
        write(tmp_path / name, name, [[]], "uint16")
        assert read(LocalStore(tmp_path / name)) == [[]]


FILES = {"a.parquet": stored(table(DOCUMENTS, id=list("abcdef"), metadata=["{}"] * 5 + [None]), row_group_size=4)}
STREAM = {"a.arrow": streamed(table(DOCUMENTS, id=list("abcdef")))}


def test_broken_files_are_refused_or_read() -> None:
    for files, told in ((FILES, {"PQT001", "PQT005"}), (STREAM, {"PQT007"})):
        codes = {found for one in broken(files, 1, 800) if isinstance(found := look(one), str)}
        assert told <= codes
        for one in broken(files, 2, 40):
            before = pa.total_allocated_bytes()
            assert peak(one) < LARGEST
            assert pa.total_allocated_bytes() - before < LARGEST


@pytest.mark.slow
@pytest.mark.parametrize(("files", "opener"), [(FILES, parquet.open_file), (STREAM, arrow.open_file)])
def test_many_broken_files(files: dict[str, bytes], opener: Any) -> None:
    codes = {look_at(opener, one, next(iter(files))) for one in broken(files, 7, MANY)}
    assert codes > {"", "PQT007", "PQT008"} if "a.arrow" in files else codes > {"", "PQT001", "PQT005"}


def test_lists_of_one_length_in_arrow() -> None:
    lists = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    found = table(lists, pa.list_(pa.uint16(), 3), id=list("abc"))
    for form in (pa.ipc.new_stream, pa.ipc.new_file):
        assert read(MemoryStore({"a.arrow": streamed(found, make=form)})) == [lists]
    data = streamed(table([[1, 2], None], pa.list_(pa.int32(), 2)))
    assert code_of(data, "a.arrow") == "PQT006"


def test_a_file_that_is_named_as_the_others_are_is_one_of_them() -> None:
    ids, text = stored(table([[1]])), stored(pa.table({"text": ["a"]}))
    names = [f"train-0000{k}.parquet" for k in range(3)]
    store = MemoryStore({names[0]: ids, names[1]: text, names[2]: ids, "notes.parquet": text})
    assert [shard.files[0] for shard in shards_of(store, store.list())] == names
    with pytest.raises(FormatError, match="PQT002"):
        read(store)
    store = MemoryStore({"data-0.arrow": streamed(table([[1]])), "data-1.arrow": streamed(pa.table({"text": ["a"]}))})
    assert len(shards_of(store, store.list())) == 2


def test_the_order_and_the_files_of_arrow_are_those_that_datasets_says() -> None:
    files = {f"data-0000{k}.arrow": streamed(table([[k]])) for k in range(3)}
    names = ["data-00002.arrow", "data-00000.arrow", "data-00001.arrow"]
    files["state.json"] = json.dumps({"_data_files": [{"filename": name} for name in names]}).encode()
    store = MemoryStore(files)
    assert read(store) == [[[2]], [[0]], [[1]]]
    del store.files["data-00000.arrow"]
    assert [shard.files[0] for shard in shards_of(store, store.list())] == names
    with pytest.raises(StorageError, match="STO001"):
        read(store)
    store.files["state.json"] = b"{"
    assert read(store) == [[[1]], [[2]]]
