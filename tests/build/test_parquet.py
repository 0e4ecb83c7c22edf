"""Parquet: memory is bounded by what is decoded, whatever is stored; page headers are read and not trusted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.build import parquet_pages
from tokenreel.build.parquet import read_parquet
from tokenreel.build.parquet_pages import Budget, Pages, column_pages
from tokenreel.build.records import Records, SourceShape
from tokenreel.errors import SourceError

TEXTS = ["one", "", "two", "سلام", "x" * 300, "one", "one"]


def read(path: Path, chunk_bytes: int = 1 << 20, **shape: Any) -> list[Records]:
    found = list(read_parquet(str(path), SourceShape(name="s", format="parquet", **shape), chunk_bytes))
    for one in found:
        one.check()
    return found


def texts(found: list[Records]) -> list[str]:
    return [text for one in found for text in one.texts.to_pylist()]


ENCODINGS: list[dict[str, Any]] = [
    {"use_dictionary": True},
    {"use_dictionary": False},
    {"use_dictionary": True, "dictionary_pagesize_limit": 100, "write_batch_size": 4},
    {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
    {"use_dictionary": True, "data_page_version": "2.0", "compression": "zstd"},
    {"use_dictionary": ["lang"], "compression": "none"},
]


@pytest.mark.parametrize("options", ENCODINGS, ids=str)
@given(
    rows=st.lists(st.sampled_from(TEXTS), max_size=40),
    group=st.sampled_from([3, 1000]),
    page=st.sampled_from([1, 200, 1 << 20]),
    chunk=st.sampled_from([1, 300, 1 << 20]),
)
def test_every_encoding_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory,
    options: dict[str, Any],
    rows: list[str],
    group: int,
    page: int,
    chunk: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / "every.parquet"
    table = pa.table({"text": pa.array(rows, pa.string()), "lang": pa.array(["fa"] * len(rows), pa.string())})
    table = table.append_column("k", pa.array(range(len(rows)), pa.int64()))
    pq.write_table(table, path, row_group_size=group, data_page_size=page, **{"write_batch_size": 2, **options})
    found = read(path, chunk, id="k", source_field="lang")
    assert texts(found) == rows
    assert [one for part in found for one in part.ids or ()] == [str(k) for k in range(len(rows))]
    assert all(part.sources == ["fa"] * len(part) for part in found)
    with path.open("rb") as file:
        metadata = pq.read_metadata(path)
        begin = 0
        for number in range(metadata.num_row_groups):
            facts = metadata.row_group(number)
            if not facts.num_rows:
                continue
            pages = column_pages(file.fileno(), facts, {"text"}, "p")["text"].pages
            for one in pages:
                sizes = [len(text.encode()) for text in rows[begin : begin + one.rows]]
                assert max(sizes) <= one.each
                assert sum(sizes) <= one.whole
                begin += one.rows
        assert begin == len(rows)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 500), st.booleans()), max_size=6), min_size=1),
    st.integers(1, 400),
)
def test_a_budget_covers_all_rows_and_is_kept(drawn: list[list[tuple[int, int, bool]]], room: int) -> None:
    def made(rows: int, size: int, shared: bool) -> Pages:
        return Pages(rows, rows * size if shared else size, size)

    columns = [tuple(made(*one) for one in column) for column in drawn]
    rows = min(sum(page.rows for page in column) for column in columns)
    budget = Budget(columns, rows, room)
    done = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_pages, "_WHOLE_PAGE", 100)
        patch.setattr(parquet_pages, "UNSURE", 120)
        while done < rows:
            step = budget.ask()
            assert 1 <= step <= rows - done
            for column in columns:
                most, at, touched = 0, 0, 0
                for page in column:
                    inside = min(at + page.rows, done + step) - max(at, done)
                    at += page.rows
                    if inside > 0:
                        most += min(page.whole, inside * page.each)
                        touched = max(touched, page.whole)
                assert most <= max(room, touched, 120) or step == 1
            budget.take(step)
            done += step


MEASURED = """
import resource, sys
from pathlib import Path
from tokenreel.build.parquet import read_parquet
from tokenreel.build.records import SourceShape
rows = size = 0
shape = SourceShape(name="s", format="parquet", id="id" if len(sys.argv) > 2 else None)
for one in read_parquet(sys.argv[1], shape, 8 << 20):
    rows += len(one)
    size += one.texts.nbytes
