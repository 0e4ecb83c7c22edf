"""Which tokens of corpora samples read: sets of runs of their streams, joined and counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.spans import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.order.protocol import Order

    I64 = npt.NDArray[np.int64]

PENDING = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Disjoint runs ``[begin, end)`` of one stream, in order, none next to another.

    >>> one = Runs.of(np.array([4, 0, 5]), np.array([6, 2, 9]))
    >>> one.begin.tolist(), one.end.tolist(), one.tokens
    ([0, 4], [2, 9], 7)
    >>> one.shared(Runs.of(np.array([1]), np.array([5])))
    2
    """

    begin: I64
    end: I64

    @classmethod
    def of(cls, begin: I64, end: I64) -> Runs:
        """Join runs that overlap or touch; empty ones go."""
        kept = end > begin
        begin, end = begin[kept], end[kept]
        order = np.argsort(begin, kind="stable")
        begin, reach = begin[order], np.maximum.accumulate(end[order])
        opens = np.ones(len(begin), dtype=bool)
        opens[1:] = begin[1:] > reach[:-1]
        closes = np.append(opens[1:], True)[: len(begin)]
        return cls(begin[opens], reach[closes])

    @property
    def tokens(self) -> int:
        """Tokens in all runs."""
        return int((self.end - self.begin).sum())

    def joined(self, other: Runs) -> Runs:
        """Return what is in either."""
        return Runs.of(np.concatenate((self.begin, other.begin)), np.concatenate((self.end, other.end)))

    def shared(self, other: Runs) -> int:
        """Return the tokens that are in both."""
        return self.tokens + other.tokens - self.joined(other).tokens


NONE = Runs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def read_by(order: Order, i: int, j: int) -> list[Runs]:
    """Return, per corpus of an order, the input tokens that samples [i, j) read. Cost: the spans, and a sort of them."""
    count = len(order.corpora)
    done, waiting = [NONE] * count, [[] for _ in range(count)]  # type: list[Runs], list[list[tuple[I64, I64]]]
    held = 0

    def join() -> None:
        for number in range(count):
            if waiting[number]:
                begins, ends = zip(*waiting[number], strict=True)
                done[number] = done[number].joined(Runs.of(np.concatenate(begins), np.concatenate(ends)))
                waiting[number] = []

    for _, table in order.chunks(i, j):
        stored = (table.flags & Flag.PAD) == 0
        for number in np.unique(table.corpus[stored]).tolist():
            mine = stored & (table.corpus == number)
            begin = table.begin[mine]
            waiting[number].append((begin, begin + table.length[mine]))
            held += len(begin)
        if held > PENDING:
            join()
            held = 0
    join()
    return done


def moved(runs: Runs, old: Corpus, new: Corpus) -> Runs:
    """Return runs of one corpus's stream as runs of another's that has some of its shards, told by name and tokens."""
    from_edges, to = _shards(old), dict(zip(_names(new), _spans(new), strict=True))
    begins, ends = [], []
    for name, (low, high) in from_edges.items():
        there = to.get(name)
        if there is None or there[1] - there[0] != high - low:
            continue
        first = int(np.searchsorted(runs.end, low, side="right"))
        last = int(np.searchsorted(runs.begin, high, side="left"))
        begins.append(np.maximum(runs.begin[first:last], low) - low + there[0])
        ends.append(np.minimum(runs.end[first:last], high) - low + there[0])
    if not begins:
        return NONE
    return Runs.of(np.concatenate(begins), np.concatenate(ends))


def _names(corpus: Corpus) -> list[str]:
    return [entry.name for entry in corpus.entries]


def _spans(corpus: Corpus) -> list[tuple[int, int]]:
    edges = np.concatenate(([0], np.cumsum(corpus.shard_tokens))).astype(np.int64) - corpus.first_token
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _shards(corpus: Corpus) -> dict[str, tuple[int, int]]:
    return dict(zip(_names(corpus), _spans(corpus), strict=True))


def by_name(names: Sequence[str], runs: Sequence[Runs]) -> dict[str, Runs]:
    """Return runs by the name of their corpus; one that stands at several numbers is joined."""
    out: dict[str, Runs] = {}
    for name, one in zip(names, runs, strict=True):
        out[name] = out[name].joined(one) if name in out else one
    return out
