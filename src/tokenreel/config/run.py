"""Run files: the TOML that names corpora, order, row policy, schedule and seed; and lineages, which are several runs.

A run file holds one run, or one run and an ordered list of ``[[segment]]``: steps `first` to `last`, and the keys that
changed there. A segment is the segment before it with those keys put in (the first one: the keys above all segments), key
by key inside `order` and `schedule`; an order of another kind replaces the whole order. Paths are relative to the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from tokenreel.config.orders import (
    AnyOrder,
    Levanter,
    MegatronBlendTable,
    Mix,
    Name,
    NotNegative,
    Positive,
    component_order,
    corpora_named,
)
from tokenreel.errors import RecipeError, nearest

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

HINT = "tokenreel schema run"
Evidence = Literal["declared", "checkpoint", "ledger"]
OWN_KEYS = ("first", "last", "after", "at_sample", "evidence", "source", "record")
"""Keys of a segment that say where it is and are no part of its run."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A table of a run file: frozen, no unknown keys."""


class RunCorpus(_Table, frozen=True, kw_only=True):
    """A corpus, and what its bytes cannot prove."""

    name: Name
    path: (
        Annotated[Name, msgspec.Meta(description="A folder, a shard, or ROOT/SPLIT; relative to this file.")] | None
    ) = None
    tokens: (
        Annotated[
            int, msgspec.Meta(ge=1, description="In place of a path: a stream of so many tokens, stated, not there.")
        ]
        | None
    ) = None
    split: Annotated[Name, msgspec.Meta(description="A split of the corpus.")] | None = None
    boundary: Annotated[str, msgspec.Meta(description="prefix=ID[+ID...],suffix=ID[+ID...].")] | None = None
    dtype: Name | None = None
    vocab: Positive | None = None
    fidelity: (
        Annotated[Name, msgspec.Meta(description="What is inexact about it: steps that read it are approximate.")]
        | None
    ) = None
    prefix: (
        Annotated[
            Name, msgspec.Meta(description="The path as the training job spells it: names of index files hash it.")
        ]
        | None
    ) = None


class Stage(_Table, frozen=True, kw_only=True):
    """A batch size from a step on."""

    step: NotNegative
    batch: Positive


class Schedule(_Table, frozen=True, kw_only=True):
    """How many samples each step consumes. Steps count from 0 over the whole lineage."""

    batch: Annotated[int, msgspec.Meta(ge=1, description="Samples of a step, over all ranks.")]
    steps: (
        Annotated[int, msgspec.Meta(ge=1, description="Steps of the run; a lineage's segments say theirs.")] | None
    ) = None
    ramp: Annotated[list[Stage], msgspec.Meta(description="Other batch sizes, from these steps on.")] = []

    def batch_at(self, step: int) -> int:
        """Return the samples that step consumes.

        >>> Schedule(batch=8, ramp=[Stage(step=10, batch=16)]).batch_at(10)
        16
        """
        return next((stage.batch for stage in reversed(self.ramp) if stage.step <= step), self.batch)

    def samples(self, first: int, end: int) -> int:
        """Return the samples that steps [first, end) consume; exact, O(stages).

        >>> Schedule(batch=8, ramp=[Stage(step=10, batch=16)]).samples(8, 12)
        48
        """
        edges = sorted({first, end, *(stage.step for stage in self.ramp if first < stage.step < end)})
        return sum((high - low) * self.batch_at(low) for low, high in pairwise(edges))

    def step_of(self, sample: int, first: int = 0) -> int:
        """Return the step that consumes a sample, counted from the first sample of step `first`.

        >>> Schedule(batch=8, ramp=[Stage(step=10, batch=16)]).step_of(80)
        10
        """
        at, left = first, sample
        for stage in self.ramp:
            if stage.step > at:
                held = (stage.step - at) * self.batch_at(at)
                if left < held:
                    break
                at, left = stage.step, left - held
        return at + left // self.batch_at(at)


class Run(_Table, frozen=True, kw_only=True):
    """One run."""

    corpus: Annotated[list[RunCorpus], msgspec.Meta(min_length=1)]
    order: AnyOrder
    row_policy: Annotated[Name | dict[str, Any], msgspec.Meta(description="A kind of rows, or a table with kind.")] = (
        "plain"
    )
    schedule: Schedule | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, description="For orders that say none.")] | None = None

    def corpora_used(self) -> list[RunCorpus]:
        """Return the corpora the order names, each once, in its order."""
        by_name = {corpus.name: corpus for corpus in self.corpus}
        used = [self.corpus[0] if name is None else by_name[name] for name in corpora_named(self.order)]
        return list(dict.fromkeys(used))


