"""Verify only what changed: a receipt of an earlier run, and which shards are as they were then.

A receipt lists every file of every shard with its size, its time of change and its SHA-256. A shard whose files have all three
of path, size and time unchanged is not read again; a program that changes bytes and puts the time back is not noticed, so
this is for every day, and a whole run for the day that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import ManifestError, UsageError
from tokenreel.store import dumps_canonical, loads_strict, write_bytes_atomic
from tokenreel.store.atomic import read_error

if TYPE_CHECKING:
    import os

    from tokenreel.verify.report import Report
    from tokenreel.verify.stream import Read
    from tokenreel.verify.target import Target

FORMAT = "tokenreel-verified-1"


@dataclass(frozen=True, slots=True)
class Since:
    """What an earlier run found whole."""

    path: str
    files: dict[str, tuple[int, int, str | None]]
    """By path below the root: bytes, time of change in nanoseconds, SHA-256 if it was computed."""

    def unchanged(self, target: Target) -> dict[str, dict[str, str]]:
        """Return, by name, the shards that are as they were, with the SHA-256 of their files."""
        out = {}
        for found in target.shards:
            hashes = {}
            for path in found.files:
                known, now = self.files.get(path), _status(target, path)
                if known is None or now != known[:2]:
                    break
                if known[2] is not None:
                    hashes[path] = known[2]
            else:
                out[found.name] = hashes
        return out


def read_receipt(path: str | os.PathLike[str], target: Target) -> Since:
    """Return what a receipt says; raises `ManifestError` (MAN001 .. MAN003), `UsageError` (USE017) for one that does not fit."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise read_error(path, error) from error
    value = loads_strict(data, path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ManifestError("MAN003", path=path, expected=FORMAT, found=str(value)[:80])
    wanted = _asked(target)
    said = {key: value.get(key) for key in wanted}
    if value.get("status") != "ok" or said != wanted:
        raise UsageError(
            "USE017",
            path=path,
            expected=f"status ok, {wanted}",
            found=f"status {value.get('status')}, {said}",
            hint="verify without --since",
        )
    files = {
        name: (int(row["bytes"]), int(row["changed"]), row.get("sha256"))
        for name, row in value.get("files", {}).items()
    }
    return Since(str(path), files)


def write_receipt(path: str | os.PathLike[str], target: Target, report: Report, read: Read) -> None:
    """Write the receipt of a full run; raises `StorageError` (STO003)."""
    files: dict[str, Any] = {}
    for found in target.files:
        for name in found.files:
            status = _status(target, name)
            if status is not None:
                files[name] = {"bytes": status[0], "changed": status[1], "sha256": read.sha256.get(name)}
    value = {"format": FORMAT, "status": report.status, **_asked(target), "files": files}
    write_bytes_atomic(path, dumps_canonical(value))


def _asked(target: Target) -> dict[str, object]:
    return {"boundary": target.boundary.as_dict(), "vocab": target.vocab}


def _status(target: Target, path: str) -> tuple[int, int] | None:
    try:
        status = (Path(target.store.root) / path).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
