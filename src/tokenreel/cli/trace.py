"""Commands on what a run read: trace, and ledger diff, exposure, export, to-index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenreel.cli import options
from tokenreel.cli.output import note, print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.feed.placement import Placement
    from tokenreel.replay.trace import Traced

ledger_app = typer.Typer(help="Compare ledgers, and say what they exposed.", no_args_is_help=True)

RunPath = Annotated[Path, typer.Argument(help="A run file, or a ledger with --run.")]
OfRun = Annotated[Path | None, typer.Option("--run", help="The run file that a ledger belongs to.")]
LedgerPath = Annotated[Path, typer.Argument(help="A ledger.")]
CacheFolder = Annotated[Path | None, typer.Option("--cache", help="Where prepared permutations are kept.")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("trace")(trace_command)
    ledger_app.registered_commands.clear()
    ledger_app.command("diff")(diff_command)
    ledger_app.command("exposure")(exposure_command)
    ledger_app.command("export")(export_command)
    ledger_app.command("to-index")(to_index_command)
    app.add_typer(ledger_app, name="ledger")


def _traced(
    path: Path,
    run: Path | None,
    ledger: Path | None,
    cache: Path | None,
    accept: Sequence[str] | None,
    segment: int | None = None,
) -> Traced:
    from tokenreel.config.run import load_run
    from tokenreel.errors import UsageError
    from tokenreel.replay.ledgers import is_ledger, read_ledger
    from tokenreel.replay.trace import Traced

    if is_ledger(path):
        if run is None:
            hint = f"tokenreel trace {path} --run RUN"
            raise UsageError("USE003", "a ledger alone", path=path, expected="--run RUN", found="none", hint=hint)
        path, ledger = run, path
    lines = None
    if ledger is not None:
        lines = {line.step: line for line in read_ledger(ledger).current}
    return Traced(load_run(path), path.parent, cache, tuple(accept or ()), lines, segment=segment)


def trace_command(  # noqa: PLR0913 (one per option)
    path: RunPath,
    *,
    step: Annotated[int | None, typer.Option("--step", help="What this step saw.")] = None,
    doc: Annotated[
        list[str] | None, typer.Option("--doc", help="When a document was seen: #number, or an id; repeatable.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option("--steps", help="A:B: what is unusual there; with --doc: a range.")
    ] = None,
    segment: Annotated[
        int | None, typer.Option("--segment", help="Which segment, where branches of a lineage have the same step.")
    ] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="One rank's part of the step.")] = None,
    world: Annotated[int, typer.Option("--world", help="How many ranks there are.")] = 1,
    placement: Annotated[
        str, typer.Option("--placement", help="How ranks share a batch: contiguous, strided or megatron.")
    ] = "contiguous",
    micro_batch: Annotated[int | None, typer.Option("--micro-batch", help="Of the placement megatron.")] = None,
    corpus: Annotated[str | None, typer.Option("--corpus", help="The corpus of the document.")] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", help="Samples to search, where the run has no end.")
    ] = None,
    run: OfRun = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Of the run: answers are about what happened.")
    ] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Show text.")] = False,
    tokenizer: options.TokenizerFile = None,
    cache: CacheFolder = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Say what a step saw, when a document was seen, or what is unusual between two steps."""
    from tokenreel.errors import UsageError

    stretch = None if steps is None else _stretch(steps)
    if (step is None) == (doc is None and stretch is None):
        raise UsageError(
            "USE003", expected="--step N, --doc ID or --steps A:B", hint=f"tokenreel trace {path} --step 0"
        )
    traced = _traced(path, run, ledger, cache, accept, segment)
    if step is not None:
        from tokenreel.feed.placement import placement as placed

        share = (rank, world, placed(placement, micro_batch))
        facts = _step(traced, step, share, tokenizer, decode=decode)
    elif doc is not None:
        from tokenreel.replay.trace import trace_document

        facts = trace_document(traced, doc, corpus, stretch, samples)
    else:
        from tokenreel.replay.unusual import unusual

        facts = unusual(traced, *(stretch or (0, 1)))
    for warning in traced.warnings:
        note(f"warning: {warning}")
    if json:
        print_json(facts)
    elif step is not None:
        _print_step(facts)
    elif doc is not None:
        _print_hits(facts)
    else:
        _print_unusual(facts)


