"""Commands that only look: inspect, formats, explain, schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenreel.cli import options
from tokenreel.cli.output import print_json, print_line, print_table
from tokenreel.errors import EXIT_DATA, codes, explain


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("inspect")(inspect_command)
    app.command("formats")(formats_command)
    app.command("explain")(explain_command)
    app.command("schema")(schema_command)


def inspect_command(
    path: Annotated[Path, typer.Argument(help="A folder of shards, a built directory, ROOT/SPLIT, or one shard.")],
    *,
    doc: Annotated[
        list[int] | None,
        typer.Option("--doc", help="Show this document, with its text; -1 is the last one; repeatable."),
    ] = None,
    at: Annotated[
        list[int] | None, typer.Option("--at", help="Say where this token of the stream is; repeatable.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Numbers count in this split.")] = None,
    lengths: Annotated[bool, typer.Option("--lengths", help="Show the histogram of lengths, however small.")] = False,
    boundary: options.BoundaryText = None,
    vocab: options.Vocab = None,
    dtype: options.Dtype = None,
    tokenizer: options.TokenizerFile = None,
    json: options.Json = False,
) -> None:
    """Say what a path holds: format, counts, dtype, boundary, length quantiles; or one document with its text.

    Exit status 1 when a shard is not whole; `verify` says more.
    """
    from tokenreel.cli.render import inspection_lines
    from tokenreel.verify import inspect

    seen = inspect(
        path,
        boundary=boundary,
        vocab=vocab,
        dtype=dtype,
        tokenizer=tokenizer,
        split=split,
        documents=doc or (),
        at=at or (),
    )
    if json:
        print_json(seen.as_dict())
    else:
        for line in inspection_lines(seen, lengths=lengths):
            print_line(line)
    if any(finding.severity == "error" for finding in seen.findings):
        raise typer.Exit(EXIT_DATA)


def formats_command(*, json: options.Json = False) -> None:
    """Print the table of formats: what is recognised, read and written."""
    from tokenreel.formats.registry import all_formats

    table = all_formats()
    if json:
        rows = [
            {"name": f.name, "title": f.title, "files": f.files, "reads": f.reads, "writes": f.writes, "notes": f.notes}
            for f in table
        ]
        print_json({"formats": rows})
        return
    print_table(
        ("format", "files", "read", "write", "what"),
        [(f.name, f.files, f.reads, f.writes, f.title) for f in table],
    )
    for form in table:
        print_line(f"{form.name}: {form.notes}")


def explain_command(
    code: Annotated[str | None, typer.Argument(help="A code, as in MEG004; or a family: MEG lists its codes.")] = None,
    *,
    all_codes: Annotated[bool, typer.Option("--list", help="Print every code with its title.")] = False,
    json: options.Json = False,
) -> None:
    """Say what a code means, why it matters and how to mend it."""
    family = (code or "").strip().upper()
    rows = [row for row in codes().values() if all_codes or code is None or row.code[:3] == family]
    if rows:
        if json:
            print_json({"codes": [{"code": row.code, "title": row.title} for row in rows]})
        else:
            print_table(("code", "title"), [(row.code, row.title) for row in rows])
        return
    row = explain(code or "")
    if json:
        print_json({"code": row.code, "title": row.title, "meaning": row.meaning, "why": row.why, "mend": row.mend})
        return
    print_line(f"{row.code}: {row.title}")
    for label, text in (("what it means", row.meaning), ("why it matters", row.why), ("how to mend it", row.mend)):
        if text:
            print_line(f"  {label}: {text}")


def schema_command(
    kind: Annotated[
        str, typer.Argument(help="recipe, mix, run, replay-manifest, replay-sources or replay-mix.")
    ] = "recipe",
    *,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to a file that is not there.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    json: options.Json = False,  # noqa: ARG001 (the schema is JSON either way)
) -> None:
    """Print the JSON Schema of recipes, of run files, or of the files of a replay index."""
    from tokenreel.config.mixed import mixed_schema
    from tokenreel.config.recipe import recipe_schema
    from tokenreel.config.run import run_schema
    from tokenreel.errors import StorageError, UsageError
    from tokenreel.store import dumps_canonical, write_bytes_atomic

    schemas = {"recipe": recipe_schema, "mix": mixed_schema, "run": run_schema}
    if kind.startswith("replay-"):
        from functools import partial

        from tokenreel.replay.metadata import schemas as replay_schemas

        schemas = {f"replay-{name}": partial(dict, table) for name, table in replay_schemas().items()}
    if kind not in schemas:
        raise UsageError(
            "USE003",
            expected="recipe, mix, run, replay-manifest, replay-sources or replay-mix",
            found=kind,
            hint="tokenreel schema recipe",
        )
    schema = schemas[kind]()
    if output is None:
        print_json(schema)
        return
    if not output.parent.is_dir():
        raise StorageError("STO001", path=output.parent, expected="a folder", hint=f"mkdir -p {output.parent}")
    if output.exists() and not force:
        raise UsageError("USE011", path=output, hint="tokenreel schema --force ...")
    write_bytes_atomic(output, dumps_canonical(schema))
