"""The sides of bench/feed.py: `python feed_sides.py SIDE`, each run by its own interpreter.

Every function runs a loop over batches for so many seconds of CPU time, after warming, and returns tokens, seconds and a
checksum of what its first batches held.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from feed_data import EOD, SEED, VOCAB, window_order
from harness import serve

CHECKED = 2
Batch = dict[str, Any]


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def timed(step: Callable[[int], Batch], tokens: int, seconds: float, warm: float = 1.0) -> dict[str, Any]:
    """Run `step(k)` for batches k = 0, 1, ..; `tokens` a batch."""
    check = 0
    for k in range(CHECKED):
        made = step(k)
        for name in sorted(made):
            check = zlib.crc32(np.ascontiguousarray(made[name], dtype=np.int64).view(np.uint8), check)
    number = count(CHECKED)
    end = time.process_time() + warm
    while time.process_time() < end:
        step(next(number))
    batches = 0
    wall, cpu = time.perf_counter(), time.process_time()
    while time.process_time() - cpu < seconds:
        for _ in range(4):
            step(next(number))
        batches += 4
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"tokens": tokens * batches, "cpu": cpu, "wall": wall, "check": check, "rate": tokens * batches / cpu / 1e6}


def stepping(batches: Iterator[Any], read: Callable[[Any], Batch]) -> Callable[[int], Batch]:
    return lambda _: read(next(batches))


# ---- tokenreel -------------------------------------------------------------------------------------------------------


def tokenreel_windows(prefix: str, row: int, batch: int, seconds: float, dtype: str = "int64") -> dict[str, Any]:
    """The kernel: extents are there already."""
    import tokenreel
    from tokenreel.feed.gather import Gatherer

    corpus = tokenreel.open(prefix)
    order = window_order(corpus.tokens, row)
    ahead = tokenreel.Flag.AHEAD
    splits = np.arange(batch + 1)
    tables = [
        tokenreel.SpanTable.of(splits, order[k : k + batch] * row, row, flags=ahead)
        for k in range(0, min(len(order), 512 * batch) - batch + 1, batch)
    ]
    gatherer = Gatherer([corpus], "plain", row_tokens=row, row_ahead=1, dtype=dtype)
    out = {name: np.empty(shape, kind) for name, (shape, kind) in gatherer.policy.layout(batch, row, dtype).items()}
    return timed(lambda k: gatherer.batch(tables[k % len(tables)], out), row * batch, seconds)


def tokenreel_documents(
    prefix: str, row: int, batch: int, seconds: float, policy: dict[str, Any], dtype: str = "int64", spans: bool = False
) -> dict[str, Any]:
    """Megatron's order over documents; with `spans` finding the extents is counted too."""
    import tokenreel
    from tokenreel.feed.gather import Gatherer
    from tokenreel.order.megatron import MegatronOrder

    corpus = tokenreel.open(prefix)
    order = MegatronOrder.over(corpus.sequences(), row, seed=SEED, documents=corpus.table(), samples=None).prepare()
    steps = order.length // batch
    tables = [order.spans(batch * k, batch * (k + 1)) for k in range(min(steps, 256))]
    gatherer = Gatherer([corpus], policy, row_tokens=row, row_ahead=1, dtype=dtype)
    out = {name: np.empty(shape, kind) for name, (shape, kind) in gatherer.policy.layout(batch, row, dtype).items()}

    def step(k: int) -> Batch:
        if spans:
            k %= steps
            return gatherer.batch(order.spans(batch * k, batch * (k + 1)), out)
        return gatherer.batch(tables[k % len(tables)], out)

    return timed(step, row * batch, seconds)


