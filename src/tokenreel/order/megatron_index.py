"""Megatron's three index arrays: which sequence, where each sample starts, in which order samples are read.

One generator, seeded once, shuffles in this order: the sequences (all epochs as one list, or the earlier ones and then
the last), then the samples. The sample index draws nothing: row j is the entry that holds token ``j*S + x - 1`` of the
shuffled sequences laid end to end.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import kernel
from tokenreel.order.legacy_shuffle import LegacyShuffle

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.order.megatron_plan import EpochPlan

    I32 = npt.NDArray[np.int32]
    I64 = npt.NDArray[np.int64]

INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class MegatronIndices:
    """The arrays a Megatron job would load."""

    document_index: I32
    """Sequence numbers in the order they are laid end to end."""
    sample_index: npt.NDArray[Any]
    """int32 or int64 (samples + 1, 2): entry of `document_index`, token in that sequence."""
    shuffle_index: npt.NDArray[Any]
    """uint32 or int64: the row of `sample_index` that each sample is."""


def laid_out(shuffle: LegacyShuffle, lengths: I32 | I64, first: int, plan: EpochPlan, *, edges: bool = False) -> I64:
    """Return every epoch's sequences first, first + 1, .. in order, each as ``length << 32 | number``.

    `lengths` are int32, or, with `edges`, int64 offsets of the sequences in their stream, one more than sequences. A length travels with its number, so that nothing is looked up in shuffled order afterwards. Advances `shuffle`.
    Raises `OrderError` (ORD002) for 2**31 sequences or more. Cost: about 6 ns and 8 bytes an entry.
    """
    count = len(lengths) - edges
    if first + count > INT32_MAX:
        raise OrderError("ORD002", "sequences", expected="at most 2**31 - 1", found=first + count)
    packed = np.empty(count * plan.epochs, dtype=np.int64)
    (_pack_edges if edges else _pack)(lengths, first, packed)
    if plan.separate:
        cut = count * (plan.epochs - 1)
        shuffle.shuffle(packed[:cut])
        shuffle.shuffle(packed[cut:])
    else:
        shuffle.shuffle(packed)
    return packed


def sample_order(shuffle: LegacyShuffle, plan: EpochPlan) -> npt.NDArray[Any]:
    """Return the order samples are read in: uint32, or int64 from 2**32 - 2 samples on. Advances `shuffle`."""
    dtype = np.dtype(np.uint32 if plan.samples < (1 << 32) - 2 else np.int64)
    out = np.arange(plan.samples, dtype=dtype)
    cut = plan.before_last if plan.separate else plan.samples
    shuffle.shuffle(out[:cut])
    if cut != plan.samples:
        shuffle.shuffle(out[cut:])
    return out


def unpacked(
    packed: I64, row_tokens: int, row_ahead: int, rows: int, *, wide: bool | None = None
) -> tuple[I32, npt.NDArray[Any]]:
    """Return (document index, sample index of `rows` + 1 rows) of entries laid out; `packed` is used up.

    The sample index is int32, or int64 where `wide` or the number of entries ask for it. Rows whose tokens end before
    they are full (a kept partial tail) are the last entry's end. Raises `OrderError` (ORD013) when that entry is empty
    and a look-ahead is taken: Megatron's offset would be -1. Cost: one pass, about 3 ns an entry.
    """
    entries = len(packed)
    if wide is None:
        wide = entries > INT32_MAX
    out = np.empty((rows + 1, 2), dtype=np.int64 if wide else np.int32)
    if _rows(packed, row_tokens, row_ahead, packed.view(np.int32), out) < 0:
        raise OrderError("ORD013", expected="a last entry with tokens", found="an empty sequence")
    # The numbers are now in the first half of the memory; the other half is given back without a copy.
    packed.resize((entries + 1) // 2, refcheck=False)
    return packed.view(np.int32)[:entries], out


def sample_rows(
    documents: I32, lengths: I32, row_tokens: int, row_ahead: int, rows: int, *, first: int = 0
) -> npt.NDArray[Any]:
    """Return the sample index over a document index made elsewhere; `lengths` are those of sequences first, .."""
    packed = lengths[documents - first].astype(np.int64) << 32 | documents
    return unpacked(packed, row_tokens, row_ahead, rows)[1]


def build_indices(
    lengths: I32, first: int, plan: EpochPlan, seed: int, row_tokens: int, row_ahead: int = 1
) -> MegatronIndices:
    """Return the three arrays of sequences first, first + 1, .. of `lengths`.

    The sample index and the sample shuffle run at the same time. Cost for one epoch of 10 million sequences: 0.1 s,
    peak 12 bytes an entry and 12 a sample.
    """
    shuffle = LegacyShuffle(seed)
    packed = laid_out(shuffle, lengths, first, plan)
    with ThreadPoolExecutor(1) as pool:
        order = pool.submit(sample_order, shuffle, plan)
        documents, rows = unpacked(packed, row_tokens, row_ahead, plan.samples)
        return MegatronIndices(documents, rows, order.result())


@kernel("void(int32[::1], int64, int64[::1])")
def _pack(lengths: Any, first: int, packed: Any) -> None:
    count = len(lengths)
    for begin in range(0, len(packed), max(1, count)):
        for k in range(count):
            packed[begin + k] = (np.int64(lengths[k]) << 32) | (first + k)


@kernel("void(int64[::1], int64, int64[::1])")
def _pack_edges(offsets: Any, first: int, packed: Any) -> None:
    count = len(offsets) - 1
    for begin in range(0, len(packed), max(1, count)):
        for k in range(count):
            packed[begin + k] = ((offsets[k + 1] - offsets[k]) << 32) | (first + k)


@kernel("int64(int64[::1])")
def tokens_of(packed: Any) -> int:
    """Return the tokens of all entries."""
    total = 0
    for entry in packed:
        total += entry >> 32
    return total


@kernel(
    "int64(int64[::1], int64, int64, int32[::1], int32[:, ::1])",
    "int64(int64[::1], int64, int64, int32[::1], int64[:, ::1])",
)
def _rows(packed: Any, row_tokens: int, row_ahead: int, documents: Any, out: Any) -> int:
    """Fill `documents` (the same memory as `packed`: entry k is read before it is overwritten) and `out`.

    Return the rows whose target was reached, or -1 when the tail would need a negative offset.
    """
    rows = len(out)
    out[0, 0] = 0
    out[0, 1] = 0
    row = 1
    target = row_tokens + row_ahead if rows > 1 else np.int64(0x7FFFFFFFFFFFFFFF)
    end = np.int64(0)
    length = np.int64(0)
    for k in range(len(packed)):
        entry = packed[k]
        documents[k] = entry & 0x7FFFFFFF
        length = entry >> 32
        end += length
        while target <= end:
            out[row, 0] = k
            out[row, 1] = target - row_ahead - (end - length)
            row += 1
            target = target + row_tokens if row < rows else np.int64(0x7FFFFFFFFFFFFFFF)
    if row < rows and length < row_ahead:
        return -1
    full = row
    while row < rows:
        out[row, 0] = len(packed) - 1
        out[row, 1] = length - row_ahead
        row += 1
    return full
