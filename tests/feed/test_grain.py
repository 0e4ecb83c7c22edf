"""The Grain rim: samples as a data source for Grain's own pipeline, batches with a state that is ours, elastic hosts."""

from __future__ import annotations

import json
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.feed.jobs import made_order, write_data
from tokenreel.config.run import load_run
from tokenreel.errors import UsageError
from tokenreel.feed.importing import GrainCount, import_grain, read_grain
from tokenreel.feed.opening import open_feed

grain = pytest.importorskip("grain")

from tokenreel.feed.grain import SampleSource, feed_dataset, sample_dataset  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("grain"))


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    text = '[[corpus]]\nname = "web"\npath = "web"\n[order]\nkind = "windows"\nrow_tokens = 8\n[schedule]\nbatch = 6\n'
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


@pytest.fixture(scope="module")
def whole(run: Path) -> list[np.ndarray]:
    with open_feed(run) as feed:
        return [batch["labels"] for batch in feed]


def labels(elements: Any) -> list[list[list[int]]]:
    return [np.asarray(element["labels"]).tolist() for element in elements]


def test_a_source_is_what_grain_asks_for(run: Path, whole: list[np.ndarray]) -> None:
    source = SampleSource(run)
    rows = np.concatenate(whole)
    assert len(source) == len(rows)
    assert np.array_equal(source[5]["labels"], rows[5])
    assert source[5]["sample"] == 5
    assert repr(ForkingPickler.loads(ForkingPickler.dumps(source))) == repr(source)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    with pytest.raises(IndexError):
        _ = source[len(rows)]


def test_grain_s_own_pipeline_reads_the_order(run: Path, whole: list[np.ndarray]) -> None:
    dataset = sample_dataset(run).batch(6)
    full = [batch for batch in whole if len(batch) == 6]
    assert labels(dataset[k] for k in range(len(full))) == labels([{"labels": one} for one in full])
    loader = dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=3))
    assert labels(loader)[: len(full)] == labels([{"labels": one} for one in full])


def test_grain_s_elastic_iterator_goes_on_with_other_hosts(run: Path, whole: list[np.ndarray]) -> None:
    from grain.experimental import ElasticIterator

    rows = np.concatenate(whole)

    def iterator(hosts: int, host: int) -> Any:
        return ElasticIterator(sample_dataset(run), 6, grain.sharding.ShardOptions(host, hosts))

    two = [iterator(2, host) for host in range(2)]
    first = [next(one) for one in two]
    state = two[0].get_state()
    assert np.array_equal(np.stack([one["labels"] for one in first], axis=1).reshape(6, -1), rows[:6])
    three = [iterator(3, host) for host in range(3)]
    for one in three:
        one.set_state(state)
    after = np.stack([next(one)["labels"] for one in three], axis=1).reshape(6, -1)
    assert np.array_equal(after, rows[6:12])


