"""`StreamCorpus`: a corpus of files that do not say where their documents are.

Such files are one stream, cut into shards wherever one was full, and a document goes on from shard to shard. Orders over
tokens need no more than the stream. Documents are found when they are asked for: by the tables that stand beside the
shards, or by scanning the whole stream for the declared prefix or suffix.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, overload

from tokenreel.corpus.corpus import BATCH_BYTES, BATCH_DOCUMENTS, Corpus
from tokenreel.errors import DocumentError, FormatError, TokenError
from tokenreel.spans import CorpusKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from tokenreel.formats import Boundary, Shard
    from tokenreel.formats.hobbylm_facts import SidecarFacts
    from tokenreel.spans import DocTable

    Ids = npt.NDArray[np.integer[Any]]
    I64 = npt.NDArray[np.int64]

STRETCHES, STRETCH = 64, 4096
"""Stretches of ids that enter the key of a corpus without a table."""


@dataclass(eq=False, repr=False)
class StreamCorpus(Corpus):
    """A `Corpus` over llm.c shards, headerless files or ``.npy`` files. Made by `tokenreel.open`.

    Without a table or a declared boundary it has one document, and what is done per document raises DOC002. Finding the
    documents reads every id once, about 1 ns each, and keeps 8 bytes a document. A `vocab` is checked on the whole of a
    shard when its ids are first asked for (`TokenError` TOK041).

    >>> import numpy as np, tempfile, tokenreel
    >>> folder = tempfile.mkdtemp()
    >>> np.array([9, 1, 5, 6, 1, 7], "<u2").tofile(f"{folder}/a_0.bin")
    >>> np.array([8, 1, 4], "<u2").tofile(f"{folder}/a_1.bin")
    >>> corpus = tokenreel.open(folder, dtype="uint16", boundary="prefix=1")
    >>> [ids.tolist() for ids in corpus], corpus.shard_tokens
    ([[9], [1, 5, 6], [1, 7, 8], [1, 4]], (6, 3))
    """

    sidecars: tuple[str, ...] = ()
    """Tables of documents beside the shards."""
    _edges: dict[tuple[Boundary, str | None], I64] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._documents = [0, 1]
        self._sequences = [0, 1]
        self._tokens = list(accumulate((entry.tokens for entry in self.entries), initial=0))

    def __repr__(self) -> str:
        """Return one short line: where, and how much; nothing is read or searched for it."""
        kinds = self.split_entries or {self.split_name or "": self.entries}
        said = (f"{name} {sum(e.tokens for e in entries):,} tokens".strip() for name, entries in kinds.items())
        part = "" if self._is_all else f", documents from {self.lo:,}"
        return f"<StreamCorpus {self.path}: {'; '.join(said)}{part}>"

    def _delimited(self) -> None:
        self._whole()
        if not self.boundary.known:
            raise DocumentError(
                "DOC002", path=self.path, expected="a prefix or a suffix", hint='open it with boundary="suffix=ID"'
            )

    def edges(self) -> I64:
        """Return where the documents of all shards begin in their stream, and its end: int64, read-only.

        Raises `FormatError`: what `scanning.scan_edges` and `hobbylm.document_tables` raise, and SID007.
        """
        import numpy as np

        self._whole()
        key = self.boundary, self.split_name
        found = self._edges.get(key)
        if found is None:
            tokens = self._tokens[-1]
            if self.boundary.table:
                found = self._from_tables()
            elif self.boundary.known:
                from tokenreel.corpus.scanning import scan_edges

                found = scan_edges(self._read, tokens, self.boundary, self.path)
            else:
                found = np.array([0, tokens], dtype=np.int64)
            found.flags.writeable = False
            self._edges[key] = found
        return found

    def _from_tables(self) -> I64:
        import numpy as np

        from tokenreel.corpus.scanning import separator_inside
        from tokenreel.formats.hobbylm import document_tables

        sizes = {entry.files[0]: entry.tokens for entry in self.entries}
        tables = document_tables(self.store, self.sidecars, sizes)
        parts = [tables[path][:-1] + begin for path, begin in zip(sizes, self._tokens, strict=False)]
        edges = np.append(np.concatenate(parts), self._tokens[-1])
        inside = separator_inside(self._read, edges, self.boundary)
        if inside is not None:
            raise FormatError(
                "SID007",
                path=self.path,
                document=inside[0],
                expected="one only at its ends",
                found=f"token {inside[1]}",
            )
        return edges

    def _read(self, begin: int, end: int) -> Ids:
        """Return ids of the stream of all shards, whatever slice this is."""
        return self._all().stream(begin, end)

    @property
    def _is_all(self) -> bool:
        return self.lo == 0 and self.hi is None

    def _all(self) -> StreamCorpus:
        from dataclasses import replace

        return self if self._is_all else replace(self, lo=0, hi=None)

    def facts(self) -> SidecarFacts | None:
        """Return what the tables beside the shards say of the documents of all shards, or None where they say nothing.

        Documents are counted from the first of the first shard. Raises what `hobbylm_facts.SidecarFacts` raises.
        """
        from tokenreel.formats.hobbylm import DOCS
        from tokenreel.formats.hobbylm_facts import SidecarFacts

        self._whole()
        if not any(path.endswith(DOCS) for path in self.sidecars):
            return None
        paths = (entry.files[0] for entry in self.entries)
        return SidecarFacts(self.store, self.sidecars, dict(zip(paths, self.documents_by_shard(), strict=True)))

    def documents_by_shard(self) -> list[int]:
        """Return how many documents begin in each shard, whatever slice this is; finds the documents."""
        import numpy as np

        edges = self.edges()
        begins = np.searchsorted(edges[:-1], self._tokens)
        begins[-1] = len(edges) - 1
        return [int(count) for count in np.diff(begins)]

    def head_fragment(self) -> int:
        """Return how many ids stand before the first declared prefix: the rest of a document that begins elsewhere.

        0 where no prefix is declared or a table says the documents. Where not 0, this is a part of a corpus, or one that
        lost its first shard, and its document 0 is cut. Finds the documents.
        """
        prefix = self.boundary.prefix
        edges = self.edges()
        if not prefix or self.boundary.table or len(edges) < 2:
            return 0
        return 0 if tuple(self._read(0, min(len(prefix), int(edges[-1]))).tolist()) == prefix else int(edges[1])

    # -- counts -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of documents; 1 where boundaries are unknown."""
        self._whole()
        return self._end - self.lo

    @property
    def _end(self) -> int:
        return len(self.edges()) - 1 if self.hi is None else self.hi

    @property
    def sequences_count(self) -> int:
        """Number of documents of all shards: there are no sequences inside them."""
        return len(self.edges()) - 1

    @property
    def tokens(self) -> int:
        """Stored ids."""
        self._whole()
        return self._tokens[-1] if self._is_all else self.position_of(self._end) - self.first_token

    def position_of(self, document: int) -> int:
        """Return where a document (counted over all shards, not in the slice) begins in the stream of the shards."""
        return 0 if document == 0 else int(self.edges()[document])

    # -- shards and documents -----------------------------------------------------------------------------------------

    def shard(self, number: int) -> Shard:
        """Open shard `number`, once; with a `vocab`, all its ids are read and checked first."""
        if number in self._shards:
            return self._shards[number]
        shard = super().shard(number)
        if self.vocab is not None:
            try:
                _check_ids(shard, self.vocab, self.path)
            except BaseException:
                self._shards.pop(number).close()
                raise
        return shard

    def locate_document(self, i: int) -> tuple[int, int]:
        """Return (shard number where document `i` begins, token of that shard); raises `DocumentError` (DOC001)."""
        from bisect import bisect_right

        self._delimited()
        self._in_range(i)
        at = self.position_of(i + self.lo)
        number = bisect_right(self._tokens, at) - 1
        return number, at - self._tokens[number]

    def _in_range(self, i: int) -> None:
        if not 0 <= i < len(self):
            raise DocumentError(
                "DOC001",
                path=self.path,
                document=i,
                expected=f"0 .. {len(self) - 1}" if len(self) else "nothing: the corpus is empty",
            )

    @overload
    def __getitem__(self, key: int) -> Ids: ...
    @overload
    def __getitem__(self, key: slice) -> Corpus: ...
    def __getitem__(self, key: int | slice) -> Ids | Corpus:
        """Return the stored ids of a document, a copy where it lies in several shards; or a slice as a corpus."""
        if isinstance(key, slice):
            return super().__getitem__(key)
        self._delimited()
        i = key + len(self) if key < 0 else key
        self._in_range(i if i >= 0 else key)
        edges = self.edges()
        return self._read(int(edges[self.lo + i]), int(edges[self.lo + i + 1]))

    def batches(
        self, max_tokens: int | None = None, max_documents: int = BATCH_DOCUMENTS
    ) -> Iterator[tuple[Ids, npt.NDArray[np.int64]]]:
        """Yield (ids end to end, lengths) of whole documents in order; a batch may span shards.

        A batch is at most `max_tokens` ids (4 MiB of them when left out), or one longer document: all of the corpus where
        boundaries are unknown.
        """
        import numpy as np

        limit = max_tokens or BATCH_BYTES // self.dtype.itemsize
        edges, at, end = self.edges(), self.lo, self._end
        while at < end:
            these = edges[at : min(end, at + max_documents) + 1]
            take = max(1, int(np.searchsorted(these, these[0] + limit, side="right")) - 1)
            yield self._read(int(these[0]), int(these[take])), np.diff(these[: take + 1])
            at += take

    # -- tables -------------------------------------------------------------------------------------------------------

    def table(self) -> DocTable:
        """Return the documents as orders see them: found by then, which may read every id once."""
        self._delimited()
        self.edges()
        return EdgeTable(self, "tables")

    def sequences(self) -> DocTable:
        """Return the documents: there are no sequences inside them."""
        return self.table()

    def stream_table(self) -> DocTable:
        """Return the corpus for orders over tokens: nothing is scanned before a document is asked for."""
        self._whole()
        return EdgeTable(self, "files")


