"""What a conversion leaves beside the data: ``convert.json``, what was done, and ``tokenreel.json``, what it is."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from tokenreel.convert.journal import FOLDER, RECORD, RECORD_FORMAT, files_changed, read_record
from tokenreel.convert.report import Converted
from tokenreel.corpus.manifest import BoundaryRecord, Manifest, ShardRecord, SplitRecord, dump_manifest, parse_manifest
from tokenreel.corpus.opening import MANIFEST
from tokenreel.corpus.receipts import FileEntry
from tokenreel.errors import DocumentError
from tokenreel.formats import WrittenFile
from tokenreel.hashing import DOCUMENT_LEAF, blake3_leaf, identity_digest
from tokenreel.store import dumps_canonical, write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tokenreel.convert.fitting import Target
    from tokenreel.convert.source import Source
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.formats.writing import FinishedShard
    from tokenreel.hashing import Identity


def plain_name(path: str | os.PathLike[str]) -> str:
    r"""Return a path as JSON can hold it: bytes that are no UTF-8 are spelled out.

    >>> plain_name("a/b"), plain_name("caf\udce9")
    ('a/b', 'caf\\xe9')
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def record(
    root: Path,
    mark: str,
    report: Converted,
    source: Source,
    written: Corpus,
    target: Target,
    finished: list[FinishedShard],
    identity: Identity | None,
) -> Converted:
    """Write both files and return the report with the format that the bytes have."""
    report = replace(report, format=written.entries[0].format)
    value = {
        "format": RECORD_FORMAT,
        "plan": mark,
        "converted": report.as_dict(),
        "sources": [
            {"path": plain_name(corpus.path), "documents": len(corpus), "tokens": corpus.tokens}
            for corpus in source.corpora
        ],
    }
    manifest = _manifest(report, written, target, finished, identity)
    write_bytes_atomic(root / RECORD, dumps_canonical(value))
    write_bytes_atomic(root / MANIFEST, dump_manifest(manifest))
    return report


def record_again(root: Path, report: Converted, identity: Identity | None) -> Converted:
    """Write an earlier run's report once more: with the identity, if it was proved now, and with what is accepted now."""
    if identity is not None:
        report = replace(report, identity=identity.digest)
        manifest = parse_manifest((root / MANIFEST).read_bytes(), root / MANIFEST)
        said = _with_flags(identity, exceptions=report.exceptions_in_identity)
        split = msgspec.structs.replace(manifest.splits[""], identity=said)
        write_bytes_atomic(root / MANIFEST, dump_manifest(msgspec.structs.replace(manifest, splits={"": split})))
    value: dict[str, Any] = dict(read_record(root) or {})
    value["converted"] = {**value["converted"], "identity": report.identity, "accepted": list(report.accepted)}
    write_bytes_atomic(root / RECORD, dumps_canonical(value))
    return report


def _manifest(
    report: Converted, written: Corpus, target: Target, finished: list[FinishedShard], identity: Identity | None
) -> Manifest:
    known = {file.path: file for file in report.files}
    counts = [shard.documents for shard in finished]
    records = []
    for number, entry in enumerate(written.entries):
        # Shards that do not count their documents are one each to a reader; here they are whole, and counted.
        documents = counts[number] if len(counts) == len(written.entries) else entry.documents
        files = [known[path] for path in entry.files if path in known]
        records.append(
            ShardRecord(
                name=entry.name,
                documents=documents,
                sequences=documents,
                tokens=entry.tokens,
                files=tuple(FileEntry(path=file.path, bytes=file.bytes, sha256=file.sha256) for file in files),
            )
        )
    boundary = target.boundary
    split = SplitRecord(
        documents=report.documents,
        sequences=report.documents,
        tokens=report.tokens,
        identity=None if identity is None else _with_flags(identity, exceptions=report.exceptions_in_identity),
        shards=tuple(records),
    )
    return Manifest(
        shard_format=report.format,
        dtype=target.dtype,
        boundary=BoundaryRecord(prefix=boundary.prefix, suffix=boundary.suffix, table=target.holds.table),
        splits={"": split},
    )


