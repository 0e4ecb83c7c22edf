"""The torch rim: order of batches and exact state with any number of workers, map-style, stateful loaders, processes."""

from __future__ import annotations

import json
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.feed.jobs import ROW, made_order, write_data
from tokenreel.errors import StateError, UsageError
from tokenreel.feed.context_parallel import columns
from tokenreel.feed.ledger_lines import read_ledger
from tokenreel.feed.opening import open_feed

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from tokenreel.feed.torch import (  # noqa: E402
    FeedDataset,
    SampleDataset,
    StepSampler,
    TorchBatch,
    feed_state,
    open_loader,
)

WORKERS = [0, 1, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("torch"))


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    text = """
row_policy = "documents"
[[corpus]]
name = "web"
path = "web"
[order]
kind = "windows"
row_tokens = 8
[schedule]
batch = 4
ramp = [{step = 3, batch = 6}]
"""
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


@pytest.fixture(scope="module")
def whole(run: Path) -> list[np.ndarray]:
    with open_feed(run, dtype="int64") as feed:
        return [batch["labels"] for batch in feed]


def same(batches: Any, expected: list[np.ndarray]) -> bool:
    found = [batch["labels"].numpy() for batch in batches]
    return len(found) == len(expected) and all(map(np.array_equal, found, expected))


@pytest.mark.parametrize("workers", WORKERS)
def test_batches_come_in_order_of_steps(workers: int, run: Path, whole: list[np.ndarray]) -> None:
    with open_loader(run, workers=workers) as loader:
        batches = list(loader)
        assert loader.feed.step == len(whole)
    assert same(batches, whole)
    first = batches[0]
    assert isinstance(first, TorchBatch)
    assert [batch.step for batch in batches] == list(range(len(whole)))
    assert batches[4].position == 18
    assert batches[4].samples.tolist() == list(range(18, 24))
    assert {str(first[name].dtype) for name in ("input_ids", "labels", "position_ids")} == {"torch.int64"}
    assert (first.sources.tolist(), len(first), first.count) == ([0] * 4, 4, 4)
    assert first.to("cpu").arrays.keys() == first.arrays.keys()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_state_describes_the_last_batch_returned(workers: int, run: Path, whole: list[np.ndarray]) -> None:
    with open_loader(run, workers=workers, prefetch=64) as loader, open_feed(run) as feed:
        assert loader.state_dict() == feed.state_dict()
        for batch in loader:
            next(feed)
            assert loader.state_dict() == feed.state_dict()
            if batch.step == 2:
                break
        state = json.loads(json.dumps(loader.state_dict()))
        # After a break the same loader goes on with the batch that follows.
        assert same([next(iter(loader))], whole[3:4])
    for others in WORKERS:
        with open_loader(run, workers=others, state=state) as again:
            assert again.state_dict() == state
            assert same(again, whole[3:])


def test_a_state_loaded_later_moves_workers_too(run: Path, whole: list[np.ndarray]) -> None:
    with open_loader(run, workers=2) as loader:
        start = loader.state_dict()
        assert same(loader, whole)
        loader.load_state_dict(start)
        assert same(loader, whole)
        with pytest.raises(StateError, match="STA001"):
            loader.load_state_dict({"step": 3})


@pytest.mark.parametrize("workers", [0, 3])
def test_ranks_cut_each_batch(workers: int, run: Path, whole: list[np.ndarray]) -> None:
    for rank in (0, 1):
        with open_loader(run, workers=workers, rank=rank, world=2) as loader:
            halves = [np.array_split(labels, 2)[rank] for labels in whole]
            assert same(loader, halves)


