"""Levanter's batch schedule: from a step to the first sequence of its batch, and back."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokenreel.errors import OrderError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class LevanterSchedule:
    """Batch sizes from steps on: one number, or pairs of (first step, sequences of a step), the first one at step 0.

    Raises `OrderError` (ORD133) for steps that do not begin at 0 and rise, and batches below 1.

    >>> schedule = LevanterSchedule.of([{"start": 0, "value": 4096}, {"start": 15000, "value": 8192}])
    >>> schedule.offset(127_500), schedule.step_of(983_040_000), schedule.batch(14_999)
    (983040000, 127500, 4096)
    """

    starts: tuple[int, ...]
    batches: tuple[int, ...]
    offsets: tuple[int, ...] = field(init=False)
    """Sequences consumed before each start."""

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.starts, self.starts[1:], strict=False))
        if not self.starts or self.starts[0] != 0 or not rising or len(self.starts) != len(self.batches):
            raise OrderError("ORD133", "starts", expected="0, and then rising", found=list(self.starts))
        if min(self.batches) < 1:
            raise OrderError("ORD133", "batches", expected="1 or more", found=list(self.batches))
        offsets = [0]
        for k in range(1, len(self.starts)):
            offsets.append(offsets[-1] + (self.starts[k] - self.starts[k - 1]) * self.batches[k - 1])
        object.__setattr__(self, "offsets", tuple(offsets))

    @classmethod
    def of(cls, said: int | Sequence[Mapping[str, int] | tuple[int, int]]) -> LevanterSchedule:
        """Make a schedule as Levanter's configuration says it: a number, ``{start, value}`` tables, or pairs."""
        if isinstance(said, int):
            return cls((0,), (said,))
        pairs = [(one["start"], one["value"]) if not isinstance(one, tuple) else one for one in said]
        return cls(tuple(start for start, _ in pairs), tuple(value for _, value in pairs))

    def offset(self, step: int) -> int:
        """Return the first sequence of a step's batch: what all steps before it consumed. -1 for a negative step."""
        if step < 0:
            return -1
        k = bisect_right(self.starts, step) - 1
        return self.offsets[k] + (step - self.starts[k]) * self.batches[k]

    def batch(self, step: int) -> int:
        """Return the sequences of a step; raises `OrderError` (ORD001) for a negative one."""
        if step < 0:
            raise OrderError("ORD001", "a step", expected="0 or more", found=step)
        return self.batches[bisect_right(self.starts, step) - 1]

    def step_of(self, sequence: int) -> int:
        """Return the step whose batch holds a sequence; raises `OrderError` (ORD001) for a negative one."""
        if sequence < 0:
            raise OrderError("ORD001", "a sequence", expected="0 or more", found=sequence)
        k = bisect_right(self.offsets, sequence) - 1
        return self.starts[k] + (sequence - self.offsets[k]) // self.batches[k]


def first_listed_value(said: Sequence[tuple[int, int]], step: int) -> int:
    """Return what Levanter's general helper for values by step returns: the first *listed* one that has begun.

    For a list that rises this is always the first value. The batch schedule does not use it; what does is reproduced here.

    >>> first_listed_value([(0, 32), (1000, 64)], 5000)
    32
    """
    for start, value in said:
        if start <= step:
            return value
    raise OrderError("ORD133", f"step {step}", expected="a value that has begun", found=list(said))
