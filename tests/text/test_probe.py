from __future__ import annotations

import hashlib
import struct
import time

import pytest

from tests.text.fake_engines import fake
from tests.text.made import CORPUS, byte_bpe, made, shared_tokenizer
from tokenreel.errors import TokenizerError
from tokenreel.text import choose_engine, load_tokenizer, probe_digest
from tokenreel.text.engines import CANDIDATES, Candidate
from tokenreel.text.probe_texts import probe_texts

PROBE_SET = (1547, "4beb8a3fcd0137a9c888366c4fd1f44df8e8b8ef4e46b56545bdb2719eca2de2")
"""Pinned: a change of the set changes the hash in every manifest, so it needs a new name (tokenreel-probe-2)."""

FAST = {c.name for c in CANDIDATES if c.version() is not None}


def test_the_probe_set_never_changes():
    joined = "\x1e".join(probe_texts()).encode()
    assert (len(probe_texts()), hashlib.sha256(joined).hexdigest()) == PROBE_SET
    assert max(len(text.encode()) for text in probe_texts()) >= 100_000


def test_the_digest_is_what_its_docstring_says():
    tok = load_tokenizer("bytes")
    texts = [text.encode() for text in probe_texts()]
    plain = hashlib.sha256(b"tokenreel-probe-1\n" + struct.pack("<Q", len(texts)))
    plain.update(b"".join(struct.pack("<Q", len(text)) for text in texts))
    plain.update(b"".join(struct.pack("<I", byte) for text in texts for byte in text))
    assert probe_digest(tok) == plain.hexdigest()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong", "other ids than the reference on probe text"),
        ("ignores_special", "other ids than the reference on probe text"),
        ("loses_count", "lost count"),
        ("leaves", "died while encoding a first text (exit status 3)"),
        ("segfaults", "died while encoding a first text (killed by signal 11)"),
        ("panics", "failed: Panic: byte remapping failed"),
        ("panics_later", "failed: Panic: index out of bounds"),
        ("nowhere", "nowhere"),
    ],
)
def test_bad_engines_are_rejected_with_the_reason(name, reason):
    choice = choose_engine(byte_bpe(), CORPUS, candidates=[fake(name), fake("right")])
    assert choice.name == "right"
    assert choice.rejected[0][0] == name
    assert reason in choice.rejected[0][1]


def test_a_hanging_engine_is_given_up():
    begin = time.monotonic()
    choice = choose_engine(byte_bpe(), ["a"], candidates=[fake("hangs")], timeout=3.0)
    assert choice.name == "tokenizers"
    assert choice.rejected[0][1].startswith("no answer in time while ")
    assert time.monotonic() - begin < 30


def test_the_fastest_is_chosen_and_the_rest_named():
    absent = Candidate("no-such-distribution", "nowhere:open")
    choice = choose_engine(byte_bpe(), CORPUS, candidates=[absent, fake("slow"), fake("right")])
    assert (choice.name, choice.version) == ("right", "1.0")
    assert choice.rejected == (("no-such-distribution", "not installed"), ("slow", "slower than right"))
    assert [name for name, _ in choice.speeds] == ["right", "slow"]
    unmeasured = choose_engine(byte_bpe(), candidates=[fake("slow"), fake("right")])
    assert (unmeasured.name, unmeasured.speeds) == ("slow", ())


def test_the_digest_does_not_depend_on_engine_sample_or_mode():
    tok = byte_bpe()
    digest = probe_digest(tok)
    assert choose_engine(tok, candidates=()).probe_sha256 == digest
    assert choose_engine(tok, CORPUS, special_in_text="special", candidates=[fake("right")]).probe_sha256 == digest
    assert choose_engine(tok, CORPUS[1:], special_in_text="error").probe_sha256 == digest


def test_an_engine_that_disagrees_only_on_the_sample():
    """`wrong` differs on one pair of marks; in the sample alone when the probe is fine with it."""
    choice = choose_engine(byte_bpe(), ["plain", "a\u0315\u0300"], candidates=[fake("wrong_on_sample")])
    assert choice.name == "tokenizers"
    assert "sample text 1: 'a\\u0315\\u0300'" in choice.rejected[0][1]


@pytest.mark.parametrize(
    ("kind", "engine"), [("unigram", "tokenizers"), ("wordpiece", "tokenizers"), ("bytes", "bytes")]
)
def test_the_reference_remains(kind, engine):
    choice = choose_engine(made(kind), CORPUS)
    assert choice.name == engine
    assert choice.version
    assert {name for name, _ in choice.rejected} == (set() if kind == "bytes" else {c.name for c in CANDIDATES})


@pytest.mark.skipif(not FAST, reason="no fast engine is installed")
@pytest.mark.parametrize("mode", ["text", "special", "drop"])
def test_a_trained_tokenizer_gets_a_fast_engine(mode):
    choice = choose_engine(byte_bpe(), CORPUS, special_in_text=mode)
    assert choice.name in FAST
    assert dict(choice.speeds).keys() <= FAST


def test_sentencepiece():
    tok = made("sentencepiece")
    choice = choose_engine(tok, CORPUS)
    assert choice.name in {"sentencepiece", *FAST}
    with pytest.raises(TokenizerError, match="TKZ007"):
        choose_engine(tok, CORPUS, special_in_text="special")


@pytest.mark.parametrize(
    ("name", "engines"),
    [
        ("gpt2", FAST),
        ("smollm2", {"fastokens"}),
        ("qwen2_5", {"fastokens"}),
        ("mon_unigram", set()),
        ("bert_wordpiece", set()),
    ],
)
def test_published_tokenizers(name, engines):
    choice = choose_engine(shared_tokenizer(name), CORPUS)
    assert choice.name in (engines & FAST or {"tokenizers"})
    assert {engine for engine, _ in choice.speeds} == engines & FAST
