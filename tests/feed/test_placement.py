"""Placements: every sample of a step to one rank, and Megatron's as its sampler deals them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import UsageError
from tokenreel.feed.placement import Share, placement
from tokenreel.order.megatron_samplers import single

NAMES = st.sampled_from([("contiguous", None), ("strided", None), ("megatron", None), ("megatron", 1), ("megatron", 3)])


@given(NAMES, st.integers(0, 50), st.integers(0, 40), st.integers(1, 9))
def test_every_sample_goes_to_one_rank(kind: tuple[str, int | None], begin: int, count: int, world: int) -> None:
    placed = placement(*kind)
    parts = [placed.of(begin, count, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(begin, begin + count))
    assert all(bool((np.diff(part) > 0).all()) for part in parts)


@given(st.integers(0, 30), st.integers(0, 40), st.integers(1, 9))
def test_contiguous_parts_differ_by_one_at_most(begin: int, count: int, world: int) -> None:
    sizes = [len(placement("contiguous").of(begin, count, rank, world)) for rank in range(world)]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(0, 20), st.integers(1, 60))
def test_megatron_deals_as_its_sampler(micro: int, ranks: int, accumulate: int, consumed: int, more: int) -> None:
    """A step of ours is `accumulate` micro-batches of the sampler, rank by rank; the last one short."""
    total, step = consumed + more, micro * ranks * accumulate
    placed = placement("megatron", micro)
    for rank in range(ranks):
        theirs = list(single(total, consumed, micro, ranks, rank, drop_last=False))
        ours = [
            placed.of(begin, min(step, total - begin), rank, ranks).tolist() for begin in range(consumed, total, step)
        ]
        assert [k for batch in ours for k in batch] == [k for batch in theirs for k in batch]


def test_a_function_deals_samples() -> None:
    share = Share(1, 2, placement(lambda samples, rank, world: samples[::-1][rank::world]))
    assert share.of(10, 4).tolist() == [12, 10]


@pytest.mark.parametrize(
    "deal",
    [
        lambda samples, rank, world: samples,
        lambda samples, rank, world: samples[:0],
        lambda samples, rank, world: samples[rank::world] + 1,
        lambda samples, rank, world: samples[rank::world].astype(float),
        lambda samples, rank, world: samples[rank::world].reshape(1, -1),
    ],
    ids=["all to all", "none", "others", "floats", "two axes"],
)
def test_a_function_that_loses_or_repeats_is_refused(deal: object) -> None:
    with pytest.raises(UsageError) as caught:
        Share(0, 2, placement(deal)).of(0, 8)  # type: ignore[arg-type]
    assert caught.value.code == "STA014"


def test_a_function_that_changes_its_mind_is_refused() -> None:
    calls: list[int] = []

    def deal(samples: np.ndarray, rank: int, world: int) -> np.ndarray:
        calls.append(rank)
        return samples[rank::world] if len(calls) < 5 else samples[[0, 0]]

    share = Share(0, 2, placement(deal))
    share.of(0, 4)
    share.of(4, 4)
    with pytest.raises(UsageError, match="STA014"):
        share.of(8, 4)


@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0), (0, -1), (True, 2), (0, 1.0)], ids=str)
def test_a_rank_that_is_none_is_refused(rank: int, world: int) -> None:
    with pytest.raises(UsageError) as caught:
        Share(rank, world, placement("strided"))
    assert caught.value.code == "STA010"


def test_sizes_that_cannot_be_dealt_are_refused() -> None:
    with pytest.raises(UsageError, match="STA011"):
        Share(0, 5, placement("contiguous")).check(4)
    with pytest.raises(UsageError, match="STA014"):
        Share(0, 2, placement("megatron", 3)).check(8)
    Share(0, 2, placement("megatron", 2)).check(8)
    with pytest.raises(UsageError, match="STA014"):
        placement("round robin")
    with pytest.raises(UsageError, match="STA014"):
        placement("strided", 2)
