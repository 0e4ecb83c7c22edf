"""Zig-zag cuts: every column once, chunks as Megatron gives them, and which ranks of a job read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import UsageError
from tokenreel.feed.context_parallel import columns, cut, data_rank, join, reads


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 3))
def test_ranks_cut_a_row_into_equal_parts_that_join_again(size: int, chunk: int, rows: int) -> None:
    length = 2 * size * chunk
    table = np.arange(rows * length).reshape(rows, length)
    parts = [cut({"x": table}, rank, size)["x"] for rank in range(size)]
    assert all(part.shape == (rows, length // size) for part in parts)
    assert sorted(np.concatenate([columns(length, rank, size) for rank in range(size)]).tolist()) == list(range(length))
    for rank, part in enumerate(parts):
        assert (part == table[:, columns(length, rank, size)]).all()
    assert (join(parts) == table).all()


@given(st.integers(1, 6), st.integers(1, 4))
def test_causal_work_is_even(size: int, chunk: int) -> None:
    # A query at column c sees c + 1 keys.
    work = {int((columns(2 * size * chunk, rank, size) + 1).sum()) for rank in range(size)}
    assert len(work) == 1


def test_masks_keep_every_key_and_edges_stay_whole() -> None:
    mask = np.arange(64).reshape(1, 1, 8, 8)
    edges, longest = np.arange(9)[None], np.array([3])
    made = cut({"attention_mask": mask, "cu_seqlens": edges, "max_seqlen": longest}, 1, 2)
    assert (made["attention_mask"] == mask[:, :, [2, 3, 4, 5]]).all()
    assert made["cu_seqlens"] is edges
    assert made["max_seqlen"] is longest


@pytest.mark.parametrize(("length", "rank", "size"), [(8, 2, 2), (8, -1, 2), (6, 0, 2), (8, 0, 0)])
def test_what_cannot_be_cut_is_refused(length: int, rank: int, size: int) -> None:
    with pytest.raises(UsageError, match="USE003"):
        columns(length, rank, size)


def test_ranks_of_one_group_share_their_data() -> None:
    world, sizes = 24, {"tensor": 2, "context": 3, "pipeline": 2}
    found = [data_rank(rank, world=world, **sizes) for rank in range(world)]
    assert {data for data, _, _ in found} == {0, 1}
    assert all(data_world == 2 for _, data_world, _ in found)
    # Each pair of data and context rank has as many ranks: tensor times pipeline.
    assert sorted({(d, c): found.count((d, 2, c)) for d, _, c in found}.values()) == [4] * 6
    with pytest.raises(UsageError, match="USE003"):
        data_rank(0, tensor=5, world=8)


def test_one_tensor_rank_of_the_first_and_last_stage_reads() -> None:
    assert [r for r in range(12) if reads(r, tensor=2, pipeline=3, world=12)] == [0, 2, 8, 10]
    assert all(reads(r, world=4) for r in range(4))
