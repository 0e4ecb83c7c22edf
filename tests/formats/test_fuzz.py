"""Every parser on damaged files from memory: it refuses or reads; hundreds of files in the fast run, 200,000 in the slow one.

A parser takes 20 to 60 seconds of the processor for them. Forms that one parser reads besides those that we write (compressed,
other encodings, other codecs) have 20,000 each.
"""

from __future__ import annotations

import importlib
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.convert.test_pairs import WRITABLE, Case, make
from tests.verify.formats import bare, files_below
from tokenreel.convert import convert
from tokenreel.formats import levanter_write
from tokenreel.testing.fuzz import fuzz, read_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

fuzzing = importlib.import_module("tokenreel.testing.fuzz")
FAST, SLOW, FORM = 250, 200_000, 20_000
ONE_SHARD = Case("one shard", "uint16", "suffix=2", (((5, 6, 2), (700, 2), (30, 31, 32, 2), (8, 2)),), {})
PBIN = (
    (12).to_bytes(8, "little")
    + (2).to_bytes(4, "little")
    + bytes(range(1, 13))
    + b"\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00]\x94(K\x00K\x04\x86\x94K\x04K\x08\x86\x94e."
)
LISTS = [[5, 6, 2], [], [700, 2], [30, 31, 32, 2]]


@pytest.fixture
def files_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, bytes]]:
    def found(name: str, **options: Any) -> dict[str, bytes]:
        if name == "pbin":
            return {"a.pbin": PBIN}
        # Small chunks: the whole of a cache is within reach of a few damaged bytes.
        monkeypatch.setattr(levanter_write, "INNER", 16)
        monkeypatch.setattr(levanter_write, "OUTER", 64)
        source = make(tmp_path / "in", ONE_SHARD)
        convert(source, tmp_path / "out", to=name, boundary="suffix=2", options=options, workers=1)
        return bare(files_below(tmp_path / "out"))

    return found


def arrow(form: Any, kind: pa.DataType) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"url": list("abcd"), "input_ids": pa.array(LISTS, kind), "n": range(4)})
    with form(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def parquet(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"url": list("abcd"), "input_ids": pa.array(LISTS, pa.list_(pa.int32()))}), sink, **options)
    return sink.getvalue()


def fixed() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"input_ids": pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.uint16(), 3))})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


FORMS: dict[str, Callable[[Callable[..., dict[str, bytes]]], dict[str, bytes]]] = {
    "mds zstd": lambda made: made("mds", compression="zstd"),
    "mds gz of bytes": lambda made: made("mds", compression="gz", encoding="bytes"),
    "litdata zstd": lambda made: made("litdata", compression="zstd"),
    "levanter consolidated": lambda made: made("levanter", layout="consolidated"),
    "parquet snappy": lambda _: {"a.parquet": parquet(row_group_size=2)},
    "parquet of pages": lambda _: {"a.parquet": parquet(data_page_version="2.0", compression="gzip", data_page_size=8)},
    "arrow file": lambda _: {"a.arrow": arrow(pa.ipc.new_file, pa.large_list(pa.uint16()))},
    "arrow stream": lambda _: {"a.arrow": arrow(pa.ipc.new_stream, pa.list_(pa.int64()))},
    "arrow of one length": lambda _: {"a.arrow": fixed()},
}


@pytest.mark.parametrize("name", [*WRITABLE, "pbin"])
def test_a_few_hundred(name: str, files_of: Callable[..., dict[str, bytes]]) -> None:
    files = files_of(name)
    assert read_all(files, dtype=name.removeprefix("raw-") if name.startswith("raw") else None) > 0
    done = fuzz(files, FAST, seed=1)
    assert done.failures == []
    assert done.refused + done.read == done.tried == FAST


@pytest.mark.parametrize("name", FORMS)
def test_a_few_hundred_of_other_forms(name: str, files_of: Callable[..., dict[str, bytes]]) -> None:
    files = FORMS[name](files_of)
    assert read_all(files) > 0
    assert fuzz(files, FAST, seed=1).failures == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WRITABLE, "pbin"])
def test_two_hundred_thousand(name: str, files_of: Callable[..., dict[str, bytes]]) -> None:
    done = fuzz(files_of(name), SLOW, seed=2)
    assert done.failures == []
    assert done.tried == SLOW


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_twenty_thousand_of_other_forms(name: str, files_of: Callable[..., dict[str, bytes]]) -> None:
    done = fuzz(FORMS[name](files_of), FORM, seed=2)
    assert done.failures == []
    assert done.tried == FORM


@pytest.mark.parametrize(
    "greedy", [lambda: np.zeros(200 << 20, "u1"), lambda: bytes(200 << 20), lambda: pa.allocate_buffer(200 << 20)]
)
def test_it_notices_memory(greedy: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "read_all", lambda *_, **__: int(greedy() is not None))
    done = fuzz({"a.bin": b"abcd"}, fuzzing.WARM + 5, seed=1)
    assert len(done.failures) == 5
    assert "memory" in done.failures[0]


@pytest.mark.parametrize("wrong", [ValueError("no"), IndexError(3), RecursionError()])
def test_it_notices_other_errors(wrong: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> int:
        raise wrong

    monkeypatch.setattr(fuzzing, "read_all", fails)
    assert len(fuzz({"a.bin": b"abcd"}, 3, seed=1).failures) == 3
