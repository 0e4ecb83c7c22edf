"""Every rim over the orders of `jobs`, each as a loader that can be stopped and gone on with in any setting.

A rim is a function (order, policy, setting, rank, state, prefetch) -> a loader with ``state_dict()`` and ``close()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.feed.jobs import EOD, ROW
from tokenreel.feed.opening import open_feed
from tokenreel.testing import Setting


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


def as_grain_map(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    """Samples by number through Grain's own reading threads and batching; each rank takes every world-th."""
    import grain

    from tokenreel.feed.grain import sample_dataset

    feed = open_feed(
        made, rows=rows, batch=setting.batch, rank=rank, world=setting.world, state=state, prefetch=0,
        placement="strided",
    )  # fmt: skip
    samples = sample_dataset(made, rows=rows)
    mine = samples[feed.position + rank :: setting.world]
    options = grain.ReadOptions(num_threads=2 if prefetch else 0, prefetch_buffer_size=max(1, prefetch))
    batches = mine.to_iter_dataset(options).batch(setting.batch // setting.world)

    class Batches:
        """Batches of Grain's pipeline, counted in the process that takes them."""

        state_dict = feed.state_dict

        def __iter__(self) -> Iterator[Any]:
            made = iter(batches)
            while not feed.steps.over(feed.step):
                ((begin, count),) = feed.steps.ranges(feed.step, 1)
                numbers = feed.share.of(begin, count)
                batch = next(made) if len(numbers) else {"labels": np.empty((0, ROW)), "sample": []}
                feed.took(Took(feed.step, begin, count))
                yield {**batch, "samples": batch["sample"]}

        def close(self) -> None:
            feed.close()

    return Batches()


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


def as_megatron_map(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    """A data set of Megatron's dicts under its own sampler: all that is kept is `consumed_train_samples`."""
    from torch.utils.data import DataLoader

    from tokenreel.feed.megatron import MegatronDataset
    from tokenreel.order.megatron_samplers import single
    from tokenreel.pack.policy import row_policy

    dataset = MegatronDataset(made.order, made.corpora, row_policy(rows))
    micro, total = setting.batch // setting.world, len(dataset)

    class Consumed:
        """What Megatron's trainer does: it counts the samples of all ranks."""

        consumed = 0 if state is None else state["position"]
        close = dataset.close

        def __iter__(self) -> Iterator[Any]:
            if self.consumed == total:
                return
            dealt = list(single(total, self.consumed, micro, setting.world, rank, drop_last=False))
            full = [samples for samples in dealt if samples]
            options = {"prefetch_factor": max(1, prefetch)} if setting.workers else {}
            made = iter(DataLoader(dataset, batch_sampler=full, num_workers=setting.workers, **options))
            for samples in dealt:
                batch = next(made) if samples else {"labels": np.empty((0, ROW))}
                self.consumed = min(total, self.consumed + setting.batch)
                yield {**batch, "samples": samples}

        def state_dict(self) -> Any:
            return {"position": self.consumed}

    return Consumed()


def as_maxtext(made: Any, rows: Any, setting: Setting, rank: int, state: Any, prefetch: int) -> Any:
    """A MaxText job by its configuration, over the files of the order: other batches are other steps."""
    from tokenreel.feed.maxtext import open_maxtext

    direct, mixture = "mmap" in made.order.name, len(made.corpora) > 1
    specs = [str(Path(corpus.path).with_suffix("")) for corpus in made.corpora]
    if not direct:
        specs = [f"{path}-index|{path}" for path in specs]
    config = {
        "grain_file_type": "mmap" if direct else "mmap_npy",
        "grain_train_files": ";".join(f"{one},{weight}" for one, weight in zip(specs, (0.7, 0.3), strict=False))
        if mixture
        else specs[0],
        "data_shuffle_seed": (made.order.children or (made.order,))[0].seed,
        "max_target_length": ROW,
        "global_batch_size_to_load": setting.batch,
        "num_epoch": 2 if direct and not mixture else 1,
        "steps": -1 if direct else made.order.length // setting.batch,
        "mmap_eod_id": EOD,
        "packing_max_segments_per_sample": rows.get("packing_max_segments_per_sample", 25),
    }
    # Its steps are counted from the job's first: after other batches the samples end elsewhere.
    return open_maxtext(config, host=rank, hosts=setting.world, state=state, prefetch=prefetch, steps=None)


RIMS: dict[str, Callable[..., Any]] = {
    "feed": as_feed,
    "strided": as_strided,
    "torch": as_torch,
    "torch-samples": as_torch_samples,
    "stateful": as_stateful,
    "jax": as_jax,
    "grain": as_grain,
    "grain-map": as_grain_map,
    "megatron": as_megatron,
    "megatron-map": as_megatron_map,
    "maxtext": as_maxtext,
}
WITH_WORKERS = ("torch", "torch-samples", "stateful", "megatron-map")
STRIDED = ("strided", "grain-map", "maxtext")


def takes(rim: str, order: str) -> bool:
    """Whether a rim can take an order at all: two are for the orders of one system."""
    if rim == "megatron-map":
        return order in ("megatron", "megatron-blend")
    return rim != "maxtext" or order.startswith("maxtext")


def fits(rim: str, order: str, setting: Setting) -> bool:
    """Whether a rim can take an order in a setting."""
    if not takes(rim, order) or (setting.workers and rim not in WITH_WORKERS):
        return False
    if rim == "maxtext":
        # Its samples are steps times batch; and a mixture of direct files is another order for other hosts.
        return setting.batch in (1, 2, 3, 6) and (setting.world == 1 or order != "maxtext-mmap-mix")
    return rim != "jax" or setting.world == 1


def gather_of(rim: str) -> str:
    return "strided" if rim in STRIDED else "contiguous"
