"""SIGKILL at drawn moments, over orders, rims, workers and settings: every label once, in order, whatever happened."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.feed.jobs import ORDERS, TWO_EPOCHS, expected_rows, made_order, policy_of, write_data
from tests.feed.killing import consumed
from tests.feed.rims import RIMS, WITH_WORKERS, fits, takes
from tests.warm import Warm
from tokenreel.testing import Setting

MOMENTS = ("gather", "prefetch", "before", "between", "epoch", "saving", "end", "saved", "clock")
SEED = int(os.environ.get("TOKENREEL_SEED", "20261130"))
DOZENS = {1: (1, 2, 3, 5, 7), 2: (2, 4, 6), 3: (3, 6, 9)}


@dataclass(frozen=True)
class Trial:
    """One job: its attempts, all but the last of them killed."""

    order: str
    rim: str
    attempts: tuple[dict[str, Any], ...]


def drawn_setting(draw: random.Random, rim: str, order: str, before: Setting | None) -> Setting:
    """Return a setting that fits and is not the one before."""
    while True:
        world = draw.choice((1, 1, 2, 3))
        workers = draw.choice((0, 1, 3)) if rim in WITH_WORKERS else 0
        found = Setting(world=world, workers=workers, batch=draw.choice(DOZENS[world]))
        if fits(rim, order, found) and world * (workers + 1) <= 6 and found != before:
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
    waiting: dict[str, list[str]] = {"order": [], "rim": [], "moment": []}

    def turn(name: str, every: tuple[str, ...], some: Collection[str]) -> str:
        """Return who of `some` has waited longest."""
        if not set(waiting[name]) & set(some):
            waiting[name] += draw.sample(every, len(every))
        found = next(one for one in waiting[name] if one in some)
        waiting[name].remove(found)
        return found

    made: list[Trial] = []
    left = kills
    while left:
        rim = turn("rim", tuple(RIMS), RIMS)
        # Once, or twice in a row; at an epoch's end only where there is another epoch.
        count = min(left, draw.choice((1, 2)))
        left -= count
        taken = [order for order in ORDERS if takes(rim, order)]
        ends = set(taken) & set(TWO_EPOCHS)
        some = [one for one in MOMENTS if ends or one != "epoch"]
        moments = [turn("moment", MOMENTS, some) for _ in range(count)]
        order = turn("order", ORDERS, ends if "epoch" in moments else taken)
        attempts: list[dict[str, Any]] = []
        setting: Setting | None = None
        for moment in [*moments, None]:
            setting = drawn_setting(draw, rim, order, setting)
            attempts.append(
                {
                    "order": order,
                    "rim": rim,
                    "setting": {"world": setting.world, "workers": setting.workers, "batch": setting.batch},
                    "prefetch": draw.choice((1, 2, 8, 64) if moment == "prefetch" else (0, 1, 2, 8)),
                    "save": draw.choice((1, 1, 2, 3)),
                    "kill": None if moment is None else drawn_kill(draw, moment),
                }
            )
        made.append(Trial(order, rim, tuple(attempts)))
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def play(trial: Trial, number: int, warm: Warm, data: Path) -> tuple[list[dict[str, Any]], str]:
    """Run a trial; returns the attempts that were killed, and what is wrong."""
    files = {"folder": str(data), "log": f"log-{number}", "state": f"state-{number}.json"}
    output = data / f"output-{number}"
    struck: list[dict[str, Any]] = []
    for attempt in trial.attempts:
        kill = attempt["kill"]
        after = kill["after"] if kill is not None and kill["at"] == "clock" else None
        ended = warm.run("tests.feed.killing:job", {**attempt, **files}, output=output, kill_after=after)
        if kill is not None and ended.killed:
            struck.append(attempt)
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


@dataclass
class Struck:
    """What was killed, and how often."""

    kills: int
    moments: Counter[str]
    orders: Counter[str]
    rims: Counter[str]
    workers: Counter[int]
    twice: int
    """Trials in which two attempts in a row were killed."""
    tried: set[str]
    """Rims of all trials."""


def prove(kills: int, warm: Warm, data: Path) -> Struck:
    """Play trials of so many kills and an eighth more, and go on, to twice as many, while too few of them struck."""
    killed: list[dict[str, Any]] = []
    tried: set[str] = set()
    planned = twice = 0
    for number, trial in enumerate(trials(2 * kills)):
        if planned >= kills + kills // 8 and len(killed) >= kills:
            break
        planned += len(trial.attempts) - 1
        tried.add(trial.rim)
        now, wrong = play(trial, number, warm, data)
        assert not wrong, f"TOKENREEL_SEED={SEED}, trial {number}, {trial}: {wrong}"
        killed += now
        twice += len(now) > 1
    return Struck(
        len(killed),
        Counter(one["kill"]["at"] for one in killed),
        Counter(one["order"] for one in killed),
        Counter(one["rim"] for one in killed),
        Counter(one["setting"]["workers"] for one in killed),
        twice,
        tried,
    )


def test_killed_at_twenty_moments(warm: Warm, data: Path) -> None:
    struck = prove(20, warm, data)
    # A few meet a job that ended first.
    assert struck.kills >= 20
    assert set(struck.moments) >= set(MOMENTS) - {"clock"}
    assert struck.tried == set(RIMS)


@pytest.mark.slow
def test_killed_at_two_hundred_moments(warm: Warm, data: Path) -> None:
    struck = prove(200, warm, data)
    assert struck.kills >= 200
    told = {"order": (struck.orders, ORDERS), "rim": (struck.rims, RIMS), "moment": (struck.moments, MOMENTS)}
    for what, (hits, every) in told.items():
        assert set(hits) == set(every)
        assert min(hits.values()) >= 5, (what, hits)
    assert min(struck.workers[count] for count in (0, 1, 3)) >= 5
    assert struck.twice >= 5
