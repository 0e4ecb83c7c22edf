from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.text.made import (
    NAMES,
    byte_bpe,
    edited,
    made,
    sentencepiece_model,
    shared_tokenizer,
    trained_json,
    unigram_json,
    wordpiece_json,
)  # fmt: skip
from tokenreel.errors import RecipeError, StorageError, TokenizerError
from tokenreel.text import TokenizerSpec, decodes_back, load_tokenizer, tokenizer_from_bytes
from tokenreel.text.probe_texts import probe_texts

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


def documents(encoded):
    ids, lengths = encoded
    return np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []


@pytest.mark.parametrize("name", NAMES)
def test_batches_equal_single_texts(name):
    tok = made(name)
    texts = ["", "one two", "é\n\n中", "", "x" * 3000]
    ids, lengths = tok.encode_batch(texts)
    assert ids.dtype == np.uint32
    assert lengths.dtype == np.int64
    assert lengths[0] == 0
    for text, found in zip(texts, documents((ids, lengths)), strict=True):
        assert np.array_equal(tok.encode_batch([text])[0], found)
    empty = tok.encode_batch([])
    assert [len(part) for part in empty] == [0, 0]
    assert int(ids.max()) <= tok.largest_id


@pytest.mark.parametrize("name", NAMES)
def test_lossless_means_that_texts_come_back(name):
    tok = made(name)
    texts = list(probe_texts())
    back = [decodes_back(tok, text, ids) for text, ids in zip(texts, documents(tok.encode_batch(texts)), strict=True)]
    assert tok.lossless == (name in ("byte-bpe", "bytes"))
    assert all(back) == tok.lossless
    assert bool(tok.why_lossy) != tok.lossless


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, max_size=5), st.booleans())
def test_lossless_on_any_text(texts, special):
    for tok in (byte_bpe(), load_tokenizer("bytes")):
        texts = [*texts, "<|endoftext|>"]
        for text, ids in zip(texts, documents(tok.encode_batch(texts, special=special)), strict=True):
            assert tok.decode(ids) == text


def test_table_decode_equals_the_reference():
    tok = byte_bpe()
    rng = np.random.default_rng(5)
    for _ in range(200):
        ids = rng.integers(0, tok.largest_id + 1, 12)
        assert tok.decode(ids) == tok._plain.decode(ids.tolist(), skip_special_tokens=False)


@given(TEXT)
def test_bytes_are_bytes(text):
    tok = load_tokenizer("bytes")
    assert tok.encode_batch([text])[0].tolist() == list(text.encode())


def test_bytes_as_a_file_is_the_same_tokenizer():
    tok = load_tokenizer("bytes")
    twin = tokenizer_from_bytes(tok.data, name="twin")
    assert (twin.vocab_size, twin.largest_id, twin.specials, twin.lossless) == (257, 256, tok.specials, True)
    texts = [*probe_texts(), "a<|endoftext|><|endoftext|>b"]
    for special in (False, True):
        for mine, theirs in zip(
            tok.encode_batch(texts, special=special), twin.encode_batch(texts, special=special), strict=True
        ):
            assert np.array_equal(mine, theirs)
    assert all(tok.id_to_token(k) == twin.id_to_token(k) for k in range(257))
    assert all(tok.token_to_id(twin.id_to_token(k)) == k for k in range(257))
    assert tok.sha256 == "5d43d5398ddc87473a9e74678e3820c27b3f610e87385d2b5939ca3cfa85ac5d"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"normalizer": {"type": "NFC"}}, "normalises"),
        ({"normalizer": {"type": "Sequence", "normalizers": []}}, ""),
        ({"pre_tokenizer": None}, "no byte-level step"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}, "space before"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}},
            "removes",
        ),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}},
            "",
        ),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}]}}, "WhitespaceSplit"),
        ({"decoder": None}, "decoder"),
        ({"added_tokens": [{"id": 0, "content": "<|endoftext|>", "single_word": False, "lstrip": True, "rstrip": False,
                            "normalized": False, "special": True}]}, "whitespace"),
        ({"added_tokens": [{"id": 420, "content": "éé", "single_word": False, "lstrip": False, "rstrip": False,
                            "normalized": False, "special": False}]}, "as if it spelled bytes"),
    ],
)  # fmt: skip
def test_lossless_is_decided_from_the_file(changes, why):
    tok = edited(**changes)
    assert why in tok.why_lossy
    assert tok.lossless == (not why)
    texts = ["a b  c", " x", "né 12 e\u0301", "<|endoftext|>  y"]
    if tok.lossless:
        assert all(decodes_back(tok, t, i) for t, i in zip(texts, documents(tok.encode_batch(texts)), strict=True))


def test_a_missing_byte_is_not_lossless():
    config = json.loads(trained_json())
    vocab = config["model"]["vocab"]
    del vocab["Ā"]  # byte 0
    tok = tokenizer_from_bytes(json.dumps(config).encode(), name="x")
    assert tok.why_lossy == "1 of 256 bytes have no token"
    assert tok.decode(tok.encode_batch(["a\x00b"])[0]) == "ab"


def test_largest_id_counts_added_tokens_and_holes():
    config = json.loads(trained_json())
    config["model"]["vocab"]["hole"] = 70_000
    tok = tokenizer_from_bytes(json.dumps(config).encode(), name="x")
    assert (tok.largest_id, tok.vocab_size) == (70_000, 421)


