"""Tokenizers made on the spot, so that every test runs where no file of anyone else's is present."""

from __future__ import annotations

import io
import json
import os
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from tokenreel.text import Tokenizer, load_tokenizer, tokenizer_from_bytes, train_bpe

CORPUS = (
    "The reel is recorded once and replayed exactly, frame by frame.",
    "def f(x):\n    return {'a': x + 1}  # comment\n\n\nclass A:\n\tpass\n",
    "naïve façade — “quotes” … 1234567890 3.14 v2.0",
    "می‌خواهم خانه‌ها را ببینم. Привет, мир! 日本語の文章 中文文本 한국어",
    "👩‍👩‍👧 family 🇫🇷 flag 👍🏽 thumb",
    "don't I'll we've they're it's",
) * 3


@cache
def trained_json(size: int = 420, *specials: str) -> bytes:
    return train_bpe(CORPUS, size, specials or ("<|endoftext|>",))


def byte_bpe(size: int = 420, *specials: str) -> Tokenizer:
    return tokenizer_from_bytes(trained_json(size, *specials), name="made/byte-bpe")


def edited(**changes: object) -> Tokenizer:
    """Return the byte-level BPE with some of its file's top-level fields changed."""
    config = json.loads(trained_json())
    return tokenizer_from_bytes(json.dumps({**config, **changes}).encode(), name="made/edited")


@cache
def unigram_json() -> bytes:
    built = tokenizers.Tokenizer(models.Unigram())
    built.normalizer = normalizers.NFKC()
    built.pre_tokenizer = pre_tokenizers.Metaspace()
    built.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    built.train_from_iterator(CORPUS, trainer)
    return built.to_str().encode()


@cache
def wordpiece_json() -> bytes:
    built = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    built.normalizer = normalizers.BertNormalizer()
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    built.train_from_iterator(CORPUS, trainer)
    built.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    built.enable_truncation(4)
    built.enable_padding(length=8)
    return built.to_str().encode()


@cache
def sentencepiece_model() -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 10), model_writer=out, vocab_size=500, model_type="bpe", byte_fallback=True,
        character_coverage=0.99, minloglevel=2, num_threads=1, hard_vocab_limit=False,
    )  # fmt: skip
    return out.getvalue()


NAMES = ("byte-bpe", "unigram", "wordpiece", "sentencepiece", "bytes")


@cache
def made(name: str) -> Tokenizer:
    if name == "bytes":
        return load_tokenizer("bytes")
    files = {
        "byte-bpe": trained_json,
        "unigram": unigram_json,
        "wordpiece": wordpiece_json,
        "sentencepiece": sentencepiece_model,
    }
    return tokenizer_from_bytes(files[name](), name=f"made/{name}")


def shared_tokenizer(name: str) -> Tokenizer:
    """Return a published tokenizer, or skip the test where there is none."""
    folder = Path(os.environ.get("TOKENREEL_SHARED") or Path(__file__).parents[3] / "shared")
    path = folder / "tokenizers" / name / "tokenizer.json"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return load_tokenizer(str(path))