def _stretch(text: str) -> tuple[int, int]:
    from tokenreel.errors import UsageError

    first, colon, end = text.partition(":")
    if not (colon and first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise UsageError("USE003", "--steps", expected="A:B with A below B", found=text, hint="--steps 100:200")
    return int(first), int(end)


def _step(
    traced: Traced, step: int, share: tuple[int | None, int, Placement], tokenizer: Path | None, *, decode: bool
) -> dict[str, Any]:
    from tokenreel.index.showing import tokenizer_of
    from tokenreel.replay.trace import trace_step

    rank, world, placed = share
    if not decode:
        return trace_step(traced, step, rank=rank, world=world, placed=placed)
    number, *_ = traced.samples_of(step)
    made = traced.made(number)
    return trace_step(traced, step, rank=rank, world=world, placed=placed, decode=tokenizer_of(made, tokenizer).decode)


def _print_level(facts: dict[str, Any]) -> None:
    reasons = f" ({'; '.join(facts['reasons'])})" if facts["reasons"] else ""
    print_line(f"{facts['says']}; {facts['level']}{reasons}")


def _print_step(facts: dict[str, Any]) -> None:
    print_line(f"step {facts['step']:,}: samples {facts['first_sample']:,} .. {facts['end_sample'] - 1:,}")
    _print_level(facts)
    rows = [
        (
            row["sample"],
            row["component"],
            e["corpus"],
            "padding" if "PAD" in e["flags"] else e["document"] if e["document"] >= 0 else None,
            e["start"] if e["start"] >= 0 else None,
            e["length"],
            e.get("source"),
            e.get("id"),
        )
        for row in facts["samples"]
        for e in row["extents"]
    ]
    print_table(("sample", "component", "corpus", "document", "start", "length", "source", "id"), rows)
    for row in facts["samples"]:
        for text in row.get("text", ()):
            print_line(f"  | {text!r}")


def _print_hits(facts: dict[str, Any]) -> None:
    columns = ("segment", "step", "sample", "extent", "corpus", "document", "begin", "length")
    print_table(columns, [[hit[name] for name in columns] for hit in facts["hits"]])
    print_line(f"{len(facts['hits']):,} places; {facts['says']}")
    for level in facts["levels"]:
        reasons = f" ({'; '.join(level['reasons'])})" if level["reasons"] else ""
        print_line(f"  segment {level['segment']}: {level['level']}{reasons}")


def _print_unusual(facts: dict[str, Any]) -> None:
    print_line(f"steps {facts['first_step']:,} .. {facts['end_step'] - 1:,}: {facts['samples']:,} samples")
    _print_level(facts)
    print_table(
        ("source", "share", "elsewhere", "ratio"),
        [(row["source"], row["share"], row["elsewhere"], row["ratio"]) for row in facts["sources"]],
    )
    for name in ("repeats", "monotonous", "rare_ids"):
        rows = facts[name]
        print_line(f"{name.replace('_', ' ')}: {len(rows) or 'none'}")
        if rows:
            print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])


def diff_command(
    one: LedgerPath,
    other: Annotated[Path, typer.Argument(help="Another ledger.")],
    *,
    json: options.Json = False,
) -> None:
    """Compare two ledgers: the first step at which they differ.

    Exit status: 0 the same, 1 a difference.
    """
    from tokenreel.replay.ledgers import diff, read_ledger

    found = diff(read_ledger(one), read_ledger(other))
    if json:
        print_json(found.as_dict())
    else:
        print_line(f"{found.same_steps:,} steps are the same; {found.lengths[0]:,} and {found.lengths[1]:,} steps")
        if found.one is not None and found.other is not None:
            for name, line in (("one", found.one), ("other", found.other)):
                print_line(
                    f"  {name}: step {line.step:,}, samples {line.first:,} .. {line.first + line.count - 1:,}, order {line.fingerprint[:16]}"
                )
        print_line("equal" if found.equal else "different")
    raise typer.Exit(0 if found.equal else 1)


def exposure_command(
    ledger: LedgerPath,
    *,
    run: Annotated[Path, typer.Option("--run", help="The run file that the ledger belongs to.")],
    cache: CacheFolder = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Say how often the documents of each corpus were read."""
    from tokenreel.replay.ledgers import exposure, read_ledger

    traced = _traced(ledger, run, None, cache, accept)
    facts = exposure(traced, read_ledger(ledger)).as_dict()
    if json:
        print_json({"corpora": facts})
        return
    for name, row in facts.items():
        _print_exposure(name, row)


def _print_exposure(name: str, row: Any) -> None:
    print_line(
        f"{name}: {row['documents_read']:,} of {row['documents']:,} documents read in part or whole, {row['tokens']:,} tokens, "
        f"{row['mean_epochs']:.3f} epochs"
    )
    print_table(("times read whole", "documents"), [(int(k), n) for k, n in row["histogram"].items()])


def export_command(
    ledger: LedgerPath,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The Parquet file to write.")],
    json: options.Json = False,
) -> None:
    """Write a ledger as Parquet, superseded lines marked."""
    from tokenreel.replay.ledgers import export, read_ledger

    steps = read_ledger(ledger)
    rows = export(steps, output)
    facts = {"path": str(output), "lines": rows, "superseded": len(steps.superseded)}
    if json:
        print_json(facts)
    else:
        print_line(f"{output}: {rows:,} lines, {facts['superseded']:,} superseded")


def to_index_command(
    ledger: LedgerPath,
    *,
    run: Annotated[Path, typer.Option("--run", help="The run file that the ledger belongs to.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    buckets: Annotated[
        Path | None, typer.Option("--buckets", help="Buckets by document_id; bucket 0 for all when left out.")
    ] = None,
    task_documents: Annotated[int, typer.Option("--task-documents", help="Documents of a task.")] = 1_000_000,
    cache: CacheFolder = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Make a replay index of what a ledger says was read.

    Documents stand in the order in which they were first read.
    """
    from tokenreel.replay.build import summary
    from tokenreel.replay.making import index_of_ledger

    traced = _traced(ledger, run, None, cache, accept)
    facts = {"path": str(out), **summary(index_of_ledger(traced, ledger, out, buckets, task_documents))}
    if json:
        print_json(facts)
    else:
        print_line(f"{out}: {facts['documents']:,} documents in {facts['tasks']:,} tasks")
