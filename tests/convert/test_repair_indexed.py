"""repair of formats that an index names or that hold documents in parts of their own: MDS, LitData, Levanter, Arrow, Parquet."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenreel
from tests.convert.test_pairs import Case, make
from tokenreel.convert import convert, repair
from tokenreel.errors import DocumentError, FormatError
from tokenreel.hashing import sha256_file
from tokenreel.verify import verify

if TYPE_CHECKING:
    from tokenreel.convert import Repaired

ROWS: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((5, 6, 2), (700, 2), (30, 31, 32, 2)),
    ((8, 2), (99, 2)),
    ((9, 9, 9, 2), (4, 2), (1000, 4000, 2)),
)
CASE = Case("rows", "uint16", "suffix=2", ROWS, {})
ALL = [list(ids) for shard in ROWS for ids in shard]


def made(tmp_path: Path, to: str, **options: Any) -> Path:
    convert(make(tmp_path / "made", CASE), tmp_path / "in", to=to, boundary="suffix=2", options=options, workers=1)
    for name in ("tokenreel.json", "convert.json"):
        (tmp_path / "in" / name).unlink()
    return tmp_path / "in"


def files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): sha256_file(p) for p in folder.rglob("*") if p.is_file()}


def documents(path: Path, **given: Any) -> list[list[int]]:
    return [ids.tolist() for ids in tokenreel.open(path, **given)]


def mended(tmp_path: Path, **given: Any) -> Repaired:
    """Repair ``in`` into ``out``: the source stays, what comes out is whole."""
    before = files(tmp_path / "in")
    done = repair(tmp_path / "in", tmp_path / "out", **given)
    assert files(tmp_path / "in") == before
    assert (done.exit_status, done.verified, done.findings) == (1, "ok", ())
    assert done.lines()
    return done


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def put(path: Path, at: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    path.write_bytes(bytes(whole))


FIRST = {"mds": "shard.00000.mds", "litdata": "chunk-0-0.bin"}


@pytest.mark.parametrize("to", ["mds", "litdata"])
def test_a_shard_cut_short_keeps_whole_records(tmp_path: Path, to: str) -> None:
    cut(made(tmp_path, to) / FIRST[to], 1)
    done = mended(tmp_path)
    assert documents(tmp_path / "out") == [*ALL[:2], *ALL[3:]]
    assert [(one.documents, one.lost_documents, one.lost) for one in done.mended] == [(2, 1, 4)]
    assert done.copied == 2


@pytest.mark.parametrize("to", ["mds", "litdata"])
def test_bytes_behind_are_taken_off(tmp_path: Path, to: str) -> None:
    path = made(tmp_path, to) / FIRST[to]
    whole = files(tmp_path / "in")
    path.write_bytes(path.read_bytes() + b"xyz")
    done = mended(tmp_path)
    assert [(one.lost_documents, one.lost) for one in done.mended] == [(0, 0)]
    assert files(tmp_path / "out")[FIRST[to]] == whole[FIRST[to]]


@pytest.mark.parametrize("to", ["mds", "litdata"])
@pytest.mark.parametrize("damage", ["gone", "none", "stale"])
def test_an_index_is_made_from_the_shards(tmp_path: Path, to: str, damage: str) -> None:
    index = made(tmp_path, to) / "index.json"
    whole = files(tmp_path / "in")
    if damage == "gone":
        index.unlink()
    elif damage == "none":
        index.write_bytes(index.read_bytes()[:-9])
    else:
        text = index.read_text()
        index.write_text(text.replace('"samples": 3', '"samples": 7').replace('"chunk_size": 3', '"chunk_size": 7'))
    done = mended(tmp_path, dtype="uint16")
    assert documents(tmp_path / "out") == ALL
    assert {name: digest for name, digest in files(tmp_path / "out").items() if name != "index.json"} == {
        name: digest for name, digest in whole.items() if name != "index.json"
    }
    assert bool(done.index) == (damage != "stale")


def test_litdata_without_an_index_needs_its_dtype(tmp_path: Path) -> None:
    (made(tmp_path, "litdata") / "index.json").unlink()
    with pytest.raises(FormatError, match="FLT020") as caught:
        repair(tmp_path / "in", tmp_path / "out")
    assert "--dtype" in str(caught.value.found)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["mds", "litdata"])
def test_a_missing_shard_is_named_and_left_out(tmp_path: Path, to: str) -> None:
    (made(tmp_path, to) / FIRST[to]).unlink()
    done = mended(tmp_path)
    assert documents(tmp_path / "out") == ALL[3:]
    assert len(done.beyond) == 1
    assert FIRST[to].split(".bin")[0].split(".mds")[0] in done.beyond[0]


@pytest.mark.parametrize("to", ["mds", "litdata"])
def test_a_damaged_table_is_made_anew(tmp_path: Path, to: str) -> None:
    put(made(tmp_path, to) / FIRST[to], 8, b"\xff\xff")
    done = mended(tmp_path, boundary="suffix=2")
    assert documents(tmp_path / "out") == ALL
    assert "made anew" in done.mended[0].changes[0]


@pytest.mark.parametrize("packed", ["zstd", "gz"])
def test_a_compressed_mds_shard_that_was_cut(tmp_path: Path, packed: str) -> None:
    rng = np.random.default_rng(1)
    case = Case("long", "uint16", "", (tuple(tuple(rng.integers(0, 60_000, 4000).tolist()) for _ in range(100)),), {})
    source = make(tmp_path / "made", case)
    convert(source, tmp_path / "in", to="mds", options={"compression": packed}, workers=1)
    for name in ("tokenreel.json", "convert.json"):
        (tmp_path / "in" / name).unlink()
    cut(tmp_path / "in" / f"shard.00000.mds.{packed}", 200_000)
    done = mended(tmp_path)
    kept = documents(tmp_path / "out")
    assert 0 < len(kept) < 100
    assert kept == [list(ids) for ids in case.shards[0][: len(kept)]]
    assert "decompressed" in done.mended[0].changes[0]


def test_other_columns_of_mds_are_kept(tmp_path: Path) -> None:
    """A shard as mosaicml-streaming writes one, with a column of text beside the ids."""
    from tokenreel.formats.mds_index import columns_of

    config = {
        "column_encodings": ["str", "ndarray:uint16"], "column_names": ["id", "tokens"], "column_sizes": [None, None],
        "compression": None, "format": "mds", "hashes": [], "size_limit": 1 << 26, "version": 2,
    }  # fmt: skip
    records = []
    for k, ids in enumerate(ALL):
        text, array = f"document {k}".encode(), bytes([4, len(ids)]) + np.array(ids, "<u2").tobytes()
        records.append(np.array([len(text), len(array)], "<u4").tobytes() + text + array)
    described = json.dumps(config, sort_keys=True).encode()
    ends = np.cumsum([4 * (len(records) + 2) + len(described), *map(len, records)])
    data = np.array([len(records), *ends], "<u4").tobytes() + described + b"".join(records)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/shard.00000.mds").write_bytes(data[:-1])
    entry = {**config, "samples": 8, "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}}}
    (tmp_path / "in/index.json").write_text(json.dumps({"version": 2, "shards": [{**entry, "zip_data": None}]}))
    done = mended(tmp_path)
    assert documents(tmp_path / "out") == ALL[:-1]
    assert (done.mended[0].lost_documents, done.mended[0].lost) == (1, None)
    made_of = json.loads((tmp_path / "out/index.json").read_text())["shards"][0]
    assert [column.name for column in columns_of(made_of) or ()] == ["id", "tokens"]
    assert b"document 6" in (tmp_path / "out/shard.00000.mds").read_bytes()


@pytest.mark.parametrize("below", [True, False], ids=["and one in each folder", "alone"])
def test_an_index_above_several_folders(tmp_path: Path, below: bool) -> None:
    """mosaicml-streaming merges the indices of several writers into one above their folders."""
    source = made(tmp_path, "mds")
    rows = json.loads((source / "index.json").read_text())["shards"]
    for k, row in enumerate(rows):
        (source / str(k)).mkdir()
        name = row["raw_data"]["basename"]
        (source / name).rename(source / str(k) / name)
        if below:
            (source / str(k) / "index.json").write_text(json.dumps({"version": 2, "shards": [row]}))
        row["raw_data"] = {**row["raw_data"], "basename": f"{k}/{name}"}
    (source / "index.json").write_text(json.dumps({"version": 2, "shards": rows}))
    assert documents(source) == ALL
    assert repair(source, tmp_path / "no").exit_status == 0
    cut(source / "1" / rows[1]["raw_data"]["basename"][2:], 1)
    mended(tmp_path)
    assert documents(tmp_path / "out") == [*ALL[:4], *ALL[5:]]
    assert {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("index.json")} == {
        str(p.relative_to(source)) for p in source.rglob("index.json")
    }


@pytest.mark.parametrize("layout", ["sharded", "consolidated"])
@pytest.mark.parametrize("damage", ["gone", "none", "unfinished"])
def test_a_ledger_is_made_from_the_stores(tmp_path: Path, layout: str, damage: str) -> None:
    shards = ROWS if layout == "sharded" else (tuple(ids for shard in ROWS for ids in shard),)
    case = Case("rows", "uint16", "suffix=2", shards, {})
    convert(make(tmp_path / "made", case), tmp_path / "in", to="levanter", options={"layout": layout}, workers=1)
    for name in ("tokenreel.json", "convert.json"):
        (tmp_path / "in" / name).unlink()
    whole = files(tmp_path / "in")
    ledger = tmp_path / "in/shard_ledger.json"
    if damage == "gone":
        ledger.unlink()
    elif damage == "none":
        ledger.write_bytes(ledger.read_bytes()[:-5])
    else:
        said = json.loads(ledger.read_text())
        said |= {"is_finished": False, "finished_shards": said["finished_shards"][:2], "total_num_rows": 0}
        ledger.write_text(json.dumps(said))
    done = mended(tmp_path)
    left = ALL[:5] if (damage, layout) == ("unfinished", "sharded") else ALL
    assert documents(tmp_path / "out") == left
    same = files(tmp_path / "out")
    assert {name: whole[name] for name in same if not name.endswith("ledger.json")} == {
        name: digest for name, digest in same.items() if not name.endswith("ledger.json")
    }, "stores that are whole are copied byte for byte"
    assert done.index


def test_rows_in_a_damaged_chunk_are_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    members = tuple(tuple(rng.integers(0, 200, 100_000).tolist()) for _ in range(12))
    convert(
        make(tmp_path / "made", Case("long", "uint16", "", (members,), {})), tmp_path / "in", to="levanter", workers=1
    )
    for name in ("tokenreel.json", "convert.json"):
        (tmp_path / "in" / name).unlink()
    chunk = next((tmp_path / "in").rglob("data/c/0"))
    put(chunk, chunk.stat().st_size // 2, bytes(1 << 16))
    done = mended(tmp_path)
    kept = documents(tmp_path / "out")
    lost = done.mended[0].lost_documents or 0
    assert len(kept) == 12 - lost
    assert 2 <= lost <= 5
    assert done.mended[0].lost == lost * 100_000
    assert [ids for ids in map(list, members) if ids in kept] == kept


def stream(path: Path, table: pa.Table, make_one: Any = pa.ipc.new_stream) -> None:
    path.parent.mkdir(exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, make_one(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


LONG = [[k + 1] * (10 + k) for k in range(8)]


@pytest.mark.parametrize("form", [pa.ipc.new_stream, pa.ipc.new_file])
@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.uint16())])
def test_arrow_keeps_whole_batches_and_whole_rows_of_the_one_that_was_cut(tmp_path: Path, form: Any, kind: Any) -> None:
    path = tmp_path / "in/a.arrow"
    stream(path, pa.table({"id": list("abcdefgh"), "input_ids": pa.array(LONG, kind)}), form)
    whole = path.read_bytes()
    (tmp_path / "in/state.json").write_text("{}")
    seen = set()
    for size in range(len(whole) - 1, 0, -37):
        path.write_bytes(whole[:size])
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        try:
            mended(tmp_path)
        except FormatError as error:
            assert error.code == "FLT020"  # noqa: PT017 (either it can be saved, or it says so)
            seen.add(0)
            continue
        kept = documents(tmp_path / "out")
        assert kept == LONG[: len(kept)]
        seen.add(len(kept))
        assert (tmp_path / "out/state.json").is_file()
        with pa.OSFile(str(tmp_path / "out/a.arrow"), "rb") as source:
            assert pa.ipc.open_stream(source).read_all()["id"].to_pylist() == list("abcdefgh")[: len(kept)]
    assert {0, 3, 6, 8} <= seen
    assert seen & {1, 2, 4, 5, 7}, "whole rows of the batch that was cut"


def test_an_arrow_batch_whose_offsets_fall_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "in/a.arrow"
    stream(path, pa.table({"input_ids": pa.array(LONG, pa.list_(pa.int32()))}))
    at = path.read_bytes().index(np.array([0, 13, 27, 42], "<i4").tobytes())
    put(path, at + 4, b"\xff\xff\xff\x7f")
    done = mended(tmp_path)
    assert documents(tmp_path / "out") == LONG[:3] + LONG[6:]
    assert (done.mended[0].lost_documents, done.mended[0].lost) == (3, 42)


def test_row_groups_that_can_be_read_are_kept_with_all_columns(tmp_path: Path) -> None:
    path = tmp_path / "in/a.parquet"
    path.parent.mkdir()
    table = pa.table({"url": list("abcdefgh"), "input_ids": pa.array(LONG, pa.list_(pa.int32()))})
    pq.write_table(table, path, row_group_size=3, write_page_checksum=True, compression="none", use_dictionary=False)
    put(path, path.read_bytes().index(np.array([5] * 8, "<i4").tobytes()), b"\xff")
    done = mended(tmp_path)
    assert documents(tmp_path / "out") == LONG[:3] + LONG[6:]
    assert pq.read_table(tmp_path / "out/a.parquet")["url"].to_pylist() == list("abcgh")
    assert (done.mended[0].lost_documents, done.mended[0].lost) == (3, 42)


def test_a_parquet_file_without_its_footer_is_named_and_the_others_are_copied(tmp_path: Path) -> None:
    source = made(tmp_path, "parquet")
    first = min(source.glob("*.parquet"))
    cut(first, 5)
    done = mended(tmp_path)
    assert documents(tmp_path / "out") == ALL[3:]
    assert "footer" in done.beyond[0]
    for path in sorted(source.glob("*.parquet")):
        cut(path, 5)
    with pytest.raises(FormatError, match="FLT020"):
        repair(source, tmp_path / "no")
    assert not (tmp_path / "no").exists()


PICKLED = b"\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00]\x94(K\x00K\x04\x86\x94K\x04K\x08\x86\x94e."


def test_a_packed_file_that_lost_its_index_becomes_a_pair(tmp_path: Path) -> None:
    ids = np.array([5, 2, 6, 7, 8, 2], "<u2").tobytes()
    (tmp_path / "in").mkdir()
    head = len(ids).to_bytes(8, "little") + (2).to_bytes(4, "little")
    (tmp_path / "in/a.pbin").write_bytes(head + ids + PICKLED)
    assert repair(tmp_path / "in", tmp_path / "no").exit_status == 0
    (tmp_path / "in/b.pbin").write_bytes(head + ids[:-1])
    done = mended(tmp_path, boundary="suffix=2")
    assert documents(tmp_path / "out") == [[5, 2], [6, 7, 8, 2], [5, 2]]
    assert [one.lost for one in done.mended] == [0, 4]


@pytest.mark.parametrize("to", ["mds", "litdata", "levanter", "arrow", "parquet"])
def test_nothing_wrong_nothing_written(tmp_path: Path, to: str) -> None:
    assert repair(made(tmp_path, to), tmp_path / "out").exit_status == 0
    assert not (tmp_path / "out").exists()
    assert verify(tmp_path / "in").status == "ok"


def test_nothing_there_says_why(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/index.json").write_text('{"shards": [{')
    with pytest.raises(DocumentError, match="DOC006"):
        repair(tmp_path / "in", tmp_path / "out")
