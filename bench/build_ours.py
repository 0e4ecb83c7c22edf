"""tokenreel's side of bench/build.py: the command as a user runs it, and the bare engine on text already in memory."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import serve

WORKERS = 2
BATCH = 8 << 20  # bytes of text per call, as in a build


def build(recipe: str, out: str, workers: int = WORKERS) -> dict[str, Any]:
    """Run `tokenreel build`, start-up, probe, checksums and the final re-reading included; tokens as the files hold them."""
    command = [sys.executable, "-m", "tokenreel", "build", recipe, "--out", out, "--workers", str(workers), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"tokenreel build ended with {done.returncode}: {done.stdout}{done.stderr}")
    tokens = sum(path.stat().st_size for path in Path(out).glob("shards/**/*.bin")) // 2
    log = Path(out) / "build.log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return {"tokens": tokens, "report": json.loads(done.stdout), "log": lines}


def probe(tokenizer: str, sample: str) -> dict[str, Any]:
    """Choose an engine as a build does, on the first texts of a Parquet file."""
    import pyarrow.parquet as pq

    from tokenreel.text import TokenizerSpec, choose_engine, load_tokenizer

    tok = load_tokenizer(TokenizerSpec.parse({"path": tokenizer, "eod": "<|endoftext|>"}))
    texts = pq.read_table(sample, columns=["text"]).column(0).to_pylist()[:1000]
    begin = time.perf_counter()
    choice = choose_engine(tok, texts)
    return {
        "name": choice.name,
        "version": choice.version,
        "seconds": time.perf_counter() - begin,
        "rejected": choice.rejected,
    }


def _batches(path: str) -> list[Any]:
    """A file's texts as LargeStringArrays of about BATCH bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pq.read_table(path, columns=["text"]).column(0).cast(pa.large_string()).combine_chunks()
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.chunk(0)
    count = max(1, round(texts.nbytes / BATCH))
    size = -(-len(texts) // count)
    # Each batch owns its buffers, as a reader's does.
    return [pa.concat_arrays([texts.slice(begin, size)]) for begin in range(0, len(texts), size)]


def _encode(files: Sequence[str], engine: str, tokenizer: str, barrier: Any, answers: Any) -> None:
    from tokenreel.text import TokenizerSpec, load_tokenizer
    from tokenreel.text.engines import CANDIDATES

    tok = load_tokenizer(TokenizerSpec.parse({"path": tokenizer, "eod": "<|endoftext|>"}))
    opened = next(candidate for candidate in CANDIDATES if candidate.name == engine).open(tok, special=False, threads=1)
    loaded = [_batches(path) for path in files]
    barrier.wait()
    rows = []
    for batches in loaded:
        cpu, begin, tokens = time.process_time(), time.perf_counter(), 0
        for batch in batches:
            tokens += len(opened.encode(batch)[0])
        size = sum(batch.nbytes - 8 * (len(batch) + 1) for batch in batches)
        rows.append(
            {"bytes": size, "tokens": tokens, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - begin}
        )
    answers.put(rows)


def raw(files: list[str], engine: str, tokenizer: str) -> list[list[dict[str, Any]]]:
    """Two processes at once, one thread each, half of the files each; per file: bytes, tokens, CPU and wall seconds in the engine alone.

    A process meets each file once, in order: its first file is the cold figure, the later ones, unseen text too, the warm one.
    """
    os.environ["RAYON_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(WORKERS), context.Queue()
    workers = [
        context.Process(target=_encode, args=(files[number::WORKERS], engine, tokenizer, barrier, answers))
        for number in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    try:
        return [answers.get(timeout=600) for _ in workers]
    finally:
        for worker in workers:
            worker.join(timeout=30)


def profile(recipe: str, out: str) -> dict[str, Any]:
    """Build in this one process, sampled: CPU seconds by function, and in all."""
    from sampling import sample

    import tokenreel
    from tokenreel.build.run import build as build_here

    _, spent, total = sample(lambda: build_here(recipe, out=out, in_process=True), Path(tokenreel.__file__).parent)
    return {"spent": spent, "total": total}


if __name__ == "__main__":
    serve({"build": build, "probe": probe, "raw": raw, "profile": profile})