def test_a_worker_that_meets_an_error_hands_it_over(folder: Path) -> None:
    with open_loader(made_order(folder, "windows"), batch=4, workers=1, vocab=5) as loader:
        with pytest.raises(Exception, match="TOK"):
            list(loader)
    with pytest.raises(UsageError, match="STA011"):
        open_loader(made_order(folder, "windows"), batch=1, world=2, rank=0, workers=2)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_ledger_has_one_writer(workers: int, run: Path, tmp_path: Path) -> None:
    with open_loader(run, workers=workers, ledger=tmp_path / "ledger") as loader:
        for batch in loader:
            if batch.step == 4:
                break
        loader.state_dict()
    lines = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert [line["step"] for line in lines if "step" in line][-5:] == [0, 1, 2, 3, 4]
    assert callable(read_ledger)


def test_a_dataset_for_a_loader_of_one_s_own(run: Path, whole: list[np.ndarray]) -> None:
    loader = DataLoader(FeedDataset(run), batch_size=None, num_workers=3)
    assert same(loader, whole)
    spawned = ForkingPickler.loads(ForkingPickler.dumps(FeedDataset(run, rank=1, world=2)))
    assert same(spawned, [np.array_split(labels, 2)[1] for labels in whole])


def test_a_dataset_that_travels_takes_its_place_along(run: Path, whole: list[np.ndarray]) -> None:
    dataset = FeedDataset(run)
    iterator = iter(dataset)
    next(iterator)
    assert same(ForkingPickler.loads(ForkingPickler.dumps(dataset)), whole[1:])


# ---- StatefulDataLoader ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("stop", [0, 4])
def test_a_stateful_loader_goes_on_with_its_own_state(
    workers: int, stop: int, run: Path, whole: list[np.ndarray]
) -> None:
    loader = StatefulDataLoader(FeedDataset(run), batch_size=None, num_workers=workers)
    iterator = iter(loader)
    for _ in range(stop):
        next(iterator)
    state = loader.state_dict()
    del iterator
    other = StatefulDataLoader(FeedDataset(run), batch_size=None, num_workers=workers)
    other.load_state_dict(state)
    assert same(other, whole[stop:])
    # And ours, taken out of it, in any loader.
    ours = feed_state(state)
    assert ours["step"] == stop
    with open_loader(run, workers=2, state=ours) as again:
        assert same(again, whole[stop:])


def test_a_state_that_is_older_than_the_batch_is_refused(run: Path) -> None:
    loader = StatefulDataLoader(FeedDataset(run), batch_size=None, num_workers=2, snapshot_every_n_steps=3)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(UsageError, match="USE003"):
        feed_state(loader.state_dict())
    with pytest.raises(UsageError, match="USE003"):
        feed_state({"a": {"b": 1}})


# ---- map-style -------------------------------------------------------------------------------------------------------


def test_samples_by_number(run: Path, folder: Path, whole: list[np.ndarray]) -> None:
    dataset = SampleDataset(run)
    labels = np.concatenate(whole)
    assert len(dataset) == len(labels)
    assert np.array_equal(dataset[7]["labels"], labels[7])
    assert np.array_equal(dataset[-1]["labels"], labels[-1])
    assert int(dataset[-1]["sample"]) == len(labels) - 1
    assert sorted(dataset[0]) == ["input_ids", "labels", "loss_mask", "position_ids", "sample", "segment_ids"]
    for outside in (len(labels), -len(labels) - 1):
        with pytest.raises(IndexError):
            _ = dataset[outside]
    with pytest.raises(UsageError, match="USE003"):
        len(
            SampleDataset(made_order(folder, "stream"), batch=1, rows={"kind": "documents", "cu_seqlens": "batch"})
        ) and (
            SampleDataset(made_order(folder, "stream"), batch=1, rows={"kind": "documents", "cu_seqlens": "batch"})[3]
        )


@pytest.mark.parametrize("workers", [0, 3])
def test_steps_from_a_sampler(workers: int, run: Path, whole: list[np.ndarray]) -> None:
    dataset = SampleDataset(run, rank=1, world=2)
    loader = DataLoader(dataset, batch_sampler=StepSampler(dataset), num_workers=workers)
    assert same(loader, [np.array_split(labels, 2)[1] for labels in whole])


