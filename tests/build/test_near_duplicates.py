"""MinHash: the compiled signature beside a slow one, estimates beside true similarities, and who stands for whom."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.build import near_duplicates
from tokenreel.build.near_duplicates import _functions, near_first, signatures
from tokenreel.errors import RecipeError

MASK = (1 << 64) - 1


def slow_signature(text: str, permutations: int, ngram: int, seed: int) -> list[int]:
    words = []
    for word in text.encode().split():
        value = 0xCBF29CE484222325
        for byte in word:
            value = ((value ^ byte) * 0x9E3779B97F4A7C15) & MASK
            value ^= value >> 29
        words.append(value)
    size = min(ngram, len(words))
    multiply, add = (one.tolist() for one in _functions(permutations, seed))
    best = [0xFFFFFFFF] * permutations
    for at in range(len(words) - size + 1 if size else 0):
        run = 0
        for word in words[at : at + size]:
            run = ((run ^ word) * 0xD6E8FEB86659FD93) & MASK
            run ^= run >> 32
        for p in range(permutations):
            best[p] = min(best[p], ((run * multiply[p] + add[p]) & MASK) >> 32)
    return best


@given(
    found=st.lists(st.text(alphabet="ab \n\té", max_size=30), max_size=5),
    ngram=st.integers(1, 4),
    seed=st.integers(0, 5),
)
@settings(deadline=None)
def test_signatures_are_the_slow_ones(found: list[str], ngram: int, seed: int) -> None:
    signed = signatures(pa.array(found, pa.large_string()), 6, ngram, seed)
    assert signed.tolist() == [slow_signature(text, 6, ngram, seed) for text in found]


@given(
    rows=st.lists(st.lists(st.integers(0, 2), min_size=8, max_size=8), max_size=12),
    threshold=st.sampled_from([0.25, 0.5, 0.75, 1.0]),
)
@settings(deadline=None)
def test_a_document_is_dropped_only_for_an_earlier_one_that_stays(rows: list[list[int]], threshold: float) -> None:
    signed = np.array(rows, np.uint32).reshape(-1, 8)
    first = near_first(signed, threshold)
    for d, winner in enumerate(first.tolist()):
        assert winner <= d
        assert first[winner] == winner
        assert np.mean(signed[d] == signed[winner]) >= threshold
    # What is the same throughout shares every band.
    for d in range(len(signed)):
        same = [k for k in range(d) if (signed[k] == signed[d]).all() and first[k] == k]
        assert not same or first[d] <= same[0]


def test_more_documents_than_can_be_compared_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "MOST_NODES", 5)
    with pytest.raises(RecipeError, match="RCP006"):
        near_first(np.zeros((6, 4), np.uint32))


def test_small_changes_are_found_and_other_texts_are_not() -> None:
    drawn = np.random.default_rng(7)
    words = [f"w{k}" for k in range(2000)]
    originals = [" ".join(drawn.choice(words, 300)) for _ in range(40)]
    changed = []
    for text in originals:
        split = text.split()
        split[150] = "other"
        changed.append(" ".join(split))
    first = near_first(signatures(pa.array([*originals, *changed], pa.large_string())), 0.8)
    assert first[:40].tolist() == list(range(40))
    assert first[40:].tolist() == list(range(40))
