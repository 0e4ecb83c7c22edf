"""The one pass over stored ids: SHA-256, vocabulary, boundaries and identity together; and the same on a sample.

Every file is read once, in blocks. Shards are read in parallel, each by one thread that hashes and checks a block while it
is in the cache; where there are fewer shards than cores, hashing runs in threads beside the checks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import TokenreelError
from tokenreel.store.base import blocks
from tokenreel.verify.beside import Beside, in_order
from tokenreel.verify.finding import Findings
from tokenreel.verify.joined import Part, Split
from tokenreel.verify.special import Special
from tokenreel.verify.troubles import beyond, report, vocab_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    import numpy.typing as npt

    from tokenreel.formats import Found, Shard
    from tokenreel.hashing import Identity
    from tokenreel.verify.target import Target

    Ids = npt.NDArray[np.integer[Any]]
    Visit = Callable[[Found, int, Ids, npt.NDArray[np.int64]], None]

BLOCK_TOKENS = 1 << 20
BLOCK_DOCUMENTS = 1 << 17
SMALL = 1 << 23
"""Bytes below which a corpus is read in one thread."""
HASH, IDENTITY = "hash", "identity"
AHEAD = 14
"""Shards, beyond those being read, that may wait for one before them: each keeps up to 16 MiB of an identity."""
PIECE = 1 << 20
"""Ids taken at once from a shard: small enough that they are copied, so that a file that shrinks is an error."""


@dataclass(slots=True)
class Read:
    """What reading ids gave, for the rules that come after."""

    sha256: dict[str, str] = field(default_factory=dict)
    """By path, of files read whole."""
    identities: dict[str, Identity] = field(default_factory=dict)
    """By split."""
    documents: int = 0
    tokens: int = 0
    bytes: int = 0
    """Bytes of files hashed."""
    max_id: dict[str, int | None] = field(default_factory=dict)
    """By shard read whole; None: no ids."""
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By split, in the form of manifests."""
    inside: Counter[str] = field(default_factory=Counter)
    """By shard: suffixes inside documents, where receipts count them."""
    special: dict[str, Special] = field(default_factory=dict)
    """Statistics of special tokens, by shard."""
    lacking: Counter[int] = field(default_factory=Counter)
    """Last ids of documents that do not end with the suffix, -1 for an empty one."""

    def add(self, other: Read) -> None:
        """Add what another reader read."""
        self.sha256.update(other.sha256)
        self.max_id.update(other.max_id)
        self.inside.update(other.inside)
        self.special.update(other.special)
        self.lacking.update(other.lacking)
        self.documents += other.documents
        self.tokens += other.tokens
        self.bytes += other.bytes


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a full pass is to do besides, and whom it tells."""

    visit: Visit | None
    tick: Ticker
    unchanged: dict[str, dict[str, str]]
    """Shards that are not read again, with the hashes of their files."""


class Ticker:
    """Adds up what threads have read and hands running totals to a callback."""

    def __init__(self, total: int, show: Callable[[int, int | None, int], None] | None) -> None:
        self._total = total
        self._show = show
        self._bytes = self._tokens = 0
        self._lock = threading.Lock()

    def __call__(self, count: int, tokens: int = 0) -> None:
        """Add bytes and tokens read."""
        if self._show is None:
            return
        with self._lock:
            self._bytes += count
            self._tokens += tokens
            self._show(self._bytes, self._total, self._tokens)


def batches(shard: Shard, max_tokens: int = BLOCK_TOKENS) -> Iterator[tuple[int, int, Ids, npt.NDArray[np.int64]]]:
    """Yield (first document, first token, ids, lengths) of whole documents of a shard, in order.

    A batch is at most `max_tokens` ids, or one longer document.
    """
    at = 0
    while at < shard.documents:
        edges = shard.document_edges(at, min(shard.documents, at + BLOCK_DOCUMENTS))
        while len(edges) > 1:
            take = max(1, int(np.searchsorted(edges, edges[0] + max_tokens, side="right")) - 1)
            begin, end = int(edges[0]), int(edges[take])
            yield at, begin, read_pieces(shard, begin, end), np.diff(edges[: take + 1])
            at += take
            edges = edges[take:]


def read_pieces(shard: Shard, begin: int, end: int) -> Ids:
    """Return ids [begin, end) as a copy, made of reads that cannot fault."""
    if end - begin <= PIECE:
        return shard.read(begin, end)
    parts = [shard.read(at, min(at + PIECE, end)) for at in range(begin, end, PIECE)]
    joined: Ids = np.concatenate(parts)
    return joined


def read_full(
    target: Target,
    findings: Findings,
    identities: Iterable[str],
    visit: Visit | None = None,
    progress: Callable[[int, int | None, int], None] | None = None,
    *,
    statistics: Iterable[str] = (),
    unchanged: dict[str, dict[str, str]] | None = None,
) -> Read:
    """Read every shard whole, once; add what its ids show, and return hashes, identities and statistics.

    `identities` and `statistics` name the splits that are wanted. `visit` sees every batch, from several threads.
    Files of shards that cannot be read as such are hashed as bytes. Shards that are `unchanged` are not read. Documents
    without their boundary may cost a second read of the shard that follows them, where an identity is wanted.
    """
    total = sum(target.sizes.get(path, 0) for found in target.shards for path in found.files)
    wanted = _Wanted(visit, Ticker(total, progress), unchanged or {})
    read = Read()
    list(target.opened())  # opened here, so that the threads below only read
    boundary = target.recorded_boundary  # not another one that was given: identities were recorded under this
    identified, counted = set(identities), set(statistics)
    splits = {
        name: Split(boundary, identity=name in identified, statistics=name in counted) for name in target.splits()
    }
    jobs = [_Job(splits[name], found) for name, chosen in target.splits().items() for found in chosen]
    with contextlib.ExitStack() as stack:
        for job, (mine, found_there, part) in _results(stack, target, jobs, wanted, small=total < SMALL):
            findings.merge(found_there)
            read.add(mine)
            if not job.split.streamed:
                continue
            try:
                job.split.add(part, partial(_again, target, job.found))
            except TokenreelError as error:  # it was read once, and not a second time
                findings.caught(error, target.store.root, shard=job.found.name)
                part.stop()
                job.split.add(part, tuple)
    for name, split in splits.items():
        identity, counts = split.identity(), split.statistics()
        if identity is not None:
            read.identities[name] = identity
        if counts is not None:
            read.statistics[name] = counts.as_dict()
    return read


@dataclass(frozen=True, slots=True)
class _Job:
    split: Split
    found: Found


_Result = tuple[Read, Findings, Part]


def _results(
    stack: contextlib.ExitStack, target: Target, jobs: list[_Job], wanted: _Wanted, *, small: bool
) -> Iterator[tuple[_Job, _Result]]:
    """Yield the results of all jobs, in order; a small corpus is read in this thread, which costs less."""
    last = {id(job.split): job for job in jobs}

    def part(job: _Job) -> Part:
        # Counting the documents of a stream may cost a scan: not asked of the last shard, behind which nothing begins.
        return job.split.part(None if last[id(job.split)] is job else _counts(target.shard(job.found)))

    if small:
        for job in jobs:
            yield job, _read_job(target, job.found, part(job), wanted, None, beside=False)
        return
    cores = os.cpu_count() or 1
    files = stack.enter_context(ThreadPoolExecutor(cores))
    pool = stack.enter_context(ThreadPoolExecutor(max(1, min(len(jobs), cores))))
    beside = len(jobs) < cores

    def begin(job: _Job) -> Future[_Result]:
        return pool.submit(_read_job, target, job.found, part(job), wanted, files, beside=beside)

    yield from stack.enter_context(contextlib.closing(in_order(jobs, begin, cores + AHEAD)))


def _counts(shard: Shard | None) -> tuple[int, int] | None:
    try:
        return None if shard is None else (shard.documents, shard.tokens)
    except TokenreelError:  # reported where it is read
        return None


def _again(target: Target, found: Found) -> Iterator[tuple[Ids, npt.NDArray[np.int64]]]:
    shard = target.shard(found)
    if shard is not None:
        for _, _, ids, lengths in batches(shard):
            yield ids, lengths


def _read_job(
    target: Target, found: Found, part: Part, wanted: _Wanted, files: ThreadPoolExecutor | None, *, beside: bool
) -> _Result:
    """Read one shard and hash its files."""
    read, findings = Read(), Findings()
    if found.name in wanted.unchanged:
        read.sha256.update(wanted.unchanged[found.name])
        part.stop()
        return read, findings, part
    shard = target.shard(found)
    filled = None if shard is None else _filled(target, found, shard)
    rest = [path for path in found.files if path != filled and not target.missing(path)]
    ahead = [] if files is None else [files.submit(_digest_of, target, path, wanted.tick) for path in rest]
    if shard is None:
        part.stop()  # a stream with a hole has no identity; the hole is a finding already
    else:
        try:
            with Beside(threads=beside) as threads:
                _read_shard(target, found, shard, read, findings, part, threads, wanted)
        except TokenreelError as error:
            findings.caught(error, target.store.root, shard=found.name)
            part.stop()
    for task in ahead:
        _add_digest(read, *task.result())
    for path in found.files:
        if path not in read.sha256 and not target.missing(path):
            _add_digest(read, *_digest_of(target, path, wanted.tick))
    return read, findings, part


def _read_shard(
    target: Target,
    found: Found,
    shard: Shard,
    read: Read,
    findings: Findings,
    part: Part,
    beside: Beside,
    wanted: _Wanted,
) -> None:
    path = _filled(target, found, shard)
    fills = path is not None
    digest = hashlib.sha256()
    largest: int | None = None
    special = read.special[found.name] = Special.of(target.read_boundary(shard))
    vocab, recorded = vocab_of(target, shard), target.recorded_boundary
    for first, begin, ids, lengths in batches(shard):
        if fills and len(ids):
            beside.do(HASH, partial(digest.update, np.ascontiguousarray(ids).data.cast("B")))
        if part.hasher is not None:
            beside.do(IDENTITY, partial(part.identify, ids, lengths))
        plain = special.update(ids, lengths)
        highest = int(ids.max()) if len(ids) else None
        if not plain or beyond(ids, highest, vocab):
            report(target, read, findings, shard, (first, begin), ids, lengths)
        if wanted.visit is not None:
            wanted.visit(found, first, ids, lengths)
        if part.counter is not None:
            begun, ended = special.last.get((recorded.prefix, False)), special.last.get((recorded.suffix, True))
            prefixes = None if begun is None else begun[0]
            part.counter.update(ids, lengths, largest=highest, prefixes=prefixes, suffixes=ended)
        if highest is not None:
            largest = highest if largest is None else max(largest, highest)
        read.documents += len(lengths)
        read.tokens += len(ids)
        wanted.tick(ids.nbytes if fills else 0, len(ids))
    beside.wait(HASH)
    beside.wait(IDENTITY)
    if target.manifest is not None:
        read.max_id[found.name] = largest
    if path is not None:
        _add_digest(read, path, digest.hexdigest(), target.sizes[path])


def _filled(target: Target, found: Found, shard: Shard) -> str | None:
    """Return the file that a shard's ids fill from end to end: reading them hashes it. Formats with headers have none."""
    path, start = shard.byte_at(0) if shard.tokens else (found.files[0], 0)
    return path if start == 0 and target.sizes.get(path) == shard.tokens * shard.dtype.itemsize else None


def _add_digest(read: Read, path: str, digest: str, size: int) -> None:
    read.sha256[path] = digest
    read.bytes += size


def _digest_of(target: Target, path: str, tick: Ticker) -> tuple[str, str, int]:
    """Return (path, SHA-256, bytes) of a whole file."""
    reader = target.store.reader(path)
    digest = hashlib.sha256()
    try:
        for block in blocks(reader, 0, reader.size):
            digest.update(block)
            tick(len(block))
    finally:
        reader.close()
    return path, digest.hexdigest(), reader.size
