"""Which segment of a run file is meant, and which samples of its order it consumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.config.run import Segment
    from tokenreel.order.protocol import Order


def chosen(segments: Sequence[Segment], *, segment: int | None = None, step: int | None = None) -> tuple[int, Segment]:
    """Return (number, segment) meant by a number, by a step, or by there being one; raises `RecipeError` (RCP044)."""
    numbers = range(len(segments))
    if step is not None:
        last = segments[-1].last
        there = [k for k in numbers if holds(segments[k], step)]
        if not there or (segment is not None and segment not in there):
            expected = f"a step of 0 .. {last}" if last is not None else "a step of the segment"
            raise RecipeError("RCP044", "no such step", expected=expected, found=step)
        if len(there) > 1 and segment is None:
            expected = "--segment " + " or ".join(map(str, there))
            raise RecipeError("RCP044", f"step {step:,} is in several branches", expected=expected, found="none")
        number = there[0] if segment is None else segment
        return number, segments[number]
    if segment is None and len(segments) > 1:
        raise RecipeError("RCP044", expected=f"--segment 0 .. {len(segments) - 1}, or --step", found="neither")
    number = segment or 0
    if number not in numbers:
        raise RecipeError("RCP044", expected=f"--segment 0 .. {len(segments) - 1}", found=number)
    return number, segments[number]


def holds(segment: Segment, step: int) -> bool:
    """Return whether a step is one of a segment's."""
    return segment.first <= step and (segment.last is None or step <= segment.last)


def sample_range(segment: Segment, order: Order, samples: int | None = None) -> tuple[int, int]:
    """Return the samples [lo, hi) of its order that a segment consumes, as far as the order goes.

    With neither steps nor `samples` it is the whole order. Raises `RecipeError` (RCP045) where that has no end, or where
    no schedule says how many samples came before.
    """
    lo = segment.first_sample
    if lo is None:
        raise RecipeError(
            "RCP045", f"the segment that begins at step {segment.first}", expected="at_sample or a schedule"
        )
    schedule, hi = segment.run.schedule, order.length
    if samples is not None:
        hi = lo + samples
    elif schedule is not None and segment.last is not None:
        hi = lo + schedule.samples(segment.first, segment.last + 1)
    if hi is None:
        raise RecipeError(
            "RCP045", order.name, expected="a schedule with steps, or --samples", found="an endless order"
        )
    end = hi if order.length is None else min(hi, order.length)
    return min(lo, end), end


def step_range(segment: Segment, step: int) -> tuple[int, int]:
    """Return the samples [lo, hi) that a step of a segment consumes; raises `RecipeError` (RCP045) without a schedule."""
    schedule = segment.run.schedule
    if schedule is None or segment.first_sample is None:
        raise RecipeError("RCP045", f"step {step}", expected="a [schedule] in the run file", found="none")
    lo = segment.first_sample + schedule.samples(segment.first, step)
    return lo, lo + schedule.batch_at(step)


def step_of(segment: Segment, sample: int) -> int | None:
    """Return the step that consumes a sample of a segment's order; None without a schedule."""
    schedule = segment.run.schedule
    if schedule is None or segment.first_sample is None or sample < segment.first_sample:
        return None
    return schedule.step_of(sample - segment.first_sample, segment.first)
