"""Adopt a folder of shards that someone else made: check what bytes cannot say, then write it down once.

The answer is ``tokenreel.json`` beside the data: boundary, counts, hashes and identity. The data is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.corpus.manifest import BoundaryRecord, Manifest, ShardRecord, SplitRecord, dump_manifest
from tokenreel.corpus.opening import MANIFEST, RUN_CONFIG, open_corpus
from tokenreel.corpus.receipts import FileEntry
from tokenreel.corpus.statistics import Statistics, StatisticsCounter
from tokenreel.errors import TokenError, UsageError
from tokenreel.hashing import IdentityHasher, sha256_file
from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.corpus.layout import ShardEntry
    from tokenreel.formats import Boundary

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
            out.append(f"{label}: {split.documents:,} documents, {split.tokens:,} tokens, identity {split.identity}")
            absent, inside = self.exceptions[name]
            if absent or inside:
                out.append(f"  accepted: {absent:,} documents without the boundary, {inside:,} with it inside")
        return [*out, f"written: {self.path}"]


def adopt(
    path: str | os.PathLike[str],
    *,
    boundary: Boundary | str | None = None,
    vocab: int | None = None,
    accept: Collection[str] = (),
    progress: Progress | None = None,
) -> Adopted:
    """Write ``tokenreel.json`` for a folder of pairs; every document is read and checked against what is declared.

    Raises `TokenError`: TOK040 for a document without the declared boundary or with a one-token suffix inside it
    (`accept` overrules, and the count is recorded), TOK041 for an id of `vocab` and more. `UsageError` (USE006) where a
    manifest or a built corpus is there already. Reads everything twice: ids, and bytes for SHA-256.
    """
    root = Path(path)
    if not root.is_dir():
        raise UsageError("USE006", path=path, expected="a folder of shards", hint=f"tokenreel adopt {root.parent}")
    for present in (MANIFEST, RUN_CONFIG):
        if (root / present).exists():
            raise UsageError("USE006", path=root / present, expected="no manifest yet", hint=f"tokenreel verify {root}")
    corpus = open_corpus(root, boundary=boundary, vocab=vocab, accept=accept)
    parts = {name: corpus.split(name) for name in corpus.splits} or {"": corpus}
    total = sum(entry.tokens for part in parts.values() for entry in part.entries) * corpus.dtype.itemsize
    splits: dict[str, SplitRecord] = {}
    exceptions: dict[str, tuple[int, int]] = {}
    done = 0
    for name, part in parts.items():
        splits[name], stats = _adopt_split(part, progress, done, total)
        done += part.tokens * corpus.dtype.itemsize
        exceptions[name] = _exceptions(part, stats, accept)
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


def _adopt_split(corpus: Corpus, progress: Progress | None, done: int, total: int) -> tuple[SplitRecord, Statistics]:
    hasher = IdentityHasher(corpus.boundary.prefix, corpus.boundary.suffix)
    counter = StatisticsCounter(corpus.boundary)
    shards = []
    tokens = 0
    for number, entry in enumerate(corpus.entries):
        largest: int | None = None
        shard = corpus[_first(corpus, number) : _first(corpus, number + 1)]
        for ids, lengths in shard.batches():
            hasher.update(ids, lengths)
            counter.update(ids, lengths)
            if ids.size:
                largest = max(int(ids.max()), -1 if largest is None else largest)
            tokens += len(ids)
            if progress is not None:
                progress(done + tokens * corpus.dtype.itemsize, total, tokens)
        _within_vocab(corpus, entry, largest)
        shards.append(_record(corpus, entry, largest))
    stats = counter.finish()
    record = SplitRecord(
        documents=len(corpus),
        sequences=corpus.sequences_count,
        tokens=corpus.tokens,
        identity=hasher.finish().digest,
        shards=tuple(shards),
        statistics=stats.as_dict(),
    )
    return record, stats


def _first(corpus: Corpus, number: int) -> int:
    return sum(entry.documents for entry in corpus.entries[:number])


def _record(corpus: Corpus, entry: ShardEntry, largest: int | None) -> ShardRecord:
    root = Path(corpus.store.root)
    files = tuple(
        FileEntry(path=name, bytes=(root / name).stat().st_size, sha256=sha256_file(root / name))
        for name in entry.files
    )
    return ShardRecord(
        name=entry.name,
        documents=entry.documents,
        sequences=entry.sequences,
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
            hint=f"tokenreel verify {corpus.path} --level full --vocab {corpus.vocab}",
        )


def _exceptions(corpus: Corpus, stats: Statistics, accept: Collection[str]) -> tuple[int, int]:
    boundary = corpus.boundary
    absent = (stats.documents - stats.starts_with_prefix if boundary.prefix else 0) + (
        stats.documents - stats.ends_with_suffix if boundary.suffix else 0
    )
    if (absent or stats.suffix_inside) and "TOK040" not in accept:
        raise TokenError(
            "TOK040",
            f"{absent:,} documents lack it, {stats.suffix_inside:,} times it stands inside one",
            path=corpus.path,
            shard=corpus.split_name,
            expected=f"prefix {list(boundary.prefix)}, suffix {list(boundary.suffix)} around each of {len(corpus):,}",
            found=absent + stats.suffix_inside,
            hint=f"tokenreel verify {corpus.path} --level full",
        )
    return absent, stats.suffix_inside
