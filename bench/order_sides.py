"""The sides of bench/order.py: `python order_sides.py tokenreel|megatron|maxtext`, each run by its own interpreter."""

from __future__ import annotations

import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from harness import serve
from order_data import BLOCK, ROW, SEED, lengths, weights

SMALL = 20_000
BACKED = 1 << 30
Arrays = tuple[np.ndarray, ...]


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def measured(
    work: Callable[..., Any], read: Callable[[Any], Any] = lambda made: made, **arguments: Any
) -> dict[str, Any]:
    """Seconds of `work` and the bytes it adds at its peak; `read` turns what it made into JSON, uncounted."""
    # On a virtual machine memory that was never touched, or was long free, costs what the host takes to give it: ask first.
    np.ones(BACKED, dtype=np.uint8)
    # Resets the kernel's high-water mark, so that what imports and warming took does not hide the work.
    Path("/proc/self/clear_refs").write_text("5")
    before, wall, cpu = _memory("VmRSS"), time.perf_counter(), time.process_time()
    made = work(**arguments)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall": wall, "cpu": cpu, "added": _memory("VmHWM") - before, "read": read(made)}


def checksums(arrays: Arrays) -> list[list[Any]]:
    """What two sides compare: dtype, shape and CRC of each array."""
    found = []
    for array in arrays:
        crc = 0
        flat = np.ascontiguousarray(array).reshape(-1)
        for begin in range(0, len(flat), BLOCK):
            crc = zlib.crc32(flat[begin : begin + BLOCK].view(np.uint8), crc)
        found.append([array.dtype.str, list(array.shape), crc])
    return found


def one_job(build: Callable[..., Arrays]) -> Callable[..., dict[str, Any]]:
    """Index building, warmed by a small job: imports and compiling are not counted."""

    def run(small: str, prefix: str, epochs: int, files: bool) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=Path(prefix).parent) as folder:
            build(small, epochs, f"{folder}/small" if files else None)
            return measured(build, checksums, prefix=prefix, epochs=epochs, files=f"{folder}/large" if files else None)

    return run


def one_blend(build: Callable[..., Arrays]) -> Callable[..., dict[str, Any]]:
    def run(members: int, samples: int, kind: str) -> dict[str, Any]:
        shares = weights(members, kind)
        build(shares, 1000)
        return measured(build, checksums, shares=shares, samples=samples)

    return run


def imports(names: list[str]) -> dict[str, float]:
    """Seconds to import, in a process that has numpy."""
    cpu, wall = time.process_time(), time.perf_counter()
    for name in names:
        __import__(name)
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


# ---- tokenreel -------------------------------------------------------------------------------------------------------


