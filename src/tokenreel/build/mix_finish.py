"""The end of a mix: everything is read again, then the manifest is written, then the record that all of it is there."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.finish import check_files
from tokenreel.corpus.manifest import BoundaryRecord, Manifest, ShardRecord, SplitRecord, dump_manifest
from tokenreel.corpus.mix_records import COMPLETE, COMPLETE_FORMAT, CONFIG, RECORD
from tokenreel.corpus.opening import MANIFEST
from tokenreel.corpus.receipts import FileEntry
from tokenreel.corpus.statistics import StatisticsCounter
from tokenreel.errors import ManifestError, TokenreelError
from tokenreel.formats import Found, open_shard, shards_of
from tokenreel.hashing import IdentityHasher, sha256_file
from tokenreel.store import LocalStore, dumps_canonical, loads_strict, write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokenreel.build.mix_shards import MixShard
    from tokenreel.build.mix_table import Staged
    from tokenreel.build.mix_target import MixTarget
    from tokenreel.build.mix_write import WrittenShard

_BATCH = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class MixEnding:
    """What the end needs to know."""

    out: Path
    name: str
    layout: str
    target: MixTarget
    staged: Staged
    shards: Sequence[MixShard]
    written: Sequence[WrittenShard]
    tokenizer: dict[str, Any]
    split_rule: dict[str, Any]
    order: str
    built_at: str | None
    threads: int


def recognised(ending: MixEnding) -> list[Found]:
    """Return the shards as a reader finds them, in the order of the corpus; files of shards of no plan are removed.

    Raises `ManifestError` (MAN013) for a shard that is not found.
    """
    store = LocalStore(ending.out)
    listing = [one for one in store.list() if not one.path.startswith(("stage/", "stages/", "tokenizer/", "."))]
    found = shards_of(store, listing, dtype=ending.target.options.dtype, vocab=ending.target.vocab)
    by_file = {file: one for one in found for file in one.files}
    out = []
    for one in ending.written:
        there = next((by_file[file.path] for file in one.finished.files if file.path in by_file), None)
        if there is None:
            raise ManifestError("MAN013", path=ending.out / one.finished.name, expected="a shard", found="none")
        name = one.finished.name + ending.target.inside
        if there.name != name:
            raise ManifestError("MAN013", "the name of a shard", path=ending.out, expected=name, found=there.name)
        out.append(there)
    planned = {one.name for one in out}
    for stray in found:
        if stray.name not in planned:
            for file in stray.files:
                (ending.out / file).unlink(missing_ok=True)
    return out


def manifest_of(ending: MixEnding, found: Sequence[Found]) -> Manifest:
    """Return the manifest, after reading every shard again. Raises `ManifestError` (MAN013) for one that is not as written."""
    check_files(ending.out, [_entry(file) for one in ending.written for file in one.finished.files], ending.threads)
    splits = list(dict.fromkeys(shard.split for shard in ending.shards))
    with ThreadPoolExecutor(max(1, min(ending.threads, len(splits) or 1))) as pool:
        records = list(pool.map(lambda split: _split(ending, found, split), splits))
    boundary = ending.target.boundary
    path = "tokenizer/tokenizer.model" if ending.tokenizer["kind"] == "sentencepiece" else "tokenizer/tokenizer.json"
    return Manifest(
        name=ending.name,
        layout=ending.layout,
        shard_format=found[0].format if found else ending.target.format,
        dtype=ending.target.options.dtype,
        boundary=BoundaryRecord(prefix=boundary.prefix, suffix=boundary.suffix, table=boundary.table),
        tokenizer={**ending.tokenizer, "path": path if (ending.out / path).is_file() else None},
        split_rule=ending.split_rule,
        document_order=ending.order,
        built_at=ending.built_at,
        splits=dict(zip(splits, records, strict=True)),
    )


def _split(ending: MixEnding, found: Sequence[Found], split: str) -> SplitRecord:
    boundary = ending.target.boundary
    identity, counter = IdentityHasher(boundary.prefix, boundary.suffix), StatisticsCounter(boundary)
    store = LocalStore(ending.out)
    records = []
    for shard, one, written in zip(ending.shards, found, ending.written, strict=True):
        if shard.split != split:
            continue
        opened = open_shard(store, one, ())
        lengths = ending.staged.lengths[shard.documents].astype(np.int64)
        edges = np.concatenate(([0], np.cumsum(lengths)))
        if opened.tokens != int(edges[-1]):
            raise ManifestError("MAN013", path=ending.out / one.files[0], expected=int(edges[-1]), found=opened.tokens)
        if opened.documents == len(lengths) and not np.array_equal(opened.document_edges(0, len(lengths)), edges):
            raise ManifestError("MAN013", "edges of documents", path=ending.out / one.files[0])
        largest, at = -1, 0
        while at < len(lengths):
            end = max(at + 1, int(np.searchsorted(edges, edges[at] + _BATCH, side="right")) - 1)
            ids = opened.read(int(edges[at]), int(edges[end]))
            identity.update(ids, lengths[at:end])
            counter.update(ids, lengths[at:end])
            largest = max(largest, int(ids.max(initial=0)))
            at = end
        opened.close()
        records.append(
            ShardRecord(
                name=one.name,
                documents=len(lengths),
                sequences=len(lengths),
                tokens=int(edges[-1]),
                max_id=largest if len(lengths) else None,
                files=tuple(_entry(file) for file in written.finished.files),
            )
        )
    finished = identity.finish()
    return SplitRecord(
        documents=finished.documents,
        sequences=finished.documents,
        tokens=sum(one.tokens for one in records),
        identity=finished.digest,
        shards=tuple(records),
        statistics=counter.finish().as_dict(),
    )


def _entry(file: Any) -> FileEntry:
    return FileEntry(file.path, file.bytes, file.sha256)


def complete(out: Path, manifest: Manifest, record: dict[str, Any], threads: int) -> None:
    """Write ``mix.json`` and ``tokenreel.json``, read again every file that they name, and write ``mix.complete.json``."""
    write_bytes_atomic(out / RECORD, dumps_canonical(record))
    check_files(out, [FileEntry(**one) for one in record["files"]], threads)
    write_bytes_atomic(out / MANIFEST, dump_manifest(manifest))
    _mark(out)


def _mark(out: Path) -> None:
    digests = {name: sha256_file(out / name) for name in (CONFIG, RECORD, MANIFEST)}
    write_bytes_atomic(out / COMPLETE, dumps_canonical({"format": COMPLETE_FORMAT, "sha256": digests}))


def completed(out: Path, config: bytes, threads: int) -> dict[str, Any] | None:
    """Return ``mix.json`` of a finished mix of this configuration, after reading all of it again; None where it is not whole."""
    try:
        said = loads_strict((out / COMPLETE).read_bytes(), out / COMPLETE)["sha256"]
        if any(sha256_file(out / name) != said[name] for name in (CONFIG, RECORD, MANIFEST)):
            return None
        if said[CONFIG] != hashlib.sha256(config).hexdigest():
            return None
        record: dict[str, Any] = loads_strict((out / RECORD).read_bytes(), out / RECORD)
        check_files(out, [FileEntry(**one) for one in record["files"]], threads)
        manifest = loads_strict((out / MANIFEST).read_bytes(), out / MANIFEST)
        shards = [
            FileEntry(**file)
            for split in manifest["splits"].values()
            for one in split["shards"]
            for file in one["files"]
        ]
        check_files(out, shards, threads)
    except (OSError, TokenreelError, KeyError, TypeError):
        return None
    return record


def redate(out: Path, built_at: str) -> None:
    """Give a finished mix another date."""
    import msgspec

    from tokenreel.corpus.manifest import parse_manifest

    path = out / MANIFEST
    manifest = parse_manifest(path.read_bytes(), path)
    if manifest.built_at != built_at:
        (out / COMPLETE).unlink()
        write_bytes_atomic(path, dump_manifest(msgspec.structs.replace(manifest, built_at=built_at)))
        _mark(out)
