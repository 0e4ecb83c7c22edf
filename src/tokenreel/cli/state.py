"""Commands on states of feeds: state show, migrate, import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenreel.cli import options
from tokenreel.cli.order import CacheFolder, Override, SegmentNumber, load_segments, make
from tokenreel.cli.output import print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.config.run import Segment
    from tokenreel.feed.foreign import Foreign
    from tokenreel.feed.state import State
    from tokenreel.index.assemble import Assembled

StatePath = Annotated[Path, typer.Argument(help="A file that holds the state as JSON.")]
RunFile = Annotated[Path, typer.Argument(help="A run file.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="The file to write; else it is printed.")]

state_app = typer.Typer(
    help="Look at states of feeds, take them into another run or from another system.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    state_app.registered_commands.clear()
    state_app.command("show")(show_command)
    state_app.command("migrate")(migrate_command)
    state_app.command("import")(import_command)
    app.add_typer(state_app, name="state")


def show_command(
    state: StatePath,
    *,
    run: Annotated[Path | None, typer.Option("--run", help="A run file: may the state go on in it?")] = None,
    segment: SegmentNumber = None,
    cache: CacheFolder = None,
    override: Override = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Show what a state says; with a run, whether it may go on there.

    The state may be another system's: it is recognised.

    Exit status: 0 it may, or no run was given; 1 it may not, or it is no state.
    """
    from tokenreel.errors import StateError
    from tokenreel.feed.foreign import foreign
    from tokenreel.feed.going_on import go_on
    from tokenreel.feed.state import parse_json, parse_state, read_text

    said = parse_json(read_text(state), state)
    other = foreign(said) if isinstance(said, dict) else None
    if other is not None:
        _show_foreign(other, as_json=json)
        raise typer.Exit(1 if run else 0)
    found = parse_state(said, state)
    facts: dict[str, Any] = {"system": "tokenreel", **found.as_dict()}
    refused: StateError | None = None
    if run is not None:
        one, made = _made(run, segment, found, cache, override, accept)
        try:
            order, cursor = go_on(found, made.order, made.corpora)
        except StateError as error:
            refused = error
            facts["run"] = {"goes_on": False, "error": error.as_dict()}
        else:
            schedule = one.run.schedule
            facts["run"] = {
                "goes_on": True,
                "sample": cursor.position,
                "samples": order.length,
                "batch": None if schedule is None else schedule.batch_at(cursor.step),
            }
    if json:
        print_json(facts)
    else:
        _print_state(found)
        if "run" in facts:
            _print_run(facts["run"], refused)
    raise typer.Exit(1 if refused else 0)


def _made(
    run: Path,
    segment: int | None,
    state: State | None,
    cache: Path | None,
    override: Sequence[str] | None,
    accept: Sequence[str] | None,
) -> tuple[Segment, Assembled]:
    from tokenreel.feed.opened import segment_for

    one = segment_for(load_segments(run, override), segment, state)
    return one, make(run, one, cache, accept)


def _show_foreign(other: Foreign, *, as_json: bool) -> None:
    if as_json:
        print_json({"system": other.system, "says": other.facts, "reason": other.reason, "hint": other.hint})
        return
    print_line(f"a state of {other.system}")
    for key, value in other.facts.items():
        print_line(f"  {key}: {value}")
    print_line(f"not to be gone on from as it is: {other.reason}" + (f" ({other.hint})" if other.hint else ""))


def _print_state(found: State) -> None:
    cursor, order = found.cursor, found.order
    print_line(f"step {cursor.step:,}, sample {cursor.position:,}, {cursor.tokens:,} tokens consumed")
    if order:
        length = "endless" if order.get("length") is None else f"{order['length']:,} samples"
        print_line(f"  of {order.get('name')} [{length} x {order.get('row_tokens'):,} tokens]")
    kinds = found.kind if isinstance(found.kind, str) else ", ".join(found.kind)
    print_line(f"  fingerprint {found.fingerprint} ({kinds})")
    if found.stream is not None and "shard" in found.stream:
        place = found.stream
        print_line(f"  next token: {place['offset']:,} of shard {place['shard']:,} {place.get('name', '')}".rstrip())
    if found.cursors is not None:
        for name, given in zip(found.cursors.get("components", ()), found.cursors.get("given", ()), strict=False):
            print_line(f"  {name}: {given:,} samples given")
    for path in found.incomplete:
        print_line(f"  {path} was taken without its COMPLETE.json")


