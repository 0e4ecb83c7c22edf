from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.megatron_cases import (
    GOLDEN,
    MANIFEST,
    READABLE,
    REFUSED,
    corpora,
    documents_of,
    golden,
    in_memory,
)
from tests.formats.megatron_reference import Documents, build, parse, tables
from tokenreel.errors import DocumentError, FormatError, OrderError, StorageError
from tokenreel.formats import megatron_check
from tokenreel.formats.megatron import list_pairs, open_pair, recognise
from tokenreel.formats.megatron_check import check_pair
from tokenreel.store import LocalStore, MemoryStore


@pytest.mark.parametrize("name", READABLE)
def test_golden_pairs_decode(name: str) -> None:
    facts = MANIFEST["datasets"][name]
    idx, payload = golden(f"data/{name}")
    assert hashlib.sha256(idx).hexdigest() == facts["sha256_idx"]
    assert hashlib.sha256(payload).hexdigest() == facts["sha256_bin"]
    shard = open_pair(LocalStore(GOLDEN), f"data/{name}")
    assert (shard.documents, shard.sequences, shard.tokens) == (
        facts["documents"],
        facts["sequences"],
        facts["tokens"],
    )
    assert shard.dtype.name == facts["dtype"]
    assert documents_of(shard) == parse(idx, payload)
    edges = shard.sequence_edges(0, shard.sequences)
    if "max_len" in facts:
        assert int(np.diff(edges).max()) == facts["max_len"]
        assert int((np.diff(edges) == 0).sum()) == facts["zero_length_sequences"]
    if "document_indices_head" in facts:
        assert shard.document_sequences(0, min(11, shard.documents)).tolist() == facts["document_indices_head"]
    assert list(check_pair(LocalStore(GOLDEN), f"data/{name}")) == []


def test_every_golden_data_pair_is_either_read_or_refused() -> None:
    assert {name.removeprefix("data/") for name in list_pairs(LocalStore(GOLDEN), "data/")} == set(READABLE) | set(
        REFUSED
    )


@pytest.mark.parametrize(("name", "code"), REFUSED.items())
def test_float_and_multimodal_pairs_are_refused_by_name(name: str, code: str) -> None:
    with pytest.raises(FormatError) as caught:
        open_pair(LocalStore(GOLDEN), f"data/{name}")
    assert caught.value.code == code
    assert caught.value.where["path"].endswith(f"data/{name}.idx")  # type: ignore[union-attr]
    words = {"MEG007": ["float32", "float64", "GPT-NeoX"], "MEG010": ["multimodal"]}[code]
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("name", sorted(MANIFEST["mahan"]))
def test_mahan_pairs_hold_the_documents_of_the_specification(name: str) -> None:
    assert [d[0] for d in documents_of(open_pair(LocalStore(GOLDEN), f"mahan/{name}"))] == MANIFEST["mahan"][name]


def test_datatrove_pair_holds_its_documents_with_the_separator() -> None:
    shard = open_pair(LocalStore(GOLDEN), "datatrove/mega_00000_tokens")
    assert [d[0] for d in documents_of(shard)] == MANIFEST["datatrove"]


def test_golden_files_are_the_ones_the_manifest_names() -> None:
    for path, digest in MANIFEST["sha256"].items():
        assert hashlib.sha256((GOLDEN / path).read_bytes()).hexdigest() == digest


@given(corpora(), st.booleans())
def test_any_corpus_is_read_in_both_count_conventions(corpus: tuple[str, Documents], counts_documents: bool) -> None:
    dtype, documents = corpus
    if counts_documents and documents and not documents[-1]:
        documents = [*documents, [[]]]  # an empty last document leaves two readings: see the test below
    idx, payload = build(documents, dtype, counts_documents=counts_documents)
    store = in_memory(idx, payload)
    shard = open_pair(store, "p")
    assert shard.layout.counts_documents == counts_documents
    assert shard.dtype == np.dtype(dtype)
    assert documents_of(shard) == documents
    assert list(check_pair(store, "p")) == []


@pytest.mark.parametrize("n", [1, 7, 8, 9])
@pytest.mark.parametrize("tail", ["count", "modes", "zeros"])
def test_eight_bytes_more_are_told_apart_by_contents(n: int, tail: str) -> None:
    lengths = [2] * n
    payload = bytes(2 * 2 * n)
    if tail == "count":
        idx = tables(lengths, list(range(n + 1)), "uint16", counts_documents=True)
        shard = open_pair(in_memory(idx, payload), "p")
        assert (shard.documents, shard.layout.counts_documents) == (n, True)
        return
    extra = bytes([0, 1] * 4) if tail == "modes" else bytes(8)
    idx = tables(lengths, list(range(n + 1)), "uint16") + extra
    with pytest.raises(FormatError) as caught:
        open_pair(in_memory(idx, payload), "p")
    # As many bytes as sequences are modes; any other number is not.
    assert caught.value.code == ("MEG010" if n == 8 else "MEG009")


