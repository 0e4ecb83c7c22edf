"""The one pass over stored ids: SHA-256, vocabulary, boundaries and identity together; and the same on a sample.

Full: every file is read once, in blocks. Shards are read in parallel, each by one thread that hashes and checks a block
while it is in the cache. The shards of a split whose identity is recorded are read in order, since the identity is a
stream; there, and where there are fewer shards than cores, hashing runs in threads beside the checks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.statistics import StatisticsCounter
from tokenreel.errors import TokenError, TokenreelError
from tokenreel.hashing import Identity, IdentityHasher
from tokenreel.store.base import blocks
from tokenreel.verify.beside import Beside
from tokenreel.verify.boundaries import Trouble, check_batch
from tokenreel.verify.finding import KEPT, Finding, Findings
from tokenreel.verify.special import Special
from tokenreel.verify.streamed import StreamUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

    from tokenreel.formats import Boundary, Found, Shard
    from tokenreel.verify.target import Target

    Ids = npt.NDArray[np.integer[Any]]
    Visit = Callable[[Found, int, Ids, npt.NDArray[np.int64]], None]

BLOCK_TOKENS = 1 << 19
BLOCK_DOCUMENTS = 1 << 17
SMALL = 1 << 23
"""Bytes below which a corpus is read in one thread."""
HASH, IDENTITY = "hash", "identity"
PIECE = 1 << 20
"""Ids taken at once from a shard: small enough that they are copied, so that a file that shrinks is an error."""

MEANING = {
    "TOK020": "id {found} is not below the vocabulary",
    "TOK021": "the document does not end with its suffix",
    "TOK022": "the suffix stands inside the document",
    "TOK023": "the document does not begin with its prefix",
    "TOK024": "the prefix stands inside the document",
}


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
    """What a full pass is to give besides findings, and whom it tells."""

    identities: frozenset[str]
    statistics: frozenset[str]
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
    Files of shards that cannot be read as such are hashed as bytes. Shards that are `unchanged` are not read.
    """
    total = sum(target.sizes.get(path, 0) for found in target.shards for path in found.files)
    wanted = _Wanted(frozenset(identities), frozenset(statistics), visit, Ticker(total, progress), unchanged or {})
    read = Read()
    jobs: list[tuple[str, list[Found]]] = []
    for split, chosen in target.splits().items():
        streamed = split in wanted.identities or split in wanted.statistics
        jobs += [(split, chosen)] if streamed else [(split, [found]) for found in chosen]
    list(target.opened())  # opened here, so that the threads below only read
    with contextlib.ExitStack() as stack:
        results = _start(stack, target, jobs, wanted, small=total < SMALL)
        for (split, _), (mine, found_there, identity, counter) in zip(jobs, results, strict=True):
            findings.merge(found_there)
            read.add(mine)
            if identity is not None:
                read.identities[split] = identity
            if counter is not None:
                read.statistics[split] = counter.finish().as_dict()
    return read


_Result = tuple[Read, Findings, Identity | None, StatisticsCounter | None]


def _start(
    stack: contextlib.ExitStack,
    target: Target,
    jobs: list[tuple[str, list[Found]]],
    wanted: _Wanted,
    *,
    small: bool,
) -> Iterator[_Result]:
    """Return the results of all jobs, in order; a small corpus is read in this thread, which costs less."""
    if small:
        return (_read_job(target, job, wanted, None) for job in jobs)
    cores = os.cpu_count() or 1
    files = stack.enter_context(ThreadPoolExecutor(cores))
    pool = stack.enter_context(ThreadPoolExecutor(max(1, min(len(jobs), cores))))
    tasks = [pool.submit(_read_job, target, job, wanted, files, beside=len(jobs) < cores) for job in jobs]
    return (task.result() for task in tasks)


def _read_job(
    target: Target,
    job: tuple[str, list[Found]],
    wanted: _Wanted,
    files: ThreadPoolExecutor | None,
    *,
    beside: bool = False,
) -> _Result:
    with Beside(threads=beside) as threads:
        return _read_all(target, job, wanted, files, threads)


