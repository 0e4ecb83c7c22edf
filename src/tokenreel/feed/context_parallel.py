"""Context parallelism: the columns of a row that one rank computes, cut zig-zag so that causal work is even.

A row is cut in twice as many chunks as there are ranks; rank r has chunk r and chunk ``2 * size - 1 - r``. Labels, masks
and positions were made before the cut, so no rank needs a neighbour's token. Ranks of one context-parallel group read the
same samples: `rank` and `world` of their feeds are data-parallel ones. Tensor-parallel ranks compute the same columns, so
one of them reads and sends the rest (`reads`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

WHOLE = ("cu_seqlens", "max_seqlen")
"""Arrays that describe whole rows: every rank is given all of them."""


def columns(row_tokens: int, rank: int, size: int) -> I64:
    """Return the columns of a rank, in order. Raises `UsageError` (USE003) unless ``2 * size`` divides the row.

    >>> columns(8, 0, 2).tolist(), columns(8, 1, 2).tolist()
    ([0, 1, 6, 7], [2, 3, 4, 5])
    """
    import numpy as np

    return np.concatenate([np.arange(low, high, dtype=np.int64) for low, high in _chunks(row_tokens, rank, size)])


def cut(arrays: Mapping[str, npt.NDArray[Any]], rank: int, size: int) -> dict[str, npt.NDArray[Any]]:
    """Return a batch's arrays with the columns of one context-parallel rank, as new arrays; one rank has them all.

    Dense masks (rows, 1, columns, columns) keep the rows of queries that the rank computes and all keys, as Megatron's
    do. `WHOLE` is not cut: kernels for packed documents need each document's length to be a multiple of ``2 * size``,
    which the packing of the corpus has to give. Raises `UsageError` (USE003) as `columns`.

    >>> import numpy as np
    >>> cut({"labels": np.arange(8)[None]}, 1, 2)["labels"].tolist()
    [[2, 3, 4, 5]]
    """
    import numpy as np

    out = {}
    for name, array in arrays.items():
        if name in WHOLE or array.ndim < 2:
            out[name] = array
            continue
        axis = 2 if array.ndim == 4 else 1
        before = (slice(None),) * axis
        parts = [array[(*before, slice(low, high))] for low, high in _chunks(array.shape[axis], rank, size)]
        out[name] = np.concatenate(parts, axis=axis)
    return out


def join(parts: Sequence[npt.NDArray[Any]], axis: int = 1) -> npt.NDArray[Any]:
    """Return the whole rows from the parts of all ranks, in the order of ranks: what `cut` took apart."""
    import numpy as np

    halves = [np.split(part, 2, axis=axis) for part in parts]
    return np.concatenate([half[0] for half in halves] + [half[1] for half in reversed(halves)], axis=axis)


def data_rank(rank: int, *, tensor: int = 1, context: int = 1, pipeline: int = 1, world: int) -> tuple[int, int, int]:
    """Return (data-parallel rank, data-parallel world, context-parallel rank) of a global rank in Megatron's layout.

    Tensor-parallel ranks are next to each other, then context, data and pipeline: ``tp-cp-dp-pp``, Megatron's default order
    without expert parallelism. Raises `UsageError` (USE003) where the sizes do not divide `world`.

    >>> [data_rank(rank, tensor=2, context=2, world=8) for rank in (0, 1, 2, 7)]
    [(0, 2, 0), (0, 2, 0), (0, 2, 1), (1, 2, 1)]
    """
    both = tensor * context * pipeline
    if min(tensor, context, pipeline, world) < 1 or world % both or not 0 <= rank < world:
        found = f"rank {rank} of {world}, tensor {tensor}, context {context}, pipeline {pipeline}"
        raise UsageError("USE003", "ranks", expected=f"a world that {both} divides, a rank below it", found=found)
    data = world // both
    return rank // (tensor * context) % data, data, rank // tensor % context


def reads(rank: int, *, tensor: int = 1, pipeline: int = 1, world: int) -> bool:
    """Whether a global rank needs the data itself: tensor rank 0 of the first or last pipeline stage.

    >>> [rank for rank in range(8) if reads(rank, tensor=2, pipeline=2, world=8)]
    [0, 2, 4, 6]
    """
    stage = rank // (world // pipeline)
    return rank % tensor == 0 and stage in (0, pipeline - 1)


def _chunks(length: int, rank: int, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    if size < 1 or not 0 <= rank < size:
        raise UsageError("USE003", "cp_rank", expected=f"0 .. {size - 1}", found=f"{rank} of {size}")
    if length % (2 * size):
        raise UsageError("USE003", "cp_size", expected=f"a row that {2 * size} divides", found=f"{length} columns")
    chunk = length // (2 * size)
    last = 2 * size - 1 - rank
    return (rank * chunk, rank * chunk + chunk), (last * chunk, last * chunk + chunk)
