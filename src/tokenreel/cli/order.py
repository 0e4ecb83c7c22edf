"""Commands on orders: order show, export, compare, find."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenreel.cli import options
from tokenreel.cli.output import note, print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.config.run import Segment
    from tokenreel.index.assemble import Assembled

RunPath = Annotated[Path, typer.Argument(help="A run file; paths in it are relative to it.")]
Override = Annotated[list[str] | None, typer.Option("--set", help="Override a key: order.samples=100; repeatable.")]
SegmentNumber = Annotated[int | None, typer.Option("--segment", help="Which segment of a lineage, from 0.")]
Step = Annotated[int | None, typer.Option("--step", help="A step: its segment, and the samples it consumes.")]
CacheFolder = Annotated[Path | None, typer.Option("--cache", help="Where prepared permutations are kept.")]
SHOWN_IDS = 16

order_app = typer.Typer(help="Look at orders, export, compare and search them.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    order_app.registered_commands.clear()
    order_app.command("show")(show_command)
    order_app.command("export")(export_command)
    order_app.command("compare")(compare_command)
    order_app.command("find")(find_command)
    app.add_typer(order_app, name="order")


def load_segments(run: Path, overrides: Sequence[str] | None) -> tuple[Segment, ...]:
    """Return a run file's segments."""
    from tokenreel.config.run import load_run

    return load_run(run, overrides or ())


def make(run: Path, segment: Segment, cache: Path | None, accept: Sequence[str] | None) -> Assembled:
    """Return a segment's order, prepared; what could not be read or kept is said on stderr."""
    from tokenreel.index.assemble import assemble
    from tokenreel.index.ready import make_ready

    made, warnings = make_ready(
        segment.run, assemble(segment.run, run.parent, accept=accept or (), cache=cache), run.parent, cache
    )
    for warning in warnings:
        note(f"warning: {warning}")
    if segment.record is not None and segment.evidence == "checkpoint":
        from tokenreel.feed.going_on import go_on
        from tokenreel.feed.state import parse_state, read_text

        place = run.parent / segment.record
        go_on(parse_state(read_text(place), place), made.order, made.corpora)
    return made


