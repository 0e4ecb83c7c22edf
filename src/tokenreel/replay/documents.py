"""Documents to be indexed: from a corpus or from text, in order, with their ids, sources and buckets.

An id is the XXH3-128 of a document's normalised text. A corpus gives it by its ``documents.parquet`` where nothing is to
be normalised, else through its decoded text; ``ids="tokens"`` hashes content ids (uint32 LE) instead, and says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import ReplayError, UsageError, require
from tokenreel.text.normalise import Normaliser, text_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.text import Tokenizer

BATCH = 1 << 13


@dataclass(frozen=True, slots=True)
class Documents:
    """A run of documents in the order of the store."""

    ids: list[bytes | None]
    """16 bytes each; None: the normalisation drops the document."""
    sources: list[str]
    upstream: Sequence[str | None] | None = None


@dataclass(frozen=True, slots=True)
class TextShape:
    """How records of text files are read."""

    text: str = "text"
    id: str | None = None
    source_field: str | None = None
    source: str = "text"


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work: a shard of a corpus, or a file of text."""

    name: str
    documents: int | None
    """How many, where that is known before reading."""


def corpus_tasks(corpus: Corpus) -> list[Task]:
    """Return the shards of a corpus as tasks; shards without documents give none."""
    return [Task(corpus.entries[number].name, last - first) for number, first, last in corpus.parts()]


def corpus_documents(
    corpus: Corpus, how: str, normalise: Normaliser, source: str | None, tokenizer: Tokenizer | None
) -> Iterator[Iterator[Documents]]:
    """Yield, for every task of `corpus_tasks`, its documents in batches.

    `how` is "text" (ids of ``documents.parquet``), "normalised" (decoded text) or "tokens". Raises `ReplayError`
    (RPL005) where the way asked for does not exist here.
    """
    rows = _recorded_rows(corpus)
    if how == "text" and rows is None:
        hint = "--ids normalised --tokenizer FILE, or --ids tokens"
        raise ReplayError("RPL005", path=corpus.path, expected="documents.parquet with ids of texts", hint=hint)
    if rows is None and source is None:
        raise ReplayError("RPL005", "no source is known", path=corpus.path, hint="--source NAME")
    for number, first, last in corpus.parts():
        shard = corpus.entries[number].name
        yield _corpus_task(corpus, (number, first, last), shard, how, normalise, source, tokenizer, rows)


def _corpus_task(
    corpus: Corpus,
    part: tuple[int, int, int],
    shard: str,
    how: str,
    normalise: Normaliser,
    source: str | None,
    tokenizer: Tokenizer | None,
    rows: RecordedRows | None,
) -> Iterator[Documents]:
    number, first, last = part
    for low in range(first, last, BATCH):
        high = min(last, low + BATCH)
        known = rows.read(shard, low, high) if rows is not None else None
        sources = [source or ""] * (high - low) if known is None or source is not None else known.sources
        ids: list[bytes | None]
        if how == "text" and known is not None:
            ids = known.ids
        else:
            contents = [corpus.content(k + corpus_base(corpus, number)) for k in range(low, high)]
            ids = [_token_id(c) for c in contents] if how == "tokens" else _text_ids(contents, tokenizer, normalise)
        yield Documents(ids, list(sources), known.upstream if known is not None else None)


def corpus_base(corpus: Corpus, number: int) -> int:
    """Return the number, in the slice, that document 0 of a shard has (negative where the slice begins inside it)."""
    return sum(entry.documents for entry in corpus.entries[:number]) - corpus.lo


def _token_id(content: Any) -> bytes:
    import xxhash

    return xxhash.xxh3_128_digest(content.astype("<u4").tobytes())


def _text_ids(contents: list[Any], tokenizer: Tokenizer | None, normalise: Normaliser) -> list[bytes | None]:
    if tokenizer is None:
        raise ReplayError("RPL005", "documents can only be named through their text", hint="--tokenizer FILE")
    texts = (normalise(tokenizer.decode(content)) for content in contents)
    return [None if text is None else text_id(text) for text in texts]


