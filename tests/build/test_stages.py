"""The pure stages: exact duplicates, overlap with evaluation sets, merge order, repositories; against plain renderings."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.build import dedup
from tokenreel.build.contamination import Words, grams_of, overlap, word_items
from tokenreel.build.dedup import brake, first_places, joined_first, keys_of, removals, scoped_key, text_key
from tokenreel.build.merge_order import merge_order, shuffled
from tokenreel.build.repositories import Grouping, SourceFile, document_of, file_class, in_order, is_majority
from tokenreel.errors import SourceError

few = st.lists(st.lists(st.sampled_from("abcdef"), max_size=6).map("".join), max_size=40)


@settings(max_examples=80, deadline=None)
@given(few, st.booleans())
def test_the_first_of_equal_texts_wins(texts: list[str], spilled: bool) -> None:
    keys = keys_of([text_key(text) for text in texts]) if texts else np.empty((0, 2), np.uint64)
    limit = dedup.IN_MEMORY
    dedup.IN_MEMORY = 0 if spilled else limit
    try:
        found = first_places([keys[:7], keys[7:]], len(texts))
    finally:
        dedup.IN_MEMORY = limit
    assert found.tolist() == [texts.index(text) for text in texts]


def test_keys_are_sha256_and_scopes_tell_apart() -> None:
    assert text_key("é") == hashlib.sha256("é".encode()).digest()[:16]
    assert len({scoped_key("a", "bc"), scoped_key("ab", "c"), scoped_key("", "abc")}) == 3


def test_several_keys_and_the_brake() -> None:
    by_text = np.array([0, 1, 0, 3, 4])
    by_url = np.array([0, 1, 2, 1, -1])
    first = joined_first(by_text, by_url)
    assert first.tolist() == [0, 1, 0, 1, 4]
    found = list(removals(first, np.array([0, 0, 1, 1, 1], np.int32), ["a", "b"]))
    assert [(one.source, one.documents, one.removed) for one in found] == [("a", 2, 0), ("b", 3, 2)]
    with pytest.raises(SourceError, match=r"SRC030.*'b'"):
        brake(found)
    brake(found, allowed=["b"])
    brake(found, limit=0.7)


ids = st.lists(st.integers(0, 3), max_size=30)


def test_places_in_parts_are_those_of_all_keys_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn = np.random.default_rng(3).integers(0, 30_000, 50_000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys = np.stack([drawn, drawn ^ np.uint64(5)], axis=1)
    whole = first_places([keys], len(keys))
    # Every block goes to disk, and parts are small.
    monkeypatch.setattr(dedup, "IN_MEMORY", 0)
    monkeypatch.setattr(dedup, "MEMORY", 0)
    monkeypatch.setattr(dedup, "parts_for", lambda _: 16)
    for threads in (1, 2):
        found = first_places([keys[:20_000], keys[20_000:]], len(keys), tmp_path, threads)
        assert np.array_equal(found, whole)
    assert not list(tmp_path.iterdir())


@settings(max_examples=150, deadline=None)
@given(st.lists(ids, min_size=1, max_size=4), st.lists(ids, max_size=4), st.integers(1, 5))
def test_overlap_is_what_comparing_everything_finds(items: list[list[int]], documents: list[list[int]], n: int) -> None:
    edges = np.concatenate(([0], np.cumsum([len(one) for one in items])))
    grams = grams_of([i for one in items for i in one], edges, n)
    found = overlap(grams, np.array([i for one in documents for i in one], np.uint32), [len(one) for one in documents])
    owner: dict[tuple[int, ...], tuple[int, int]] = {}
    for item, one in enumerate(items):
        for k in range(len(one) - n + 1):
            owner.setdefault(tuple(one[k : k + n]), (item, int(edges[item]) + k))
    wanted = [
        (d, k, *owner[tuple(one[k : k + n])])
        for d, one in enumerate(documents)
        for k in range(len(one) - n + 1)
        if tuple(one[k : k + n]) in owner
    ]
    got = zip(*(x.tolist() for x in (found.document, found.begin, found.item, found.place)), strict=True)
    assert list(got) == wanted
    for document, item, _, share in found.pairs(grams):
        mine = {place for d, _, i, place in wanted if (d, i) == (document, item)}
        total = sum(i == item for i, _ in owner.values())
        assert share == len(mine) / total


def test_words_are_lower_case_letters_and_digits() -> None:
    words = Words()
    item = "The quick brown fox jumps over the lazy dog, again and again."
    flat, edges = word_items([item], words)
    grams = grams_of(flat, edges, n=5)
    text = "He said: THE QUICK-BROWN fox... jumps over it"
    found = overlap(grams, words.ids(text, add=False), [len(words.ids(text, add=False))])
    assert found.begin.tolist() == [2, 3]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=4), st.data())
def test_the_interleave_follows_its_rule(lengths: list[list[int]], data: st.DataObject) -> None:
    budgets = [data.draw(st.integers(1, 50)) for _ in lengths]
    names = data.draw(st.permutations([f"s{k}" for k in range(len(lengths))]))
    got = merge_order([np.array(one, np.int64) for one in lengths], budgets, names).tolist()
    emitted, at, wanted = [0] * len(lengths), [0] * len(lengths), []
    for _ in range(sum(map(len, lengths))):
        left = [s for s in range(len(lengths)) if at[s] < len(lengths[s])]
        best = min(left, key=lambda s: (Fraction(emitted[s] + 1, budgets[s]), names[s]))
        # Floats decide as fractions do, but for ties that only one of them sees.
        if got[len(wanted)] != best:
            other = got[len(wanted)]
            assert (emitted[best] + 1) / budgets[best] == pytest.approx(
                (emitted[other] + 1) / budgets[other], abs=0, rel=1e-15
            )
            best = other
        wanted.append(best)
        emitted[best] += lengths[best][at[best]]
        at[best] += 1
    assert got == wanted


def test_other_merge_orders() -> None:
    assert merge_order([np.array([1, 1]), np.array([1])], [1, 1], ["b", "a"], "sequential").tolist() == [0, 0, 1]
    assert sorted(shuffled(100, 3).tolist()) == list(range(100))
    assert shuffled(100, 3).tolist() != shuffled(100, 4).tolist()


def test_repositories_are_put_together_by_class_and_path() -> None:
    paths = [
        "src/b.py",
        "src/a.py",
        "tests/conftest.py",
        "setup.py",
        "src/__init__.py",
        "README.md",
        "src/test_x.py",
        "tests/data.cfg",
        "requirements-dev.txt",
    ]
    files = [SourceFile(path, "Python", path) for path in paths]
    wanted = [
        "requirements-dev.txt",
        "setup.py",
        "src/__init__.py",
        "src/a.py",
        "src/b.py",
        "src/test_x.py",
        "tests/conftest.py",
    ]
    ordered = in_order(files)
    assert [file.path for file in ordered] == wanted
    assert document_of(ordered) == "\n".join(wanted)
    assert document_of(ordered[:1], Grouping(headers=True)) == "# requirements-dev.txt\nrequirements-dev.txt"
    assert file_class("a/testing/setup.py") == 3
    assert not is_majority([SourceFile("a.py", "Python", "x"), SourceFile("b", "C", "y")])
    assert not is_majority([])
