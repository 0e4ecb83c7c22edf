"""Where documents are read: `locate` of every order against reading the order through, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.feed.jobs import ORDERS, ROW, SAMPLES, order_over, order_tables, write_data
from tokenreel.index.assemble import Assembled
from tokenreel.order.protocol import Order
from tokenreel.pack.packed_policy import POLICIES
from tokenreel.spans import Flag

# A flat plan knows no documents: it says so when it is asked for one.
MORE = (*ORDERS, "nested", "nested-twice", "levanter-packed", *(f"packed-{one}" for one in POLICIES if one != "flat"))


def tables(samples: int) -> dict[str, Any]:
    """Every order of the feeds' proofs, mixtures of mixtures and of packed rows, and more ways to pack."""
    made = order_tables(samples)
    windows = {"kind": "windows", "corpus": "code", "row_tokens": ROW, "seed": 5}

    def packed(policy: str) -> dict[str, Any]:
        split = policy in ("bestfit", "firstfit", "one-per-row", "crop", "levanter-greedy")
        oversize = {"oversize": "split"} if split else {}
        return {"kind": "packed", "corpus": "web", "row_tokens": ROW, "policy": policy, **oversize}

    def mixed(*orders: dict[str, Any]) -> dict[str, Any]:
        component = [
            {"name": f"c{k}", "weight": 1.0 + k, "at_end": "repeat", "order": order} for k, order in enumerate(orders)
        ]
        return {"kind": "mix", "samples": samples, "block": 8, "component": component}

    inner = mixed(windows, packed("bestfit"))
    return {
        **made,
        "nested": mixed(inner, made["stream"]),
        "nested-twice": mixed(mixed(inner, made["windows"]), made["megatron"]),
        **{f"packed-{one}": packed(one) for one in POLICIES},
        "levanter-packed": {
            "kind": "levanter", "row_tokens": ROW, "block": 4, "stop": "all_exhausted",
            "component": [
                {"name": "a", "weight": 0.7, "order": packed("levanter-greedy")},
                {"name": "b", "weight": 0.3, "order": {**packed("levanter-greedy"), "corpus": "code"}},
            ],
        },
    }  # fmt: skip


def made_order(folder: Path, name: str, samples: int = SAMPLES) -> Assembled:
    return order_over(folder, tables(samples)[name])


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


@pytest.mark.parametrize("name", MORE)
def test_every_document_is_located_where_it_is_read_and_nowhere_else(tmp_path: Path, name: str) -> None:
    made = made_order(write_data(tmp_path), name)
    for number, corpus in enumerate(made.corpora):
        wanted = read_through(made, number)
        assert located(made, number, list(range(corpus.table().documents))) == wanted


@pytest.mark.parametrize("name", MORE)
def test_few_calls_of_spans_find_a_document(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_order(write_data(tmp_path), name)
    calls = []
    for kind in {type(order) for order in _orders(made.order)}:
        for method in ("spans", "spans_at"):
            plain = getattr(kind, method)
            monkeypatch.setattr(
                kind, method, lambda self, *a, plain=plain, method=method: calls.append(method) or plain(self, *a)
            )
    for number in range(len(made.corpora)):
        calls.clear()
        found = located(made, number, [7])
        assert len(calls) < 100
        assert found == {piece for piece in read_through(made, number) if piece[0] == 7}


def _orders(order: Order) -> Iterator[Order]:
    yield order
    for child in order.children:
        yield from _orders(child)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
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
