"""Files of many repositories in the order they come, put together by repository: texts on disk, where they are in memory."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tokenreel.build.repositories import Grouping, SourceFile, document_of, file_class, in_order
from tokenreel.store.atomic import make_folder, write_error
from tokenreel.text.texts import text_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Held:
    """One file: where its text is, and what its record says of it."""

    path: str
    language: str
    begin: int
    bytes: int
    values: tuple[Any, ...]
    """Of the fields that are kept, in their order."""


@dataclass(slots=True)
class Gathered:
    """One repository."""

    name: str
    files: list[Held] = field(default_factory=list)
    bytes: int = 0
    language_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Joined:
    """The document of a repository."""

    text: str
    files: tuple[Held, ...]
    """Those that make it, those of one path in the order they came."""


class Repositories:
    """Files by repository, in the order in which repositories were first seen. A context manager.

    Memory: about 300 bytes a file, and one repository's text at a time. Texts wait in a file without a name below
    `folder`, which is gone when the process is, however it ends.
    """

    def __init__(self, grouping: Grouping, folder: Path | None) -> None:
        self._grouping = grouping
        self._found: dict[str, Gathered] = {}
        self._end = 0
        self._folder = folder
        try:
            if folder is not None:
                make_folder(folder)
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by the context)
        except OSError as error:
            raise write_error(folder, error) from error

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the texts' place back."""
        self._file.close()

    def __len__(self) -> int:
        """Return how many repositories there are."""
        return len(self._found)

    def __iter__(self) -> Iterator[Gathered]:
        """Yield the repositories."""
        return iter(self._found.values())

    def add(self, texts: Any, rows: Sequence[tuple[str, str, str, tuple[Any, ...]]]) -> None:
        """Take files: a ``LargeStringArray`` of texts, and (repository, path, language, values) of each.

        Raises `StorageError` (STO003).
        """
        data, offsets = text_bytes(texts)
        edges = (offsets + self._end).tolist()
        try:
            self._file.write(data.data)
        except OSError as error:
            raise write_error(self._folder, error) from error
        self._end = edges[-1]
        for k, (name, path, language, values) in enumerate(rows):
            one = self._found.setdefault(name, Gathered(name))
            size = edges[k + 1] - edges[k]
            one.files.append(Held(path, language, edges[k], size, values))
            one.bytes += size
            one.language_bytes += size if language == self._grouping.language else 0

    def join(self, one: Gathered) -> Joined | None:
        """Return the document of a repository; None where none of its files has a class."""
        made: list[SourceFile] = []
        held: dict[int, Held] = {}
        for file in one.files:
            if file_class(file.path, self._grouping) is None:
                continue
            self._file.seek(file.begin)
            made.append(SourceFile(file.path, file.language, self._file.read(file.bytes).decode()))
            held[id(made[-1])] = file
        if not made:
            return None
        ordered = in_order(made, self._grouping)
        return Joined(document_of(ordered, self._grouping), tuple(held[id(file)] for file in ordered))
