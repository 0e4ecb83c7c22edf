"""What a conversion has done so far, in the target's folder ``.convert``: so that it goes on where it was.

``plan.json`` holds the fingerprint of the plan; one file for each finished shard holds its counts, sizes and hashes. When
all is done the folder goes and ``convert.json`` stays.
"""

from __future__ import annotations

import contextlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING

from tokenreel.corpus.opening import MANIFEST
from tokenreel.errors import DocumentError, TokenreelError, UsageError
from tokenreel.formats import WrittenFile
from tokenreel.formats.writing import FinishedShard
from tokenreel.hashing import sha256_file
from tokenreel.store import dumps_canonical, loads_strict, write_bytes_atomic
from tokenreel.store.atomic import TEMPORARY_SUFFIX, remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tokenreel.convert.planning import PlannedShard

FOLDER = ".convert"
PLAN = "plan.json"
RECORD = "convert.json"
RECORD_FORMAT = "tokenreel-convert-1"


class Journal:
    """Records finished shards below `root`; made by `begin`."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        self._root = root
        self._new = False

    @classmethod
    def begin(cls, root: Path, fingerprint: str) -> Journal:
        """Begin, or go on with, the conversion of this fingerprint; leftovers of a killed one are removed.

        Raises `UsageError`: USE015 where another conversion was begun, or came to its end, in the folder, USE011 where something
        else is in it; `DocumentError` (DOC025) where this one came to its end and its manifest is gone.
        """
        journal = cls(root)
        plan = journal._folder / PLAN
        if plan.is_file():
            said = plan.read_bytes()
            if said != dumps_canonical({"fingerprint": fingerprint}):
                raise UsageError("USE015", path=root, hint=f"rm -r {root}, if what is there is not needed")
            remove_leftovers(root)
            return journal
        done = read_record(root)
        if done is not None and done.get("plan") == fingerprint:
            raise DocumentError(
                "DOC025",
                "the manifest that a finished conversion wrote is gone",
                path=root / MANIFEST,
                hint=f"rm -r {root}, and convert again",
            )
        if done is not None:
            why = "a conversion of another source, or with other arguments, came to its end here, or the source changed since"
            raise UsageError("USE015", why, path=root, hint=f"rm -r {root}, if what is there is not needed")
        if root.exists() and (not root.is_dir() or not _only_begun(root)):
            raise UsageError("USE011", path=root, hint=f"ls -l {root}")
        journal._new = not root.exists()
        write_bytes_atomic(plan, dumps_canonical({"fingerprint": fingerprint}))
        return journal

    def finished(self, shard: PlannedShard) -> FinishedShard | None:
        """Return the record of a shard that is finished and still there as it was written, or None; its files are read."""
        path = self._path(shard)
        if not path.is_file():
            return None
        try:
            said = loads_strict(path.read_bytes(), path)
            files = tuple(WrittenFile(**file) for file in said["files"])
            record = FinishedShard(said["name"], said["documents"], said["tokens"], files)
        except (TokenreelError, KeyError, TypeError):
            return None  # a record that is none: the shard is written again
        for file in record.files:
            there = self._root / file.path
            if not there.is_file() or there.stat().st_size != file.bytes or sha256_file(there) != file.sha256:
                return None
        return record if record.name == shard.name else None

    def add(self, shard: PlannedShard, record: FinishedShard) -> None:
        """Record a finished shard."""
        write_bytes_atomic(self._path(shard), dumps_canonical(asdict(record)))

    def end(self) -> None:
        """Remove the journal: everything is done and recorded elsewhere."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def forget(self) -> None:
        """Remove what was begun, where no shard was finished: an option that the writer refused leaves nothing."""
        if any(path.name != PLAN for path in self._folder.glob("*.json")):
            return
        self.end()
        if self._new:
            with contextlib.suppress(OSError):
                self._root.rmdir()

    def _path(self, shard: PlannedShard) -> Path:
        return self._folder / f"{shard.number:06d}.json"


@contextlib.contextmanager
def begun_splits(root: Path, names: Sequence[str], to: str) -> Iterator[None]:
    """Begin, or go on with, a root of several splits: until the block ends well, the root says that it is not whole.

    Raises what `Journal.begin` raises; a root whose splits all came to their end is left to them.
    """
    if (root / MANIFEST).is_file() and all((root / name / RECORD).is_file() for name in names):
        journal = Journal(root)
    else:
        journal = Journal.begin(root, f"splits {' '.join(names)} {to}")
    try:
        yield
    except BaseException:
        if all(path.name == FOLDER for path in root.iterdir()):
            journal.end()  # refused before anything was written
        raise
    journal.end()


def _only_begun(root: Path) -> bool:
    """Return whether a folder is empty but for what a run leaves that was killed before it had a plan."""
    return all(path.name == FOLDER for path in root.iterdir()) and all(
        path.name.endswith(TEMPORARY_SUFFIX) for path in (root / FOLDER).glob("*")
    )


def read_record(root: Path) -> dict[str, object] | None:
    """Return what ``convert.json`` says, or None where there is none that can be read."""
    path = root / RECORD
    if not path.is_file():
        return None
    try:
        value = loads_strict(path.read_bytes(), path)
    except TokenreelError:
        return None
    return value if isinstance(value, dict) and value.get("format") == RECORD_FORMAT else None


def files_changed(
    root: Path, files: Sequence[WrittenFile], threads: int = 1, seen: Callable[[int], None] | None = None
) -> list[tuple[WrittenFile, str]]:
    """Return the files that are not as they were written, each with what there is instead; all are read.

    `seen` is told of the bytes of every file that was read, from one thread.
    """

    def look(file: WrittenFile) -> str:
        there = root / file.path
        if not there.is_file():
            return "no such file"
        size = there.stat().st_size
        if size != file.bytes:
            return f"{size} bytes"
        digest = sha256_file(there)
        return "" if digest == file.sha256 else digest

    changed = []
    with ThreadPoolExecutor(threads) as pool:
        for file, found in zip(files, pool.map(look, files), strict=True):
            if found:
                changed.append((file, found))
            if seen is not None:
                seen(file.bytes)
    return changed
