"""Which documents go into which target shard: settled before anything is written, and the same again when run again."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenreel.corpus.documents import DOCUMENTS
from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.errors import UsageError
from tokenreel.formats.hobbylm import DOCS, INDEX, prefix_of
from tokenreel.store import dumps_canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.convert.fitting import Target
    from tokenreel.convert.source import Source
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats.writing import Writing


@dataclass(frozen=True, slots=True)
class Cut:
    """How the target is cut into shards; nothing given: as the source is."""

    tokens: int | None = None
    """A shard ends behind the document that reaches this many stored ids."""
    documents: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("--tokens-per-shard", self.tokens), ("--docs-per-shard", self.documents)):
            if value is not None and value < 1:
                raise UsageError("USE003", name, expected="1 or more", found=value)


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """One shard to be written: documents [begin, end) of the source."""

    number: int
    name: str
    begin: int
    end: int


def plan_shards(source: Source, target: Target, cut: Cut, writing: Writing) -> list[PlannedShard]:
    """Return the target's shards, none of them empty or beyond what the format can hold."""
    edges = [0]
    for edge in _edges(source, target, cut):
        if edge > edges[-1]:
            edges.append(edge)
    if edges[-1] < source.documents:
        edges.append(source.documents)
    names = [_name(number, target, writing) for number in range(len(edges) - 1)]
    return [PlannedShard(k, names[k], edges[k], edges[k + 1]) for k in range(len(names))]


def _name(number: int, target: Target, writing: Writing) -> str:
    from tokenreel.formats.writing import WriteOptions

    if writing.shard_name is None:
        return f"part-{number:06d}"
    return writing.shard_name(number, WriteOptions(target.dtype, target.boundary, target.options))


def _edges(source: Source, target: Target, cut: Cut) -> Iterator[int]:
    """Yield where shards end."""
    import numpy as np

    most = _most_tokens(target)
    as_it_is = cut.tokens is None and cut.documents is None
    fixed = np.array(source.shard_edges() if as_it_is else [source.documents], dtype=np.int64)
    ends_here = set(fixed.tolist())
    grown = len(target.boundary.prefix) + len(target.boundary.suffix) if target.reframes(source) else 0
    held, documents = 0, 0
    for first, lengths in source.blocks():
        sizes = lengths + grown
        ends = np.cumsum(sizes)
        at = 0
        while at < len(sizes):
            base = int(ends[at - 1]) if at else 0
            stop = int(fixed[np.searchsorted(fixed, first + at, side="right")]) - first
            if cut.documents is not None:
                stop = min(stop, at + cut.documents - documents)
            if cut.tokens is not None:
                stop = min(stop, int(np.searchsorted(ends, base + cut.tokens - held)) + 1)
            if most is not None:
                fits = int(np.searchsorted(ends, base + most - held, side="right"))
                if fits <= at and documents:
                    yield first + at
                    held = documents = 0
                    continue
                stop = min(stop, max(fits, at + 1))
            whole = stop <= len(sizes)
            last = min(stop, len(sizes))
            held += int(ends[last - 1]) - base
            documents += last - at
            at = last
            if whole and (_full(cut, held, documents) or first + at in ends_here or _crowded(most, held, sizes, at)):
                yield first + at
                held = documents = 0


def _full(cut: Cut, held: int, documents: int) -> bool:
    return (cut.tokens is not None and held >= cut.tokens) or (cut.documents is not None and documents >= cut.documents)


def _crowded(most: int | None, held: int, sizes: object, at: int) -> bool:
    """Return whether the next document does not fit into the shard any more."""
    return most is not None and at < len(sizes) and held + int(sizes[at]) > most  # type: ignore[arg-type, index]


def _most_tokens(target: Target) -> int | None:
    import numpy as np

    limits = [target.holds.shard_tokens]
    if target.holds.shard_bytes is not None:
        limits.append(target.holds.shard_bytes // np.dtype(target.dtype).itemsize)
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _beside(corpus: Corpus) -> list[str]:
    """Return the files beside a corpus's shards that say what is known of its documents."""
    names = {DOCUMENTS}
    if isinstance(corpus, StreamCorpus):
        names |= {prefix_of(entry.name) + suffix for entry in corpus.entries for suffix in (INDEX, DOCS)}
    return sorted(name for name in names if corpus.store.exists(name))


def _recorded(corpus: Corpus) -> list[str]:
    """Return what a corpus's manifest says of the contents of its shards."""
    if corpus.manifest is None:
        return []
    mine = {file for entry in corpus.entries for file in entry.files}
    files = {file for split in corpus.manifest.splits.values() for shard in split.shards for file in shard.files}
    said = sorted(f"{file.path} {file.sha256}\n" for file in files if file.path in mine)
    return [f"identity {corpus.recorded_identity.get(corpus.split_name or '')}\n", *said]


def fingerprint(source: Source, target: Target, shards: list[PlannedShard]) -> str:
    """Return what tells one conversion from another: the source's files, what is written, and how it is cut.

    A source that was changed after a conversion began gives another one: its files are told by size and time, and by what
    its manifest says of their contents where it has one. They are not read for it: a file that was changed and given its old
    time again, in a corpus without a manifest, is not noticed.
    """
    from pathlib import Path

    digest = hashlib.sha256(b"tokenreel-convert-1\n")
    for corpus in source.corpora:
        digest.update(os.fsencode(f"{corpus.path} [{corpus.lo}, {corpus.hi}) {corpus.boundary}\n"))
        for entry in corpus.entries:
            for file in entry.files:
                status = (Path(corpus.store.root) / file).stat()
                digest.update(os.fsencode(f"{file} {status.st_size} {status.st_mtime_ns}\n"))
        for line in _recorded(corpus):
            digest.update(os.fsencode(line))
        for file in _beside(corpus):
            status = (Path(corpus.store.root) / file).stat()
            digest.update(os.fsencode(f"{file} {status.st_size} {status.st_mtime_ns}\n"))
    said = {
        "format": target.format,
        "dtype": target.dtype,
        "boundary": target.boundary.as_dict(),
        "options": {key: str(value) for key, value in sorted(target.options.items())},
    }
    digest.update(dumps_canonical(said))
    for shard in shards:
        digest.update(f"{shard.name} {shard.begin} {shard.end}\n".encode())
    return digest.hexdigest()