def test_two_readings_of_an_empty_last_document_are_a_refusal_not_a_guess() -> None:
    idx, payload = build([[[1]], []], "uint16", counts_documents=True)
    with pytest.raises(FormatError) as caught:
        open_pair(in_memory(idx, payload), "p")
    assert caught.value.code == "MEG009"
    shard = open_pair(in_memory(idx, payload), "p", accept=["MEG009"])
    assert documents_of(shard) == [[[1]]]  # as Megatron reads it


@given(corpora(), st.data())
def test_edges_and_positions_agree_with_the_documents(corpus: tuple[str, Documents], data: st.DataObject) -> None:
    dtype, documents = corpus
    shard = open_pair(in_memory(*build(documents, dtype)), "p")
    i = data.draw(st.integers(0, len(documents)))
    j = data.draw(st.integers(i, len(documents)))
    sizes = [sum(map(len, d)) for d in documents]
    want = [sum(sizes[:k]) for k in range(i, j + 1)]
    assert shard.document_edges(i, j).tolist() == want
    assert shard.document_edges(i, j).dtype == np.int64
    owner = [d for d, size in enumerate(sizes) for _ in range(size)]
    positions = data.draw(st.lists(st.integers(0, len(owner) - 1), max_size=20)) if owner else []
    assert shard.documents_at(np.array(positions, dtype=np.int64)).tolist() == [owner[p] for p in positions]


def test_positions_across_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megatron_check, "CHUNK", 3)
    monkeypatch.setattr("tokenreel.formats.megatron.CHUNK", 3)
    documents: Documents = [[[1] * (k % 4)] * (k % 3) for k in range(50)]
    shard = open_pair(in_memory(*build(documents, "uint16")), "p")
    owner = [d for d, parts in enumerate(documents) for part in parts for _ in part]
    assert shard.documents_at(np.arange(len(owner))[::-1]).tolist() == owner[::-1]


def test_a_document_index_that_is_plain_only_within_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megatron_check, "CHUNK", 2)
    monkeypatch.setattr("tokenreel.formats.megatron.CHUNK", 2)
    documents: Documents = [[[1]], [], [[2]], [[3], [4]], [[5]]]  # entries 0 1 | 1 2 | 4 5
    shard = open_pair(in_memory(*build(documents, "uint16")), "p")
    assert not shard.plain
    assert documents_of(shard) == documents


def test_bounds_are_errors() -> None:
    shard = open_pair(in_memory(*build([[[1, 2]], [[3]]], "uint16")), "p")
    for i, j in ((-1, 1), (0, 3), (2, 1)):
        with pytest.raises(DocumentError, match="DOC001"):
            shard.document_edges(i, j)
        with pytest.raises(DocumentError, match="DOC001"):
            shard.sequence_edges(i, j)
    for begin, end in ((-1, 1), (0, 4), (2, 1)):
        with pytest.raises(OrderError, match="ORD003"):
            shard.read(begin, end)
    for position in (-1, 3):
        with pytest.raises(OrderError, match="ORD003"):
            shard.documents_at(np.array([position]))
    assert shard.byte_at(2) == ("p.bin", 4)


def test_arrays_are_read_only_and_outlive_the_shard(tmp_path: Any) -> None:
    idx, payload = build([[[1, 2, 3]]], "uint16")
    (tmp_path / "p.idx").write_bytes(idx)
    (tmp_path / "p.bin").write_bytes(payload)
    shard = open_pair(LocalStore(tmp_path), "p")
    ids = shard.read(0, 3)
    shard.close()
    del shard
    assert ids.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 9


def test_a_payload_that_shrinks_is_an_error(tmp_path: Any) -> None:
    idx, payload = build([[[1, 2, 3]]], "uint16")
    (tmp_path / "p.idx").write_bytes(idx)
    (tmp_path / "p.bin").write_bytes(payload)
    shard = open_pair(LocalStore(tmp_path), "p")
    shard.check_table()
    (tmp_path / "p.bin").write_bytes(payload[:2])
    with pytest.raises(StorageError, match="STO004"):
        shard.read(0, 3)


