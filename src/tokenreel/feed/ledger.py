"""`Ledger`: an append-only record of what each step consumed, one JSON line a batch, each chained to the line before.

A line has ``run``, ``attempt``, ``step``, ``first`` (sample), ``count``, ``fingerprint`` (of the order) and ``sum``: SHA-256 over
the sum before it and the line without its own. The first line of an attempt also says what rows were made (``rows``) and
which corpora lacked their COMPLETE.json (``incomplete``). Opening a ledger and loading a state begin a new attempt.

A line is with the operating system before its batch is handed out, so a killed process loses none. It is on the disk by
the next `state_dict`, at `close`, and else `SYNC_SECONDS` later at most: a power failure takes lines that no saved state
counts on. A line that was torn is cut off when the file is next opened, and told. One process writes: others are refused.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tokenreel.errors import StateError, StorageError
from tokenreel.feed.ledger_lines import START, last_line, line_bytes
from tokenreel.store.atomic import fsync_folder, make_folder, write_error
from tokenreel.store.flock import flock_now

if TYPE_CHECKING:
    from tokenreel.feed.batch import Batch
    from tokenreel.feed.feed import Feed

SYNC_SECONDS = 5.0


class Ledger:
    """The writer. Opening it takes the lock, checks the file's first line and last ones, and cuts a torn one off.

    Readers check the whole chain; opening costs the same however long the run was.

    Raises `StateError`: STA020 a broken chain, STA021 another process writes it, STA022 a file that is no ledger; and
    `StorageError` (STO001 .. STO003).

    >>> import tempfile
    >>> with Ledger(f"{tempfile.mkdtemp()}/ledger.jsonl", run="demo") as ledger:
    ...     ledger.attempt, ledger.cut
    (1, 0)
    """

    def __init__(self, path: str | os.PathLike[str], *, run: str) -> None:
        self.path = Path(path)
        self.run = run
        self.attempt = 1
        """Number of the attempt that the next line belongs to."""
        self.cut = 0
        """Bytes of a torn last line that were cut off at opening."""
        self._sum = START
        self._opens: dict[str, Any] = {}
        self._fingerprint = ""
        self._first = True
        self._unsynced = False
        self._process = os.getpid()
        self._file = -1
        try:
            make_folder(self.path.parent)
            new = not self.path.exists()
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            if new:
                fsync_folder(self.path.parent)
            self._lock()
            self._read()
        except OSError as error:
            self._give_up()
            if isinstance(error, StorageError):
                raise
            raise write_error(self.path, error) from error
        except BaseException:
            self._give_up()
            raise
        self._synced = time.monotonic()

    def _lock(self) -> None:
        if flock_now(self._file) is False:
            raise StateError("STA021", path=self.path, hint=f"fuser -v {self.path}")

    def _read(self) -> None:
        """Go to the end of the file: the last sum and the next attempt; a torn last line is cut off."""
        size = os.fstat(self._file).st_size
        line = last_line(self.path, size)
        whole = 0
        if line is not None:
            whole, self._sum, self.attempt = line.end, line.sum, line.attempt + 1
        if size > whole:
            self.cut = size - whole
            os.ftruncate(self._file, whole)
            os.fsync(self._file)

    def begin(self, feed: Feed) -> None:
        """Say what feed the lines are of; its first line says the rows it makes."""
        self._opens = {"rows": feed.policy.as_dict()}
        if feed.incomplete:
            self._opens["incomplete"] = list(feed.incomplete)
        self._fingerprint = feed.order.fingerprint
        self._first = True

    def new_attempt(self, feed: Feed) -> None:
        """Begin a new attempt, unless the present one has no line yet."""
        if not self._first:
            self.attempt += 1
        self.begin(feed)

    def record(self, batch: Batch) -> None:
        """Write the line of a batch; raises `StateError` (STA021) in a forked process, `StorageError` (STO003)."""
        if self._process != os.getpid():
            expected = f"process {self._process}, which opened it"
            raise StateError("STA021", path=self.path, expected=expected, found=f"process {os.getpid()}")
        said: dict[str, Any] = {
            "run": self.run,
            "attempt": self.attempt,
            "step": batch.step,
            "first": batch.position,
            "count": batch.count,
            "fingerprint": self._fingerprint,
        }
        if self._first:
            said.update(self._opens)
        data, digest = line_bytes(said, self._sum)
        self._write(data)
        self._sum, self._first, self._unsynced = digest, False, True
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self.sync()

    def _write(self, data: bytes) -> None:
        before = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            # What is half a line would be taken for damage by the next one.
            os.ftruncate(self._file, before)
            raise write_error(self.path, error) from error

    def sync(self) -> None:
        """Return when every line is on the disk."""
        if self._unsynced and self._file >= 0 and self._process == os.getpid():
            try:
                os.fsync(self._file)
            except OSError as error:
                raise write_error(self.path, error) from error
            self._unsynced, self._synced = False, time.monotonic()

    def close(self) -> None:
        """Put every line on the disk and let go of the file."""
        if self._file >= 0:
            try:
                self.sync()
            finally:
                self._give_up()

    def _give_up(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        """Return the ledger itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __del__(self) -> None:
        """Let go of the file."""
        self._give_up()
