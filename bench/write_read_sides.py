"""The two sides of bench/write_read.py: `python write_read_sides.py tokenreel|megatron`, each run by its own interpreter."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import serve

BLOCK = 100_000  # documents made, and held, at a time
LONGEST = 50
VOCABULARY = 50_257
Block = tuple[np.ndarray, np.ndarray]


def block(number: int, count: int) -> Block:
    """Ids and lengths of `count` documents of 1-50 tokens; the same on every side. Ids uint16, lengths int64."""
    random = np.random.default_rng([1, number])
    lengths = random.integers(1, LONGEST + 1, size=count, dtype=np.int64)
    return random.integers(0, VOCABULARY, size=int(lengths.sum()), dtype=np.uint16), lengths


def blocks(documents: int) -> Iterator[Block]:
    for number, begin in enumerate(range(0, documents, BLOCK)):
        yield block(number, min(BLOCK, documents - begin))


class Clock:
    """Wall and processor seconds spent inside `with`, added up: making the documents is not counted."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> Clock:
        self.wall -= time.perf_counter()
        self.cpu -= time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter()
        self.cpu += time.process_time()


def write_tokenreel(prefix: str, documents: int, clock: Clock) -> None:
    """MegatronWriter.add_documents, a block per call."""
    from tokenreel.formats.megatron_write import MegatronWriter

    with clock:
        writer = MegatronWriter(prefix, np.dtype(np.uint16))
    for ids, lengths in blocks(documents):
        with clock:
            writer.add_documents(ids, lengths)
    with clock:
        writer.finish()


def write_megatron(prefix: str, documents: int, clock: Clock) -> None:
    """IndexedDatasetBuilder.add_document, a document per call; cutting a block into tensors is not counted."""
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    with clock:
        builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for ids, lengths in blocks(documents):
        counts = lengths.tolist()
        pieces = list(zip(torch.from_numpy(ids).split(counts), ([count] for count in counts), strict=True))
        with clock:
            for tensor, length in pieces:
                builder.add_document(tensor, length)
        del pieces
    with clock:
        builder.finalize(f"{prefix}.idx")


def write_megatron_blocks(prefix: str, documents: int, clock: Clock) -> None:
    """The same calls with a block of sequences as one document: the quickest that the builder goes, but another corpus."""
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    with clock:
        builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for ids, lengths in blocks(documents):
        tensor, counts = torch.from_numpy(ids), lengths.tolist()
        with clock:
            builder.add_document(tensor, counts)
    with clock:
        builder.finalize(f"{prefix}.idx")


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def measured(write: Callable[[str, int, Clock], None]) -> Callable[..., dict[str, Any]]:
    """Bytes that writing adds to a process that has already imported all, made a block and written a small pair."""

    def run(prefix: str, documents: int) -> dict[str, Any]:
        Path(prefix).parent.mkdir(parents=True, exist_ok=True)
        write(f"{prefix}-warm", BLOCK, Clock())
        for suffix in (".bin", ".idx"):
            Path(f"{prefix}-warm{suffix}").unlink()
        # Resets the kernel's high-water mark; without it (no such file), imports that peaked higher would hide the writer.
        Path("/proc/self/clear_refs").write_text("5")
        before, clock = _memory("VmRSS"), Clock()
        write(prefix, documents, clock)
        peak = _memory("VmHWM")
        return {"wall": clock.wall, "cpu": clock.cpu, "before": before, "peak": peak, "added": peak - before}

    return run


def digest(prefix: str) -> dict[str, str]:
    found = {}
    for suffix in ("bin", "idx"):
        with Path(f"{prefix}.{suffix}").open("rb") as file:
            found[suffix] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def timed(opener: Callable[[str], Any]) -> dict[str, Callable[..., Any]]:
    def open_once(prefix: str, repeats: int) -> dict[str, Any]:
        """Median seconds to open and let go; and, in a second loop, of the first document after opening.

        Two loops, because a first read that checks a large table leaves the processor's caches cold for the next open.
        """
        seen, first = [], []
        for _ in range(repeats):
            begin = time.perf_counter()
            opener(prefix)
            seen.append(time.perf_counter() - begin)
        for number in range(repeats):
            corpus = opener(prefix)
            begin = time.perf_counter()
            corpus[number]
            first.append(time.perf_counter() - begin)
        return {"open": sorted(seen)[repeats // 2], "first": sorted(first)[repeats // 2]}

    def read(prefix: str, documents: int, count: int) -> dict[str, Any]:
        """Seconds for `count` random documents by `corpus[i]`, and the sum of the ids read, to compare."""
        corpus = opener(prefix)
        corpus[0]
        chosen = np.random.default_rng(2).integers(0, documents, size=count).tolist()
        begin = time.perf_counter()
        total = 0
        for number in chosen:
            total += int(corpus[number].sum(dtype=np.int64))
        return {"seconds": time.perf_counter() - begin, "sum": total}

    return {"open": open_once, "read": read, "digest": digest}


def open_tokenreel(prefix: str) -> Any:
    import tokenreel

    return tokenreel.open(f"{prefix}.idx")


def open_megatron(prefix: str) -> Any:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    return IndexedDataset(prefix)


SIDES: dict[str, dict[str, Callable[..., Any]]] = {
    "tokenreel": {"write": measured(write_tokenreel), **timed(open_tokenreel)},
    "megatron": {
        "write": measured(write_megatron),
        "write_blocks": measured(write_megatron_blocks),
        **timed(open_megatron),
    },
}

if __name__ == "__main__":
    serve(SIDES[sys.argv[1]])