def _read_all(
    target: Target,
    job: tuple[str, list[Found]],
    wanted: _Wanted,
    files: ThreadPoolExecutor | None,
    beside: Beside,
) -> _Result:
    split, chosen = job
    read, findings = Read(), Findings()
    streams = _Streams(target, split, wanted)
    for found in chosen:
        if found.name in wanted.unchanged:
            read.sha256.update(wanted.unchanged[found.name])
            streams.stop()
            continue
        shard = target.shard(found)
        filled = None if shard is None else _filled(target, found, shard)
        rest = [path for path in found.files if path != filled and not target.missing(path)]
        ahead = [] if files is None else [files.submit(_digest_of, target, path, wanted.tick) for path in rest]
        if shard is None:
            streams.stop()  # a stream with a hole has no identity; the hole is a finding already
        else:
            try:
                _read_shard(target, found, shard, read, findings, streams, beside, wanted)
            except TokenreelError as error:
                findings.caught(error, target.store.root, shard=found.name)
                streams.stop()
        for task in ahead:
            _add_digest(read, *task.result())
        for path in found.files:
            if path not in read.sha256 and not target.missing(path):
                _add_digest(read, *_digest_of(target, path, wanted.tick))
    beside.wait(IDENTITY)
    return read, findings, None if streams.hasher is None else streams.hasher.finish(), streams.counter


class _Streams:
    """What is computed over a whole split in its order: identity and statistics, where they are wanted."""

    def __init__(self, target: Target, split: str, wanted: _Wanted) -> None:
        boundary = target.recorded_boundary  # not another one that was given: both were recorded under this
        self.hasher = IdentityHasher(boundary.prefix, boundary.suffix) if split in wanted.identities else None
        self.counter = StatisticsCounter(boundary) if split in wanted.statistics else None

    def stop(self) -> None:
        """Give both up."""
        self.hasher = self.counter = None

    def identify(self, ids: Ids, lengths: npt.NDArray[np.int64]) -> None:
        """Add documents to the identity."""
        hasher = self.hasher
        if hasher is None:
            return
        try:
            hasher.update(ids, lengths)
        except TokenError:
            self.hasher = None  # an id that no identity holds: reported as an id


def _read_shard(
    target: Target,
    found: Found,
    shard: Shard,
    read: Read,
    findings: Findings,
    streams: _Streams,
    beside: Beside,
    wanted: _Wanted,
) -> None:
    path = _filled(target, found, shard)
    fills = path is not None
    digest = hashlib.sha256()
    largest: int | None = None
    special = read.special[found.name] = Special.of(target.read_boundary(shard))
    vocab = _vocab_of(target, shard)
    for first, begin, ids, lengths in batches(shard):
        if fills and len(ids):
            beside.do(HASH, partial(digest.update, np.ascontiguousarray(ids).data.cast("B")))
        if streams.hasher is not None:
            beside.do(IDENTITY, partial(streams.identify, ids, lengths))
        plain = special.update(ids, lengths)
        highest = int(ids.max()) if len(ids) else None
        if not plain or _beyond(ids, highest, vocab):
            report(target, read, findings, shard, (first, begin), ids, lengths)
        if wanted.visit is not None:
            wanted.visit(found, first, ids, lengths)
        if streams.counter is not None:
            separators = special.counted.get(target.recorded_boundary.suffix)
            streams.counter.update(ids, lengths, largest=highest, separators=separators)
        if highest is not None:
            largest = highest if largest is None else max(largest, highest)
        read.documents += len(lengths)
        read.tokens += len(ids)
        wanted.tick(ids.nbytes if fills else 0, len(ids))
    beside.wait(HASH)
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


def report(
    target: Target,
    read: Read,
    findings: Findings,
    shard: Shard,
    at: tuple[int, int],
    ids: Ids,
    lengths: npt.NDArray[np.int64],
) -> None:
    """Add the findings of one batch that begins at (document, token) of the shard."""
    first, begin = at
    boundary, vocab = target.read_boundary(shard), _vocab_of(target, shard)
    for trouble in _troubles(findings, shard, (first, begin), check_batch(ids, lengths, boundary, vocab)):
        if trouble.code == "TOK022" and shard.name in target.excused:
            read.inside[shard.name] += len(trouble.tokens)
            continue
        if trouble.code == "TOK021":
            lengths_there = lengths[trouble.documents]
            lasts = ids[trouble.tokens] if len(ids) else np.empty(0, np.int64)
            values, counts = np.unique(lasts[lengths_there > 0] if len(ids) else lasts, return_counts=True)
            read.lacking.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        shown = min(KEPT, len(trouble.tokens))
        for k in range(shown):
            path, offset = shard.byte_at(min(begin + int(trouble.tokens[k]), max(0, shard.tokens - 1)))
            value = trouble.found[k]
            findings.add(
                Finding(
                    trouble.code,
                    "error",
                    MEANING[trouble.code].format(found=value),
                    path,
                    offset,
                    _name_at(shard, begin + int(trouble.tokens[k])),
                    first + int(trouble.documents[k]),
                    _expected(trouble.code, boundary, vocab),
                    "an empty document" if value < 0 and trouble.code != "TOK020" else value,
                ),
                # The last one kept stands for those that are not shown.
                1 if k < shown - 1 else len(trouble.tokens) - k,
            )


