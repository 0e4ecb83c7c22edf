"""Corpora as orders see them: tables of documents or of sequences, both of the `DocTable` protocol."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from tokenreel.errors import DocumentError
from tokenreel.spans import CorpusKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus

    I64 = npt.NDArray[np.int64]

CACHED_SHARDS = 8
KEPT_UNITS = 1 << 20
"""Lengths of a larger table are read as they are asked for."""


def identity_key(corpus: Corpus, identity: str) -> CorpusKey:
    """Return the key of a corpus whose identity is known.

    An identity leaves out the ids before and after documents. Samples hold them, so that they enter the key.
    """
    prefix, suffix = list(corpus.boundary.prefix), list(corpus.boundary.suffix)
    digest = identity
    if prefix or suffix:
        digest = hashlib.sha256(f"tokenreel-identity-key-1\n{identity}\n{prefix} {suffix}\n".encode()).hexdigest()
    return CorpusKey("identity", digest, len(corpus), corpus.tokens)


@dataclass(eq=False)
class UnitTable:
    """The documents or the sequences of a corpus or slice, as a `DocTable`: positions count from its first token.

    Keeps the edges of the last few shards used, 8 bytes a unit.
    """

    corpus: Corpus
    kind: Literal["documents", "sequences"] = "documents"
    _edges: dict[int, I64] = field(default_factory=dict, repr=False)
    _key: CorpusKey | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._parts = list(self._units())
        self._base = list(accumulate((last - first for _, first, last in self._parts), initial=0))
        self._origin = list(
            accumulate((entry.tokens for entry in self.corpus.entries), initial=-self.corpus.first_token)
        )

    def _units(self) -> Iterator[tuple[int, int, int]]:
        """Yield (shard number, first unit, end unit) of the slice."""
        for number, first, last in self.corpus.parts():
            if self.kind == "sequences":
                shard = self.corpus.shard(number)
                first, last = (int(shard.document_sequences(at, at)[0]) for at in (first, last))  # noqa: PLW2901
            yield number, first, last

    def _shard_edges(self, number: int, first: int, last: int) -> I64:
        shard = self.corpus.shard(number)
        return shard.document_edges(first, last) if self.kind == "documents" else shard.sequence_edges(first, last)

    @property
    def documents(self) -> int:
        """Number of units."""
        return self._base[-1]

    @property
    def tokens(self) -> int:
        """Stored tokens of the whole stream."""
        return self.corpus.tokens

    @property
    def key(self) -> CorpusKey:
        """The corpus's key: its recorded identity, else a hash of its tables."""
        if self._key is None:
            self._key = self._make_key()
        return self._key

    def _make_key(self) -> CorpusKey:
        corpus = self.corpus
        recorded = corpus.recorded_identity.get(corpus.split_name or "")
        if recorded and self.kind == "documents" and len(corpus) == sum(e.documents for e in corpus.entries):
            return identity_key(corpus, recorded)
        digest = hashlib.sha256(f"tokenreel-{self.kind}-table-1\n".encode())
        for part in range(len(self._parts)):
            units = self._base[part + 1] - self._base[part]
            for low in range(0, max(1, units), KEPT_UNITS):
                high = min(units, low + KEPT_UNITS)
                edges = self._some_edges(part, low, high)
                digest.update(edges[: None if high == units else -1].astype("<i8").tobytes())
        return CorpusKey("tables", digest.hexdigest(), self.documents, self.tokens)

    def _edges_of(self, part: int) -> I64:
        """Return the edges of one part in positions of the whole stream; keeps the tables of the last few shards."""
        found = self._edges.get(part)
        if found is None:
            number, first, last = self._parts[part]
            edges = self._shard_edges(number, first, last)
            found = edges + self._origin[number]
            found.flags.writeable = False
            while len(self._edges) >= CACHED_SHARDS:
                self._edges.pop(next(iter(self._edges)))
            self._edges[part] = found
        return found

    def _check(self, i: int, j: int) -> None:
        if not 0 <= i <= j <= self.documents:
            raise DocumentError(
                "DOC001",
                path=self.corpus.path,
                expected=f"0 <= i <= j <= {self.documents}",
                found=f"[{i}, {j})",
                hint=f"tokenreel inspect {self.corpus.path}",
            )

    def lengths(self, i: int, j: int) -> I64:
        """Return the stored lengths of units [i, j)."""
        import numpy as np

        self._check(i, j)
        parts = []
        for part in range(len(self._parts)):
            low, high = max(i, self._base[part]), min(j, self._base[part + 1])
            if low < high:
                parts.append(np.diff(self._some_edges(part, low - self._base[part], high - self._base[part])))
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _some_edges(self, part: int, low: int, high: int) -> I64:
        """Return edges [low, high] of a part in positions of the stream; a large table read through once is not kept."""
        number, first, last = self._parts[part]
        if part in self._edges or last - first <= KEPT_UNITS:
            return self._edges_of(part)[low : high + 1]
        return self._shard_edges(number, first + low, first + high) + self._origin[number]

    def offsets_at(self, docs: I64) -> I64:
        """Return the first token of each unit named; unit number `documents` stands for the end of the stream."""
        import numpy as np

        wanted = np.asarray(docs, dtype=np.int64)
        if wanted.size:
            self._check(int(wanted.min()), int(wanted.max()))
        out = np.full(wanted.shape, self.tokens, dtype=np.int64)
        home = np.searchsorted(np.asarray(self._base), wanted, side="right") - 1
        for part in np.unique(home[wanted < self.documents]).tolist():
            mine = (home == part) & (wanted < self.documents)
            out[mine] = self._edges_of(part)[wanted[mine] - self._base[part]]
        return out

    def at_tokens(self, positions: I64) -> I64:
        """Return which unit holds each position; empty units hold none. Raises `DocumentError` (DOC004) outside."""
        import numpy as np

        wanted = np.asarray(positions, dtype=np.int64)
        if wanted.size and (int(wanted.min()) < 0 or int(wanted.max()) >= self.tokens):
            raise DocumentError(
                "DOC004",
                path=self.corpus.path,
                expected=f"0 <= position < {self.tokens}",
                found=f"{int(wanted.min())} .. {int(wanted.max())}",
            )
        out = np.empty(wanted.shape, dtype=np.int64)
        starts = np.array([self._start_of(part) for part in range(len(self._parts))], dtype=np.int64)
        home = np.searchsorted(starts, wanted, side="right") - 1
        for part in np.unique(home).tolist():
            mine = home == part
            edges = self._edges_of(part)
            out[mine] = np.searchsorted(edges, wanted[mine], side="right") - 1 + self._base[part]
        return out

    def _start_of(self, part: int) -> int:
        number, first, _ = self._parts[part]
        inside = int(self._shard_edges(number, first, first)[0]) if first else 0
        return self._origin[number] + inside

    def owners(self, sequences: I64) -> I64:
        """Return the document that owns each sequence; for a table of documents, the documents themselves."""
        import numpy as np

        corpus = self.corpus
        wanted = np.asarray(sequences, dtype=np.int64)
        if self.kind == "documents":
            return wanted
        out = np.empty(wanted.shape, dtype=np.int64)
        home = np.searchsorted(np.asarray(self._base), wanted, side="right") - 1
        first_document = 0
        for part, (number, first, last) in enumerate(corpus.parts()):
            owned = corpus.shard(number).document_sequences(first, last)
            mine = home == part
            local = wanted[mine] - self._base[part] + int(owned[0])
            out[mine] = np.searchsorted(owned, local, side="right") - 1 + first_document
            first_document += len(owned) - 1
        return out