def tokenreel_feed(
    prefix: str, row: int, batch: int, seconds: float, policy: Any = "plain", prefetch: int = 0, documents: bool = False
) -> dict[str, Any]:
    """The public feed, from opening on: order, extents, gather, state."""
    import tokenreel
    from tokenreel.order.megatron import MegatronOrder
    from tokenreel.order.windows import WindowsOrder

    corpus = tokenreel.open(prefix)
    order: Any = WindowsOrder.over(corpus.stream_table(), row, SEED, epochs=None)
    if documents:
        order = MegatronOrder.over(
            corpus.sequences(), row, seed=SEED, documents=corpus.table(), samples=1 << 22
        ).prepare()
    with tokenreel.open_feed(  # type: ignore[attr-defined]
        order, corpora=corpus, batch=batch, rows=policy, dtype="int64", prefetch=prefetch, endless=True
    ) as feed:
        batches = iter(feed)
        return timed(lambda _: next(batches).arrays, row * batch, seconds)


def tokenreel_memory(prefix: str, batches: int, row: int = 64) -> dict[str, Any]:
    """Resident memory before and after so many small batches through the feed."""
    import tokenreel
    from tokenreel.order.windows import WindowsOrder

    corpus = tokenreel.open(prefix)
    order = WindowsOrder.over(corpus.stream_table(), row, SEED, epochs=None)
    with tokenreel.open_feed(  # type: ignore[attr-defined]
        order, corpora=corpus, batch=1, rows="plain", prefetch=0, endless=True
    ) as feed:
        source = iter(feed)
        seen = []
        for k in range(batches):
            next(source)
            if k % (batches // 10) == batches // 10 - 1:
                # Pages of the mapped file count as resident too: they are no growth.
                seen.append(_memory("RssAnon"))
    return {"first": seen[0], "last": seen[-1], "most": max(seen), "batches": batches}


# ---- NumPy alone: the limit, the loop, vectorised packing --------------------------------------------------------------


def numpy_memcpy(sizes: list[int], seconds: float, sets: int = 1) -> dict[str, Any]:
    """Copy as many bytes as a batch writes, array by array, into warm buffers, one set after another."""
    sources = [np.ones(size, np.uint8) for size in sizes]
    buffers = [[np.empty(size, np.uint8) for size in sizes] for _ in range(sets)]

    def step(k: int) -> Batch:
        for source, to in zip(sources, buffers[k % sets], strict=True):
            np.copyto(to, source)
        return {}

    found = timed(step, sum(sizes), seconds)
    return {"bytes_per_s": found["tokens"] / found["cpu"], "cpu": found["cpu"], "wall": found["wall"]}


def numpy_windows(prefix: str, row: int, batch: int, seconds: float) -> dict[str, Any]:
    data = np.memmap(f"{prefix}.bin", np.uint16, "r")
    order = window_order(len(data), row)
    ids, labels = np.empty((batch, row), np.int64), np.empty((batch, row), np.int64)

    def step(k: int) -> Batch:
        first = k * batch % (len(order) - batch)
        for r in range(batch):
            at = order[first + r] * row
            ids[r] = data[at : at + row]
            labels[r] = data[at + 1 : at + row + 1]
        return {"input_ids": ids, "labels": labels}

    return timed(step, row * batch, seconds)


def numpy_packing(prefix: str, row: int, batch: int, seconds: float) -> dict[str, Any]:
    """Shuffled documents end to end, cut into rows, one batch at a time, without a loop over rows or documents."""
    data = np.memmap(f"{prefix}.bin", np.uint16, "r")
    with Path(f"{prefix}.idx").open("rb") as file:
        head = file.read(34)
        documents = int.from_bytes(head[18:26], "little")
        lengths = np.frombuffer(file.read(4 * documents), "<i4").astype(np.int64)
    order = np.random.default_rng(SEED).permutation(documents)
    begins = (np.cumsum(lengths) - lengths)[order]
    ends = np.cumsum(lengths[order])
    starts = ends - lengths[order]
    need = row * batch

    def step(k: int) -> Batch:
        low = k * need % (len(data) - need - 1)
        first, last = np.searchsorted(ends, [low, low + need], side="right")
        head = np.maximum(starts[first : last + 1], low)
        tail = np.minimum(ends[first : last + 1], low + need + 1)
        count = tail - head
        place = np.repeat(begins[first : last + 1] - starts[first : last + 1], count) + np.arange(low, low + need + 1)
        ids = data[place].astype(np.int64)
        number = np.repeat(np.arange(len(count)), count)[:-1].reshape(batch, row)
        fresh = np.ones((batch, row), dtype=bool)
        fresh[:, 1:] = number[:, 1:] != number[:, :-1]
        column = np.broadcast_to(np.arange(row), (batch, row))
        positions = column - np.maximum.accumulate(np.where(fresh, column, 0), axis=1)
        segments = np.cumsum(fresh, axis=1, dtype=np.int32)
        is_end = np.zeros(need + 1, dtype=bool)
        is_end[ends[first:last] - low - 1] = True
        mask = (~is_end[:-1]).astype(np.float32).reshape(batch, row)
        labels = np.where(mask > 0, ids[1:].reshape(batch, row), -100)
        return {
            "input_ids": ids[:-1].reshape(batch, row),
            "labels": labels,
            "position_ids": positions,
            "segment_ids": segments,
            "loss_mask": mask,
        }

    return timed(step, need, seconds)


# ---- peers -------------------------------------------------------------------------------------------------------------


class _Tokenizer:
    eod = EOD
    pad = -1
    vocab_size = VOCAB
    unique_identifiers = {"class": "bench"}  # noqa: RUF012

    @property
    def eos(self) -> int:
        return EOD


def megatron_rows(
    prefix: str, row: int, batch: int, seconds: float, resets: bool = False, dense: bool = False
) -> dict[str, Any]:
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    torch.set_num_threads(1)
    config = GPTDatasetConfig(
        random_seed=SEED,
        sequence_length=row,
        blend=([prefix], None),
        split="1",
        tokenizer=_Tokenizer(),
        path_to_cache=f"{prefix}-cache",
        reset_position_ids=resets,
        reset_attention_mask=dense,
        eod_mask_loss=resets,
        create_attention_mask=dense,
        mid_level_dataset_surplus=0.005,
    )
    low = IndexedDataset(prefix, multimodal=False, mmap=True)
    dataset = GPTDataset(low, prefix, np.arange(len(low), dtype=np.int32), None, Split.train, config)
    names = ("tokens", "labels") if not resets else ("tokens", "labels", "loss_mask", "position_ids")

    def step(k: int) -> Batch:
        first = k * batch % (len(dataset) - batch)
        samples = [dataset[first + r] for r in range(batch)]
        return {name: torch.stack([sample[name] for sample in samples]).numpy() for name in names}

    return timed(step, row * batch, seconds)


class _Source:
    """A memory map as a Grain data source, its windows shuffled."""

    def __init__(self, prefix: str, row: int) -> None:
        self.prefix, self.row = prefix, row
        self.data = np.memmap(f"{prefix}.bin", np.uint16, "r")
        self.order = window_order(len(self.data), row)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, k: int) -> np.ndarray:
        at = int(self.order[k]) * self.row
        return np.asarray(self.data[at : at + self.row + 1], dtype=np.int64)


