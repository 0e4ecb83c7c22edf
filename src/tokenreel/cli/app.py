"""The commands, in the order of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from tokenreel import __version__
from tokenreel.cli.examples import EXAMPLES

HELP = """Build, verify, convert, mix, pack, order and replay tokenised pretraining corpora, exact to the token.

\b
  tokenreel verify /data/my_shards             are these shards whole?
  tokenreel build recipe.toml --out corpus     text in, verified corpus out
  tokenreel explain MEG004                     what a code means, and what to do

Exit status: 0 fine, 1 the data is wrong, 2 usage or recipe, 3 could not read or write, 4 incomplete, 70 a bug, 130
interrupted, 143 terminated. Every command takes --json: one JSON document on stdout, messages on stderr.
"""

SHORT = {
    "demo": "The life of a corpus, offline: build, verify, break, restore.",
    "build": "Build a corpus from text; resumable, the same bytes always.",
    "verify": "Check a corpus: what is proved, what is wrong, what is not.",
    "inspect": "Say what a path holds; show a document.",
    "adopt": "Check someone else's shards and write down what they are.",
    "convert": "Write a corpus in another format, proved the same.",
    "merge": "Make one corpus of several.",
    "repair": "Save what can be saved of damaged shards.",
    "mix": "What a run reads: tokens, shares, epochs and repeats.",
    "order": "Show, export, compare and search the order of a run.",
    "pack": "Say what rows waste, and what each packing policy does.",
    "index": "Build and check index files of Megatron and MaxText.",
    "state": "Show a feed's state; take it elsewhere; import another's.",
    "trace": "What did step N see; when was document D seen.",
    "ledger": "Compare ledgers, and say what they exposed.",
    "replay": "Index what a run read; check, join, rebuild it.",
    "formats": "Print the table of formats.",
    "explain": "Say what a code means and how to mend it.",
    "schema": "Print the JSON Schema of recipes, run files or replay indices.",
}
"""One line a command, in the order of help."""

app = typer.Typer(
    name="tokenreel",
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def command() -> Any:
    """Return the whole command, with every subcommand registered."""
    from tokenreel.cli import check, convert, index, look, make, mix, order, pack, repair, replay, state, trace

    if not app.registered_commands:
        for module in (make, look, check, convert, index, order, mix, pack, repair, replay, state, trace):
            module.register(app)
    whole: Any = typer.main.get_command(app)
    rank = list(SHORT)
    whole.commands = dict(
        sorted(whole.commands.items(), key=lambda item: rank.index(item[0]) if item[0] in rank else len(rank))
    )
    for name, one in whole.commands.items():
        one.short_help = SHORT.get(name)
        _tidy(one)
        _illustrate(one, name)
    return whole


def _illustrate(one: Any, name: str) -> None:
    """Let help end with an example."""
    if name in EXAMPLES:
        one.epilog = f"\b\nExample:\n  {EXAMPLES[name]}"
    for inner, command in getattr(one, "commands", {}).items():
        _illustrate(command, f"{name} {inner}")


def _tidy(one: Any) -> None:
    """Give every value a plain name in help: some versions of typer print Python's types."""
    for parameter in one.params:
        annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        if annotation is None or parameter.metavar is not None:
            continue
        if isinstance(parameter, typer.core.TyperArgument):
            parameter.metavar = parameter.name.upper()
            vars(parameter)["display_type_rich"] = lambda ctx: ""  # noqa: ARG005 (the name alone)
        else:
            parameter.metavar = _NAMES.get(annotation)
    for inner in getattr(one, "commands", {}).values():
        _tidy(inner)


_NAMES: dict[object, str] = {
    int: "N",
    float: "X",
    str: "TEXT",
    Path: "PATH",
    list[int]: "N",
    list[str]: "TEXT",
    list[Path]: "PATH",
}