@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_checkpoint_of_grain_s_own_goes_on_here(
    hosts: int, steps: int, run: Path, whole: list[np.ndarray], tmp_path: Path
) -> None:
    """Hosts that take every n-th sample, as MaxText has Grain deal them, and the files that its checkpoints hold."""
    iterators = []
    for host in range(hosts):
        mine = sample_dataset(run)[host::hosts]
        options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=8)
        iterators.append(iter(mine.to_iter_dataset(options).batch(6 // hosts)))
    for _ in range(steps):
        for one in iterators:
            next(one)
    for host, one in enumerate(iterators):
        (tmp_path / f"process_{host}-of-{hosts}.json").write_text(json.dumps(one.get_state()))
    count = read_grain(tmp_path)
    assert count == GrainCount(6 * steps, hosts)
    with open_feed(run) as feed:
        state = import_grain(load_run(run), feed.order, count)
    assert (state.cursor.position, state.cursor.step) == (6 * steps, steps)
    theirs = [next(one)["labels"] for one in iterators]
    for host in range(hosts):
        with open_feed(run, state=state, rank=host, world=hosts, placement="strided") as feed:
            assert np.array_equal(next(feed)["labels"], theirs[host])
    with open_feed(run, state=state, batch=4) as feed:
        assert np.array_equal(next(feed)["labels"], np.concatenate(whole)[6 * steps : 6 * steps + 4])


def test_batches_with_a_state_of_ours(run: Path, whole: list[np.ndarray]) -> None:
    dataset = feed_dataset(run)
    assert labels(dataset) == labels([{"labels": one} for one in whole])
    iterator = iter(dataset)
    with open_feed(run) as feed:
        assert iterator.get_state() == feed.state_dict()
        for _ in range(2):
            batch, ours = next(iterator), next(feed)
            assert iterator.get_state() == feed.state_dict()
            assert batch["samples"].tolist() == ours.samples.tolist()
            assert (batch["step"], batch["position"]) == (ours.step, ours.position)
        state = json.loads(json.dumps(iterator.get_state()))
    iterator.close()
    for world in (1, 2, 3):
        parts = []
        for rank in range(world):
            other = iter(feed_dataset(run, rank=rank, world=world))
            other.set_state(state)
            assert other.get_state() == state
            parts.append(next(other)["labels"])
            other.close()
        assert np.array_equal(np.concatenate(parts), whole[2])


def test_grain_s_transformations_go_on_top(run: Path, whole: list[np.ndarray]) -> None:
    dataset = feed_dataset(run).map(lambda batch: {"labels": batch["labels"] + 1})
    iterator = iter(dataset)
    next(iterator)
    state = iterator.get_state()
    other = iter(dataset)
    other.set_state(state)
    assert np.array_equal(next(other)["labels"], whole[1] + 1)


def test_slices_are_every_nth_step(run: Path, whole: list[np.ndarray]) -> None:
    parts = []
    for worker in range(3):
        dataset = feed_dataset(run)
        dataset.set_slice(slice(worker, None, 3))
        iterator = iter(dataset)
        found = [next(iterator)]
        state = iterator.get_state()
        rest = labels(iterator)
        again = iter(dataset)
        again.set_state(state)
        assert labels(again) == rest
        parts.append(labels(found) + rest)
        # A feed's own state is where all workers begin.
        again.set_state(iter(feed_dataset(run)).get_state())
        assert labels(again) == parts[-1]
    assert [parts[k % 3][k // 3] for k in range(len(whole))] == labels([{"labels": one} for one in whole])
    with pytest.raises(UsageError, match="USE003"):
        iter(feed_dataset(run)).set_state(state)
    with pytest.raises(UsageError, match="USE003"):
        feed_dataset(run).set_slice(slice(0, None, 2), sequential_slice=True)


@pytest.mark.slow
def test_workers_of_grain_keep_the_order_and_their_state(run: Path, whole: list[np.ndarray]) -> None:
    from absl import flags

    flags.FLAGS.mark_as_parsed()
    options = grain.MultiprocessingOptions(num_workers=2)
    expected = labels([{"labels": one} for one in whole])
    for dataset in (feed_dataset(run), sample_dataset(run).to_iter_dataset().batch(6)):
        iterator = iter(dataset.mp_prefetch(options))
        first = labels([next(iterator)])
        state = iterator.get_state()
        rest = labels(iterator)
        iterator.close()
        if isinstance(dataset, type(feed_dataset(run))):
            assert first + rest == expected
        other = iter(dataset.mp_prefetch(options))
        other.set_state(state)
        assert labels(other) == rest
        other.close()


def test_an_order_without_end_is_no_source(folder: Path) -> None:
    from tokenreel.config.run import parse_run

    (segment,) = parse_run(
        {
            "corpus": [{"name": "web", "path": str(folder / "web")}],
            "order": {"kind": "windows", "row_tokens": 8, "epochs": 0},
        }
    )
    with pytest.raises(UsageError, match="USE003"):
        SampleSource(segment.run)
    assert len(made_order(folder, "windows").order.corpora) == 1
