"""Where a repair works until it is done: a hidden folder beside its destination, which appears whole, by one rename.

So what was killed is never taken for a smaller corpus. Run again, a repair of the same source with the same arguments takes up
the files that had been copied; everything else is made again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tokenreel.convert.lock import hidden_beside, hold
from tokenreel.convert.place import has_neighbours, refuse_place
from tokenreel.errors import DataError, StorageError, UsageError
from tokenreel.hashing import sha256_file
from tokenreel.store import dumps_canonical, write_bytes_atomic
from tokenreel.store.atomic import fsync_folder, write_error

if TYPE_CHECKING:
    from types import TracebackType

PLAN, COPIED, RESULT = "plan.json", "copied", "result"


class Workplace:
    """A context manager that holds the hidden folder of one destination; `publish` gives its result the name.

    Raises on entry `UsageError` for a place that cannot be (see `place.refuse_place`), `StorageError` (STO007) where another
    repair holds it. One that cannot be made is an error (STO003) only when something is to be written.
    """

    def __init__(self, source: str | os.PathLike[str], out: Path) -> None:
        self._source = source
        self._shown = out
        self._out = Path(os.path.realpath(out))
        self._folder = hidden_beside(self._out, "repair")
        self._held = contextlib.ExitStack()
        self._wrong: StorageError | None = None
        self._copied: dict[str, str] = {}

    @property
    def result(self) -> Path:
        """The folder in which the result is put together."""
        return self._folder / RESULT

    def __enter__(self) -> Self:
        self._refuse()
        try:
            self._held.enter_context(hold(self._folder, self._shown))
        except StorageError as error:
            if error.code != "STO003":
                raise
            self._wrong = error
            return self
        try:
            self._refuse()  # once more: another one may have come to its end meanwhile
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was killed, interrupted or ran out of space can be taken up; what was refused, or is done, leaves nothing.
        if self._wrong is None and (error is None or isinstance(error, DataError | UsageError)):
            shutil.rmtree(self._folder, ignore_errors=True)
        self._held.close()

    def begin(self, fingerprint: str) -> None:
        """Make ready for writing: keep what an earlier repair of this fingerprint had copied, and nothing else."""
        if self._wrong is not None:
            raise self._wrong
        try:
            self._replaceable()
            plan = self._folder / PLAN
            wanted = dumps_canonical({"fingerprint": fingerprint})
            if plan.is_file() and plan.read_bytes() == wanted:
                self._copied = _read(self._folder / COPIED)
                _clean(self.result, set(self._copied))
            else:
                for path in self._folder.iterdir():
                    _remove(path)
            write_bytes_atomic(plan, wanted)
            self.result.mkdir(exist_ok=True)
        except StorageError:
            raise
        except OSError as error:
            raise write_error(self._folder, error) from error

    def stands(self, path: str, digest: str) -> bool:
        """Return whether a file was copied before, and is still the one of this SHA-256."""
        there = self.result / path
        return self._copied.get(path) == digest and there.is_file() and sha256_file(there) == digest

    def copied(self, path: str, digest: str) -> None:
        """Write down that a file was copied, and is on the disk."""
        with (self._folder / COPIED).open("ab") as file:
            file.write(os.fsencode(f"{digest} {path}\n"))

    def publish(self) -> None:
        """Give the result its name: the last step."""
        try:
            for folder, _, _ in os.walk(self.result):
                fsync_folder(Path(folder))
            self.result.rename(self._out)
            fsync_folder(self._out.parent)
        except OSError as error:
            raise write_error(self._out, error) from error

    def _refuse(self) -> None:
        beside = has_neighbours(Path(self._source))
        refuse_place(self._shown, [self._source], command="repair", empty=True, beside=beside)

    def _replaceable(self) -> None:
        """Raise `UsageError` (USE011) where an empty folder stands at the destination that no rename can replace."""
        if self._out.is_dir() and self._out.stat().st_dev != self._folder.stat().st_dev:
            raise UsageError(
                "USE011",
                "the empty folder is a file system of its own, which no rename replaces",
                path=self._shown,
                expected="a folder in it",
                hint=f"tokenreel repair ... --out {self._shown / 'repaired'}",
            )


def _read(path: Path) -> dict[str, str]:
    """Return (path, SHA-256) of files that were copied; each is read again before it counts, so a line cut short harms nothing."""
    out: dict[str, str] = {}
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        digest, _, name = line.partition(b" ")
        out[os.fsdecode(name)] = digest.decode("ascii", "replace")
    return out


def _clean(folder: Path, keep: set[str]) -> None:
    """Remove everything below `folder` but these files."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # not empty: something in it is kept
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in keep:
            path.unlink()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
