"""The sides of bench/replay.py: ids joined by tokenreel, DuckDB and polars; validation, traces; run by each side's interpreter."""

from __future__ import annotations

import hashlib
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from harness import serve

HIT = 0.9
"""Share of wanted ids that are there."""
ROWS = 1 << 20


def _ids(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, (count, 2), dtype=np.uint64)


def make_ids(folder: str, count: int) -> int:
    """Write two Parquet files of `count` ids each, 16 bytes and a row number; most of the one are in the other."""
    import pyarrow as pa
    from pyarrow import parquet

    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    for name, seed in (("wanted", 1), ("there", 2)):
        schema = pa.schema([("id", pa.binary(16)), ("row", pa.int64())])
        with parquet.ParquetWriter(
            root / f"{name}.parquet", schema, compression="none", use_dictionary=False
        ) as writer:
            for first in range(0, count, ROWS):
                size = min(ROWS, count - first)
                ids = _ids(size, 10 + first)
                if seed == 2:
                    lost = int(size * (1 - HIT))
                    ids[:lost] = _ids(lost, 7_000_000 + first)
                    ids = ids[np.random.default_rng(first).permutation(size)]
                rows = np.arange(first, first + size, dtype=np.int64)
                data = pa.py_buffer(np.ascontiguousarray(ids.astype(">u8")))
                column = pa.Array.from_buffers(pa.binary(16), size, [None, data])
                writer.write_batch(pa.record_batch([column, pa.array(rows)], schema=schema))
    return sum((root / f"{name}.parquet").stat().st_size for name in ("wanted", "there"))


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def _now() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def _measured(work: Any) -> dict[str, float]:
    Path("/proc/self/clear_refs").write_text("5")
    before, wall, cpu = _now(), time.perf_counter(), time.process_time()
    hits = work()
    return {
        "hits": hits,
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "added": _peak() - before,
    }


def join_tokenreel(folder: str, count: int, threads: int = 2) -> dict[str, float]:
    """Spill by top bits, match part by part; pairs counted, both row numbers summed."""
    import pyarrow as pa
    from pyarrow import parquet

    from tokenreel.build.id_matching import each_part, match
    from tokenreel.build.id_spill import IdSpill, ids_of, parts_for

    def fill(spill: Any, path: Path) -> None:
        # Group by group: an iterator over a whole file keeps all that it gave.
        with parquet.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(batch_size=1 << 16, row_groups=[group], use_threads=False):
                    column = batch.column("id")
                    data = np.frombuffer(column.buffers()[1], np.uint8)
                    ids = data[column.offset * 16 :][: 16 * len(column)].view(">u8").reshape(-1, 2).astype(np.uint64)
                    spill.add(ids, batch.column("row").to_numpy().view(np.uint64))

    def work() -> int:
        root = Path(folder)
        parts = parts_for(count)
        with IdSpill(parts, root) as wanted, IdSpill(parts, root) as there:
            with ThreadPoolExecutor(threads) as pool:
                sides = (wanted, root / "wanted.parquet"), (there, root / "there.parquet")
                list(pool.map(lambda side: fill(*side), sides))
            pa.default_memory_pool().release_unused()

            def part(number: int) -> tuple[int, int, int]:
                one, other = wanted.part(number), there.part(number)
                found = match(ids_of(one), ids_of(other))
                hit = np.flatnonzero(found >= 0)
                return len(hit), int(one["value"][hit].sum()), int(other["value"][found[hit]].sum())

            return sum(hits for hits, *_ in each_part(parts, part, threads))

    warm = np.zeros((2, 2), np.uint64)
    match(warm, warm), match(warm, warm[:1])
    with IdSpill(1) as spill:
        spill.add(warm, [0, 1])
    return _measured(work)


def join_duckdb(folder: str, memory: str = "") -> dict[str, float]:
    """A hash join of the two files, both row numbers kept, counted."""
    import duckdb

    def work() -> int:
        base = duckdb.connect()
        base.execute("set threads = 2")
        if memory:
            base.execute(f"set memory_limit = '{memory}'")
        base.execute(f"set temp_directory = '{folder}/duckdb'")
        found = base.execute(
            f"select count(*), sum(w.row), sum(t.row) from '{folder}/wanted.parquet' w "
            f"join '{folder}/there.parquet' t on w.id = t.id"
        ).fetchone()
        return int(found[0]) if found else 0

    return _measured(work)


def join_polars(folder: str) -> dict[str, float]:
    """The same with polars, lazily."""
    import polars as pl

    def work() -> int:
        wanted, there = (pl.scan_parquet(f"{folder}/{name}.parquet") for name in ("wanted", "there"))
        joined = wanted.join(there, on="id", how="inner").select(
            pl.len(), pl.col("row").sum(), pl.col("row_right").sum()
        )
        return int(joined.collect()[0, 0])

    return _measured(work)


