"""One unit of work: one input file becomes up to four shard files and a receipt, the receipt last.

Everything here depends on the input's bytes and the plan alone: not on the worker, its number, chunks, or time.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokenreel.build.blocks import InputBytes
from tokenreel.build.records import SourceShape  # noqa: TC001 (msgspec reads it when jobs are decoded)
from tokenreel.build.rows import RowsWriter
from tokenreel.build.sources import read_records
from tokenreel.corpus.receipts import (
    RECEIPT_FORMAT,
    SPLITS,
    Counts,
    DecodedBack,
    InputFile,
    Receipt,
    SplitCounts,
    dump,
    seal,
)
from tokenreel.corpus.receipts import FileEntry as ReceiptFile
from tokenreel.corpus.splits import SplitInput, SplitRule
from tokenreel.errors import SourceError, TokenError, TokenreelError
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.store import write_bytes_atomic
from tokenreel.text.recheck import Rechecked, recheck_batch
from tokenreel.text.texts import text_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from tokenreel.build.records import Records
    from tokenreel.text.engines import Batch, Encoder

_FEW_RUNS = 64
_LONG_DOCUMENTS = 128


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One input to build."""

    part: str
    shape: SourceShape
    location: str
    path: str
    bytes: int
    sha256: str
    stamp: tuple[int, int, int, int] | None = None
    """The file's stamp when it was hashed; None: it had changed too shortly before, and is hashed again."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What all units of a build share; travels to workers as JSON."""

    out: str
    layout: str
    run_config_sha256: str
    dtype: str
    eod_id: int
    special_in_text: str
    recheck: int
    empty: str
    empty_inputs: str
    chunk_bytes: int
    lossless: bool


@dataclass(slots=True)
class _Totals:
    """Counts of one unit, by source and split."""

    by_source: dict[str, dict[str, Counts]] = field(default_factory=dict)
    records: int = 0
    kept: int = 0
    empty: int = 0
    blank: int = 0
    special: int = 0
    inside: int = 0
    rechecked: Rechecked = field(default_factory=Rechecked)

    def add(self, source: str, split: str, documents: int, text_tokens: int) -> None:
        splits = self.by_source.setdefault(source, {name: Counts() for name in SPLITS})
        splits[split] = splits[split].plus(
            Counts(
                documents=documents,
                text_tokens=text_tokens,
                eod_tokens=documents,
                total_tokens=text_tokens + documents,
            )
        )


class _Shards:
    """The shards of one unit: opened when a split has its first document."""

    def __init__(self, stack: contextlib.ExitStack, plan: Plan, part: str) -> None:
        self._stack = stack
        self._plan = plan
        self._part = part
        self._open: dict[str, tuple[MegatronWriter, RowsWriter | None]] = {}

    def of(self, split: str) -> tuple[MegatronWriter, RowsWriter | None]:
        if split not in self._open:
            out = Path(self._plan.out)
            writer = MegatronWriter(out / "shards" / split / self._part, self._plan.dtype)
            self._stack.enter_context(writer)
            rows = RowsWriter(self._stack, out, self._part, split) if self._plan.layout == "native" else None
            self._open[split] = writer, rows
        return self._open[split]

    def finish(self) -> tuple[dict[str, tuple[ReceiptFile, ...]], dict[str, str]]:
        """Return, by split, the files of each shard and the digest of its rows; the shards get their names."""
        out = Path(self._plan.out)
        files, digests = {}, {}
        for split in SPLITS:
            if split in self._open:
                writer, rows = self._open[split]
                files[split] = tuple(
                    ReceiptFile(Path(one.path).relative_to(out).as_posix(), one.bytes, one.sha256)
                    for one in writer.finish()
                )
                if rows is not None:
                    digests[split] = rows.hexdigest()
        return files, digests


