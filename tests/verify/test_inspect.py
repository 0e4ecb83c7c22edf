"""`inspect`: counts, boundary, exact lengths, documents and positions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verify.corpora import built, write_pair
from tokenreel.corpus.lengths import QUANTILES, SHORT, Lengths
from tokenreel.errors import DocumentError, SplitError, UsageError
from tokenreel.verify import histogram_lines, inspect, verify

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def test_a_built_corpus_says_what_it_is(native: Path) -> None:
    seen = inspect(native, split="train", documents=[0], at=[0])
    assert (seen.layout, seen.complete, seen.formats, seen.dtypes) == ("native", True, ("megatron-v1",), ("uint16",))
    assert set(seen.splits) == {"train", "validation"}
    assert sum(split["documents"] for split in seen.splits.values()) == 16
    assert set(seen.identity) == {"train", "validation"}
    assert seen.ends.declared
    assert seen.ends.says.startswith("16 of 16 sampled documents end with id 256")
    assert seen.tokenizer["kind"] == "bytes"
    [document] = seen.documents
    assert document.ids[-1] == 256
    assert document.text is not None
    assert document.text.encode() == bytes(document.ids[:-1])
    assert json.loads(json.dumps(seen.as_dict()))["boundary"]["suffix"] == [256]


def test_what_others_built_is_read_too() -> None:
    seen = inspect(GOLDEN / "mahan", split="validation", documents=[1])
    assert (seen.layout, seen.complete, seen.boundary.suffix) == ("mahan", True, (1,))
    assert seen.documents[0].text is not None


def test_unfinished_and_bare(mahan: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "bare" / "web", [[1, 2], [3, 2]])
    seen = inspect(tmp_path / "bare")
    assert (seen.layout, seen.complete) == ("shards", None)
    assert (
        seen.ends.says == "2 of 2 sampled documents end with id 2: it looks like an end of document; none is declared"
    )
    assert inspect(tmp_path / "bare" / "web").layout == "one shard"


def test_no_end_of_document_is_said() -> None:
    seen = inspect(GOLDEN / "megatron" / "data" / "i32_noeod")
    assert "none is plain to see" in seen.ends.says


def test_a_broken_shard_is_a_finding_and_in_no_count(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[1, 2]])
    write_pair(tmp_path / "b", [[1, 2]])
    (tmp_path / "a.bin").write_bytes(b"\0")
    seen = inspect(tmp_path)
    assert [f.code for f in seen.findings] == ["MEG018"]
    assert seen.splits[""] == {"shards": 2, "documents": 1, "sequences": 1, "tokens": 2}


def test_positions_and_documents_across_shards(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[5, 6, 0], []])
    write_pair(tmp_path / "b", [[], [7, 0], [8]])
    seen = inspect(tmp_path, at=range(6), documents=range(5))
    assert [(p.shard, p.offset, p.byte, p.document, p.within, p.id) for p in seen.places] == [
        ("a", 0, 0, 0, 0, 5),
        ("a", 1, 2, 0, 1, 6),
        ("a", 2, 4, 0, 2, 0),
        ("b", 0, 0, 3, 0, 7),
        ("b", 1, 2, 3, 1, 0),
        ("b", 2, 4, 4, 0, 8),
    ]
    assert [document.ids for document in seen.documents] == [[5, 6, 0], [], [], [7, 0], [8]]
    assert all("not at hand" in document.why_no_text for document in seen.documents)
    assert [d.number for d in inspect(tmp_path, documents=[-1, -5]).documents] == [4, 0]
    for wrong in ({"at": [6]}, {"at": [-1]}, {"documents": [5]}, {"documents": [-6]}):
        with pytest.raises(DocumentError):
            inspect(tmp_path, **wrong)  # type: ignore[arg-type]


def test_numbers_need_a_split(mahan: Path) -> None:
    with pytest.raises(SplitError, match="SPL001"):
        inspect(mahan, documents=[0])
    with pytest.raises(SplitError, match="SPL002"):
        inspect(mahan, split="test")


def test_names_and_sequences_are_noted(tmp_path: Path) -> None:
    for number in (9, 10):
        write_pair(tmp_path / f"part-{number}", [[1]])
    notes = " ".join(inspect(tmp_path).notes)
    assert "part-10 before part-9" in notes
    assert "several sequences" in " ".join(inspect(GOLDEN / "megatron" / "data" / "i32_sentences").notes)


# ---- what is no shard ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            b"PAR1\x15\x04",
            "this is Parquet without a column of ids (input_ids or tokens: list<int>); tokenreel build reads text of it",
        ),
        (b'{"part": "part-0", "splits": {}}', "this is a receipt of a corpus; name its folder instead"),
        (b'{"_data_files": []}', "this is what datasets keeps beside its files; name its folder instead"),
        (b'{"text": "a"}\n', "this is text; tokenreel build reads it"),
        ("é".encode() * 3000, "this is text; tokenreel build reads it"),
        (b"\x1f\x8b\x08", "compressed with gzip"),
        (b"\x00\x01\xff\xfe", "no shard of a known format"),
        (b"", "empty"),
    ],
)
def test_a_file_that_is_no_shard_is_one_error_line(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "data.file").write_bytes(data)
    for path in (tmp_path / "data.file", tmp_path):
        with pytest.raises(DocumentError, match=re.escape(said)) as caught:
            inspect(path)
        assert caught.value.code == "DOC006"
    with pytest.raises(DocumentError, match="DOC006"):
        verify(tmp_path / "data.file")


def test_a_vocabulary_that_is_given_is_checked(tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[1, 2], [3, 200]])
    seen = inspect(tmp_path, vocab=100)
    assert [(f.code, f.document, f.found) for f in seen.findings] == [("TOK020", 1, 200)]
    assert any("1 id of 2 sampled documents beyond it" in note for note in seen.notes)
    fine = inspect(tmp_path, vocab=201)
    assert fine.findings == ()
    assert any("no id of 2 sampled documents beyond it" in note for note in fine.notes)
    for wrong in (-5, 0):
        with pytest.raises(UsageError, match="USE003"):
            inspect(tmp_path, vocab=wrong)
        with pytest.raises(UsageError, match="USE003"):
            verify(tmp_path, vocab=wrong)


def test_an_empty_split_is_said_to_be_empty(tmp_path: Path) -> None:
    out = built(tmp_path, "mahan", modulo=1_000_000)
    for path, split in ((out / "validation", None), (out, "validation")):
        with pytest.raises(SplitError, match="SPL002") as caught:
            inspect(path, split=split)
        assert "is empty: no document of the corpus is in it" in caught.value.message
    with pytest.raises(SplitError, match="no such split"):
        inspect(out / "test")


# ---- lengths -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20) | st.integers(SHORT - 2, SHORT + 9) | st.integers(0, 1 << 34), max_size=60))
def test_quantiles_and_buckets_are_exact(values: list[int]) -> None:
    lengths = Lengths()
    for begin in range(0, len(values), 7):
        lengths.add(np.array(values[begin : begin + 7], dtype=np.int64))
    ordered = sorted(values)
    for q, found in lengths.quantiles().items():
        assert found == next(v for v in ordered if sum(w <= v for w in values) >= q * len(values) - 1e-9)
    assert set(lengths.quantiles()) == (set(QUANTILES) if values else set())
    buckets = lengths.buckets()
    assert sum(count for _, _, count in buckets) == len(values)
    for low, high, count in buckets:
        assert count == sum(low <= value <= high for value in values)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**9)), max_size=12), st.integers(30, 120))
def test_bars_fit_and_grow_with_counts(rows: list[tuple[int, int]], width: int) -> None:
    lines = histogram_lines([(low, low + 1, count) for low, count in rows], width)
    assert len(lines) == len(rows)
    assert all(len(line) <= max(width, 40) for line in lines)
    bars = [line.count("█") for line in lines]
    for (_, one), first in zip(rows, bars, strict=True):
        for (_, two), second in zip(rows, bars, strict=True):
            assert first <= second or one > two


def test_bars_without_blocks_are_ascii() -> None:
    rows = [(0, 0, 1), (2, 3, 400), (4, 7, 200)]
    lines = histogram_lines(rows, 40, plain=True)
    assert all(line.isascii() for line in lines)
    assert [line.count("#") for line in lines] == [1, 30, 15]