def grain_windows(prefix: str, row: int, batch: int, seconds: float) -> dict[str, Any]:
    import grain

    source = _Source(prefix, row)
    dataset = grain.MapDataset.source(source).repeat(1000).batch(batch)
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    batches = iter(dataset.to_iter_dataset(options))
    return timed(stepping(batches, lambda x: {"input_ids": x[:, :-1], "labels": x[:, 1:]}), row * batch, seconds)


def torch_windows(prefix: str, row: int, batch: int, seconds: float) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    source = _Source(prefix, row)

    def forever() -> Iterator[Any]:
        while True:
            yield from torch.utils.data.DataLoader(source, batch_size=batch, drop_last=True)

    batches = forever()
    return timed(
        stepping(batches, lambda x: {"input_ids": x[:, :-1].numpy(), "labels": x[:, 1:].numpy()}), row * batch, seconds
    )


def litdata_windows(prefix: str, row: int, batch: int, seconds: float) -> dict[str, Any]:
    """`StreamingDataset` with `TokensLoader`, in batches of a DataLoader without workers; its copy of the tokens is made first."""
    import litdata
    import torch
    from litdata.streaming.writer import BinaryWriter

    torch.set_num_threads(1)
    folder = Path(f"{prefix}-litdata-{row}")
    if not folder.exists():
        data = np.memmap(f"{prefix}.bin", np.uint16, "r")
        writer = BinaryWriter(str(folder), chunk_size=(row + 1) * 4096, item_loader=litdata.TokensLoader(row + 1))
        size = (row + 1) * 512
        for k, begin in enumerate(range(0, min(len(data), 1 << 25) - size, size)):
            writer[k] = torch.from_numpy(data[begin : begin + size].astype(np.uint16))
        writer.done()
        writer.merge()

    def forever() -> Iterator[Any]:
        dataset = litdata.StreamingDataset(
            str(folder), item_loader=litdata.TokensLoader(row + 1), shuffle=True, drop_last=True
        )
        while True:
            for x in torch.utils.data.DataLoader(dataset, batch_size=batch, drop_last=True):
                yield x.long()

    return timed(
        stepping(forever(), lambda x: {"input_ids": x[:, :-1].numpy(), "labels": x[:, 1:].numpy()}),
        row * batch,
        seconds,
    )