def build_unit(
    job: Job, plan: Plan, encoder: Encoder, rule: SplitRule, tick: Callable[[int, int], None] | None = None
) -> Receipt:
    """Build one part and return its receipt, which is written last. `tick` gets bytes read and tokens written so far.

    Memory: a few chunks, and the longest document. Raises what is wrong with the input (`SourceError`), the text
    (`TokenizerError`), the ids (`TokenError`) or the disk (`StorageError`); nothing is left half-written then.
    """
    out = Path(plan.out)
    totals = _Totals()
    file = InputBytes(job.location, job.stamp)
    # A part that is built again may have had files before: a receipt without them must never be seen.
    (out / "receipts" / f"{job.part}.json").unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        shards = _Shards(stack, plan, job.part)
        for records in read_records(file, job.shape, plan.chunk_bytes):
            _add_records(records, job, plan, encoder, rule, shards, totals)
            if tick is not None:
                tokens = sum(c.total_tokens for splits in totals.by_source.values() for c in splits.values())
                tick(min(file.bytes, job.bytes), tokens)
        file.check(job.bytes, job.sha256)
        if not totals.records and plan.empty_inputs == "error":
            raise SourceError(
                "SRC009",
                path=job.path,
                expected="at least one document",
                found=f"{job.bytes} bytes",
                hint='remove it, or set empty_inputs = "allow" in [documents]',
            )
        files, digests = shards.finish()
    receipt = seal(_receipt(job, plan, totals, files, digests))
    write_bytes_atomic(out / "receipts" / f"{job.part}.json", dump(receipt))
    return receipt


def _add_records(
    records: Records, job: Job, plan: Plan, encoder: Encoder, rule: SplitRule, shards: _Shards, totals: _Totals
) -> None:
    totals.records += len(records)
    totals.blank += records.blank
    texts, ids, sources, numbers = _without_empty(records, job, plan, totals)
    if not len(texts):
        return
    with _placing(records, numbers, job):
        batch = encoder.encode_counted(texts, checked=records.explain is None)
    totals.special += int(batch.special.sum())
    if plan.special_in_text == "drop" and plan.empty != "keep":
        # A text of special tokens alone is empty only now.
        kept = _full(batch.texts, numbers, records, job, plan, totals)
        if kept is not None:
            batch, numbers = _picked(batch, kept), numbers[kept]
            texts, ids, sources = _taken(texts, ids, sources, kept)
        if not len(texts):
            return
    with _placing(records, numbers, job):
        totals.rechecked += _recheck(encoder, batch, totals.kept, plan.recheck)
        _check_ids(batch, plan)
    if plan.special_in_text == "special":
        totals.inside += int(np.count_nonzero(batch.ids == plan.eod_id))
    blob, offsets = text_bytes(texts)
    edges = offsets.tolist()
    chosen = rule.validation(SplitInput(blob.data, edges, totals.kept, ids))
    totals.kept += len(texts)
    stored, lengths = with_eod(batch.ids, batch.lengths, plan.eod_id, np.dtype(plan.dtype))
    text_ids = _text_ids(blob.data, edges) if plan.layout == "native" else b""
    for split, mask in ((SPLITS[0], ~chosen), (SPLITS[1], chosen)):
        count = int(np.count_nonzero(mask))
        if count:
            writer, rows = shards.of(split)
            for run_ids, run_lengths in select(stored, lengths, mask):
                writer.add_documents(run_ids, run_lengths)
            if rows is not None:
                _add_rows(rows, mask, text_ids, sources, job.shape.constant, ids, lengths)
            _count(totals, split, mask, batch.lengths, sources, job.shape.constant)


def _without_empty(
    records: Records, job: Job, plan: Plan, totals: _Totals
) -> tuple[Any, list[str | None] | None, list[str] | None, npt.NDArray[np.int64]]:
    """Return texts, upstream ids, sources and numbers (among the chunk's records) of the documents that are kept."""
    numbers = np.arange(len(records))
    if plan.empty == "keep" or not len(records):
        return records.texts, records.ids, records.sources, numbers
    kept = _full(records.texts, numbers, records, job, plan, totals)
    if kept is None:
        return records.texts, records.ids, records.sources, numbers
    return *_taken(records.texts, records.ids, records.sources, kept), kept


def _full(
    texts: Any, numbers: npt.NDArray[np.int64], records: Records, job: Job, plan: Plan, totals: _Totals
) -> npt.NDArray[np.int64] | None:
    """Return which of `texts` are not empty, None when all are; counts the empty ones, or raises `SourceError` (SRC016)."""
    _, offsets = text_bytes(texts)
    full = np.diff(offsets) > 0
    if bool(full.all()):
        return None
    if plan.empty == "error":
        at = int(numbers[int(np.argmin(full))])
        dropped = len(records.texts[at].as_py()) > 0
        raise SourceError(
            "SRC016",
            "Nothing is left of the document's text without its special tokens." if dropped else "",
            path=job.path,
            line=records.lines[at] if records.lines is not None else None,
            document=records.first + at,
            hint='set empty = "keep" or "drop" in [documents]',
        )
    totals.empty += int(np.count_nonzero(~full))
    return np.flatnonzero(full)


