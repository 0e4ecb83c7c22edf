"""Building a replay index: a Parquet file a task, then the JSON files, the manifest last.

A build that was stopped goes on: every file carries a hash of what it was made from, and one that matches is read, not
made again. The same input gives the same bytes with the same version of pyarrow.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import ReplayError, require
from tokenreel.hashing import sha256_file
from tokenreel.replay import metadata as meta
from tokenreel.replay.files import ROWS, batch_of, file_name, index_schema, read_batches
from tokenreel.store import LocalStore
from tokenreel.store.atomic import atomic_write, remove_leftovers, write_bytes_atomic

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from tokenreel.replay.assignments import Assignments
    from tokenreel.replay.documents import Documents
    from tokenreel.text.normalise import Normaliser

MADE_FROM = b"tokenreel.made_from"
MARK = ".made_from"
"""In a folder whose index is not finished: a hash of what it is made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan:
    """What an index is made of, beside its documents."""

    made_from: str
    """A hash of the input and of every choice; the same for the same index."""
    id_kind: str
    normalise: Normaliser
    sources: meta.Sources | None = None
    """None: one source is made of every name that documents bear."""
    mix: meta.Mix = field(default_factory=meta.Mix)


def made_from(*parts: object) -> str:
    """Return a hash of what an index is made from.

    >>> made_from("corpus", {"normalise": "none"})[:8]
    '078ddefd'
    """
    text = json.dumps(parts, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def build_index(
    tasks: Iterable[Iterator[Documents]],
    assignments: Assignments,
    out: str | os.PathLike[str],
    plan: IndexPlan,
    progress: Callable[[int, int | None, int], None] | None = None,
) -> meta.Manifest:
    """Write an index of `tasks` to a folder and return its manifest.

    A finished index of the same input is left as it is. Raises `ReplayError`: RPL001 a folder that holds something
    else, RPL006 a document without a bucket, RPL019 a document of a source that is not described.
    """
    root = Path(out)
    finished = _claim(root, plan)
    if finished is not None:
        return finished
    known = None if plan.sources is None else plan.sources.named()
    files, by_source, by_bucket, first = [], Counter[str](), Counter[int](), 0
    for task, batches in enumerate(tasks):
        made = _task(root, task, batches, assignments, first, plan.made_from)
        strange = set(made.by_source) - set(known) if known is not None else set()
        if strange:
            raise ReplayError("RPL019", path=file_name(task), expected="a source of sources.json", found=min(strange))
        by_source.update(made.by_source)
        by_bucket.update(made.by_bucket)
        first += made.seen
        files.append(made.file)
        if progress is not None:
            progress(sum(file.bytes for file in files), None, 0)
    sources = plan.sources or meta.Sources(sources=[meta.Source(source_id=name) for name in sorted(by_source)])
    others = {meta.SOURCES: meta.encoded(sources), meta.MIX: meta.encoded(plan.mix)}
    for name, data in others.items():
        write_bytes_atomic(root / name, data)
    manifest = meta.Manifest(
        made_from=plan.made_from,
        id_kind=plan.id_kind,
        normalise=plan.normalise.as_dict(),
        documents=sum(file.documents for file in files),
        tasks=len(files),
        files=files,
        documents_by_source=dict(sorted(by_source.items())),
        documents_by_bucket={str(bucket): count for bucket, count in sorted(by_bucket.items())},
        metadata={name: hashlib.sha256(data).hexdigest() for name, data in others.items()},
    )
    _sweep(root, {file.path for file in files})
    write_bytes_atomic(root / meta.MANIFEST, meta.encoded(manifest))
    (root / MARK).unlink(missing_ok=True)
    return manifest


@dataclass(frozen=True, slots=True)
class _Made:
    file: meta.IndexFile
    by_source: Counter[str]
    by_bucket: Counter[int]
    seen: int
    """Documents read, dropped ones included."""


def _claim(root: Path, plan: IndexPlan) -> meta.Manifest | None:
    """Take the folder for this index; returns its manifest where it is finished, refuses another one's (RPL001)."""
    mark, finished = root / MARK, root / meta.MANIFEST
    found = mark.read_text("utf-8", "replace").strip() if mark.is_file() else None
    manifest = None
    if finished.is_file():
        manifest = meta.read_manifest(LocalStore(root))
        found = manifest.made_from or found
    if found == plan.made_from:
        remove_leftovers(root)
        return manifest
    if found is not None or (root.is_dir() and any(root.iterdir())):
        raise ReplayError("RPL001", path=root, expected="a new folder, or the same input and options")
    write_bytes_atomic(mark, plan.made_from.encode() + b"\n")
    return None


def _task(
    root: Path, task: int, batches: Iterator[Documents], assignments: Assignments, first: int, source: str
) -> _Made:
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    path = root / file_name(task)
    kept = _kept(root, task, f"{source}:{task}")
    if kept is not None:
        # Buckets and ids are in the file; the input is only run through for its count.
        seen = sum(len(batch.ids) for batch in batches)
        return _Made(kept[0], kept[1], kept[2], seen)
    by_source, by_bucket, rows, seen = Counter[str](), Counter[int](), 0, 0
    schema = index_schema().with_metadata({MADE_FROM: f"{source}:{task}".encode()})
    with (
        atomic_write(path) as file,
        parquet.ParquetWriter(
            pa.PythonFile(file, mode="w"), schema, compression="zstd", use_dictionary=["source_id", "bucket_id"]
        ) as writer,
    ):
        held: list[Any] = []
        for batch in batches:
            buckets = assignments.of(first + seen, batch)
            keep = [k for k, one in enumerate(batch.ids) if one is not None]
            sources = [batch.sources[k] for k in keep]
            chosen = [buckets[k] for k in keep]
            ids = [one for one in batch.ids if one is not None]
            held.append(batch_of(sources, ids, chosen))
            by_source.update(sources)
            by_bucket.update(chosen)
            rows += len(ids)
            seen += len(batch.ids)
            if sum(one.num_rows for one in held) >= ROWS:
                _write_group(writer, held, schema)
        _write_group(writer, held, schema)
    return _Made(_described(path, task, rows), by_source, by_bucket, seen)


def _write_group(writer: Any, held: list[Any], schema: Any) -> None:
    """Write what is held as one row group, and hold no more."""
    import pyarrow as pa

    rows = pa.Table.from_batches(held, index_schema()).cast(schema)
    if rows.num_rows:
        writer.write_table(rows, row_group_size=rows.num_rows)
    held.clear()


def _described(path: Path, task: int, rows: int) -> meta.IndexFile:
    return meta.IndexFile(
        path=file_name(task), task_id=task, documents=rows, bytes=path.stat().st_size, sha256=sha256_file(path)
    )


def _kept(root: Path, task: int, wanted: str) -> tuple[meta.IndexFile, Counter[str], Counter[int]] | None:
    """Return a file that an earlier run made of the same input, with its counts, or None."""
    parquet = require("pyarrow.parquet", extra="build")
    path = root / file_name(task)
    if not path.is_file():
        return None
    try:
        with parquet.ParquetFile(path) as file:
            said = (file.schema_arrow.metadata or {}).get(MADE_FROM, b"")
        if said != wanted.encode():
            return None
        by_source, by_bucket, rows = Counter[str](), Counter[int](), 0
        for batch in read_batches(LocalStore(root), file_name(task), ("source_id", "bucket_id")):
            by_source.update(batch.column("source_id").to_pylist())
            by_bucket.update(batch.column("bucket_id").to_pylist())
            rows += batch.num_rows
    except (ReplayError, OSError, ValueError):
        return None
    return _described(path, task, rows), by_source, by_bucket


def _sweep(root: Path, wanted: set[str]) -> None:
    """Remove task files that this index does not have: an earlier run, stopped, had cut its input otherwise."""
    for path in (root / "index").glob("task-*.parquet"):
        if path.relative_to(root).as_posix() not in wanted:
            path.unlink()


def summary(manifest: meta.Manifest) -> dict[str, Any]:
    """Return what a command shows of an index."""
    return {
        "documents": manifest.documents,
        "tasks": manifest.tasks,
        "sources": len(manifest.documents_by_source),
        "buckets": len(manifest.documents_by_bucket),
        "bytes": sum(file.bytes for file in manifest.files),
        "id_kind": manifest.id_kind,
    }