def _with_flags(identity: Identity, *, exceptions: bool) -> str:
    """Return the identity that a reader of the target computes: where flags were left out, every document has its boundary."""
    if exceptions:
        return identity.digest
    flags = [
        blake3_leaf(bytes(min(DOCUMENT_LEAF, identity.documents - at)))
        for at in range(0, identity.documents, DOCUMENT_LEAF)
    ]
    return identity_digest(identity.documents, identity.content_tokens, identity.lengths, tuple(flags), identity.tokens)


def record_splits(root: Path, parts: Mapping[str, Converted]) -> None:
    """Write ``tokenreel.json`` of a root with splits, from those of its splits."""
    splits = {}
    first: Manifest | None = None
    for name in parts:
        manifest = parse_manifest((root / name / MANIFEST).read_bytes(), root / name / MANIFEST)
        first = first or manifest
        split = manifest.splits[""]
        shards = tuple(
            msgspec.structs.replace(
                shard,
                name=f"{name}/{shard.name}",
                files=tuple(msgspec.structs.replace(file, path=f"{name}/{file.path}") for file in shard.files),
            )
            for shard in split.shards
        )
        splits[name] = msgspec.structs.replace(split, shards=shards)
    if first is not None:
        write_bytes_atomic(root / MANIFEST, dump_manifest(msgspec.structs.replace(first, splits=splits)))


def done_before(
    root: Path, mark: str, threads: int = 1, progress: Callable[[int, int | None, int], None] | None = None
) -> Converted | None:
    """Return the report of an earlier run that came to its end, if its files are still as they were: all are read.

    Raises `DocumentError` (DOC025) for files that are gone or have other bytes since, and for a manifest that names others.
    """
    found = read_record(root)
    if found is None or found.get("plan") != mark or not isinstance(found.get("converted"), dict):
        return None
    if not (root / MANIFEST).is_file():
        return None  # it was killed between the two: what stands is taken up again
    said: Mapping[str, Any] = found["converted"]  # type: ignore[assignment]
    files = tuple(WrittenFile(**file) for file in said["files"])
    total = sum(file.bytes for file in files)
    done = 0

    def seen(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total, 0)

    hint = f"rm -r {root}, and convert again"
    changed = files_changed(root, files, threads, seen)
    if changed:
        file, instead = changed[0]
        more = f"{len(changed)} files are not as they were written" if len(changed) > 1 else ""
        wanted = f"{file.bytes} bytes" if instead.endswith(("bytes", "file")) else file.sha256
        raise DocumentError("DOC025", more, path=root / file.path, expected=wanted, found=instead, hint=hint)
    _same_manifest(root, said, files, hint)
    shutil.rmtree(root / FOLDER, ignore_errors=True)  # of a run that was killed at its very end
    plain = [name for name in Converted.__slots__ if name not in ("files", "splits", "kept_shards")]
    kept: dict[str, Any] = {name: tuple(said[name]) if isinstance(said[name], list) else said[name] for name in plain}
    return Converted(**kept, files=files, kept_shards=int(said["shards"]))


def _same_manifest(root: Path, said: Mapping[str, Any], files: tuple[WrittenFile, ...], hint: str) -> None:
    """Raise `DocumentError` (DOC025) where the manifest speaks of other files, or of another number, than the record."""
    manifest = parse_manifest((root / MANIFEST).read_bytes(), root / MANIFEST)
    known = {(file.path, file.bytes, file.sha256) for file in files}
    split = manifest.splits.get("")
    counts = None if split is None else (split.documents, split.tokens)
    named = {(f.path, f.bytes, f.sha256) for s in (split.shards if split else ()) for f in s.files}
    if counts != (said["documents"], said["tokens"]) or not named <= known:
        what = "the manifest does not say what was recorded when it was written"
        raise DocumentError("DOC025", what, path=root / MANIFEST, hint=hint)
