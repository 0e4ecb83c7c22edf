from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.fake_engines import fake
from tests.text.made import CORPUS, byte_bpe, made
from tokenreel.errors import TokenizerError
from tokenreel.text import Rechecked, open_engine, recheck_batch


@given(st.integers(1, 9), st.integers(0, 30), st.lists(st.integers(0, 7), max_size=6))
def test_the_same_documents_whatever_the_batches(one_in, first, sizes):
    encoder = open_engine(made("bytes"))
    total, number = Rechecked(), first
    for size in sizes:
        texts = [f"text {number + k}" for k in range(size)]
        total += recheck_batch(encoder, texts, *encoder.encode(texts), number, one_in=one_in)
        number += size
    turns = sum(k % one_in == 0 for k in range(first, number))
    assert total == Rechecked(turns, turns, 0)


def test_a_difference_names_the_document():
    encoder = open_engine(byte_bpe(), "wrong", candidates=[fake("wrong")])
    texts = ["fine", "also fine", "a\u0315\u0300 tail", "fine"]
    ids, lengths = encoder.encode(texts)
    with pytest.raises(TokenizerError) as caught:
        recheck_batch(encoder, texts, ids, lengths, first_document=98, one_in=50)
    error = caught.value
    assert (error.code, error.where["document"]) == ("TKZ008", 100)
    assert error.expected != error.found
    assert "from token 0 on" in error.message
    assert recheck_batch(encoder, texts, ids, lengths, first_document=99, one_in=50).checked == 1
    assert recheck_batch(encoder, texts, ids, lengths, one_in=0) == Rechecked()


def test_ids_that_were_shifted_are_caught():
    encoder = open_engine(made("bytes"))
    ids, lengths = encoder.encode(["ab", "cd"])
    with pytest.raises(TokenizerError, match="TKZ008 document 0"):
        recheck_batch(encoder, ["ab", "cd"], ids, lengths[::-1] + np.array([-1, 1]), one_in=1)


def test_texts_that_do_not_come_back_are_counted():
    encoder = open_engine(made("wordpiece"))
    texts = ["the reel", "THE  REEL", "中"]
    found = recheck_batch(encoder, texts, *encoder.encode(texts), one_in=1)
    assert found.checked == 3
    assert found.decoded_back < 3


def test_large_documents_are_passed_over_and_counted():
    encoder = open_engine(made("bytes"))
    texts = ["x" * 50, "y", "z" * 50]
    encoded = encoder.encode(texts)
    assert recheck_batch(encoder, texts, *encoded, one_in=1, largest=49) == Rechecked(1, 1, 2)
    assert recheck_batch(encoder, texts[:1], encoded[0][:50], encoded[1][:1], one_in=1, largest=49) == Rechecked(
        0, 0, 1
    )


@pytest.mark.parametrize("mode", ["text", "special", "drop"])
def test_every_mode(mode):
    encoder = open_engine(byte_bpe(), special_in_text=mode)
    batch = encoder.encode_counted([*CORPUS, "a<|endoftext|>b", ""])
    n = len(CORPUS) + 2
    assert recheck_batch(encoder, batch.texts, batch.ids, batch.lengths, one_in=1) == Rechecked(n, n, 0)
