"""What bench/feed.py is measured on: uint16 pairs of real tokens, in documents of a mean length; the same bytes on every side."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

EOD = 50256
VOCAB = 50257
SEED = 1234
BLOCK = 1 << 22


def document_lengths(tokens: int, mean: int) -> np.ndarray:
    """Lengths of documents that hold `tokens` in all: log-normal (sigma 1.2) for long means, 1 .. 2*mean - 1 for short ones."""
    random = np.random.default_rng(mean)
    count = int(tokens / mean * 1.3) + 1000
    if mean < 100:
        drawn = random.integers(1, 2 * mean, count)
    else:
        drawn = np.maximum(1, random.lognormal(np.log(mean) - 0.72, 1.2, count)).astype(np.int64)
    edges = np.cumsum(drawn)
    count = int(np.searchsorted(edges, tokens)) + 1
    lengths = drawn[:count].copy()
    lengths[-1] -= int(edges[count - 1]) - tokens
    return lengths


def write_tokens(prefix: Path, tokens: int, mean: int) -> None:
    """Write a pair whose documents end with EOD, one sequence each."""
    lengths = document_lengths(tokens, mean)
    ends = np.cumsum(lengths) - 1
    random = np.random.default_rng(0)
    with Path(f"{prefix}.bin").open("wb") as file:
        for begin in range(0, tokens, BLOCK):
            size = min(BLOCK, tokens - begin)
            ids = random.integers(0, EOD, size, dtype=np.uint16)
            low, high = np.searchsorted(ends, [begin, begin + size])
            ids[ends[low:high] - begin] = EOD
            ids.tofile(file)
    count = len(lengths)
    pointers = np.zeros(count, dtype="<i8")
    np.cumsum(lengths[:-1] * 2, out=pointers[1:])
    with Path(f"{prefix}.idx").open("wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, count, count + 1))
        tables = (lengths.astype("<i4"), pointers, np.arange(count + 1, dtype="<i8"))
        file.writelines(table.tobytes() for table in tables)


def window_order(tokens: int, row: int) -> np.ndarray:
    """The shuffled windows that sides read which take an order from outside."""
    return np.random.default_rng(SEED).permutation((tokens - 1) // row)
