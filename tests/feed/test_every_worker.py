"""Exactly once over workers, for every number of samples to 40: torch's data sets driven as its loaders drive them.

A loader takes batches from its workers in turn, and passes over those that are done. Here workers are data sets
in one process: so every stop can be tried, and every number of workers before and after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.feed.jobs import expected_rows, policy_of, row_names
from tests.feed.sizes import of_length

torch = pytest.importorskip("torch")

from tokenreel.feed.torch import FeedDataset, feed_state  # noqa: E402

WORKERS = (1, 2, 3, 5)
LAYOUTS = ((1, 1), (1, 3), (1, 4), (2, 2), (2, 5), (3, 3))
"""(world, batch)."""


class Loader:
    """One rank: a data set in this process, and workers that make its batches."""

    def __init__(self, made: Any, policy: Any, layout: tuple[int, int], rank: int, workers: int, state: Any) -> None:
        world, batch = layout
        self.options = {"rows": policy, "batch": batch, "rank": rank, "world": world, "prefetch": 0}
        self.made, self.main = made, FeedDataset(made, state=state, **self.options)
        self.info = [SimpleNamespace(id=k, num_workers=workers) for k in range(workers)]
        self.states: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        feed = self.main.opened.feed
        # A worker begins where its loader's process stands.
        copies = [FeedDataset(self.made, state=feed.state_dict(), **self.options) for _ in self.info]
        waiting = [(info, one, iter(one)) for info, one in zip(self.info, copies, strict=True)]
        while waiting:
            info, copy, batches = waiting.pop(0)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(torch.utils.data, "get_worker_info", lambda info=info: info)
                batch = next(batches, None)
                if batch is None:
                    continue
                # What a stateful loader keeps of its workers: each one's state after its last batch.
                self.states = [*self.states, copy.state_dict()][-len(self.info) :]
            waiting.append((info, copy, batches))
            feed.took(batch)
            yield batch
        for copy in copies:
            copy.opened.feed.close()

    def close(self) -> None:
        self.main.opened.feed.close()


def read(
    made: Any, policy: Any, layout: tuple[int, int], workers: int, state: Any, stop: int | None
) -> tuple[Any, Any]:
    """Return the rows of at most `stop` steps, of all ranks, and the state then."""
    loaders = [Loader(made, policy, layout, rank, workers, state) for rank in range(layout[0])]
    rows: list[Any] = []
    iterators = [iter(one) for one in loaders]
    steps = 0
    while stop is None or steps < stop:
        batches = [next(one, None) for one in iterators]
        if batches[0] is None:
            assert not any(batches)
            break
        rows += [row for batch in batches for row in row_names(batch)]
        steps += 1
    states = [one.main.opened.feed.state_dict() for one in loaders]
    assert all(one == states[0] for one in states)
    for one in loaders:
        if one.states:
            assert feed_state(dict(enumerate(json.loads(json.dumps(one.states))))) == states[0]
    for one in iterators:
        one.close()  # type: ignore[attr-defined]
    for one in loaders:
        one.close()
    return rows, states[0]


def prove(root: Path, samples: int) -> int:
    made, policy = of_length(root, "windows", samples), policy_of("windows")
    expected = expected_rows(made, policy)
    cases = 0
    for stop in range(samples + 1):
        # Over all sizes and stops, every pair of layouts and of workers takes its turn.
        turn = samples * 41 + stop
        first, second = LAYOUTS[turn % 6], LAYOUTS[turn // 6 % 6]
        before, after = WORKERS[turn % 4], WORKERS[turn // 4 % 4]
        if stop * first[1] > samples + first[1]:
            continue
        rows, state = read(made, policy, first, before, None, stop)
        assert rows == expected[: len(rows)]
        assert state["position"] == len(rows) == min(samples, stop * first[1])
        rest, _ = read(made, policy, second, after, json.loads(json.dumps(state)), None)
        assert rows + rest == expected, (first, before, stop, second, after)
        cases += 1
    return cases


def test_a_few_sizes(tmp_path: Path) -> None:
    assert sum(prove(tmp_path, samples) for samples in (1, 5, 8)) >= 10


@pytest.mark.slow
def test_every_size_to_forty(tmp_path: Path) -> None:
    assert sum(prove(tmp_path, samples) for samples in range(1, 41)) > 400
