"""Dense causal masks that keep segments apart, for models that take nothing better.

A mask of S x S costs its square in memory for every row and rules out the fastest attention; `cu_seqlens` and segment ids
say the same. Padding attends to padding, so that no row of a softmax is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel

if TYPE_CHECKING:
    import numpy.typing as npt


def dense(segments: npt.NDArray[np.int32], out: npt.NDArray[Any], low: int, high: int) -> None:
    """Fill rows [low, high) of a mask (bool: True may attend) or a bias (float32: 0, or -inf) of shape (rows, 1, S, S)."""
    if out.dtype == np.bool_:
        _mask(segments, out.view(np.uint8), low, high)
    else:
        _bias(segments, out, low, high)


@kernel("void(int32[:, ::1], uint8[:, :, :, ::1], int64, int64)")
def _mask(segments: Any, out: Any, low: int, high: int) -> None:
    for row in range(low, high):
        mine = segments[row]
        for i in range(len(mine)):
            line = out[row, 0, i]
            for j in range(len(mine)):
                line[j] = 1 if j <= i and mine[j] == mine[i] else 0


@kernel("void(int32[:, ::1], float32[:, :, :, ::1], int64, int64)")
def _bias(segments: Any, out: Any, low: int, high: int) -> None:
    for row in range(low, high):
        mine = segments[row]
        for i in range(len(mine)):
            line = out[row, 0, i]
            for j in range(len(mine)):
                line[j] = 0.0 if j <= i and mine[j] == mine[i] else -np.inf
