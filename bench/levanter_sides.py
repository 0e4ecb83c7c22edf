"""The sides of bench/levanter.py: `python levanter_sides.py tokenreel|plain`, over the mixture of examples/runs/snowball.toml."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from harness import HERE, serve

RUN = HERE.parent / "examples" / "runs" / "snowball.toml"
SEGMENT = 1
BLOCK = 49_152
BLOCKS = 25_000
LENGTH = 5_000_003
KEY = (1, 2)
Pairs = list[tuple[int, int]]


def samples_of(kind: str, count: int) -> np.ndarray:
    """Ids of a workload: `count` runs of 4,096 in blocks of their own, ids anywhere, or 64 ids of `count` blocks, mixed."""
    draw = np.random.default_rng(7)
    if kind == "random":
        return draw.integers(0, BLOCKS * BLOCK, count)
    blocks = draw.permutation(BLOCKS)[:count] * BLOCK
    if kind == "grouped":
        made = (blocks[:, None] + draw.integers(0, BLOCK, (count, 64))).reshape(-1)
        return draw.permutation(made)
    return (blocks[:, None] + 8192 + np.arange(4096)).reshape(-1)


def digest(pairs: Any) -> int:
    return zlib.crc32(np.asarray(pairs, dtype="<i8").tobytes())


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    made = work()
    return time.perf_counter() - wall, time.process_time() - cpu, made


def report(ids: int, seconds: tuple[float, float, Any], first: int = 64) -> dict[str, Any]:
    wall, cpu, made = seconds
    return {"ids": ids, "wall": wall, "cpu": cpu, "crc": digest(made[:first])}


def order() -> Any:
    from tokenreel.config.run import load_run
    from tokenreel.index.assemble import assemble

    return assemble(load_run(RUN)[SEGMENT].run, RUN.parent).order


# -- ours --------------------------------------------------------------------------------------------------------------


class Ours:
    """tokenreel."""

    def __init__(self) -> None:
        self.mixture = order().mixture
        self.pairs(samples_of("grouped", 4))
        self.pairs(samples_of("random", 4))

    def pairs(self, samples: np.ndarray) -> np.ndarray:
        component, number = self.mixture.places_at(samples)
        return np.stack([component, number], axis=1)

    def look_up(self, kind: str, count: int, fresh: bool) -> dict[str, Any]:
        """Batch by batch where ids are consecutive, all at once where not."""
        samples = samples_of(kind, count)
        parts = np.split(samples, count) if kind == "consecutive" else [samples]
        if fresh:
            self.mixture = order().mixture
        else:
            for part in parts:
                self.pairs(part)
        seconds = timed(lambda: self.each(parts))
        made = self.pairs(samples[:64])
        return report(len(samples), (*seconds[:2], made))

    def each(self, parts: list[np.ndarray]) -> None:
        for part in parts:
            self.mixture.places_at(part)

    def shuffle(self, count: int) -> dict[str, Any]:
        from tokenreel.order.levanter_shuffle import LevanterShuffle, Shuffles

        made = Shuffles.of([LENGTH], [KEY], LevanterShuffle())
        made.sequences_at(0, range(10))
        return report(count, timed(lambda: made.sequences_at(0, np.arange(count))))

    def everything(self, processes: int, spans: bool) -> dict[str, Any]:
        """All blocks of the run, down to stored sequences, or to span tables."""
        step = 50
        jobs = [(first, min(first + step, BLOCKS), spans) for first in range(0, BLOCKS, step)]
        wall = time.perf_counter()
        with ProcessPoolExecutor(processes) as pool:
            found = list(pool.map(_blocks, jobs))
        return {"wall": time.perf_counter() - wall, "ids": BLOCKS * BLOCK, "sum": sum(found)}

    def locate(self, rounds: int) -> dict[str, Any]:
        """Open the order over made streams and ask where a document of c06q0, read about twice, is in the whole run."""
        from tokenreel.order.levanter import LevanterOrder
        from tokenreel.order.stream import StreamOrder

        whole = order()
        names, weights = whole.mixture.names, list(zip(whole.mixture.starts, whole.mixture.shares, strict=True))
        stages = [(start, dict(zip(names, row, strict=True))) for start, row in weights]
        tables = [[Documents(key) for key in child.corpora] for child in whole.children]
        walls = []
        for k in range(rounds + 1):
            begin = time.perf_counter()
            parts = {
                name: [StreamOrder.over(one, 8192, 0) for one in each] for name, each in zip(names, tables, strict=True)
            }
            made = LevanterOrder.of(parts, stages, block=BLOCK, trainer="grug")
            hits = made.locate(20, [1000 + 7919 * k], 0, BLOCKS * BLOCK)
            walls.append(time.perf_counter() - begin)
        return {"walls": walls[1:], "hits": len(hits.sample)}


class Documents:
    """Documents of 6,000 tokens, end to end, that take no memory."""

    SIZE = 6000

    def __init__(self, key: Any) -> None:
        self.key, self.tokens, self.documents = key, key.tokens, -(-key.tokens // self.SIZE)

    def offsets_at(self, docs: np.ndarray) -> np.ndarray:
        return np.minimum(np.asarray(docs) * self.SIZE, self.tokens)

    def lengths(self, i: int, j: int) -> np.ndarray:
        return np.diff(self.offsets_at(np.arange(i, j + 1)))

    def at_tokens(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(positions) // self.SIZE


_order: list[Any] = []


def _blocks(job: tuple[int, int, bool]) -> int:
    first, end, spans = job
    if not _order:
        _order.append(order())
    total = 0
    for block in range(first, end):
        if spans:
            total += int(_order[0].spans(block * BLOCK, (block + 1) * BLOCK).begin.sum())
        else:
            total += int(_order[0].sequences_at(np.arange(block * BLOCK, (block + 1) * BLOCK))[1].sum())
    return total


# -- the peer ----------------------------------------------------------------------------------------------------------


class Plain:
    """The plain JAX rendering."""

    def __init__(self) -> None:
        from levanter_plain import PlainBlockShuffle, PlainMixture

        self.kinds = PlainMixture, PlainBlockShuffle
        self.mixture = self.fresh()
        self.mixture.look_up([0])

    def fresh(self) -> Any:
        said = order().mixture
        return self.kinds[0](said.lengths, said.starts, said.stage_counts, said.block, said.key)

    def look_up(self, kind: str, count: int, fresh: bool) -> dict[str, Any]:
        samples = samples_of(kind, count).tolist()
        if fresh:
            self.mixture = self.fresh()
        else:
            self.mixture.look_up(samples)
        seconds = timed(lambda: self.mixture.look_up(samples))
        return report(len(samples), seconds)

    def shuffle(self, count: int) -> dict[str, Any]:
        made = self.kinds[1](LENGTH, KEY)
        made(0)
        return report(count, timed(lambda: [made(index) for index in range(count)]))


def main() -> None:
    side: Any = Ours() if sys.argv[1] == "tokenreel" else Plain()
    serve({name: getattr(side, name) for name in ("look_up", "shuffle", "everything", "locate") if hasattr(side, name)})


if __name__ == "__main__":
    main()
