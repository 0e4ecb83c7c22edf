"""Receipts, run configurations, statistics and completion records: what they hold, parsed strictly, checked by sums.

One schema serves what tokenreel writes and what others wrote by the same description: keys that are not known here are
let through, keys that only tokenreel writes are optional. Duplicate keys, wrong types and negative counts are errors.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from tokenreel.errors import ManifestError
from tokenreel.store import dumps_canonical, loads_strict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RECEIPT_FORMAT = "tokenreel-receipt-1"
RUN_CONFIG_FORMAT = "tokenreel-run-config-1"
STATS_FORMAT = "tokenreel-stats-1"
COMPLETE_FORMAT = "tokenreel-complete-1"
SPLITS = ("train", "validation")

Count = Annotated[int, msgspec.Meta(ge=0)]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
T = TypeVar("T", bound=msgspec.Struct)


class FileEntry(msgspec.Struct, frozen=True):
    """One file, by its path below the corpus root."""

    path: str
    bytes: Count
    sha256: Sha256


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Documents and tokens; ``total = text + eod`` and ``eod = documents``."""

    documents: Count = 0
    text_tokens: Count = 0
    eod_tokens: Count = 0
    total_tokens: Count = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum of two counts."""
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in Counts.__struct_fields__})


class SplitCounts(Counts, frozen=True, kw_only=True):
    """The counts of one split of one part, and its files: none where the split is empty."""

    files: tuple[FileEntry, ...] = ()


class InputFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input: its source, its path as the recipe's folder sees it, its bytes."""

    part: str | None = None
    source: str | None = None
    path: str = ""
    bytes: Count | None = None
    sha256: Sha256 | None = None
    rows: Count | None = None
    revision: str | None = None


class DecodedBack(msgspec.Struct, frozen=True):
    """For a tokenizer that may lose text: of the documents re-checked, how many decoded to exactly their text."""

    checked: Count
    decoded_back: Count


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was done for one unit of build work."""

    format: str | None = None
    part: str
    input: InputFile | None = None
    run_config_sha256: Sha256 | None = None
    splits: dict[str, SplitCounts]
    by_source: dict[str, dict[str, Counts]] = {}
    dropped: dict[str, Count] = {}
    special_in_text: Count = 0
    eod_inside: Count | None = None
    """EOD ids inside documents, where special tokens spelled in text become their ids; None: there are none to count."""
    lossless: bool | DecodedBack | None = None
    documents_sha256: dict[str, Sha256] = {}
    """By split: digest of the part's rows in ``documents.parquet`` (`tokenreel.corpus.documents`)."""
    receipt_sha256: Sha256 | None = None
    """Of the receipt's own canonical bytes without this field (`self_hash`); None where others wrote it."""

    def files(self) -> Iterator[FileEntry]:
        """Yield every file that the receipt names."""
        for split in self.splits.values():
            yield from split.files


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a build was asked to do, pinned: a run into the same folder must match it byte for byte."""

    format: str | None = None
    tokenizer: dict[str, Any] = {}
    split_rule: dict[str, Any] = {}
    dtype: str | None = None
    eod_id: Count | None = None
    special_in_text: str | None = None
    recheck: Count | None = None
    """One document in so many is compared with the reference engine; receipts count them."""
    empty_documents: str | None = None
    empty_inputs: str | None = None
    sources: tuple[dict[str, Any], ...] = ()
    """How the records of each source are read: name, fields, separator."""
    inputs: tuple[InputFile, ...] = ()
    layout: str | None = None
    builder: dict[str, Any] = {}


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all receipts."""

    format: str | None = None
    by_split: dict[str, Counts]
    by_source: dict[str, dict[str, Counts]] = {}


