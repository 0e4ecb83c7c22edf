"""The end of a build: statistics, manifest and the rest of the layout; everything read again; COMPLETE.json last."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.resume import COMPLETE, receipt_of, receipts_digest
from tokenreel.build.rows import assemble
from tokenreel.corpus.documents import DOCUMENTS, documents_digests, file_digest
from tokenreel.corpus.manifest import BoundaryRecord, Manifest, ShardRecord, SplitRecord, dump_manifest
from tokenreel.corpus.receipts import (
    COMPLETE_FORMAT,
    SPLITS,
    Complete,
    FileEntry,
    Receipt,
    SplitCounts,
    Stats,
    dump,
    sum_receipts,
)
from tokenreel.corpus.statistics import StatisticsCounter
from tokenreel.errors import IncompleteError, ManifestError
from tokenreel.formats import Boundary, Found, open_shard
from tokenreel.hashing import IdentityHasher, sha256_file
from tokenreel.store import LocalStore, write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats import Shard

MANIFEST = "tokenreel.json"
STATS = "stats.json"
_BATCH_TOKENS = 1 << 20
_LONG_DOCUMENTS = 128


@dataclass(frozen=True, slots=True)
class Ending:
    """What the end of a build needs to know of it."""

    out: Path
    name: str
    layout: str
    parts: tuple[str, ...]
    run_config_sha256: str
    tokenizer: dict[str, Any]
    split_rule: dict[str, Any]
    eod_id: int
    dtype: str
    tokenizer_file: str | None
    """Path of the tokenizer in the output, where the layout has one."""
    built_at: str | None
    threads: int


def finish(ending: Ending) -> Stats:
    """Write everything that follows the parts, read again every file that is named, and write COMPLETE.json.

    Raises `ManifestError` (MAN013) for a file that does not read back as it was written, `IncompleteError` (MAN017)
    for a part without a receipt. Cost: reading the output once; in the native layout hash, identity and statistics are
    taken in that one pass.
    """
    out = ending.out
    receipts = [_receipt(ending, part) for part in ending.parts]
    stats = sum_receipts(receipts)
    write_bytes_atomic(out / STATS, dump(stats))
    manifest = documents = None
    if ending.layout == "native":
        record = _manifest(ending, receipts)
        documents = _documents(ending, receipts)
        manifest = dump_manifest(record)
        write_bytes_atomic(out / MANIFEST, manifest)
    else:
        check_files(out, [file for receipt in receipts for file in receipt.files()], ending.threads)
    tokenizer = None
    if ending.tokenizer_file is not None:
        tokenizer = sha256_file(out / ending.tokenizer_file)
        if tokenizer != ending.tokenizer["sha256"]:
            raise _changed(ending.tokenizer_file, ending.tokenizer["sha256"], tokenizer)
    config = sha256_file(out / "run_config.json")
    if config != ending.run_config_sha256:
        raise _changed("run_config.json", ending.run_config_sha256, config)
    complete = Complete(
        format=COMPLETE_FORMAT,
        parts=len(ending.parts),
        receipts_sha256=receipts_digest(out, ending.parts),
        stats_sha256=sha256_file(out / STATS),
        run_config_sha256=config,
        manifest_sha256=None if manifest is None else sha256_file(out / MANIFEST),
        documents_sha256=documents,
        tokenizer_sha256=tokenizer,
    )
    write_bytes_atomic(out / COMPLETE, dump(complete))
    return stats


def _receipt(ending: Ending, part: str) -> Receipt:
    receipt = receipt_of(ending.out, part, ending.run_config_sha256)
    if receipt is None:
        raise IncompleteError("MAN017", shard=part, path=ending.out / "receipts" / f"{part}.json")
    return receipt


def check_files(out: Path, files: Sequence[FileEntry], threads: int) -> None:
    """Raise `ManifestError` (MAN013) unless every file has its recorded SHA-256 when read now."""

    def digest(file: FileEntry) -> str:
        return sha256_file(out / file.path)

    with ThreadPoolExecutor(max(1, threads)) as pool:
        for file, found in zip(files, pool.map(digest, files), strict=True):
            if found != file.sha256:
                raise _changed(file.path, file.sha256, found)


def _changed(path: str, expected: str, found: str) -> ManifestError:
    return ManifestError(
        "MAN013", path=path, expected=expected, found=found, hint="check the disk, then run the build again"
    )


def _shards(receipts: Iterable[Receipt], split: str) -> Iterator[tuple[str, Receipt]]:
    for receipt in receipts:
        if receipt.splits[split].documents:
            yield f"shards/{split}/{receipt.part}", receipt


def _documents(ending: Ending, receipts: Sequence[Receipt]) -> str:
    """Write documents.parquet, read it again, and return the digest of its contents."""
    order = [(receipt.part, split) for split in SPLITS for _, receipt in _shards(receipts, split)]
    assemble(ending.out, order)
    wanted = {
        name: (receipt.splits[split].documents, receipt.documents_sha256[split])
        for split in SPLITS
        for name, receipt in _shards(receipts, split)
    }
    found = documents_digests(ending.out / DOCUMENTS)
    if found != wanted:
        shard = next((name for name in [*wanted, *found] if wanted.get(name) != found.get(name)), "")
        raise _changed(f"{DOCUMENTS}: {shard}", str(wanted.get(shard)), str(found.get(shard)))
    return file_digest({name: digest for name, (_, digest) in found.items()})


def _manifest(ending: Ending, receipts: Sequence[Receipt]) -> Manifest:
    with ThreadPoolExecutor(max(1, min(ending.threads, len(SPLITS)))) as pool:
        records = list(pool.map(lambda split: _split(ending, receipts, split), SPLITS))
    return Manifest(
        name=ending.name,
        layout=ending.layout,
        shard_format="megatron-v1",
        dtype=ending.dtype,
        boundary=BoundaryRecord(suffix=(ending.eod_id,), table=True),
        tokenizer={**ending.tokenizer, "path": ending.tokenizer_file},
        split_rule=ending.split_rule,
        document_order="as-is",
        built_at=ending.built_at,
        splits={split: record for split, record in zip(SPLITS, records, strict=True) if record.documents},
    )


def _split(ending: Ending, receipts: Sequence[Receipt], split: str) -> SplitRecord:
    boundary = Boundary((), (ending.eod_id,), table=True)
    # A hasher without a suffix, fed with content, gives what one with the suffix gives when every document has it.
    identity, counter = IdentityHasher(), StatisticsCounter(boundary)
    store = LocalStore(ending.out)
    shards = []
    with ThreadPoolExecutor(1) as aside:
        for name, receipt in _shards(receipts, split):
            counts = receipt.splits[split]
            shard = _open(ending.out, store, name, counts)
            digest = hashlib.sha256()
            largest: int | None = None
            for ids, lengths in _batches(shard):
                # SHA-256 is half of all the work here, and lets other threads run.
                hashed = aside.submit(digest.update, ids.data)
                content = _content(ids, lengths, ending.eod_id, name)
                identity.update(*content)
                counter.update(ids, lengths)
                largest = max(int(ids.max()), -1 if largest is None else largest)
                hashed.result()
            (data,) = (file for file in counts.files if file.path.endswith(".bin"))
            if digest.hexdigest() != data.sha256:
                raise _changed(data.path, data.sha256, digest.hexdigest())
            shards.append(
                ShardRecord(
                    name=name,
                    documents=shard.documents,
                    sequences=shard.sequences,
                    tokens=shard.tokens,
                    max_id=largest,
                    files=counts.files,
                )
            )
            shard.close()
    found = identity.finish()
    return SplitRecord(
        documents=found.documents,
        sequences=sum(shard.sequences for shard in shards),
        tokens=sum(shard.tokens for shard in shards),
        identity=found.digest,
        shards=tuple(shards),
        statistics=counter.finish().as_dict(),
    )


def _open(out: Path, store: LocalStore, name: str, counts: SplitCounts) -> Shard:
    """Return a shard whose table has its recorded hash, and whose ids have their recorded size; these are hashed when read."""
    for file in counts.files:
        size = store.size(file.path)
        if size != file.bytes:
            raise _changed(file.path, f"{file.bytes} bytes", f"{size} bytes")
    check_files(out, [file for file in counts.files if not file.path.endswith(".bin")], 1)
    shard = open_shard(store, Found("megatron-v1", name, tuple(file.path for file in counts.files)), ())
    if (shard.documents, shard.tokens) != (counts.documents, counts.total_tokens):
        raise _changed(name, f"{counts.documents} documents", f"{shard.documents} documents")
    return shard


def _content(
    ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64], eod: int, name: str
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Return content and its lengths: every document without its EOD, as uint32; 0.3 ns a token for long documents."""
    ends = np.cumsum(lengths)
    if bool((ids[ends - 1] != eod).any()):
        raise _changed(name, f"EOD {eod} at the end of every document", "a document without")
    if len(ids) < _LONG_DOCUMENTS * len(lengths):
        kept = np.ones(len(ids), np.bool_)
        kept[ends - 1] = False
        return ids[kept].astype(np.uint32), lengths - 1
    out = np.empty(len(ids) - len(lengths), np.uint32)
    begin = at = 0
    for length in (lengths - 1).tolist():
        out[at : at + length] = ids[begin : begin + length]
        begin += length + 1
        at += length
    return out, lengths - 1


def _batches(shard: Shard) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Yield (ids, lengths) of whole documents, about two million tokens at a time."""
    at = 0
    while at < shard.documents:
        stop = min(shard.documents, at + (1 << 16))
        edges = shard.document_edges(at, stop)
        take = max(1, int(np.searchsorted(edges, edges[0] + _BATCH_TOKENS, side="right")) - 1)
        yield shard.read(int(edges[0]), int(edges[take])), np.diff(edges[: take + 1])
        at += take
