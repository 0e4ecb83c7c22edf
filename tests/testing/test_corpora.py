"""Tiny corpora are what they say, whatever they are cut into."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import tokenreel
from tokenreel.errors import UsageError
from tokenreel.testing import numbered_documents, strategies, tiny_corpus, tiny_documents, write_corpus
from tokenreel.testing.exactly_once import Setting


@pytest.mark.parametrize("shards", [1, 3])
def test_documents_come_back(tmp_path: Path, shards: int) -> None:
    documents = tiny_documents(17, seed=4)
    corpus = tokenreel.open(write_corpus(tmp_path / "tiny", documents, shards=shards), boundary="suffix=2")
    assert [one.tolist() for one in corpus] == [one.tolist() for one in documents]
    assert all(one[-1] == 2 and 2 not in one[:-1] for one in documents)
    assert [a.tolist() for a in tiny_documents(17, seed=4)] == [one.tolist() for one in documents]


def test_numbered_documents_have_no_label_twice(tmp_path: Path) -> None:
    corpus = tiny_corpus(tmp_path / "n", numbered_documents([3, 70_000, 2]))
    assert (corpus.stream(0, corpus.tokens) == np.arange(70_005)).all()


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(UsageError, match="USE003"):
        tiny_documents(vocab=2)


@given(strategies.documents(), strategies.numbered(), strategies.lengths())
def test_strategies_of_documents(documents: list[np.ndarray], numbered: list[np.ndarray], lengths: list[int]) -> None:
    assert all(one[-1] == 2 and 2 not in one[:-1] for one in documents)
    assert np.concatenate(numbered).tolist() == list(range(sum(map(len, numbered))))
    assert sum(lengths) > 0


@given(strategies.schedules(), strategies.settings(world=3, batch=7, workers=2))
def test_strategies_of_jobs(schedule: object, setting: Setting) -> None:
    assert schedule.samples(0, 10) >= 10  # type: ignore[attr-defined]
    assert setting.batch % setting.world == 0
    assert 1 <= setting.batch <= 7
