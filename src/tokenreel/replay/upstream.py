"""Upstream files of a source, and the records in them.

Without patterns every file counts that lies below ``relative_input_path`` and ends in one of ``file_extensions``; files
and folders that begin with a dot do not. Source: Snowball's replay index; Marin's normalise step.
"""

from __future__ import annotations

import fnmatch
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from tokenreel.errors import SourceError, StorageError, require
from tokenreel.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenreel.replay.metadata import Source
    from tokenreel.store import Store

PACKED = ("", ".gz", ".xz", ".zst", ".zstd")
SUPPORTED = (*(kind + packed for kind in (".json", ".jsonl") for packed in PACKED), ".parquet")
"""Suffixes read where a source names none."""
BATCH = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class Upstream:
    """Where a source's files are on this machine, or over http."""

    files: tuple[tuple[Store, str], ...]
    """Each with where it is, in the order they are read."""


def resolve_files(paths: Sequence[str], source: Source) -> list[str]:
    """Return the files of a repository that belong to a source, in byte order.

    >>> from tokenreel.replay.metadata import Source
    >>> paths = ["data/a.parquet", "data/.b.parquet", "data/c.txt", "other/d.jsonl.zst"]
    >>> resolve_files(paths, Source(source_id="s"))
    ['data/a.parquet', 'other/d.jsonl.zst']
    >>> resolve_files(paths, Source(source_id="s", normalize_config={"relative_input_path": "data"}))
    ['data/a.parquet']
    >>> resolve_files(paths, Source(source_id="s", file_patterns=["other/*"]))
    ['other/d.jsonl.zst']
    """
    config = source.normalize_config
    below = str(config.get("relative_input_path") or "").strip("/")
    said = config.get("file_extensions")
    suffixes = tuple(said) if isinstance(said, list | tuple) and said else SUPPORTED
    patterns = list(source.file_patterns) or list(config.get("file_patterns") or ())
    found = []
    for path in paths:
        inside = path if not below else path.removeprefix(f"{below}/")
        hidden = any(part.startswith(".") for part in PurePosixPath(path).parts)
        if hidden or (below and inside == path and path != below):
            continue
        if patterns and not any(fnmatch.fnmatchcase(path, one) or fnmatch.fnmatchcase(inside, one) for one in patterns):
            continue
        if path.endswith(suffixes):
            found.append(path)
    return sorted(found, key=os.fsencode)


def open_upstream(source: Source, root: Path | None, *, online: bool) -> Upstream | None:
    """Return a source's files, from a folder below `root` or, if `online`, from the hub or its addresses; else None.

    A folder is looked for as ``path``, ``OWNER/NAME``, ``OWNER--NAME`` and the source's id. Raises `StorageError`
    (STO001, STO002, STO020) of the hub.
    """
    for name in _names(source) if root is not None else ():
        folder = (root or Path()) / name
        if folder.is_dir():
            store = LocalStore(folder)
            return _listed(store, source)
        if folder.is_file():
            return Upstream(((LocalStore(folder.parent), folder.name),))
    if online and source.repository:
        from tokenreel.store.hub_repository import open_repository

        found = open_repository(source.repository, source.revision or "main")
        return _listed(found.store, source)
    if online and source.urls:
        from tokenreel.store.http import HttpStore

        places = (url.rpartition("/") for url in source.urls)
        return Upstream(tuple((HttpStore(base), name) for base, _, name in places))
    return None


def _listed(store: Store, source: Source) -> Upstream:
    paths = resolve_files([entry.path for entry in store.list()], source)
    return Upstream(tuple((store, path) for path in paths))


def _names(source: Source) -> list[str]:
    names = [source.path] if source.path else []
    if source.repository:
        names += [source.repository, source.repository.replace("/", "--")]
    return [name for name in [*names, source.source_id] if not PurePosixPath(name).is_absolute() and ".." not in name]


def records(store: Store, path: str) -> Iterator[list[dict[str, Any]]]:
    """Yield a file's records in batches: JSON lines, a JSON list, or Parquet, looked through gzip, xz and zstd.

    A file that is not on this machine is fetched to a temporary file first. Raises `SourceError`: SRC003 for a
    line that is not JSON, SRC004 for one that is no object.
    """
    if isinstance(store, LocalStore):
        yield from _records(Path(store.root) / path, path)
        return
    with tempfile.NamedTemporaryFile(prefix="tokenreel-", suffix=PurePosixPath(path).name) as file:
        reader = store.reader(path)
        for begin in range(0, reader.size, 1 << 22):
            file.write(reader.read(begin, min(1 << 22, reader.size - begin)))
        file.flush()
        yield from _records(Path(file.name), path)


def _records(location: Path, path: str) -> Iterator[list[dict[str, Any]]]:
    if path.endswith(".parquet"):
        yield from _parquet(location, path)
        return
    from tokenreel.build.blocks import InputBytes, decompressed

    kept: list[dict[str, Any]] = []
    number, rest = 0, b""
    for block in decompressed(InputBytes(location).blocks(), path):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        for line in lines:
            number += 1
            kept += _line(line, path, number)
            if len(kept) >= BATCH:
                yield kept
                kept = []
    kept += _line(rest, path, number + 1)
    if kept:
        yield kept


def _line(line: bytes, path: str, number: int) -> list[dict[str, Any]]:
    if not line.strip():
        return []
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceError("SRC003", f"not JSON: {error}", path=path, line=number) from error
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return value
    if not isinstance(value, dict):
        raise SourceError("SRC004", path=path, line=number, expected="an object", found=type(value).__name__)
    return [value]


def _parquet(location: Path, path: str) -> Iterator[list[dict[str, Any]]]:
    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    try:
        with parquet.ParquetFile(location) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                yield batch.to_pylist()
    except pa.ArrowException as error:
        raise StorageError("STO002", f"could not read: {str(error).splitlines()[0]}", path=path) from error
