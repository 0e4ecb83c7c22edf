"""Statistics against plain counting."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.corpus.lengths import QUANTILES, SHORT
from tokenreel.corpus.statistics import StatisticsCounter
from tokenreel.formats import Boundary


@given(
    documents=st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=12),
    batch=st.integers(1, 5),
    suffix=st.sampled_from([(0,), (0, 1)]),
)
def test_statistics_equal_counting(documents: list[list[int]], batch: int, suffix: tuple[int, ...]) -> None:
    counter = StatisticsCounter(Boundary((2,), suffix))
    for k in range(0, len(documents), batch):
        part = documents[k : k + batch]
        counter.update(np.array([i for d in part for i in d], dtype=np.int64), np.array([len(d) for d in part]))
    stats = counter.finish()
    lengths = sorted(map(len, documents))
    assert stats.documents == len(documents)
    assert stats.tokens == sum(lengths)
    assert stats.empty_documents == lengths.count(0)
    assert stats.max_id == max((i for d in documents for i in d), default=None)
    assert stats.starts_with_prefix == sum(d[:1] == [2] for d in documents)
    assert stats.ends_with_suffix == sum(tuple(d[-len(suffix) :]) == suffix for d in documents)
    if len(suffix) == 1:
        assert stats.suffix_inside == sum(d[:-1].count(0) for d in documents)
        assert stats.double_suffix == sum(d[-2:] == [0, 0] for d in documents)
    for q, value in stats.quantiles:
        assert sum(length <= value for length in lengths) >= q * len(lengths) - 1e-6
        assert value in lengths
    assert len(stats.quantiles) == (len(QUANTILES) if documents else 0)


def test_long_documents_keep_quantiles_exact() -> None:
    counter = StatisticsCounter(Boundary())
    lengths = np.array([1, SHORT - 1, SHORT, SHORT + 5, 3])
    counter.update(np.zeros(int(lengths.sum()), dtype=np.uint16), lengths)
    found = dict(counter.finish().quantiles)
    assert found[0.5] == SHORT - 1
    assert found[0.75] == SHORT
    assert found[1.0] == SHORT + 5
