"""Atomic writes: temporary in the same folder, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from tokenreel.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY_SUFFIX = ".tokenreel-tmp"
NAME_BYTES = 255


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[BinaryIO]:
    """Yield a binary file that becomes `path` when the block ends well, and leaves nothing when it does not.

    Raises `StorageError` (STO003) for anything the operating system refuses (a full disk, a read-only folder). An error
    of the block about another file passes as it is. Folders on the way are made, and stay. Without `durable` the disk is
    not waited for: for temporaries whose hash is compared before they are taken up again after a crash.
    """
    target = Path(path)
    temporary = temporary_name(target)
    try:
        make_folder(target.parent)
        with open(temporary, "xb") as file:  # noqa: PTH123
            yield cast("BinaryIO", file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        commit(temporary, target)
    except StorageError:
        raise
    except OSError as error:
        if error.filename is not None and not _is_ours(error.filename, target):
            raise
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
    """Return a new temporary beside `target`, one rename away; another one at each call.

    Two threads, or processes of the same number on two machines, never share one. A long name is cut to what file
    systems take.
    """
    tail = f".{os.getpid()}-{os.urandom(4).hex()}{TEMPORARY_SUFFIX}"
    name = os.fsencode(target.name)[: NAME_BYTES - 1 - len(tail)].decode("utf-8", "ignore")
    return target.with_name(f".{name}{tail}")


def remove_own(prefix: Path) -> None:
    """Remove this process's temporaries of files whose name begins with that of `prefix`.

    For a process that was interrupted between making one and knowing it. An old file that was moved aside stays.
    """
    if prefix.parent.is_dir():
        for path in prefix.parent.iterdir():
            name = path.name
            mine = name.startswith(f".{prefix.name}.") and name.endswith(TEMPORARY_SUFFIX)
            if mine and f".{os.getpid()}-" in name and ".old." not in name:
                path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make `folder` and its parents, each durable in the one above; one that is there is no error."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        fsync_folder(made.parent)


def _is_ours(name: object, target: Path) -> bool:
    """Return whether an error's file is the target, its temporary or a folder above it."""
    path = Path(os.fsdecode(name)) if isinstance(name, str | bytes | os.PathLike) else target
    return path in (target, *target.parents) or (path.parent == target.parent and path.name.endswith(TEMPORARY_SUFFIX))


def commit(temporary: Path, target: Path) -> None:
    """Rename a finished, fsynced temporary to its name and fsync the folder."""
    temporary.replace(target)
    fsync_folder(target.parent)


def fsync_folder(folder: Path) -> None:
    """Make renames in `folder` durable; a folder that cannot be opened or synced as one is left as it is.

    A device that fails is an error: what the rename promised may be lost.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM):
            raise
    finally:
        os.close(handle)


def remove_leftovers(folder: str | os.PathLike[str]) -> int:
    """Remove temporaries that a killed process left below `folder`; returns how many. Only with no other writer."""
    count = 0
    for leftover in Path(folder).rglob(f".*{TEMPORARY_SUFFIX}"):
        try:
            leftover.unlink(missing_ok=True)
        except OSError as error:
            raise write_error(leftover, error) from error
        count += 1
    return count


def write_error(path: object, error: OSError) -> StorageError:
    """Return the `StorageError` (STO003) for an operating-system error while writing `path`."""
    place = Path(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else Path()
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not place.is_dir():
        place = place.parent
    there = shlex.quote(str(place))
    return StorageError(
        "STO003",
        f"could not write: {error.strerror or error}",
        path=path,
        hint=f"df -h {there} && df -i {there}" if full else f"ls -ld {there}",
    )


def read_error(path: object, error: OSError) -> StorageError:
    """Return the `StorageError` for an operating-system error while reading `path`: STO001 absent, STO002 else."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return StorageError("STO001", path=path, hint=f"ls -l {path}")
    return StorageError("STO002", f"could not read: {error.strerror or error}", path=path, hint=f"ls -l {path}")
