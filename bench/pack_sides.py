"""The sides of bench/pack.py: `python pack_sides.py tokenreel|grain|olmo|plain`, each run by its own interpreter."""

from __future__ import annotations

import bisect
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import serve

KINDS = {"web": (700, 1.0), "long": (18000, 0.9)}
BLOCK = 1 << 20


def lengths(kind: str, documents: int) -> Iterator[np.ndarray]:
    """Log-normal lengths, 2**20 at a time; the same on every side."""
    median, sigma = KINDS[kind]
    for number, low in enumerate(range(0, documents, BLOCK)):
        random = np.random.default_rng([7, number])
        drawn = random.lognormal(np.log(median), sigma, min(BLOCK, documents - low))
        yield np.maximum(1, drawn).astype(np.uint32)


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    made = work()
    return made, time.perf_counter() - wall, time.process_time() - cpu


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- tokenreel --------------------------------------------------------------------------------------------------------


def plan(kind: str, documents: int, room: int, policy: str, oversize: str, threads: int = 1) -> dict[str, Any]:
    from tokenreel.pack.packed_policy import Packing
    from tokenreel.pack.plan import make_plan
    from tokenreel.pack.plan_sizes import Sizes

    packing = Packing.of(policy, room, oversize=oversize)
    make_plan(Sizes.of_lengths(np.arange(1, 9000)), packing)
    held = np.empty(documents, dtype=np.uint32)
    at = 0
    for some in lengths(kind, documents):
        held[at : at + len(some)] = some
        at += len(some)
    before = resident()
    sizes = Sizes.of_lengths(held)
    made, wall, cpu = timed(lambda: make_plan(sizes, packing, threads=threads))
    kept = int(held.sum(dtype=np.int64))
    return {
        "wall": wall, "cpu": cpu, "rows": made.rows, "padding": None if policy == "crop" else 1 - kept / (made.rows * room),
        "bytes": (made.nbytes + sizes.lengths.nbytes + sizes.begins.nbytes) / documents,
        "plan_bytes": made.nbytes / documents, "added": (resident() - before) / documents,
    }  # fmt: skip


def feeding(tokens: int, room: int, batches: int, rows: int) -> dict[str, Any]:
    """Rows a second of packed rows and of Megatron's shuffled documents, laid out by the same policy."""
    import tokenreel
    from tokenreel.feed.gather import Gatherer
    from tokenreel.formats.megatron_write import MegatronWriter
    from tokenreel.order.megatron import MegatronOrder
    from tokenreel.pack.packed import packed

    sizes = next(lengths("web", tokens // 1100))
    with tempfile.TemporaryDirectory() as folder:
        with MegatronWriter(f"{folder}/web", np.uint16) as writer:
            for low in range(0, len(sizes), 1 << 14):
                some = sizes[low : low + (1 << 14)].astype(np.int64)
                writer.add_documents(np.arange(int(some.sum()), dtype=np.uint16) % 50000, some)
            writer.finish()
        corpus = tokenreel.open(f"{folder}/web.idx")
        orders = {
            "shuffled documents": MegatronOrder.over(corpus.sequences(), room, seed=1, samples=None).prepare(),
            "bestfit": packed(corpus.table(), room, "bestfit", oversize="split").prepare(),
            "concat": packed(corpus.table(), room, "concat").prepare(),
        }
        out: dict[str, Any] = {}
        with Gatherer([corpus], "documents", row_tokens=room, row_ahead=1) as gatherer:
            for turn in range(4):
                for name, order in orders.items():
                    at = turn * batches * rows

                    def run(order: Any = order, at: int = at) -> None:
                        for batch in range(batches):
                            numbers = np.arange(at + batch * rows, at + (batch + 1) * rows) % (order.length or 1)
                            gatherer.batch(order.spans_at(numbers))

                    _, _, cpu = timed(run)
                    if turn:
                        out.setdefault(name, []).append(batches * rows * room / cpu)
        corpus.close()
    return out


# ---- peers ------------------------------------------------------------------------------------------------------------


def grain(kind: str, documents: int, room: int, bins: int) -> dict[str, Any]:
    """Grain's first fit over arrays of these lengths: documents a CPU second, and padding."""
    import grain.python as pygrain
    from grain.experimental import FirstFitPackIterDataset

    sizes = np.minimum(next(lengths(kind, documents)), room)
    source = pygrain.MapDataset.source([{"x": np.ones(n, dtype=np.int32)} for n in sizes.tolist()])
    packer = FirstFitPackIterDataset(source.to_iter_dataset(), length_struct={"x": room}, num_packing_bins=bins)

    def run() -> int:
        return sum(1 for _ in packer)

    rows, wall, cpu = timed(run)
    return {"wall": wall, "cpu": cpu, "rows": rows, "padding": 1 - int(sizes.sum(dtype=np.int64)) / (rows * room)}


def olmo(kind: str, documents: int, room: int) -> dict[str, Any]:
    """OLMo-core's best-fit packer, given pieces of documents that fit a row, as its callers give them."""
    from olmo_core.data.utils import InstancePacker

    sizes = next(lengths(kind, documents))
    pieces = sizes[sizes % room > 0] % room
    edges = np.concatenate(([0], np.cumsum(pieces, dtype=np.uint64))).astype(np.uint64)
    packer = InstancePacker(room)
    found, wall, cpu = timed(lambda: packer.pack_documents(np.stack([edges[:-1], edges[1:]], axis=1)))
    rows = len(found[0]) + int((sizes // room).sum())
    return {"wall": wall, "cpu": cpu, "rows": rows, "padding": 1 - int(sizes.sum(dtype=np.int64)) / (rows * room)}


def plain(kind: str, documents: int, room: int) -> dict[str, Any]:
    """Best fit, longest first, in plain Python: room left in a sorted list."""
    sizes = next(lengths(kind, documents))
    pieces = [n % room for n in sizes.tolist()]
    full = int((sizes // room).sum())

    def run() -> int:
        order = sorted((k for k in range(len(pieces)) if pieces[k]), key=lambda k: -pieces[k])
        left: list[tuple[int, int]] = []
        rows: list[list[int]] = []
        for k in order:
            at = bisect.bisect_left(left, (pieces[k], -1))
            if at == len(left):
                rows.append([k])
                bisect.insort(left, (room - pieces[k], len(rows) - 1))
            else:
                room_left, row = left.pop(at)
                rows[row].append(k)
                if room_left > pieces[k]:
                    bisect.insort(left, (room_left - pieces[k], row))
        return len(rows)

    packed_rows, wall, cpu = timed(run)
    rows = packed_rows + full
    return {"wall": wall, "cpu": cpu, "rows": rows, "padding": 1 - int(sizes.sum(dtype=np.int64)) / (rows * room)}


SIDES: dict[str, dict[str, Callable[..., Any]]] = {
    "tokenreel": {"plan": plan, "feeding": feeding},
    "grain": {"pack": grain},
    "olmo": {"pack": olmo},
    "plain": {"pack": plain},
}

if __name__ == "__main__":
    serve(SIDES[sys.argv[1]])
