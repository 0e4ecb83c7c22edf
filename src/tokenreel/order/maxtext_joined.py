"""Several corpora read as one stream, as MaxText reads a list of prefixes: end to end, documents numbered on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.spans import KEY_KINDS, UNRESOLVED, CorpusKey, Flag, SpanTable

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.spans import DocTable

    Tables = DocTable | Sequence[DocTable]

    I64 = npt.NDArray[np.int64]


def join(tables: Tables) -> JoinedTable:
    """Return one table, or several in their order, as one."""
    return JoinedTable(tuple(tables) if isinstance(tables, Sequence) else (tables,))


@dataclass(frozen=True, slots=True, eq=False)
class JoinedTable:
    """Tables end to end, itself a `DocTable`; `apart` names the corpora again.

    Raises `OrderError` (ORD002) for no table. Costs nothing until it is asked.
    """

    tables: tuple[DocTable, ...]
    document_edges: I64 = field(init=False, repr=False)
    token_edges: I64 = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.tables:
            raise OrderError("ORD002", "corpora", expected="at least one", found=0)
        for name in ("documents", "tokens"):
            counts = [0] + [getattr(table, name) for table in self.tables]
            object.__setattr__(self, f"{name[:-1]}_edges", np.cumsum(counts, dtype=np.int64))

    @property
    def key(self) -> CorpusKey:
        """The only table's key, else a hash of all keys, of the weakest kind among them."""
        keys = [table.key for table in self.tables]
        if len(keys) == 1:
            return keys[0]
        digest = hashlib.sha256(b"tokenreel-joined-1\n")
        for key in keys:
            digest.update(f"{key.kind} {key.digest} {key.documents} {key.tokens}\n".encode())
        kind = max((key.kind for key in keys), key=KEY_KINDS.index)
        return CorpusKey(kind, digest.hexdigest(), self.documents, self.tokens)

    @property
    def documents(self) -> int:
        """Documents of all tables."""
        return int(self.document_edges[-1])

    @property
    def tokens(self) -> int:
        """Tokens of all tables."""
        return int(self.token_edges[-1])

    def lengths(self, i: int, j: int) -> I64:
        """Return the stored lengths of documents [i, j)."""
        parts = [np.empty(0, dtype=np.int64)]
        for number, table in enumerate(self.tables):
            first, end = int(self.document_edges[number]), int(self.document_edges[number + 1])
            low, high = max(i, first), min(j, end)
            if low < high:
                parts.append(table.lengths(low - first, high - first))
        return np.concatenate(parts)

    def offsets_at(self, docs: I64) -> I64:
        """Return the first token of each document named; `documents` stands for the end."""
        wanted = np.asarray(docs, dtype=np.int64)
        out = np.full(wanted.shape, self.tokens, dtype=np.int64)
        home = np.searchsorted(self.document_edges, wanted, side="right") - 1
        for number in np.unique(home[wanted < self.documents]).tolist():
            mine = home == number
            local = wanted[mine] - self.document_edges[number]
            out[mine] = self.tables[number].offsets_at(local) + self.token_edges[number]
        return out

    def at_tokens(self, positions: I64) -> I64:
        """Return which document holds each position."""
        wanted = np.asarray(positions, dtype=np.int64)
        out = np.empty(wanted.shape, dtype=np.int64)
        home = self.corpus_of(wanted)
        for number in np.unique(home).tolist():
            mine = home == number
            local = wanted[mine] - self.token_edges[number]
            out[mine] = self.tables[number].at_tokens(local) + self.document_edges[number]
        return out

    def check_documents(self, corpus: int, documents: npt.ArrayLike) -> I64:
        """Return `documents` as an array; raises `OrderError`: ORD002 for a table that is not there, ORD003 for a document."""
        if not 0 <= corpus < len(self.tables):
            raise OrderError("ORD002", "corpus", expected=f"0 .. {len(self.tables) - 1}", found=corpus)
        docs = np.asarray(documents, dtype=np.int64).reshape(-1)
        last = self.tables[corpus].documents - 1
        if docs.size and (int(docs.min()) < 0 or int(docs.max()) > last):
            found = f"{int(docs.min())} .. {int(docs.max())}"
            raise OrderError("ORD003", "a document that the corpus does not have", expected=f"0 .. {last}", found=found)
        return docs

    def corpus_of(self, positions: I64) -> I64:
        """Return the number of the table that holds each position; the end of the stream counts as the last one's."""
        home = np.searchsorted(self.token_edges, positions, side="right") - 1
        return np.minimum(home, len(self.tables) - 1)

    def apart(self, table: SpanTable) -> SpanTable:
        """Return the same samples with each extent in its own corpus, cut where one ends.

        A look-ahead that falls in the next corpus becomes an extent of length 0 there. Cost: O(extents).
        """
        if len(self.tables) == 1:
            return table
        begin, end = table.begin, table.begin + table.length
        ahead = (table.flags & Flag.AHEAD) != 0
        first = self.corpus_of(begin)
        last = self.corpus_of(end - (~ahead | (end == self.tokens)))
        counts = last - first + 1
        parent = np.repeat(np.arange(table.extents, dtype=np.int64), counts)
        corpus = first[parent] + np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts)
        low = np.maximum(begin[parent], self.token_edges[corpus])
        length = np.minimum(end[parent], self.token_edges[corpus + 1]) - low
        label = ahead[parent] & (corpus == last[parent])
        keep = (length > 0) | label
        flags = table.flags[parent] & np.uint8(0xFF ^ Flag.AHEAD)
        document, start = table.document[parent].copy(), table.start[parent].copy()
        moved = label & (length <= 0) & (table.length[parent] > 0)
        if bool(moved.any()):
            flags[moved] = 0
            known = moved & (document != UNRESOLVED)
            document[known] = self.at_tokens(low[known])
            start[known] = 0
        flags[label] |= np.uint8(Flag.AHEAD)
        document = np.where(document == UNRESOLVED, document, document - self.document_edges[corpus])
        kept = np.concatenate(([0], np.cumsum(np.bincount(parent[keep], minlength=table.extents))))
        return SpanTable.of(
            kept[table.splits],
            (low - self.token_edges[corpus])[keep],
            length[keep],
            corpus=corpus[keep],
            document=document[keep],
            start=start[keep],
            flags=flags[keep],
        )