class SegmentTable(_Table, frozen=True, kw_only=True):
    """A stretch of a lineage as it is written: where it is, and the keys that changed."""

    first: Annotated[int, msgspec.Meta(ge=0, description="First step, counted over the whole lineage.")]
    last: Annotated[int, msgspec.Meta(ge=0, description="Last step, itself part of the segment.")]
    at_sample: (
        Annotated[
            int, msgspec.Meta(ge=0, description="Sample its first step begins with; left out, those consumed before.")
        ]
        | None
    ) = None
    after: (
        Annotated[int, msgspec.Meta(ge=0, description="Segment it branches from; left out, the one before it.")] | None
    ) = None
    evidence: Annotated[
        Evidence, msgspec.Meta(description="What says so: a configuration, a checkpoint's sampler state, a ledger.")
    ] = "declared"
    record: (
        Annotated[Name, msgspec.Meta(description="File of that state or ledger; it is checked. Relative to this file.")]
        | None
    ) = None
    source: Annotated[str, msgspec.Meta(description="Where it is written: a log, a config, a commit.")] | None = None
    order: Annotated[dict[str, Any], msgspec.Meta(description="Keys of the order that changed.")] = {}
    schedule: Annotated[dict[str, Any], msgspec.Meta(description="Keys of the schedule that changed.")] = {}
    row_policy: Name | dict[str, Any] | None = None
    seed: NotNegative | None = None