status = Path("/proc/self/status")
if status.exists():
    # Of this program alone: the other figure is at least what the process that started it had.
    peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(rows, size, peak)
"""


def measured(path: Path, *words: str) -> tuple[int, int, int]:
    """Return rows, bytes and the peak of memory in MiB of a process that reads a file."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), *words], capture_output=True, text=True, timeout=300, check=True
    )
    rows, size, kilobytes = map(int, done.stdout.split())
    return rows, size, kilobytes >> 10


def test_a_small_dictionary_of_long_texts(tmp_path: Path) -> None:
    """1.5 GB of text in a file of some kilobytes."""
    path = tmp_path / "a.parquet"
    words = pa.array([chr(97 + k) * 100_000 for k in range(8)])
    column = pa.DictionaryArray.from_arrays(pa.array([k % 8 for k in range(15_000)], pa.int32()), words)
    pq.write_table(pa.table({"text": column}), path, compression="zstd")
    assert path.stat().st_size < 100_000
    rows, size, peak = measured(path)
    assert (rows, size > 1_500_000_000) == (15_000, True)
    assert peak < 400


def test_long_texts_as_ids_too(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    words = pa.array([chr(97 + k) * 100_000 for k in range(8)])
    column = pa.DictionaryArray.from_arrays(pa.array([k % 8 for k in range(5_000)], pa.int32()), words)
    pq.write_table(pa.table({"text": ["a"] * 5000, "id": column}), path, compression="zstd")
    rows, _, peak = measured(path, "id")
    assert rows == 5000
    assert peak < 400


@pytest.mark.slow
@pytest.mark.parametrize("dictionary", [True, False])
def test_short_texts_and_then_long_ones(tmp_path: Path, dictionary: bool) -> None:
    path = tmp_path / "a.parquet"
    schema = pa.schema([("text", pa.string())])
    short = pa.record_batch([pa.array([f"row {k}" for k in range(900_000)])], schema=schema)
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=dictionary) as writer:
        writer.write_batch(short, row_group_size=1 << 21)
        for k in range(28):
            long = pa.record_batch([pa.array([f"{k} {j} " + "long " * 66_000 for j in range(250)])], schema=schema)
            writer.write_batch(long, row_group_size=1 << 21)
    rows, size, peak = measured(path)
    assert (rows, size > 2_300_000_000) == (907_000, True)
    assert peak < 900


def test_a_page_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    for use, limit in ((True, "LARGEST_DICTIONARY"), (False, "LARGEST_PAGE")):
        with monkeypatch.context() as patch:
            pq.write_table(pa.table({"text": ["a" * 900, "b" * 900]}), path, use_dictionary=use)
            patch.setattr(parquet_pages, limit, 1000)
            with pytest.raises(SourceError, match="SRC017") as caught:
                read(path)
            assert caught.value.where["path"] == str(path)
            # One document of any size is read.
            pq.write_table(pa.table({"text": ["a" * 1800]}), path, use_dictionary=use)
            assert texts(read(path)) == ["a" * 1800]


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array([1])], names=["text", "text", "n"])
    pq.write_table(twice, path)
    with pytest.raises(SourceError, match="SRC007") as caught:
        read(path)
    assert caught.value.found == "text, text, n"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), *[pa.array([1])] * 2], names=["text", "n", "n"]), path)
    assert texts(read(path)) == ["a"]


def test_damaged_headers_are_errors_with_their_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {k}" for k in range(500)]}), path, data_page_size=100, write_batch_size=10)
    good = path.read_bytes()
    for at in range(4, 400):
        for value in (0, 0x7F, 0xFF):
            path.write_bytes(good[:at] + bytes([value]) + good[at + 1 :])
            try:
                found = texts(read(path))
            except SourceError as error:
                assert error.code in ("SRC001", "SRC006", "SRC013", "SRC017")  # noqa: PT017
            else:
                assert len(found) == 500


def test_long_statistics_in_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [chr(97 + k) * 50_000 for k in range(5)]
    pq.write_table(pa.table({"text": rows}), path, write_page_index=False, max_rows_per_page=1)
    assert texts(read(path)) == rows
    assert os.path.getsize(path) > 0  # noqa: PTH202
