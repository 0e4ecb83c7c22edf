"""What one file of a replay index must obey: its bytes and its rows, read once.

A kernel goes through the rows: counts by source and bucket, runs of rising ids, the first bucket out of range.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import ReplayError, require
from tokenreel.order.kernels import inlined, kernel, read_only
from tokenreel.replay.buckets import BUCKETS
from tokenreel.replay.files import batches_of, read_batches, rows_of
from tokenreel.verify.finding import Findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from tokenreel.replay.metadata import IndexFile, Source
    from tokenreel.store import Store

RISING = 8
"""Rows a run of rising ids has at least, on average, where a normaliser wrote them; by chance it has 2."""
FEW = 64
"""Rows of a source below which nothing is said of its runs."""
WHOLE = 1 << 27
"""Bytes up to which a file is held in memory, to be hashed and read at once."""
READ = 1 << 22


@dataclass(eq=False)
class RowFacts:
    """What rows add up to."""

    rows: int = 0
    by_source: Counter[str] = field(default_factory=Counter)
    by_bucket: Counter[int] = field(default_factory=Counter)

    def add(self, other: RowFacts) -> None:
        """Add another file's."""
        self.rows += other.rows
        self.by_source.update(other.by_source)
        self.by_bucket.update(other.by_bucket)


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """One file: its SHA-256, what its rows add up to, and what is wrong with them."""

    sha256: str
    facts: RowFacts
    findings: Findings


def examine(store: Store, file: IndexFile, known: Mapping[str, Source] | None) -> Examined:
    """Return a file's hash, counts and what is wrong with its rows; `known` are the sources described, by id.

    Rising ids are expected of sources that say how they were normalised: that step sorts its shards. A file of at most
    `WHOLE` bytes is read once, a larger one twice. Cost: 30 ns a row.
    """
    pa = require("pyarrow", extra="build")
    reader = store.reader(file.path)
    try:
        if reader.size <= WHOLE:
            data = reader.read(0, reader.size)
            batches = batches_of(pa.BufferReader(data), file.path)
            return Examined(hashlib.sha256(data).hexdigest(), *_rows(store, batches, file, known))
        digest = hashlib.sha256()
        for begin in range(0, reader.size, READ):
            digest.update(reader.read(begin, min(READ, reader.size - begin)))
    finally:
        reader.close()
    return Examined(digest.hexdigest(), *_rows(store, read_batches(store, file.path), file, known))


class _Seen:
    """What the kernel keeps from batch to batch, by the number of the source in this file."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.by_source = np.zeros(16, dtype=np.int64)
        self.by_bucket = np.zeros(BUCKETS, dtype=np.int64)
        self.runs = np.zeros(16, dtype=np.int64)
        self.last = np.zeros(32, dtype=np.uint64)

    def codes(self, names: tuple[str, ...]) -> npt.NDArray[np.int32]:
        """Return the numbers of sources, making room for new ones."""
        out = np.array([self.numbers.setdefault(name, len(self.numbers)) for name in names], dtype=np.int32)
        while len(self.numbers) > len(self.runs):
            self.by_source = np.concatenate([self.by_source, np.zeros_like(self.by_source)])
            self.runs = np.concatenate([self.runs, np.zeros_like(self.runs)])
            self.last = np.concatenate([self.last, np.zeros_like(self.last)])
        return out


def _rows(
    store: Store, batches: Iterator[Any], file: IndexFile, known: Mapping[str, Source] | None
) -> tuple[RowFacts, Findings]:
    findings, facts, seen = Findings(), RowFacts(), _Seen()
    try:
        for batch in batches:
            rows = rows_of(batch, file.path, facts.rows)
            codes = seen.codes(rows.sources)
            wrong = _count(
                rows.source, codes, rows.words, rows.bucket, seen.by_source, seen.by_bucket, seen.runs, seen.last
            )
            if wrong >= 0:
                found = int(rows.bucket[wrong])
                expected = f"0 .. {BUCKETS - 1}"
                findings.error("RPL018", path=file.path, document=facts.rows + wrong, expected=expected, found=found)
            facts.rows += len(rows)
    except ReplayError as error:
        findings.caught(error, store.root, path=file.path)
    counts, runs = seen.by_source.tolist(), seen.runs.tolist()
    facts.by_source.update({name: counts[number] for name, number in seen.numbers.items() if counts[number]})
    facts.by_bucket.update({bucket: count for bucket, count in enumerate(seen.by_bucket.tolist()) if count})
    if {"RPL016", "RPL017"} & set(findings.counts):
        return facts, findings
    if facts.rows != file.documents:
        findings.error("RPL026", path=file.path, expected=file.documents, found=facts.rows)
    if known is not None:
        for name in sorted(set(facts.by_source) - set(known)):
            findings.error("RPL019", path=file.path, expected="a source of sources.json", found=name)
    for name, count in facts.by_source.items():
        if known is None or name not in known or not known[name].normalize_config:
            continue
        ran = runs[seen.numbers[name]]
        if count >= FEW and count < RISING * ran:
            message = f"source {name}: {count:,} rows in {ran:,} runs of rising ids"
            findings.warning("RPL021", message, path=file.path, expected=f"at most {count // RISING:,}", found=ran)
    return facts, findings


@inlined
def _turned(word: Any) -> Any:
    """Return a word with its bytes in reverse: as it lies in the file, it does not compare as a number."""
    word = ((word & np.uint64(0x00FF00FF00FF00FF)) << np.uint64(8)) | (
        (word >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    )
    word = ((word & np.uint64(0x0000FFFF0000FFFF)) << np.uint64(16)) | (
        (word >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    )
    return (word << np.uint64(32)) | (word >> np.uint64(32))


@kernel(
    f"int64({read_only('int32')}, {read_only('int32')}, {read_only('uint64')}, {read_only('int32')},"
    " int64[::1], int64[::1], int64[::1], uint64[::1])"
)
def _count(
    source: Any, codes: Any, words: Any, bucket: Any, by_source: Any, by_bucket: Any, runs: Any, last: Any
) -> int:
    """Count rows and runs by source, rows by bucket; return the first row whose bucket is out of range, or -1."""
    wrong = -1
    for k in range(len(source)):
        mine = bucket[k]
        if 0 <= mine < len(by_bucket):
            by_bucket[mine] += 1
        elif wrong < 0:
            wrong = k
        number = codes[source[k]]
        high, low = _turned(words[2 * k]), _turned(words[2 * k + 1])
        before, under = last[2 * number], last[2 * number + 1]
        if by_source[number] == 0 or high < before or (high == before and low < under):
            runs[number] += 1
        by_source[number] += 1
        last[2 * number], last[2 * number + 1] = high, low
    return wrong
