"""Small corpora whose every id is another, so that ids say where they come from, and feeds over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tokenreel
from tokenreel.corpus.corpus import Corpus
from tokenreel.feed.feed import Feed
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.order.mix import Component, MixOrder
from tokenreel.order.mix_phases import Phase
from tokenreel.order.protocol import Order
from tokenreel.order.windows import WindowsOrder


def write_corpus(folder: Path, shards: list[list[int]], *, first: int = 0, names: list[str] | None = None) -> Path:
    """Write pairs whose documents have these lengths; ids count from `first` through all shards."""
    folder.mkdir(parents=True, exist_ok=True)
    at = first
    for number, lengths in enumerate(shards):
        name = names[number] if names else f"part-{number:03d}"
        with MegatronWriter(folder / name, np.int32) as writer:
            total = sum(lengths)
            writer.add_documents(np.arange(at, at + total), np.array(lengths, dtype=np.int64))
            writer.finish()
        at += total
    return folder


def corpus_of(folder: Path, tokens: int, *, first: int = 0) -> Corpus:
    """Return a corpus of `tokens` ids in documents of 1 to 40."""
    lengths, left, k = [], tokens, 0
    while left:
        lengths.append(min(left, 1 + (k * 17 + 5) % 40))
        left -= lengths[-1]
        k += 1
    half = len(lengths) // 2
    return tokenreel.open(write_corpus(folder, [lengths[:half], lengths[half:]] if half else [lengths], first=first))


def stream_over(corpus: Corpus, row_tokens: int = 4, **options: Any) -> tokenreel.StreamOrder:
    return tokenreel.StreamOrder.over(corpus.table(), row_tokens, shard_tokens=corpus.shard_tokens, **options)


def windows_over(corpus: Corpus, row_tokens: int = 4, **options: Any) -> WindowsOrder:
    return WindowsOrder.over(corpus.table(), row_tokens, options.pop("seed", 7), **options)


def mixed(corpora: list[Corpus], *weights: tuple[int, tuple[float, ...]], samples: int | None = None) -> MixOrder:
    """Return a mixture of windows over corpora: phases of (first sample, weights)."""
    parts = tuple(
        Component(name, windows_over(corpus), "repeat") for name, corpus in zip("abcdef", corpora, strict=False)
    )
    return MixOrder(parts, tuple(Phase(begin, shares) for begin, shares in weights), seed=3, block=8, samples=samples)


def rows_of(order: Order, corpora: list[Corpus], samples: range) -> list[list[int]]:
    """Return input ids and the last label of samples, read one by one without a feed."""
    out = []
    for sample in samples:
        table = order.spans(sample, sample + 1)
        ids: list[int] = []
        for e in range(table.extents):
            begin, end = int(table.begin[e]), int(table.begin[e] + table.length[e])
            end += bool(table.flags[e] & tokenreel.Flag.AHEAD)
            ids += corpora[int(table.corpus[e])].stream(begin, end).tolist()
        out.append(ids)
    return out


def row_ids(batch: tokenreel.Batch) -> list[list[int]]:
    """Return the rows of a batch as `rows_of` does."""
    inputs, labels = batch["input_ids"].tolist(), batch["labels"].tolist()
    return [[*one, two[-1]] for one, two in zip(inputs, labels, strict=True)]


def open_all(order: Order, corpora: list[Corpus], world: int, **options: Any) -> list[Feed]:
    """Return the feeds of all ranks."""
    return [tokenreel.open_feed(order, corpora=corpora, world=world, rank=rank, **options) for rank in range(world)]


def global_rows(batches: list[tokenreel.Batch]) -> list[list[int]]:
    """Return the rows of one step's batches of all ranks, in the order of samples."""
    rows = {}
    for batch in batches:
        for sample, row in zip(batch.samples.tolist(), row_ids(batch), strict=True):
            assert sample not in rows
            rows[sample] = row
    return [rows[sample] for sample in sorted(rows)]
