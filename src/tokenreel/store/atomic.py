"""Atomic writes: temporary in the same folder, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from tokenreel.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY_SUFFIX = ".tokenreel-tmp"


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary file that becomes `path` when the block ends well, and leaves nothing when it does not.

    Raises `StorageError` (STO003) for anything the operating system refuses (a full disk, a read-only folder).
    """
    target = Path(path)
    temporary = temporary_name(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:  # noqa: PTH123
            yield cast("BinaryIO", file)
            file.flush()
            os.fsync(file.fileno())
        commit(temporary, target)
    except StorageError:
        raise
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        # After a successful rename there is nothing to remove.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file atomically; raises `StorageError` (STO003)."""
    with atomic_write(path) as file:
        file.write(data)


def temporary_name(target: Path) -> Path:
    """Return the temporary beside `target` for this process; one rename away, on the same file system."""
    return target.with_name(f".{target.name}.{os.getpid()}{TEMPORARY_SUFFIX}")


def commit(temporary: Path, target: Path) -> None:
    """Rename a finished, fsynced temporary to its name and fsync the folder."""
    temporary.replace(target)
    fsync_folder(target.parent)


def fsync_folder(folder: Path) -> None:
    """Make renames in `folder` durable; a file system that cannot is left as it is."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(folder: str | os.PathLike[str]) -> int:
    """Remove temporaries that a killed process left below `folder`; returns how many. Only with no other writer."""
    count = 0
    for leftover in Path(folder).rglob(f".*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)
        count += 1
    return count


def write_error(path: object, error: OSError) -> StorageError:
    """Return the `StorageError` (STO003) for an operating-system error while writing `path`."""
    return StorageError(
        "STO003",
        f"could not write: {error.strerror or error}",
        path=path,
        hint="df -h . && df -i .",
    )


def read_error(path: object, error: OSError) -> StorageError:
    """Return the `StorageError` for an operating-system error while reading `path`: STO001 absent, STO002 else."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return StorageError("STO001", path=path, hint=f"ls -l {path}")
    return StorageError("STO002", f"could not read: {error.strerror or error}", path=path, hint=f"ls -l {path}")
