"""Options that several commands share, spelled once."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tokenreel.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]


class Show(StrEnum):
    """How progress is shown."""

    auto = "auto"
    json = "json"
    none = "none"


ProgressKind = Annotated[
    Show, typer.Option("--progress", help="A bar on a terminal, lines of JSON on stderr, or nothing.")
]
BoundaryText = Annotated[
    str | None, typer.Option("--boundary", help="How documents are delimited: prefix=ID[+ID...],suffix=ID[+ID...].")
]
Vocab = Annotated[int | None, typer.Option("--vocab", help="Number of ids: every stored id must be below it.")]
Dtype = Annotated[
    str | None, typer.Option("--dtype", help="The integer type of files without a header: uint16 or uint32.")
]
TokenizerFile = Annotated[Path | None, typer.Option("--tokenizer", help="A tokenizer.json or .model, to show text.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 on warnings too.")]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Processes at work, 1 or more; all cores when left out.")
]
Accept = Annotated[list[str] | None, typer.Option("--accept", help="Overrule a refusal, by its code; repeatable.")]


def boundary_or_none(text: str | None) -> str | None:
    """Return a boundary as it is spelled; ``none`` is one without ids.

    >>> boundary_or_none("none"), boundary_or_none("suffix=2")
    ('', 'suffix=2')
    """
    return "" if text == "none" else text


def settings(words: list[str] | None) -> dict[str, object]:
    """Return ``KEY=VALUE`` words as a mapping, numbers as numbers; raises `UsageError` (USE003) for one that is none.

    >>> settings(["vocab=50304", "compression=zstd"])
    {'vocab': 50304, 'compression': 'zstd'}
    """
    out: dict[str, object] = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not key or not equals or key in out:
            raise UsageError(
                "USE003", "--set", expected="KEY=VALUE, each key once", found=word, hint="--set vocab=50304"
            )
        out[key] = int(value) if value.isascii() and value.isdigit() else value
    return out


def checked_workers(workers: int | None) -> int | None:
    """Return `workers`; raises `UsageError` (USE003) below 1."""
    if workers is not None and workers < 1:
        raise UsageError("USE003", "--workers", expected="1 or more", found=workers, hint="--workers 2")
    return workers


def checked_date(text: str | None) -> str | None:
    """Return a date or time of ISO 8601 as it is spelled; raises `UsageError` (USE003) for anything else.

    >>> checked_date("2026-11-30"), checked_date("2026-11-30T12:00:00Z")
    ('2026-11-30', '2026-11-30T12:00:00Z')
    """
    if text is not None:
        try:
            datetime.fromisoformat(text)
        except ValueError:
            expected = "a date, as 2026-11-30 or 2026-11-30T12:00:00Z"
            raise UsageError("USE003", "--built-at", expected=expected, found=text, hint="date -u +%F") from None
    return text
