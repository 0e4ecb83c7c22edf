"""Every order and every rim over tiny corpora: what the proofs of resuming, in process and by SIGKILL, go through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.config.run import parse_run
from tokenreel.feed.opening import open_feed
from tokenreel.index.assemble import Assembled, assemble
from tokenreel.index.files import put
from tokenreel.index.maxtext import convert
from tokenreel.testing import Setting, write_corpus
from tokenreel.testing.exactly_once import labels_of

ROW = 8
EOD = 2
SAMPLES = 30


def order_tables(samples: int) -> dict[str, dict[str, Any]]:
    """Run files' [order] tables of about `samples` samples each, over the corpora ``web`` and ``code`` of `write_data`."""
    members = [{"corpus": "web", "weight": 0.7}, {"corpus": "code", "weight": 0.3}]
    windows = {"kind": "windows", "corpus": "web", "row_tokens": ROW, "epochs": 2}
    stream = {"kind": "stream", "corpus": "code", "row_tokens": ROW}
    half = samples // 2
    return {
        "stream": {**stream, "corpus": "web"},
        "windows": {**windows, "epochs": 1, "seed": 3},
        "windows-io": {**windows, "io": {"block": 2, "together": 3}},
        "packed": {"kind": "packed", "corpus": "web", "row_tokens": ROW, "policy": "bestfit", "oversize": "split"},
        "mix": {
            "kind": "mix",
            "samples": samples,
            "block": 8,
            "component": [
                {"name": "a", "order": windows, "at_end": "repeat"},
                {"name": "b", "order": stream, "at_end": "repeat"},
            ],
            "phase": [{"sample": 0, "weights": {"a": 0.8, "b": 0.2}}, {"sample": half, "weights": {"a": 0.1, "b": 0.9}}],
        },
        "megatron": {"kind": "megatron", "corpus": "web", "row_tokens": ROW, "samples": samples},
        "megatron-blend": {"kind": "megatron-blend", "member": members, "row_tokens": ROW, "samples": samples},
        "maxtext-npy": {"kind": "maxtext-npy", "corpus": "web", "row_tokens": ROW, "samples": samples},
        "maxtext-npy-blend": {"kind": "maxtext-npy-blend", "member": members, "row_tokens": ROW, "samples": samples},
        "maxtext-mmap": {"kind": "maxtext-mmap", "corpus": "web", "row_tokens": ROW, "epochs": 2},
        "maxtext-mmap-mix": {"kind": "maxtext-mmap-mix", "member": members, "row_tokens": ROW},
        "levanter": {
            "kind": "levanter", "row_tokens": ROW, "block": 4, "stop": "all_exhausted",
            "component": [{"name": "a", "corpus": "web", "weight": 0.7}, {"name": "b", "corpus": "code", "weight": 0.3}],
            "shuffle": {"io_block": 2, "window_blocks": 3},
        },
        "llmc-stream": {"kind": "llmc-stream", "corpus": "web", "row_tokens": ROW, "batch": 2, "steps": half, "shuffle": True},
        "hobbylm-stream": {
            "kind": "hobbylm-stream", "corpus": "web", "row_tokens": ROW, "batch": 1, "steps": samples, "walk": "shuffled",
        },
        "megatron-files": {
            "kind": "megatron-files", "corpus": "code", "folder": "index", "row_tokens": ROW, "unit": "document",
        },
        "nanogpt": {"kind": "nanogpt", "corpus": "web", "row_tokens": ROW, "batch": 2, "steps": half},
    }  # fmt: skip


ORDERS = tuple(order_tables(SAMPLES))


