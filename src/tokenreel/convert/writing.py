"""Write one target shard from its run of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenreel.convert.framing import reframe
from tokenreel.convert.source import has_weights
from tokenreel.formats.writing import FactsWriter, FinishedShard, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokenreel.convert.fitting import Target
    from tokenreel.convert.planning import PlannedShard
    from tokenreel.convert.source import Batch, Source
    from tokenreel.formats.writing import DocumentFacts, Writing

    Facts = Callable[[int, int], Sequence[DocumentFacts]]


def write_shard(
    root: Path,
    shard: PlannedShard,
    source: Source,
    target: Target,
    writing: Writing,
    *,
    facts: Facts | None = None,
    seen: Callable[[Batch], None] | None = None,
) -> FinishedShard:
    """Write one shard and return what was written; on any error nothing of it stays.

    `facts(first, end)` gives what is known of documents; it is asked where the format holds metadata. `seen` is told of
    every batch that was read.
    """
    options = WriteOptions(target.dtype, target.boundary, target.options)
    writer = writing.open_writer(root, shard.name, options)
    tokens = 0
    # Where some shards of a source have weights, those of the others are 1.
    weighted = target.holds.weights and any(has_weights(corpus) for corpus, *_ in source.parts(shard.begin, shard.end))
    try:
        for batch in source.batches(shard.begin, shard.end):
            ids, lengths, weights = batch.ids, batch.lengths, batch.weights
            if target.reframes(source):
                others = () if weights is None else (weights,)
                ids, lengths, _, cut = reframe(ids, lengths, source.boundary, target.boundary, *others)
                weights = cut[0] if cut else None
            if facts is not None and isinstance(writer, FactsWriter):
                writer.add_facts(facts(batch.first, batch.first + len(lengths)))
            if weighted and weights is None:
                weights = np.ones(len(ids), dtype=np.float32)
            writer.add_documents(ids, lengths, weights if target.holds.weights else None)
            tokens += len(ids)
            if seen is not None:
                seen(batch)
        files = writer.finish()
    except BaseException:
        writer.abort()
        raise
    return FinishedShard(shard.name, shard.end - shard.begin, tokens, files)
