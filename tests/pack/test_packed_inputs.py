"""What kernels are given says one thing: dense bias, segment masks and a loop over edges give equal outputs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.order.laws import Table
from tokenreel.errors import OrderError
from tokenreel.feed.hobbylm import build_block_diagonal_bias, positions_from_segments
from tokenreel.pack.cu_seqlens import row_edges
from tokenreel.pack.packed import packed
from tokenreel.pack.packed_inputs import check_edges, positions_of, segments_of, thd

SIZES = [5, 9, 2, 3, 16, 1, 1, 30, 7, 4]
ROOM = 16


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Edges of the pieces of packed rows, filled up, and each row's longest."""
    table = packed(Table(SIZES), ROOM, "bestfit", oversize="split", seed=2).prepare().spans(0, 5)
    edges, longest = np.empty((5, ROOM + 1), dtype=np.int32), np.empty(5, dtype=np.int32)
    row_edges(table, edges, longest, ROOM, 0, 5)
    return edges, longest


EDGES, LONGEST = rows()
SEGMENTS = np.stack([segments_of(row) for row in EDGES])
RNG = np.random.default_rng(0)
HEADS, WIDTH = 2, 8
Q, K, V = (RNG.standard_normal((len(EDGES), HEADS, ROOM, WIDTH)) for _ in range(3))


def each_alone() -> np.ndarray:
    """Causal attention of every piece for itself: what varlen and THD kernels compute from edges."""
    out = np.zeros_like(Q)
    for row, edges in enumerate(EDGES):
        for low, high in pairwise(edges.tolist()):
            q, k, v = (x[row, :, low:high] for x in (Q, K, V))
            scores = q @ np.swapaxes(k, 1, 2) / math.sqrt(WIDTH)
            scores = np.where(np.tri(high - low, dtype=bool), scores, -np.inf)
            if high > low:
                weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
                out[row, :, low:high] = weights / weights.sum(axis=-1, keepdims=True) @ v
    return out


EXPECTED = each_alone()


def test_rows_have_several_pieces_and_padding() -> None:
    assert (np.diff(EDGES, axis=1) > 0).sum() > len(EDGES)
    assert EDGES[:, -1].tolist() == [ROOM] * len(EDGES)


def test_a_dense_bias_gives_the_same() -> None:
    scores = Q @ np.swapaxes(K, 2, 3) / math.sqrt(WIDTH) + build_block_diagonal_bias(SEGMENTS, np.float64)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found = weights / weights.sum(axis=-1, keepdims=True) @ V
    assert np.abs(found - EXPECTED).max() < 1e-12


def test_torch_sdpa_gives_the_same() -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x) for x in (Q, K, V))
    segments = torch.from_numpy(SEGMENTS)
    bias = build_block_diagonal_bias(segments, torch.float64)
    for mask in (bias, bias == 0):
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        assert np.abs(found.numpy() - EXPECTED).max() < 1e-12
    assert positions_from_segments(segments).tolist() == positions_from_segments(SEGMENTS).tolist()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
def test_torch_flex_attention_gives_the_same() -> None:
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v = (torch.from_numpy(x) for x in (Q, K, V))
    segments = torch.from_numpy(SEGMENTS)

    def same_document(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (segments[b, i] == segments[b, j]) & (i >= j)

    block = flex.create_block_mask(same_document, len(SEGMENTS), None, ROOM, ROOM, device="cpu", BLOCK_SIZE=ROOM)
    found = flex.flex_attention(q, k, v, block_mask=block)
    assert np.abs(found.numpy() - EXPECTED).max() < 1e-12


def test_jax_segment_masks_give_the_same() -> None:
    jax = pytest.importorskip("jax")
    jnp = pytest.importorskip("jax.numpy")
    q, k, v = (jnp.swapaxes(jnp.asarray(x, dtype=jnp.float32), 1, 2) for x in (Q, K, V))
    segments = jnp.asarray(SEGMENTS)
    # What splash attention does with SegmentIds and a static causal mask.
    mask = (segments[:, None, :, None] == segments[:, None, None, :]) & jnp.tril(jnp.ones((ROOM, ROOM), dtype=bool))
    found = jnp.swapaxes(jax.nn.dot_product_attention(q, k, v, mask=mask), 1, 2)
    assert np.abs(np.asarray(found) - EXPECTED).max() < 1e-5


def test_positions_do_not_matter_to_rotations_within_a_piece() -> None:
    """Rotary positions counted anew in every piece give the scores of positions counted through the row."""
    angle = RNG.standard_normal(WIDTH // 2)

    def turned(x: np.ndarray, at: np.ndarray) -> np.ndarray:
        turn = np.exp(1j * at[:, None, :, None] * angle)
        pairs = (x[..., ::2] + 1j * x[..., 1::2]) * turn
        return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)

    anew = np.stack([positions_of(row) for row in EDGES])
    through = np.broadcast_to(np.arange(ROOM), anew.shape)
    seen = build_block_diagonal_bias(SEGMENTS) == 0
    scores = [turned(Q, at) @ np.swapaxes(turned(K, at), 2, 3) for at in (anew, through)]
    assert np.abs(np.where(seen, scores[0] - scores[1], 0)).max() < 1e-10


# ---- shapes, types, monotony, without the kernels -------------------------------------------------------------------------


def test_edges_are_what_varlen_kernels_take() -> None:
    for row, longest in zip(EDGES, LONGEST.tolist(), strict=True):
        edges = check_edges(row, ROOM, longest)
        assert edges.dtype == np.int32
        assert edges.flags.c_contiguous
        assert longest == np.diff(row).max()


@pytest.mark.parametrize(
    ("edges", "tokens", "longest"),
    [
        ([1, 4], 4, None),
        ([0, 3], 4, None),
        ([0, 3, 2, 4], 4, None),
        ([0], 0, None),
        ([], 0, None),
        ([[0, 4]], 4, None),
        ([0, 1, 4], 4, 2),
        ([0, 1 << 31], 1 << 31, None),
    ],
)
def test_edges_that_cannot_be_are_refused(edges: Any, tokens: int, longest: int | None) -> None:
    with pytest.raises(OrderError, match="PCK025"):
        check_edges(edges, tokens, longest)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=20), st.sampled_from([1, 2, 4, 8]))
def test_thd_pads_every_piece_for_context_parallelism(lengths: list[int], size: int) -> None:
    edges = np.concatenate(([0], np.cumsum(lengths)))
    layout = thd(edges, size)
    padded = np.diff(layout.cu_seqlens_padded)
    assert layout.cu_seqlens.tolist() == edges.tolist()
    assert layout.cu_seqlens_padded.dtype == layout.cu_seqlens.dtype == np.int32
    if size > 1:
        assert (padded % (2 * size) == 0).all()
    assert (padded >= lengths).all()
    assert (padded - lengths < max(1, 2 * size if size > 1 else 1)).all()
    values = np.arange(1, int(edges[-1]) + 1)
    laid = layout.put(values)
    assert len(laid) == layout.tokens
    assert laid[laid > 0].tolist() == values.tolist()
    for k, length in enumerate(lengths):
        begin = int(layout.cu_seqlens_padded[k])
        assert laid[begin : begin + length].tolist() == values[edges[k] : edges[k + 1]].tolist()


def test_segments_for_splash_are_int32_and_padding_is_its_own() -> None:
    assert SEGMENTS.dtype == np.int32
    assert SEGMENTS.shape == (len(EDGES), ROOM)
    assert (np.diff(SEGMENTS, axis=1) >= 0).all()


def test_context_parallel_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(OrderError, match="PCK025"):
        thd([0, 3], 0)