def datatrove_windows(prefix: str, row: int, batch: int, seconds: float) -> dict[str, Any]:
    import torch
    from datatrove.utils.dataset import DatatroveFileDataset

    torch.set_num_threads(1)
    link = Path(f"{prefix}.ds")
    if not link.exists():
        link.symlink_to(f"{prefix}.bin")
    dataset = DatatroveFileDataset(str(link), row, token_size=2)
    order = window_order(len(dataset) * (row + 1), row + 1)

    def step(k: int) -> Batch:
        first = k * batch % (len(order) - batch)
        made = torch.stack([dataset[int(n)]["input_ids"] for n in order[first : first + batch]])
        return {"input_ids": made[:, :-1].numpy(), "labels": made[:, 1:].numpy()}

    return timed(step, row * batch, seconds)


def streaming_windows(prefix: str, row: int, batch: int, seconds: float) -> dict[str, Any]:
    """mosaicml-streaming: MDS samples of one row of int64... as uint16 ids, its copy made first."""
    import importlib.machinery
    import types

    import torch

    # It imports torchvision for data sets of pictures; a stand-in will do here.
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
        stand_in = sys.modules.setdefault(name, types.ModuleType(name))
        stand_in.__spec__ = importlib.machinery.ModuleSpec(name, None)
        stand_in.__dict__.update(VisionDataset=object, to_tensor=None)
    from streaming import MDSWriter, StreamingDataset

    torch.set_num_threads(1)
    folder = f"{prefix}-mds-{row}"
    if not Path(folder).exists():
        data = np.memmap(f"{prefix}.bin", np.uint16, "r")
        with MDSWriter(out=folder, columns={"tokens": f"ndarray:uint16:{row + 1}"}, size_limit=1 << 26) as writer:
            for begin in range(0, min(len(data), 1 << 25) - row - 1, row):
                writer.write({"tokens": np.ascontiguousarray(data[begin : begin + row + 1])})

    def forever() -> Iterator[Any]:
        dataset = StreamingDataset(local=folder, shuffle=True, batch_size=batch, shuffle_seed=SEED)
        while True:
            samples = []
            for sample in dataset:
                samples.append(sample["tokens"].astype(np.int64))
                if len(samples) == batch:
                    yield np.stack(samples)
                    samples = []

    return timed(stepping(forever(), lambda x: {"input_ids": x[:, :-1], "labels": x[:, 1:]}), row * batch, seconds)


SIDES: dict[str, dict[str, Callable[..., Any]]] = {
    "tokenreel": {
        "windows": tokenreel_windows,
        "documents": tokenreel_documents,
        "feed": tokenreel_feed,
        "memory": tokenreel_memory,
    },
    "numpy": {"memcpy": numpy_memcpy, "windows": numpy_windows, "packing": numpy_packing},
    "megatron": {"rows": megatron_rows},
    "maxtext": {"grain": grain_windows},
    "litdata": {"windows": litdata_windows, "torch": torch_windows},
    "datatrove": {"windows": datatrove_windows},
    "streaming": {"windows": streaming_windows},
}

if __name__ == "__main__":
    serve(SIDES[sys.argv[1]])
