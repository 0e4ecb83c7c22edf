"""What a feed is opened over: the order of a run made ready, its corpora, and the cursor that it begins with."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.config.run import Run, Segment, load_run
from tokenreel.corpus.corpus import Corpus
from tokenreel.errors import StateError, UsageError
from tokenreel.feed.going_on import check_corpora, go_on
from tokenreel.feed.schedule import Cursor
from tokenreel.index.assemble import Assembled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.errors import TokenreelError
    from tokenreel.feed.state import State
    from tokenreel.order.protocol import Order


@dataclass(frozen=True, slots=True)
class Opened:
    """What a feed is opened over."""

    order: Order
    corpora: tuple[Corpus, ...]
    run: Run | None
    cursor: Cursor
    end: int | None
    """Step to stop before, as a lineage says."""
    name: str
    state: State | None
    """The state to load; None where a lineage goes on with a new segment after it."""
    owns: bool
    warnings: tuple[TokenreelError, ...] = ()
    """What could not be read or kept while the order was made ready."""

    @classmethod
    def of(
        cls,
        run: str | os.PathLike[str] | Run | Segment | Assembled | Order,
        corpora: Corpus | Sequence[Corpus] | None,
        folder: Path,
        cache: str | os.PathLike[str] | None,
        segment: int | None,
        state: State | None,
        accept: Sequence[str],
    ) -> Opened:
        """Open whatever a feed may be opened over, and make its order ready; errors as `open_feed`."""
        if isinstance(run, str | os.PathLike):
            path = Path(run)
            segments = load_run(path)
            number = segments.index(segment_for(segments, segment, state))
            return cls._of_run(segments, number, path.parent, cache, accept, state, path.stem)
        if isinstance(run, Run | Segment):
            one = Segment(run) if isinstance(run, Run) else run
            return cls._of_run((one,), 0, folder, cache, accept, state, "run")
        if isinstance(run, Assembled):
            order, given = run.order, run.corpora
        else:
            order = run
            given = (corpora,) if isinstance(corpora, Corpus) else tuple(corpora or ())
            if len(given) != len(order.corpora):
                expected = f"{len(order.corpora)} corpora, as {order.name} has"
                raise UsageError("USE003", "corpora", expected=expected, found=len(given))
        prepared = order.prepare(cache)
        check_corpora(prepared, given)
        return cls(prepared, given, None, Cursor(), None, order.name, state, owns=False)

    @classmethod
    def _of_run(
        cls,
        segments: tuple[Segment, ...],
        number: int,
        folder: Path,
        cache: str | os.PathLike[str] | None,
        accept: Sequence[str],
        state: State | None,
        name: str,
    ) -> Opened:
        from tokenreel.feed.importing import lineage, tokens_before

        one = segments[number]
        if one.first_sample is None:
            raise UsageError("STA017", f"samples before step {one.first}", expected="at_sample or a schedule")
        made, told = _assembled(one, folder, cache, accept)
        order, cursor = made.order, Cursor(one.first_sample, one.first, tokens_before(segments, number))
        end = None if one.last is None else one.last + 1
        loads = state
        begins = state is not None and one.after is not None and state.cursor.step == one.first
        if state is not None and begins and not _goes_on(state, made):
            before, _ = _assembled(lineage(segments, number)[-2], folder, cache, accept)
            go_on(state, before.order, before.corpora)
            cursor, loads = replace(cursor, tokens=state.cursor.tokens), None
            for corpus in before.corpora:
                corpus.close()
        return cls(order, made.corpora, one.run, cursor, end, name, loads, owns=True, warnings=told)


def _assembled(
    one: Segment, folder: Path, cache: str | os.PathLike[str] | None, accept: Sequence[str]
) -> tuple[Assembled, tuple[TokenreelError, ...]]:
    from tokenreel.index.assemble import assemble
    from tokenreel.index.ready import make_ready

    return make_ready(one.run, assemble(one.run, folder, accept=accept, cache=cache), folder, cache)


def _goes_on(state: State, made: Assembled) -> bool:
    try:
        go_on(state, made.order, made.corpora)
    except StateError:
        return False
    return True


def segment_for(segments: Sequence[Segment], number: int | None, state: State | None) -> Segment:
    """Return the segment named, else the one that holds a state's next step, else the first. Raises `RecipeError` (RCP044)."""
    from tokenreel.index.segments import chosen

    if number is not None or len(segments) == 1:
        return chosen(segments, segment=number)[1]
    step = segments[0].first if state is None else state.cursor.step
    last = segments[-1].last
    return segments[-1] if last is not None and step == last + 1 else chosen(segments, step=step)[1]
