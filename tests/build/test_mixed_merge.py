"""The merged order: what is fast does what is obvious, budgets hold in every prefix, and no duplicate is in two splits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.build.mix_merge import _walk
from tokenreel.build.mix_shards import cut
from tokenreel.build.mix_stats import quantiles, waste
from tokenreel.build.mix_table import Staged

Document = tuple[int, int, int]
"""(stored tokens, text, url); a url below 0 is none."""
Sources = list[list[Document]]

sources_of = st.lists(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 6), st.integers(-1, 4)), max_size=12), min_size=1, max_size=4
)


def obvious(sources: Sources, budgets: list[int], given_order: list[int] | None) -> tuple[list[int], dict[int, int]]:
    """Return (documents in merged order, winner of every duplicate), one document at a time."""
    begins = np.cumsum([0, *(len(one) for one in sources)]).tolist()
    flat = [document for one in sources for document in one]
    at, emitted = [0] * len(sources), [0] * len(sources)
    texts: dict[int, int] = {}
    urls: dict[int, int] = {}
    order: list[int] = []
    lost: dict[int, int] = {}
    for step in range(len(flat)):
        if given_order is None:
            waiting = [k for k in range(len(sources)) if at[k] < len(sources[k])]
            source = min(waiting, key=lambda k: (Fraction(emitted[k] + 1, budgets[k]), f"{k}"))
            document = begins[source] + at[source]
            at[source] += 1
        else:
            document = given_order[step]
            source = 0
        tokens, text, url = flat[document]
        winner = texts.get(text, urls.get(url) if url >= 0 else None)
        if winner is not None:
            lost[document] = winner
            continue
        texts[text] = document
        if url >= 0:
            urls[url] = document
        order.append(document)
        emitted[source] += tokens
    return order, lost


def fast(sources: Sources, budgets: list[int], given_order: list[int] | None) -> tuple[list[int], dict[int, int]]:
    flat = [document for one in sources for document in one]
    begins = np.cumsum([0, *(len(one) for one in sources)]).astype(np.int64)
    total = len(flat)
    classes = np.full((2, total), -1, np.int32)
    for row, column in enumerate((1, 2)):
        first: dict[int, int] = {}
        for k, document in enumerate(flat):
            if document[column] >= 0:
                classes[row, k] = first.setdefault(document[column], k)
    order, winner, why = np.empty(total, np.int32), np.full(total, -1, np.int32), np.zeros(total, np.uint8)
    rank = np.array(sorted(range(len(sources)), key=str), np.int64)
    kept = _walk(
        np.array(given_order or [], np.int32),
        np.array([document[0] for document in flat], np.int32),
        begins,
        np.array(budgets, np.float64),
        rank,
        classes,
        np.array([1, 2], np.uint8),
        np.full(classes.shape, -1, np.int32),
        order,
        winner,
        why,
    )
    assert ((why > 0) == (winner >= 0)).all()
    return order[:kept].tolist(), {int(k): int(winner[k]) for k in np.flatnonzero(winner >= 0)}


@settings(max_examples=200, deadline=None)
@given(sources=sources_of, seed=st.integers(0, 99), shuffle=st.booleans())
def test_the_walk_does_what_is_obvious(sources: Sources, seed: int, shuffle: bool) -> None:
    rng = np.random.default_rng(seed)
    budgets = rng.integers(1, 50, len(sources)).tolist()
    total = sum(map(len, sources))
    order = rng.permutation(total).tolist() if shuffle and total else None
    assert fast(sources, budgets, order) == obvious(sources, budgets, order)


def test_what_went_stands_for_nothing() -> None:
    # The second goes for the first's text; the third has only the second's url, and stays.
    assert fast([[(1, 0, 0), (1, 0, 1), (1, 1, 1)]], [3], None) == ([0, 2], {1: 0})


def test_a_duplicate_does_not_count_as_emitted() -> None:
    a = [(10, k, -1) for k in range(4)]
    b = [(10, 0, -1), (10, 50, -1), (10, 51, -1)]
    order, lost = fast([a, b], [40, 20], None)
    assert lost == {4: 0}
    assert order == [0, 5, 1, 2, 6, 3]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1 << 20), parts=st.integers(2, 4))
def test_every_prefix_has_the_mix_of_the_budgets(seed: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    budgets = rng.integers(100, 1000, parts).tolist()
    sources: Sources = []
    number = 0
    for budget in budgets:
        documents: list[Document] = []
        while sum(document[0] for document in documents) < budget:
            documents.append((int(rng.integers(1, 20)), number, -1))
            number += 1
        sources.append(documents)
    home = [k for k, documents in enumerate(sources) for _ in documents]
    flat = [document for documents in sources for document in documents]
    emitted = np.zeros(parts)
    order, _ = fast(sources, budgets, None)
    for document in order:
        emitted[home[document]] += flat[document][0]
        share = emitted / np.array(budgets)
        # No source is further ahead of another than one document of its own.
        assert (share.max() - np.minimum(share.min(), 1)) * min(budgets) <= 20 + 1 + 20


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 30), max_size=40), target=st.integers(1, 60), limit=st.integers(30, 90))
def test_a_shard_ends_with_the_document_that_reaches_its_size(lengths: list[int], target: int, limit: int) -> None:
    sizes = np.array(lengths, np.int32)
    staged = Staged(("a",), np.array([0, len(sizes)]), (), np.array([0]), sizes)
    for most in (None, limit):
        runs = list(cut(staged, np.arange(len(sizes), dtype=np.int32), target, most))
        assert [int(k) for run in runs for k in run] == list(range(len(sizes)))
        for run in runs:
            total = int(sizes[run].sum())
            assert most is None or total <= most
            assert total - int(sizes[run[-1]]) < target
        if most is None:
            assert all(int(sizes[run].sum()) >= target for run in runs[:-1])


@pytest.mark.parametrize(("row", "chunked", "lost"), [(8, 1 - 22 / 40, 3 / 22), (1000, 1 - 22 / 3000, 0.0)])
def test_waste_is_as_it_is_defined(row: int, chunked: float, lost: float) -> None:
    # Lengths 3, 9 and 10: 1, 2 and 2 rows of 8.
    found = waste(np.array([3, 9, 10]), row)
    assert found["chunked"] == pytest.approx(chunked, abs=1e-6)
    assert found["lost"] == pytest.approx(lost, abs=1e-6)


@given(lengths=st.lists(st.integers(0, 100), min_size=1, max_size=60))
def test_quantiles_are_lengths_that_so_many_do_not_exceed(lengths: list[int]) -> None:
    found = quantiles(np.array(lengths))
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert sum(one <= found[name] for one in lengths) >= share * len(lengths)
        assert sum(one < found[name] for one in lengths) < share * len(lengths)
