"""Whether a build is at work in a folder: it holds a lock on the folder itself, and nothing else tells."""

from __future__ import annotations

import contextlib
import fcntl
import os


def build_at_work(folder: str | os.PathLike[str]) -> bool:
    """Return whether some process holds the lock of `folder`; False where the file system knows no locks.

    The probe asks for a shared lock without waiting and gives it back at once.
    """
    with contextlib.ExitStack() as stack:
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        stack.callback(os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False
