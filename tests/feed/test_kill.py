"""SIGKILL at drawn moments, over orders, rims, workers and settings: every label once, in order, whatever happened."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.feed.jobs import ORDERS, RIMS, WITH_WORKERS, expected_rows, fits, made_order, policy_of, write_data
from tests.feed.killing import consumed
from tests.warm import Warm
from tokenreel.testing import Setting

MOMENTS = ("gather", "before", "between", "saving", "end", "saved", "clock")
SEED = int(os.environ.get("TOKENREEL_SEED", "20261130"))
DOZENS = {1: (1, 2, 3, 5, 7), 2: (2, 4, 6), 3: (3, 6, 9)}


@dataclass(frozen=True)
class Trial:
    """One job: its attempts, all but the last of them killed."""

    order: str
    rim: str
    attempts: tuple[dict[str, Any], ...]

    @property
    def kills(self) -> list[str]:
        return [one["kill"]["at"] for one in self.attempts if one["kill"] is not None]


def drawn_setting(draw: random.Random, rim: str, order: str) -> Setting:
    while True:
        world = draw.choice((1, 1, 2, 3))
        workers = draw.choice((0, 1, 3)) if rim in WITH_WORKERS else 0
        found = Setting(world=world, workers=workers, batch=draw.choice(DOZENS[world]))
        if fits(rim, order, found) and world * (workers + 1) <= 6:
            return found


def drawn_kill(draw: random.Random, moment: str) -> dict[str, Any]:
    if moment == "clock":
        return {"at": moment, "after": draw.uniform(0.0, 0.15)}
    # Few enough that most jobs live to see it.
    low, high = {"between": (1, 4), "saving": (0, 1)}.get(moment, (0, 4))
    return {"at": moment, "number": draw.randint(low, high)}


def trials(kills: int, seed: int = SEED) -> list[Trial]:
    """Draw trials until there are so many kills; orders, rims and moments take turns, so each has its share."""
    draw = random.Random(seed)
    turns: dict[str, list[str]] = {}

    def turn(name: str, items: tuple[str, ...]) -> str:
        if not turns.get(name):
            turns[name] = draw.sample(items, len(items))
        return turns[name].pop()

    made: list[Trial] = []
    left = kills
    while left:
        order, rim = turn("order", ORDERS), turn("rim", tuple(RIMS))
        # Once, or twice in a row.
        count = min(left, draw.choice((1, 2)))
        left -= count
        moments = [turn("moment", MOMENTS) for _ in range(count)]
        attempts = []
        for moment in [*moments, None]:
            setting = drawn_setting(draw, rim, order)
            attempts.append(
                {
                    "order": order,
                    "rim": rim,
                    "setting": {"world": setting.world, "workers": setting.workers, "batch": setting.batch},
                    "prefetch": draw.choice((0, 1, 2, 8)),
                    "save": draw.choice((1, 1, 2, 3)),
                    "kill": None if moment is None else drawn_kill(draw, moment),
                }
            )
        made.append(Trial(order, rim, tuple(attempts)))
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def play(trial: Trial, number: int, warm: Warm, data: Path) -> tuple[Counter[str], str]:
    """Run a trial; returns the kills that struck, and what is wrong."""
    files = {"folder": str(data), "log": f"log-{number}", "state": f"state-{number}.json"}
    output = data / f"output-{number}"
    struck: Counter[str] = Counter()
    for attempt in trial.attempts:
        kill = attempt["kill"]
        after = kill["after"] if kill is not None and kill["at"] == "clock" else None
        ended = warm.run("tests.feed.killing:job", {**attempt, **files}, output=output, kill_after=after)
        if kill is not None and ended.killed:
            struck[kill["at"]] += 1
        elif ended.status != 0:
            return struck, f"{attempt}: status {ended.status}\n{ended.output[-3000:]}"
    rows, wrong, done = consumed(data / files["log"])
    if wrong or not done:
        return struck, f"{wrong}, {'ended' if done else 'did not end'}"
    expected = expected_rows(made_order(data, trial.order), policy_of(trial.order))
    if Counter(rows) != Counter(expected):
        lost, more = Counter(expected) - Counter(rows), Counter(rows) - Counter(expected)
        return struck, f"lost {[n for n, _ in lost]}, repeated {[n for n, _ in more]} of {len(expected)}"
    return struck, "" if rows == expected else "every row once, but not in order"


def prove(kills: int, warm: Warm, data: Path) -> Counter[str]:
    struck: Counter[str] = Counter()
    for number, trial in enumerate(trials(kills)):
        now, wrong = play(trial, number, warm, data)
        assert not wrong, f"TOKENREEL_SEED={SEED}, trial {number}, {trial}: {wrong}"
        struck += now
    return struck


def test_killed_at_twenty_moments(warm: Warm, data: Path) -> None:
    struck = prove(23, warm, data)
    # A few meet a job that ended first.
    assert sum(struck.values()) >= 20
    assert set(struck) >= set(MOMENTS) - {"clock"}


@pytest.mark.slow
def test_killed_at_two_hundred_moments(warm: Warm, data: Path) -> None:
    plan = trials(225)
    for name, items in (("order", ORDERS), ("rim", tuple(RIMS))):
        hits = Counter(getattr(one, name) for one in plan for _ in one.kills)
        assert min(hits[item] for item in items) >= 5
    struck = prove(225, warm, data)
    assert sum(struck.values()) >= 200
    assert set(struck) == set(MOMENTS)
