"""Commands that turn corpora into others: convert, merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenreel.cli import options
from tokenreel.cli.output import print_json, print_line
from tokenreel.cli.progress import Progress


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("convert")(convert_command)
    app.command("merge")(merge_command)


_FORMAT = typer.Option("--to", help="The target's format, a name of `tokenreel formats`: megatron-v1, llmc, mds, ...")
_TO_BOUNDARY = typer.Option(
    "--to-boundary", help="The target's boundary; the source's when left out. none takes it off."
)
_FROM_DTYPE = typer.Option("--from-dtype", help="The source's integer type, where it has no header.")
_NO_PROOF = typer.Option("--no-proof", help="Do not compare the identities of source and target.")
_SET = typer.Option("--set", help="What only one format knows: vocab=50304; repeatable.")


def convert_command(  # noqa: PLR0913 (one per option)
    source: Annotated[Path, typer.Argument(help="A folder of shards, ROOT/SPLIT, or one shard.")],
    destination: Annotated[Path, typer.Argument(help="A new folder.")],
    *,
    to: Annotated[str, _FORMAT],
    tokens_per_shard: Annotated[
        int | None, typer.Option("--tokens-per-shard", help="End a shard behind the document that reaches this many.")
    ] = None,
    docs_per_shard: Annotated[
        int | None, typer.Option("--docs-per-shard", help="End a shard behind this many documents.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="The target's integer type, and that of a source without a header.")
    ] = None,
    from_dtype: Annotated[str | None, _FROM_DTYPE] = None,
    boundary: options.BoundaryText = None,
    to_boundary: Annotated[str | None, _TO_BOUNDARY] = None,
    vocab: options.Vocab = None,
    workers: options.Workers = None,
    no_proof: Annotated[bool, _NO_PROOF] = False,
    accept: options.Accept = None,
    settings: Annotated[list[str] | None, _SET] = None,
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Write a corpus in another format, and prove that it holds the same documents.

    Run again with the same arguments it goes on: finished shards are not written again. Exit status 1 where exceptions
    were lost (documents without their boundary) that were not accepted.
    """
    from tokenreel.convert import convert

    options.checked_workers(workers)
    with Progress("convert", progress.value, as_json=json) as bar:
        report = convert(
            source,
            destination,
            to=to,
            tokens_per_shard=tokens_per_shard,
            docs_per_shard=docs_per_shard,
            dtype=dtype,
            boundary=boundary,
            to_boundary=options.boundary_or_none(to_boundary),
            vocab=vocab,
            from_dtype=from_dtype,
            workers=workers,
            proof=not no_proof,
            accept=accept or (),
            options=options.settings(settings),
            progress=bar,
        )
    if json:
        print_json(report.as_dict())
    else:
        for line in report.lines():
            print_line(line)
    raise typer.Exit(report.exit_status)


def merge_command(  # noqa: PLR0913 (one per option)
    paths: Annotated[
        list[Path],
        typer.Argument(help="SRC... DST: sources in order, then a new folder; without --to, DST.bin and DST.idx."),
    ],
    *,
    to: Annotated[str | None, _FORMAT] = None,
    tokens_per_shard: Annotated[
        int | None, typer.Option("--tokens-per-shard", help="End a shard behind the document that reaches this many.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="The result's integer type; needed where the sources differ.")
    ] = None,
    from_dtype: Annotated[str | None, _FROM_DTYPE] = None,
    boundary: options.BoundaryText = None,
    to_boundary: Annotated[str | None, _TO_BOUNDARY] = None,
    workers: options.Workers = None,
    no_proof: Annotated[bool, _NO_PROOF] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a pair that exists; only without --to.")] = False,
    accept: options.Accept = None,
    settings: Annotated[list[str] | None, _SET] = None,
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Merge corpora into one: Megatron pairs into one pair, or, with --to, corpora of any format into one shard.

    With --tokens-per-shard the result has several shards.
    """
    from tokenreel.convert import merge
    from tokenreel.errors import UsageError

    if len(paths) < 2:
        raise UsageError("USE003", expected="SRC... DST", found=" ".join(map(str, paths)), hint="tokenreel merge a b c")
    options.checked_workers(workers)
    with Progress("merge", progress.value, as_json=json) as bar:
        merged = merge(
            paths[:-1],
            paths[-1],
            to=to,
            tokens_per_shard=tokens_per_shard,
            dtype=dtype,
            from_dtype=from_dtype,
            boundary=boundary,
            to_boundary=options.boundary_or_none(to_boundary),
            workers=workers,
            proof=not no_proof,
            force=force,
            accept=accept or (),
            options=options.settings(settings),
            progress=bar,
        )
    if json:
        print_json(merged.as_dict())
    else:
        for line in merged.lines():
            print_line(line)
    raise typer.Exit(merged.exit_status)