def tokenreel_indices(prefix: str, epochs: int, files: str | None) -> Arrays:
    """From the pair on disk to three arrays in memory, or to Megatron's cache files and the arrays."""
    import tokenreel
    from tokenreel.order.megatron_index import build_indices
    from tokenreel.order.megatron_plan import plan_epochs

    corpus = tokenreel.open(f"{prefix}.idx")
    table = corpus.sequences()
    plan = plan_epochs(table.tokens, ROW, None if epochs == 1 else (epochs * table.tokens - 1) // ROW)
    sizes = np.empty(table.documents, dtype=np.int32)
    for begin in range(0, len(sizes), BLOCK):
        sizes[begin : begin + BLOCK] = table.lengths(begin, min(len(sizes), begin + BLOCK))
    made = build_indices(sizes, 0, plan, SEED, ROW)
    arrays = made.document_index, made.sample_index, made.shuffle_index
    if files:
        from tokenreel.index.files import IndexFiles, put

        names = ("document_index", "sample_index", "shuffle_index")
        put(files, [IndexFiles("", {f"{name}.npy": array for name, array in zip(names, arrays, strict=True)})])
    return arrays


def tokenreel_dispatch(shares: list[float], samples: int) -> Arrays:
    from tokenreel.order.megatron_dispatch import dispatch

    return dispatch(shares, samples)


class Synthetic:
    """A table of any number of documents that takes no memory: the same 2**20 log-normal lengths over and over."""

    def __init__(self, documents: int) -> None:
        self.documents = documents
        self.base = lengths(BLOCK).astype(np.int64)
        self.edges = np.concatenate(([0], np.cumsum(self.base)))
        self.tokens = int(self.offsets_at(np.array([documents]))[0])

    @property
    def key(self) -> Any:
        from tokenreel.spans import CorpusKey

        return CorpusKey("tables", "00", self.documents, self.tokens)

    def lengths(self, i: int, j: int) -> np.ndarray:
        begin = i % BLOCK
        if begin + j - i <= BLOCK:
            return self.base[begin : begin + j - i]
        return self.base[np.arange(i, j) & (BLOCK - 1)]

    def offsets_at(self, docs: np.ndarray) -> np.ndarray:
        return docs // BLOCK * int(self.edges[-1]) + self.edges[docs % BLOCK]

    def at_tokens(self, positions: np.ndarray) -> np.ndarray:
        whole, rest = np.divmod(positions, int(self.edges[-1]))
        return whole * BLOCK + np.searchsorted(self.edges, rest, side="right") - 1


def tokenreel_spans(documents: int) -> dict[str, Any]:
    """Extents per processor second after `prepare`: samples at random, 8,192 at a time, and all of them in order."""
    from tokenreel.order.megatron import MegatronOrder

    order = MegatronOrder.over(Synthetic(documents), ROW, seed=SEED, samples=None).prepare()
    wanted = np.random.default_rng(3).integers(0, order.length, size=1 << 20)
    order.spans_at(wanted[:100])

    def random() -> int:
        return sum(order.spans_at(wanted[k : k + 8192]).extents for k in range(0, len(wanted), 8192))

    def straight() -> int:
        return sum(table.extents for _, table in order.chunks(0, order.length))

    return {"random": measured(random), "straight": measured(straight)}


def tokenreel_large(documents: int) -> dict[str, Any]:
    """`prepare` one epoch of a table that is not stored."""
    from tokenreel.order.megatron import MegatronOrder

    MegatronOrder.over(Synthetic(SMALL), ROW, seed=SEED, samples=None).prepare()
    order = MegatronOrder.over(Synthetic(documents), ROW, seed=SEED, samples=None)
    return measured(order.prepare, lambda ready: ready.length)


def tokenreel_windows(windows: int) -> dict[str, Any]:
    """Median seconds to make the order and read its first sample, and to read a sample anywhere; bytes added by 10,000 of each."""
    from tokenreel.order.windows import WindowsOrder
    from tokenreel.spans import CorpusKey

    key = CorpusKey("files", "00", 10, windows * ROW + 1)
    places = np.random.default_rng(4).integers(0, windows, size=10_000).tolist()
    WindowsOrder(key, ROW, 5).spans(0, 1)

    def each() -> tuple[list[float], list[float]]:
        opens, seeks = [], []
        for place in places:
            begin = time.perf_counter()
            order = WindowsOrder(key, ROW, place)
            order.spans(0, 1)
            opens.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            order.spans(place, place + 1)
            seeks.append(time.perf_counter() - begin)
        return opens, seeks

    return measured(each, lambda seen: {"open": float(np.median(seen[0])), "seek": float(np.median(seen[1]))})


# ---- peers -----------------------------------------------------------------------------------------------------------


def megatron_indices(prefix: str, epochs: int, files: str | None) -> Arrays:
    """GPTDataset alone, over every document; it always saves its arrays, so where no files are asked for saving does nothing."""
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    class Tokenizer:
        unique_identifiers: ClassVar[dict[str, str]] = {"class": "none"}
        special_tokens_dict: ClassVar[dict[str, int]] = {}
        eod, pad, vocab_size = 0, -1, 60_000

    save = np.save
    with tempfile.TemporaryDirectory(dir=Path(prefix).parent) as nowhere:
        try:
            if files is None:
                np.save = lambda *_, **__: None  # type: ignore[assignment]
            config = GPTDatasetConfig(
                random_seed=SEED,
                sequence_length=ROW,
                blend=([prefix], None),
                split="1,0,0",
                path_to_cache=files or nowhere,
                reset_position_ids=False,
                reset_attention_mask=False,
                eod_mask_loss=False,
                create_attention_mask=False,
                tokenizer=Tokenizer(),
            )
            data = IndexedDataset(prefix)
            count = len(data.sequence_lengths)
            tokens = int(data.sequence_lengths.sum(dtype=np.int64)) if epochs > 1 else 0
            samples = None if epochs == 1 else (epochs * tokens - 1) // ROW
            made = GPTDataset(data, prefix, np.arange(count, dtype=np.int32), samples, Split.train, config)
        finally:
            np.save = save
        return made.document_index, made.sample_index, made.shuffle_index


def megatron_dispatch(shares: list[float], samples: int) -> Arrays:
    from megatron.core.datasets import helpers

    members, numbers = np.zeros(samples, dtype=np.int16), np.zeros(samples, dtype=np.int64)
    helpers.build_blending_indices(members, numbers, np.array(shares), len(shares), samples, False)
    return members, numbers


def maxtext_indices(prefix: str, epochs: int, files: str | None) -> Arrays:
    from maxtext.input_pipeline import _mmap_index_utils as module

    if files:
        raise ValueError("arrays only")
    return module.build_indices([prefix], ROW, num_epochs=epochs, seed=SEED)[:3]


def maxtext_dispatch(shares: list[float], samples: int) -> Arrays:
    from maxtext.input_pipeline._megatron_blending import build_blending_indices

    members, numbers = np.zeros(samples, dtype=np.int16), np.zeros(samples, dtype=np.int64)
    build_blending_indices(members, numbers, np.array(shares), len(shares), samples)
    return members, numbers


SIDES: dict[str, dict[str, Callable[..., Any]]] = {
    "tokenreel": {
        "indices": one_job(tokenreel_indices),
        "dispatch": one_blend(tokenreel_dispatch),
        "spans": tokenreel_spans,
        "large": tokenreel_large,
        "windows": tokenreel_windows,
        "imports": imports,
    },
    "megatron": {"indices": one_job(megatron_indices), "dispatch": one_blend(megatron_dispatch), "imports": imports},
    "maxtext": {"indices": one_job(maxtext_indices), "dispatch": one_blend(maxtext_dispatch), "imports": imports},
}

if __name__ == "__main__":
    serve(SIDES[sys.argv[1]])
