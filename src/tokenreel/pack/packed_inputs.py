"""What attention kernels take, from the edges of a row's documents: checked, padded for context parallelism, as masks.

A row policy gives ``cu_seqlens`` (int32, from 0 to the row's tokens, never falling, filled up with the last edge) and
``segment_ids``. Everything here follows from those; nothing looks for a token id. See `docs/packing.md` for each kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import OrderError

if TYPE_CHECKING:
    import numpy.typing as npt

    I32 = npt.NDArray[np.int32]


def check_edges(edges: npt.ArrayLike, tokens: int, max_seqlen: int | None = None) -> I32:
    """Return edges as flash-attn's varlen functions and TransformerEngine take them: int32, contiguous.

    Raises `OrderError` (PCK025) unless they begin with 0, never fall and end with `tokens`, and where `max_seqlen` is
    less than the longest piece: a kernel would return wrong results without a word.

    >>> check_edges([0, 3, 8, 8], 8).dtype
    dtype('int32')
    """
    wide = np.asarray(edges, dtype=np.int64)
    if wide.ndim != 1 or len(wide) < 2 or wide[0] != 0 or wide[-1] != tokens or bool((np.diff(wide) < 0).any()):
        found = f"{wide.reshape(-1)[:3].tolist()} .. {wide.reshape(-1)[-1:].tolist()}"
        raise OrderError("PCK025", expected=f"0 .. {tokens}, never falling", found=found)
    if tokens >= 1 << 31:
        raise OrderError("PCK025", "tokens", expected="below 2**31", found=tokens)
    longest = int(np.diff(wide).max())
    if max_seqlen is not None and max_seqlen < longest:
        raise OrderError("PCK025", "max_seqlen", expected=f"{longest} or more", found=max_seqlen)
    return np.ascontiguousarray(wide, dtype=np.int32)


def segments_of(edges: npt.ArrayLike) -> I32:
    """Return the number of its piece, from 1, for every token between the first edge and the last.

    >>> segments_of([0, 3, 5, 5]).tolist()
    [1, 1, 1, 2, 2]
    """
    wide = np.asarray(edges, dtype=np.int64)
    lengths = wide[1:] - wide[:-1]
    return np.repeat(np.arange(1, len(lengths) + 1, dtype=np.int32), lengths)


def positions_of(edges: npt.ArrayLike) -> I32:
    """Return each token's position in its piece.

    >>> positions_of([0, 3, 5]).tolist()
    [0, 1, 2, 0, 1]
    """
    wide = np.asarray(edges, dtype=np.int64)
    return (np.arange(int(wide[-1])) - np.repeat(wide[:-1], np.diff(wide))).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Thd:
    """TransformerEngine's THD layout with every piece padded to a multiple: what context parallelism needs."""

    cu_seqlens: I32
    """Edges of the real tokens, end to end as if nothing were padded."""
    cu_seqlens_padded: I32
    """Edges of the padded pieces: where they stand in the arrays."""
    place: npt.NDArray[np.int64]
    """Where each real token stands in the padded arrays; what is not named is padding."""

    @property
    def tokens(self) -> int:
        """Tokens of the padded arrays."""
        return int(self.cu_seqlens_padded[-1])

    def put(self, values: npt.NDArray[np.generic], fill: float = 0) -> npt.NDArray[np.generic]:
        """Return values of real tokens laid out padded, along the first axis."""
        out = np.full((self.tokens, *values.shape[1:]), fill, dtype=values.dtype)
        out[self.place] = values
        return out


def thd(edges: npt.ArrayLike, context_parallel: int = 1) -> Thd:
    """Return edges in THD layout, every piece padded to a multiple of ``2 * context_parallel`` (of 1 where that is 1).

    Each rank of a context-parallel group computes two chunks of every piece, so that causal work is even.

    >>> layout = thd([0, 3, 8], context_parallel=2)
    >>> layout.cu_seqlens.tolist(), layout.cu_seqlens_padded.tolist(), layout.put(np.arange(1, 9)).tolist()
    ([0, 3, 8], [0, 4, 12], [1, 2, 3, 0, 4, 5, 6, 7, 8, 0, 0, 0])
    """
    wide = np.asarray(edges, dtype=np.int64)
    if context_parallel < 1:
        raise OrderError("PCK025", "context_parallel", expected="1 or more", found=context_parallel)
    real = check_edges(wide, int(wide[-1]) if wide.size else 0)
    multiple = 2 * context_parallel if context_parallel > 1 else 1
    lengths = np.diff(wide)
    padded = np.concatenate(([0], np.cumsum(-(-lengths // multiple) * multiple)))
    place = np.arange(int(wide[-1])) + np.repeat(padded[:-1] - wide[:-1], lengths)
    return Thd(real, check_edges(padded, int(padded[-1])), place)
