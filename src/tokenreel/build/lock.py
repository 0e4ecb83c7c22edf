"""One build at a time in a folder: locks on folders themselves, so that no lock file is ever left behind.

The build holds an exclusive lock on the output folder, each worker a shared one on its receipts. Locks go with the
process that held them, however it ended. A file system without locks (some network mounts) is used without.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING

from tokenreel.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ORPHAN_SECONDS = 30.0
_UNSUPPORTED = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


@contextlib.contextmanager
def build_lock(out: Path, *, wait: float = ORPHAN_SECONDS) -> Iterator[bool]:
    """Hold `out` for one build; yields whether the file system knows locks.

    Raises `StorageError` (MAN015) when another build holds it, or when workers of a killed one are still at work after
    `wait` seconds.
    """
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(_folder(out))
        known = _try(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if known is False:
            raise StorageError("MAN015", path=out, hint=f"fuser -v {out}")
        receipts = out / "receipts"
        receipts.mkdir(exist_ok=True)
        with _folder(receipts) as orphans:
            until = time.monotonic() + wait
            while _try(orphans, fcntl.LOCK_EX | fcntl.LOCK_NB) is False:
                if time.monotonic() > until:
                    raise StorageError(
                        "MAN015",
                        "workers of a build that was killed are still at work",
                        path=out,
                        hint=f"fuser -v {receipts}",
                    )
                time.sleep(0.02)
        yield known is True


@contextlib.contextmanager
def shared_lock(folder: Path) -> Iterator[None]:
    """Hold a folder as one of several workers."""
    with _folder(folder) as handle:
        _try(handle, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _try(handle: int, how: int) -> bool | None:
    """Return whether the lock was taken; None where the file system has none."""
    try:
        fcntl.flock(handle, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True
