"""One command at a time in a destination: locks that go with the process that held them, however it ended.

A folder is locked itself, so that nothing is left behind; a pair, which lies in a folder with others, by an empty hidden file
beside it. A file system without locks (some network mounts) is used without.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.errors import StorageError
from tokenreel.store.atomic import NAME_BYTES, TEMPORARY_SUFFIX, make_folder, write_error
from tokenreel.store.flock import flock_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 0.1
"""Seconds for which a lock is asked for again: `verify` holds one for an instant, to see whether it is taken."""


@contextlib.contextmanager
def hold(folder: Path, shown: Path | None = None) -> Iterator[None]:
    """Hold a folder for one command. It is made, and its parents, where it is not there; what was made and stays empty goes.

    Errors name `shown`, where another name was given. Raises `StorageError`: STO007 where another command holds it, STO003 where it cannot be made.
    """
    made: list[Path] = []

    def opened() -> int:
        made[:] = list(dict.fromkeys([*made, *_missing(folder)]))
        make_folder(folder)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    handle = _taken(folder, opened, shown)
    try:
        yield
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        os.close(handle)


@contextlib.contextmanager
def hold_name(target: Path) -> Iterator[None]:
    """Hold the name of a file, or of files that share a beginning, in a folder where others work too; raises as `hold`."""
    place = hidden_beside(target, "lock")

    def opened() -> int:
        make_folder(place.parent)
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    handle = _taken(place, opened, shown=target)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)
        os.close(handle)


def hidden_beside(target: Path, what: str) -> Path:
    """Return the one name beside `target` that no listing shows, for `what`; a long name is cut to what file systems take.

    >>> hidden_beside(Path("a/out"), "lock").as_posix()
    'a/.out.lock.tokenreel-tmp'
    """
    tail = f".{what}{TEMPORARY_SUFFIX}"
    raw = os.fsencode(target.name)
    room = NAME_BYTES - 1 - len(tail)
    if len(raw) > room:
        import hashlib

        mark = "-" + hashlib.sha256(raw).hexdigest()[:16]
        raw = raw[: room - len(mark)].decode("utf-8", "ignore").encode() + mark.encode()
    return target.with_name(f".{os.fsdecode(raw)}{tail}")


def _taken(place: Path, opened: Callable[[], int], shown: Path | None = None) -> int:
    """Return a handle that holds `place`, and that is what stands there: not one that was removed meanwhile."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            handle = opened()
        except OSError as error:
            raise write_error(place, error) from error
        try:
            if flock_now(handle) is not False:
                if _is_there(handle, place):
                    return handle
            elif time.monotonic() > until:
                raise _held(place if shown is None else shown, handle)
            else:
                time.sleep(PATIENCE / 5)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_there(handle: int, place: Path) -> bool:
    try:
        there = place.stat()
    except OSError:
        return False
    return os.path.samestat(os.fstat(handle), there)


def _held(place: Path, handle: int) -> StorageError:
    holder = _holder(handle)
    return StorageError(
        "STO007",
        path=place,
        found="a process that cannot be seen from here" if holder is None else f"process {holder}",
        hint=f"fuser -v {place}" if holder is None else f"ps -fp {holder}",
    )


def _holder(handle: int) -> int | None:
    """Return the number of the process that holds the lock, where the system lists locks and it can be seen from here."""
    status = os.fstat(handle)
    try:
        lines = Path("/proc/locks").read_text("ascii").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:  # 1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF
        words = line.split()
        if len(words) < 6 or words[1] != "FLOCK" or words[3] != "WRITE" or not words[4].isdigit():
            continue
        device, _, inode = words[5].rpartition(":")
        numbers = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        if (device, inode) == (numbers, str(status.st_ino)):
            return int(words[4]) or None
    return None


def _missing(folder: Path) -> list[Path]:
    """Return the folder and those above it that are not there, the deepest first."""
    return [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
