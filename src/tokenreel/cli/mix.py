"""The command mix: what a run reads of each of its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenreel.cli import options
from tokenreel.cli.order import CacheFolder, Override, RunPath, load_segments, make
from tokenreel.cli.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from tokenreel.index.mixture import Stretch
    from tokenreel.index.preflight import Preflight
    from tokenreel.replay.levels import Level


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("mix")(mix_command)


def mix_command(
    run: RunPath,
    *,
    samples: Annotated[int | None, typer.Option("--samples", help="Samples counted, where the run has no end.")] = None,
    cache: CacheFolder = None,
    override: Override = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Show every source's tokens, share, samples, epochs and repeats, phase by phase; what wraps or never appears."""
    from tokenreel.index.mixture import mix_table
    from tokenreel.index.preflight import preflight
    from tokenreel.index.segments import sample_range
    from tokenreel.replay.levels import step_level

    shown: list[tuple[int, str, Level, Preflight | None, tuple[Stretch, ...]]] = []
    segments = load_segments(run, override)
    for number, segment in enumerate(segments):
        made = make(run, segment, cache, accept)
        lo, hi = sample_range(segment, made.order, samples)
        level = step_level(segment, made.names)
        shown.append((number, made.order.name, level, preflight(made.order), mix_table(segment.run, made, lo, hi)))
    if json:
        print_json(
            {
                "segments": [
                    {
                        "segment": number,
                        "order": name,
                        **level.as_dict(),
                        "preflight": None if check is None else check.as_dict(),
                        "phases": [stretch.as_dict() for stretch in stretches],
                    }
                    for number, name, level, check, stretches in shown
                ]
            }
        )
        return
    for number, name, level, check, stretches in shown:
        if len(segments) > 1:
            print_line(f"segment {number}: {name}, {level.level}")
            for reason in level.reasons:
                print_line(f"  {reason}")
        for line in check.lines() if check is not None else ():
            print_line(line)
        for stretch in stretches:
            print_line(f"samples {stretch.first:,} .. {stretch.end - 1:,}")
            print_table(
                ("source", "tokens", "asked", "has", "samples", "read", "epochs", "repeats", ""),
                [_cells(row) for row in stretch.rows],
            )


def _cells(row: Any) -> tuple[object, ...]:
    asked, has = f"{row.weight:.4%}", f"{row.share:.4%}"
    epochs = f"{row.epochs:.3f}"
    return row.name, row.source_tokens, asked, has, row.samples, row.tokens, epochs, row.repeats, row.state
