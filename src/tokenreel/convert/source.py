"""What is converted: the documents of one or more corpora, end to end, read in runs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.errors import DocumentError, TokenError
from tokenreel.formats.writing import WeightsShard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats import Boundary

    Ids = npt.NDArray[np.integer[Any]]
    I64 = npt.NDArray[np.int64]

BLOCK = 1 << 17
"""Documents whose lengths are looked at together."""
STEP = 1 << 19
"""Ids of a batch: few enough that what is made of them stays in the processor's cache."""


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

        parts = [corpus.lengths(low, high) for corpus, _, low, high in self.parts(begin, end)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def blocks(self) -> Iterator[tuple[int, I64]]:
        """Yield (first document, stored lengths) for runs of documents, in order."""
        for begin in range(0, self.documents, BLOCK):
            yield begin, self.lengths(begin, min(begin + BLOCK, self.documents))

    def batches(self, begin: int, end: int) -> Iterator[Batch]:
        """Yield documents [begin, end) in order, half a million ids at a time or one longer document."""
        for corpus, base, low, high in self.parts(begin, end):
            weighted = has_weights(corpus)
            at = low
            for ids, lengths in corpus[low:high].batches(STEP):
                weights = _weights(corpus, at, len(ids)) if weighted else None
                yield Batch(base + at, ids, lengths, weights)
                at += len(lengths)

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


def has_weights(corpus: Corpus) -> bool:
    """Return whether the shards of a corpus hold weights of tokens."""
    if isinstance(corpus, StreamCorpus) or not corpus.entries:
        return False
    return isinstance(corpus.shard(0), WeightsShard) and any(
        _shard_weights(corpus, number, 0, 0) is not None for number in range(len(corpus.entries))
    )


def _shard_weights(corpus: Corpus, number: int, begin: int, end: int) -> npt.NDArray[np.float32] | None:
    shard = corpus.shard(number)
    return shard.weights(begin, end) if isinstance(shard, WeightsShard) else None


def _weights(corpus: Corpus, first: int, tokens: int) -> npt.NDArray[np.float32]:
    """Return the weights of `tokens` ids from document `first` on, which lie in one shard."""
    import numpy as np

    number, local = corpus.locate_document(first)
    begin = int(corpus.shard(number).document_edges(local, local)[0])
    found = _shard_weights(corpus, number, begin, begin + tokens)
    return np.ones(tokens, dtype=np.float32) if found is None else found
