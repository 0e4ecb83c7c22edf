"""Items of evaluation sets that share n-grams: each counts for itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.build.contamination import grams_of, overlap
from tokenreel.build.mix_items import Items

ids = st.lists(st.integers(0, 3), max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.lists(ids, min_size=1, max_size=4), st.lists(ids, max_size=4), st.integers(1, 5))
def test_every_item_that_has_an_n_gram_counts(items: list[list[int]], documents: list[list[int]], n: int) -> None:
    def grams(one: list[int]) -> list[tuple[int, ...]]:
        return [tuple(one[k : k + n]) for k in range(len(one) - n + 1)]

    edges = np.concatenate(([0], np.cumsum([len(one) for one in items])))
    known = grams_of([i for one in items for i in one], edges, n)
    flat = np.array([i for one in documents for i in one], np.uint32)
    found = Items.of(known).pairs(overlap(known, flat, [len(one) for one in documents]))
    wanted: list[tuple[int, int, int, float]] = []
    for d, document in enumerate(documents):
        for j, item in enumerate(items):
            shared = [k for k, gram in enumerate(grams(document)) if gram in grams(item)]
            if shared:
                common = set(grams(document)) & set(grams(item))
                wanted.append((d, j, shared[0], len(common) / len(set(grams(item)))))
    assert found == wanted
