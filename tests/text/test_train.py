from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from tests.text.made import CORPUS, trained_json
from tokenreel.errors import TokenizerError
from tokenreel.text import tokenizer_from_bytes, train_bpe

SCRIPT = """
import hashlib, sys
from tests.text.made import CORPUS
from tokenreel.text import train_bpe
texts = [f"{text} {k} {hashlib.sha256(str(k).encode()).hexdigest()}" for k in range(300) for text in CORPUS[:6]]
sys.stdout.write(hashlib.sha256(train_bpe(iter(texts), 1500)).hexdigest())
"""


def test_the_same_bytes_in_any_process():
    settings = [("0", "1", "false"), ("1", "2", "true"), ("12345", "7", "true"), ("random", "3", "")]
    digests = []
    for seed, threads, parallel in settings:
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONHASHSEED": seed,
            "RAYON_NUM_THREADS": threads,
        }
        env["TOKENIZERS_PARALLELISM"] = parallel
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
        digests.append(done.stdout)
    assert len(digests[0]) == 64
    assert len(set(digests)) == 1


def test_what_is_trained():
    tok = tokenizer_from_bytes(trained_json(420, "<|endoftext|>", "<|user|>"), name="t")
    assert (tok.vocab_size, tok.largest_id, tok.lossless) == (420, 419, True)
    assert tok.specials == {"<|endoftext|>": 0, "<|user|>": 1}
    ids, _ = tok.encode_batch(CORPUS)
    assert len(ids) < sum(len(text.encode()) for text in CORPUS)
    assert hashlib.sha256(train_bpe(iter(CORPUS), 420, ("<|endoftext|>", "<|user|>"))).hexdigest() == tok.sha256


def test_too_little_text():
    for texts, size in ((["ab"], 600), ([], 300), (CORPUS, 256)):
        with pytest.raises(TokenizerError, match="TKZ012"):
            train_bpe(texts, size)
    assert tokenizer_from_bytes(train_bpe([], 257), name="t").vocab_size == 257
