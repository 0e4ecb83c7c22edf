"""What bench/order.py is measured on: lengths, weights, and pairs whose token files are holes; the same on every side."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

MEAN, SIGMA = 700, 1.2
ROW, SEED = 4096, 1234
BLOCK = 1 << 20


def lengths(documents: int) -> np.ndarray:
    """Log-normal lengths, int32, at least 1."""
    random = np.random.default_rng(1)
    return np.maximum(1, random.lognormal(np.log(MEAN) - SIGMA**2 / 2, SIGMA, documents)).astype(np.int32)


def weights(members: int, kind: str) -> list[float]:
    """Weights that add up to 1 as numpy adds."""
    random = np.random.default_rng(members)
    made = {
        "uniform": lambda: random.uniform(0.05, 1.05, members),
        "exponential": lambda: random.exponential(size=members),
        "1/k": lambda: 1 / np.arange(1, members + 1),
        "equal": lambda: np.ones(members),
    }[kind]()
    return (made / made.sum()).tolist()


def write_pair(prefix: Path, sizes: np.ndarray) -> None:
    """A uint16 pair with one sequence a document: a real table, and a token file that takes no room on disk."""
    count = len(sizes)
    pointers = np.zeros(count, dtype="<i8")
    np.cumsum(sizes[:-1].astype(np.int64) * 2, out=pointers[1:])
    with Path(f"{prefix}.idx").open("wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, count, count + 1))
        tables = (sizes.astype("<i4"), pointers, np.arange(count + 1, dtype="<i8"))
        file.writelines(table.tobytes() for table in tables)
    Path(f"{prefix}.bin").touch()
    os.truncate(f"{prefix}.bin", 2 * int(sizes.sum(dtype=np.int64)))
