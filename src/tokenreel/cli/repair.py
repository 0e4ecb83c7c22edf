"""The command that mends: repair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenreel.cli import options
from tokenreel.cli.output import print_json, print_line
from tokenreel.cli.progress import Progress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("repair")(repair_command)


def repair_command(
    path: Annotated[Path, typer.Argument(help="A folder of shards, or one shard; it is never changed.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="A new folder.")],
    boundary: options.BoundaryText = None,
    dtype: options.Dtype = None,
    vocab: options.Vocab = None,
    as_format: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="megatron-v1: a pair that lost its .idx; olmo: a lost .csv.gz; hobbylm-v1: tables for llm.c shards; "
            "litdata, mds, levanter: a lost index.",
        ),
    ] = None,
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Save what can be saved: missing or wrong tables made anew, shards cut to whole documents.

    Exit status 1 where anything was changed or lost, with a report of what; 0 where there was nothing to repair.
    """
    from tokenreel.convert import repair

    with Progress("repair", progress.value, as_json=json) as bar:
        report = repair(path, out, boundary=boundary, dtype=dtype, vocab=vocab, as_format=as_format, progress=bar)
    if json:
        print_json(report.as_dict())
    else:
        for line in report.lines():
            print_line(line)
    raise typer.Exit(report.exit_status)
