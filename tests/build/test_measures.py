"""Measures of text against a slow rendering of their definitions."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.build.measures import MEASURES, STOP_WORDS, measure

SPACE = "\t\n\x0b\x0c\r "


def reference(text: str) -> list[float]:
    """Return the measures of one text, as their definitions say."""
    row = dict.fromkeys(MEASURES, 0.0)
    words = [(m.group(), m.start()) for m in re.finditer(r"[^\t\n\x0b\x0c\r ]+", text)]
    row["characters"] = len(text)
    row["words"] = len(words)
    if words:
        row["word_length"] = sum(len(word) for word, _ in words) / len(words)
        marks = sum(word.count("#") + word.count("...") + word.count("…") for word, _ in words)
        row["symbols"] = marks / len(words)
        row["alphabetic"] = sum(bool(re.search(r"[A-Za-z]|[^\x00-\x7f]", word)) for word, _ in words) / len(words)
    row["stop_words"] = len({word for word, _ in words} & set(STOP_WORDS))
    lines = [line for line in text.split("\n") if line.strip(" \t\r")]
    if lines:
        row["bullets"] = sum(line.strip(" \t\r").startswith(("-", "*", "•")) for line in lines) / len(lines)
        row["ellipses"] = sum(line.strip(" \t\r").endswith(("...", "…")) for line in lines) / len(lines)
        share, size = repeated(lines)
        row["lines_repeated"], row["line_characters_repeated"] = share, size
    paragraphs = [part for part in re.split(r"\n\n+", text.strip("\n")) if part]
    if paragraphs:
        row["paragraphs_repeated"], row["paragraph_characters_repeated"] = repeated(paragraphs)
    for n in (2, 3, 4):
        grams = [(tuple(w for w, _ in words[k : k + n]), span(words, k, n)) for k in range(len(words) - n + 1)]
        seen: Counter[tuple[str, ...]] = Counter()
        most, size = 0, 0
        for key, length in grams:
            seen[key] += 1
            most, size = max((most, size), (seen[key], length))
        row[f"top_{n}_gram"] = most * size / len(text) if most > 1 else 0.0
    for n in range(5, 11):
        known, total, k = set(), 0, 0
        while k <= len(words) - n:
            key = tuple(word for word, _ in words[k : k + n])
            if key in known:
                total += span(words, k, n)
                k += n
            else:
                known.add(key)
                k += 1
        row[f"repeated_{n}_grams"] = total / len(text) if text else 0.0
    plain = [re.sub(r"[0-9]", "0", re.sub(r"[\t\r]", " ", line.strip(" \t\r"))) for line in lines]
    shingles = [tuple(plain[k : k + 3]) for k in range(len(plain) - 2)]
    row["shingles_repeated"] = 1 - len(set(shingles)) / len(shingles) if shingles else 0.0
    return [float(row[name]) for name in MEASURES]


def span(words: list[tuple[str, int]], k: int, n: int) -> int:
    last, at = words[k + n - 1]
    return at + len(last) - words[k][1]


def repeated(parts: list[str]) -> tuple[float, float]:
    seen: set[str] = set()
    again = [part for part in parts if part in seen or seen.add(part)]
    return len(again) / len(parts), sum(map(len, again)) / sum(map(len, parts))


pieces = st.sampled_from(
    ["the", "be", "a", "é", "…", "...", "#", "-", "*", "•", "12", "\n", "\n\n", " ", "\t", "word", "和"]
)
texts = st.lists(pieces, max_size=80).map(" ".join) | st.lists(pieces, max_size=40).map("".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(texts, min_size=1, max_size=5))
def test_measures_equal_their_definitions(many: list[str]) -> None:
    found = measure(pa.array(["skipped", *many], pa.large_string())[1:])
    for text, row in zip(many, found, strict=True):
        np.testing.assert_allclose(row, reference(text), err_msg=repr(text), rtol=1e-12)


def test_generated_code_repeats_its_shingles() -> None:
    code = "".join(f"  cls.add_method({n}, 'x')\n  cls.add_ctor({n})\n  return {n}\n" for n in range(50))
    prose = "".join(f"line number {chr(97 + n % 26)}{n} says {n * 7 % 13}{chr(98 + n % 5)} things\n" for n in range(50))
    found = measure(pa.array([code, prose], pa.large_string()))[:, MEASURES.index("shingles_repeated")]
    assert found[0] > 0.9
    assert found[1] < 0.2


def test_a_text_of_line_feeds_has_more_lines_than_words() -> None:
    for count in (1, 63, 64, 130, 5000, 70_000):
        for text in ("\n" * count, "a\n\n" * count, "\n\n\n-" * count):
            row = measure(pa.array([text], pa.large_string()))[0]
            np.testing.assert_allclose(row, reference(text), err_msg=f"{text[:4]!r} {count}")


def test_lines_that_differ_by_a_nul_are_two() -> None:
    for one, other in (("\0a", "b"), ("12345678\0", "12345678"), ("\0", "a")):
        text = f"{one}\n{other}"
        row = measure(pa.array([text], pa.large_string()))[0]
        np.testing.assert_allclose(row, reference(text), err_msg=repr(text))


def test_no_text_has_no_measures() -> None:
    assert measure(pa.array([], pa.large_string())).shape == (0, len(MEASURES))
    assert not measure(pa.array([""], pa.large_string())).any()
