"""Shadow mode: equal loaders are equal, and the first label that differs is named with its document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenreel.errors import UsageError
from tokenreel.feed.opening import open_feed
from tokenreel.order.stream import StreamOrder
from tokenreel.order.windows import WindowsOrder
from tokenreel.testing import compare_loader, numbered_documents, tiny_corpus
from tokenreel.testing.shadow import label_place

LENGTHS = [5, 3, 9, 1, 12, 30, 2, 40]


@pytest.fixture
def corpus(tmp_path: Path) -> Any:
    return tiny_corpus(tmp_path / "n", numbered_documents(LENGTHS), shards=2)


def feed_of(corpus: Any, **options: Any) -> Any:
    order = WindowsOrder.over(corpus.table(), 6, 4)
    return open_feed(order, corpora=corpus, **{"batch": 3, "rows": "plain", **options})


def theirs(corpus: Any, wrong: tuple[int, int, int] | None = None, steps: int = 99, **options: Any) -> Iterator[Any]:
    for batch, _ in zip(feed_of(corpus, **options), range(steps), strict=False):
        labels = batch["labels"].copy()
        if wrong is not None and batch.step == wrong[0]:
            labels[wrong[1], wrong[2]] = 777
        yield batch["input_ids"], labels


def test_equal_loaders(corpus: Any) -> None:
    found = compare_loader(theirs(corpus), feed_of(corpus), 4)
    assert found.equal
    assert found.line() == "equal for 4 steps"
    assert compare_loader((y for _, y in theirs(corpus)), feed_of(corpus), 4).equal
    assert compare_loader(theirs(corpus), feed_of(corpus), 4, labels=lambda batch: batch[1].tolist()).equal


@pytest.mark.parametrize("where", [(0, 0, 0), (2, 1, 3), (3, 2, 5)])
def test_the_first_wrong_label_is_named_with_its_document(where: tuple[int, int, int], corpus: Any) -> None:
    found = compare_loader(theirs(corpus, where), feed_of(corpus))
    wrong = found.wrong
    assert wrong is not None
    assert not found.equal
    assert (wrong.step, wrong.row, wrong.column, wrong.found) == (*where, 777)
    # Ids are positions in the stream, so the right label says where it is.
    assert sum(LENGTHS[: wrong.document]) + wrong.offset == wrong.expected
    assert 0 <= wrong.offset < LENGTHS[wrong.document]
    assert f"document {wrong.document} of corpus 0" in found.line()


def test_every_label_s_place(corpus: Any) -> None:
    with feed_of(corpus) as feed:
        for batch in feed:
            for row, labels in enumerate(batch["labels"].tolist()):
                for column, label in enumerate(labels):
                    number, document, offset = label_place(batch, feed, row, column)
                    assert (number, sum(LENGTHS[:document]) + offset) == (0, label)


def test_a_label_that_is_no_token(corpus: Any) -> None:
    order = StreamOrder.over(corpus.table(), 6, row_ahead=0)
    feed = open_feed(order, corpora=corpus, batch=2, rows="plain")
    assert label_place(next(feed), feed, 0, 5) == (-1, -1, -1)

    def other() -> Iterator[Any]:
        with open_feed(order, corpora=corpus, batch=2, rows="plain") as again:
            for batch in again:
                batch["labels"][0, 5] = 3
                yield batch["labels"]

    assert "no stored token" in compare_loader(other(), open_feed(order, corpora=corpus, batch=2, rows="plain")).line()


def test_what_is_masked_may_be_left_out(corpus: Any) -> None:
    def feed() -> Any:
        return feed_of(corpus, rows="documents")

    def other() -> Iterator[Any]:
        for batch in feed():
            yield np.where(batch["loss_mask"] > 0, batch["labels"], 5)

    assert not compare_loader(other(), feed()).equal
    assert compare_loader(other(), feed(), 4, masked=False).equal


def test_loaders_that_end_or_have_other_shapes(corpus: Any) -> None:
    assert compare_loader(theirs(corpus, steps=2), feed_of(corpus)).line() == (
        "equal for 2 steps; the loader ended after 2 steps"
    )
    assert "the feed ended" in compare_loader(theirs(corpus), feed_of(corpus), 500).line()
    assert "has shape" in compare_loader(theirs(corpus, batch=2), feed_of(corpus)).line()
    with pytest.raises(UsageError, match="USE003"):
        compare_loader([], feed_of(corpus), 0)
