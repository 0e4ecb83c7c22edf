"""`Corpus`: an ordered sequence of documents in one or more shards."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self, overload

from tokenreel.corpus.table import UnitTable
from tokenreel.errors import DocumentError, SplitError
from tokenreel.formats import Found, open_shard
from tokenreel.hashing import Identity, IdentityHasher

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.layout import ShardEntry
    from tokenreel.corpus.manifest import Manifest
    from tokenreel.corpus.pieces import Pieces
    from tokenreel.corpus.statistics import Statistics
    from tokenreel.formats import Boundary, Shard
    from tokenreel.spans import DocTable, SpanTable
    from tokenreel.store import Store

    Ids = npt.NDArray[np.integer[Any]]

BATCH_BYTES = 1 << 22
"""Ids read at a time: small enough that `Reader.array` copies, so a file that shrinks meanwhile is an error."""
BATCH_DOCUMENTS = 1 << 17


@dataclass(eq=False)
class Corpus:
    """Documents over shards, read-only. Made by `tokenreel.open`; nothing is read until it is asked for.

    ``len(corpus)`` documents; ``corpus[i]`` the stored ids of one; ``corpus[i:j]`` a corpus of some of them. A root with
    splits must be narrowed with ``.split(name)`` first: until then everything that needs documents raises SPL001.

    >>> from tokenreel.formats.megatron_write import MegatronWriter
    >>> import numpy as np, tempfile, tokenreel
    >>> folder = tempfile.mkdtemp()
    >>> with MegatronWriter(f"{folder}/web", np.uint16) as writer:
    ...     writer.add_documents(np.array([5, 6, 0, 7, 0]), np.array([3, 2]))
    ...     files = writer.finish()
    >>> corpus = tokenreel.open(folder, boundary="suffix=0")
    >>> len(corpus), corpus.tokens, corpus[1].tolist(), corpus.content(0).tolist()
    (2, 5, [7, 0], [5, 6])
    """

    store: Store
    path: str
    """Where it was opened, for messages."""
    entries: tuple[ShardEntry, ...]
    boundary: Boundary
    split_entries: dict[str, tuple[ShardEntry, ...]] = field(default_factory=dict)
    """Shards by split, where this is a root that has splits and none was chosen."""
    split_name: str | None = None
    manifest: Manifest | None = None
    """What ``tokenreel.json`` says, if there is one."""
    recorded_identity: dict[str, str] = field(default_factory=dict)
    """Identity by split as the manifest records it."""
    accept: tuple[str, ...] = ()
    vocab: int | None = None
    lo: int = 0
    hi: int | None = None
    """Documents [lo, hi) of the shards: a slice."""
    _shards: dict[int, Shard] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._documents = list(accumulate((entry.documents for entry in self.entries), initial=0))
        self._sequences = list(accumulate((entry.sequences for entry in self.entries), initial=0))
        self._tokens = list(accumulate((entry.tokens for entry in self.entries), initial=0))
        if self.hi is None:
            self.hi = self._documents[-1]

    def __repr__(self) -> str:
        """Return one short line: where, and how much; nothing is read for it."""
        kinds = self.split_entries or {self.split_name or "": self.entries}
        said = []
        for name, entries in kinds.items():
            documents, tokens = sum(e.documents for e in entries), sum(e.tokens for e in entries)
            count = documents if self.split_entries else (self.hi or 0) - self.lo
            text = f"{name} {count:,} document{'' if count == 1 else 's'}".strip()
            if not self.boundary.known:
                text = f"{name} boundaries unknown".strip()
            said.append(f"{text}, {tokens:,} tokens" if count == documents else f"{text} from {self.lo:,}")
        return f"<Corpus {self.path}: {'; '.join(said)}>"

    # -- splits -------------------------------------------------------------------------------------------------------

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, empty where the corpus has none or one was chosen."""
        return tuple(self.split_entries)

    def split(self, name: str) -> Corpus:
        """Return one split as a corpus; raises `SplitError` (SPL002) naming the splits there are."""
        if name not in self.split_entries:
            there = f"one of: {', '.join(self.split_entries)}" if self.split_entries else "no split: it has none"
            raise SplitError(
                "SPL002", path=self.path, expected=there, found=name, hint=f"tokenreel inspect {self.path}"
            )
        chosen = self.split_entries[name]
        return replace(self, entries=chosen, split_entries={}, split_name=name, lo=0, hi=None, _shards={})

    def _whole(self) -> None:
        if self.split_entries:
            names = ", ".join(self.split_entries)
            raise SplitError(
                "SPL001", path=self.path, expected=f"one of: {names}", hint=f"{self.path}/{next(iter(self.splits))}"
            )

    def _delimited(self) -> None:
        self._whole()
        if not self.boundary.known:
            raise DocumentError("DOC002", path=self.path, hint=f"tokenreel adopt {self.path} --boundary suffix=ID")

    # -- counts -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of documents."""
        self._whole()
        return (self.hi or 0) - self.lo

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self)

    @property
    def sequences_count(self) -> int:
        """Number of sequences of all shards."""
        self._whole()
        return self._sequences[-1]

    @property
    def tokens(self) -> int:
        """Stored ids."""
        self._whole()
        return self.position_of(self.hi or 0) - self.first_token

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored integer type, one for all shards."""
        import numpy as np

        entries = self.entries or next(iter(self.split_entries.values()), ())
        return np.dtype(entries[0].dtype if entries else "uint16")

    @property
    def shard_tokens(self) -> tuple[int, ...]:
        """Stored ids of each shard, in order: what `StreamOrder.at` and `.where` translate with."""
        self._whole()
        return tuple(entry.tokens for entry in self.entries)

    @property
    def first_token(self) -> int:
        """Where this corpus begins in the stream of its shards: 0 unless it is a slice."""
        return self.position_of(self.lo)

    # -- shards -------------------------------------------------------------------------------------------------------

    def shard(self, number: int) -> Shard:
        """Open shard `number`, once; its table is validated whole before anything is read from it."""
        found = self._shards.get(number)
        if found is None:
            entry = self.entries[number]
            found = open_shard(self.store, Found(entry.format, entry.name, entry.files), self.accept)
            _check_counts(entry, found)
            self._shards[number] = found
        found.check_table()
        return found

    def locate_document(self, i: int) -> tuple[int, int]:
        """Return (shard number, document within the shard) of document `i`; raises `DocumentError` (DOC001)."""
        n = len(self)
        if not 0 <= i < n:
            raise DocumentError(
                "DOC001",
                path=self.path,
                document=i,
                expected=f"0 .. {n - 1}" if n else "nothing: the corpus is empty",
                hint=f"tokenreel inspect {self.path}",
            )
        at = i + self.lo
        number = bisect.bisect_right(self._documents, at) - 1
        return number, at - self._documents[number]

    # -- documents ----------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, key: int) -> Ids: ...
    @overload
    def __getitem__(self, key: slice) -> Corpus: ...
    def __getitem__(self, key: int | slice) -> Ids | Corpus:
        """Return the stored ids of a document (negative numbers count from the end), or a slice as a corpus."""
        self._delimited()
        n = len(self)
        if isinstance(key, slice):
            low, high, step = key.indices(n)
            if step != 1:
                raise DocumentError("DOC003", path=self.path, expected="step 1", found=step)
            return replace(self, lo=self.lo + low, hi=self.lo + max(low, high), _shards=self._shards)
        i = key + n if key < 0 else key
        number, local = self.locate_document(i if i >= 0 else key)
        return self.shard(number).document(local)

    def __iter__(self) -> Iterator[Ids]:
        """Yield the stored ids of every document."""
        for ids, lengths in self.batches():
            begin = 0
            for length in lengths.tolist():
                yield ids[begin : begin + length]
                begin += length

    def content(self, i: int) -> Ids:
        """Return document `i` without one declared prefix and one declared suffix, where they are present."""
        ids = self[i]
        prefix, suffix = self.boundary.prefix, self.boundary.suffix
        if prefix and tuple(ids[: len(prefix)].tolist()) == prefix:
            ids = ids[len(prefix) :]
        if suffix and tuple(ids[len(ids) - len(suffix) :].tolist()) == suffix and len(ids) >= len(suffix):
            ids = ids[: len(ids) - len(suffix)]
        return ids

    def lengths(self, i: int, j: int) -> npt.NDArray[np.int64]:
        """Return the stored lengths of documents [i, j)."""
        return self.table().lengths(i, j)

    def batches(
        self, max_tokens: int | None = None, max_documents: int = BATCH_DOCUMENTS
    ) -> Iterator[tuple[Ids, npt.NDArray[np.int64]]]:
        """Yield (ids end to end, lengths) of whole documents in order; a batch never spans shards.

        A batch is at most `max_tokens` ids (4 MiB of them when left out), or one longer document.
        """
        import numpy as np

        self._whole()
        limit = max_tokens or BATCH_BYTES // self.dtype.itemsize
        for number, first, last in self.parts():
            shard = self.shard(number)
            at = first
            while at < last:
                edges = shard.document_edges(at, min(last, at + max_documents))
                at += len(edges) - 1
                while len(edges) > 1:
                    take = max(1, int(np.searchsorted(edges, edges[0] + limit, side="right")) - 1)
                    yield shard.read(int(edges[0]), int(edges[take])), np.diff(edges[: take + 1])
                    edges = edges[take:]

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """Yield (shard number, first document, end document) of the slice."""
        hi = self.hi or 0
        for number in range(len(self.entries)):
            first = max(self.lo, self._documents[number]) - self._documents[number]
            last = min(hi, self._documents[number + 1]) - self._documents[number]
            if first < last:
                yield number, first, last

    # -- streams, tables, spans ---------------------------------------------------------------------------------------

    def position_of(self, document: int) -> int:
        """Return where a document (counted over all shards, not in the slice) begins in the stream of the shards."""
        if document >= self._documents[-1]:
            return self._tokens[-1]
        if document == 0:
            return 0
        number = bisect.bisect_right(self._documents, document) - 1
        local = document - self._documents[number]
        return self._tokens[number] + int(self.shard(number).document_edges(local, local)[0])

    def stream(self, begin: int, end: int) -> Ids:
        """Return the stored ids [begin, end) of the corpus's stream as one array; may span shards (then a copy)."""
        import numpy as np

        self._whole()
        low, high = begin + self.first_token, end + self.first_token
        if not 0 <= begin <= end <= self.tokens:
            raise DocumentError(
                "DOC004", path=self.path, expected=f"0 <= begin <= end <= {self.tokens}", found=f"[{begin}, {end})"
            )
        parts = []
        number = max(0, bisect.bisect_right(self._tokens, low) - 1)
        while low < high:
            stop = min(high, self._tokens[number + 1])
            if stop > low:
                parts.append(self.shard(number).read(low - self._tokens[number], stop - self._tokens[number]))
                low = stop
            number += 1
        if len(parts) == 1:
            return parts[0]
        joined: Ids = np.concatenate(parts) if parts else np.empty(0, dtype=self.dtype)
        joined.flags.writeable = False
        return joined

    def table(self) -> DocTable:
        """Return the documents as orders see them."""
        self._delimited()
        return UnitTable(self, "documents")

    def stream_table(self) -> DocTable:
        """Return the corpus for orders over tokens alone; where documents have to be searched for, without doing so."""
        return self.table()

    def sequences(self) -> DocTable:
        """Return the sequences as orders see them: a table of the same protocol."""
        self._whole()
        return UnitTable(self, "sequences")

    def resolve(self, table: SpanTable) -> SpanTable:
        """Return the table with unresolved extents split at document edges; all extents are of this corpus."""
        from tokenreel.corpus.resolve import resolve

        return resolve(table, (self.table(),))

    def pieces(self, table: SpanTable) -> Pieces:
        """Return the table as (shard, byte, tokens, row, column) for the gather kernel."""
        from tokenreel.corpus.pieces import pieces

        return pieces(table, self)

    # -- facts about the whole ----------------------------------------------------------------------------------------

    def identity(self, *, exceptions: bool = True) -> Identity:
        """Return the format-independent hash of the documents. Reads everything once; about 1 ns a token and core."""
        hasher = IdentityHasher(self.boundary.prefix, self.boundary.suffix, exceptions=exceptions)
        for ids, lengths in self.batches():
            hasher.update(ids, lengths)
        return hasher.finish()

    def statistics(self) -> Statistics:
        """Return exact statistics of lengths and boundaries. Reads everything once."""
        from tokenreel.corpus.statistics import StatisticsCounter

        counter = StatisticsCounter(self.boundary)
        for ids, lengths in self.batches():
            counter.update(ids, lengths)
        return counter.finish()

    def close(self) -> None:
        """Give all handles back; arrays handed out stay valid."""
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_counts(entry: ShardEntry, shard: Shard) -> None:
    """Raise `DocumentError` (DOC005) when a shard is not what the manifest or the first opening said."""
    said = entry.documents, entry.sequences, entry.tokens
    found = shard.documents, shard.sequences, shard.tokens
    if said != found:
        raise DocumentError(
            "DOC005",
            shard=entry.name,
            expected="{} documents, {} sequences, {} tokens".format(*said),
            found="{} documents, {} sequences, {} tokens".format(*found),
            hint="tokenreel verify --level full",
        )
