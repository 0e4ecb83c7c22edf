"""A sample of documents, read one by one: which are chosen, and what their ids show."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import TokenreelError
from tokenreel.verify.special import Special
from tokenreel.verify.stream import Read, read_pieces
from tokenreel.verify.troubles import report

if TYPE_CHECKING:
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.stream import Visit
    from tokenreel.verify.target import Target


def choose_documents(total: int, sample: int, seed: int) -> list[int]:
    """Return which of `total` documents a sample of `sample` reads: the first, the last, and others by `seed`; sorted.

    >>> choose_documents(5, 9, 0), len(choose_documents(10**12, 100, 0))
    ([0, 1, 2, 3, 4], 100)
    """
    if total <= sample:
        return list(range(total))
    chosen = {0, total - 1}
    draw = random.Random(seed)  # noqa: S311 (a sample, not a secret)
    while len(chosen) < sample:
        chosen.add(draw.randrange(total))
    return sorted(chosen)[: max(sample, 0)]


def read_sample(target: Target, findings: Findings, sample: int, seed: int, visit: Visit | None = None) -> Read:
    """Read a sample of the documents of all shards and add what their ids show. Cost: one read per document."""
    opened = list(target.opened())
    bases = np.cumsum([0, *(shard.documents for _, shard in opened)])
    read = Read()
    for document in choose_documents(int(bases[-1]), sample, seed):
        number = int(np.searchsorted(bases, document, side="right")) - 1
        found, shard = opened[number]
        local = document - int(bases[number])
        begin, end = (int(edge) for edge in shard.document_edges(local, local + 1))
        try:
            ids = read_pieces(shard, begin, end)
        except TokenreelError as error:
            findings.caught(error, target.store.root, shard=found.name, document=local)
            continue
        lengths = np.array([end - begin], dtype=np.int64)
        report(target, read, findings, shard, (local, begin), ids, lengths)
        if found.name not in read.special:
            read.special[found.name] = Special.of(target.read_boundary(shard))
        read.special[found.name].update(ids, lengths)
        if visit is not None:
            visit(found, local, ids, lengths)
        read.documents += 1
        read.tokens += end - begin
    return read
