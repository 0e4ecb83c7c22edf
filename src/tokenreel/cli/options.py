"""Options that several commands share, spelled once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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
DType = Annotated[str | None, typer.Option("--dtype", help="The stored integer type, where files do not say it.")]
Vocab = Annotated[int | None, typer.Option("--vocab", help="Number of ids: every stored id must be below it.")]
TokenizerFile = Annotated[Path | None, typer.Option("--tokenizer", help="A tokenizer.json or .model, to show text.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 on warnings too.")]
Accept = Annotated[list[str] | None, typer.Option("--accept", help="Overrule a refusal, by its code; repeatable.")]
