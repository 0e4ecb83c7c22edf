"""The one place where a command begins and ends: errors become messages, JSON and exit statuses here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tokenreel.cli.output import ReaderGone, print_json, write_out
from tokenreel.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, TokenreelError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; never raises for anything the user or the data did."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    try:
        status = _run(words, as_json=as_json)
        write_out("", flush=True)
        return status
    except TokenreelError as error:
        _fail(error.as_dict(), str(error), as_json=as_json)
        return error.exit_status
    except KeyboardInterrupt:
        _fail(
            {"code": "interrupted", "message": "interrupted", "where": {}, "hint": "run the command again"},
            "interrupted; run the command again to go on",
            as_json=as_json,
        )
        return EXIT_INTERRUPTED
    except ReaderGone:
        return EXIT_OK
    except Exception as error:  # noqa: BLE001 (the last line of defence: a bug is reported as one)
        return _bug(error, as_json=as_json)


def _run(words: list[str], *, as_json: bool) -> int:
    import typer

    from tokenreel.cli.app import command

    # typer ships its own copy of click in some versions: the base of its usage errors is found from typer itself.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]

    try:
        result = command().main(args=words, prog_name="tokenreel", standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except usage_error as error:
        shown: Any = error
        if as_json:
            message = shown.format_message()
            _fail(
                {"code": "USE003", "message": message, "where": {}, "hint": "tokenreel --help"}, message, as_json=True
            )
        else:
            shown.show()
        return EXIT_USAGE
    return result if isinstance(result, int) else EXIT_OK


def _fail(error: dict[str, object], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"error": error})
    else:
        sys.stderr.write(f"error: {text}\n")


def _bug(error: Exception, *, as_json: bool) -> int:
    import traceback

    traceback.print_exc(file=sys.stderr)
    text = f"a bug in tokenreel: {type(error).__name__}: {error}"
    _fail(
        {"code": "bug", "message": text, "where": {}, "hint": "please report it with the lines above"},
        text,
        as_json=as_json,
    )
    return EXIT_BUG
