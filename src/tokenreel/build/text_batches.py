"""Batches of documents on their way through the stages, and the sources that they come from.

A source is opened in every worker that needs it, from the recipe's table alone, by the function that `OPENERS` names for
its kind: ``open(table, place, columns) -> Source``. It lists its inputs in order, and reads one of them at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.config.mixed import MixedSourceTable
    from tokenreel.text import Tokenizer

OPENERS = {
    "files": "tokenreel.build.file_source:open_files",
    "hub": "tokenreel.build.hub_source:open_hub",
    "tokens": "tokenreel.build.token_source:open_tokens",
    "repositories": "tokenreel.build.repository_source:open_repositories",
}
"""Kind of source to ``module:function``; ``repositories`` is files or hub with a table ``group``."""


class SourceInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a source: a file, here or elsewhere; travels to workers as JSON."""

    path: str
    """What receipts call it; the same on every machine."""
    key: str = ""
    """What the source finds it by: a path on this machine, a file of a revision."""
    bytes: int = 0
    sha256: str | None = None
    """None: known when it has been read (`Source.facts`)."""
    stamp: tuple[int, int, int, int] | None = None
    """Of a local file, when it was hashed."""


class InputFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of an input after it was read, wholly or until its reader was closed."""

    bytes: int
    """Bytes read."""
    sha256: str | None = None
    """Of the whole input; None where not all of it was read and nobody published it."""
    whole: bool = True
    position: dict[str, Any] = {}
    """Where reading ended, as the source says it: revision, file, byte, record."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where sources look; travels to workers as JSON."""

    folder: str
    """The recipe's folder: what its paths are relative to."""
    patterns: tuple[str, ...] = ()
    """Patterns of all sources of files: what recorded paths are relative to follows from all of them."""
    cache: str = ""
    """Where temporaries of sources wait while an input is read; empty: the system's folder for them."""
    chunk_bytes: int = 8 << 20
    tokenizer: bytes | None = None
    """The tokenizer's file (None: ``bytes``), which token corpora are proved against."""
    tokenizer_name: str = ""
    eod_id: int = 0
    empty_inputs: str = "error"

    def open_tokenizer(self) -> Tokenizer:
        """Return the build's tokenizer."""
        from tokenreel.text import load_tokenizer, tokenizer_from_bytes

        if self.tokenizer is None:
            return load_tokenizer("bytes")
        return tokenizer_from_bytes(self.tokenizer, name=self.tokenizer_name)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A document that went, and why."""

    record: int
    """Its number in its input."""
    stage: str
    rule: str
    value: str
    """What was found, as text."""
    upstream: str | None = None
    id: bytes | None = None
    """Name of its text as it stood then; None where it has no text any more."""


@dataclass(frozen=True, slots=True, eq=False)
class TextBatch:
    """A run of documents of one input, in order; lists have one entry a document, None stands for a list of Nones."""

    texts: Any
    """``pyarrow.LargeStringArray`` without nulls. With `ids`, as many empty strings."""
    first: int
    """Number of the first record in its input, from 0."""
    upstream: list[str | None] | None = None
    urls: list[str | None] | None = None
    groups: list[str | None] | None = None
    metadata: list[dict[str, Any] | None] | None = None
    columns: dict[str, list[Any]] = field(default_factory=dict)
    """Fields that gates look at, by name: the columns that `open_source` was asked for."""
    ids: list[npt.NDArray[np.uint32]] | None = None
    """Of token corpora: the ids of each document, without boundary tokens, unchanged."""
    numbers: npt.NDArray[np.int64] | None = None
    """Number of each record in its input, where they are not `first`, `first` + 1, ..."""
    lines: Sequence[int] | None = None
    explain: Callable[[], None] | None = None
    """Raises `SourceError` naming the first place that is no UTF-8; None where the texts were checked."""
    dropped: tuple[Dropped, ...] = ()
    """Documents that the source itself left out; they count as seen."""
    blank: int = 0
    """Lines without a record; they do not count as seen."""

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.texts)


class Source(Protocol):
    """Documents from somewhere."""

    name: str

    def inputs(self) -> list[SourceInput]:
        """Return its inputs in order, without reading texts; raises `SourceError` for a source that is not there."""
        ...

    def read(self, one: SourceInput, start: int = 0) -> Iterator[TextBatch]:
        """Yield the documents of an input from record `start` on; closed early where a budget is reached."""
        ...

    def facts(self, one: SourceInput) -> InputFacts:
        """Return what was learned of the input that was read last; raises `SourceError` (SRC012) if it changed meanwhile."""
        ...


def open_source(table: MixedSourceTable, place: Place, columns: Sequence[str] = ()) -> Source:
    """Return the source that a recipe's table describes; `columns` are fields that its batches must have.

    >>> from tokenreel.config.mixed import MixedSourceTable
    >>> open_source(MixedSourceTable(name="a", paths=["a.txt"]), Place(folder=".")).name
    'a'
    """
    kind = "repositories" if table.group is not None else table.kind
    module, function = OPENERS[kind].split(":")
    opened: Source = getattr(import_module(module), function)(table, place, tuple(columns))
    return opened
