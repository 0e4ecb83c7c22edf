from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.made import made
from tokenreel.errors import TokenizerError
from tokenreel.text import open_engine
from tokenreel.text.special import count_special, pattern, screen

SPECIALS = ("<|endoftext|>", "<s>", "<s>>", "a.b", "(")
PARTS = st.lists(
    st.sampled_from([*SPECIALS, "<|end", "oftext|>", "<", "s>", ">", "a", ".", "b", "é", " ", "\n"]), max_size=12
)


@given(st.lists(PARTS.map("".join), max_size=6))
def test_counts_equal_a_plain_regex(texts):
    wanted = re.compile(pattern(SPECIALS))
    assert count_special(texts, SPECIALS).tolist() == [len(wanted.findall(text)) for text in texts]
    assert count_special(texts, ()).tolist() == [0] * len(texts)


@given(st.lists(PARTS.map("".join), max_size=6))
def test_drop_leaves_none(texts):
    left, counts = screen(texts, SPECIALS, "drop")
    assert not count_special(left, SPECIALS).any()
    for before, after, count in zip(texts, left.to_pylist(), counts.tolist(), strict=True):
        assert (count == 0) == (before == after)


def test_dropping_does_not_join_a_new_one():
    left, counts = screen(["<|end<|endoftext|>oftext|>x"], SPECIALS, "drop")
    assert (left.to_pylist(), counts.tolist()) == (["x"], [2])


def test_error_names_document_token_and_byte():
    with pytest.raises(TokenizerError) as caught:
        screen(["fine", "é<|endoftext|>"], SPECIALS, "error", first_document=40)
    error = caught.value
    assert (error.code, error.where["document"], error.where["offset"], error.found) == (
        "TKZ006",
        41,
        2,
        "<|endoftext|>",
    )


def test_slices_and_chunks_of_arrow_arrays():
    array = pa.chunked_array([pa.array(["x", "<s>"]), pa.array(["<s><s>", "y"])])
    assert count_special(array, SPECIALS).tolist() == [0, 1, 2, 0]
    assert count_special(pa.array(["<s>", "x", "<s><s>"], pa.large_string())[1:], SPECIALS).tolist() == [0, 2]
    assert count_special(pa.chunked_array([], pa.string()), SPECIALS).tolist() == []


def test_every_arrow_kind_of_text():
    texts = ["a<s>", "", "é"]
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
    arrays = [pa.array(texts, kind) for kind in kinds]
    arrays += [pa.array([text.encode() for text in texts], kind) for kind in (pa.binary(), pa.large_binary())]
    for array in arrays:
        assert screen(array, SPECIALS, "text")[0].to_pylist() == texts
        assert count_special(array, SPECIALS).tolist() == [1, 0, 0]
    with pytest.raises(TokenizerError, match=r"TKZ005[^:]*: int64 in place of text"):
        screen(pa.array([1, 2]), (), "text")
    with pytest.raises(TokenizerError, match="TKZ005 byte 1 document 1"):
        screen(pa.array([b"ok", b"a\xff"]), (), "text")


def test_nulls_and_bad_bytes_are_named():
    with pytest.raises(TokenizerError, match="TKZ005 document 12"):
        screen(pa.array(["a", None]), (), "text", first_document=11)
    bad = pa.Array.from_buffers(
        pa.large_string(), 2, [None, pa.array([0, 1, 3], pa.int64()).buffers()[1], pa.py_buffer(b"ab\xff")]
    )
    with pytest.raises(TokenizerError) as caught:
        screen(bad, (), "text")
    assert (caught.value.where["document"], caught.value.where["offset"]) == (1, 1)
    with pytest.raises(TokenizerError, match="int in place of a text"):
        screen(["a", 3], (), "text")


@pytest.mark.parametrize("name", ["byte-bpe", "bytes"])
def test_the_four_ways(name):
    tok = made(name)
    eod = tok.token_to_id("<|endoftext|>")
    texts = ["a<|endoftext|>b", "plain"]
    ways = {mode: open_engine(tok, special_in_text=mode) for mode in ("text", "special", "drop", "error")}
    text = ways["text"].encode_counted(texts)
    assert eod not in text.ids
    assert text.special.tolist() == [1, 0]
    assert tok.decode(text.ids) == "a<|endoftext|>bplain"
    special = ways["special"].encode_counted(texts)
    assert (special.ids == eod).sum() == 1
    assert tok.decode(special.ids) == "a<|endoftext|>bplain"
    drop = ways["drop"].encode_counted(texts)
    assert tok.decode(drop.ids) == "abplain"
    assert drop.special.tolist() == [1, 0]
    assert drop.texts.to_pylist() == ["ab", "plain"]
    with pytest.raises(TokenizerError, match="TKZ006"):
        ways["error"].encode(texts)
    assert tok.decode(ways["error"].encode(texts[1:])[0]) == "plain"


def test_sentencepiece_has_no_special_in_text():
    tok = made("sentencepiece")
    with pytest.raises(TokenizerError, match="TKZ007") as caught:
        open_engine(tok, special_in_text="special")
    assert caught.value.exit_status == 2
    assert 2 not in tok.encode_batch(["a</s>b"])[0]
