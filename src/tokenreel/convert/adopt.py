"""Adopt a folder of shards that someone else made: check what bytes cannot say, then write it down once.

The answer is ``tokenreel.json`` beside the data: boundary, counts, hashes and identity. The data is never touched.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.manifest import BoundaryRecord, Manifest, ShardRecord, SplitRecord, dump_manifest, parse_manifest
from tokenreel.corpus.opening import MANIFEST, RUN_CONFIG, open_corpus
from tokenreel.corpus.receipts import FileEntry
from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.errors import DocumentError, TokenError, UsageError
from tokenreel.hashing import sha256_file
from tokenreel.store import write_bytes_atomic
from tokenreel.verify.beside import in_order
from tokenreel.verify.joined import Split
from tokenreel.verify.stream import AHEAD, Ticker
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from concurrent.futures import Future

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.corpus.layout import ShardEntry
    from tokenreel.corpus.statistics import Statistics
    from tokenreel.formats import Boundary
    from tokenreel.verify.joined import Part

    Progress = Callable[[int, int | None, int], None]


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was found and written."""

    path: str
    manifest: Manifest
    exceptions: dict[str, tuple[int, int]]
    """By split: documents without the declared prefix or suffix, and suffixes inside documents."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        splits = {
            name: {"documents": s.documents, "tokens": s.tokens, "identity": s.identity, "shards": len(s.shards)}
            for name, s in self.manifest.splits.items()
        }
        exceptions = {name: {"absent": a, "inside": i} for name, (a, i) in self.exceptions.items()}
        return {"path": self.path, "splits": splits, "exceptions": exceptions}

    def lines(self) -> list[str]:
        """Return the form for people."""
        out = []
        for name, split in self.manifest.splits.items():
            label = name or "corpus"
            out.append(
                f"{label}: {counted(split.documents, 'document')}, {counted(split.tokens, 'token')}, identity {split.identity}"
            )
            absent, inside = self.exceptions[name]
            if absent or inside:
                out.append(f"  accepted: {counted(absent, 'document')} without the boundary, {inside:,} with it inside")
        return [*out, f"written: {self.path}"]


def adopt(
    path: str | os.PathLike[str],
    *,
    boundary: Boundary | str | None = None,
    vocab: int | None = None,
    dtype: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    accept: Collection[str] = (),
    progress: Progress | None = None,
) -> Adopted:
    """Write ``tokenreel.json`` for a folder of shards; every document is read and checked against what is declared.

    With a `tokenizer` (its file), a boundary may name tokens: ``suffix=<|endoftext|>``.

    Raises `TokenError`: TOK040 for a document without the declared boundary or with a one-token suffix inside it
    (`accept` overrules, and the count is recorded), TOK041 for an id of `vocab` and more. `UsageError` (USE006) where a
    manifest or a built corpus is there already. Reads everything twice: ids, and bytes for SHA-256.
    """
    root = Path(path)
    if not root.is_dir():
        raise UsageError(
            "USE006",
            "what is adopted is a folder: its manifest speaks for every shard in it",
            path=path,
            expected="a folder of shards",
            hint=f"tokenreel verify {_quoted(root)} --boundary suffix=ID",
        )
    _refuse_adopted(root)
    if isinstance(boundary, str) and tokenizer is not None:
        boundary = _ids_of(boundary, str(tokenizer))
    corpus = open_corpus(root, dtype=dtype, boundary=boundary, vocab=vocab, accept=accept)
    if not corpus.boundary.known:
        raise DocumentError("DOC002", path=root, hint=f"tokenreel adopt {_quoted(root)} --boundary suffix=ID")
    parts = {name: corpus.split(name) for name in corpus.splits} or {"": corpus}
    width = corpus.dtype.itemsize
    total = sum(entry.tokens for part in parts.values() for entry in part.entries) * width
    ticker = Ticker(total, progress)
    splits: dict[str, SplitRecord] = {}
    exceptions: dict[str, tuple[int, int]] = {}
    for name, part in parts.items():
        splits[name], stats, edges = _adopt_split(part, lambda n: ticker(n * width, n), os.cpu_count() or 1)
        exceptions[name] = _exceptions(part, stats, edges, accept)
    stored = corpus.boundary
    manifest = Manifest(
        shard_format=next(iter(parts.values())).entries[0].format,
        dtype=corpus.dtype.name,
        boundary=BoundaryRecord(prefix=stored.prefix, suffix=stored.suffix, table=stored.table),
        splits=splits,
    )
    write_bytes_atomic(root / MANIFEST, dump_manifest(manifest))
    corpus.close()
    return Adopted(str(root / MANIFEST), manifest, exceptions)


def _refuse_adopted(root: Path) -> None:
    hint = f"tokenreel verify {_quoted(root)}"
    if (root / RUN_CONFIG).exists():
        raise UsageError("USE006", "it was built here: its records are there", path=root / RUN_CONFIG, hint=hint)
    if (root / MANIFEST).exists():
        manifest = parse_manifest((root / MANIFEST).read_bytes(), root / MANIFEST)
        said = "; ".join(f"{name or 'corpus'}: identity {one.identity}" for name, one in manifest.splits.items())
        raise UsageError("USE006", f"already adopted ({said})", path=root / MANIFEST, hint=hint)


def _ids_of(boundary: str, tokenizer: str) -> str:
    """Return a boundary with the ids of the tokens that it names; raises `UsageError` (USE003) for one that is none."""
    from tokenreel.text import load_tokenizer

    known = load_tokenizer(tokenizer)
    sides = []
    for side in boundary.split(","):
        name, equals, ids = side.partition("=")
        numbers = [ids] if known.token_to_id(ids) is not None else ids.split("+")
        found = [word if word.isascii() and word.isdigit() else known.token_to_id(word) for word in numbers]
        if None in found:
            raise UsageError(
                "USE003",
                "the tokenizer has no such token",
                path=tokenizer,
                expected="prefix=TOKEN,suffix=TOKEN",
                found=side,
                hint=f"tokenreel inspect {_quoted(tokenizer)}",
            )
        sides.append(name + equals + "+".join(map(str, found)))
    return ",".join(sides)


def _quoted(path: object) -> str:
    return shlex.quote(str(path))


@dataclass(slots=True)
class _Edges:
    """How often each id begins, and ends, a document."""

    first: Counter[int]
    last: Counter[int]

    def add(self, ids: npt.NDArray[np.integer[Any]], lengths: npt.NDArray[np.integer[Any]]) -> None:
        ends = np.cumsum(lengths, dtype=np.int64)[lengths > 0]
        if ends.size:
            for counter, at in ((self.first, np.r_[0, ends[:-1]]), (self.last, ends - 1)):
                values, counts = np.unique(ids[at], return_counts=True)
                counter.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def join(self, other: _Edges) -> None:
        self.first.update(other.first)
        self.last.update(other.last)


def _adopt_split(corpus: Corpus, tick: Callable[[int], None], threads: int) -> tuple[SplitRecord, Statistics, _Edges]:
    """Read every shard of a split, several at a time."""
    split = Split(corpus.boundary, identity=True, statistics=True)
    edges = _Edges(Counter(), Counter())
    records: list[ShardRecord] = []
    with ThreadPoolExecutor(threads) as pool:

        def begin(piece: _Piece) -> Future[tuple[ShardRecord, _Edges, Part]]:
            return pool.submit(_read, corpus, piece, split.part((piece.count, piece.tokens)), tick)

        with contextlib.closing(in_order(_pieces(corpus), begin, threads + AHEAD)) as results:
            for piece, (shard, seen, part) in results:
                split.add(part, piece.documents.batches)
                edges.join(seen)
                records.append(shard)
    identity, stats = split.identity(), split.statistics()
    if identity is None or stats is None:  # an id that no identity holds
        raise TokenError("TOK001", path=corpus.path, expected="0 <= id < 2**32", hint=f"tokenreel verify {corpus.path}")
    record = SplitRecord(
        documents=len(corpus),
        sequences=corpus.sequences_count,
        tokens=corpus.tokens,
        identity=identity.digest,
        shards=tuple(records),
        statistics=stats.as_dict(),
    )
    return record, stats, edges


@dataclass(frozen=True, slots=True)
class _Piece:
    """A shard, and its documents as a corpus; of a stream, those that begin in the file."""

    entry: ShardEntry
    documents: Corpus
    count: int
    tokens: int


def _pieces(corpus: Corpus) -> Iterator[_Piece]:
    if isinstance(corpus, StreamCorpus):
        begins = np.cumsum([0, *(entry.tokens for entry in corpus.entries)])
        at = np.searchsorted(corpus.edges()[:-1], begins)
        tokens = np.diff(corpus.edges()[at]).tolist()
        edges = at.tolist()
    else:
        tokens = [entry.tokens for entry in corpus.entries]
        edges = np.cumsum([0, *(entry.documents for entry in corpus.entries)]).tolist()
    for entry, (first, end), stored in zip(corpus.entries, pairwise(edges), tokens, strict=True):
        yield _Piece(entry, corpus[first:end], end - first, stored)


def _read(corpus: Corpus, piece: _Piece, part: Part, tick: Callable[[int], None]) -> tuple[ShardRecord, _Edges, Part]:
    """Read one shard: its documents, then its files."""
    edges = _Edges(Counter(), Counter())
    largest: int | None = None
    for ids, lengths in piece.documents.batches():
        if part.hasher is not None and part.counter is not None:
            part.hasher.update(ids, lengths)
            part.counter.update(ids, lengths)
        edges.add(ids, lengths)
        if ids.size:
            largest = max(int(ids.max()), -1 if largest is None else largest)
        tick(len(ids))
    _within_vocab(corpus, piece.entry, largest)
    record = _record(corpus, piece.entry, piece.count, None if isinstance(corpus, StreamCorpus) else largest)
    return record, edges, part


def _record(corpus: Corpus, entry: ShardEntry, documents: int, largest: int | None) -> ShardRecord:
    root = Path(corpus.store.root)
    files = tuple(
        FileEntry(path=name, bytes=(root / name).stat().st_size, sha256=sha256_file(root / name))
        for name in entry.files
    )
    return ShardRecord(
        name=entry.name,
        documents=documents,
        sequences=documents if isinstance(corpus, StreamCorpus) else entry.sequences,
        tokens=entry.tokens,
        max_id=largest,
        files=files,
    )


def _within_vocab(corpus: Corpus, entry: ShardEntry, largest: int | None) -> None:
    if corpus.vocab is not None and largest is not None and largest >= corpus.vocab:
        raise TokenError(
            "TOK041",
            path=corpus.path,
            shard=entry.name,
            expected=f"ids below {corpus.vocab}",
            found=largest,
            hint=f"tokenreel verify {_quoted(corpus.path)} --level full --vocab {corpus.vocab}",
        )


def _exceptions(corpus: Corpus, stats: Statistics, edges: _Edges, accept: Collection[str]) -> tuple[int, int]:
    boundary = corpus.boundary
    absent = 0
    said, better = [], []
    for side, ids, matching, seen, verb in (
        ("prefix", boundary.prefix, stats.starts_with_prefix, edges.first, "begin"),
        ("suffix", boundary.suffix, stats.ends_with_suffix, edges.last, "end"),
    ):
        if not ids or matching == stats.documents:
            continue
        lacking = stats.documents - matching
        absent += lacking
        text = f"{lacking:,} of {stats.documents:,} documents do not {verb} with {'+'.join(map(str, ids))}"
        most, count = seen.most_common(1)[0] if seen else (None, 0)
        if most is not None and (most,) != ids and count > matching:
            text += f" ({count:,} {verb} with {most})"
            better.append(f"{side}={most}")
        said.append(text)
    if stats.suffix_inside:
        said.append(f"occurrences of the suffix inside documents: {stats.suffix_inside:,}")
    if said and "TOK040" not in accept:
        place = _quoted(corpus.path)
        tried = f"tokenreel adopt {place} --boundary {','.join(better)}"
        raise TokenError(
            "TOK040",
            "; ".join(said),
            path=corpus.path,
            shard=corpus.split_name,
            hint=tried if better else f"tokenreel verify {place} --level full --boundary suffix=ID",
        )
    return absent, stats.suffix_inside
