"""Every order over tiny corpora: what the proofs of resuming, in process and by SIGKILL, go through."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.config.run import parse_run
from tokenreel.feed.opening import open_feed
from tokenreel.index.assemble import Assembled, assemble
from tokenreel.index.files import put
from tokenreel.index.maxtext import convert
from tokenreel.testing import write_corpus
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
TWO_EPOCHS = ("windows-io", "maxtext-mmap")
"""Orders whose second half is a second epoch."""


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
    return order_over(folder, order_tables(samples)[name])


def order_over(folder: Path, table: dict[str, Any]) -> Assembled:
    """Return the order of a run file's [order] table over the data in `folder`, prepared."""
    corpora = [{"name": "web", "path": "web"}, {"name": "code", "path": "code.idx"}]
    if not (folder / "web").is_dir():
        corpora[0]["path"] = "web.idx"
    (segment,) = parse_run({"corpus": corpora, "order": table})
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
