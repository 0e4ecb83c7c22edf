"""Commands on packing: pack stats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenreel.cli import options
from tokenreel.cli.output import print_json, print_line, print_table
from tokenreel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.pack.packed_policy import Packing

pack_app = typer.Typer(help="Look at how documents fill rows.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    pack_app.registered_commands.clear()
    pack_app.callback()(_pack)
    pack_app.command("stats")(stats_command)
    app.add_typer(pack_app, name="pack")


def _pack() -> None:
    """Look at how documents fill rows."""


def stats_command(
    path: Annotated[str, typer.Argument(help="A corpus (a folder, a shard, ROOT/SPLIT), or a run file.")],
    *,
    seq_length: Annotated[
        list[int] | None, typer.Option("--seq-length", help="Tokens of a row; repeatable. A run file's where left out.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", help="concat, firstfit(8), 'crop, wait', ..; repeatable. The usual ones where left out."
        ),
    ] = None,
    oversize: Annotated[
        str | None, typer.Option("--oversize", help="For policies that need it: split, truncate, drop or error.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Decides among documents of equal length.")] = 0,
    group: Annotated[
        str | None, typer.Option("--group", help="Shares of groups too: source, or a key of the documents' metadata.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", help="Windows planned at a time; changes no number.")] = 1,
    boundary: options.BoundaryText = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="Stored integer type, where the bytes do not say.")
    ] = None,
    vocab: options.Vocab = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Say what rows waste, source by source, and what each policy does.

    Everything is counted over one pass: kept, cropped and dropped tokens are all tokens; kept and padded are all rows.
    """
    from tokenreel.index.plan_stats import corpus_packing, usual_packings

    if threads < 1 or any(row < 1 for row in seq_length or ()):
        raise UsageError("USE003", "--threads, --seq-length", expected="1 or more", found=threads)
    rows = list(dict.fromkeys(seq_length or ()))
    packings: list[Packing] = []
    if path.endswith(".toml"):
        opened, packings = _of_run(Path(path), rows, accept)
        rows = rows or list(dict.fromkeys(packing.row_tokens for packing in packings))
    else:
        opened = _of_path(path, boundary, dtype, vocab, accept)
    if not rows:
        raise UsageError(
            "USE003", "--seq-length", expected="the tokens of a row", found="none", hint="--seq-length 4096"
        )
    if policy:
        packings = [_packing(name, row, oversize) for row in rows for name in policy]
    elif not packings:
        packings = [packing for row in rows for packing in usual_packings(row)]
    shown = []
    for name, corpus in opened:
        facts = corpus_packing(corpus, packings, seed=seed, group=group, threads=threads)
        shown.append({"corpus": name, **facts})
        corpus.close()
    if json:
        print_json({"corpora": shown})
        return
    for facts in shown:
        _print(facts)


def _packing(said: str, row: int, oversize: str | None) -> Packing:
    """Return the packing of one ``--policy``: a name, or as tables say it, with what becomes of long documents."""
    from tokenreel.pack.packed_policy import Packing, needs_oversize

    name, _, own = (part.strip() for part in said.partition(","))
    return Packing.of(name, row, oversize=own or (oversize if needs_oversize(name) else None))


def _of_path(
    path: str, boundary: str | None, dtype: str | None, vocab: int | None, accept: Sequence[str] | None
) -> list[tuple[str, Corpus]]:
    """Return the corpus at a path, or each of its splits."""
    from tokenreel.corpus.opening import open_corpus

    corpus = open_corpus(path, dtype=dtype, boundary=boundary, vocab=vocab, accept=accept or ())
    return [(name, corpus.split(name)) for name in corpus.splits] or [(corpus.path, corpus)]


def _of_run(
    run: Path, rows: Sequence[int], accept: Sequence[str] | None
) -> tuple[list[tuple[str, Corpus]], list[Packing]]:
    """Return the corpora that a run file's segments read, and the packings of their orders where they have any."""
    from tokenreel.config.run import load_run
    from tokenreel.index.assemble import assemble
    from tokenreel.index.plan_stats import run_packings

    opened: dict[str, Corpus] = {}
    orders = []
    for segment in load_run(run):
        made = assemble(segment.run, run.parent, accept=accept or ())
        orders.append(made.order)
        opened |= dict(zip(made.names, made.corpora, strict=True))
    return list(opened.items()), run_packings(orders, rows)


def _print(facts: dict[str, Any]) -> None:
    print_line(f"{facts['corpus']}: {facts['documents']:,} documents, {facts['tokens']:,} tokens")
    lines = facts["sources"] if len(facts["sources"]) == 1 else [*facts["sources"], facts["whole"]]
    shares = [(f"top {k}", k) for k in facts["whole"]["top"]]
    print_table(
        ("source", "documents", "tokens", "min", "median", "p90", "p99", "max", *(title for title, _ in shares)),
        [
            (
                *(line[key] for key in ("name", "documents", "tokens", "min", "median", "p90", "p99", "max")),
                *(f"{line['top'][k]:.2%}" for _, k in shares),
            )
            for line in lines
        ],
    )
    if "groups" in facts:
        groups = facts["groups"]
        held = ", ".join(f"top {k} {share:.2%}" for k, share in groups["top"].items())
        print_line(f"by {groups['by']}: {groups['count']:,} groups, {held}")
    print_line("One document a row, or documents end to end: what rows waste.")
    print_table(
        ("source", "row", "longer", "cut up", "truncated", "lost", "packed", "at most"),
        [
            (
                line["name"], waste["row_tokens"], f"{waste['longer']:.2%}",
                *(f"{waste[key]:.2%}" for key in ("chunked", "truncated", "lost")),
                *(f"{waste[key]:.2g}" for key in ("packed", "bound")),
            )
            for line in lines
            for waste in line["waste"]
        ],
    )  # fmt: skip
    print_line("Policies.")
    print_table(
        ("policy", "row", "rows", "padding", "cut", "needlessly", "lost", "attention saved"),
        [
            (
                _said(one["packing"]), one["row_tokens"], one["rows"], f"{one['padding']:.3%}", one["documents_cut"],
                one["cut_needlessly"], f"{one['lost']:.2%}", f"{one['attention_saved']:.1%}",
            )
            for one in facts["packing"]
        ],
    )  # fmt: skip


def _said(packing: dict[str, Any]) -> str:
    oversize = packing.get("oversize")
    return str(packing["policy"]) + (f", {oversize}" if oversize else "")