def _print_run(said: dict[str, Any], refused: object) -> None:
    if not said["goes_on"]:
        print_line(f"does not go on in this run: {refused}")
        return
    of = "" if said["samples"] is None else f" of {said['samples']:,}"
    batch = "" if said["batch"] is None else f", the next step takes {said['batch']:,} samples"
    print_line(f"goes on in this run at sample {said['sample']:,}{of}{batch}")


def migrate_command(
    state: StatePath,
    run: Annotated[Path, typer.Argument(help="The run file to go on in.")],
    *,
    old: Annotated[Path | None, typer.Option("--from", help="The run file that the state is of.")] = None,
    at_sample: Annotated[int | None, typer.Option("--at-sample", help="Sample of the new order to go on with.")] = None,
    output: Output = None,
    segment: SegmentNumber = None,
    cache: CacheFolder = None,
    override: Override = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Take a state into a run that reads other data.

    As when a source was withdrawn; it is said what repeats and what is lost.
    """
    from tokenreel.feed.migrate import migrate
    from tokenreel.feed.state import load_state, write_state

    found = load_state(state)
    _, new = _made(run, segment, found, cache, override, accept)
    before = None if old is None else _made(old, None, found, cache, None, accept)[1]
    done = migrate(found, new, before, at_sample=at_sample)
    if output is not None:
        write_state(output, done.state)
    if json:
        print_json(done.as_dict())
        return
    cursor = done.state.cursor
    print_line(f"goes on at step {cursor.step:,}, sample {cursor.position:,} ({done.how})")
    for note in done.notes:
        print_line(f"  {note}")
    for name, count in (done.sources or {}).items():
        print_line(f"  {name}: {count['read']:,} tokens read, {count['repeats']:,} repeat, {count['lost']:,} lost")
    told = [
        f"{word} {'not told' if n is None else f'{n:,} tokens'}"
        for word, n in (("repeats", done.repeats), ("lost", done.lost))
    ]
    print_line("; ".join(told))
    _written(done.state, output)


def _written(state: State, output: Path | None) -> None:
    import json

    print_line(json.dumps(state.as_dict()) if output is None else f"{output}: written")


def import_command(
    run: RunFile,
    *,
    megatron: Annotated[
        str | None, typer.Option("--megatron", help="consumed_train_samples, or a JSON file that holds it.")
    ] = None,
    iteration: Annotated[int | None, typer.Option("--iteration", help="Megatron's iteration.")] = None,
    grain: Annotated[Path | None, typer.Option("--grain", help="The folder of process_I-of-N.json.")] = None,
    levanter: Annotated[
        str | None,
        typer.Option("--levanter", help="A step, a checkpoint's folder step-N, or a JSON file with its step."),
    ] = None,
    segment: SegmentNumber = None,
    output: Output = None,
    cache: CacheFolder = None,
    override: Override = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Make a state of Megatron's, Grain's or Levanter's counters.

    The run file has the job's own order and schedule.
    """
    from tokenreel.errors import UsageError
    from tokenreel.feed.importing import holding, import_grain, import_megatron, lineage, read_grain, read_megatron
    from tokenreel.feed.state import write_state

    segments = load_segments(run, override)
    path = lineage(segments, segment)
    given = [one for one in (megatron, grain, levanter) if one is not None]
    if len(given) != 1:
        expected = "--megatron, --grain or --levanter"
        hint = f"tokenreel state import {run} --megatron consumed_train_samples"
        raise UsageError("USE003", "state import", expected=expected, found=f"{len(given)} of them", hint=hint)
    if levanter is not None:
        from tokenreel.feed.importing_levanter import LevanterCount, holding_step, import_levanter, read_levanter

        said_step = LevanterCount(int(levanter)) if levanter.isdecimal() else read_levanter(levanter)
        number = holding_step(segments, said_step.step, segment)
        state = import_levanter(segments, number, make(run, segments[number], cache, accept).order, said_step)
    elif grain is not None:
        count = read_grain(grain)
        made = make(run, path[holding(path, count.samples)], cache, accept)
        state = import_grain(path, made.order, count)
    else:
        text = str(megatron)
        consumed, said = (int(text), None) if text.isdecimal() else read_megatron(text)
        step = iteration if iteration is not None else said
        made = make(run, path[holding(path, consumed, step)], cache, accept)
        state = import_megatron(path, made.order, consumed, step)
    if output is not None:
        write_state(output, state)
    if json:
        print_json(state.as_dict())
        return
    _print_state(state)
    _written(state, output)
