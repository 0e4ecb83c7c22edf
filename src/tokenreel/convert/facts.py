"""What is known of documents besides their ids: read from ``documents.parquet`` or from shards, and written beside others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tokenreel.corpus.documents import COLUMNS, DOCUMENTS, documents_schema, runs_by_shard
from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.errors import ManifestError, require
from tokenreel.formats.recognising import recognise
from tokenreel.formats.writing import DocumentFacts, FactsShard
from tokenreel.store import LocalStore
from tokenreel.store.atomic import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenreel.convert.source import Source
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats.writing import FinishedShard

ROWS = 1 << 16


class _Rows(Protocol):
    """Facts of the documents of one corpus."""

    def facts(self, begin: int, end: int) -> Sequence[DocumentFacts]: ...


@dataclass(eq=False)
class Known:
    """The facts of a source's documents, by number; made by `known_facts`."""

    source: Source
    rows: tuple[_Rows | None, ...]

    def __call__(self, begin: int, end: int) -> list[DocumentFacts]:
        """Return what is known of documents [begin, end)."""
        out: list[DocumentFacts] = []
        for corpus, _, low, high in self.source.parts(begin, end):
            rows = self.rows[next(k for k, one in enumerate(self.source.corpora) if one is corpus)]
            out += [DocumentFacts()] * (high - low) if rows is None else rows.facts(corpus.lo + low, corpus.lo + high)
        return out


def known_facts(source: Source) -> Known | None:
    """Return the facts of a source, or None where nothing is known of any document.

    Raises `ManifestError` (DOC011) for a ``documents.parquet`` that does not fit; `MissingExtra` where it cannot be read.
    """
    rows = tuple(_rows_of(corpus) for corpus in source.corpora)
    return Known(source, rows) if any(rows) else None


def _rows_of(corpus: Corpus) -> _Rows | None:
    path = Path(corpus.store.root) / DOCUMENTS
    if path.is_file() and _is_ours(path):
        return _Parquet(corpus, path)
    if isinstance(corpus, StreamCorpus):
        return corpus.facts()
    if corpus.entries and isinstance(corpus.shard(0), FactsShard):
        return _Shards(corpus)
    return None


def _is_ours(path: Path) -> bool:
    parquet = require("pyarrow.parquet", extra="build")
    with parquet.ParquetFile(path) as file:
        return all(name in file.schema_arrow.names for name in COLUMNS)


class _Shards:
    """Facts that the shards themselves hold."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    def facts(self, begin: int, end: int) -> list[DocumentFacts]:
        out: list[DocumentFacts] = []
        whole = self._corpus
        base = 0
        for number, entry in enumerate(whole.entries):
            low, high = max(begin - base, 0), min(end - base, entry.documents)
            if low < high:
                shard: Any = whole.shard(number)
                out += shard.facts(low, high)
            base += entry.documents
        return out


class _Parquet:
    """Facts in ``documents.parquet``: rows stand in the order of each shard's documents."""

    def __init__(self, corpus: Corpus, path: Path) -> None:
        self._path = path
        self._file: Any = require("pyarrow.parquet", extra="build").ParquetFile(path)
        starts = self._starts()
        self._first: list[tuple[int, int, int]] = []
        base = 0
        counts = [entry.documents for entry in corpus.entries]
        if isinstance(corpus, StreamCorpus):
            counts = corpus.documents_by_shard()
        for entry, count in zip(corpus.entries, counts, strict=True):
            row, rows = starts.get(entry.name, (0, 0))
            if rows != count:
                raise ManifestError(
                    "DOC011", path=path, shard=entry.name, expected=f"{count} rows", found=f"{rows} rows"
                )
            self._first.append((base, base + count, row))
            base += count

    def _starts(self) -> dict[str, tuple[int, int]]:
        """Return (first row, rows) by shard."""
        out: dict[str, tuple[int, int]] = {}
        at = 0
        for batch in self._file.iter_batches(batch_size=ROWS, columns=["shard"]):
            for shard, rows in runs_by_shard(batch):
                first, count = out.get(shard, (at, 0))
                if first + count != at:
                    raise ManifestError("MAN003", f"rows of {shard} do not stand together", path=self._path)
                out[shard] = (first, count + rows.num_rows)
                at += rows.num_rows
        return out

    def facts(self, begin: int, end: int) -> list[DocumentFacts]:
        out: list[DocumentFacts] = []
        for low, high, row in self._first:
            first, last = max(begin, low), min(end, high)
            if first < last:
                out += self._read(row + first - low, row + last - low)
        return out

    def _read(self, begin: int, end: int) -> Iterator[DocumentFacts]:
        meta = self._file.metadata
        at = 0
        for group in range(meta.num_row_groups):
            rows = meta.row_group(group).num_rows
            low, high = max(begin - at, 0), min(end - at, rows)
            if low < high:
                wanted = ["id", "kind", "source", "upstream_id", "metadata"]
                for row in self._file.read_row_group(group, columns=wanted).slice(low, high - low).to_pylist():
                    yield DocumentFacts(
                        row["id"].hex(), row["kind"], row["source"], row["upstream_id"], row["metadata"]
                    )
            at += rows


def write_documents(
    root: Path,
    split: str,
    shards: Sequence[FinishedShard],
    edges: Sequence[tuple[int, int]],
    known: Known,
    lengths: Any,
) -> Path:
    """Write ``documents.parquet`` for a target whose format has no place for facts; streams, a few rows at a time.

    `edges` are the source's documents of each shard; `lengths(begin, end)` their stored lengths in the target.
    """
    import pyarrow as pa

    parquet = require("pyarrow.parquet", extra="build")
    schema = documents_schema()
    path = root / DOCUMENTS
    names = _names(root, shards)
    with atomic_write(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for name, (begin, end) in zip(names, edges, strict=True):
            for first in range(begin, end, ROWS):
                last = min(end, first + ROWS)
                sizes = lengths(first, last)
                rows = [
                    {
                        "id": _id(fact, known, first + k),
                        "kind": fact.kind or ("tokens" if fact.id is None else "upstream"),
                        "source": fact.source or "",
                        "upstream_id": fact.upstream_id,
                        "split": split,
                        "shard": name,
                        "index": first + k - begin,
                        "length": int(sizes[k]),
                        "metadata": fact.metadata,
                    }
                    for k, fact in enumerate(known(first, last))
                ]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return path


def _names(root: Path, shards: Sequence[FinishedShard]) -> list[str]:
    """Return what readers call each shard: a Levanter store is ``part-00000/input_ids``, and was written as ``part-00000``."""
    store = LocalStore(root)
    by_file = {file: found.name for found in recognise(store, store.list()).found for file in found.files}
    return [by_file.get(shard.files[0].path, shard.name) if shard.files else shard.name for shard in shards]


def _id(fact: DocumentFacts, known: Known, document: int) -> bytes:
    """Return 16 bytes: the id as it is where it is one of ours, else the hash of the document's content."""
    from tokenreel.hashing import xxh3_128

    if fact.id is not None and len(fact.id) == 32:
        try:
            return bytes.fromhex(fact.id)
        except ValueError:
            pass
    corpus, _, low, _ = next(known.source.parts(document, document + 1))
    return xxh3_128(corpus.content(low).astype("<u4").tobytes())