def test_added_tokens_have_the_ids_that_the_file_says():
    config = json.loads(trained_json())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    config["added_tokens"] += [{"id": 420, "content": "<|top|>", **flags}]
    tok = tokenizer_from_bytes(json.dumps(config).encode(), name="x")
    assert (tok.largest_id, tok.vocab_size, tok.specials["<|top|>"]) == (420, 421, 420)
    config["added_tokens"][-1]["id"] = 70_000
    with pytest.raises(TokenizerError, match="TKZ015") as caught:
        tokenizer_from_bytes(json.dumps(config).encode(), name="x")
    assert (caught.value.expected, caught.value.found) == (70_000, 420)


def test_nothing_is_added_cut_or_padded():
    tok = tokenizer_from_bytes(wordpiece_json(), name="w")
    assert tok.disabled == ("truncation", "padding")
    ids, lengths = tok.encode_batch(["the reel is recorded once and replayed exactly", ""])
    assert lengths[1] == 0
    assert lengths[0] > 4
    assert not set(ids.tolist()) & {0, 2, 3}
    assert json.loads(tok.engine_json)["padding"] is None


def test_kinds_are_told_by_content(tmp_path):
    (tmp_path / "a.model").write_bytes(sentencepiece_model())
    (tmp_path / "b").write_bytes(b"\xef\xbb\xbf" + unigram_json())
    assert load_tokenizer("a.model", tmp_path).kind == "sentencepiece"
    tok = load_tokenizer("b", tmp_path)
    assert tok.kind == "tokenizer.json"
    assert tok.sha256 == hashlib.sha256((tmp_path / "b").read_bytes()).hexdigest()
    assert (
        tok.encode_batch(["reel"])[0].tolist()
        == tokenizer_from_bytes(unigram_json(), name="").encode_batch(["reel"])[0].tolist()
    )


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{}", b'{"model": 3}', b"[1]", b"\x00\x01\x02", b'{"model": {"type": "BPE"}}', b"\xff\xfe{"]
)
def test_what_cannot_be_loaded(data, tmp_path):
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer("t", tmp_path)
    assert caught.value.code == "TKZ002"
    assert "t" in caught.value.where["path"]


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(StorageError, match="STO001"):
        load_tokenizer("nowhere.json", tmp_path)
    with pytest.raises(StorageError, match="STO002"):
        load_tokenizer(".", tmp_path)
    with pytest.raises(TokenizerError, match="TKZ002"):
        load_tokenizer("train:bpe:400")
    assert load_tokenizer("train:bpe:420", trained=trained_json()).vocab_size == 420


def test_dropout_is_refused():
    config = json.loads(trained_json())
    config["model"]["dropout"] = 0.1
    with pytest.raises(TokenizerError, match="TKZ011"):
        tokenizer_from_bytes(json.dumps(config).encode(), name="x")


@pytest.mark.parametrize("name", NAMES)
def test_text_that_is_not_unicode_is_named(name):
    with pytest.raises(TokenizerError) as caught:
        made(name).encode_batch(["fine", "né\ud800"])
    assert (caught.value.code, caught.value.where["document"], caught.value.where["offset"]) == ("TKZ005", 1, 3)


def test_end_of_document():
    tok = byte_bpe()
    assert tok.eod(TokenizerSpec.parse({"path": "x", "eod": "<|endoftext|>"})) == (0, "<|endoftext|>")
    assert tok.eod(TokenizerSpec.parse({"path": "x", "eod": 0})) == (0, "<|endoftext|>")
    assert load_tokenizer("bytes").eod(TokenizerSpec.parse("bytes")) == (256, "<|endoftext|>")
    for eod in ("</s>", 420):
        with pytest.raises(TokenizerError, match=r"TKZ003[\s\S]*special tokens <\|endoftext\|>"):
            tok.eod(TokenizerSpec.parse({"path": "x", "eod": eod}))
    with pytest.raises(RecipeError, match=r"TKZ004[\s\S]*<\|endoftext\|>"):
        tok.eod(TokenizerSpec.parse("x"))
    spm = tokenizer_from_bytes(sentencepiece_model(), name="m")
    assert spm.eod(TokenizerSpec.parse({"path": "m", "eod": "</s>"})) == (2, "</s>")
    with pytest.raises(TokenizerError, match="TKZ003"):
        spm.eod(TokenizerSpec.parse({"path": "m", "eod": "<|endoftext|>"}))


@pytest.mark.parametrize("name", NAMES)
def test_ids_outside_the_vocabulary(name):
    tok = made(name)
    with pytest.raises(TokenizerError, match="TKZ014"):
        tok.decode([tok.largest_id + 1])


@pytest.mark.parametrize(
    ("name", "size", "largest", "lossless"),
    [("gpt2", 50257, 50256, True), ("smollm2", 49152, 49151, False), ("qwen2_5", 151665, 151664, False),
     ("mon_unigram", 64256, 64255, False), ("bert_wordpiece", 30522, 30521, False)],
)  # fmt: skip
def test_published_tokenizers(name, size, largest, lossless):
    tok = shared_tokenizer(name)
    assert (tok.vocab_size, tok.largest_id, tok.lossless) == (size, largest, lossless)
    assert tok.special_ids == {tok.token_to_id(token) for token in tok.specials}


def test_gpt2_ids():
    tok = shared_tokenizer("gpt2")
    assert tok.encode_batch(["hello <|endoftext|> x"])[0].tolist() == [31373, 1279, 91, 437, 1659, 5239, 91, 29, 2124]
    assert tok.encode_batch(["hello <|endoftext|> x"], special=True)[0].tolist() == [31373, 220, 50256, 2124]
