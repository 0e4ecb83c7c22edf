"""One build at a time in a folder: locks on folders themselves, so that no lock file is ever left behind.

The build holds an exclusive lock on the output folder, each worker a shared one on its receipts. Locks go with the
process that held them, however it ended. A file system without locks (some network mounts) is used without.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from tokenreel.errors import StorageError
from tokenreel.store.atomic import make_folder, write_error
from tokenreel.store.flock import flock_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ORPHAN_SECONDS = 30.0


@contextlib.contextmanager
def build_lock(out: Path, *, wait: float = ORPHAN_SECONDS) -> Iterator[bool]:
    """Hold `out` for one build; yields whether the file system knows locks.

    The folder is made where it is not there. Raises `StorageError`: MAN015 when another build holds it, or when workers
    of a killed one are still at work after `wait` seconds; STO003 when it cannot be made or written to.
    """
    _make(out)
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(_folder(out))
        known = flock_now(handle)
        if known is False:
            raise StorageError("MAN015", path=out, hint=f"fuser -v {out}")
        receipts = out / "receipts"
        _make(receipts)
        wait_for_workers(receipts, wait=wait)
        yield known is True


def wait_for_workers(folder: Path, *, wait: float = ORPHAN_SECONDS) -> None:
    """Return when no worker of a killed build holds `folder`; raises `StorageError` (MAN015) after `wait` seconds."""
    with _folder(folder) as orphans:
        until = time.monotonic() + wait
        while flock_now(orphans) is False:
            if time.monotonic() > until:
                raise StorageError(
                    "MAN015",
                    "workers of a build that was killed are still at work",
                    path=folder.parent,
                    hint=f"fuser -v {folder}",
                )
            time.sleep(0.02)


def absent(out: Path, names: Sequence[str]) -> list[Path]:
    """Return what is not there yet: these files and folders below `out`, `out` itself, folders above it."""
    return [path for path in (*(out / name for name in names), out, *out.parents) if not os.path.lexists(path)]


@contextlib.contextmanager
def nothing_left(made: Sequence[Path], begun: Path) -> Iterator[None]:
    """Where the block fails before the file `begun` is there, remove what it `made`: files, and folders that are empty."""
    try:
        yield
    except BaseException:
        if not begun.exists():
            for path in made:
                with contextlib.suppress(OSError):
                    if path.is_dir():
                        path.rmdir()
                    else:
                        path.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def shared_lock(folder: Path) -> Iterator[None]:
    """Hold a folder as one of several workers."""
    with _folder(folder) as handle:
        flock_now(handle, shared=True)
        yield


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise write_error(path, error) from error
    try:
        yield handle
    finally:
        os.close(handle)


def _make(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise write_error(folder, error) from error
