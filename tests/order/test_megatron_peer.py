"""500 random jobs against what megatron-core made of them, stored; fresh ones where it is installed."""

from __future__ import annotations

import json
import os
import time
from collections import Counter

import pytest

from tests.order.megatron_peer import STORED, Job, digest, peer_arrays, random_job
from tests.order.tables import Lengths
from tokenreel.errors import OrderError
from tokenreel.order.megatron import MegatronOrder


def ours(job: Job) -> str:
    """Return the digest of our arrays, or the code we refuse the job with."""
    try:
        order = MegatronOrder.over(
            Lengths(list(job.lengths)), job.row, seed=job.seed, samples=job.samples, split=job.split, part=job.part,
            row_ahead=job.ahead, keep_partial=job.keep_partial,
        )  # fmt: skip
        indices = order.prepare().indices()
    except OrderError as error:
        return error.code
    return digest((indices.document_index, indices.sample_index, indices.shuffle_index))


def test_stored_jobs() -> None:
    stored = json.loads(STORED.read_text("utf-8"))
    assert len(stored) == 500
    separate: Counter[bool] = Counter()
    for number, expected in enumerate(stored):
        job = random_job(number)
        found = ours(job)
        if expected == "AssertionError":
            assert found == "ORD013", number
        else:
            assert found == expected, number
            plan = MegatronOrder.over(
                Lengths(list(job.lengths)), job.row, seed=job.seed, samples=job.samples, split=job.split,
                part=job.part, row_ahead=job.ahead, keep_partial=job.keep_partial,
            ).plan  # fmt: skip
            if plan.epochs > 1:
                separate[plan.separate] += 1
    assert min(separate[True], separate[False]) > 40, "both sides of the threshold are met"


@pytest.mark.slow
def test_fresh_jobs() -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    first = int(os.environ.get("TOKENREEL_SEED", time.time_ns() % 10**9))
    for number in range(first, first + 100):
        job = random_job(number)
        expected = peer_arrays(job)
        assert ours(job) == ("ORD013" if isinstance(expected, str) else digest(expected)), f"TOKENREEL_SEED={number}"