def make_index(folder: str, documents: int, tasks: int) -> int:
    """Write a replay index of made-up ids; returns its bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    from tokenreel.hashing import sha256_file
    from tokenreel.replay import metadata as meta
    from tokenreel.replay.files import file_name, index_schema

    root = Path(folder)
    files, by_bucket = [], np.zeros(200, dtype=np.int64)
    size = documents // tasks
    for task in range(tasks):
        path = root / file_name(task)
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = np.sort(_ids(size, task).view("u8,u8").reshape(-1)).view(np.uint64).reshape(-1, 2)
        buckets = np.random.default_rng(task).integers(0, 200, size).astype(np.int32)
        by_bucket += np.bincount(buckets, minlength=200)
        column = pa.Array.from_buffers(
            pa.binary(16), size, [None, pa.py_buffer(np.ascontiguousarray(ids.astype(">u8")))]
        )
        table = pa.table(
            [pa.array(["web"]).take(pa.array(np.zeros(size, np.int32))), column, pa.array(buckets)],
            schema=index_schema(),
        )
        parquet.write_table(table, path, compression="none", use_dictionary=["source_id"])
        files.append(
            meta.IndexFile(
                path=file_name(task), task_id=task, documents=size, bytes=path.stat().st_size, sha256=sha256_file(path)
            )
        )
    manifest = meta.Manifest(
        documents=size * tasks, tasks=tasks, files=files, documents_by_source={"web": size * tasks},
        documents_by_bucket={str(k): int(n) for k, n in enumerate(by_bucket)},
    )  # fmt: skip
    (root / meta.SOURCES).write_bytes(meta.encoded(meta.Sources(sources=[meta.Source(source_id="web")])))
    (root / meta.MIX).write_bytes(meta.encoded(meta.Mix()))
    (root / meta.MANIFEST).write_bytes(meta.encoded(manifest))
    return sum(file.bytes for file in files)


def validated(folder: str, duplicates: bool, workers: int) -> str:
    from tokenreel.replay.opening import open_place
    from tokenreel.replay.validate import Asked, validate

    return validate(open_place(folder), Asked(full=True, duplicates=duplicates, workers=workers)).status


def _sha(path: str) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def hashed(folder: str, processes: int) -> int:
    paths = [str(path) for path in sorted(Path(folder).rglob("*.parquet"))]
    with ProcessPoolExecutor(processes) as pool:
        return len(list(pool.map(_sha, paths)))


def _count_spans(kind: type) -> list[int]:
    """From here on, count calls of `spans` and `spans_at` of a class of orders; returns where the count stands."""
    count = [0]

    def counted(plain: Any) -> Any:
        def call(self: Any, *arguments: Any) -> Any:
            count[0] += 1
            return plain(self, *arguments)

        return call

    for name in ("spans", "spans_at"):
        setattr(kind, name, counted(getattr(kind, name)))
    return count


class _Table:
    """A corpus of equal documents that takes no memory."""

    def __init__(self, documents: int, length: int) -> None:
        from tokenreel.spans import CorpusKey

        self.documents, self.length, self.tokens = documents, length, documents * length
        self.key = CorpusKey("files", "made-up", documents, self.tokens)

    def lengths(self, i: int, j: int) -> Any:
        return np.full(j - i, self.length, dtype=np.int64)

    def offsets_at(self, docs: Any) -> Any:
        return np.asarray(docs, dtype=np.int64) * self.length

    def at_tokens(self, positions: Any) -> Any:
        return np.asarray(positions, dtype=np.int64) // self.length


def trace_closed(windows: int) -> dict[str, Any]:
    """Open an order over made-up windows and find a document; milliseconds each, medians of 50."""
    from tokenreel.order.windows import WindowsOrder

    row = 2048
    table = _Table(windows * row // 700, 700)
    WindowsOrder.over(_Table(1000, 700), row, 1).locate(0, [5], 0, 100)
    seconds, hits, calls = [], 0, _count_spans(WindowsOrder)
    for k in range(50):
        begin = time.perf_counter()
        order = WindowsOrder.over(table, row, seed=k)
        hits += len(order.locate(0, [table.documents // (k + 2)], 0, int(order.length or 0)).sample)
        seconds.append(time.perf_counter() - begin)
    return {"ms": sorted(seconds)[25] * 1e3, "hits": hits, "calls": calls[0] / 50}


def trace_indexed(documents: int) -> dict[str, Any]:
    """Prepare Megatron's order over made-up documents, find documents; seconds of the first, milliseconds of later ones."""
    from tokenreel.order.megatron import MegatronOrder

    MegatronOrder.over(_Table(1000, 700), 2048, seed=1, samples=None).prepare().locate(0, [5], 0, 100)
    table = _Table(documents, 700)
    before = _now()
    order = MegatronOrder.over(table, 2048, seed=1, samples=None).prepare()
    prepared = _now() - before
    calls = _count_spans(MegatronOrder)
    end = int(order.length or 0)
    begin = time.perf_counter()
    order.locate(0, [documents // 3], 0, end)
    first = time.perf_counter() - begin
    later = []
    for k in range(20):
        begin = time.perf_counter()
        order.locate(0, [documents // (k + 2)], 0, end)
        later.append(time.perf_counter() - begin)
    return {
        "first": first,
        "later_ms": sorted(later)[10] * 1e3,
        "prepared": prepared,
        "inverse": _now() - before - prepared,
        "calls": calls[0] / 21,
    }


if __name__ == "__main__":
    serve(
        {
            name: value
            for name, value in vars(sys.modules["__main__"]).items()
            if callable(value) and not name.startswith("_")
        }
    )
