"""Train a byte-level BPE whose bytes depend on the texts and their order alone: not on threads, hash seeds or time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokenreel.errors import TokenizerError, require
from tokenreel.text.lossless import byte_characters
from tokenreel.text.spec import END_OF_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable


def train_bpe(texts: Iterable[str], vocab_size: int, specials: tuple[str, ...] = (END_OF_TEXT,)) -> bytes:
    """Return the bytes of a ``tokenizer.json``: byte-level BPE of exactly `vocab_size` ids, lossless.

    Special tokens have the first ids, then come the 256 bytes, then merges. GPT-2's splitting is used. The same texts
    in the same order give the same bytes whatever the number of threads and the hash seed, for one version of
    ``tokenizers``. Raises `TokenizerError` (TKZ012) if the texts are too few for the vocabulary. Cost: about 10 s and
    1 GB for 64 MiB of text.
    """
    tokenizers = require("tokenizers", extra="build")
    least = 256 + len(specials)
    if vocab_size < least:
        raise TokenizerError("TKZ012", expected=f"vocabulary >= {least}", found=vocab_size)
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(specials),
        initial_alphabet=sorted(byte_characters()),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    found = trained.get_vocab_size(with_added_tokens=True)
    if found != vocab_size:
        raise TokenizerError(
            "TKZ012",
            "the sample gives fewer merges than asked for",
            expected=f"{vocab_size} ids",
            found=f"{found} ids",
            hint=f'use name = "train:bpe:{found}", or raise sample_bytes, in the recipe',
        )
    return _canonical(trained.to_str())


def _canonical(text: str) -> bytes:
    """Return one spelling of the file: vocabulary by id, so that no map's order shows."""
    config = json.loads(text)
    vocab = config["model"]["vocab"]
    config["model"]["vocab"] = dict(sorted(vocab.items(), key=lambda item: item[1]))
    return (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode()