def _check_ids(shard: Shard, vocab: int, path: str) -> None:
    step = BATCH_BYTES // shard.dtype.itemsize
    for begin in range(0, shard.tokens, step):
        ids = shard.read(begin, min(shard.tokens, begin + step))
        if int(ids.max()) >= vocab or int(ids.min()) < 0:
            at = begin + int(((ids >= vocab) | (ids < 0)).argmax())
            file, offset = shard.byte_at(at)
            raise TokenError(
                "TOK041",
                path=f"{path}: {file}",
                offset=offset,
                shard=shard.name,
                expected=f"ids below {vocab}",
                found=int(shard.read(at, at + 1)[0]),
            )


@dataclass(eq=False)
class EdgeTable:
    """The documents of a `StreamCorpus` or of a slice of it, as a `DocTable`.

    With `kind` ``tables`` its key is a hash of the documents; with ``files`` of the files: their tokens, their dtype and 64
    stretches of their ids. The second is the same with and without a boundary, and stands for one document.
    """

    corpus: StreamCorpus
    kind: Literal["tables", "files"]
    _key: CorpusKey | None = field(default=None, repr=False)

    def _edges(self) -> I64:
        corpus = self.corpus
        corpus._delimited()  # noqa: SLF001 (the same unit of code)
        end = corpus.lo + len(corpus)
        edges: I64 = corpus.edges()[corpus.lo : end + 1] - corpus.first_token
        return edges

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.corpus)

    @property
    def tokens(self) -> int:
        """Stored tokens of the whole stream."""
        return self.corpus.tokens

    @property
    def key(self) -> CorpusKey:
        """The corpus's key."""
        if self._key is None:
            self._key = self._key_of_files() if self.kind == "files" else self._key_of_documents()
        return self._key

    def _key_of_documents(self) -> CorpusKey:
        digest = hashlib.sha256(b"tokenreel-documents-table-1\n")
        digest.update(self._edges().astype("<i8").tobytes())
        return CorpusKey("tables", digest.hexdigest(), self.documents, self.tokens)

    def _key_of_files(self) -> CorpusKey:
        corpus, tokens = self.corpus, self.tokens
        digest = hashlib.sha256(f"tokenreel-files-1\n{corpus.dtype.str}\n{tokens}\n".encode())
        digest.update(f"{corpus.first_token} of {list(corpus.shard_tokens)}\n".encode())
        for begin in sorted({max(0, tokens - STRETCH) * k // (STRETCHES - 1) for k in range(STRETCHES)}):
            digest.update(corpus.stream(begin, min(tokens, begin + STRETCH)).tobytes())
        return CorpusKey("files", digest.hexdigest(), 1, tokens)

    def lengths(self, i: int, j: int) -> I64:
        """Return the stored lengths of documents [i, j)."""
        import numpy as np

        self._check(i, j)
        return np.diff(self._edges()[i : j + 1])

    def offsets_at(self, docs: I64) -> I64:
        """Return the first token of each document named; number `documents` stands for the end of the stream."""
        import numpy as np

        wanted = np.asarray(docs, dtype=np.int64)
        if wanted.size:
            self._check(int(wanted.min()), int(wanted.max()))
        return self._edges()[wanted]

    def at_tokens(self, positions: I64) -> I64:
        """Return which document holds each position; raises `DocumentError` (DOC004) outside."""
        import numpy as np

        wanted = np.asarray(positions, dtype=np.int64)
        if wanted.size and (int(wanted.min()) < 0 or int(wanted.max()) >= self.tokens):
            found = f"{int(wanted.min())} .. {int(wanted.max())}"
            raise DocumentError("DOC004", path=self.corpus.path, expected=f"0 <= position < {self.tokens}", found=found)
        return np.searchsorted(self._edges(), wanted, side="right") - 1

    def owners(self, sequences: I64) -> I64:
        """Return the documents themselves: there are no sequences inside them."""
        import numpy as np

        return np.asarray(sequences, dtype=np.int64)

    def _check(self, i: int, j: int) -> None:
        if not 0 <= i <= j <= len(self.corpus):
            raise DocumentError(
                "DOC001", path=self.corpus.path, expected=f"0 <= i <= j <= {len(self.corpus)}", found=f"[{i}, {j})"
            )