class Complete(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Written last, after everything it names was read again and matched."""

    format: str | None = None
    parts: Count
    receipts_sha256: Sha256 | None = None
    """`tokenreel.hashing.sha256_lines` over the receipts."""
    stats_sha256: Sha256
    run_config_sha256: Sha256
    manifest_sha256: Sha256 | None = None
    documents_sha256: Sha256 | None = None
    """Of the contents of ``documents.parquet``, not of its bytes."""
    tokenizer_sha256: Sha256 | None = None


def parse_as(kind: type[T], data: bytes, path: object = None) -> T:
    """Return the bytes of a sidecar as `kind`.

    Raises `ManifestError`: MAN001 not JSON, MAN002 a key twice, MAN003 a field missing or of another type, with its path.

    >>> parse_as(Complete, b'{"parts": 0}')
    Traceback (most recent call last):
    tokenreel.errors.ManifestError: MAN003 Object missing required field `stats_sha256`
    """
    try:
        return msgspec.convert(loads_strict(data, path), kind, strict=True)
    except msgspec.ValidationError as error:
        raise ManifestError("MAN003", str(error), path=path) from error


def parse_receipt(data: bytes, path: object = None) -> Receipt:
    """Return a receipt whose paths stay below the root and whose sums hold; else `ManifestError` (also MAN012)."""
    receipt = parse_as(Receipt, data, path)
    problem = next(iter(contradictions(receipt)), None)
    if problem is not None:
        what, expected, found = problem
        raise ManifestError("MAN012", what, path=path, shard=receipt.part, expected=expected, found=found)
    return receipt


def seal(receipt: Receipt) -> Receipt:
    """Return the receipt with its own hash in it; whoever changes a field later must seal it again.

    >>> one = seal(Receipt(part="part-000000", splits={}))
    >>> self_hash(dump(one)) == (one.receipt_sha256, one.receipt_sha256)
    True
    """
    bare = msgspec.structs.replace(receipt, receipt_sha256=None)
    return msgspec.structs.replace(bare, receipt_sha256=hashlib.sha256(dump(bare)).hexdigest())


def self_hash(data: bytes, path: object = None) -> tuple[str | None, str]:
    """Return the hash that the bytes of a receipt record of themselves (None: none), and the one that they have.

    It covers every key, those that are not known here too. Raises `ManifestError` (MAN001, MAN002, MAN003).
    """
    value = loads_strict(data, path)
    if not isinstance(value, dict):
        raise ManifestError("MAN003", "a receipt is an object", path=path, found=type(value).__name__)
    recorded = value.pop("receipt_sha256", None)
    return (None if recorded is None else str(recorded)), hashlib.sha256(dumps_canonical(value)).hexdigest()


def dump(value: msgspec.Struct) -> bytes:
    """Return the canonical bytes of a sidecar; fields that are None are left out."""
    return dumps_canonical(_without_none(msgspec.to_builtins(value)))


def contradictions(receipt: Receipt, itemsize: int | None = None) -> Iterator[tuple[str, object, object]]:
    """Yield (what, expected, found) for every sum of a receipt that does not hold; with `itemsize`, sizes of files too.

    Held to be equal: total and text + EOD, EOD tokens and documents, splits and the sums of their sources, input rows
    and documents kept + dropped, ``.bin`` bytes and tokens, ``.idx`` bytes and 34 + 20 documents + 8.
    """
    for name, split in receipt.splits.items():
        yield from _counts(name, split)
        for file in split.files:
            if file.path.startswith("/") or ".." in file.path.split("/"):
                yield f"{name}: a file outside the corpus", "a path below the root", file.path
        if split.documents == 0 and split.files:
            yield f"{name}: files of an empty split", "none", len(split.files)
        if itemsize is not None:
            wanted = {".bin": itemsize * split.total_tokens, ".idx": 34 + 20 * split.documents + 8}
            for file in split.files:
                size = wanted.get(file.path[-4:])
                if size is not None and size != file.bytes:
                    yield f"{name}: bytes of {file.path}", size, file.bytes
    if receipt.by_source:
        for name, split in receipt.splits.items():
            total = total_of(source.get(name, Counts()) for source in receipt.by_source.values())
            if total != total_of([split]):
                yield f"{name}: the sum of its sources", as_table(split), as_table(total)
    rows = receipt.input.rows if receipt.input else None
    if rows is not None:
        kept = sum(split.documents for split in receipt.splits.values())
        if rows != kept + receipt.dropped.get("empty", 0):
            yield "rows of the input", rows, f"{kept} kept and {receipt.dropped.get('empty', 0)} dropped"


def _counts(name: str, split: Counts) -> Iterator[tuple[str, object, object]]:
    if split.eod_tokens != split.documents:
        yield f"{name}: one EOD a document", split.documents, split.eod_tokens
    if split.total_tokens != split.text_tokens + split.eod_tokens:
        yield f"{name}: text and EOD tokens", split.total_tokens, split.text_tokens + split.eod_tokens


def total_of(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts.

    >>> total_of([Counts(documents=1, text_tokens=2), Counts(documents=1)]).documents
    2
    """
    total = Counts()
    for one in counts:
        total = total.plus(one)
    return total


def as_table(counts: Counts) -> dict[str, int]:
    """Return the four counts as a dictionary, without files."""
    return {name: getattr(counts, name) for name in Counts.__struct_fields__}


def sum_receipts(receipts: Iterable[Receipt]) -> Stats:
    """Return exact statistics by split and by source: the sums of all receipts, sources in byte order of name."""
    by_split = {name: Counts() for name in SPLITS}
    by_source: dict[str, dict[str, Counts]] = {}
    for receipt in receipts:
        for name, split in receipt.splits.items():
            by_split[name] = by_split.get(name, Counts()).plus(split)
        for source, splits in receipt.by_source.items():
            sums = by_source.setdefault(source, {name: Counts() for name in SPLITS})
            for name, counts in splits.items():
                sums[name] = sums.get(name, Counts()).plus(counts)
    ordered = {source: by_source[source] for source in sorted(by_source, key=lambda name: name.encode())}
    return Stats(format=STATS_FORMAT, by_split=by_split, by_source=ordered)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value
