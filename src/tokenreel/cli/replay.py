"""Commands on replay indices: replay build, validate, join, streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tokenreel.cli import options
from tokenreel.cli.output import print_json, print_line, print_table
from tokenreel.cli.progress import Progress

replay_app = typer.Typer(help="Build, check, join and rebuild replay indices.", no_args_is_help=True)

IndexPath = Annotated[str | None, typer.Argument(help="A folder or an address with a replay index.")]
RepoId = Annotated[str | None, typer.Option("--repo-id", help="A dataset repository of the hub.")]
Revision = Annotated[str, typer.Option("--revision", help="Of the repository.")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    replay_app.registered_commands.clear()
    replay_app.command("build")(build_command)
    replay_app.command("validate")(validate_command)
    replay_app.command("join")(join_command)
    replay_app.command("streams")(streams_command)
    app.add_typer(replay_app, name="replay")


def build_command(  # noqa: PLR0913 (one per option)
    source: Annotated[list[Path], typer.Argument(help="A corpus, or files and folders of text.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    buckets: Annotated[
        Path, typer.Option("--buckets", help="Parquet or JSON lines: which bucket each document is in.")
    ],
    ids: Annotated[str | None, typer.Option("--ids", help="What names a document: text, normalised or tokens.")] = None,
    normalise: Annotated[str, typer.Option("--normalise", help="none, nfc, marin or marin-columnar.")] = "none",
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="A tokenizer.json or .model, where ids of a corpus become text.")
    ] = None,
    name: Annotated[str | None, typer.Option("--source", help="The source of all documents.")] = None,
    text: Annotated[str, typer.Option("--text", help="The field of a record that is its text.")] = "text",
    id_field: Annotated[str | None, typer.Option("--id", help="The field of a record that is its id.")] = None,
    source_field: Annotated[str | None, typer.Option("--source-field", help="The field that is its source.")] = None,
    sources: Annotated[Path | None, typer.Option("--sources", help="The sources.json to go with it.")] = None,
    mix: Annotated[Path | None, typer.Option("--mix", help="The mix.json to go with it.")] = None,
    task_documents: Annotated[
        int | None, typer.Option("--task-documents", help="Documents of a task; a shard or file when left out.")
    ] = None,
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Write the index of a corpus or of text.

    It says which documents, in which order, in which bucket, and holds no text.
    """
    from tokenreel.replay.build import summary
    from tokenreel.replay.making import Choices, make_index

    choices = Choices(
        ids=ids, normalise=normalise, tokenizer=tokenizer, source=name, text=text, id_field=id_field,
        source_field=source_field, sources=sources, mix=mix, task_documents=task_documents,
    )  # fmt: skip
    with Progress("index", progress.value, as_json=json) as bar:
        manifest = make_index(source, buckets, out, choices, bar)
    facts = {"path": str(out), **summary(manifest)}
    if json:
        print_json(facts)
    else:
        print_line(
            f"{out}: {facts['documents']:,} documents in {facts['tasks']:,} tasks, {facts['buckets']:,} bucket{'' if facts['buckets'] == 1 else 's'}"
        )


