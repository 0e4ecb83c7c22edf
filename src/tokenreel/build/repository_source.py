"""Records that are files of source code as a source of documents, one a repository; see `tokenreel.build.repositories`.

The records of a repository may stand anywhere in one input, and are put together when all of it was read: a repository
spread over two inputs is two documents. Documents follow each other as their repositories were first seen. A repository
without a majority of the language, or without a file that makes a document, is dropped and counted; its record number is
the repository's number in its input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokenreel.build.repositories import Grouping, has_majority
from tokenreel.build.repository_source_files import Repositories
from tokenreel.build.text_batches import Dropped, InputFacts, TextBatch, open_source
from tokenreel.errors import RecipeError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenreel.build.repository_source_files import Gathered, Joined
    from tokenreel.build.text_batches import Place, Source, SourceInput
    from tokenreel.config.mixed import GroupTable, MixedSourceTable

STAGE = "group"
"""What dropped repositories are listed under."""


@dataclass(slots=True)
class RepositorySource:
    """The repositories of files or of a hub data set."""

    name: str
    table: MixedSourceTable
    group: GroupTable
    place: Place
    columns: tuple[str, ...]
    files: Source
    """Where the records come from."""
    _whole: bool = field(default=False, repr=False)

    def inputs(self) -> list[SourceInput]:
        """Return the inputs of the records; raises what their source raises."""
        return self.files.inputs()

    def read(self, one: SourceInput, start: int = 0) -> Iterator[TextBatch]:
        """Yield the repositories of an input from number `start` on; all of the input is read before the first.

        Raises what reading records raises, `SourceError` (SRC006) for a record without repository or path, and
        `StorageError` (STO003). Memory: as `Repositories`, and a batch of documents.
        """
        self._whole = False
        grouping = grouping_of(self.group)
        with Repositories(grouping, Path(self.place.cache) if self.place.cache else None) as found:
            for batch in self.files.read(one):
                found.add(_checked(batch), list(self._rows(batch, one)))
            building = _Building(self, start)
            for number, repository in enumerate(found):
                if number < start:
                    continue
                why = _why_not(repository, grouping)
                joined = None if why else found.join(repository)
                if joined is None:
                    building.drop(
                        number, repository, why or ("no file of a class", f"0 of {len(repository.files)} files")
                    )
                else:
                    building.add(number, repository, joined)
                if building.size >= self.place.chunk_bytes:
                    yield building.batch()
                    building = _Building(self, number + 1)
            if building.waits:
                yield building.batch()
        self._whole = True

    def facts(self, one: SourceInput) -> InputFacts:
        """Return what is known of the input; raises what the records' source raises."""
        known = self.files.facts(one)
        return msgspec.structs.replace(known, whole=known.whole and self._whole)

    @property
    def kept(self) -> tuple[str, ...]:
        """Fields of records that are handed on: metadata and what gates look at."""
        return tuple(dict.fromkeys((*self.table.metadata, *self.columns)))

    def _rows(self, batch: TextBatch, one: SourceInput) -> Iterator[tuple[str, str, str, tuple[Any, ...]]]:
        group, columns = self.group, batch.columns
        kept = [columns[name] for name in self.kept]
        for k in range(len(batch)):
            names = []
            for name in (group.by, group.path):
                value = columns[name][k]
                if not isinstance(value, str) or not value:
                    raise SourceError(
                        "SRC006",
                        f"source {self.name!r}: the field {name!r} of a file",
                        path=one.path,
                        line=None if batch.lines is None else batch.lines[k],
                        document=batch.first + k,
                        expected="a string that is not empty",
                        found="null" if value is None else repr(value)[:80],
                    )
                names.append(value)
            yield names[0], names[1], str(columns[group.language_field][k] or ""), tuple(one[k] for one in kept)


@dataclass(slots=True)
class _Building:
    """Documents that wait to be a batch."""

    source: RepositorySource
    first: int
    size: int = 0
    texts: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    metadata: list[dict[str, Any] | None] = field(default_factory=list)
    columns: list[tuple[Any, ...]] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Whether there is anything to hand on."""
        return bool(self.numbers or self.dropped)

    def drop(self, number: int, repository: Gathered, why: tuple[str, str]) -> None:
        """Leave a repository out."""
        self.dropped.append(Dropped(number, STAGE, why[0], why[1], repository.name))
        self.size += 1

    def add(self, number: int, repository: Gathered, joined: Joined) -> None:
        """Take a repository's document."""
        source = self.source
        values = dict(zip(source.kept, zip(*(file.values for file in joined.files), strict=True), strict=True))
        self.texts.append(joined.text)
        self.numbers.append(number)
        self.names.append(repository.name)
        self.size += len(joined.text) + 1
        self.metadata.append(
            {
                "files": len(joined.files),
                "files_left_out": len(repository.files) - len(joined.files),
                "repository_bytes": repository.bytes,
                "language_bytes": repository.language_bytes,
                **{name: _distinct(values[name]) for name in source.table.metadata},
            }
        )
        # A gate looks at what all files agree on.
        agreed = (_distinct(values[name]) for name in source.columns)
        self.columns.append(tuple(found[0] if len(found) == 1 else None for found in agreed))

    def batch(self) -> TextBatch:
        """Return what waits."""
        import pyarrow as pa

        columns = self.source.columns
        return TextBatch(
            texts=pa.array(self.texts, pa.large_string()),
            first=self.first,
            upstream=list(self.names),
            groups=list(self.names),
            metadata=self.metadata,
            columns={name: [row[k] for row in self.columns] for k, name in enumerate(columns)},
            numbers=np.array(self.numbers, np.int64),
            dropped=tuple(self.dropped),
        )


def open_repositories(table: MixedSourceTable, place: Place, columns: Sequence[str]) -> RepositorySource:
    """Return the source of a table with `group`, over files or a hub data set.

    Raises `RecipeError` (RCP006) for a url, or an id that is not the repository: those are of files, not of repositories.
    """
    group = table.group
    if group is None:
        raise RecipeError("RCP006", f"source {table.name!r}: repositories need group")
    if table.url is not None or table.id not in (None, group.by):
        raise RecipeError("RCP006", f"source {table.name!r}: with group, the id is {group.by!r}, and there is no url")
    bare = msgspec.structs.replace(table, group=None, id=None, metadata=[])
    asked = dict.fromkeys((group.by, group.path, group.language_field, *table.metadata, *columns))
    return RepositorySource(table.name, table, group, place, tuple(columns), open_source(bare, place, tuple(asked)))


def grouping_of(group: GroupTable) -> Grouping:
    """Return the choices that a recipe's table makes."""
    return Grouping(group.language, group.suffix, group.majority, group.separator, group.headers)


def _checked(batch: TextBatch) -> Any:
    """Return a batch's texts, valid UTF-8; raises `SourceError` (SRC001)."""
    import pyarrow as pa

    if batch.explain is not None:
        try:
            batch.texts.validate(full=True)
        except pa.ArrowInvalid:
            batch.explain()
            raise
    return batch.texts


def _why_not(repository: Gathered, grouping: Grouping) -> tuple[str, str] | None:
    if has_majority(repository.language_bytes, repository.bytes, grouping):
        return None
    return f"no majority of {grouping.language}", f"{repository.language_bytes} of {repository.bytes} bytes"


def _distinct(values: tuple[Any, ...]) -> list[Any]:
    """Return the values that are not null, each once, in order.

    >>> _distinct(("mit", None, "mit", ["a"], 1))
    ['mit', ['a'], 1]
    """
    found: list[Any] = []
    for value in values:
        if value is not None and value not in found:
            found.append(value)
    return found
