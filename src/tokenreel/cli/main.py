"""The one place where a command begins and ends: errors become messages, JSON and exit statuses here."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from tokenreel.cli.output import STDOUT, ReaderGone, lost_output, note, open_output, print_json, write_out
from tokenreel.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, TokenreelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXIT_TERMINATED = 128 + signal.SIGTERM


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; never raises for anything the user or the data did."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    open_output()
    with _terminable() as got:
        try:
            status = _run(words, as_json=as_json)
            write_out("", flush=True)
            return status
        except TokenreelError as error:
            said = as_json and error.where.get("path") != STDOUT
            return _fail(error.as_dict(), str(error), error.exit_status, as_json=said)
        except KeyboardInterrupt:
            return _interrupted(got, as_json=as_json)
        except ReaderGone:
            return EXIT_OK
        except Exception as error:  # noqa: BLE001 (the last line of defence: a bug is reported as one)
            lost = lost_output(error)
            if lost is not None:
                return _fail(lost.as_dict(), str(lost), lost.exit_status, as_json=False)
            return _bug(error, as_json=as_json)


def _run(words: list[str], *, as_json: bool) -> int:
    import typer

    from tokenreel.cli.app import command

    # typer ships its own copy of click in some versions: the base of its usage errors is found from typer itself.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]

    try:
        result = command().main(args=words, prog_name="tokenreel", standalone_mode=False)
    except typer.Exit as stop:
        result = stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as stop:
        # Where the reader of its help went away, typer ends the process itself.
        if stop.code == 1 and not any(name.endswith("_COMPLETE") for name in os.environ):
            raise ReaderGone from None
        raise
    except usage_error as error:
        shown: Any = error
        message = shown.format_message()
        if as_json:
            hint = "tokenreel --help"
            return _fail(
                {"code": "USE003", "message": message, "where": {}, "hint": hint}, message, EXIT_USAGE, as_json=True
            )
        with contextlib.suppress(OSError):
            shown.show()
        return EXIT_USAGE
    if result == EXIT_INTERRUPTED:
        # Newer versions of typer turn Ctrl-C into this status.
        raise KeyboardInterrupt
    return result if isinstance(result, int) else EXIT_OK


@contextlib.contextmanager
def _terminable() -> Iterator[list[int]]:
    """Let SIGTERM end the command as Ctrl-C does, so that nothing half-written stays; yields the signals that came."""
    got: list[int] = []
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield got
        return

    def stop(number: int, _frame: object) -> None:
        # A scheduler may send it twice; cleaning up goes on.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        got.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        yield got
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupted(got: list[int], *, as_json: bool) -> int:
    word = "terminated" if got else "interrupted"
    error: dict[str, object] = {"code": "interrupted", "message": word, "where": {}, "hint": "run the command again"}
    return _fail(
        error,
        f"{word}; run the command again to go on",
        EXIT_TERMINATED if got else EXIT_INTERRUPTED,
        as_json=as_json,
    )


def _fail(error: dict[str, object], text: str, status: int, *, as_json: bool) -> int:
    """Say what is wrong, where it can still be said, and return the exit status."""
    if not as_json:
        note(f"error: {text}")
        return status
    try:
        print_json({"error": error})
    except ReaderGone:
        pass
    except (TokenreelError, OSError):
        note(f"error: {text}")
    return status


def _bug(error: Exception, *, as_json: bool) -> int:
    import traceback

    with contextlib.suppress(OSError, ValueError):
        traceback.print_exc(file=sys.stderr)
    text = f"a bug in tokenreel: {type(error).__name__}: {error}"
    return _fail(
        {"code": "bug", "message": text, "where": {}, "hint": "please report it with the lines above"},
        text,
        EXIT_BUG,
        as_json=as_json,
    )
