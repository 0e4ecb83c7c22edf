"""Stopped anywhere and resumed with any number of ranks, workers and rows: every row must be read once, in order.

For feeds of this package and for anybody's loader: all it takes is a function that opens one rank's loader at a state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tokenreel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    Rows = list[Hashable]
    Gather = Literal["contiguous", "strided"] | Callable[[list[Rows]], Rows]

MOST_FAILURES = 20


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Setting:
    """How a job is laid out: none of it may change what is read."""

    world: int = 1
    workers: int = 0
    batch: int = 1
    """Rows of a step, over all ranks."""

    def __str__(self) -> str:
        """Return the setting in a few words."""
        return f"world {self.world}, workers {self.workers}, batch {self.batch}"


class Resumable(Protocol):
    """One rank's loader: batches, and a state that describes the last of them."""

    def __iter__(self) -> Iterator[Any]:
        """Return the iterator of batches that are left."""
        ...

    def state_dict(self) -> Any:
        """Return the state after the last batch returned."""
        ...


@dataclass(frozen=True, slots=True)
class Failure:
    """One case that does not hold."""

    first: Setting
    stop: int
    """Steps taken before the stop."""
    second: Setting | None
    what: str

    def line(self) -> str:
        """Return the case and what was wrong."""
        after = f" -> {self.second}" if self.second else ""
        return f"{self.first}, stopped after step {self.stop}{after}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    """What `exactly_once` found."""

    cases: int
    rows: int
    """Rows of one whole pass."""
    failures: tuple[Failure, ...]
    """The first ones."""

    @property
    def holds(self) -> bool:
        """Whether every case held, and there was one."""
        return self.cases > 0 and not self.failures

    def lines(self) -> list[str]:
        """Return one line a failure, or the one that says that all held."""
        if self.holds:
            return [f"{self.cases} cases over {self.rows} rows: every row once, in order"]
        return [failure.line() for failure in self.failures] or ["no case was tried"]


def every_setting(
    worlds: Iterable[int] = (1, 2, 3), workers: Iterable[int] = (0,), batches: Iterable[int] = (1, 2, 3, 4, 6)
) -> list[Setting]:
    """Return all combinations in which every rank has as many rows as the others, one at least.

    >>> [str(one) for one in every_setting((1, 2), (0,), (2, 3))]
    ['world 1, workers 0, batch 2', 'world 1, workers 0, batch 3', 'world 2, workers 0, batch 2']
    """
    return [
        Setting(world=world, workers=count, batch=batch)
        for world, count, batch in product(worlds, workers, batches)
        if batch % world == 0
    ]


def exactly_once(
    make: Callable[[Setting, int, Any], Resumable],
    settings: Sequence[Setting],
    expected: Sequence[Hashable] | None = None,
    *,
    later: Sequence[Setting] | None = None,
    rows: Callable[[Any], Sequence[Hashable]] | None = None,
    gather: Gather = "contiguous",
    stops: Callable[[int], bool] | None = None,
    drop_last: bool = False,
    shared_state: bool = True,
    limit: int | None = None,
) -> Report:
    """Return whether a loader stopped after any step, in any setting, goes on in any other with every row once, in order.

    `make` opens one rank's loader at a state (None: the start). `expected` are the rows of one uninterrupted pass, in
    order, as `rows` names them (`row_keys` when left out); left out, what one rank reads row by row. Ranks step
    together and their rows of a step are put in order by `gather`: "contiguous", "strided", or a function. `later` are the
    settings to go on with (`settings` when left out); `stops` says after which steps. With `drop_last` the rows that
    fill no batch may be missing at the end. Where ``shared_state=False`` each rank is given its own state back, else rank
    0's, and all ranks' must be equal. `limit` ends an endless loader after so many rows.

    Also asked: a loader opened at a state gives that state back before its first batch.
    """
    proof = _Proof(make, rows or row_keys, gather, drop_last, shared_state, limit)
    if not settings:
        raise UsageError("USE003", "settings", expected="one or more", found="none")
    whole = list(expected) if expected is not None else [row for now, _ in proof.steps(Setting(), None) for row in now]
    failures: list[Failure] = []
    cases = stop = 0
    for first in settings:
        read: Rows = []
        for stop, (now, states) in enumerate(proof.steps(first, None)):
            read += now
            if proof.differs(whole, read):
                failures.append(Failure(first, stop, None, difference(whole[: len(read)], read)))
                break
            if stops is not None and not stops(stop):
                continue
            for second in settings if later is None else later:
                cases += 1
                what = proof.resumed(second, states, whole[len(read) :])
                if what:
                    failures.append(Failure(first, stop, second, what))
                    if len(failures) >= MOST_FAILURES:
                        return Report(cases, len(whole), tuple(failures))
        else:
            if not proof.enough(whole, read, first):
                failures.append(Failure(first, stop, None, difference(whole, read)))
    return Report(cases, len(whole), tuple(failures))


@dataclass(frozen=True, slots=True)
class _Proof:
    make: Callable[[Setting, int, Any], Resumable]
    rows: Callable[[Any], Sequence[Hashable]]
    gather: Gather
    drop_last: bool
    shared: bool
    limit: int | None

    def steps(
        self, setting: Setting, states: list[Any] | None, limit: int | None = None
    ) -> Iterator[tuple[Rows, list[Any]]]:
        """Yield, before the first step and after each, the rows it read and every rank's state."""
        given = states or [None]
        loaders = [self.make(setting, rank, given[rank % len(given)]) for rank in range(setting.world)]
        yield [], self._states(loaders)
        iterators = [iter(loader) for loader in loaders]
        total, most = 0, self.limit if limit is None else limit
        try:
            while most is None or total < most:
                parts = [
                    list(self.rows(batch)) for batch in (next(one, None) for one in iterators) if batch is not None
                ]
                if not parts:
                    break
                now = gathered(parts, self.gather)
                total += len(now)
                yield now, self._states(loaders)
        finally:
            for loader in loaders:
                close = getattr(loader, "close", None)
                if close is not None:
                    close()

    def _states(self, loaders: list[Resumable]) -> list[Any]:
        states = [loader.state_dict() for loader in loaders]
        return states[:1] if self.shared and all(state == states[0] for state in states) else states

    def resumed(self, setting: Setting, states: list[Any], expected: Rows) -> str:
        """Return what is wrong with going on from `states`; empty where nothing is."""
        if self.shared and len(states) > 1:
            return "ranks disagree about the state"
        if not self.shared and len(states) not in (1, setting.world):
            return ""
        steps = self.steps(setting, states, None if self.limit is None else len(expected))
        _, again = next(steps)
        if again[: len(states)] != states:
            return f"saved before the first batch the state is {again[0]}, not the {states[0]} that was loaded"
        read = [row for now, _ in steps for row in now]
        return "" if self.enough(expected, read, setting) else difference(expected, read)

    def differs(self, expected: Rows, read: Rows) -> bool:
        """Whether what was read so far is not how `expected` begins; past a limit nothing is known."""
        known = len(read) if self.limit is None else min(len(expected), len(read))
        return read[:known] != expected[:known]

    def enough(self, expected: Rows, read: Rows, setting: Setting) -> bool:
        """Whether these are the rows, but for those that fill no batch where they are dropped."""
        missing = len(expected) - len(read)
        return not self.differs(expected, read) and missing < (setting.batch if self.drop_last else 1)


