"""Levanter's checkpoints: they keep the step alone, and a run's schedule and order say where its data stands there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.errors import StateError, UsageError
from tokenreel.feed.going_on import state_of
from tokenreel.feed.importing import row_tokens_said
from tokenreel.feed.schedule import Cursor
from tokenreel.feed.state import parse_json, read_text

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tokenreel.config.run import Segment
    from tokenreel.feed.state import State
    from tokenreel.order.protocol import Order

METADATA = "metadata.json"
_FOLDER = re.compile(r"step-(\d+)")


@dataclass(frozen=True, slots=True)
class LevanterCount:
    """What a checkpoint says of its data."""

    step: int
    """Updates done, which is the number of the next step."""
    sequences: int | None = None
    """Sequences consumed by the run that wrote it, where something recorded them."""


def read_levanter(path: str | os.PathLike[str]) -> LevanterCount:
    """Return what a checkpoint folder (``step-N`` with its metadata.json) or a JSON file says: `step`, maybe `sequences`.

    Raises `StateError`: STA001 no such file or no step in it, STA008 a folder whose name says another step.
    """
    place = Path(path)
    file = place / METADATA if place.is_dir() else place
    said = parse_json(read_text(file), file)
    if not isinstance(said, Mapping):
        raise StateError("STA001", path=file, expected="an object", found=type(said).__name__)
    step, sequences = said.get("step"), said.get("sequences")
    if type(step) is not int or step < 0 or (sequences is not None and (type(sequences) is not int or sequences < 0)):
        raise StateError("STA001", path=file, expected="step, a whole number", found=f"{step}, {sequences}")
    named = _FOLDER.fullmatch(file.parent.name)
    if named and int(named[1]) != step:
        raise StateError("STA008", "the folder's name", path=file, expected=f"step {named[1]}", found=step)
    return LevanterCount(step, sequences)


def holding_step(segments: Sequence[Segment], step: int, segment: int | None = None) -> int:
    """Return the number of the segment that goes on with a step, or ended before it; raises `RecipeError` (RCP044)."""
    from tokenreel.index.segments import chosen

    ended = [k for k, one in enumerate(segments) if one.last is not None and one.last + 1 == step]
    if any(one.first <= step and (one.last is None or step <= one.last) for one in segments) or not ended:
        return chosen(segments, segment=segment, step=step)[0]
    return segment if segment in ended else ended[-1]


def import_levanter(segments: Sequence[Segment], number: int, order: Order, count: LevanterCount) -> State:
    """Return the state of a run in segment `number` after the steps that a checkpoint has done.

    Raises `StateError`: STA007 a run that is not in Levanter's order, STA003 more sequences than it has, STA008 sequences
    that the schedule does not give; `UsageError` (STA017) without a schedule.
    """
    if not order.name.startswith("levanter"):
        raise StateError("STA007", "Levanter's step", expected="a run in Levanter's order", found=order.name)
    segment = segments[number]
    schedule, first = segment.run.schedule, segment.first_sample
    if schedule is None or first is None:
        raise UsageError("STA017", f"segment {number}", expected="a [schedule] in the run file")
    position = first + schedule.samples(segment.first, count.step)
    if count.sequences is not None and count.sequences != position:
        expected, found = f"{position} sequences at step {count.step}", count.sequences
        raise StateError("STA008", "the run file's schedule", expected=expected, found=found)
    if order.length is not None and position > order.length:
        raise StateError("STA003", expected=f"at most {order.length} samples", found=position)
    return state_of(order, Cursor(position, count.step, _tokens(segments, number, count.step)))


def _tokens(segments: Sequence[Segment], number: int, step: int) -> int:
    """Return the input tokens of a segment's steps before `step`, and of the steps it goes on from."""
    total, at = 0, step
    follow: int | None = number
    while follow is not None:
        segment = segments[follow]
        if segment.run.schedule is not None:
            total += segment.run.schedule.samples(segment.first, at) * row_tokens_said(segment.run.order)
        at, follow = segment.first, segment.after
    return total