def test_an_order_without_end_has_no_length(folder: Path) -> None:
    from tokenreel.config.run import parse_run

    (segment,) = parse_run(
        {
            "corpus": [{"name": "web", "path": str(folder / "web")}],
            "order": {"kind": "windows", "row_tokens": ROW, "epochs": 0},
        }
    )
    with pytest.raises(UsageError, match="USE003"):
        len(SampleDataset(segment.run, batch=2))


# ---- context parallel, memory, masks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_context_parallel_ranks_cut_columns(workers: int, run: Path, whole: list[np.ndarray]) -> None:
    with open_loader(run, workers=workers, cp_rank=1, cp_size=2) as loader:
        assert same(loader, [labels[:, columns(ROW, 1, 2)] for labels in whole])


def test_pinned_memory_is_asked_for_only_where_there_is_a_gpu(run: Path, whole: list[np.ndarray]) -> None:
    with open_loader(run, pin_memory=True) as loader:
        assert same(loader, whole)


def test_rows_are_gathered_straight_into_pinned_memory(
    run: Path, whole: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if there were a GPU: its allocator is asked for, and what it gives is what batches are made of.
    given: list[int] = []
    empty = torch.empty

    def pinned(*args: Any, pin_memory: bool = False, **options: Any) -> Any:
        made = empty(*args, **options)
        if pin_memory:
            given.append(made.data_ptr())
        return made

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", pinned)
    with open_loader(run, pin_memory=True) as loader:
        batches = list(loader)
    assert same(batches, whole)
    assert {tensor.data_ptr() for batch in batches for tensor in batch.arrays.values()} <= set(given)


class Attends(torch.nn.Module):
    """One layer of attention, with or without the mask of documents."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.masked = masked
        self.embed = torch.nn.Embedding(30_000, 8)

    def forward(self, arrays: dict[str, Any]) -> Any:
        x = self.embed(torch.from_numpy(arrays["input_ids"]).long())
        segments = torch.from_numpy(arrays["segment_ids"])
        may = torch.ones(ROW, ROW, dtype=torch.bool).tril()
        if self.masked:
            may = may & (segments[:, :, None] == segments[:, None, :])
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=may)


def test_the_probe_asks_a_torch_model(run: Path) -> None:
    from tokenreel.testing import mask_probe

    with open_feed(run) as feed:
        arrays = next(feed).arrays
    assert (arrays["segment_ids"].max(axis=1) > 1).any()
    assert mask_probe(Attends(masked=True), arrays, vocab=30_000, tolerance=1e-5).holds
    assert not mask_probe(Attends(masked=False), arrays, vocab=30_000, tolerance=1e-5).holds


# ---- processes -------------------------------------------------------------------------------------------------------


def ranked(rank: int, world: int, meeting: str, run: str, out: str) -> None:
    """One process of a group: ranks are found, not given."""
    group = torch.distributed
    group.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    with open_loader(run, workers=rank) as loader:
        rows = [batch["labels"].tolist() for batch in loader]
    Path(f"{out}-{rank}").write_text(json.dumps(rows))
    group.destroy_process_group()


def test_ranks_of_a_process_group(warm: Any, run: Path, whole: list[np.ndarray], tmp_path: Path) -> None:
    said = [2, str(tmp_path / "meeting"), str(run), str(tmp_path / "rows")]
    outputs = [tmp_path / f"output-{rank}" for rank in (0, 1)]
    children = [warm.start("tests.feed.test_torch:ranked", rank, *said, output=outputs[rank]) for rank in (0, 1)]
    for child, output in zip(children, outputs, strict=True):
        ended = warm.wait(child, output=output)
        assert ended.status == 0, ended.output
    parts = [json.loads((tmp_path / f"rows-{rank}").read_text()) for rank in (0, 1)]
    assert [a + b for a, b in zip(*parts, strict=True)] == [labels.tolist() for labels in whole]
