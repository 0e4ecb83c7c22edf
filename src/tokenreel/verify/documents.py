"""Rules over ``documents.parquet``: its contents against the shards, the receipts and COMPLETE.json."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.documents import documents_digests, documents_schema, file_digest
from tokenreel.corpus.receipts import Counts
from tokenreel.errors import MissingExtra, TokenreelError, require
from tokenreel.hashing import xxh3_128
from tokenreel.store import LocalStore
from tokenreel.verify.streamed import StreamUnit
from tokenreel.verify.target import COMPLETE, DOCUMENTS, SHARDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokenreel.formats import Boundary, Found
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target

BATCH = 1 << 16
SAMPLED = 20_000
"""Documents whose ids are computed again: a second's work, however many there are."""
# What pyarrow raises over damaged bytes, besides its own exceptions.
UNREADABLE = (OSError, ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError)


def check_documents_quick(target: Target, findings: Findings) -> bool:
    """Check the number of rows against the shards, and return whether there was a file; reads its footer."""
    parquet = _parquet(target, findings)
    if parquet is None:
        return False
    try:
        with parquet.ParquetFile(_place(target)) as file:
            rows = int(file.metadata.num_rows)
    except UNREADABLE as error:
        _cannot_read(findings, error)
        return True
    opened = [shard for _, shard in target.opened()]
    if any(getattr(shard, "piece", None) for shard in opened):
        findings.skip(
            f"number of rows of {DOCUMENTS}", "documents are found by scanning all of the files", "--level full"
        )
        return True
    there = sum(shard.documents for shard in opened)
    if rows != there and not target.broken:
        findings.error("DOC011", "rows", path=DOCUMENTS, expected=f"{there}, one per document", found=rows)
    return True


def check_documents(target: Target, findings: Findings) -> bool:
    """Check every row against shards, digests of rows and counts by source against receipts and COMPLETE.json.

    Returns whether there was a file. Cost: reads the file twice, a batch of 65,536 rows at a time.
    """
    parquet = _parquet(target, findings)
    if parquet is None:
        return False
    place: Any = _place(target)
    try:
        digests = documents_digests(place)
        if isinstance(place, io.BytesIO):
            place.seek(0)
        with parquet.ParquetFile(place) as file:
            _check_types(file, findings)
            _check_rows(target, file, findings)
    except TokenreelError as error:
        findings.error("DOC011", error.message, path=DOCUMENTS, expected=error.expected, found=error.found)
        return True
    except UNREADABLE as error:
        _cannot_read(findings, error)
        return True
    for receipt in (sidecar.value for sidecar in target.receipts.values()):
        for split, said in receipt.documents_sha256.items() if receipt is not None else ():
            name = f"shards/{split}/{receipt.part}" if receipt is not None else ""
            found = digests.get(name, (0, "no rows"))[1]
            if found != said:
                findings.error(
                    "DOC013", path=DOCUMENTS, shard=name, expected=f"{said}, as its receipt says", found=found
                )
    complete = target.complete.value if target.complete else None
    if complete is not None and complete.documents_sha256 is not None:
        whole = file_digest({name: digest for name, (_, digest) in digests.items()})
        if whole != complete.documents_sha256:
            findings.error(
                "MAN047",
                f"documents_sha256 of {COMPLETE}",
                path=DOCUMENTS,
                expected=complete.documents_sha256,
                found=whole,
            )
    elif complete is not None:
        findings.error("MAN003", f"{DOCUMENTS} is there, and documents_sha256 is missing", path=COMPLETE)
    return True


