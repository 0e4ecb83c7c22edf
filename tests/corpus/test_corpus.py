"""`Corpus` against lists: documents, sequences, slices, batches, streams, splits, identity."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.corpus.pairs import flat, write_pair
from tokenreel.errors import DocumentError, FormatError, SplitError, StorageError, TokenError, UsageError
from tokenreel.hashing import IdentityHasher

IDS = st.lists(st.integers(0, 9), max_size=6)
DOCUMENT = st.lists(IDS, min_size=1, max_size=3)
SHARDS = st.lists(st.lists(DOCUMENT, max_size=6), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpora")


def make(folder: Path, shards: list[list[list[list[int]]]], dtype: str = "uint16") -> tokenreel.Corpus:
    root = folder / str(len(list(folder.iterdir())))
    for k, documents in enumerate(shards):
        write_pair(root / f"part-{k:06d}", documents, dtype)
    return tokenreel.open(root, boundary="suffix=0")


@settings(max_examples=60)
@given(shards=SHARDS, dtype=st.sampled_from(["uint8", "int32", "uint16", "int64"]))
def test_documents_are_what_was_written(folder: Path, shards: list[list[list[list[int]]]], dtype: str) -> None:
    corpus = make(folder, shards, dtype)
    documents = [document for shard in shards for document in flat(shard)]
    stream = [i for document in documents for i in document]
    assert len(corpus) == len(documents)
    assert corpus.tokens == len(stream)
    assert corpus.sequences_count == sum(len(document) for shard in shards for document in shard)
    assert [corpus[i].tolist() for i in range(len(corpus))] == documents
    assert [ids.tolist() for ids in corpus] == documents
    assert corpus.stream(0, len(stream)).tolist() == stream
    assert corpus.lengths(0, len(corpus)).tolist() == [len(document) for document in documents]
    contents = [d[:-1] if d and d[-1] == 0 else d for d in documents]
    assert [corpus.content(i).tolist() for i in range(len(corpus))] == contents
    if documents:
        assert corpus[-1].tolist() == documents[-1]
        assert not corpus[0].flags.writeable


@settings(max_examples=60)
@given(shards=SHARDS, data=st.data())
def test_a_slice_is_a_corpus(folder: Path, shards: list[list[list[list[int]]]], data: st.DataObject) -> None:
    corpus = make(folder, shards)
    documents = [document for shard in shards for document in flat(shard)]
    i = data.draw(st.integers(0, len(documents)))
    j = data.draw(st.integers(0, len(documents)))
    part = corpus[i:j]
    wanted = documents[i:j]
    assert [ids.tolist() for ids in part] == wanted
    assert part.tokens == sum(map(len, wanted))
    assert part.stream(0, part.tokens).tolist() == [x for document in wanted for x in document]
    table = part.table()
    assert table.tokens == part.tokens
    assert table.lengths(0, len(wanted)).tolist() == [len(document) for document in wanted]
    ends = np.cumsum([0, *(len(document) for document in wanted)])
    assert table.offsets_at(np.arange(len(wanted) + 1)).tolist() == ends.tolist()
    owner = [k for k, document in enumerate(wanted) for _ in document]
    assert table.at_tokens(np.arange(part.tokens)).tolist() == owner


@settings(max_examples=40)
@given(shards=SHARDS)
def test_sequences_are_a_table_of_the_same_protocol(folder: Path, shards: list[list[list[list[int]]]]) -> None:
    corpus = make(folder, shards)
    sequences = [sequence for shard in shards for document in shard for sequence in document]
    owners = [d for d, document in enumerate(d for shard in shards for d in shard) for _ in document]
    table = corpus.sequences()
    assert table.documents == len(sequences)
    assert table.lengths(0, len(sequences)).tolist() == [len(sequence) for sequence in sequences]
    assert table.owners(np.arange(len(sequences))).tolist() == owners  # type: ignore[attr-defined]


@settings(max_examples=40)
@given(shards=SHARDS, batch=st.integers(1, 8))
def test_identity_does_not_depend_on_shards_or_width(
    folder: Path, shards: list[list[list[list[int]]]], batch: int
) -> None:
    documents = [[[*sequence]] for shard in shards for document in flat(shard) for sequence in [document]]
    one = make(folder, [documents], "int64").identity()
    assert make(folder, shards).identity().digest == one.digest
    hasher = IdentityHasher((), (0,))
    for k in range(0, len(documents), batch):
        part = [document[0] for document in documents[k : k + batch]]
        hasher.update(np.array([i for d in part for i in d], dtype=np.int64), np.array([len(d) for d in part]))
    assert hasher.finish().digest == one.digest


def test_an_array_outlives_its_corpus(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[list(range(1000))], [[7] * 3_000_000]], "int32")
    corpus = tokenreel.open(tmp_path)
    small, large = corpus[0], corpus[1]
    corpus.close()
    del corpus
    gc.collect()
    assert small.sum() == 499_500
    assert large.sum() == 21_000_000


def test_a_shard_that_shrinks_is_an_error(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[[1, 2, 3]], [[4, 5, 6]]])
    corpus = tokenreel.open(tmp_path)
    first = corpus[0]
    os.truncate(tmp_path / "a.bin", 4)
    with pytest.raises(StorageError) as caught:
        corpus[1]
    assert caught.value.code == "STO004"
    assert first.tolist() == [1, 2, 3]


def test_a_root_with_splits_must_be_narrowed(tmp_path: Path) -> None:
    write_pair(tmp_path / "shards/train/part-0", [[[1, 0]]])
    write_pair(tmp_path / "shards/validation/part-0", [[[2, 0]], [[3, 0]]])
    corpus = tokenreel.open(tmp_path)
    assert corpus.splits == ("train", "validation")
    for use in (lambda: len(corpus), lambda: list(corpus), lambda: corpus[0], corpus.table):
        with pytest.raises(SplitError, match="SPL001"):
            use()
    assert len(corpus.split("validation")) == 2
    assert len(tokenreel.open(tmp_path / "train")) == 1
    with pytest.raises(SplitError, match="train, validation") as caught:
        corpus.split("test")
    assert caught.value.code == "SPL002"


def test_other_folders_are_one_corpus_in_byte_order(tmp_path: Path) -> None:
    write_pair(tmp_path / "web/part-10", [[[1]]])
    write_pair(tmp_path / "web/part-9", [[[2]]])
    write_pair(tmp_path / "code/part-0", [[[3]]])
    corpus = tokenreel.open(tmp_path)
    assert [ids.tolist() for ids in corpus] == [[3], [1], [2]]
    assert corpus.splits == ()


@pytest.mark.parametrize("name", ["a", "a.bin", "a.idx"])
def test_one_pair_opens_by_any_of_its_names(tmp_path: Path, name: str) -> None:
    write_pair(tmp_path / "a", [[[1, 2]]])
    write_pair(tmp_path / "b", [[[3]]])
    assert [ids.tolist() for ids in tokenreel.open(tmp_path / name)] == [[1, 2]]


def test_refusals(tmp_path: Path) -> None:
    write_pair(tmp_path / "one/a", [[[1, 2]]])
    write_pair(tmp_path / "two/a", [[[1]]])
    write_pair(tmp_path / "two/b", [[[1]]], "int32")
    (tmp_path / "none").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half/a.bin").write_bytes(b"12")
    cases = [
        ("two", {}, FormatError, "TOK002"),
        ("none", {}, DocumentError, "DOC006"),
        ("absent", {}, StorageError, "STO001"),
        ("one", {"dtype": "int32"}, TokenError, "TOK003"),
        ("one", {"boundary": "suffix=x"}, UsageError, "USE003"),
    ]
    for name, options, kind, code in cases:
        with pytest.raises(kind) as caught:
            tokenreel.open(tmp_path / name, **options)
        assert caught.value.code == code
    with pytest.raises(FormatError, match="half"):
        tokenreel.open(tmp_path / "half")
    with pytest.raises(UsageError, match="USE004"):
        tokenreel.open("s3://bucket/corpus")
    corpus = tokenreel.open(tmp_path / "one")
    for bad in (1, -2):
        with pytest.raises(DocumentError) as missing:
            corpus[bad]
        assert missing.value.code == "DOC001"
        assert isinstance(missing.value, IndexError)
    with pytest.raises(DocumentError, match="DOC003"):
        corpus[::2]
    with pytest.raises(DocumentError, match="DOC004"):
        corpus.stream(0, 3)


def test_a_recorded_boundary_is_not_overruled(tmp_path: Path) -> None:
    write_pair(tmp_path / "shards/train/part-000000", [[[5, 1]]])
    (tmp_path / "run_config.json").write_text('{"eod_id": 1}')
    corpus = tokenreel.open(tmp_path)
    assert corpus.boundary.suffix == (1,)
    with pytest.raises(TokenError, match="TOK004"):
        tokenreel.open(tmp_path, boundary="suffix=2")


def test_unknown_boundaries_refuse_document_level_operations(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[[5, 1]]])
    corpus = replace(tokenreel.open(tmp_path), boundary=tokenreel.Boundary())
    for use in (lambda: corpus[0], lambda: corpus.lengths(0, 1), corpus.table):
        with pytest.raises(DocumentError, match="DOC002"):
            use()
    assert corpus.stream(0, 2).tolist() == [5, 1]


def test_what_a_corpus_prints_is_one_short_line(tmp_path: Path) -> None:
    write_pair(tmp_path / "train/part-0", [[[1, 0]], [[2, 0]]])
    write_pair(tmp_path / "validation/part-0", [[[3, 0]]])
    corpus = tokenreel.open(tmp_path, boundary="suffix=0")
    assert repr(corpus) == f"<Corpus {tmp_path}: train 2 documents, 4 tokens; validation 1 document, 2 tokens>"
    assert repr(corpus.split("train")) == f"<Corpus {corpus.split('train').path}: train 2 documents, 4 tokens>"
    assert repr(corpus.split("train")[1:2]).endswith(": train 1 document from 1>")
