"""Which files of a hub repository a source takes, and at which commit: asked of the hub, or of its local cache.

A commit in full whose files are all named without wildcards, and all in the local cache, is not asked for: nothing that
the hub could say would change what is read. Wildcards need the hub's listing; a cache holds what was fetched, and says
nothing of what was not.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tokenreel.errors import RecipeError, SourceError, StorageError
from tokenreel.store.hub_repository import open_repository
from tokenreel.text.hub import hub_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tokenreel.config.mixed import MixedSourceTable

MOVING = "main"
"""The revision that is meant where none is said."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file at a commit."""

    path: str
    bytes: int
    sha256: str | None
    """As the hub publishes it: of large files."""


@dataclass(frozen=True, slots=True)
class HubFiles:
    """The files of a source, in byte order of their paths, at one commit."""

    repo: str
    commit: str
    files: tuple[HubFile, ...]


def find_files(table: MixedSourceTable) -> HubFiles:
    """Return the files that a table's patterns name, at the commit that its revision is now.

    Raises `RecipeError` (RCP006) without patterns, `SourceError` (SRC014) for a pattern that names no file, and
    `StorageError`: SRC050 where a login or consent is asked for, SRC051 where there is no such repository or revision,
    SRC053 where files cannot be told without the hub, STO002 where it does not answer.
    """
    repo = repo_of(table)
    if not table.paths:
        raise RecipeError("RCP006", f'source {table.name!r}: kind = "hub" needs paths', path=repo)
    commit = known_commit(table)
    if commit is not None:
        held = _held(repo, commit, table.paths)
        if held is not None:
            return HubFiles(repo, commit, held)
    if offline():
        why = "a revision that the cache knows" if commit is None else "files without wildcards, all in the cache"
        raise StorageError(
            "SRC053",
            f"source {table.name!r}",
            path=repo,
            expected=f"{why}, since HF_HUB_OFFLINE is set",
            found=f"{table.revision or MOVING}: {', '.join(table.paths)}",
            hint=f"hf download {repo} --repo-type dataset --revision {commit or table.revision or MOVING}",
        )
    try:
        found = open_repository(repo, commit or table.revision or MOVING)
    except StorageError as error:
        raise named(error, table.name, f"{repo}@{table.revision or MOVING}") from error
    sizes = {entry.path: entry.size for entry in found.store.list()}
    chosen = sorted({path for pattern in table.paths for path in _matching(pattern, sizes, table)}, key=os.fsencode)
    return HubFiles(
        repo, commit or found.commit, tuple(HubFile(path, sizes[path], found.digests.get(path)) for path in chosen)
    )


def repo_of(table: MixedSourceTable) -> str:
    """Return ``organisation/name``; raises `RecipeError` (RCP006) without."""
    if table.repo is None:
        raise RecipeError("RCP006", f'source {table.name!r}: kind = "hub" needs repo')
    return table.repo


def known_commit(table: MixedSourceTable) -> str | None:
    """Return the commit that a table's revision is, as far as that is known without the hub.

    A commit in full is itself. A branch is what the local cache says only where the hub must not be asked.
    """
    wanted = table.revision or MOVING
    if _COMMIT.fullmatch(wanted):
        return wanted
    if not offline():
        return None
    try:
        commit = (_cached(repo_of(table)) / "refs" / wanted).read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def commit_of(table: MixedSourceTable) -> str:
    """Return the commit that a table's revision is now: what a build resolves once and records. Raises as `find_files`."""
    commit = known_commit(table)
    if commit is not None:
        return commit
    repo, wanted = repo_of(table), table.revision or MOVING
    if offline():
        raise StorageError(
            "SRC053",
            f"source {table.name!r}",
            path=repo,
            expected="a commit of 40 hex digits, or a revision that the cache knows, since HF_HUB_OFFLINE is set",
            found=wanted,
        )
    try:
        return open_repository(repo, wanted, listed=False).commit
    except StorageError as error:
        raise named(error, table.name, f"{repo}@{wanted}") from error


def cached_file(repo: str, commit: str, path: str) -> Path | None:
    """Return where the hub's local cache holds a file of a commit, or None."""
    found = _cached(repo) / "snapshots" / commit / path
    return found if found.is_file() else None


def offline(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the hub must not be asked.

    >>> offline({"HF_HUB_OFFLINE": "1"}), offline({})
    (True, False)
    """
    return environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def named(error: StorageError, source: str, place: str) -> StorageError:
    """Return a store's error as one that names the source, and the file or repository as recipes and receipts do."""
    code = {"STO020": "SRC050", "STO001": "SRC051"}.get(error.code, error.code)
    message = f"source {source!r}" + (f": {error.message or error.title}" if code == error.code else "")
    address = error.where.get("path", "")
    found = f"{error.found or ''} {address}".strip() or None
    hint = "set HF_TOKEN, and accept the terms on the dataset's page" if code == "SRC050" else None
    return StorageError(code, message, path=place, expected=error.expected, found=found, hint=hint)


def matches(pattern: str, path: str) -> bool:
    """Return whether a pattern names a path: ``*`` within a folder, ``**`` any folders; names with a dot are spelled.

    >>> [
    ...     matches("data/**/*.parquet", p)
    ...     for p in ("data/a.parquet", "data/x/y/a.parquet", "data/.a.parquet", "a.parquet")
    ... ]
    [True, True, False, False]
    """
    return _parts_match(pattern.split("/"), path.split("/"))


def _parts_match(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        if not rest:
            return bool(path) and not any(part.startswith(".") for part in path)
        if _parts_match(rest, path):
            return True
        return len(path) > 1 and not path[0].startswith(".") and _parts_match(pattern, path[1:])
    if not path or (path[0].startswith(".") and not first.startswith(".")):
        return False
    return fnmatchcase(path[0], first) and _parts_match(rest, path[1:])


def _matching(pattern: str, paths: Iterable[str], table: MixedSourceTable) -> Iterator[str]:
    found = [path for path in paths if path == pattern] or [path for path in paths if matches(pattern, path)]
    if not found:
        raise SourceError(
            "SRC014",
            f"source {table.name!r}",
            path=table.repo,
            expected="at least one file",
            found=pattern,
            hint=f"hf download {table.repo} --repo-type dataset --include '{pattern}' --dry-run",
        )
    yield from found


def _cached(repo: str) -> Path:
    return hub_cache() / ("datasets--" + repo.replace("/", "--"))


def _held(repo: str, commit: str, patterns: Iterable[str]) -> tuple[HubFile, ...] | None:
    """Return the files if all are named outright and in the cache, else None."""
    files = []
    for path in sorted(set(patterns), key=os.fsencode):
        found = None if glob.has_magic(path) else cached_file(repo, commit, path)
        if found is None:
            return None
        # The cache keeps large files by the SHA-256 that the hub published.
        blob = found.resolve().name
        files.append(HubFile(path, found.stat().st_size, blob if _SHA256.fullmatch(blob) else None))
    return tuple(files)
