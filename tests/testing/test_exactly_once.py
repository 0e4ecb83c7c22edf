"""The harness holds for a right loader and sees every way in which loaders are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tokenreel.errors import UsageError
from tokenreel.testing import Setting, every_setting, exactly_once
from tokenreel.testing.exactly_once import difference, labels_of, row_keys

SETTINGS = every_setting((1, 2, 3), (0,), (1, 2, 3, 6))


class Right:
    """Rows 0 .. 11, global position as state."""

    samples = 12

    def __init__(self, setting: Setting, rank: int, state: Any) -> None:
        self.batch, self.world, self.rank = setting.batch, setting.world, rank
        self.position = state["position"] if state else 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < self.samples:
            rows = np.arange(self.position, min(self.samples, self.position + self.batch))
            self.position += len(rows)
            mine = np.array_split(rows, self.world)[self.rank]
            yield {"labels": mine[:, None]}

    def state_dict(self) -> Any:
        return {"position": self.position}


def found(loader: Callable[..., Any], **options: Any) -> str:
    return "\n".join(exactly_once(loader, SETTINGS, **options).lines())


def test_a_right_loader_holds_in_every_case() -> None:
    report = exactly_once(Right, SETTINGS)
    assert report.holds
    # Before the first step and after each, resumed in each setting.
    assert report.cases == sum((12 + one.batch - 1) // one.batch + 1 for one in SETTINGS) * len(SETTINGS)
    assert report.rows == 12


class Repeats(Right):
    """The state is a batch behind: what prefetching loaders do the other way round."""

    def state_dict(self) -> Any:
        return {"position": max(0, self.position - 1)}


class Skips(Right):
    """The state is what was read ahead, not what was returned."""

    ahead = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            self.ahead = self.batch
            yield batch

    def state_dict(self) -> Any:
        return {"position": min(12, self.position + self.ahead)}


class Forgets(Right):
    """Only rank 0's state counts its own rows."""

    def state_dict(self) -> Any:
        return {"position": self.position + self.rank}


class SavesTheOld(Right):
    """Saved again before the first batch, the state is that of a new loader."""

    def __init__(self, setting: Setting, rank: int, state: Any) -> None:
        super().__init__(setting, rank, state)
        self.fresh = True

    def __iter__(self) -> Iterator[Any]:
        self.fresh = False
        return super().__iter__()

    def state_dict(self) -> Any:
        return {"position": 0 if self.fresh else self.position}


class Swaps(Right):
    """Two ranks give each other's rows: the same set, another order."""

    def __iter__(self) -> Iterator[Any]:
        self.rank = self.world - 1 - self.rank
        return super().__iter__()


class EndsEarly(Right):
    """Resumed, it ends before the last row."""

    def __init__(self, setting: Setting, rank: int, state: Any) -> None:
        super().__init__(setting, rank, state)
        self.samples = 12 if state is None else 11


@pytest.mark.parametrize(
    ("loader", "what"),
    [
        (Repeats, "repeated 1"),
        (Skips, "lost 1, repeated 0"),
        (Forgets, "ranks disagree about the state"),
        (SavesTheOld, "saved before the first batch"),
        (Swaps, "lost 0, repeated 0"),
        (EndsEarly, "ends at row"),
    ],
)
def test_a_wrong_loader_is_caught(loader: type[Right], what: str) -> None:
    assert what in found(loader)


def test_the_uninterrupted_pass_is_compared_too() -> None:
    numbers = [(None, np.array([k]).tobytes()) for k in range(13)]
    report = exactly_once(Right, [Setting()], numbers)
    assert not report.holds
    assert "ends at row 12" in report.lines()[-1]


class PerRank(Right):
    """A state for each rank, useless to another number of ranks."""

    def __init__(self, setting: Setting, rank: int, state: Any) -> None:
        super().__init__(setting, rank, state)
        if state and state["rank"] != rank:
            raise ValueError

    def state_dict(self) -> Any:
        return {"position": self.position, "rank": self.rank}


def test_loaders_with_a_state_for_each_rank() -> None:
    two = every_setting((2,), (0,), (2, 4, 6))
    assert exactly_once(PerRank, two, shared_state=False).holds
    assert "ranks disagree" in exactly_once(PerRank, two).lines()[0]


class Endless(Right):
    samples = 1 << 40


def test_an_endless_loader_is_followed_to_a_limit() -> None:
    assert exactly_once(Endless, SETTINGS, limit=20).holds

    class Wraps(Endless):
        def __init__(self, setting: Setting, rank: int, state: Any) -> None:
            super().__init__(setting, rank, state)
            self.position %= 8

    assert not exactly_once(Wraps, SETTINGS, limit=20).holds


class Strided(Right):
    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            low = self.position - self.batch
            yield {"labels": np.arange(low, self.position)[self.rank :: self.world, None]} if low >= 0 else batch


def test_ranks_that_take_turns() -> None:
    assert exactly_once(Strided, every_setting((1, 2, 3), (0,), (6,)), gather="strided").holds
    assert not exactly_once(Strided, every_setting((1, 2, 3), (0,), (6,))).holds


class Drops(Right):
    """What fills no batch is not read."""

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            if self.position % self.batch == 0 or self.position < self.samples:
                yield batch


def test_rows_that_fill_no_batch_may_be_missing_where_that_is_said() -> None:
    fives = [Setting(batch=5), Setting(batch=1)]
    assert exactly_once(Drops, fives, later=[Setting(batch=1)], drop_last=True).holds
    assert not exactly_once(Drops, fives, later=[Setting(batch=1)]).holds


def test_what_a_batch_may_be() -> None:
    rows = np.array([[1, 2], [3, 4]])
    keys = [(None, row.tobytes()) for row in rows]
    for batch in ({"labels": rows}, {"targets": rows, "x": 0}, (rows * 0, rows), rows, {"text": rows}):
        assert row_keys(batch) == keys
    assert row_keys({"labels": rows, "samples": np.array([7, 8])})[1] == (8, rows[1].tobytes())
    with pytest.raises(UsageError, match="USE003"):
        labels_of({"x": rows})


def test_nothing_tried_is_nothing_proved() -> None:
    assert not exactly_once(Right, [Setting()], stops=lambda step: False).holds
    with pytest.raises(UsageError, match="USE003"):
        exactly_once(Right, [])


def test_differences_in_words() -> None:
    assert difference("abc", "abcd") == "1 rows too many; lost 0, repeated 1 of 3"
    assert difference("abc", "ab") == "ends at row 2; lost 1, repeated 0 of 3"
