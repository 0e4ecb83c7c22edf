"""Commands that make something: demo, build, adopt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenreel.cli import options
from tokenreel.cli.output import print_json, print_line
from tokenreel.cli.progress import Progress


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("demo")(demo_command)
    app.command("build")(build_command)
    app.command("adopt")(adopt_command)


def demo_command(
    folder: Annotated[Path | None, typer.Argument(help="Where to work; a temporary folder when left out.")] = None,
    *,
    seed: Annotated[int, typer.Option("--seed", help="Chooses the byte that is flipped.")] = 0,
    workers: options.Workers = None,
    json: options.Json = False,
) -> None:
    """Play the whole life of a corpus, offline: train, build, verify, look, break, catch, restore."""
    import tempfile

    from tokenreel.demo import run_demo

    say = (lambda _: None) if json else print_line
    options.checked_workers(workers)
    if folder is not None:
        facts = run_demo(folder, say, seed=seed, workers=workers)
    else:
        with tempfile.TemporaryDirectory(prefix="tokenreel-demo-") as temporary:
            facts = run_demo(Path(temporary), say, seed=seed, workers=workers)
            say(f"\n{temporary} is deleted now; to keep it: tokenreel demo DIR")
    if json:
        print_json({"acts": facts})


def build_command(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file; its paths are relative to it.")],
    *,
    out: Annotated[Path | None, typer.Option("--out", help="The output folder, where the recipe names none.")] = None,
    workers: options.Workers = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: split.modulo=100; repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, say what would be done, write nothing.")
    ] = False,
    built_at: Annotated[
        str | None, typer.Option("--built-at", help="A date for the manifest; none is taken from the clock.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Say what became of a document: its id, or INPUT#RECORD.")
    ] = None,
    megatron_legacy_dtype: Annotated[
        bool, typer.Option("--megatron-legacy-dtype", help="Megatron's rule: uint16 only if vocab_size < 65500.")
    ] = False,
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Build a corpus from text. Killed at any moment and run again, it ends with the same bytes."""
    from tokenreel.build import build
    from tokenreel.build.routes import explain_in

    options.checked_workers(workers)
    options.checked_date(built_at)
    overrides = list(override or [])
    if megatron_legacy_dtype:
        overrides.append("output.megatron_legacy_dtype=true")
    if explain is not None:
        fates = explain_in(recipe, explain, out, overrides)
        if json:
            print_json({"id": explain, "fates": [one.as_dict() for one in fates]})
            return
        for fate in fates:
            print_line(fate.line())
        return
    with Progress("build", progress.value, as_json=json) as bar:
        report = build(
            recipe, out=out, workers=workers, overrides=overrides, dry_run=dry_run, built_at=built_at, progress=bar
        )
    if json:
        print_json(report.as_dict())
        return
    for line in report.lines():
        print_line(line)


def adopt_command(
    path: Annotated[Path, typer.Argument(help="A folder of shards that someone else made.")],
    *,
    boundary: options.BoundaryText = None,
    vocab: options.Vocab = None,
    dtype: options.Dtype = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="Lets --boundary name tokens: suffix='<|endoftext|>'.")
    ] = None,
    accept: options.Accept = None,
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Check what bytes cannot say, then write it once, with hashes and identity, into tokenreel.json beside the data."""
    from tokenreel.convert.adopt import adopt

    with Progress("adopt", progress.value, as_json=json) as bar:
        report = adopt(
            path, boundary=boundary, vocab=vocab, dtype=dtype, tokenizer=tokenizer, accept=accept or (), progress=bar
        )
    if json:
        print_json(report.as_dict())
        return
    for line in report.lines():
        print_line(line)