def write_data(folder: Path, samples: int = SAMPLES, seed: int = 0) -> Path:
    """Write ``web`` (two shards) and ``code``: random ids, EOD at every end, about `samples` rows and half as many."""
    random = np.random.default_rng(seed)
    for name, tokens, shards in (("web", samples * ROW + 1, 2), ("code", samples * ROW // 2 + 1, 1)):
        documents, left = [], tokens
        while left:
            length = min(left, int(random.integers(1, 16)))
            ids = random.integers(3, 30_000, size=length)
            ids[-1] = EOD
            documents.append(ids)
            left -= length
        write_corpus(folder / name, documents, shards=min(shards, len(documents)))
    put(folder / "index", convert([str(folder / "code")], ROW, num_samples=samples))
    return folder


def made_order(folder: Path, name: str, samples: int = SAMPLES) -> Assembled:
    """Return an order over the data in `folder`, prepared."""
    corpora = [{"name": "web", "path": "web"}, {"name": "code", "path": "code.idx"}]
    if not (folder / "web").is_dir():
        corpora[0]["path"] = "web.idx"
    (segment,) = parse_run({"corpus": corpora, "order": order_tables(samples)[name]})
    made = assemble(segment.run, folder)
    return replace(made, order=made.order.prepare())


def policy_of(name: str) -> dict[str, Any]:
    """A row policy for an order: each gets one of those that fit."""
    if name.startswith("maxtext-mmap"):
        return {"kind": "maxtext", "eod": EOD, "direct": True}
    if name.startswith("maxtext"):
        return {"kind": "maxtext", "eod": EOD, "packing_max_segments_per_sample": 0}
    if name.startswith("megatron"):
        return {"kind": "megatron", "eod": EOD, "reset_position_ids": True}
    return {"kind": "plain" if name in ("nanogpt", "llmc-stream") else "documents"}


def expected_rows(made: Assembled, policy: dict[str, Any]) -> list[tuple[int, bytes]]:
    """Rows of one pass: the sample, and its labels gathered one sample at a time, without prefetch or ranks."""
    with open_feed(made, rows=policy, batch=1, prefetch=0) as feed:
        rows = [(int(batch.samples[0]), labels_of(batch)[0].astype(np.int64).tobytes()) for batch in feed]
    assert [number for number, _ in rows] == list(range(len(rows)))
    return rows


def row_names(batch: Any) -> list[tuple[int, bytes]]:
    """What `expected_rows` calls the rows of a batch of any rim."""
    samples = batch["samples"] if isinstance(batch, dict) else batch.samples
    labels = np.asarray(labels_of(batch)).astype(np.int64)
    return [(int(k), row.tobytes()) for k, row in zip(samples, labels, strict=True)]


# ---- rims: (order, policy, setting, rank, state, prefetch) -> a loader with state_dict() ----------------------------


def as_feed(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    return open_feed(
        made, rows=rows, batch=setting.batch, rank=rank, world=setting.world, state=state, prefetch=prefetch
    )


def as_strided(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    return open_feed(
        made, rows=rows, batch=setting.batch, rank=rank, world=setting.world, state=state, prefetch=prefetch,
        placement="strided",
    )  # fmt: skip


def as_torch(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    from tokenreel.feed.torch import open_loader

    return open_loader(
        made, rows=rows, batch=setting.batch, rank=rank, world=setting.world, state=state, prefetch=prefetch,
        workers=setting.workers,
    )  # fmt: skip


class Counted:
    """A loader of torch's own over one of our data sets, and our state of the last batch it returned."""

    def __init__(self, loader: Any, dataset: Any, state: Callable[[], Any]) -> None:
        self.loader, self.dataset, self.state_dict = loader, dataset, state
        self.close = dataset.opened.feed.close

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


def as_torch_samples(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    from torch.utils.data import DataLoader

    from tokenreel.feed.torch import SampleDataset, StepSampler

    dataset = SampleDataset(made, rows=rows, batch=setting.batch, rank=rank, world=setting.world, state=state)
    feed = dataset.opened.feed
    loader = DataLoader(dataset, batch_sampler=StepSampler(dataset), num_workers=setting.workers)

    class Steps(Counted):
        def __iter__(self) -> Iterator[Any]:
            batches = iter(self.loader)
            while not feed.steps.over(feed.step):
                ((begin, count),) = feed.steps.ranges(feed.step, 1)
                mine = len(feed.share.of(begin, count))
                batch = next(batches) if mine else {"labels": np.empty((0, ROW)), "sample": []}
                feed.took(Took(feed.step, begin, count))
                yield {**batch, "samples": batch["sample"]}

    return Steps(loader, dataset, feed.state_dict)


class Took:
    def __init__(self, step: int, position: int, count: int) -> None:
        self.step, self.position, self.count = step, position, count


def as_stateful(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    from tokenreel.feed.torch import FeedDataset, feed_state

    dataset = FeedDataset(
        made, rows=rows, batch=setting.batch, rank=rank, world=setting.world, state=state, prefetch=prefetch
    )
    loader = StatefulDataLoader(dataset, batch_size=None, num_workers=setting.workers)
    begun: list[bool] = []

    class Begun(Counted):
        def __iter__(self) -> Iterator[Any]:
            begun.append(True)
            return iter(self.loader)

    return Begun(
        loader, dataset, lambda: feed_state(loader.state_dict()) if begun else dataset.opened.feed.state_dict()
    )


def as_jax(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    import jax

    from tokenreel.feed.jax import open_jax_feed

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    return open_jax_feed(made, sharding, rows=rows, batch=setting.batch, state=state, prefetch=prefetch, last="short")


def as_grain(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    from tokenreel.feed.grain import feed_dataset

    dataset = feed_dataset(made, rows=rows, batch=setting.batch, rank=rank, world=setting.world, prefetch=prefetch)
    iterator = iter(dataset)
    if state is not None:
        iterator.set_state(state)

    class Iterated:
        def __iter__(self) -> Iterator[Any]:
            return iterator

        def state_dict(self) -> Any:
            return iterator.get_state()

        def close(self) -> None:
            iterator.close()

    return Iterated()


def as_megatron(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    from tokenreel.feed.megatron import micro_batches

    feed = open_feed(
        made, rows=rows, batch=setting.batch, rank=rank, world=setting.world, state=state, prefetch=prefetch,
        placement="megatron",
    )  # fmt: skip

    class Joined:
        """Micro-batches of one row, put together to a step again."""

        state_dict, close = feed.state_dict, feed.close

        def __iter__(self) -> Iterator[Any]:
            micro = micro_batches(feed, 1)
            while True:
                step = feed.step
                rows = [one for one in [next(micro, None)] if one is not None]
                if not rows:
                    return
                while len(rows) < rows_of(feed, step):
                    rows.append(next(micro))
                arrays = {name: np.concatenate([np.asarray(one[name]) for one in rows]) for name in rows[0]}
                ((begin, count),) = feed.steps.ranges(step, 1)
                yield {**arrays, "samples": feed.share.of(begin, count)}

    return Joined()


def rows_of(feed: Any, step: int) -> int:
    ((begin, count),) = feed.steps.ranges(step, 1)
    return len(feed.share.of(begin, count))


RIMS: dict[str, Callable[..., Any]] = {
    "feed": as_feed,
    "strided": as_strided,
    "torch": as_torch,
    "torch-samples": as_torch_samples,
    "stateful": as_stateful,
    "jax": as_jax,
    "grain": as_grain,
    "megatron": as_megatron,
}
WITH_WORKERS = ("torch", "torch-samples", "stateful")


def fits(rim: str, order: str, setting: Setting) -> bool:
    """Whether a rim can take an order in a setting."""
    if rim == "jax" and setting.world > 1:
        return False
    return bool(setting.workers == 0 or rim in WITH_WORKERS)


def gather_of(rim: str) -> str:
    return "strided" if rim == "strided" else "contiguous"
