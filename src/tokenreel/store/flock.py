"""Ask the system for a lock on an open file or folder; it goes with the process that held it, however that ended."""

from __future__ import annotations

import errno
import fcntl

UNSUPPORTED = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


def flock_now(handle: int, *, shared: bool = False) -> bool | None:
    """Return whether the lock was taken, without waiting for it; None where the file system has none (some network mounts)."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return None
        raise
    return True
