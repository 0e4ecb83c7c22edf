"""One unit: EOD and selection against an obvious reference, policies, invariants; chunks change nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenreel
from tests.build.making import CORPUS, tokenizer_file, tree, write_jsonl
from tokenreel.build.records import SourceShape
from tokenreel.build.unit import Job, Plan, build_unit, select, with_eod
from tokenreel.corpus.receipts import DecodedBack, contradictions
from tokenreel.corpus.splits import HashMod, NoSplit, SplitRule
from tokenreel.errors import SourceError, TokenError, TokenizerError, TokenreelError
from tokenreel.text import TokenizerSpec, load_tokenizer, open_engine
from tokenreel.text.engines import Encoder

documents = st.lists(st.lists(st.integers(0, 65535), max_size=200), max_size=30)


@given(documents, st.integers(0, 65535), st.sampled_from(["<u2", "<i4"]))
def test_with_eod(given_documents: list[list[int]], eod: int, dtype: str) -> None:
    flat = np.array([one for document in given_documents for one in document], np.uint32)
    lengths = np.array([len(document) for document in given_documents], np.int64)
    ids, stored = with_eod(flat, lengths, eod, np.dtype(dtype))
    assert ids.tolist() == [one for document in given_documents for one in [*document, eod]]
    assert stored.tolist() == [len(document) + 1 for document in given_documents]
    assert ids.dtype == np.dtype(dtype)


@given(
    st.integers(0, 300).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 4), min_size=n, max_size=n), st.lists(st.booleans(), min_size=n, max_size=n)
        )
    )
)
def test_select(drawn: tuple[list[int], list[bool]]) -> None:
    lengths, mask = (np.array(one, kind) for one, kind in zip(drawn, (np.int64, np.bool_), strict=True))
    ids = np.arange(int(lengths.sum()))
    edges = np.concatenate(([0], np.cumsum(lengths)))
    wanted = [ids[edges[k] : edges[k + 1]].tolist() for k in np.flatnonzero(mask)]
    found = []
    for run_ids, run_lengths in select(ids, lengths, mask):
        parts = np.split(run_ids, np.cumsum(run_lengths)[:-1]) if len(run_lengths) else []
        found += [part.tolist() for part in parts]
    assert found == wanted


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    return open_engine(load_tokenizer(TokenizerSpec.parse({"path": str(tokenizer_file(tmp_path)), "eod": "<eod>"})))


def job(path: Path) -> Job:
    data = path.read_bytes()
    return Job(
        part="part-000000",
        shape=SourceShape(name="web", format="jsonl", id="id"),
        location=str(path),
        path=path.name,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def plan(out: Path, **changes: Any) -> Plan:
    (out / "receipts").mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "out": str(out),
        "layout": "native",
        "run_config_sha256": "0" * 64,
        "dtype": "uint16",
        "eod_id": 1,
        "special_in_text": "text",
        "recheck": 1,
        "empty": "keep",
        "empty_inputs": "error",
        "chunk_bytes": 1 << 20,
        "lossless": True,
        **changes,
    }
    return Plan(**settings)


TEXTS = [*CORPUS, "", "a <eod> b", "", "English document 80"]


@pytest.mark.parametrize("rule", [HashMod(), HashMod(3), NoSplit()])
@pytest.mark.parametrize("empty", ["keep", "drop"])
def test_chunks_change_nothing(tmp_path: Path, encoder: Encoder, rule: SplitRule, empty: str) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    trees = []
    for chunk_bytes in (1, 100, 1 << 20):
        out = tmp_path / f"out{chunk_bytes}"
        build_unit(job(path), plan(out, empty=empty, chunk_bytes=chunk_bytes), encoder, rule)
        trees.append({name: digest for name, digest in tree(out).items() if not name.startswith(".documents")})
    assert trees[0] == trees[1] == trees[2]


def test_documents_are_the_encoded_texts(tmp_path: Path, encoder: Encoder) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    receipt = build_unit(job(path), plan(tmp_path / "out"), encoder, HashMod())
    assert list(contradictions(receipt, itemsize=2)) == []
    found = {name: [] for name in ("train", "validation")}
    for name, ids in found.items():
        corpus = tokenreel.open(tmp_path / "out" / "shards" / name / "part-000000")
        ids += [document.tolist() for document in corpus]
    wanted: dict[str, list[list[int]]] = {"train": [], "validation": []}
    for text in TEXTS:
        wanted["validation" if text == "English document 80" else "train"].append(
            [*encoder.encode([text])[0].tolist(), 1]
        )
    assert found == wanted
    assert receipt.special_in_text == 1
    assert receipt.input is not None
    assert receipt.input.rows == len(TEXTS)


def test_dropped_documents_are_counted(tmp_path: Path, encoder: Encoder) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    receipt = build_unit(job(path), plan(tmp_path / "out", empty="drop"), encoder, NoSplit())
    assert receipt.dropped == {"empty": 2, "blank_lines": 0}
    assert receipt.splits["train"].documents == len(TEXTS) - 2
    assert list(contradictions(receipt)) == []


def test_sources_are_counted_apart(tmp_path: Path, encoder: Encoder) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"text": "ab", "id": str(k), "lang": "fa" if k % 3 else "en"} for k in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shape = SourceShape(name="web", format="jsonl", source_field="lang")
    one = job(path)
    given = Job(part=one.part, shape=shape, location=one.location, path=one.path, bytes=one.bytes, sha256=one.sha256)
    receipt = build_unit(given, plan(tmp_path / "out"), encoder, HashMod(2))
    assert list(receipt.by_source) == ["en", "fa"]
    assert sum(counts.documents for counts in receipt.by_source["en"].values()) == 3
    assert list(contradictions(receipt)) == []


def outcome(tmp_path: Path, encoder: Encoder, texts: list[str], **changes: Any) -> TokenreelError:
    path = write_jsonl(tmp_path / "a.jsonl", texts)
    out = tmp_path / "out"
    with pytest.raises(TokenreelError) as caught:
        build_unit(job(path), plan(out, **{"chunk_bytes": 20, **changes}), encoder, NoSplit())
    assert list(tree(out)) == []
    return caught.value


def test_an_empty_document_may_be_an_error(tmp_path: Path, encoder: Encoder) -> None:
    error = outcome(tmp_path, encoder, ["a", "b", "", "c"], empty="error")
    assert isinstance(error, SourceError)
    assert (error.code, error.where["line"], error.where["document"]) == ("SRC016", 3, 2)


def test_an_empty_input_is_an_error_or_a_part_without_shards(tmp_path: Path, encoder: Encoder) -> None:
    assert outcome(tmp_path, encoder, []).code == "SRC009"
    path = write_jsonl(tmp_path / "a.jsonl", [])
    build_unit(job(path), plan(tmp_path / "out", empty_inputs="allow"), encoder, NoSplit())
    assert list(tree(tmp_path / "out")) == ["receipts/part-000000.json"]


def test_eod_inside_a_text_names_record_and_line(tmp_path: Path) -> None:
    tok = load_tokenizer(str(tokenizer_file(tmp_path)))
    eod = int(tok.encode_batch(["c"])[0][0])
    error = outcome(tmp_path, open_engine(tok), ["ab", "", "ab", "abc"], eod_id=eod, empty="drop")
    assert isinstance(error, TokenError)
    assert (error.code, error.where["line"], error.where["document"], error.found) == ("TOK012", 4, 3, eod)


def test_ids_beyond_the_dtype_are_refused(tmp_path: Path, encoder: Encoder) -> None:
    text = next(text for text in CORPUS if encoder.encode([text])[0].max() > 255)
    error = outcome(tmp_path, encoder, ["a", text], dtype="uint8", eod_id=1)
    assert isinstance(error, TokenError)
    assert (error.code, error.where["document"]) == ("TOK010", 1)


def test_special_tokens_refused_name_record_and_line(tmp_path: Path) -> None:
    tok = load_tokenizer(str(tokenizer_file(tmp_path)))
    encoder = open_engine(tok, special_in_text="error")
    error = outcome(tmp_path, encoder, ["a", "b", "c <eod>"], special_in_text="error")
    assert (error.code, error.where["line"], error.where["path"]) == ("TKZ006", 3, "a.jsonl")


class _Wrong:
    """An engine that gets one document wrong."""

    honours_special = False

    def __init__(self, tok: Any) -> None:
        self._tok = tok

    def encode(self, texts: Any) -> Any:
        ids, lengths = self._tok.encode_batch(texts)
        wrong = np.array([text == "wrong" for text in texts.to_pylist()], np.bool_)
        return ids + np.repeat(wrong, lengths).astype(np.uint32), lengths


def test_the_recheck_names_the_document(tmp_path: Path) -> None:
    tok = load_tokenizer(str(tokenizer_file(tmp_path)))
    encoder = Encoder(tok, _Wrong(tok), "wrong", "0", "text")
    error = outcome(tmp_path, encoder, ["right one", "right two", "", "wrong"], recheck=2, empty="drop", eod_id=0)
    # Of the kept documents it is number 2; of the records, number 3.
    assert isinstance(error, TokenizerError)
    assert (error.code, error.where["document"], error.where["line"]) == ("TKZ008", 3, 4)


def test_documents_out_of_turn_are_not_rechecked(tmp_path: Path) -> None:
    tok = load_tokenizer(str(tokenizer_file(tmp_path)))
    encoder = Encoder(tok, _Wrong(tok), "wrong", "0", "text")
    path = write_jsonl(tmp_path / "a.jsonl", ["right", "wrong"])
    build_unit(job(path), plan(tmp_path / "out", recheck=2, eod_id=0), encoder, NoSplit())


def test_what_the_receipt_says_of_loss(tmp_path: Path, encoder: Encoder) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["a"] * 7)
    receipt = build_unit(job(path), plan(tmp_path / "o", recheck=3, lossless=False), encoder, NoSplit())
    assert receipt.lossless == DecodedBack(3, 3)
    receipt = build_unit(job(path), plan(tmp_path / "o", recheck=3), encoder, NoSplit())
    assert receipt.lossless is True


def test_an_old_receipt_goes_before_anything_else(tmp_path: Path, encoder: Encoder) -> None:
    good = write_jsonl(tmp_path / "good.jsonl", ["a"])
    build_unit(job(good), plan(tmp_path / "out"), encoder, NoSplit())
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": 1}\n')
    with pytest.raises(SourceError):
        build_unit(job(bad), plan(tmp_path / "out"), encoder, NoSplit())
    assert not (tmp_path / "out" / "receipts" / "part-000000.json").exists()


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
@pytest.mark.parametrize("empty", ["keep", "drop"])
def test_a_text_that_is_empty_once_special_tokens_are_dropped(tmp_path: Path, empty: str, chunk_bytes: int) -> None:
    tok = load_tokenizer(str(tokenizer_file(tmp_path)))
    encoder = open_engine(tok, special_in_text="drop")
    given_texts = ["ab", "<eod>", "", "<eod><pad>", "c <eod> d", "<eo<eod>d>"]
    path = write_jsonl(tmp_path / "a.jsonl", given_texts)
    out = tmp_path / "out"
    changes: dict[str, Any] = {"special_in_text": "drop", "empty": empty, "chunk_bytes": chunk_bytes}
    receipt = build_unit(job(path), plan(out, **changes), encoder, NoSplit())
    left = ["ab", "", "", "", "c  d", ""]
    wanted = [text for text in left if text or empty == "keep"]
    documents = [tok.decode(one[:-1]) for one in tokenreel.open(out / "shards" / "train" / "part-000000")]
    assert documents == wanted
    assert receipt.dropped == {"empty": len(left) - len(wanted), "blank_lines": 0}
    assert receipt.special_in_text == 6
    assert list(contradictions(receipt, itemsize=2)) == []


def test_a_text_that_is_empty_once_special_tokens_are_dropped_may_be_an_error(tmp_path: Path) -> None:
    encoder = open_engine(load_tokenizer(str(tokenizer_file(tmp_path))), special_in_text="drop")
    texts = ["a", "b <eod>", "<eod>", "c", "d"]
    for chunk_bytes in (1, 1 << 20):
        error = outcome(tmp_path, encoder, texts, empty="error", special_in_text="drop", chunk_bytes=chunk_bytes)
        assert (error.code, error.where["line"], error.where["document"]) == ("SRC016", 3, 2)
    assert "special tokens" in error.message


def test_eod_inside_documents_is_counted_where_it_is_allowed(tmp_path: Path, encoder: Encoder) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["a <eod> b", "c", "<eod><eod>", "<pad>"])
    special = open_engine(encoder.tok, special_in_text="special")
    receipt = build_unit(job(path), plan(tmp_path / "o", special_in_text="special"), special, HashMod(2))
    assert receipt.eod_inside == 3
    ids = np.concatenate([np.fromfile(one, "<u2") for one in (tmp_path / "o" / "shards").rglob("*.bin")])
    assert int((ids == 1).sum()) == 4 + 3
    assert json.loads((tmp_path / "o" / "receipts" / "part-000000.json").read_bytes())["eod_inside"] == 3
    receipt = build_unit(job(path), plan(tmp_path / "o"), encoder, HashMod(2))
    assert receipt.eod_inside is None


def test_a_byte_of_the_text_is_not_called_a_byte_of_the_file(tmp_path: Path) -> None:
    encoder = open_engine(load_tokenizer(str(tokenizer_file(tmp_path))), special_in_text="error")
    error = outcome(tmp_path, encoder, ["a", "é <eod>"], special_in_text="error")
    assert error.code == "TKZ006"
    assert "offset" not in error.where
    assert "byte 3 of the document's text" in error.message