def _troubles(findings: Findings, shard: Shard, at: tuple[int, int], found: list[Trouble]) -> Iterator[Trouble]:
    """Yield what is wrong; where a stream begins or ends inside a document is said apart."""
    for trouble in found:
        one = trouble
        if isinstance(shard, StreamUnit) and not shard.boundary.table:
            one = _fragments(findings, shard, *at, trouble)
        if len(one.tokens):
            yield one


def _fragments(findings: Findings, unit: StreamUnit, first: int, begin: int, trouble: Trouble) -> Trouble:
    """Say where a stream begins or ends inside a document, and return what else is wrong: some of many shards look so."""
    at_edge = {"TOK023": 0, "TOK021": unit.documents - 1}.get(trouble.code)
    edge = trouble.documents + first == at_edge
    if at_edge is None or not bool(edge.any()):
        return trouble
    token = begin + int(trouble.tokens[edge.argmax()])
    path, offset = unit.byte_at(min(token, max(0, unit.tokens - 1)))
    side, what = ("begins", "prefix") if trouble.code == "TOK023" else ("ends", "suffix")
    findings.warning(
        "TOK027",
        f"the stream {side} inside a document, which has no {what} here",
        path=path,
        offset=offset,
        shard=_name_at(unit, token),
        document=at_edge,
    )
    rest = ~edge
    return Trouble(trouble.code, trouble.tokens[rest], trouble.documents[rest], trouble.found)


def _beyond(ids: Ids, highest: int | None, vocab: int | None) -> bool:
    """Return whether an id is negative, or not below the vocabulary."""
    if highest is None:
        return False
    return (vocab is not None and highest >= vocab) or (ids.dtype.kind == "i" and int(ids.min()) < 0)


def _vocab_of(target: Target, shard: Shard) -> int | None:
    """Return what ids are below: as given or recorded, else as the shard's own header says."""
    said: int | None = getattr(shard, "vocab", None)
    return target.vocab if said is None else said if target.vocab is None else min(said, target.vocab)


def _name_at(shard: Shard, token: int) -> str:
    return shard.shard_at(token)[0] if isinstance(shard, StreamUnit) else shard.name


def _expected(code: str, boundary: Boundary, vocab: int | None) -> str:
    if code == "TOK020":
        return "0 <= id" if vocab is None else f"0 <= id < {vocab}"
    side, name = (boundary.suffix, "suffix") if code in ("TOK021", "TOK022") else (boundary.prefix, "prefix")
    ids = " ".join(map(str, side))
    if code in ("TOK022", "TOK024"):
        return f"{name} {ids} only at the {'end' if name == 'suffix' else 'beginning'}"
    return f"{name} {ids}"


def choose_documents(total: int, sample: int, seed: int) -> list[int]:
    """Return which of `total` documents a sample of `sample` reads: the first, the last, and others by `seed`; sorted.

    >>> choose_documents(5, 9, 0), len(choose_documents(10**12, 100, 0))
    ([0, 1, 2, 3, 4], 100)
    """
    if total <= sample:
        return list(range(total))
    chosen = {0, total - 1}
    draw = random.Random(seed)  # noqa: S311 (a sample, not a secret)
    while len(chosen) < sample:
        chosen.add(draw.randrange(total))
    return sorted(chosen)[: max(sample, 0)]


def read_sample(target: Target, findings: Findings, sample: int, seed: int, visit: Visit | None = None) -> Read:
    """Read a sample of the documents of all shards and add what their ids show. Cost: one read per document."""
    opened = list(target.opened())
    bases = np.cumsum([0, *(shard.documents for _, shard in opened)])
    read = Read()
    for document in choose_documents(int(bases[-1]), sample, seed):
        number = int(np.searchsorted(bases, document, side="right")) - 1
        found, shard = opened[number]
        local = document - int(bases[number])
        begin, end = (int(edge) for edge in shard.document_edges(local, local + 1))
        try:
            ids = read_pieces(shard, begin, end)
        except TokenreelError as error:
            findings.caught(error, target.store.root, shard=found.name, document=local)
            continue
        lengths = np.array([end - begin], dtype=np.int64)
        report(target, read, findings, shard, (local, begin), ids, lengths)
        if found.name not in read.special:
            read.special[found.name] = Special.of(target.read_boundary(shard))
        read.special[found.name].update(ids, lengths)
        if visit is not None:
            visit(found, local, ids, lengths)
        read.documents += 1
        read.tokens += end - begin
    return read