def _taken(
    texts: Any, ids: list[str | None] | None, sources: list[str] | None, kept: npt.NDArray[np.int64]
) -> tuple[Any, list[str | None] | None, list[str] | None]:
    pick = kept.tolist()
    return (
        texts.take(kept),
        None if ids is None else [ids[k] for k in pick],
        None if sources is None else [sources[k] for k in pick],
    )


def _picked(batch: Batch, kept: npt.NDArray[np.int64]) -> Batch:
    """Return the batch of the documents `kept` alone."""
    mask = np.zeros(len(batch.lengths), np.bool_)
    mask[kept] = True
    ids = batch.ids[np.repeat(mask, batch.lengths)]
    return replace(
        batch, ids=ids, lengths=batch.lengths[kept], special=batch.special[kept], texts=batch.texts.take(kept)
    )


@contextlib.contextmanager
def _placing(records: Records, numbers: npt.NDArray[np.int64], job: Job) -> Iterator[None]:
    """Give errors that name a document of the chunk, by its number among `numbers`, their place in the input."""
    try:
        yield
    except TokenreelError as error:
        if error.code == "TKZ005":
            records.check()
        raise _placed(error, records, numbers, job) from error


def _placed(error: TokenreelError, records: Records, numbers: npt.NDArray[np.int64], job: Job) -> TokenreelError:
    """Return the error with the input's path, and the record's number and line in place of its number in the chunk."""
    where = dict(error.where)
    document = where.get("document")
    where["path"] = job.path
    message = error.message
    if "offset" in where:
        # Beside a path it would read as a byte of the file.
        message = f"{message or error.title}, at byte {where.pop('offset')} of the document's text"
    if isinstance(document, int) and 0 <= document < len(numbers):
        number = int(numbers[document])
        where["document"] = records.first + number
        if records.lines is not None:
            where["line"] = records.lines[number]
    again = type(error)(error.code, message, expected=error.expected, found=error.found, hint=error.hint)
    again.where = where
    return again


def _recheck(encoder: Encoder, batch: Batch, first: int, one_in: int) -> Rechecked:
    """Compare the documents whose number in the unit, from `first`, is a multiple of `one_in`; see `recheck_batch`."""
    if one_in <= 0:
        return Rechecked()
    rows = np.arange(-first % one_in, len(batch.lengths), one_in)
    if not len(rows):
        return Rechecked()
    edges = np.concatenate(([0], np.cumsum(batch.lengths)))
    ids = np.concatenate([batch.ids[edges[row] : edges[row + 1]] for row in rows.tolist()])
    try:
        # Only these are handed on: a look at all texts of the chunk would cost more than the comparison.
        return recheck_batch(encoder, batch.texts.take(rows), ids, batch.lengths[rows], one_in=1)
    except TokenreelError as error:
        number = error.where.get("document")
        if isinstance(number, int):
            error.where["document"] = int(rows[number])
        raise


def _check_ids(batch: Batch, plan: Plan) -> None:
    """Raise `TokenError` if an id does not fit the dtype, or the EOD stands inside a text where it must not."""
    if not len(batch.ids):
        return
    highest = int(np.iinfo(np.dtype(plan.dtype)).max)
    largest = int(batch.ids.max())
    inside = plan.special_in_text != "special" and largest >= plan.eod_id
    for code, bad, expected in (
        ("TOK010", batch.ids > highest if largest > highest else None, f"0..{highest}"),
        ("TOK012", batch.ids == plan.eod_id if inside else None, "no EOD inside a text"),
    ):
        if bad is None or not bool(bad.any()):
            continue
        at = int(bad.argmax())
        local = int(np.searchsorted(np.cumsum(batch.lengths), at, side="right"))
        raise TokenError(
            code,
            document=local,
            expected=expected,
            found=int(batch.ids[at]),
            hint='set special_in_text = "special" to allow it' if code == "TOK012" else None,
        )


