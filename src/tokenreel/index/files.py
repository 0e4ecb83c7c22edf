"""A set of index files as values: what a directory should hold, putting it there, and comparing.

Everything in a set follows from its inputs alone, so any number of hosts may build in one directory at once without
waiting for each other: whoever comes last replaces a file by the same bytes, and a reader never sees half of one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import FormatError, StorageError
from tokenreel.index.arrays import first_difference, read_array, same_array, write_array
from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class IndexFiles:
    """What one directory should hold of one index."""

    folder: str
    """Relative to the root that is asked for; "" is the root."""
    arrays: dict[str, npt.NDArray[Any]]
    """File name -> array, in the order they are checked."""
    texts: dict[str, bytes] = field(default_factory=dict)
    """File name -> bytes of what a reader needs besides, or hashes."""
    notes: dict[str, bytes] = field(default_factory=dict)
    """File name -> bytes of what is written for people and never compared."""

    def path(self, name: str) -> str:
        """Return a file's path relative to the root."""
        return f"{self.folder}/{name}" if self.folder else name


@dataclass(frozen=True, slots=True)
class Put:
    """What `put` did."""

    written: tuple[str, ...]
    kept: tuple[str, ...]
    """Files that were there and were right."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing in which a directory is not what its inputs give."""

    code: str
    file: str
    what: str
    expected: object
    found: object

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "code": self.code,
            "file": self.file,
            "what": self.what,
            "expected": self.expected,
            "found": self.found,
        }


def put(root: str | os.PathLike[str], sets: Iterable[IndexFiles]) -> Put:
    """Make a directory hold sets of files; what is there and right is left alone. Raises `StorageError` (STO003)."""
    written: list[str] = []
    kept: list[str] = []
    for files in sets:
        folder = Path(root) / files.folder
        for name, data in {**files.notes, **files.texts}.items():
            right = _text(folder / name) == data
            if not right:
                write_bytes_atomic(folder / name, data)
            (kept if right else written).append(files.path(name))
        for name, array in files.arrays.items():
            right = same_array(folder / name, array)
            if not right:
                write_array(folder / name, array)
            (kept if right else written).append(files.path(name))
    return Put(tuple(written), tuple(kept))


def put_or_warn(root: str | os.PathLike[str], sets: Iterable[IndexFiles]) -> StorageError | None:
    """Like `put`, for a job that has the arrays in memory: a directory that cannot be written is returned, not raised."""
    try:
        put(root, sets)
    except StorageError as error:
        facts = f"{error.message or error.title}; the index is used from memory"
        return StorageError("IDX005", facts, path=error.where.get("path", root), hint=error.hint)
    return None


def differences(root: str | os.PathLike[str], sets: Iterable[IndexFiles]) -> Iterator[Difference]:
    """Yield, file by file, the first thing in which a directory is not what it should be."""
    for files in sets:
        folder = Path(root) / files.folder
        for name, made in files.arrays.items():
            try:
                stored = read_array(folder / name)
            except FormatError as error:
                expected = error.expected or f"{made.dtype} of shape {list(made.shape)}"
                found = error.found if error.found is not None else error.message or "nothing"
                yield Difference(error.code, files.path(name), error.title, expected, found)
                continue
            other = first_difference(stored, made)
            if other is not None:
                yield Difference("IDX004", files.path(name), *other)
        for name, data in files.texts.items():
            there = _text(folder / name)
            if there is None:
                yield Difference(
                    "IDX001", files.path(name), "an index file is not there", f"{len(data)} bytes", "nothing"
                )
            elif there != data:
                yield Difference("IDX004", files.path(name), *_first_line(data, there))


def _text(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _first_line(data: bytes, there: bytes) -> tuple[str, str, str]:
    ours, theirs = (text.decode("utf-8", "replace").splitlines() for text in (data, there))
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False), start=1):
        if one != other:
            return f"line {number}", one.strip(), other.strip()
    return "length", f"{len(data)} bytes", f"{len(there)} bytes"
