"""What is converted: the documents of one or more corpora, end to end, read in runs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.errors import DocumentError, TokenError
from tokenreel.formats.writing import WeightsShard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats import Boundary, Shard

    Ids = npt.NDArray[np.integer[Any]]
    I64 = npt.NDArray[np.int64]

BLOCK = 1 << 17
"""Documents whose lengths are looked at together."""
STEP = 1 << 21
"""Ids of a batch: few enough that what is made of them stays in the processor's cache, enough that threads seldom wait for
each other."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole documents as they are stored."""

    first: int
    """Number of the first one, over all corpora."""
    ids: Ids
    lengths: I64
    weights: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Corpora of one dtype and one boundary, in order; none of them a root with splits."""

    corpora: tuple[Corpus, ...]
    bases: tuple[int, ...]
    """Documents before each corpus, and all of them."""

    @classmethod
    def of(cls, corpora: Sequence[Corpus]) -> Source:
        """Return the documents of `corpora` as one source; finds documents where they have to be searched for.

        Raises `DocumentError`: DOC002 for a corpus whose boundary is unknown; `TokenError` (TOK004) where boundaries
        differ.
        """
        first = corpora[0].boundary
        for corpus in corpora:
            if not corpus.boundary.known:
                raise DocumentError("DOC002", path=corpus.path, hint="--boundary suffix=ID")
            if (corpus.boundary.prefix, corpus.boundary.suffix) != (first.prefix, first.suffix):
                raise TokenError(
                    "TOK004",
                    "corpora of different boundaries are not merged",
                    path=corpus.path,
                    expected=f"prefix {list(first.prefix)}, suffix {list(first.suffix)}, as in {corpora[0].path}",
                    found=f"prefix {list(corpus.boundary.prefix)}, suffix {list(corpus.boundary.suffix)}",
                    hint=f"tokenreel convert {corpus.path} NEW --to-boundary ...",
                )
        return cls(tuple(corpora), tuple(accumulate((len(corpus) for corpus in corpora), initial=0)))

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.bases[-1]

    @property
    def tokens(self) -> int:
        """Stored ids."""
        return sum(corpus.tokens for corpus in self.corpora)

    @property
    def boundary(self) -> Boundary:
        """How documents are delimited."""
        return self.corpora[0].boundary

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The stored integer types, each once."""
        return tuple(dict.fromkeys(corpus.dtype.name for corpus in self.corpora))

    def parts(self, begin: int, end: int) -> Iterator[tuple[Corpus, int, int, int]]:
        """Yield (corpus, its number of documents before, first, end in it) for documents [begin, end)."""
        for corpus, base in zip(self.corpora, self.bases, strict=False):
            low, high = max(begin - base, 0), min(end - base, len(corpus))
            if low < high:
                yield corpus, base, low, high

    def lengths(self, begin: int, end: int) -> I64:
        """Return the stored lengths of documents [begin, end)."""
        import numpy as np

        parts = [
            np.diff(edges) for corpus, _, low, high in self.parts(begin, end) for edges in _edges(corpus, low, high)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def stored(self, begin: int, end: int) -> int:
        """Return the stored ids of documents [begin, end)."""
        total = 0
        for corpus, _, low, high in self.parts(begin, end):
            for at in range(low, high, BLOCK):
                total += sum(int(edges[-1] - edges[0]) for edges in _edges(corpus, at, min(at + BLOCK, high)))
        return total

    def blocks(self) -> Iterator[tuple[int, I64]]:
        """Yield (first document, stored lengths) for runs of documents, in order."""
        for begin in range(0, self.documents, BLOCK):
            yield begin, self.lengths(begin, min(begin + BLOCK, self.documents))

    def batches(self, begin: int, end: int) -> Iterator[Batch]:
        """Yield documents [begin, end) in order, two million ids at a time or one longer document."""
        for corpus, base, low, high in self.parts(begin, end):
            if isinstance(corpus, StreamCorpus):
                at = low
                for ids, lengths in corpus[low:high].batches(STEP):
                    yield Batch(base + at, ids, lengths)
                    at += len(lengths)
                continue
            first = low
            for number, begins, ends in _runs(corpus, low, high):
                yield from _shard_batches(corpus.shard(number), base + first, begins, ends)
                first += ends - begins

    def shard_edges(self) -> list[int]:
        """Return the documents with which source shards begin, and the number of all: as the corpora are cut now."""
        import numpy as np

        edges = [0]
        for corpus, base in zip(self.corpora, self.bases, strict=False):
            if isinstance(corpus, StreamCorpus):
                begins = np.cumsum([0, *(entry.tokens for entry in corpus.entries)])[:-1]
                edges += (np.searchsorted(corpus.edges()[:-1], begins) + base).tolist()
            else:
                edges += [base + at for at in accumulate(entry.documents for entry in corpus.entries)]
        return sorted({edge for edge in edges if 0 < edge < self.documents} | {0, self.documents})

    def place(self, document: int) -> dict[str, Any]:
        """Return where a document is, as errors name it."""
        for corpus, base in zip(self.corpora, self.bases, strict=False):
            if base <= document < base + len(corpus):
                number, _ = corpus.locate_document(document - base)
                return {"path": corpus.path, "shard": corpus.entries[number].name, "document": document - base}
        return {"document": document}

    def close(self) -> None:
        """Give all handles back."""
        for corpus in self.corpora:
            corpus.close()


def _runs(corpus: Corpus, low: int, high: int) -> Iterator[tuple[int, int, int]]:
    """Yield (shard number, first document, end document in it) for documents [low, high); finds the first by bisection."""
    number, local = corpus.locate_document(low)
    left = high - low
    while left > 0:
        take = min(left, corpus.entries[number].documents - local)
        if take > 0:
            yield number, local, local + take
        left -= take
        number, local = number + 1, 0


def _edges(corpus: Corpus, low: int, high: int) -> Iterator[I64]:
    """Yield the edges of documents [low, high), a shard at a time."""
    if isinstance(corpus, StreamCorpus):
        yield corpus.edges()[corpus.lo + low : corpus.lo + high + 1]
        return
    for number, first, last in _runs(corpus, low, high):
        yield corpus.shard(number).document_edges(first, last)


def _shard_batches(shard: Shard, number: int, first: int, last: int) -> Iterator[Batch]:
    """Yield documents [first, last) of a shard, of which `number` is the first one's number in the source."""
    import numpy as np

    weighted = isinstance(shard, WeightsShard) and shard.weights(0, 0) is not None
    for at in range(first, last, BLOCK):
        edges = shard.document_edges(at, min(last, at + BLOCK))
        while len(edges) > 1:
            take = max(1, int(np.searchsorted(edges, edges[0] + STEP, side="right")) - 1)
            begin, end = int(edges[0]), int(edges[take])
            ids = shard.read(begin, end)
            weights = _weights(shard, begin, end) if weighted else None
            yield Batch(number, ids, np.diff(edges[: take + 1]), weights)
            number += take
            edges = edges[take:]


_WEIGHTED: WeakKeyDictionary[Corpus, bool] = WeakKeyDictionary()


def has_weights(corpus: Corpus) -> bool:
    """Return whether any shard of a corpus holds weights of tokens; looked up once."""
    found = _WEIGHTED.get(corpus)
    if found is None:
        found = not isinstance(corpus, StreamCorpus) and bool(corpus.entries)
        found = found and isinstance(corpus.shard(0), WeightsShard)
        found = found and any(_weights(corpus.shard(n), 0, 0) is not None for n in range(len(corpus.entries)))
        _WEIGHTED[corpus] = found
    return found


def _weights(shard: Shard, begin: int, end: int) -> npt.NDArray[np.float32] | None:
    found: npt.NDArray[np.float32] | None = shard.weights(begin, end) if isinstance(shard, WeightsShard) else None
    return found