class _BySource:
    """Documents and stored tokens of every shard and source, added up from rows."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], list[int]] = {}

    def add(self, batch: Any) -> None:
        pa = require("pyarrow", extra="build")
        columns = {name: _decoded(pa, batch.column(name)) for name in ("shard", "source")}
        table = pa.table({**columns, "length": batch.column("length")})
        sums = table.group_by(["shard", "source"]).aggregate([("length", "count"), ("length", "sum")])
        for row in sums.to_pylist():
            one = self.counts.setdefault((row["shard"], row["source"]), [0, 0])
            one[0] += row["length_count"]
            one[1] += row["length_sum"]

    def check(self, target: Target, findings: Findings) -> None:
        """Compare with the counts by source of every receipt."""
        for path, sidecar in target.receipts.items():
            receipt = sidecar.value
            if receipt is None or not receipt.by_source:
                continue
            for split in receipt.splits:
                shard = f"{SHARDS}{split}/{receipt.part}"
                rows = {source: counts for (name, source), counts in self.counts.items() if name == shard}
                for source in sorted({*receipt.by_source, *rows}):
                    said = receipt.by_source.get(source, {}).get(split, Counts())
                    there = rows.get(source, [0, 0])
                    for name, one, two in (
                        ("documents", said.documents, there[0]),
                        ("total_tokens", said.total_tokens, there[1]),
                    ):
                        if one != two:
                            findings.error(
                                "MAN061",
                                f"the receipt says {one} {name} of source {source} in {split}, and the rows of "
                                f"{DOCUMENTS} give {two}",
                                path=path,
                                shard=shard,
                                expected=two,
                                found=one,
                            )


def _decoded(pa: Any, column: Any) -> Any:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _parquet(target: Target, findings: Findings) -> Any:
    """Return pyarrow.parquet, or None when there is nothing to check or nothing to check it with."""
    if target.missing(DOCUMENTS) or not target.whole:
        return None
    try:
        return require("pyarrow.parquet", extra="build")
    except MissingExtra as error:
        findings.skip(DOCUMENTS, error.message, error.hint or "")
        return None


def _place(target: Target) -> Path | io.BytesIO:
    if isinstance(target.store, LocalStore):
        from pathlib import Path

        return Path(target.store.root) / DOCUMENTS
    return io.BytesIO(target.store.read(DOCUMENTS))


def _cannot_read(findings: Findings, error: Exception) -> None:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    findings.error("DOC011", f"it cannot be read: {first}", path=DOCUMENTS)


def _check_types(file: Any, findings: Findings) -> None:
    """Words are strings, however wide or shared; ids and numbers have one type each. The digest does not look at types."""
    pa = require("pyarrow", extra="build")
    for field in documents_schema():
        found = file.schema_arrow.field(field.name).type
        plain = found.value_type if pa.types.is_dictionary(found) else found
        is_word = pa.types.is_dictionary(field.type) or pa.types.is_large_string(field.type)
        same = pa.types.is_string(plain) or pa.types.is_large_string(plain) if is_word else found == field.type
        if not same:
            findings.error("DOC011", f"type of {field.name}", path=DOCUMENTS, expected=field.type, found=found)


def _check_rows(target: Target, file: Any, findings: Findings) -> None:
    """Shards stand in the corpus's order, documents are numbered from 0, and lengths are those of the tables."""
    homes = list(_homes(target))
    if target.broken:
        findings.skip(f"rows of {DOCUMENTS} against the shards", "a shard cannot be read", "mend the findings first")
        return
    names = np.array([home.name for home in homes], dtype=object)
    bases = np.cumsum([0, *(home.documents for home in homes)])
    row, by_source = 0, _BySource()
    ids = _Ids(target, homes, max(1, file.metadata.num_rows // SAMPLED))
    columns = ["shard", "split", "index", "length", "source", *(("id", "kind") if ids.known else ())]
    for batch in file.iter_batches(batch_size=BATCH, columns=columns):
        count = batch.num_rows
        by_source.add(batch)
        rows = np.arange(row, row + count)
        inside = rows < bases[-1]
        home = np.searchsorted(bases, rows[inside], side="right") - 1
        shards = np.array(batch.column("shard").to_pylist(), dtype=object)[inside]
        splits = np.array(batch.column("split").to_pylist(), dtype=object)[inside]
        index = batch.column("index").to_numpy(zero_copy_only=False)[inside]
        length = batch.column("length").to_numpy(zero_copy_only=False)[inside]
        local = rows[inside] - bases[home]
        expected_splits = np.array([home.split for home in homes], dtype=object)
        for column, found_there, expected in (
            ("shard", shards, names[home] if len(names) else shards),
            ("split", splits, expected_splits[home] if len(names) else splits),
            ("index", index, local),
            ("length", length, _lengths(target, homes, home, local)),
        ):
            bad = np.flatnonzero(found_there != expected)
            for k in bad[:20].tolist():
                findings.error(
                    "DOC011", column, path=DOCUMENTS, document=row + k, expected=expected[k], found=found_there[k]
                )
        if ids.known:
            ids.check(batch, row, home, local, findings)
        row += count
    if row != int(bases[-1]):
        findings.error("DOC011", "rows", path=DOCUMENTS, expected=f"{int(bases[-1])}, one per document", found=row)
    else:
        by_source.check(target, findings)


@dataclass(frozen=True, slots=True)
class _Ids:
    """Ids that are hashes of tokens, against the documents that they name: at most some `SAMPLED`, spread evenly."""

    target: Target
    homes: list[_Home]
    step: int

    @property
    def known(self) -> bool:
        """Whether it is known what stands around documents: ids are of what is between."""
        return bool(self.target.manifest or self.target.run_config or self.target.boundary_given)

    def check(self, batch: Any, row: int, home: Any, local: Any, findings: Findings) -> None:
        """Add a finding for each document whose hash is not its id (DOC027)."""
        kinds = batch.column("kind").to_pylist()
        said = batch.column("id").to_pylist()
        for k in range(-row % self.step, len(home), self.step):
            one = self.homes[home[k]]
            shard = self.target.shard(one.found)
            if kinds[k] != "tokens" or shard is None:
                continue
            ids = shard.document(int(local[k]) + one.first)
            found = xxh3_128(_content(ids, self.target.boundary).astype("<u4").tobytes())
            if found != said[k]:
                findings.error(
                    "DOC027", path=one.name, document=row + k, expected=f"{said[k].hex()}, its id", found=found.hex()
                )


def _content(ids: Any, boundary: Boundary) -> Any:
    """Return a document without its prefix and its suffix, each where it is there."""
    for side, at_end in ((boundary.prefix, False), (boundary.suffix, True)):
        size = len(side)
        if size and size <= len(ids):
            if at_end and tuple(ids[-size:].tolist()) == side:
                ids = ids[:-size]
            elif not at_end and tuple(ids[:size].tolist()) == side:
                ids = ids[size:]
    return ids


@dataclass(frozen=True, slots=True)
class _Home:
    """Where rows of one shard's documents belong."""

    found: Found
    """The shard, or the stream that its file is of."""
    name: str
    split: str
    first: int
    """Number of its first document in `found`."""
    documents: int


def _homes(target: Target) -> Iterator[_Home]:
    """Yield the shards in the order of rows; a document of a stream is where it begins."""
    splits = target.splits()
    for split in sorted(splits, key=str.encode):
        for found in splits[split]:
            shard = target.shard(found)
            if isinstance(shard, StreamUnit):
                first = 0
                for entry, count in zip(shard.entries, shard.begins(), strict=True):
                    yield _Home(found, entry.name, split, first, count)
                    first += count
            elif shard is not None:
                yield _Home(found, found.name, split, 0, shard.documents)


def _lengths(target: Target, homes: list[_Home], home: Any, local: Any) -> Any:
    out = np.zeros(len(home), dtype=np.int64)
    for number in np.unique(home).tolist():
        shard = target.shard(homes[number].found)
        mine = home == number
        if shard is not None:
            at = local[mine] + homes[number].first
            low, high = int(at.min()), int(at.max())
            out[mine] = np.diff(shard.document_edges(low, high + 1))[at - low]
    return out
