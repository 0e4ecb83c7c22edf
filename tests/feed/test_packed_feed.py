"""Every packing policy, fed from a run file: the same rows for 1, 2, 3 and 8 ranks, and states that go on anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tokenreel
from tests.index.data import lengths_of, write

POLICIES = {
    "concat": "",
    "flat": "",
    "bestfit": 'oversize = "split"',
    "firstfit(3)": 'oversize = "truncate"',
    "one-per-row": 'oversize = "drop"',
    "truncate": "",
    "crop": 'oversize = "wait"\nbuffer = 5\nrefill = 3\ntail = "pad"',
    "bos-aligned": "longest = 9",
    "levanter-greedy": 'oversize = "truncate"\nkeep = "last"',
    "decompose": "shortest = 2",
    "concat ": 'compat = "hobbylm"\nranks = 3\ntail = "drop"',
    "crop ": 'oversize = "wait"\nbuffer = 5\ncompat = "nanochat"\nranks = 2\ngroup = 4',
    "bos-aligned ": 'longest = 9\ncompat = "modded-nanogpt"\nranks = 2',
}
"""Options; what another program's ranks have has a blank in its name."""
BATCH, STEPS = 24, 4


def run_file(folder: Path, policy: str) -> Path:
    if not (folder / "web.idx").exists():
        write(folder / "web", lengths_of(1, 200))
    path = folder / "run.toml"
    path.write_text(
        '[[corpus]]\nname = "web"\npath = "web.idx"\n'
        f'[order]\nkind = "packed"\nrow_tokens = 16\npolicy = "{policy.strip()}"\nepochs = 0\nseed = 2\n{POLICIES[policy]}\n'
        f'[row_policy]\nkind = "documents"\nends = "next"\n[schedule]\nbatch = {BATCH}\n'
    )
    return path


def rows(path: Path, world: int, steps: int = STEPS, state: object = None) -> list[np.ndarray]:
    """Arrays of all ranks' rows of some steps, in the order of samples."""
    parts = []
    for rank in range(world):
        with tokenreel.open_feed(path, world=world, rank=rank, steps=steps, state=state) as feed:
            parts += [(batch.samples, batch.arrays) for batch in feed]
    samples = np.concatenate([samples for samples, _ in parts])
    order = np.argsort(samples, kind="stable")
    return [samples[order], *(np.concatenate([a[name] for _, a in parts])[order] for name in parts[0][1])]


@pytest.mark.filterwarnings("ignore:PCK024:UserWarning")
@pytest.mark.parametrize("policy", POLICIES)
def test_rows_are_the_same_for_any_ranks(policy: str, tmp_path: Path) -> None:
    path = run_file(tmp_path, policy)
    whole = rows(path, 1)
    assert whole[0].tolist() == list(range(BATCH * STEPS))
    for world in (2, 3, 8):
        assert all(np.array_equal(a, b) for a, b in zip(rows(path, world), whole, strict=True))
    with tokenreel.open_feed(path, steps=1) as feed:
        next(feed)
        state = json.loads(json.dumps(feed.state_dict()))
    after = rows(path, 3, STEPS, state)
    assert all(np.array_equal(a, b[BATCH:]) for a, b in zip(after, whole, strict=True))
