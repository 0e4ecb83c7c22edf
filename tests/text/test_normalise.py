"""Normalisation: Marin's rule against its own words, with both classes of whitespace; ids of texts as xxHash has them."""

from __future__ import annotations

import sys
import unicodedata
from typing import Literal

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import SourceError
from tokenreel.text.normalise import SEPARATORS, Normaliser, is_blank, text_id

Whitespace = Literal["python", "columnar"]
CLASSES: tuple[Whitespace, ...] = ("python", "columnar")
COMMON = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
texts = st.text(st.sampled_from(COMMON[:8] + SEPARATORS + "\u3000\u200bab"), max_size=40)


def obvious(text: str, whitespace: Whitespace, longest: int) -> str | None:
    """Return what the rule says, one character at a time."""
    kind = set(COMMON) | (set(SEPARATORS) if whitespace == "python" else set())
    if all(char in kind for char in text):
        return None
    out, run = [], 0
    for char in text:
        run = run + 1 if char in kind else 0
        if run <= longest:
            out.append(char)
    return "".join(out)


def test_the_classes_differ_in_four_characters_alone() -> None:
    assert len(COMMON) == 25
    spaces = {chr(k) for k in range(sys.maxunicode + 1) if is_blank(chr(k))}
    assert spaces == set(COMMON) | set(SEPARATORS)
    assert {char for char in spaces if is_blank(char, "columnar")} == set(COMMON)


@given(text=texts, longest=st.integers(1, 6))
@pytest.mark.parametrize("whitespace", CLASSES)
def test_long_runs_are_cut_and_blank_texts_go(whitespace: Whitespace, text: str, longest: int) -> None:
    assert Normaliser("marin", whitespace, longest)(text) == obvious(text, whitespace, longest)


@pytest.mark.parametrize(("whitespace", "length"), [("python", 130), ("columnar", 202)])
def test_128_characters_of_a_run_stay(whitespace: Whitespace, length: int) -> None:
    text = "a" + " " * 100 + "\x1c" + " " * 99 + "b"
    found = Normaliser("marin", whitespace)(text)
    assert found is not None
    assert (len(found), found[0], found[-1]) == (length, "a", "b")
    assert Normaliser("marin", whitespace)("a" + "\n" * 128 + "b") == "a" + "\n" * 128 + "b"


@given(st.text(max_size=30))
def test_the_other_kinds_and_ids(text: str) -> None:
    assert Normaliser()(text) == text
    assert Normaliser("nfc")(text) == unicodedata.normalize("NFC", text)
    assert text_id(text) == xxhash.xxh3_128(text.encode(), seed=0).intdigest().to_bytes(16, "big")


def test_a_lone_surrogate_has_no_id() -> None:
    with pytest.raises(SourceError, match="SRC002 character 1"):
        text_id("a\ud800")
