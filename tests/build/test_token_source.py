"""Token corpora as sources: every document whole and its ids unchanged, whatever format and shards; never another tokenizer's."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build.making import tokenizer_file
from tokenreel.build.staging_run import StagedSource, stage_all
from tokenreel.build.staging_settings import settle_mixed
from tokenreel.build.text_batches import Place, Source, open_source
from tokenreel.build.token_source import in_sample
from tokenreel.build.token_source_proof import encodes_to_itself, prove
from tokenreel.build.token_source_units import cut, open_unit
from tokenreel.config.mixed import MixedSourceTable, parse_mixed
from tokenreel.corpus.opening import open_corpus
from tokenreel.errors import DocumentError, RecipeError, SourceError, SplitError
from tokenreel.formats.base import Boundary
from tokenreel.formats.llmc import HEADER_BYTES
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.text import load_tokenizer, tokenizer_from_bytes

GOLDEN = Path(__file__).parents[1] / "golden" / "hobbylm"
EOT = 256
"""End of text of the tokenizer ``bytes``."""
TEXTS = ("One reel.", "é, ü and 日本", "x", "The fourth document is the longest of them.", "five")


def ids_of(text: str) -> list[int]:
    return list(text.encode())


def llmc(path: Path, ids: Sequence[int]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack("<3i", 20240520, 1, len(ids)).ljust(HEADER_BYTES, b"\0")
    path.write_bytes(head + np.array(ids, "<u2").tobytes())
    return path


def megatron(folder: Path, documents: Sequence[Sequence[int]], name: str = "part") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with MegatronWriter(folder / name, np.uint16) as writer:
        writer.add_documents(np.array([i for d in documents for i in d]), np.array([len(d) for d in documents]))
        writer.finish()
    return folder


def stream(texts: Sequence[str] = TEXTS) -> list[int]:
    return [i for text in texts for i in (EOT, *ids_of(text))]


def place(folder: Path, chunk_bytes: int = 1 << 20) -> Place:
    return Place(folder=str(folder), eod_id=EOT, chunk_bytes=chunk_bytes)


def table(path: str = "replay", **more: Any) -> MixedSourceTable:
    return MixedSourceTable(name="replay", kind="tokens", path=path, **more)


def documents(source: Source, start: int = 0) -> list[list[int]]:
    found = []
    for one in source.inputs():
        for batch in source.read(one, start):
            assert batch.texts.to_pylist() == [""] * len(batch)
            assert batch.ids is not None
            assert all(ids.dtype == np.uint32 for ids in batch.ids)
            found += [ids.tolist() for ids in batch.ids]
        assert source.facts(one).whole
    return found


@pytest.mark.parametrize("chunk_bytes", [1, 64, 1 << 20])
def test_documents_of_a_table_come_without_their_boundary(tmp_path: Path, chunk_bytes: int) -> None:
    for name, texts in (("a", TEXTS[:2]), ("b", TEXTS[2:])):
        megatron(tmp_path / "replay", [[*ids_of(text), EOT] for text in texts], name)
    source = open_source(table(boundary=f"suffix={EOT}"), place(tmp_path, chunk_bytes))
    assert documents(source) == [ids_of(text) for text in TEXTS]
    assert [one.path for one in source.inputs()] == ["replay/a.bin", "replay/b.bin"]
    assert documents(source, 1) == [ids_of(text) for text in (TEXTS[1], *TEXTS[3:])]


def test_documents_of_a_stream_run_across_shards(tmp_path: Path) -> None:
    whole = stream()
    for number, (low, high) in enumerate(((0, 14), (14, 15), (15, len(whole)))):
        llmc(tmp_path / "replay" / f"x_{number:06d}.bin", whole[low:high])
    source = open_source(table(boundary=f"prefix={EOT}"), place(tmp_path, 16))
    assert documents(source) == [ids_of(text) for text in TEXTS]
    (one,) = source.inputs()
    assert one.path == "replay"
    rows = [row or {} for batch in source.read(one) for row in batch.metadata or []]
    assert rows[0] == {"source_shard": "x_000000.bin", "source_offset": 0}
    assert rows[2]["source_shard"] == "x_000002.bin"
    assert source.facts(one).position["documents"] == 5


def test_slices_are_split_by_the_inline_token(tmp_path: Path) -> None:
    first, second = stream()[3:20], stream()[20:]
    llmc(tmp_path / "replay" / "s_000000.bin", first)
    llmc(tmp_path / "replay" / "s_000001.bin", second)
    source = open_source(table(split_by_eot=True), place(tmp_path))
    found, flags = [], []
    for one in source.inputs():
        for batch in source.read(one):
            found += [ids.tolist() for ids in batch.ids or []]
            said = [row or {} for row in batch.metadata or []]
            flags += [(row.get("truncated_start", False), row.get("truncated_end", False)) for row in said]
    heads = [ids_of(TEXTS[0])[2:], ids_of(TEXTS[1])[:9], ids_of(TEXTS[1])[9:]]
    assert found == [*heads[:2], heads[2], *map(ids_of, TEXTS[2:])]
    assert flags == [(True, False), (False, True), (True, False), (False, False), (False, False), (False, True)]
    assert sum(map(len, found)) == sum(i != EOT for i in first + second)


def test_golden_slices_of_hobbylm(tmp_path: Path) -> None:
    """The index of 7 documents that the repair of two slices of 100 and 140 ids gives."""
    wanted = json.loads((GOLDEN / "longctx" / "replay_index.json").read_text())
    shutil.copy(GOLDEN / "longctx" / "replay_000000.bin", tmp_path)
    shutil.copy(GOLDEN / "bad" / "replay_index_coarse.json", tmp_path / "replay_index.json")
    unit = open_unit(open_corpus(tmp_path), 0, Boundary(prefix=(50256,), table=True), split=True)
    assert [(k, n) for k, n in zip(unit.edges[:-1], np.diff(unit.edges), strict=True)] == [
        (row["offset"], row["length"]) for row in wanted
    ]
    assert np.flatnonzero(unit.cut_start).tolist() == [0, 2]
    assert np.flatnonzero(unit.cut_end).tolist() == [1, 6]


def slow_pieces(slices: list[list[int]]) -> list[tuple[int, ...]]:
    """Return the pieces of slices, by hand: an empty slice is one empty piece, each 0 begins a piece."""
    pieces: list[list[int]] = []
    for part in slices:
        pieces.append([])
        for k, token in enumerate(part):
            if token == 0 and k:
                pieces.append([])
            pieces[-1].append(token)
    return [tuple(piece) for piece in pieces]


@given(slices=st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=6))
def test_cutting_loses_no_id_and_no_document(slices: list[list[int]]) -> None:
    ids = np.array([i for part in slices for i in part], np.int64)
    stored = np.cumsum([0, *map(len, slices)])
    unit = cut(lambda a, b: ids[a:b], stored, Boundary(prefix=(0,)), split=True, shards=((0, "s"),))
    pieces = [tuple(ids[a:b].tolist()) for a, b in zip(unit.edges[:-1], unit.edges[1:], strict=True)]
    assert pieces == slow_pieces(slices)
    assert unit.cut_start.tolist() == [bool(piece) and piece[0] != 0 for piece in pieces]
    ends = []
    for part in slices:
        mine = slow_pieces([part])
        ends += [False] * (len(mine) - 1) + [bool(part) and (len(mine) > 1 or part[0] != 0)]
    assert unit.cut_end.tolist() == ends
    assert [unit.content(k).tolist() for k in range(len(unit))] == [list(p[1:] if p[:1] == (0,) else p) for p in pieces]


def test_a_sample_is_the_same_in_any_format_and_order(tmp_path: Path) -> None:
    texts = [f"document {k}" for k in range(400)]
    megatron(tmp_path / "one", [[*ids_of(text), EOT] for text in reversed(texts)])
    llmc(tmp_path / "two" / "x_000000.bin", stream(texts))
    sampled = {"sample": 0.25, "seed": 7}
    first = documents(open_source(table("one", boundary=f"suffix={EOT}", **sampled), place(tmp_path, 512)))
    source = open_source(table("two", boundary=f"prefix={EOT}", **sampled), place(tmp_path))
    second = documents(source)
    assert first == second[::-1]
    assert 60 < len(second) < 140
    (one,) = source.inputs()
    assert [int(n) for b in source.read(one) for n in ([] if b.numbers is None else b.numbers)] == [
        k for k, text in enumerate(texts) if ids_of(text) in second
    ]
    assert source.facts(one).position["outside_sample"] == 400 - len(second)
    other = documents(open_source(table("two", boundary=f"prefix={EOT}", sample=0.25, seed=8), place(tmp_path)))
    assert other != second


@given(ids=st.lists(st.integers(0, 300), max_size=5), seed=st.integers(0, 2**63))
def test_a_larger_sample_holds_the_smaller(ids: list[int], seed: int) -> None:
    document = np.array(ids, np.uint32)
    chosen = [in_sample(document, share, seed) for share in (0.0, 0.3, 0.6, 1.0)]
    assert chosen == sorted(chosen)
    assert (chosen[0], chosen[-1]) == (False, True)


# -- the same tokenizer -------------------------------------------------------------------------------------------


def test_another_tokenizer_is_refused_by_its_own_ids(tmp_path: Path) -> None:
    tok = tokenizer_from_bytes(tokenizer_file(tmp_path).read_bytes(), name="tokenizer.json")
    ids, _ = tok.encode_batch(["The reel is recorded once and replayed exactly, frame by frame."])
    eod = tok.specials["<eod>"]
    megatron(tmp_path / "replay", [[*ids.tolist(), eod]] * 3)
    asked = table(boundary=f"suffix={eod}")
    there = Place(folder=str(tmp_path), tokenizer=tok.data, tokenizer_name=tok.name, eod_id=eod)
    source = open_source(asked, there)
    assert documents(source) == [ids.tolist()] * 3
    assert source.facts(source.inputs()[0]).position["tokenizer_proof"] == "3 of 3 documents encode to their ids"
    with pytest.raises(SourceError, match=r"SRC060.*'replay'.*0 of 3; document 0 of part\.bin"):
        open_source(asked, place(tmp_path)).inputs()


def test_what_a_manifest_says_is_proof_or_refusal() -> None:
    tok = load_tokenizer("bytes")
    from tokenreel.text import probe_digest

    assert "sha256" in prove({"sha256": tok.sha256}, tok, (), "s", None)
    assert "probe_sha256" in prove({"sha256": "other", "probe_sha256": probe_digest(tok)}, tok, (), "s", None)
    good = ("f", 0, np.array(ids_of("text"), np.uint32))
    with pytest.raises(SourceError, match=r"SRC060.*in its manifest"):
        prove({"probe_sha256": "0" * 64}, tok, [good], "s", None)
    with pytest.raises(SourceError, match=r"SRC060.*no whole document"):
        prove(None, tok, (), "s", None)
    bad = ("f", 1, np.array([0xFF], np.uint32))
    assert prove(None, tok, [good] * 9 + [bad], "s", None).startswith("9 of 10")
    with pytest.raises(SourceError, match=r"SRC060.*8 of 10; document 1 of f"):
        prove(None, tok, [good] * 8 + [bad] * 2, "s", None)


@given(text=st.text(max_size=40), far=st.integers(257, 1 << 20))
def test_every_text_encodes_to_itself(text: str, far: int) -> None:
    tok = load_tokenizer("bytes")
    ids = np.array(ids_of(text * 90), np.uint32)
    assert encodes_to_itself(tok, ids) is bool(text)
    assert not encodes_to_itself(tok, np.append(ids, np.uint32(far)))


# -- refusals -----------------------------------------------------------------------------------------------------


def test_refusals(tmp_path: Path) -> None:
    for fields in ({"id": "id"}, {"url": "u"}, {"metadata": ["m"]}):
        with pytest.raises(RecipeError, match="RCP006"):
            open_source(table(**fields), place(tmp_path))
    with pytest.raises(RecipeError, match=r"RCP006.*score"):
        open_source(table(), place(tmp_path), ("score",))
    llmc(tmp_path / "replay" / "x_000000.bin", stream())
    with pytest.raises(DocumentError, match="DOC002"):
        open_source(table(), place(tmp_path)).inputs()
    for split in ("train", "validation"):
        megatron(tmp_path / "splits" / "shards" / split, [[*ids_of("a"), EOT]])
    for by_eot in (False, True):
        with pytest.raises(SplitError, match="SPL001"):
            open_source(table("splits", split_by_eot=by_eot), place(tmp_path)).inputs()
    there = open_source(table("splits/train", boundary=f"suffix={EOT}"), place(tmp_path))
    assert documents(there) == [[97]]


def test_an_input_that_changes_is_refused(tmp_path: Path) -> None:
    path = llmc(tmp_path / "replay" / "x_000000.bin", stream())
    source = open_source(table(split_by_eot=True), place(tmp_path, 4))
    (one,) = source.inputs()
    batches = source.read(one)
    next(batches)
    path.write_bytes(path.read_bytes())
    with pytest.raises(SourceError, match="SRC012"):
        source.facts(one)
    with pytest.raises(SourceError, match="SRC012"):
        next(source.read(one))


def test_an_id_beyond_the_vocabulary_is_named(tmp_path: Path) -> None:
    texts = [ids_of(text) for text in TEXTS] * 20
    texts[77] = [500]
    megatron(tmp_path / "replay", [[*ids, EOT] for ids in texts])
    source = open_source(table(boundary=f"suffix={EOT}"), place(tmp_path))
    with pytest.raises(SourceError, match=r"SRC061.*document 77.*0\.\.256.*500"):
        documents(source)


# -- through staging ----------------------------------------------------------------------------------------------


def staged(folder: Path, workers: int = 0, **more: Any) -> StagedSource:
    source = {"name": "replay", "kind": "tokens", "path": "replay", **more}
    recipe = parse_mixed({"tokenizer": {"name": "bytes"}, "documents": {"empty": "drop"}, "source": [source]})
    return stage_all(recipe, folder, folder / "stage", settle_mixed(recipe, folder), workers=workers)[0]


def rows(found: StagedSource) -> list[list[int]]:
    kept = []
    for part in found.parts:
        with pa.ipc.open_file(part.folder / part.receipt.data.path) as file:
            kept += file.read_all().column("ids").to_pylist()
    return kept


def test_staged_ids_are_the_ids_of_the_corpus(tmp_path: Path) -> None:
    texts = [f"text number {k}" for k in range(50)]
    llmc(tmp_path / "replay" / "x_000000.bin", stream(texts[:20]))
    llmc(tmp_path / "replay" / "x_000001.bin", [*stream(texts[20:]), EOT, EOT])
    found = staged(tmp_path, split_by_eot=True)
    assert rows(found) == [ids_of(text) for text in texts]
    assert (found.totals.docs_seen, found.totals.kept, found.totals.dropped) == (52, 50, {"documents/empty": 2})
    receipts = [part.receipt for part in found.parts]
    assert [one.input.position["truncated_end"] for one in receipts] == [1, 1]
    assert staged(tmp_path, split_by_eot=True).built == 0
    shutil.rmtree(tmp_path / "stage")
    assert [part.receipt for part in staged(tmp_path, 1, split_by_eot=True).parts] == receipts
    llmc(tmp_path / "replay" / "x_000001.bin", stream(texts[21:]))
    again = staged(tmp_path, split_by_eot=True)
    assert (again.built, len(rows(again))) == (1, 49)


def test_budget_and_sample_through_staging(tmp_path: Path) -> None:
    texts = [f"text number {k:02d}" for k in range(50)]
    for number in range(5):
        megatron(tmp_path / "replay", [ids_of(text) for text in texts[number * 10 : number * 10 + 10]], f"p{number}")
    found = staged(tmp_path, budget=45)
    assert (len(rows(found)), len(found.parts), found.totals.complete) == (3, 1, True)
    # An input of which no document is in the sample is no empty file.
    few = staged(tmp_path, sample=0.06, seed=3)
    assert 0 < len(rows(few)) < 10
    assert sum(part.receipt.input.position["outside_sample"] for part in few.parts) == 50 - len(rows(few))
    assert min(part.receipt.docs_seen for part in few.parts) == 0
