"""Statistics of special tokens: counts against a slow count, runs of zeros wherever they lie."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.formats import Boundary
from tokenreel.verify.boundaries import check_batch
from tokenreel.verify.special import ZERO_RUN, Special


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=8),
    st.sampled_from([((), (2,)), ((1,), ()), ((1,), (2,))]),
)
def test_counts_are_what_a_loop_counts(
    documents: list[list[int]], sides: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    boundary = Boundary(*sides)
    counts = Special.of(boundary)
    flat = np.array([i for document in documents for i in document], dtype=np.uint16)
    counts.update(flat, np.array([len(document) for document in documents], dtype=np.int64))
    begin, end = boundary.prefix[:1], boundary.suffix[:1]
    beginning = sum(bool(begin) and document[:1] == list(begin) for document in documents)
    ending = sum(bool(end) and document[-1:] == list(end) for document in documents)
    assert (counts.beginning, counts.ending) == (beginning, ending)
    assert counts.empty == sum(not document for document in documents)
    everywhere = sum(int((flat == side[0]).sum()) for side in (begin, end) if side)
    assert counts.inside == everywhere - beginning - ending


SIDES = [((), ()), ((), (2,)), ((1,), ()), ((1,), (2,)), ((2,), (2,)), ((1, 2), (2,)), ((), (1, 2)), ((9999999,), ())]


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=6), st.sampled_from(SIDES), st.booleans())
def test_what_is_called_plain_has_nothing_wrong(
    documents: list[list[int]], sides: tuple[tuple[int, ...], tuple[int, ...]], framed: bool
) -> None:
    boundary = Boundary(*sides)
    if framed:
        documents = [[*boundary.prefix, *(i + 10 for i in document), *boundary.suffix] for document in documents]
    flat = np.array([i for document in documents for i in document], dtype=np.int32)
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    plain = Special.of(boundary).update(flat, lengths)
    wrong = check_batch(flat, lengths, boundary, None)
    assert not (plain and wrong)
    if framed:
        assert plain or wrong or len(boundary.prefix) > 1, "and what is whole is called so"


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 50))
def test_runs_of_zeros(before: int, zeros: int, after: int) -> None:
    ids = np.concatenate([np.ones(before, np.uint16), np.zeros(zeros, np.uint16), np.ones(after, np.uint16)])
    counts = Special.of(Boundary())
    counts.update(ids, np.array([len(ids)]))
    long = zeros >= ZERO_RUN
    assert (counts.zero_runs, counts.longest_zero_run) == ((1, zeros) if long else (0, 0))
