"""Which samples each step of a feed takes: a schedule of batch sizes, laid from a cursor on over an order that may end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tokenreel.errors import StateError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tokenreel.config.run import Schedule

    I64 = npt.NDArray[np.int64]

LAST = ("short", "drop", "error")
Last = Literal["short", "drop", "error"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a run has come: counters that are facts, whatever ranks and batch sizes they came from."""

    position: int = 0
    """Samples consumed over all ranks: the first sample of the next step."""
    step: int = 0
    """Steps done: the number of the next step."""
    tokens: int = 0
    """Input tokens consumed over all ranks, padding among them; it goes on where the length of rows changes."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The samples of each step from a cursor on.

    Step n takes ``[position + samples of the steps from the cursor's to n, ...)``. Where the order ends inside a step,
    `last` says whether that step is short, left out, or an error before the first batch (`StateError`, STA013).

    >>> from tokenreel.config.run import Schedule
    >>> steps = Steps(Schedule(batch=4), Cursor(), length=10)
    >>> steps.stop, steps.ranges(1, 5)
    (3, [(4, 4), (8, 2)])
    """

    schedule: Schedule
    cursor: Cursor
    length: int | None
    """Samples of the order; None is endless."""
    repeats: bool = False
    """Whether the order begins again at its end; positions go on."""
    end: int | None = None
    """Step to stop before, whatever the order holds."""
    last: Last = "short"
    stop: int | None = field(init=False)
    """Step to stop before: the same for every rank; None is endless."""

    def __post_init__(self) -> None:
        if self.last not in LAST:
            raise UsageError("USE003", "last", expected=" | ".join(LAST), found=self.last)
        full, left = self._full(), self._left_in_last()
        if left and self.last == "error" and full is not None and (self.end is None or full < self.end):
            expected = f"{self.schedule.batch_at(full)} samples, or last='short' or 'drop'"
            raise StateError("STA013", f"step {full}", expected=expected, found=f"{left} samples")
        stop = self.end
        if self.repeats and self.length == 0:
            stop = self.cursor.step
        elif full is not None:
            stop = full + (1 if left and self.last == "short" else 0)
            stop = stop if self.end is None else min(stop, max(self.end, self.cursor.step))
        object.__setattr__(self, "stop", stop)

    @property
    def ends(self) -> bool:
        """Whether the order's end bounds the feed."""
        return self.length is not None and not self.repeats

    def _full(self) -> int | None:
        """Return the step before which all steps are full; None where the order has no end."""
        if not self.ends:
            return None
        left = max(0, (self.length or 0) - self.cursor.position)
        return self.schedule.step_of(left, self.cursor.step)

    def _left_in_last(self) -> int:
        """Return the samples of the step that the order ends inside; 0 where it ends between steps."""
        full = self._full()
        return 0 if full is None else max(0, (self.length or 0) - self.begin_of(full))

    def over(self, step: int) -> bool:
        """Return whether there is no such step."""
        return self.stop is not None and step >= self.stop

    def begin_of(self, step: int) -> int:
        """Return the first sample of a step's global batch."""
        return self.cursor.position + self.schedule.samples(self.cursor.step, step)

    def ranges(self, step: int, most: int) -> list[tuple[int, int]]:
        """Return (first sample, samples) of at most `most` steps from `step` on."""
        stop = self.stop
        end = step + most if stop is None else min(stop, step + most)
        out = []
        begin = self.begin_of(step)
        limit = self.length if self.ends else None
        for number in range(step, end):
            count = self.schedule.batch_at(number)
            if limit is not None:
                count = min(count, limit - begin)
            out.append((begin, count))
            begin += count
        return out

    def after(self, begin: int, count: int, step: int, row_tokens: int) -> Cursor:
        """Return the cursor after a step of `count` samples from `begin` on."""
        taken = begin + count - self.cursor.position
        return Cursor(begin + count, step + 1, self.cursor.tokens + taken * row_tokens)

    def wrapped(self, positions: I64) -> I64:
        """Return the samples of the order at positions of the run: those past its end begin again."""
        if not self.repeats or not self.length:
            return positions
        return positions % self.length

    def sizes(self) -> list[int]:
        """Return every batch size that full steps from the cursor's on may have."""
        first, stop = self.cursor.step, self.stop
        later = [
            stage.batch for stage in self.schedule.ramp if stage.step > first and (stop is None or stage.step < stop)
        ]
        return [self.schedule.batch_at(first), *later]
