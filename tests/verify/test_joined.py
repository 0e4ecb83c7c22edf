"""Parts of a split, begun where they are thought to begin and joined in order: identity and statistics of the whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel import hashing
from tokenreel.corpus.statistics import StatisticsCounter
from tokenreel.formats import Boundary
from tokenreel.hashing import IdentityHasher
from tokenreel.verify.joined import Part, Split

BOUNDARIES = [Boundary(), Boundary((), (0,)), Boundary((1,), (0,)), Boundary((0,), (0,)), Boundary((1, 2), (0,))]


@dataclass
class Shard:
    """Documents, and whether nobody can count them before they are read."""

    texts: list[list[int]]
    broken: bool = False

    def batches(self) -> Iterator[tuple[Any, Any]]:
        for text in self.texts:
            yield np.array(text, dtype=np.uint16), np.array([len(text)])


documents = st.lists(st.lists(st.integers(0, 3), max_size=7), max_size=6)


@given(
    shards=st.lists(st.builds(Shard, documents, st.booleans()), min_size=1, max_size=8),
    boundary=st.sampled_from(BOUNDARIES),
    ahead=st.integers(0, 4),
)
def test_shards_begun_ahead_of_each_other_are_the_whole(shards: list[Shard], boundary: Boundary, ahead: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "DOCUMENT_LEAF", 4)
        patch.setattr(hashing, "TOKEN_LEAF", 8)
        split = Split(boundary, identity=True, statistics=True)
        whole, counted = IdentityHasher(boundary.prefix, boundary.suffix), StatisticsCounter(boundary)
        waiting: deque[tuple[Shard, Part]] = deque()

        def add() -> None:
            shard, part = waiting.popleft()
            split.add(part, shard.batches)

        for shard in shards:
            part: Part = split.part(None if shard.broken else (len(shard.texts), sum(map(len, shard.texts))))
            for ids, lengths in shard.batches():
                part.identify(ids, lengths)
                assert part.counter is not None
                part.counter.update(ids, lengths)
                whole.update(ids, lengths)
                counted.update(ids, lengths)
            waiting.append((shard, part))
            if len(waiting) > ahead:
                add()
        while waiting:
            add()
        assert split.identity() == whole.finish()
        assert split.statistics() == counted.finish()


@given(st.lists(st.lists(st.integers(1, 9), max_size=5).map(lambda ids: [*ids, 0]), max_size=5), st.integers(1, 6))
def test_nothing_is_read_again_where_documents_have_their_boundary(texts: list[list[int]], count: int) -> None:
    def again() -> Iterator[Any]:
        raise AssertionError("read again")

    split = Split(Boundary((), (0,)), identity=True, statistics=False)
    shard = Shard(texts)
    parts = [split.part((len(texts), sum(map(len, texts)))) for _ in range(count)]
    for part in parts:
        for ids, lengths in shard.batches():
            part.identify(ids, lengths)
        split.add(part, again)
    found = split.identity()
    assert found is not None
    assert found.documents == count * len(texts)


def test_a_shard_that_was_not_read_leaves_no_identity_and_no_statistics() -> None:
    split = Split(Boundary((), (0,)), identity=True, statistics=True)
    first, second, third = (split.part((1, 2)) for _ in range(3))
    second.stop()
    for part in (first, second, third):
        split.add(part, lambda: iter(()))
    assert not split.streamed
    assert (split.identity(), split.statistics()) == (None, None)


def test_an_id_that_no_identity_holds_leaves_the_statistics() -> None:
    split = Split(Boundary((), (0,)), identity=True, statistics=True)
    part = split.part((1, 2))
    part.identify(np.array([-5, 0]), np.array([2]))
    assert part.counter is not None
    part.counter.update(np.array([-5, 0]), np.array([2]))
    split.add(part, lambda: iter(()))
    assert split.identity() is None
    assert split.statistics() is not None
