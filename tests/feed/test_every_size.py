"""Exactly once for every number of samples to 40: each state that any setting can stop at, gone on with in every other.

A state is its position, with its step: that all settings that stop at a position save the same state, but for its step, is
part of the proof, so each is gone on with once in each setting. Feeds are real ones, and so is every row that they return.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.feed.jobs import ORDERS, ROW, expected_rows, policy_of, row_names
from tests.feed.sizes import SMALLEST, of_length
from tokenreel.feed.opening import open_feed
from tokenreel.index.assemble import Assembled
from tokenreel.testing import Setting, every_setting

# Among them batches that ranks cannot share evenly.
SETTINGS = [*every_setting((1, 2, 3), (0,), (1, 2, 3, 4, 6, 7)), Setting(world=2, batch=5), Setting(world=3, batch=4)]
STEPS = 2
"""Batches read after most states; every seventh is read to the end. What follows them begins at another of the states."""

Rows = list[tuple[int, bytes]]


@dataclass
class Job:
    """All ranks of one setting, opened once; `steps` begins them anew at a state."""

    made: Assembled
    policy: dict[str, Any]
    setting: Setting
    feeds: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.feeds = [
            open_feed(
                self.made, rows=self.policy, batch=self.setting.batch, rank=k, world=self.setting.world, prefetch=0
            )
            for k in range(self.setting.world)
        ]

    def begin(self, state: dict[str, Any]) -> None:
        for feed in self.feeds:
            feed.load_state_dict(state)
            assert feed.state_dict() == state, (self.setting, state)

    def step(self) -> Rows | None:
        """Return the rows of the next step over all ranks, None at the end, which is the same for all."""
        batches = [next(feed, None) for feed in self.feeds]
        if None in batches:
            assert not any(batches)
            return None
        return [row for batch in batches for row in row_names(batch)]

    def state(self) -> dict[str, Any]:
        states = [feed.state_dict() for feed in self.feeds]
        assert all(one == states[0] for one in states), (self.setting, states)
        found: dict[str, Any] = json.loads(json.dumps(states[0]))
        return found

    def close(self) -> None:
        for feed in self.feeds:
            feed.close()


def prove(made: Assembled, policy: dict[str, Any], samples: int) -> tuple[int, int]:
    """Prove an order of `samples` samples; returns positions and cases."""
    expected = expected_rows(made, policy)
    assert len(expected) == samples
    jobs = [Job(made, policy, setting) for setting in SETTINGS]
    states = defaultdict(dict)
    for job in jobs:
        first, read, step = job.state(), 0, 0
        while True:
            state = first if step == 0 else job.state()
            assert (state["position"], state["step"]) == (read, step), job.setting
            states[read][step] = state
            rows = job.step()
            if rows is None:
                break
            assert rows == expected[read : read + job.setting.batch], (job.setting, step)
            read, step = read + len(rows), step + 1
        assert read == samples, job.setting
    assert sorted(states) == list(range(samples + 1))
    cases = 0
    for position, by_step in states.items():
        kept = list(by_step.values())
        assert all({**one, "step": 0} == {**kept[0], "step": 0} for one in kept)
        for number, job in enumerate(jobs):
            cases += 1
            job.begin(kept[(position + number) % len(kept)])
            read, steps = position, 0
            while (position + number) % 7 == 0 or steps < STEPS:
                rows = job.step()
                assert (rows or []) == expected[read : read + job.setting.batch], (position, job.setting)
                if rows is None:
                    break
                read, steps = read + len(rows), steps + 1
            assert job.state()["position"] == read
    for job in jobs:
        job.close()
    return len(states), cases


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sizes")


@pytest.mark.parametrize("order", ORDERS)
def test_a_few_sizes(order: str, root: Path) -> None:
    for samples in (SMALLEST.get(order, 1), 7):
        made = of_length(root, order, samples)
        assert prove(made, policy_of(order), samples)[0] == samples + 1


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [range(1, 21), range(21, 31), range(31, 41)], ids=lambda sizes: f"to-{sizes[-1]}")
@pytest.mark.parametrize("order", ORDERS)
def test_every_size_to_forty(order: str, sizes: range, root: Path) -> None:
    for samples in sizes:
        if samples < SMALLEST.get(order, 1):
            with pytest.raises(LookupError):
                of_length(root, order, samples)
            continue
        made = of_length(root, order, samples)
        positions, cases = prove(made, policy_of(order), samples)
        assert cases == positions * len(SETTINGS) == (samples + 1) * len(SETTINGS)
        assert made.order.row_tokens == ROW