def validate_command(  # noqa: PLR0913 (one per option)
    path: IndexPath = None,
    *,
    repo: RepoId = None,
    revision: Revision = "main",
    level: Annotated[str, typer.Option("--level", help="quick (a sample of files) or full (all).")] = "quick",
    seed: Annotated[int, typer.Option("--seed", help="Which files are sampled.")] = 0,
    online: Annotated[bool, typer.Option("--online", help="Ask the hub for upstream revisions.")] = False,
    duplicates: Annotated[
        bool | None, typer.Option("--duplicates/--no-duplicates", help="Look for ids that stand twice.")
    ] = None,
    workers: options.Workers = None,
    select: Annotated[list[str] | None, typer.Option("--select", help="Only these codes; repeatable.")] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", help="Not these codes; repeatable.")] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="List every check that was made.")] = False,
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Check a replay index, and that its sources are still there.

    Exit status: 0 fine, 1 broken, 4 a check that was asked for could not be made.
    """
    import os

    from tokenreel.errors import UsageError
    from tokenreel.replay.opening import open_place
    from tokenreel.replay.validate import Asked, validate

    if (path is None) == (repo is None):
        raise UsageError("USE003", "an index", expected="a path, or --repo-id", hint="tokenreel replay validate DIR")
    if level not in ("quick", "full"):
        raise UsageError("USE003", "--level", expected="quick or full", found=level, hint="--level full")
    threads = options.checked_workers(workers) or os.cpu_count() or 1
    asked = Asked(
        full=level == "full", seed=seed, online=online or repo is not None, duplicates=duplicates, workers=threads,
        select=tuple(select or ()), ignore=tuple(ignore or ()),
    )  # fmt: skip
    with Progress("validate", progress.value, as_json=json) as bar:
        report = validate(open_place(path, repo, revision), asked, bar)
    if json:
        print_json(report.as_dict())
    else:
        for line in report.lines(verbose=verbose):
            print_line(line)
    raise typer.Exit(report.exit_status)


def join_command(
    path: IndexPath = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Where found documents go; counted only without.")] = None,
    root: Annotated[Path | None, typer.Option("--source-root", help="A folder with the sources' files.")] = None,
    online: Annotated[bool, typer.Option("--online", help="Read sources from the hub.")] = False,
    transforms: Annotated[Path | None, typer.Option("--transforms", help="A checkout with the sources' code.")] = None,
    commit: Annotated[str | None, typer.Option("--commit", help="What the checkout must stand at.")] = None,
    whitespace: Annotated[
        str, typer.Option("--whitespace", help="What the sources' pipeline took for whitespace: python or columnar.")
    ] = "python",
    temporary: Annotated[Path | None, typer.Option("--temporary", help="Where texts wait on disk.")] = None,
    repo: RepoId = None,
    revision: Revision = "main",
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Find the documents of an index in its sources.

    They are written in the order of the store.

    Exit status: 0 all were found, 4 some were not.
    """
    from tokenreel.errors import EXIT_INCOMPLETE, EXIT_OK
    from tokenreel.replay import metadata
    from tokenreel.replay.join import JoinPlan, join
    from tokenreel.replay.opening import open_place

    store = open_place(path, repo, revision).store
    plan = JoinPlan(
        root=root, online=online, transforms=transforms, commit=commit, folder=temporary, whitespace=whitespace
    )
    with Progress("join", progress.value, as_json=json) as bar:
        joined = join(store, metadata.read_manifest(store), metadata.read_sources(store), plan, out, bar)
    if json:
        print_json(joined.as_dict())
    else:
        _print_joined(joined.as_dict())
    raise typer.Exit(EXIT_OK if joined.complete else EXIT_INCOMPLETE)


def _print_joined(facts: dict[str, Any]) -> None:
    columns = ("source", "state", "wanted", "hits", "elsewhere", "missing", "extra", "repeated", "dropped")
    print_table(columns, [[name, *(row[key] for key in columns[1:])] for name, row in facts["sources"].items()])
    for name, row in facts["sources"].items():
        if row.get("note"):
            print_line(f"  {name}: {row['note']}")
    print_line(f"{facts['found']:,} of {facts['documents']:,} documents found")


def streams_command(
    joined: Annotated[Path, typer.Argument(help="What `replay join --out` wrote.")],
    *,
    index: Annotated[Path, typer.Option("--index", help="The folder of the replay index.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    tokenizer: Annotated[Path, typer.Option("--tokenizer", help="A tokenizer.json or .model.")],
    to: Annotated[str, typer.Option("--to", help="The format to write.")] = "megatron-v1",
    dtype: Annotated[str | None, typer.Option("--dtype", help="Of the ids; what they need when left out.")] = None,
    bos: Annotated[str | None, typer.Option("--bos", help="The token that begins documents.")] = None,
    eos: Annotated[str | None, typer.Option("--eos", help="The token that ends documents.")] = None,
    progress: options.ProgressKind = options.Show.auto,
    json: options.Json = False,
) -> None:
    """Rebuild the streams of an index, and a run file over them.

    Exit status: 0 complete, 4 some documents were not there.
    """
    from tokenreel.errors import EXIT_INCOMPLETE, EXIT_OK
    from tokenreel.replay import metadata
    from tokenreel.replay.streams import StreamPlan, summary, write_streams
    from tokenreel.replay.tokens import tokeniser
    from tokenreel.store import LocalStore
    from tokenreel.text import load_tokenizer

    store = LocalStore(index)
    mix = metadata.read_mix(store)
    tok = tokeniser(load_tokenizer(str(tokenizer)), mix.tokens, bos, eos)
    with Progress("streams", progress.value, as_json=json) as bar:
        plan = StreamPlan(format=to, dtype=dtype)
        manifest, sources = metadata.read_manifest(store), metadata.read_sources(store)
        streams = write_streams(joined, out, manifest, mix, tok, plan, bar, sources)
    facts = summary(streams)
    if json:
        print_json({**facts, "path": str(out), "buckets": [stream.as_dict() for stream in streams]})
    else:
        columns = ("name", "documents", "expected", "tokens")
        print_table(columns, [[stream.as_dict()[name] for name in columns] for stream in streams])
        print_line(f"{out}: {facts['documents']:,} of {facts['expected']:,} documents, {facts['tokens']:,} tokens")
    raise typer.Exit(EXIT_OK if facts["documents"] == facts["expected"] else EXIT_INCOMPLETE)
