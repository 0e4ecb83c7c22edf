"""`DeclaredCorpus`: a stream of a stated number of tokens that is not there, to plan an order and to ask about it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tokenreel.corpus.corpus import Corpus
from tokenreel.errors import DocumentError
from tokenreel.formats import Boundary
from tokenreel.spans import CorpusKey
from tokenreel.store.memory import MemoryStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tokenreel.formats import Shard
    from tokenreel.spans import DocTable

    I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OneDocument:
    """The table of a stream whose boundaries are unknown: one document."""

    key: CorpusKey

    @property
    def documents(self) -> int:
        """One."""
        return 1

    @property
    def tokens(self) -> int:
        """Tokens of the stream."""
        return self.key.tokens

    def lengths(self, i: int, j: int) -> I64:
        """Return the lengths of documents [i, j)."""
        import numpy as np

        return np.full(j - i, self.key.tokens, dtype=np.int64)

    def offsets_at(self, docs: I64) -> I64:
        """Return the first token of each document named; number 1 is the end."""
        import numpy as np

        return np.asarray(docs, dtype=np.int64) * self.key.tokens

    def at_tokens(self, positions: I64) -> I64:
        """Return zeros."""
        import numpy as np

        return np.zeros(np.asarray(positions).shape, dtype=np.int64)


@dataclass(eq=False, repr=False)
class DeclaredCorpus(Corpus):
    """A corpus that is its size alone: orders, mixtures and traces take it, and whatever asks for ids raises DOC026.

    >>> corpus = DeclaredCorpus.of("web", 1_000_000)
    >>> corpus.tokens, corpus.stream_table().key.kind
    (1000000, 'declared')
    """

    name: str = ""
    size: int = 0

    @classmethod
    def of(cls, name: str, tokens: int) -> DeclaredCorpus:
        """Return a corpus of so many tokens."""
        return cls(MemoryStore(), f"{name} (declared)", (), Boundary(), name=name, size=tokens)

    def __post_init__(self) -> None:
        self.hi = 1
        digest = hashlib.sha256(f"tokenreel-declared-1\n{self.name}\n{self.size}\n".encode()).hexdigest()
        self._table = OneDocument(CorpusKey("declared", digest, 1, self.size))

    def __repr__(self) -> str:
        """Return one short line."""
        return f"<DeclaredCorpus {self.path}: {self.size:,} tokens>"

    @property
    def tokens(self) -> int:
        """Tokens, as stated."""
        return self.size

    @property
    def sequences_count(self) -> int:
        """One."""
        return 1

    @property
    def shard_tokens(self) -> tuple[int, ...]:
        """One shard."""
        return (self.size,)

    def position_of(self, document: int) -> int:
        """Return where a document begins; number 1 is the end."""
        return self.size if document else 0

    def table(self) -> DocTable:
        """Return the table of its one document."""
        return self._table

    def sequences(self) -> DocTable:
        """Return the same table."""
        return self._table

    def shard(self, number: int) -> Shard:  # noqa: ARG002
        """Raise `DocumentError` (DOC026): there is none."""
        self._absent()

    def stream(self, begin: int, end: int) -> Any:  # noqa: ARG002
        """Raise `DocumentError` (DOC026): there are no ids."""
        self._absent()

    def batches(self, *arguments: Any, **named: Any) -> Any:  # noqa: ARG002
        """Raise `DocumentError` (DOC026): there are no ids."""
        self._absent()

    def _absent(self) -> NoReturn:
        raise DocumentError("DOC026", path=self.path, expected="a path in place of tokens", found="a size alone")
