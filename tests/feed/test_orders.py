"""Every kind of order that run files have, fed: the same rows for any ranks, and states that go on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tokenreel
from tests.feed.feeds import corpus_of, global_rows, row_ids
from tokenreel.config.run import load_run
from tokenreel.errors import StateError
from tokenreel.feed.going_on import rekeyed
from tokenreel.index.assemble import Assembled, assemble
from tokenreel.index.ready import make_ready

TWO = '[{corpus = "a", weight = 0.7}, {corpus = "b", weight = 0.3}]'
ORDERS = {
    "stream": 'kind = "stream"\ncorpus = "a"',
    "windows": 'kind = "windows"\ncorpus = "a"\nio = {block = 4, together = 2}',
    "packed": 'kind = "packed"\ncorpus = "a"\npolicy = "bestfit"\noversize = "split"',
    "megatron": 'kind = "megatron"\ncorpus = "a"\nsamples = 120',
    "megatron-blend": f'kind = "megatron-blend"\nsamples = 60\nmember = {TWO}',
    "maxtext-npy": 'kind = "maxtext-npy"\ncorpus = ["a", "b"]\nsamples = 60',
    "maxtext-npy-blend": f'kind = "maxtext-npy-blend"\nsamples = 40\nmember = {TWO}',
    "maxtext-mmap": 'kind = "maxtext-mmap"\ncorpus = ["a", "b"]\nepochs = 2',
    "maxtext-mmap-mix": f'kind = "maxtext-mmap-mix"\nhosts = 2\nmember = {TWO}',
    "llmc-stream": 'kind = "llmc-stream"\ncorpus = "a"\nbatch = 4',
    "hobbylm-stream": 'kind = "hobbylm-stream"\ncorpus = "a"\nbatch = 4',
    "nanogpt": 'kind = "nanogpt"\ncorpus = "a"\nbatch = 4\nsteps = 20',
    "mix": 'kind = "mix"\nsamples = 60\nROWS[[order.component]]\nname = "x"\nweight = 0.5\n'
    'order = {kind = "stream", corpus = "a", row_tokens = 4}\n[[order.component]]\nname = "y"\nweight = 0.5\n'
    'at_end = "repeat"\norder = {kind = "windows", corpus = "b", row_tokens = 4}',
}
CORPORA = 'corpus = [{name = "a", path = "a"}, {name = "b", path = "b"}]\nschedule = {batch = 4}\n[order]\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    corpus_of(made / "a", 400)
    corpus_of(made / "b", 300, first=1000)
    for name, order in ORDERS.items():
        text = order.replace("ROWS", "") if "ROWS" in order else f"row_tokens = 4\n{order}"
        (made / f"{name}.toml").write_text(CORPORA + text + "\n")
    return made


def assembled(folder: Path, name: str) -> Assembled:
    run = load_run(folder / f"{name}.toml")[0].run
    return make_ready(run, assemble(run, folder), folder)[0]


@pytest.mark.parametrize("name", ORDERS)
def test_rows_are_the_same_for_any_ranks_across_a_stop(folder: Path, name: str) -> None:
    path = folder / f"{name}.toml"
    with tokenreel.open_feed(path, steps=9, batch=5, prefetch=0) as feed:
        whole = [row for batch in feed for row in row_ids(batch)]
        length = feed.order.length
    assert len(whole) == min(45, 45 if length is None else length)
    with tokenreel.open_feed(path, steps=3) as feed:
        rows = [row for batch in feed for row in row_ids(batch)]
        state = json.loads(json.dumps(feed.state_dict()))
    feeds = [
        tokenreel.open_feed(path, state=state, batch=6, world=3, rank=rank, placement="strided", prefetch=1)
        for rank in range(3)
    ]
    assert all(feed.state_dict() == state for feed in feeds)
    for _ in range(4):
        rows += global_rows([next(feed) for feed in feeds])
    assert rows == whole[: len(rows)]
    for feed in feeds:
        feed.close()
    with tokenreel.open_feed(assembled(folder, name), batch=4, state=state) as feed:
        assert next(feed).position == 12


@pytest.mark.parametrize("name", ORDERS)
def test_another_corpus_is_noticed_in_every_order(folder: Path, tmp_path: Path, name: str) -> None:
    """One document more at the corpus's end: a state is refused, an order over the old one too."""
    made = assembled(folder, name)
    with tokenreel.open_feed(made, batch=8) as feed:
        next(feed)
        state = feed.state_dict()
    corpus_of(tmp_path / "a", 405)
    corpus_of(tmp_path / "b", 300, first=1000)
    (tmp_path / "run.toml").write_text((folder / f"{name}.toml").read_text())
    with pytest.raises(StateError) as caught:
        tokenreel.open_feed(tmp_path / "run.toml", state=state)
    assert caught.value.code in ("STA004", "STA005")
    other = assembled(tmp_path, "run")
    with pytest.raises(StateError, match="STA005"):
        tokenreel.open_feed(replace(made, corpora=other.corpora), batch=8)


@pytest.mark.parametrize("name", ORDERS)
def test_keys_of_corpora_are_replaced_in_every_order(folder: Path, name: str) -> None:
    """So that states compare by the kind of key that both have."""
    order: Any = assembled(folder, name).order
    changed = rekeyed(order, {key: replace(key, digest="f" * 64) for key in order.corpora})
    assert {key.digest for key in changed.corpora} == {"f" * 64}
    assert changed.fingerprint != order.fingerprint
    assert changed.fingerprint_until(8) != order.fingerprint_until(8)