class CountingReader:
    """A reader that records how much was asked for."""

    def __init__(self, inner: Any, log: list[int]) -> None:
        self.inner, self.log, self.path, self.size = inner, log, inner.path, inner.size

    def read(self, offset: int, length: int) -> bytes:
        self.log.append(length)
        return self.inner.read(offset, length)  # type: ignore[no-any-return]

    def array(self, dtype: Any, offset: int, count: int) -> Any:
        self.log.append(np.dtype(dtype).itemsize * count)
        return self.inner.array(dtype, offset, count)

    def close(self) -> None:
        self.inner.close()


class CountingStore(MemoryStore):
    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.log: list[int] = []

    def reader(self, path: str) -> Any:
        return CountingReader(super().reader(path), self.log)


def test_opening_is_constant_and_the_table_is_read_in_bounded_chunks() -> None:
    n = 200_000
    lengths = np.ones(n, "<i4")
    idx = (
        tables([], [0], "uint16")[:18]
        + np.array([n, n + 1], "<u8").tobytes()
        + lengths.tobytes()
        + (np.arange(n, dtype="<i8") * 2).tobytes()
        + np.arange(n + 1, dtype="<i8").tobytes()
    )
    store = CountingStore({"p.idx": idx, "p.bin": bytes(2 * n)})
    shard = open_pair(store, "p")
    assert (shard.documents, shard.tokens) == (n, n)
    assert len(store.log) <= 8
    assert sum(store.log) < 100
    shard.check_table()
    assert max(store.log) <= 8 * megatron_check.CHUNK
    seen = len(store.log)
    shard.check_table()
    assert len(store.log) == seen  # once is enough


def test_nothing_is_read_from_a_shard_whose_table_is_wrong() -> None:
    store = LocalStore(GOLDEN)
    shard = open_pair(store, "malformed/pointer_wrong")  # opening cannot see it
    for _ in range(2):
        for attempt in (
            lambda: shard.read(0, 1),
            lambda: shard.document_edges(0, 1),
            lambda: shard.documents_at(np.array([0])),
            shard.check_table,
        ):
            with pytest.raises(FormatError, match="MEG016"):
                attempt()


def test_recognise_by_content_and_by_name() -> None:
    idx, payload = build([[[1]]], "uint16")
    store = MemoryStore(
        {
            "pair.idx": idx,
            "pair.bin": payload,
            "lone.idx": idx,
            "legacy.idx": b"TNTIDX\0\0" + bytes(30),
            "other.idx": b"something else",
            "short.idx": b"MM",
            "llmc.bin": b"\0" * 1024,
            "broken.idx": b"",
            "broken.bin": b"",
        }
    )
    seen = {name: recognise(store, name) for name in ("pair", "lone", "legacy", "other", "short", "llmc", "broken")}
    assert seen == {
        "pair": True,
        "lone": True,
        "legacy": True,
        "other": False,
        "short": False,
        "llmc": False,
        "broken": True,
    }
    assert recognise(store, "pair.idx")
    assert recognise(store, "pair.bin")
    assert not recognise(store, "llmc.bin")


def test_pairs_come_in_byte_order_of_name() -> None:
    store = MemoryStore({f"{name}.idx": b"" for name in ("b/x", "a", "a-b", "é", "Z", "a/1", "part-10", "part-2")})
    assert list_pairs(store) == ["Z", "a", "a-b", "a/1", "b/x", "part-10", "part-2", "é"]
    assert list_pairs(store, "a/") == ["a/1"]


def test_a_sparse_pair_beyond_four_gibibytes_is_addressed_right(tmp_path: Any) -> None:
    length = (1 << 31) - 1
    lengths = [length, length, 3]
    (tmp_path / "p.idx").write_bytes(tables(lengths, [0, 1, 3], "int32"))
    size = 4 * sum(lengths)
    with (tmp_path / "p.bin").open("wb") as file:
        file.seek(size - 8)
        file.write(np.array([41, 42], "<i4").tobytes())
    store = LocalStore(tmp_path)
    assert list(check_pair(store, "p")) == []
    shard = open_pair(store, "p")
    assert shard.tokens == 2 * length + 3
    assert shard.document_edges(0, 2).tolist() == [0, length, 2 * length + 3]
    assert shard.read(shard.tokens - 2, shard.tokens).tolist() == [41, 42]
    assert shard.documents_at(np.array([length - 1, length, shard.tokens - 1])).tolist() == [0, 1, 1]
    assert shard.byte_at(shard.tokens - 1) == ("p.bin", size - 4)