def with_eod(
    ids: npt.NDArray[np.uint32], lengths: npt.NDArray[np.int64], eod: int, dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the ids as `dtype` with `eod` after every document, and the lengths that counts it.

    Ids must fit. Cost: 1 ns a token for long documents, 3 for short ones.

    >>> ids, lengths = with_eod(np.array([5, 6, 7], np.uint32), np.array([2, 0, 1]), 0, np.dtype("u2"))
    >>> ids.tolist(), lengths.tolist()
    ([5, 6, 0, 0, 7, 0], [3, 1, 2])
    """
    stored = lengths + 1
    out = np.empty(len(ids) + len(lengths), dtype)
    ends = np.cumsum(stored)
    if len(ids) >= _LONG_DOCUMENTS * len(lengths):
        begin = at = 0
        for length in lengths.tolist():
            out[at : at + length] = ids[begin : begin + length]
            begin += length
            at += length + 1
    else:
        text = np.ones(len(out), np.bool_)
        text[ends - 1] = False
        out[text] = ids
    out[ends - 1] = eod
    return out, stored


def select(
    ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]
) -> list[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Return (ids, lengths) of the documents in `mask`, in order: as views of runs while these are few, else one copy.

    >>> runs = select(np.array([5, 0, 6, 0, 7, 0]), np.array([2, 2, 2]), np.array([True, False, True]))
    >>> [(ids.tolist(), lengths.tolist()) for ids, lengths in runs]
    [([5, 0], [2]), ([7, 0], [2])]
    """
    if bool(mask.all()):
        return [(ids, lengths)]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if len(begins) > _FEW_RUNS:
        return [(ids[np.repeat(mask, lengths)], lengths[mask])]
    at = np.concatenate(([0], np.cumsum(lengths)))
    return [(ids[at[i] : at[j]], lengths[i:j]) for i, j in zip(begins.tolist(), ends.tolist(), strict=True)]


def _text_ids(view: memoryview, edges: list[int]) -> bytes:
    import xxhash

    new = xxhash.xxh3_128_digest
    return b"".join([new(view[i:j]) for i, j in pairwise(edges)])


def _add_rows(
    rows: RowsWriter,
    mask: npt.NDArray[np.bool_],
    text_ids: bytes,
    sources: list[str] | None,
    constant: str,
    upstream: list[str | None] | None,
    lengths: npt.NDArray[np.int64],
) -> None:
    import pyarrow as pa

    pick = np.flatnonzero(mask)
    ids = np.frombuffer(text_ids, "V16")[pick].tobytes()
    if sources is None:
        words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(pick), np.int32)), pa.array([constant]))
    else:
        words = pa.array([sources[k] for k in pick.tolist()], pa.string()).dictionary_encode()
    chosen = None if upstream is None else [upstream[k] for k in pick.tolist()]
    rows.add(ids, words, chosen, lengths[pick])


def _count(
    totals: _Totals,
    split: str,
    mask: npt.NDArray[np.bool_],
    lengths: npt.NDArray[np.int64],
    sources: list[str] | None,
    constant: str,
) -> None:
    if sources is None:
        totals.add(constant, split, int(np.count_nonzero(mask)), int(lengths[mask].sum()))
        return
    sums: dict[str, list[int]] = {}
    for k in np.flatnonzero(mask).tolist():
        one = sums.setdefault(sources[k], [0, 0])
        one[0] += 1
        one[1] += int(lengths[k])
    for source, (documents, tokens) in sums.items():
        totals.add(source, split, documents, tokens)


def _receipt(
    job: Job, plan: Plan, totals: _Totals, files: dict[str, tuple[ReceiptFile, ...]], digests: dict[str, str]
) -> Receipt:
    by_source = {name: totals.by_source[name] for name in sorted(totals.by_source, key=lambda name: name.encode())}
    splits = {}
    for split in SPLITS:
        total = Counts()
        for counts in by_source.values():
            total = total.plus(counts[split])
        splits[split] = SplitCounts(
            documents=total.documents,
            text_tokens=total.text_tokens,
            eod_tokens=total.eod_tokens,
            total_tokens=total.total_tokens,
            files=files.get(split, ()),
        )
    checked = DecodedBack(totals.rechecked.checked, totals.rechecked.decoded_back)
    return Receipt(
        format=RECEIPT_FORMAT,
        part=job.part,
        input=InputFile(source=job.shape.name, path=job.path, bytes=job.bytes, sha256=job.sha256, rows=totals.records),
        run_config_sha256=plan.run_config_sha256,
        splits=splits,
        by_source=by_source,
        dropped={"empty": totals.empty, "blank_lines": totals.blank},
        special_in_text=totals.special,
        eod_inside=totals.inside if plan.special_in_text == "special" else None,
        lossless=True if plan.lossless else checked,
        documents_sha256=digests,
    )
