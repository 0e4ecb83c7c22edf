"""How many sequences of each component a block of Levanter's mixture holds, and what that does to small weights.

Weights are divided by their sum, as Python adds floats, multiplied by the block and cut to whole numbers; what is missing
from the block goes to the first component with the most. A weight that is cut to 0 is never sampled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import OrderError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokenreel.order.levanter_keys import PythonSum

    I64 = npt.NDArray[np.int64]

LARGEST_BLOCK = (1 << 16) - 1
DEFAULT_BLOCK = 2048


def python_sum(values: Sequence[float], how: PythonSum) -> float:
    """Return ``sum(values)`` as Python adds: "plain" up to 3.11, "compensated" (Neumaier's) from 3.12 on.

    >>> weights = [0.4, 0.2, 0.6, 0.1, 0.1, 0.1, 0.9, 0.1]
    >>> python_sum(weights, "plain"), python_sum(weights, "compensated")
    (2.5000000000000004, 2.5)
    """
    whole = 0
    at = 0
    while at < len(values) and isinstance(values[at], int):
        whole += int(values[at])
        at += 1
    if at == len(values):
        return whole
    total, lost = float(whole), 0.0
    for value in values[at:]:
        if how == "plain" or isinstance(value, int):
            total += value
            continue
        more = total + value
        lost += (total - more) + value if abs(total) >= abs(value) else (value - more) + total
        total = more
    return total + lost if lost and math.isfinite(lost) else total


def normalised(weights: Mapping[str, float], how: PythonSum) -> dict[str, float]:
    """Return the positive weights divided by the sum of all, in their order; raises `OrderError` (ORD111)."""
    values = list(weights.values())
    total = python_sum(values, how)
    if not all(math.isfinite(w) and w >= 0 for w in values) or not 0 < total < math.inf:
        expected = "finite numbers, none negative, not all 0"
        raise OrderError("ORD111", "a stage", expected=expected, found=values[:8])
    return {name: weight / total for name, weight in weights.items() if weight > 0}


def counts_of(shares: Sequence[float], block: int) -> I64:
    """Return the sequences of each component in a block, by normalised weights in the components' order.

    >>> counts_of([0.999, 0.001], 100).tolist()
    [100, 0]
    """
    counts = (np.asarray(shares, dtype=np.float64) * block).astype(np.int64)
    counts[int(np.argmax(counts))] += block - int(counts.sum())
    return counts


@dataclass(frozen=True, slots=True)
class RoundedShare:
    """One component of one stage, as asked for and as realised."""

    name: str
    asked: float
    """Normalised weight."""
    count: int
    """Sequences of a block."""
    block: int

    @property
    def realised(self) -> float:
        """Share of every block."""
        return self.count / self.block

    @property
    def never(self) -> bool:
        """Whether a weight that is not 0 is never sampled."""
        return self.asked > 0 and self.count == 0


def smallest_block(stages: Sequence[Sequence[float]], starts: Sequence[int] = (0,)) -> int | None:
    """Return the smallest block in which every positive share of every stage has a sequence; None where none does.

    Stages begin at `starts`, which have to be multiples of it. Cost: one pass over the shares, and one over the blocks.

    >>> smallest_block([[0.999, 0.001]]), smallest_block([[0.999, 0.001]], (3072,)), smallest_block([[1 - 1e-6, 1e-6]])
    (1000, 1024, None)
    """
    positive = [share for shares in stages for share in shares if share > 0]
    least = min(positive, default=1.0)
    # One component alone has the whole block, whatever its share is cut to.
    single = all(sum(share > 0 for share in shares) <= 1 for shares in stages)
    for block in range(1, LARGEST_BLOCK + 1):
        if (single or int(least * block) >= 1) and all(start % block == 0 for start in starts):
            return block
    return None
