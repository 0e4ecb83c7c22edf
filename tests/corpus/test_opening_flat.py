"""Corpora of files without documents of their own: recognised, scanned, delimited by tables, or refused."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenreel
from tests.corpus.pairs import write_pair
from tokenreel.convert.adopt import adopt
from tokenreel.corpus.opening import open_corpus
from tokenreel.corpus.scanning import find_pattern, scan_edges, separator_inside
from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.errors import DocumentError, FormatError, SplitError, TokenError, TokenreelError
from tokenreel.formats import Boundary

GOLDEN = Path(__file__).parents[1] / "golden"
LONG = GOLDEN / "hobbylm" / "longctx"
EOT = "prefix=50256"


def code_of(path: Path, **options: Any) -> str:
    with pytest.raises(TokenreelError) as caught:
        open_corpus(path, **options)
    return caught.value.code


@pytest.fixture
def llmc(tmp_path: Path) -> Path:
    """The three golden shards as one stream."""
    folder = tmp_path / "llmc"
    folder.mkdir()
    for k, name in enumerate(("val_000000", "train_000001", "train_000002")):
        shutil.copy(GOLDEN / "llmc" / f"fineweb_{name}.bin", folder / f"part_{k}.bin")
    return folder


@pytest.fixture
def long(tmp_path: Path) -> Path:
    shutil.copytree(LONG, tmp_path / "long")
    return tmp_path / "long"


# ---- llm.c -----------------------------------------------------------------------------------------------------------


def test_documents_go_on_from_shard_to_shard(llmc: Path) -> None:
    expected = json.loads((GOLDEN / "llmc/documents.json").read_text())["documents_prefix_50256"]
    corpus = open_corpus(llmc, boundary=EOT)
    assert [ids.tolist() for ids in corpus] == expected
    assert [corpus[k].tolist() for k in range(len(corpus))] == expected
    assert corpus[-1].tolist() == expected[-1]
    assert corpus.content(0).tolist() == expected[0][1:]
    assert corpus.shard_tokens == (128, 128, 88)
    assert (corpus.tokens, corpus.documents, corpus.sequences_count) == (344, 10, 10)
    assert corpus.boundary == Boundary(prefix=(50256,))
    with pytest.raises(DocumentError, match="DOC001"):
        corpus[10]


def test_slices_and_tables(llmc: Path) -> None:
    whole = open_corpus(llmc, boundary=EOT)
    part = whole[3:7]
    assert [ids.tolist() for ids in part] == [whole[k].tolist() for k in range(3, 7)]
    assert part.tokens == sum(len(whole[k]) for k in range(3, 7))
    table, at = part.table(), 0
    assert table.lengths(0, 4).tolist() == [len(whole[k]) for k in range(3, 7)]
    for k in range(4):
        assert table.offsets_at(np.array([k, k + 1])).tolist() == [at, at + len(part[k])]
        assert table.at_tokens(np.array([at])).tolist() == [k]
        assert part.stream(at, at + len(part[k])).tolist() == part[k].tolist()
        at += len(part[k])
    assert table.key.kind == "tables"
    assert table.key != whole.table().key
    assert len(whole[4:4]) == 0
    assert list(whole[4:4].batches()) == []
    assert part[1:3][0].tolist() == whole[4].tolist()
    assert part.sequences().documents == 4
    with pytest.raises(DocumentError, match="DOC001"):
        table.lengths(0, 5)
    with pytest.raises(DocumentError, match="DOC004"):
        table.at_tokens(np.array([part.tokens]))


def test_batches_cover_every_document_once(llmc: Path) -> None:
    whole = open_corpus(llmc, boundary=EOT)
    for most in (1, 40, 100, 1000):
        got = list(whole.batches(max_tokens=most))
        assert np.concatenate([ids for ids, _ in got]).tolist() == whole.stream(0, 344).tolist()
        assert [n for _, lengths in got for n in lengths.tolist()] == whole.lengths(0, 10).tolist()
        assert all(len(ids) <= most or len(lengths) == 1 for ids, lengths in got)


def test_the_same_documents_have_the_same_identity(llmc: Path, tmp_path: Path) -> None:
    flat = open_corpus(llmc, boundary=EOT)
    write_pair(tmp_path / "pair", [[ids.tolist()] for ids in flat])
    assert open_corpus(tmp_path / "pair.idx", boundary=EOT).identity() == flat.identity()
    raw = open_corpus(GOLDEN / "raw/train.bin", dtype="uint16", boundary="suffix=50256")
    npy = open_corpus(GOLDEN / "raw/edufineweb_train_000001.npy", boundary=EOT)
    assert raw.identity() == npy.identity() == flat.identity()
    assert flat.statistics().documents == 10


def test_unknown_boundaries(llmc: Path) -> None:
    corpus = open_corpus(llmc)
    assert (len(corpus), corpus.tokens, corpus.boundary.known) == (1, 344, False)
    assert corpus.stream(120, 140).tolist() == open_corpus(llmc, boundary=EOT).stream(120, 140).tolist()
    for asked in (lambda: corpus[0], corpus.table, corpus.sequences, lambda: corpus[0:1], lambda: corpus.lengths(0, 1)):
        with pytest.raises(DocumentError, match="DOC002"):
            asked()
    table = corpus.stream_table()
    assert (table.tokens, table.key.kind, table.key.tokens) == (344, "files", 344)
    with pytest.raises(DocumentError, match="DOC002"):
        table.offsets_at(np.array([0]))
    assert corpus.identity().documents == 1
    # What the files are does not depend on what is said of their documents, and is not their names.
    assert open_corpus(llmc, boundary=EOT).stream_table().key == table.key
    (llmc / "part_2.bin").rename(llmc / "part_9.bin")
    assert open_corpus(llmc).stream_table().key == table.key
    data = bytearray((llmc / "part_0.bin").read_bytes())
    data[1030] ^= 1
    (llmc / "part_0.bin").write_bytes(data)
    assert open_corpus(llmc).stream_table().key != table.key


def test_names_say_splits(tmp_path: Path) -> None:
    for name in ("fineweb_val_000000", "fineweb_train_000001", "fineweb_train_000002"):
        shutil.copy(GOLDEN / f"llmc/{name}.bin", tmp_path / f"{name}.bin")
    root = open_corpus(tmp_path, boundary=EOT)
    assert root.splits == ("train", "val")
    with pytest.raises(SplitError, match="SPL001"):
        len(root)
    train = root.split("train")
    assert (train.tokens, len(train.entries)) == (216, 2)
    # It begins inside a document: what is left of it counts as one, and lacks the prefix.
    assert train[0].tolist() == train.stream(0, 17).tolist()
    assert (len(train), len(root.split("val"))) == (7, 4)
    assert open_corpus(tmp_path / "fineweb_val_000000.bin").tokens == 128


def test_every_bad_shard_is_refused_when_opened(tmp_path: Path) -> None:
    codes = {}
    for path in sorted((GOLDEN / "llmc/bad").glob("*.bin")):
        folder = tmp_path / path.stem
        folder.mkdir()
        shutil.copy(path, folder / "x.bin")
        if path.stem == "token_out_of_vocab":
            with pytest.raises(TokenError) as caught:
                open_corpus(folder, vocab=50257).stream(0, 1)
            assert (caught.value.where["shard"], caught.value.found) == ("x", 50300)
            assert open_corpus(folder, vocab=50304).stream(0, 128).max() == 50300
            codes[path.stem] = caught.value.code
        else:
            codes[path.stem] = code_of(folder)
            assert code_of(folder / "x.bin") == codes[path.stem]
    assert len(codes) == 7
    assert len(set(codes.values())) == 7
    assert code_of(GOLDEN / "llmc/hellaswag_val.bin") == "LMC003"


def test_a_declared_boundary_must_occur(llmc: Path) -> None:
    for boundary, code in (("prefix=50255", "FLT008"), ("prefix=50256,suffix=50256", "FLT007")):
        corpus = open_corpus(llmc, boundary=boundary)
        assert corpus.tokens == 344
        with pytest.raises(FormatError, match=code):
            len(corpus)


def test_it_prints_as_one_short_line(llmc: Path) -> None:
    corpus = open_corpus(llmc, boundary=EOT)
    assert repr(corpus) == f"<StreamCorpus {llmc}: 344 tokens>"
    assert repr(corpus[2:4]) == f"<StreamCorpus {llmc}: 344 tokens, documents from 2>"


def test_adopted_files_need_no_boundary(llmc: Path, long: Path) -> None:
    for folder in (llmc, long):
        before = open_corpus(folder, boundary=EOT)
        documents = [ids.tolist() for ids in before]
        adopt(folder, boundary=EOT, accept=["TOK040"])
        corpus = open_corpus(folder)
        assert isinstance(corpus, StreamCorpus)
        assert [ids.tolist() for ids in corpus] == documents
        assert corpus.recorded_identity == {"": before.identity().digest}
        assert corpus.sidecars == before.sidecars  # type: ignore[attr-defined]
        assert corpus.boundary == before.boundary


def test_one_format_in_a_folder(llmc: Path) -> None:
    write_pair(llmc / "pair", [[[1, 2]]])
    assert code_of(llmc) == "FLT006"


# ---- headerless files and .npy ----------------------------------------------------------------------------------------


def test_a_headerless_file_needs_its_dtype(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "raw/train.bin", tmp_path / "train.bin")
    for path in (tmp_path, tmp_path / "train.bin", tmp_path / "train"):
        assert code_of(path) == "FLT001"
        assert code_of(path, dtype="int64") == "FLT001"
    with pytest.raises(FormatError, match='dtype="uint16"'):
        open_corpus(tmp_path)
    tokens = json.loads((GOLDEN / "raw/tokens.json").read_text())["train.bin"]
    for options in ({"dtype": "uint16"}, {"vocab": 50257}):
        corpus = open_corpus(tmp_path / "train.bin", **options)
        assert corpus.dtype == np.uint16
        assert corpus.stream(0, corpus.tokens).tolist() == tokens
    assert code_of(tmp_path, dtype="uint32") == "FLT003"
    assert code_of(tmp_path, vocab=100) == "FLT001"
    (tmp_path / "val.bin").write_bytes(b"abc")
    assert code_of(tmp_path, dtype="uint16") == "FLT002"


def test_train_and_val_are_splits(tmp_path: Path) -> None:
    for name in ("train", "val"):
        np.array([7, 300, 301], "<u2").tofile(tmp_path / f"{name}.bin")
    assert open_corpus(tmp_path, dtype=np.uint16).splits == ("train", "val")
    assert open_corpus(tmp_path / "train", dtype=np.uint16).tokens == 3


def test_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "a_train_0.npy", np.array([1, 5, 1, 6], "<u2"))
    corpus = open_corpus(tmp_path / "a_train_0.npy", boundary="prefix=1")
    assert [ids.tolist() for ids in corpus] == [[1, 5], [1, 6]]
    assert open_corpus(tmp_path).splits == ("train",)
    assert code_of(tmp_path, dtype="uint32") == "TOK003"
    (tmp_path / "a_train_1.npy").write_bytes(b"no header")
    assert code_of(tmp_path) == "FLT001"


# ---- HobbyLM's tables ---------------------------------------------------------------------------------------------------


def test_tables_delimit(long: Path) -> None:
    corpus = open_corpus(long, boundary=EOT)
    assert (corpus.boundary.table, len(corpus), corpus.tokens) == (True, 14, 546)
    replay = open_corpus(long / "replay_000000.bin")
    assert [i.tolist() for i in replay] == json.loads((GOLDEN / "hobbylm/longctx_documents.json").read_text())["replay"]
    wiki = open_corpus(long / "wiki_000001.bin")
    assert len(wiki) == 1
    assert replay.table().lengths(0, 7).tolist() == [81, 19, 16, 15, 2, 28, 79]


def test_the_two_tables_that_went_wrong(long: Path) -> None:
    index = long / "replay_index.json"
    shutil.copy(GOLDEN / "hobbylm/bad/replay_index_offset_collision.json", index)
    with pytest.raises(FormatError, match="SID002"):
        open_corpus(long / "replay_000000.bin").table()
    shutil.copy(GOLDEN / "hobbylm/bad/replay_index_coarse.json", index)
    with pytest.raises(FormatError, match="SID007") as caught:
        len(open_corpus(long / "replay_000000.bin", boundary=EOT))
    assert caught.value.where["document"] == 0


REPLAY = json.loads((LONG / "replay_index.json").read_text())


@pytest.mark.parametrize(
    ("code", "entries"),
    [
        ("SID001", {"nothing": 1}),
        ("SID001", [{"shard": "replay_000000.bin", "offset": 0}]),
        ("SID001", [["replay_000000.bin", 0, True]]),
        ("SID001", [["replay_000000.bin", 0, 1 << 70]]),
        ("SID001", ["replay_000000.bin"]),
        ("SID002", [["replay_000000.bin", -1, 241]]),
        ("SID002", [["replay_000000.bin", 0, 241]]),
        ("SID003", REPLAY[1:]),
        ("SID003", REPLAY[:-1]),
        ("SID003", [*REPLAY, REPLAY[0]]),
        ("SID005", [{**REPLAY[0], "file": "replay_000000.bin"}]),
        ("SID005", [{**REPLAY[0], "meta": {"offset": 3}}]),
        ("SID006", [["replay_000001.bin", 0, 1]]),
        ("SID006", []),
    ],
)
def test_wrong_tables_are_refused(long: Path, code: str, entries: object) -> None:
    (long / "replay_index.json").write_text(json.dumps(entries))
    corpus = open_corpus(long / "replay_000000.bin")
    assert corpus.stream(0, 240).size == 240  # the stream needs no table
    with pytest.raises(FormatError, match=code):
        len(corpus)


def test_other_spellings_of_a_table(long: Path) -> None:
    rows = [[e["shard"], e["offset"], e["length"]] for e in reversed(REPLAY)]
    named = [{"file": s, "start": o, "n_tokens": n} for s, o, n in rows]
    for entries in (rows, {"documents": rows}, named):
        (long / "replay_index.json").write_text(json.dumps(entries))
        assert len(open_corpus(long / "replay_000000.bin")) == 7


def test_tables_that_disagree_and_keys_twice(long: Path) -> None:
    docs = long / "wiki_docs.jsonl"
    lines = docs.read_text().splitlines()
    docs.write_text("\n".join(lines[:-1]))
    with pytest.raises(FormatError, match="SID004"):
        len(open_corpus(long / "wiki_000000.bin"))
    docs.write_text(lines[0].replace('"offset": 0', '"offset": 9, "offset": 0'))
    with pytest.raises(TokenreelError, match="MAN002"):
        len(open_corpus(long / "wiki_000000.bin"))
    (long / "wiki_index.json").unlink()
    docs.write_text("\n".join(lines))
    assert len(open_corpus(long / "wiki_000000.bin")) == 2


# ---- scanning -----------------------------------------------------------------------------------------------------------

IDS = st.lists(st.integers(0, 3), max_size=60)


def slow_find(ids: list[int], pattern: tuple[int, ...]) -> list[int]:
    found, k = [], 0
    while k <= len(ids) - len(pattern):
        if tuple(ids[k : k + len(pattern)]) == pattern:
            found.append(k)
            k += len(pattern)
        else:
            k += 1
    return found


@given(IDS, st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), st.integers(1, 70))
def test_patterns_are_found_across_steps(ids: list[int], pattern: tuple[int, ...], step: int) -> None:
    array = np.array(ids, dtype=np.int64)
    assert find_pattern(lambda a, b: array[a:b], len(ids), pattern, step).tolist() == slow_find(ids, pattern)


@given(IDS, st.sampled_from([Boundary((1,), ()), Boundary((), (1,)), Boundary((1,), (2,)), Boundary((1, 1), ())]))
def test_scanning_tiles_the_stream(ids: list[int], boundary: Boundary) -> None:
    array = np.array(ids, dtype=np.int64)
    begins, ends = (slow_find(ids, p) if p else [] for p in (boundary.prefix, boundary.suffix))
    if not begins and not ends and ids:
        with pytest.raises(FormatError, match="FLT008"):
            scan_edges(lambda a, b: array[a:b], len(ids), boundary, "x")
        return
    edges = scan_edges(lambda a, b: array[a:b], len(ids), boundary, "x")
    expected = {0, len(ids), *begins, *(k + len(boundary.suffix) for k in ends)}
    assert edges.tolist() == sorted(expected)
    assert separator_inside(lambda a, b: array[a:b], edges, boundary) is None
    assert all(b > a for a, b in pairwise(edges.tolist()))


def test_separators_inside() -> None:
    array = np.array([1, 5, 1, 1, 6, 1])
    for boundary, edges, expected in (
        (Boundary((1,), (1,)), [0, 3, 6], None),  # BOS == EOS: each in its place
        (Boundary((1,), (1,)), [0, 6], (0, 2)),
        (Boundary((1,), ()), [0, 3, 6], (0, 2)),
        (Boundary((), (1,)), [0, 1, 3, 4, 6], None),
        (Boundary((), (1,)), [0, 3, 6], (0, 0)),
    ):
        assert separator_inside(lambda a, b: array[a:b], np.array(edges), boundary) == expected


def test_public_name() -> None:
    assert tokenreel.open(GOLDEN / "raw/edufineweb_train_000001.npy").tokens == 344
