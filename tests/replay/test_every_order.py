"""Where documents are read: `locate` of every order against reading the order through, both ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.feed.jobs import ORDERS, made_order, write_data
from tokenreel.index.assemble import Assembled
from tokenreel.spans import Flag

Pieces = set[tuple[int, int, int, int]]


def read_through(made: Assembled, number: int) -> Pieces:
    """(document, sample, begin, length) of everything that an order reads of one of its corpora."""
    length = made.order.length
    assert length is not None
    table = made.resolved(made.order.spans(0, length))
    rows = table.sample_of()
    mine = (table.corpus == number) & (table.length > 0) & ((table.flags & Flag.PAD) == 0)
    return {
        (int(table.document[e]), int(rows[e]), int(table.begin[e]), int(table.length[e])) for e in np.flatnonzero(mine)
    }


def located(made: Assembled, number: int, documents: list[int]) -> Pieces:
    hits = made.order.locate(number, documents, 0, made.order.length or 0)
    return set(
        zip(hits.document.tolist(), hits.sample.tolist(), hits.begin.tolist(), hits.length.tolist(), strict=True)
    )


@pytest.mark.parametrize("name", ORDERS)
def test_every_document_is_located_where_it_is_read_and_nowhere_else(tmp_path: Path, name: str) -> None:
    made = made_order(write_data(tmp_path), name)
    for number, corpus in enumerate(made.corpora):
        wanted = read_through(made, number)
        assert located(made, number, list(range(corpus.table().documents))) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDERS)
def test_ten_thousand_documents_are_found_in_the_samples_named(tmp_path: Path, name: str) -> None:
    samples = 4000
    made = made_order(write_data(tmp_path, samples), name, samples)
    rng = np.random.default_rng(1)
    asked = 0
    for number, corpus in enumerate(made.corpora):
        documents = rng.integers(0, corpus.table().documents, -(-10_000 // len(made.corpora))).astype(np.int64)
        asked += len(documents)
        hits = made.order.locate(number, np.unique(documents), 0, made.order.length or 0)
        # Every sample named is read again, and has the tokens that were said to be there.
        table = made.resolved(made.order.spans_at(hits.sample))
        rows = table.sample_of()
        read = set(
            zip(rows.tolist(), table.document.tolist(), table.begin.tolist(), table.length.tolist(), strict=True)
        )
        named = enumerate(zip(hits.document.tolist(), hits.begin.tolist(), hits.length.tolist(), strict=True))
        assert all((row, *hit) in read for row, hit in named)
        assert set(np.unique(documents).tolist()) & {d for d, *_ in read_through(made, number)} == set(
            hits.document.tolist()
        )
    assert asked >= 10_000
