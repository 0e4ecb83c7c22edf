"""The commands, in the order of help."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tokenreel import __version__

app = typer.Typer(
    name="tokenreel",
    help="Build, verify, convert, mix, pack, stream and replay tokenised pretraining corpora, exact to the token.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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
) -> None:
    """Build, verify, convert, mix, pack, stream and replay tokenised pretraining corpora, exact to the token.

    Exit status: 0 fine, 1 the data is wrong, 2 usage, 3 could not read or write, 4 incomplete, 70 a bug, 130
    interrupted. Every command takes --json.
    """


def command() -> Any:
    """Return the whole command, with every subcommand registered."""
    from tokenreel.cli import check, index, look, make, mix, order

    for module in (make, look, check, index, order, mix):
        module.register(app)
    return typer.main.get_command(app)
