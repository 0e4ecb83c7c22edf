"""Records: documents as every reader hands them on, a chunk of bounded size at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tokenreel.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class SourceShape(msgspec.Struct, frozen=True, kw_only=True):
    """How the records of a source are read; travels to workers as JSON."""

    name: str
    format: str = "auto"
    """``auto``, ``jsonl``, ``parquet`` or ``text``."""
    text: str = "text"
    id: str | None = None
    source_field: str | None = None
    """The field that holds each record's source; None: the constant below."""
    source: str = ""
    separator: str | None = None
    extra: tuple[str, ...] = ()
    """More fields that are handed on, as values of JSON."""

    @property
    def constant(self) -> str:
        """The source of every document where no field says it."""
        return self.source or self.name


@dataclass(frozen=True, slots=True)
class Records:
    """A run of documents of one input, in order."""

    texts: Any
    """``pyarrow.LargeStringArray``, no nulls; valid UTF-8 where `explain` is None."""
    first: int
    """Number of the first record among the records of its input, from 0."""
    ids: list[str | None] | None = None
    """Upstream ids, one a record, where the source names a field for them."""
    sources: list[str] | None = None
    """Sources, one a record, where a field says them."""
    lines: Sequence[int] | None = field(default=None)
    """Line of each record, from 1, where the input has lines."""
    blank: int = 0
    """Lines without a record that were passed over."""
    explain: Callable[[], None] | None = None
    """Where UTF-8 was not checked yet: raises `SourceError` naming the first place that is not. The engine's side
    checks every text anyway; this is called when it finds one."""
    columns: dict[str, list[Any]] = field(default_factory=dict)
    """The shape's extra fields by name, one value a record; None where a record lacks it."""

    def check(self) -> None:
        """Raise `SourceError` (SRC001) unless all texts are valid UTF-8."""
        if self.explain is None:
            return
        try:
            self.texts.validate(full=True)
        except ValueError:  # ArrowInvalid is one
            self.explain()
            raise

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.texts)


def upstream_id(value: object, *, path: object, line: int | None = None, record: int | None = None) -> str:
    """Return an id or a source as a string; raises `SourceError` (SRC006) for neither a string nor an integer."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    found = "null" if value is None else type(value).__name__
    raise SourceError(
        "SRC006",
        "an id or a source",
        path=path,
        line=line,
        document=record,
        expected="a string or an integer",
        found=found,
    )
