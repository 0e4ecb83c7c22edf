"""Commands that check: verify."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tokenreel.cli import options
from tokenreel.cli.output import print_json, print_line
from tokenreel.cli.progress import Progress


class Form(StrEnum):
    """How the report is printed."""

    text = "text"
    json = "json"
    github = "github"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("verify")(verify_command)


def verify_command(  # noqa: PLR0913 (one per option)
    path: Annotated[Path, typer.Argument(help="A built directory, a folder of shards, or one shard.")],
    *,
    level: Annotated[
        str, typer.Option("--level", help="quick (headers, tables, samples) or full (every byte once).")
    ] = "quick",
    sample: Annotated[
        int | None, typer.Option("--sample", help="Documents sampled at level quick; 1,000 when left out.")
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", help="Only these codes or families; repeatable.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", help="Not these codes or families; repeatable.")
    ] = None,
    boundary: options.BoundaryText = None,
    vocab: options.Vocab = None,
    dtype: options.Dtype = None,
    tokenizer: options.TokenizerFile = None,
    source: Annotated[
        Path | None, typer.Option("--source", help="The recipe's folder: splits are re-derived from the source.")
    ] = None,
    split_ids: Annotated[
        Path | None, typer.Option("--split-ids", help="With --source: the list of ids that a split by id was made by.")
    ] = None,
    accept: options.Accept = None,
    strict: options.Strict = False,
    since: Annotated[
        Path | None, typer.Option("--since", help="A receipt of an earlier run: what did not change is not read again.")
    ] = None,
    receipt: Annotated[
        Path | None, typer.Option("--receipt", help="Write a receipt of this run, for --since; level full.")
    ] = None,
    form: Annotated[
        Form, typer.Option("--format", help="For people, as JSON, or as GitHub's annotations.")
    ] = Form.text,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="List every check that was made.")] = False,
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Check a corpus and say what was proved, what is wrong, and what was not checked.

    Exit status: 0 fine, 1 broken, 4 incomplete.
    """
    from tokenreel.build.rereading import source_reader
    from tokenreel.errors import ManifestError
    from tokenreel.verify import verify

    reader = None
    if source is not None:
        with contextlib.suppress(ManifestError):  # verify says what is wrong with run_config.json
            reader = source_reader(path, source)
    with Progress("verify", progress.value, as_json=json) as bar:
        report = verify(
            path,
            level=level,
            sample=sample,
            select=select or (),
            ignore=ignore or (),
            boundary=boundary,
            vocab=vocab,
            dtype=dtype,
            tokenizer=tokenizer,
            source=source,
            source_reader=reader,
            split_ids=split_ids,
            accept=accept or (),
            strict=strict,
            progress=bar,
            since=since,
            receipt=receipt,
        )
    if json or form is Form.json:
        print_json(report.as_dict())
    elif form is Form.github:
        for line in report.annotations():
            print_line(line)
        print_line(report.verdict())
    else:
        for line in report.lines(verbose=verbose):
            print_line(line)
    raise typer.Exit(report.exit_status)
