"""Extents split at document edges in one kernel: the same as `corpus.resolve`, whatever is kept and whatever is sliced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.feed.gather_corpora import Made, made, tables
from tokenreel.corpus.resolve import resolve
from tokenreel.errors import OrderError
from tokenreel.feed.gather_documents import DocumentEdges
from tokenreel.spans import SpanTable


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(tmp_path_factory.mktemp("corpora"))


def same(a: SpanTable, b: SpanTable) -> bool:
    return all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in zip(a.columns(), b.columns(), strict=True))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_pieces_are_those_of_resolve(corpora: Made, data: st.DataObject) -> None:
    """Over whole corpora and slices of them, edges kept or not, several tables in turn, some of them resolved already."""
    used = []
    for corpus in corpora.corpora:
        low = data.draw(st.integers(0, len(corpus) - 15))
        used.append(corpus[low : data.draw(st.integers(low + 15, len(corpus)))] if data.draw(st.booleans()) else corpus)
    sizes = [corpus.tokens for corpus in used]
    if min(sizes) < 40:
        return
    edges = DocumentEdges(used, data.draw(st.sampled_from([0, 500, 1 << 20])))
    doc_tables = [corpus.table() for corpus in used]
    for _ in range(3):
        table = data.draw(tables(sizes, 24, data.draw(st.integers(0, 1))))
        expected = resolve(table, doc_tables)
        assert same(edges.resolve(table), expected)
        assert same(edges.resolve(expected), expected)


def test_no_more_edges_are_kept_than_the_budget_unless_a_batch_needs_them(corpora: Made) -> None:
    corpus = corpora.corpora[2]
    shards = len(corpus.entries)
    assert shards == 3
    edges = DocumentEdges([corpus], budget=1)
    begins = np.cumsum([0, *corpus.shard_tokens])[:-1]
    for begin in begins:
        edges.resolve(SpanTable.of([0, 1], [begin], [5]))
        assert len(edges._kept) == 1
    edges.resolve(SpanTable.of([0, shards], begins, [5] * shards))
    assert len(edges._kept) == shards


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"corpus": 9}, "ORD003"),
        ({"begin": [-1]}, "ORD003"),
        ({"begin": [1 << 40]}, "ORD003"),
        ({"length": [0]}, "ORD004"),
        ({"splits": [0, 2]}, "ORD004"),
    ],
)
def test_tables_that_are_not_well_formed(corpora: Made, columns: dict[str, Any], code: str) -> None:
    said: dict[str, Any] = {"splits": [0, 1], "begin": [3], "length": [4], "corpus": 0, **columns}
    table = SpanTable.of(said.pop("splits"), said.pop("begin"), said.pop("length"), **said)
    with pytest.raises(OrderError) as caught:
        DocumentEdges(corpora.corpora).resolve(table)
    assert caught.value.code == code
