"""States of other systems that can be gone on from exactly, because their orders exist here: Megatron's and Grain's.

Both keep counters and nothing that ties them to data: the run file says the order, and the counters are checked against its
schedule and each other. Levanter's step is read by `importing_levanter`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StateError, UsageError
from tokenreel.feed.foreign import IMPORT, foreign
from tokenreel.feed.going_on import state_of
from tokenreel.feed.schedule import Cursor
from tokenreel.feed.state import read_text

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tokenreel.config.run import Segment
    from tokenreel.feed.state import State
    from tokenreel.order.protocol import Order

_GRAIN_FILE = re.compile(r"process_(\d+)-of-(\d+)\.json")


def import_megatron(segments: Sequence[Segment], order: Order, consumed: int, iteration: int | None = None) -> State:
    """Return the state after `consumed` samples (``consumed_train_samples``) of a Megatron job whose `lineage` this is.

    `order` is that of the segment in which they end; with several segments samples count from the last change of data, as
    Megatron's phases do. `iteration` is needed where no schedule says the batch sizes, and is checked where one does.

    Raises `StateError`: STA003 more samples than the order has, STA007 a run that is not in Megatron's order, STA008
    counters that stand inside a step, or that `iteration` contradicts; `UsageError` (STA017) neither schedule nor iteration.
    """
    if not order.name.startswith("megatron"):
        raise StateError("STA007", "Megatron's counters", expected="a run in Megatron's order", found=order.name)
    step = _step(segments, consumed, iteration)
    return _state(segments, order, step, consumed)


def read_megatron(path: str | os.PathLike[str]) -> tuple[int, int | None]:
    """Return (consumed, iteration) from a JSON file with Megatron's names for them; raises `StateError` (STA001).

    Checkpoints themselves are pickled and are never read: ``print(torch.load(...)['args'])`` shows both numbers.
    """
    from tokenreel.feed.state import parse_json

    said = parse_json(read_text(path), path)
    found = said if isinstance(said, Mapping) else {}
    for inner in ("args", "train_state"):
        if "consumed_train_samples" not in found and isinstance(found.get(inner), Mapping):
            found = found[inner]
    numbers = [found.get("consumed_train_samples"), found.get("iteration")]
    if type(numbers[0]) is not int or (numbers[1] is not None and type(numbers[1]) is not int):
        expected = "an object with consumed_train_samples, a whole number"
        raise StateError("STA001", path=path, expected=expected, found=str(numbers[0]))
    return numbers[0], numbers[1]


@dataclass(frozen=True, slots=True)
class GrainCount:
    """What the files of one Grain checkpoint say together."""

    samples: int
    """Consumed, over all processes."""
    processes: int


def read_grain(path: str | os.PathLike[str]) -> GrainCount:
    """Return how many samples the processes of a Grain checkpoint consumed: a folder of ``process_i-of-n.json``, or one of them.

    Raises `StateError`: STA001 no such files or not JSON, STA007 a state whose order is not known (Grain's ``DataLoader``), STA008
    processes or workers that are missing, or whose counts are not those of a stream dealt out one by one.
    """
    found = _grain_files(Path(path))
    counts, whole = [], set()
    for process in range(len(found)):
        said = _grain_json(found[process])
        if "global_next_index" in said:
            whole.add(_index(said, "global_next_index", found[process]))
            counts.append(0)
        else:
            counts.append(_consumed(said, found[process]))
    if whole:
        if len(whole) > 1 or any(counts):
            told = f"{sorted(whole)} and {counts}" if any(counts) else str(sorted(whole))
            raise StateError("STA008", "processes", path=path, expected="one global_next_index", found=told)
        return GrainCount(whole.pop(), len(found))
    return GrainCount(_dealt(counts, "process", path), len(found))


def import_grain(segments: Sequence[Segment], order: Order, count: GrainCount) -> State:
    """Return the state after the samples that a Grain checkpoint counts, in the order of the run that wrote it.

    Raises `StateError`: STA003 more samples than the order has, STA008 counters inside a step, or another number of
    processes than the order was made for; `UsageError` (STA017) without a schedule.
    """
    hosts = getattr(order, "hosts", None)
    if hosts is not None and hosts != count.processes:
        expected = f"{hosts} processes, as {order.name} is made for"
        raise StateError("STA008", expected=expected, found=count.processes)
    return _state(segments, order, _step(segments, count.samples, None), count.samples)


# -- steps -------------------------------------------------------------------------------------------------------------


def _step(segments: Sequence[Segment], consumed: int, iteration: int | None) -> int:
    """Return the step that samples consumed over the whole lineage lead to; checks it against `iteration`."""
    left = consumed
    for number, segment in enumerate(segments):
        schedule, last = segment.run.schedule, number == len(segments) - 1
        if schedule is None:
            if iteration is None:
                raise UsageError("STA017", expected="a [schedule] in the run file, or the iteration")
            return iteration
        held = None if segment.last is None else schedule.samples(segment.first, segment.last + 1)
        if not last and held is not None and left >= held:
            left -= held
            continue
        step = schedule.step_of(left, segment.first)
        inside = left - schedule.samples(segment.first, step)
        if inside or (iteration is not None and iteration != step):
            expected = f"{consumed - inside} samples at step {step}"
            found = f"{consumed} samples" + ("" if iteration is None else f" at step {iteration}")
            raise StateError("STA008", "the run file's schedule", expected=expected, found=found)
        return step
    raise UsageError("STA017", expected="a run file with a segment")


def holding(segments: Sequence[Segment], consumed: int, iteration: int | None = None) -> int:
    """Return the number of the segment that goes on after `consumed` samples of the lineage."""
    step = _step(segments, consumed, iteration)
    return next((k for k, one in enumerate(segments) if one.last is None or step <= one.last), len(segments) - 1)


def _state(segments: Sequence[Segment], order: Order, step: int, consumed: int) -> State:
    number = next((k for k, one in enumerate(segments) if one.last is None or step <= one.last), len(segments) - 1)
    segment = segments[number]
    position = consumed
    if len(segments) > 1:
        schedule, first = segment.run.schedule, segment.first_sample
        if schedule is None or first is None:
            raise UsageError("STA017", f"segment {number}", expected="at_sample and a schedule")
        position = first + schedule.samples(segment.first, step)
    if order.length is not None and position > order.length:
        raise StateError("STA003", expected=f"at most {order.length} samples", found=position)
    tokens = tokens_before(segments, number) + (position - (segment.first_sample or 0)) * order.row_tokens
    return state_of(order, Cursor(position, step, tokens))


def lineage(segments: Sequence[Segment], number: int | None = None) -> list[Segment]:
    """Return the segments that led to one (the last), numbered anew, each ending where the next one leaves it."""
    at: int | None = len(segments) - 1 if number is None else number
    out: list[Segment] = []
    while at is not None:
        one = segments[at]
        out.insert(0, replace(one, last=out[0].first - 1) if out else one)
        at = one.after
    return [replace(one, after=k - 1 if k else None) for k, one in enumerate(out)]


def tokens_before(segments: Sequence[Segment], number: int) -> int:
    """Return the input tokens of the segments that led to one, by their schedules; what has none counts nothing."""
    total = 0
    for segment in lineage(segments, number)[:-1]:
        schedule = segment.run.schedule
        if schedule is not None and segment.last is not None:
            total += schedule.samples(segment.first, segment.last + 1) * row_tokens_said(segment.run.order)
    return total


def row_tokens_said(order: Any) -> int:
    """Return the length of rows that an order's table says."""
    from tokenreel.config.orders import Mix, component_order

    return row_tokens_said(component_order(order.component[0])) if isinstance(order, Mix) else int(order.row_tokens)


# -- Grain -------------------------------------------------------------------------------------------------------------


def _grain_files(path: Path) -> dict[int, Path]:
    folder = path if path.is_dir() else path.parent
    named = {p: m for p in sorted(folder.iterdir()) if (m := _GRAIN_FILE.fullmatch(p.name))} if folder.is_dir() else {}
    worlds = sorted({int(match[2]) for match in named.values()})
    chosen = _GRAIN_FILE.fullmatch(path.name)
    if not named or (path != folder and chosen is None):
        raise StateError("STA001", path=path, expected="files process_0-of-N.json ...", found=f"{len(named)} of them")
    if len(worlds) > 1 and chosen is None:
        raise StateError("STA008", path=path, expected="files of one checkpoint", found=f"of {worlds} processes")
    world = int(chosen[2]) if chosen else worlds[0]
    found = {int(match[1]): file for file, match in named.items() if int(match[2]) == world}
    missing = [process for process in range(world) if process not in found]
    if missing:
        name = f"process_{missing[0]}-of-{world}.json"
        raise StateError("STA008", f"{len(missing)} of {world} processes", path=folder / name, expected="its file")
    return {process: found[process] for process in range(world)}


def _grain_json(path: Path) -> Mapping[str, Any]:
    from tokenreel.feed.state import parse_json

    said = parse_json(read_text(path), path)
    if isinstance(said, str):
        said = json.loads(said)
    if not isinstance(said, Mapping):
        raise StateError("STA001", path=path, expected="an object", found=type(said).__name__)
    return said


def _consumed(said: Mapping[str, Any], path: object) -> int:
    """Return the samples that one process's iterator gave; a batch counts as its samples."""
    if "next_index" in said:
        return _index(said, "next_index", path)
    if "iterators_in_use_states" in said:
        states = said["iterators_in_use_states"]
        workers = said.get("iterators_in_use_indices")
        if not isinstance(states, list) or workers != list(range(len(states))) or said.get("future_states"):
            raise StateError("STA008", "workers", path=path, expected="all workers at work", found=str(workers))
        return _dealt([_consumed(_object(one, path), path) for one in states], "worker", path)
    if "parents" in said and "index" in said:
        index = _index(said, "index", path)
        given = sum(_consumed(_object(one, path), path) for one in said["parents"])
        if given != index:
            raise StateError("STA008", "a mixture", path=path, expected=f"{index} samples", found=given)
        return index
    if len(said) == 1 and isinstance(next(iter(said.values())), Mapping):
        return _consumed(next(iter(said.values())), path)
    known = foreign(said)
    reason = "Grain's DataLoader deals parts out before it shuffles them: that order is not one of ours"
    if "last_seen_indices" not in said:
        reason = known.reason if known else "its keys are not those of a Grain iterator that counts samples"
    raise StateError("STA007", reason, path=path, found=", ".join(map(str, list(said)[:6])), hint=IMPORT)


def _object(said: object, path: object) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise StateError("STA001", path=path, expected="an object", found=type(said).__name__)
    return said


def _index(said: Mapping[str, Any], key: str, path: object) -> int:
    value = said[key]
    if type(value) is not int or value < 0:
        raise StateError("STA001", key, path=path, expected="a whole number", found=str(value))
    return value


def _dealt(counts: list[int], who: str, path: object) -> int:
    """Return the samples that several take in turn: those that the counts add up to, if they are the first ones."""
    total, n = sum(counts), len(counts)
    expected = [(total - k + n - 1) // n for k in range(n)]
    if counts != expected:
        raise StateError(
            "STA008",
            f"between two rounds: what every {who} read is not the first {total} samples",
            path=path,
            expected=str(expected[:8]),
            found=str(counts[:8]),
        )
    return total