class RunFile(_Table, frozen=True, kw_only=True):
    """A whole run file: a run, and the segments of its lineage. With segments the first one may complete the order."""

    corpus: Annotated[list[RunCorpus], msgspec.Meta(min_length=1)]
    order: AnyOrder | None = None
    row_policy: Name | dict[str, Any] = "plain"
    schedule: Schedule | None = None
    seed: NotNegative | None = None
    segment: list[SegmentTable] = []


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of steps under one run."""

    run: Run
    first: int = 0
    last: int | None = None
    """Last step, itself part of it; None is as long as the order."""
    first_sample: int | None = 0
    """Sample that its first step begins with; None where no schedule says how many were consumed."""
    evidence: Evidence = "declared"
    source: str | None = None
    """Where that is written."""
    after: int | None = None
    """Number of the segment it goes on from; None for the first."""
    record: str | None = None
    """File with the state or the ledger that is the evidence, relative to the run file."""
    doubt: str | None = None
    """Why its steps are not exact under the declared configuration."""


def load_run(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> tuple[Segment, ...]:
    """Return the segments of a run file, one where it has no ``[[segment]]``, with ``key=value`` overrides put in.

    Raises `RecipeError`: RCP001 no such file, RCP002 not TOML, RCP003 an unknown key (with the nearest), RCP004 a value
    of the wrong type or a missing key, RCP005 an override that is no ``key=value``, RCP040 a kind of order that does not
    exist, RCP041 keys that do not go together, RCP042 a corpus that is not named, RCP043 steps that do not follow.
    """
    from tokenreel.config.reading import override, read_toml

    table = read_toml(path)
    for one in overrides:
        override(table, one)
    segments = parse_run(table, path)
    if any(segment.record is not None for segment in segments):
        from tokenreel.config.evidence import check_records

        check_records(segments, path)
    return segments


def parse_run(table: dict[str, Any], path: object = None) -> tuple[Segment, ...]:
    """Return the segments that a table stands for; errors as in `load_run`.

    >>> corpus = [{"name": "web", "path": "data/web"}]
    >>> parse_run({"corpus": corpus, "order": {"kind": "windows", "row_token": 8}})
    Traceback (most recent call last):
    tokenreel.errors.RecipeError: RCP003 unknown key order.row_token; did you mean row_tokens? ...
    >>> parse_run({"corpus": corpus, "order": {"kind": "window", "row_tokens": 8}})
    Traceback (most recent call last):
    tokenreel.errors.RecipeError: RCP040 order.kind: there is no 'window'; did you mean 'windows'? ...
    """
    from tokenreel.config.reading import refuse_unknown

    refuse_unknown(table, RunFile, path, schema="run")
    base = {key: value for key, value in table.items() if key != "segment"}
    written = table.get("segment", [])
    if not written:
        run = _run(base, path)
        last = run.schedule.steps - 1 if run.schedule and run.schedule.steps else None
        return (Segment(run, last=last),)
    segments: list[Segment] = []
    bases: list[dict[str, Any]] = []
    for number, one in enumerate(_convert(written, list[SegmentTable], path, "segment")):
        after = number - 1 if one.after is None else one.after
        if one.after is not None and not 0 <= after < number:
            message, expected = f"segment[{number}].after", "a segment before it"
            raise RecipeError("RCP043", message, path=path, expected=expected, found=after, hint=HINT)
        bases.append(_changed(bases[after] if after >= 0 else base, written[number]))
        before = segments[after] if after >= 0 else None
        segments.append(_follow(before, one, _run(bases[number], path, f"segment[{number}]"), path, number))
    return tuple(segments)


def run_schema() -> dict[str, Any]:
    """Return the JSON Schema of run files, for editors that check TOML.

    >>> run_schema()["$ref"]
    '#/$defs/RunFile'
    """
    return msgspec.json.schema(RunFile)


def _run(table: dict[str, Any], path: object, at: str = "") -> Run:
    """Return a whole run; `at` is the segment it is made for."""
    from tokenreel.config.reading import refuse_unknown

    refuse_unknown(table, Run, path, at, schema="run")
    run: Run = _convert(table, Run, path, at)
    names = [corpus.name for corpus in run.corpus]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RecipeError("RCP041", f"two corpora are named {twice!r}", path=path, hint=HINT)
    for corpus in run.corpus:
        if (corpus.path is None) == (corpus.tokens is None):
            message = f"corpus {corpus.name!r}"
            raise RecipeError("RCP041", message, path=path, expected="a path, or tokens", hint=HINT)
    place = f"{at}.order" if at else "order"
    _check_order(run.order, run, path, place)
    for name in corpora_named(run.order):
        if name is None and len(names) > 1:
            raise RecipeError("RCP042", f"{place} says no corpus", path=path, expected=", ".join(names), hint=HINT)
        if name is not None and name not in names:
            near = nearest(name, names)
            message = f"{place} names {name!r}" + (f"; did you mean {near!r}?" if near else "")
            raise RecipeError("RCP042", message, path=path, expected=", ".join(names), found=name, hint=HINT)
    ramp = [stage.step for stage in run.schedule.ramp] if run.schedule else []
    if sorted(set(ramp)) != ramp:
        raise RecipeError("RCP041", "schedule.ramp", path=path, expected="steps that grow", found=ramp, hint=HINT)
    return run


def _check_order(order: AnyOrder, run: Run, path: object, at: str) -> None:
    """Check what types cannot say of an order, and the orders inside a mixture."""
    if isinstance(order, MegatronBlendTable) and len({member.weight is None for member in order.member}) > 1:
        raise RecipeError("RCP041", f"{at}.member", path=path, expected="weights in all or in none", hint=HINT)
    if isinstance(order, Levanter):
        _check_levanter(order, run, path, at)
        return
    if not isinstance(order, Mix):
        return
    for number, component in enumerate(order.component):
        inside = f"{at}.component[{number}].order"
        _refuse_order(component.order, path, inside)
        _check_order(component_order(component), run, path, inside)
    names = [component.name for component in order.component]
    if bool(order.phase) == any(component.weight is not None for component in order.component):
        expected = "weights of components, or phases"
        raise RecipeError("RCP041", at, path=path, expected=expected, found="both or neither", hint=HINT)
    for number, phase in enumerate(order.phase):
        place = f"{at}.phase[{number}]"
        if (phase.sample is None) == (phase.step is None) or (phase.step is not None and run.schedule is None):
            expected = "sample, or step and a [schedule]"
            raise RecipeError("RCP041", place, path=path, expected=expected, hint=HINT)
        for name in phase.weights:
            if name not in names:
                near = nearest(name, names)
                message = f"{place} weights {name!r}" + (f"; did you mean {near!r}?" if near else "")
                raise RecipeError("RCP041", message, path=path, expected=", ".join(names), found=name, hint=HINT)


def _check_levanter(order: Levanter, run: Run, path: object, at: str) -> None:
    names = [component.name for component in order.component]
    if len(set(names)) < len(names):
        raise RecipeError("RCP041", f"{at}.component", path=path, expected="different names", hint=HINT)
    if bool(order.stage) == any(component.weight is not None for component in order.component):
        expected = "weights of components, or stages"
        raise RecipeError("RCP041", at, path=path, expected=expected, found="both or neither", hint=HINT)
    if (order.experiment_budget is None) != (order.target_budget is None):
        raise RecipeError(
            "RCP041", at, path=path, expected="experiment_budget and target_budget, or neither", hint=HINT
        )
    for number, component in enumerate(order.component):
        inside = f"{at}.component[{number}]"
        if component.corpus is not None and component.order is not None:
            raise RecipeError("RCP041", inside, path=path, expected="a corpus or an order", found="both", hint=HINT)
        if component.order is not None:
            _refuse_order(component.order, path, f"{inside}.order")
            _check_order(component_order(component), run, path, f"{inside}.order")
    for number, stage in enumerate(order.stage):
        place = f"{at}.stage[{number}]"
        if (stage.sample is None) == (stage.step is None) or (stage.step is not None and run.schedule is None):
            expected = "sample, or step and a [schedule]"
            raise RecipeError("RCP041", place, path=path, expected=expected, hint=HINT)
        known = names if isinstance(stage.weights, dict) else list(order.weights)
        for name in stage.weights if isinstance(stage.weights, dict) else [stage.weights]:
            if name not in known:
                near = nearest(name, known)
                message = f"{place} weights {name!r}" + (f"; did you mean {near!r}?" if near else "")
                raise RecipeError("RCP041", message, path=path, expected=", ".join(known), found=name, hint=HINT)


class _OrderOnly(msgspec.Struct):
    order: AnyOrder


def _refuse_order(table: dict[str, Any], path: object, at: str) -> None:
    """Check an order that stands where types cannot describe it."""
    from tokenreel.config.reading import refuse_unknown

    parent = at.rpartition(".")[0]
    refuse_unknown({"order": table}, _OrderOnly, path, parent, schema="run")
    _convert(table, AnyOrder, path, at)


def _convert(table: Any, kind: Any, path: object, at: str) -> Any:
    from tokenreel.config.reading import wrong_value

    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        raise wrong_value(error, table, kind, path, at=at, schema="run") from error


def _changed(base: dict[str, Any], segment: dict[str, Any]) -> dict[str, Any]:
    """Return a run's keys with a segment's put in."""
    out = dict(base)
    for key, value in segment.items():
        if key in OWN_KEYS:
            continue
        before = base.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            other_kind = value.get("kind", before.get("kind")) != before.get("kind")
            out[key] = value if other_kind else {**before, **value}
        else:
            out[key] = value
    return out


def _follow(before: Segment | None, one: SegmentTable, run: Run, path: object, number: int) -> Segment:
    """Return a segment as it follows the one before it; raises `RecipeError`: RCP043 where it does not, RCP041."""
    place = f"segment[{number}]"
    expected: object = before.last + 1 if before and before.last is not None else 0
    wrong = before is not None and one.first != expected
    if before is not None and one.after is not None and before.last is not None:
        # A branch may leave a segment before its end.
        expected, wrong = f"{before.first + 1} .. {before.last + 1}", not before.first < one.first <= before.last + 1
    if wrong:
        raise RecipeError("RCP043", f"{place}.first", path=path, expected=expected, found=one.first, hint=HINT)
    if one.last < one.first:
        message, least = f"{place}.last", f"{one.first} or more"
        raise RecipeError("RCP043", message, path=path, expected=least, found=one.last, hint=HINT)
    if (one.record is None) != (one.evidence == "declared"):
        said = "a record" if one.evidence != "declared" else "evidence that is no declaration"
        raise RecipeError("RCP041", place, path=path, expected=said, found=one.evidence, hint=HINT)
    consumed = _consumed(before, one.first) if before else 0
    sample = consumed if one.at_sample is None else one.at_sample
    after = None if before is None else number - 1 if one.after is None else one.after
    doubt = _doubt(before, one, run, consumed)
    return Segment(run, one.first, one.last, sample, one.evidence, one.source, after, one.record, doubt)


def _doubt(before: Segment | None, one: SegmentTable, run: Run, consumed: int | None) -> str | None:
    """Return why it is not certain with which sample a segment begins: nothing recorded it, and more than the steps changed."""
    if before is None or one.evidence != "declared":
        return None
    changed = []
    schedules = [(s.batch, s.ramp) if s else None for s in (before.run.schedule, run.schedule)]
    if schedules[0] != schedules[1]:
        changed.append("the batch schedule changes")
    if one.at_sample is not None and one.at_sample != consumed:
        stood = "an unknown sample" if consumed is None else f"sample {consumed:,}"
        changed.append(f"it begins at sample {one.at_sample:,} where {stood} was next")
    return f"at step {one.first:,} {' and '.join(changed)}, and no checkpoint or ledger says so" if changed else None


def _consumed(segment: Segment, step: int) -> int | None:
    """Return the sample that follows a segment's steps before `step`."""
    if segment.first_sample is None or segment.run.schedule is None or segment.last is None:
        return None
    return segment.first_sample + segment.run.schedule.samples(segment.first, step)