def show_command(
    run: RunPath,
    *,
    sample: Annotated[int | None, typer.Option("--sample", help="One sample: its extents and ids.")] = None,
    step: Step = None,
    segment: SegmentNumber = None,
    decode: Annotated[bool, typer.Option("--decode", help="The sample as text.")] = False,
    tokenizer: options.TokenizerFile = None,
    quality: Annotated[bool, typer.Option("--quality", help="How well the order is shuffled.")] = False,
    quality_samples: Annotated[int, typer.Option("--quality-samples", help="Samples that --quality looks at.")] = 65536,
    cache: CacheFolder = None,
    override: Override = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Show a run's order, one of its samples, or those of a step."""
    from tokenreel.index.segments import chosen
    from tokenreel.index.showing import order_facts, quality_facts, sample_facts, step_facts

    segments = load_segments(run, override)
    if sample is None and step is None and segment is None:
        numbered = list(enumerate(segments))
    else:
        numbered = [chosen(segments, segment=segment, step=step)]
    shown = []
    for number, one in numbered:
        if sample is not None or step is not None or quality:
            made = make(run, one, cache, accept)
        else:
            from tokenreel.index.assemble import assemble

            made = assemble(one.run, run.parent, accept=accept or ())
        facts = order_facts(number, one, made)
        if sample is not None:
            facts["sample"] = sample_facts(made, sample, tokenizer if decode else None, decode=decode)
        elif step is not None:
            facts["step"] = step_facts(one, made, step)
        if quality:
            facts["quality"] = quality_facts(one, made, quality_samples)
        shown.append(facts)
    if json:
        print_json({"segments": shown})
        return
    for facts in shown:
        _print_order(facts, alone=len(segments) == 1)


def _print_order(facts: dict[str, Any], *, alone: bool) -> None:
    if not alone:
        last = "" if facts["last_step"] is None else f" .. {facts['last_step']:,}"
        said = f": {facts['source']}" if facts["source"] else ""
        print_line(f"segment {facts['segment']}, steps {facts['first_step']:,}{last}{said}")
        if facts["doubt"]:
            print_line(f"  approximate: {facts['doubt']}")
    for line in facts["tree"]:
        print_line(line)
    if facts["fingerprint"]:
        print_line(f"fingerprint {facts['fingerprint']}")
    for corpus in facts["corpora"]:
        print_line(
            f"  {corpus['name']}: {corpus['units']:,} units, {corpus['tokens']:,} tokens, {corpus['key']} {corpus['digest'][:16]}"
        )
    if "sample" in facts:
        _print_sample(facts["sample"])
    if "step" in facts:
        step = facts["step"]
        print_line(f"step {step['number']:,}: samples {step['first']:,} .. {step['end'] - 1:,}")
        rows = [
            (r["sample"], r["component"], ", ".join(r["corpora"]), r["extents"], r["tokens"]) for r in step["samples"]
        ]
        print_table(("sample", "component", "corpora", "extents", "tokens"), rows)
    for name, value in facts.get("quality", {}).items():
        print_line(f"  {name.replace('_', ' ')}: {'none' if value is None else f'{value:,.6g}'}")


def _print_sample(sample: dict[str, Any]) -> None:
    print_line(f"sample {sample['number']:,}: {sample['tokens']:,} tokens, digest {sample['digest']}")
    columns = ("corpus", "begin", "length", "document", "start", "flags")
    print_table(columns, [[*(e[name] for name in columns[:-1]), " ".join(e["flags"])] for e in sample["extents"]])
    ids = sample["input_ids"]
    more = f" .. {ids[-1]}" if len(ids) > SHOWN_IDS else ""
    print_line(f"ids {' '.join(map(str, ids[:SHOWN_IDS]))}{more}; last label {sample['label']}")
    if "text" in sample:
        for line in sample["text"].splitlines():
            print_line(f"  | {line}")


def export_command(
    run: RunPath,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The Parquet file to write.")],
    first: Annotated[int | None, typer.Option("--from", help="First sample; the run's first when left out.")] = None,
    end: Annotated[int | None, typer.Option("--to", help="Sample to stop before; the run's end when left out.")] = None,
    resolve: Annotated[bool, typer.Option("--resolve", help="Split extents at document edges.")] = False,
    segment: SegmentNumber = None,
    cache: CacheFolder = None,
    override: Override = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Write a run's extents as Parquet, one row for each."""
    from tokenreel.index.export import export_order
    from tokenreel.index.segments import chosen, sample_range

    _, one = chosen(load_segments(run, override), segment=segment)
    made = make(run, one, cache, accept)
    lo, hi = (0, 0) if first is not None and end is not None else sample_range(one, made.order)
    lo, hi = lo if first is None else first, hi if end is None else end
    rows = export_order(made, output, lo, hi, resolve=resolve)
    if json:
        print_json(
            {"path": str(output), "first": lo, "end": hi, "extents": rows, "fingerprint": made.order.fingerprint}
        )
    else:
        print_line(f"{output}: {rows:,} extents of samples {lo:,} .. {hi - 1:,}")


def compare_command(
    one: Annotated[Path, typer.Argument(help="A run file.")],
    other: Annotated[Path, typer.Argument(help="Another run file.")],
    *,
    samples: Annotated[int | None, typer.Option("--samples", help="How many; all when left out.")] = None,
    first: Annotated[
        int | None, typer.Option("--from", help="First sample in both; each run's own when left out.")
    ] = None,
    segment_a: Annotated[int | None, typer.Option("--segment-a", help="Segment of the first run.")] = None,
    segment_b: Annotated[int | None, typer.Option("--segment-b", help="Segment of the second run.")] = None,
    inputs_only: Annotated[bool, typer.Option("--inputs-only", help="Leave each sample's last label out.")] = False,
    cache: CacheFolder = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Compare two runs sample by sample, by hashes of tokens.

    Exit status: 0 the same, 1 a difference.
    """
    from tokenreel.index.samples import compare
    from tokenreel.index.segments import chosen, sample_range

    sides, ranges = [], []
    for path, number in ((one, segment_a), (other, segment_b)):
        _, segment = chosen(load_segments(path, None), segment=number)
        made = make(path, segment, cache, accept)
        lo, hi = sample_range(segment, made.order, samples)
        if first is not None:
            lo = first
            hi = hi if samples is None else first + samples
        sides.append(made)
        ranges.append((lo, hi))
    count = min(hi - lo for lo, hi in ranges) if samples is None else samples
    whole = samples is None and first is None
    begins = (ranges[0][0], ranges[1][0])
    compared = compare(sides[0], sides[1], begins, count, whole=whole, labels=not inputs_only)
    if json:
        print_json(compared.as_dict())
    else:
        lengths = " and ".join("endless" if n is None else f"{n:,}" for n in compared.lengths)
        print_line(
            f"{compared.same:,} of {compared.samples:,} samples are the same at the same place; orders of {lengths}"
        )
        if compared.first_difference is not None:
            print_line(f"first difference: sample {compared.first_difference:,} of those compared")
            print_line(f"{compared.common:,} samples of the one are somewhere in the other")
        print_line("equal" if compared.equal else "different")
    raise typer.Exit(0 if compared.equal else 1)


def find_command(
    run: RunPath,
    *,
    doc: Annotated[list[str], typer.Option("--doc", help="A document: its number, or an id of documents.parquet.")],
    corpus: Annotated[str | None, typer.Option("--corpus", help="Which corpus of the run; the only one.")] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", help="Samples to search, where the run has no end.")
    ] = None,
    segment: SegmentNumber = None,
    cache: CacheFolder = None,
    override: Override = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Say where documents occur in a run.

    Samples, steps, and which of their tokens.

    Exit status: 0 whether or not they occur.
    """
    from tokenreel.index.searching import find_in_order
    from tokenreel.index.segments import chosen, sample_range

    segments = load_segments(run, override)
    numbered = list(enumerate(segments)) if segment is None else [chosen(segments, segment=segment)]
    hits = []
    for number, one in numbered:
        made = make(run, one, cache, accept)
        lo, hi = sample_range(one, made.order, samples)
        hits += [{"segment": number, **hit} for hit in find_in_order(made, one, doc, corpus, lo, hi)]
    if json:
        print_json({"hits": hits})
        return
    columns = ("segment", "step", "sample", "extent", "corpus", "document", "begin", "length")
    print_table(columns, [[hit[name] for name in columns] for hit in hits])
    print_line(f"{len(hits):,} places")