@dataclass(eq=False)
class RecordedRows:
    """Rows of a corpus's ``documents.parquet``, read forward once, shard by shard."""

    path: Path
    split: str | None
    _batches: Iterator[Any] | None = None
    _rest: Any = None

    def read(self, shard: str, first: int, end: int) -> Documents:
        """Return rows [first, end) of a shard; raises `ReplayError` (RPL005) where they do not stand there."""
        parts, at = [], first
        while at < end:
            batch = self._next()
            if batch is None:
                raise ReplayError("RPL005", "the rows end early", path=self.path, shard=shard, document=at)
            take = min(batch.num_rows, end - at)
            piece = batch.slice(0, take)
            self._rest = batch.slice(take) if take < batch.num_rows else None
            keep = [
                k
                for k, (name, index) in enumerate(zip(_column(piece, "shard"), _column(piece, "index"), strict=True))
                if name == shard and index >= first
            ]
            if keep and _column(piece, "index")[keep[0]] != at:
                raise ReplayError("RPL005", "rows are missing", path=self.path, shard=shard, document=at)
            parts.append((piece, keep))
            at += len(keep)
        ids, sources, upstream = [], [], []
        for piece, keep in parts:
            kinds = set(_column(piece, "kind"))
            if kinds - {"text"}:
                raise ReplayError("RPL005", path=self.path, expected="ids of kind text", found=", ".join(sorted(kinds)))
            ids += [_column(piece, "id")[k] for k in keep]
            sources += [_column(piece, "source")[k] for k in keep]
            upstream += [_column(piece, "upstream_id")[k] for k in keep]
        return Documents(ids, sources, upstream)

    def _next(self) -> Any:
        if self._rest is not None:
            found, self._rest = self._rest, None
            return found
        if self._batches is None:
            self._batches = self._read()
        return next(self._batches, None)

    def _read(self) -> Iterator[Any]:
        import pyarrow.compute as pc

        parquet = require("pyarrow.parquet", extra="build")
        with parquet.ParquetFile(self.path) as file:
            names = ["id", "kind", "source", "upstream_id", "split", "shard", "index"]
            for batch in file.iter_batches(batch_size=BATCH, columns=names):
                mine = batch
                if self.split is not None:
                    mine = batch.filter(pc.equal(batch.column("split").cast("string"), self.split))
                if mine.num_rows:
                    yield mine


def _column(batch: Any, name: str) -> list[Any]:
    values: list[Any] = batch.column(name).to_pylist()
    return values


def _recorded_rows(corpus: Corpus) -> RecordedRows | None:
    root = Path(corpus.store.root)
    path = root / "documents.parquet"
    if corpus.manifest is None or not path.is_file():
        return None
    require("pyarrow", extra="build")
    return RecordedRows(path, corpus.split_name)


def text_files(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the text files that paths name, folders searched, in byte order; raises `UsageError` (USE004)."""
    found: list[Path] = []
    for one in map(Path, paths):
        if one.is_dir():
            inside = (path for path in one.rglob("*") if path.is_file() and not path.name.startswith("."))
            found += sorted(inside, key=os.fsencode)
        elif one.exists():
            found.append(one)
        else:
            raise UsageError("USE004", path=one, expected="files of text", found="nothing there")
    if not found:
        raise UsageError("USE004", expected="files of text", found="none")
    return found


def text_documents(path: Path, shape: TextShape, normalise: Normaliser) -> Iterator[Documents]:
    """Yield a file's documents in batches, in order."""
    for texts, ids, sources in text_records(path, shape):
        normal = [normalise(text) for text in texts]
        yield Documents([None if text is None else text_id(text) for text in normal], sources, ids)


def text_records(path: Path, shape: TextShape) -> Iterator[tuple[list[str], Sequence[str | None] | None, list[str]]]:
    """Yield (texts, upstream ids, sources) of a file of JSON lines, Parquet or plain text."""
    import msgspec

    from tokenreel.build.blocks import InputBytes
    from tokenreel.build.sources import read_records, settled_shape
    from tokenreel.config.recipe import CHUNK_BYTES, SourceTable

    source: object = {"field": shape.source_field} if shape.source_field else shape.source
    table = msgspec.convert(
        {"name": "source", "paths": [str(path)], "text": shape.text, "id": shape.id, "source": source}, SourceTable
    )
    settled = settled_shape(table, str(path))
    for records in read_records(InputBytes(path), settled, CHUNK_BYTES):
        records.check()
        texts = records.texts.to_pylist()
        sources = records.sources if records.sources is not None else [settled.constant] * len(texts)
        yield texts, records.ids, list(sources)


def grouped(batches: Iterator[Documents], size: int) -> Iterator[Iterator[Documents]]:
    """Yield runs of batches that hold `size` documents each, the last one fewer; every run must be read to its end."""
    rest: list[Documents] = []

    def run() -> Iterator[Documents]:
        left = size
        while left:
            batch = rest.pop() if rest else next(batches, None)
            if batch is None:
                return
            if len(batch.ids) > left:
                rest.append(_part(batch, left, len(batch.ids)))
                batch = _part(batch, 0, left)
            left -= len(batch.ids)
            yield batch

    while True:
        one = run()
        first = list(islice(one, 1))
        if not first:
            return
        yield chain(first, one)


def _part(batch: Documents, low: int, high: int) -> Documents:
    upstream = None if batch.upstream is None else batch.upstream[low:high]
    return Documents(batch.ids[low:high], batch.sources[low:high], upstream)
