"""Random MaxText jobs: every host's batches against the description written the slow way."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.feed.maxtext_jobs import NAMES, random_config, rows_of_hosts, write_datasets
from tokenreel.errors import TokenreelError
from tokenreel.feed.maxtext import open_maxtext

pytest.importorskip("grain")

MOST = 40
"""Rows of each host that are compared."""


def check(folder: Path, number: int) -> int:
    """Compare one job, training and evaluation; returns the rows compared."""
    data = write_datasets(folder, number)
    config, hosts = random_config(number, folder, list(data))
    compared = 0
    for evaluation in (False, True):
        if evaluation and not config.get("grain_eval_files"):
            continue
        try:
            expected = rows_of_hosts(config, hosts, data, evaluation=evaluation)
        except (IndexError, ValueError, ZeroDivisionError):
            # A part without samples, a window too few: MaxText stops with whatever comes.
            with pytest.raises(TokenreelError):
                open_maxtext(config, hosts=hosts, evaluation=evaluation)
            continue
        for host in range(hosts):
            compared += host_rows(config, host, hosts, expected[host], evaluation)
    return compared


def host_rows(config: dict[str, Any], host: int, hosts: int, expected: list[Any], evaluation: bool) -> int:
    steps = config["eval_steps"] if evaluation else config["steps"]
    local = config["global_batch_size_to_load"] // hosts
    with open_maxtext(config, host=host, hosts=hosts, evaluation=evaluation) as feed:
        found = []
        for batch in feed:
            assert tuple(batch.arrays) == NAMES
            found += [{name: batch[name][k].tolist() for name in NAMES} for k in range(len(batch))]
            if len(found) >= MOST:
                break
    wanted = expected[: min(steps * local if steps > 0 else MOST, MOST)]
    if len(found) < MOST:
        assert len(found) == len(wanted), config
    for k, (one, two) in enumerate(zip_longest(found[: len(wanted)], wanted)):
        assert one == two, (k, config)
    return len(wanted)


@pytest.mark.parametrize("first", [0, 15])
def test_batches_are_as_described(first: int, tmp_path: Path) -> None:
    assert sum(check(tmp_path / str(number), number) for number in range(first, first + 15)) > 200


@pytest.mark.slow
@pytest.mark.parametrize("first", range(30, 330, 100))
def test_many_batches_are_as_described(first: int, tmp_path: Path) -> None:
    assert sum(check(tmp_path / str(number), number) for number in range(first, first + 100)) > 1000