def gathered(parts: list[Rows], gather: Gather) -> Rows:
    """Return the rows of all ranks of a step in the order of samples.

    >>> gathered([[0, 2], [1, 3]], "strided"), gathered([[0, 1], [2]], "contiguous")
    ([0, 1, 2, 3], [0, 1, 2])
    """
    if gather == "contiguous":
        return [row for part in parts for row in part]
    if gather == "strided":
        longest = max(map(len, parts))
        return [part[k] for k in range(longest) for part in parts if k < len(part)]
    return gather(parts)


def difference(expected: Sequence[Hashable], read: Sequence[Hashable]) -> str:
    """Return in words how two sequences of rows differ.

    >>> difference("abcd", "abdd")
    "row 2 is 'd', expected 'c'; lost 1, repeated 1 of 4"
    """
    at = next(
        (k for k, (a, b) in enumerate(zip(expected, read, strict=False)) if a != b), min(len(expected), len(read))
    )
    lost = sum((Counter(expected) - Counter(read)).values())
    repeated = sum((Counter(read) - Counter(expected)).values())
    if at == len(expected):
        where = f"{len(read) - at} rows too many"
    elif at == len(read):
        where = f"ends at row {at}"
    else:
        where = f"row {at} is {_short(read[at])}, expected {_short(expected[at])}"
    return f"{where}; lost {lost}, repeated {repeated} of {len(expected)}"


def row_keys(batch: Any) -> list[Hashable]:
    """Return what tells rows apart: the labels of each row, with the sample's number where the batch knows it.

    Takes a `Batch`, a mapping with ``labels`` (or ``targets``, ``text``, ``input_ids``), a pair (inputs, labels), or one
    array of rows; arrays of any framework that numpy can read.
    """
    labels = array_of(labels_of(batch))
    samples = getattr(batch, "samples", None)
    if samples is None and isinstance(batch, dict):
        samples = batch.get("samples")
    numbers = [None] * len(labels) if samples is None else [int(k) for k in samples]
    return [(number, row.tobytes()) for number, row in zip(numbers, labels, strict=True)]


LABELS = ("labels", "targets", "text", "input_ids", "tokens")


def labels_of(batch: Any) -> Any:
    """Return the labels of a batch; raises `UsageError` (USE003) where it has none that could be found."""
    arrays = getattr(batch, "arrays", batch)
    if isinstance(arrays, dict):
        for name in LABELS:
            if name in arrays:
                return arrays[name]
        raise UsageError("USE003", "a batch", expected=f"one of {', '.join(LABELS)}", found=", ".join(map(str, arrays)))
    if isinstance(arrays, tuple | list) and len(arrays) == 2:
        return arrays[1]
    return arrays


def array_of(value: Any) -> Any:
    """Return an array of any framework as numpy's, from whatever device it is on; torch's floats become float64."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if value.is_floating_point():
            value = value.double()
        return value.numpy()
    return np.asarray(value)


def _short(row: Hashable) -> str:
    text = repr(row)
    return text if len(text) <= 60 else f"{text[:57]}..."
