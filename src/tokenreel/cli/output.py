"""What commands print: one JSON document on stdout, or text; progress and messages on stderr."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STDOUT = "standard output"


class ReaderGone(Exception):
    """Whoever read our output went away, as ``| head`` does."""


class _Closed(io.TextIOBase):
    """Stands for an output that was closed before the command began, as by ``>&-``."""

    def write(self, _text: str) -> int:
        raise OSError(errno.EBADF, "it is closed")


def open_output() -> None:
    """Make stdout and stderr ready: whatever their encoding, every text can be written.

    A standard stream that is closed gets the null device under its number: the next file opened would get it else, and
    another program's messages could be written into a shard.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            with contextlib.suppress(OSError):
                if os.open(os.devnull, os.O_RDWR) != number:
                    continue
            setattr(sys, name, io.StringIO() if name == "stdin" else _Closed())
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write_out(text: str, *, flush: bool = False) -> None:
    """Write to stdout; raises `ReaderGone` where the pipe is closed, `StorageError` (STO003) where it cannot."""
    try:
        if text:
            sys.stdout.write(text)
        if flush:
            sys.stdout.flush()
    except OSError as error:
        raise (_lost(error) or ReaderGone()) from None


def _lost(error: OSError) -> StorageError | None:
    """Give stdout up; returns what to say about it: nothing where its reader went away."""
    # What is still buffered must not fail again when the interpreter exits.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return None
    return StorageError(
        "STO003", f"could not write: {error.strerror or error}", path=STDOUT, hint="tokenreel explain STO003"
    )


def lost_output(error: BaseException) -> StorageError | None:
    """Return what to say where typer itself failed to print, as it prints help and versions; None for other errors."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    if not isinstance(error, OSError) or not module.startswith(("typer", "click", __name__)):
        return None
    return _lost(error)


def print_json(value: object) -> None:
    """Print one JSON document on stdout."""
    # A character that the encoding lacks is escaped as JSON does it.
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    write_out(json.dumps(value, ensure_ascii=plain, indent=1, default=_plain) + "\n", flush=True)


def _plain(value: object) -> Any:
    as_dict = getattr(value, "as_dict", None)
    if callable(as_dict):
        return as_dict()
    return str(value)


def print_line(text: str = "") -> None:
    """Print one line on stdout."""
    write_out(text + "\n")


def note(text: str) -> None:
    """Print one line on stderr, where there still is one."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: columns of numbers to the right, plain text when stdout is no terminal.

    >>> print_table(("name", "tokens"), [("web", 1200)])
    name  tokens
    web    1,200
    """
    lines = [[_cell(value) for value in row] for row in rows]
    right = [bool(lines) and all(_is_number(line[k]) for line in lines) for k in range(len(columns))]
    widths = [
        max(len(name), *(len(line[k]) for line in lines)) if lines else len(name) for k, name in enumerate(columns)
    ]

    def show(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    print_line(show(list(columns)))
    for line in lines:
        print_line(show(line))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "" if value is None else str(value)


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").replace("%", "").replace("e+", "").isdigit()


def bytes_text(count: float) -> str:
    """Return bytes for people.

    >>> bytes_text(1536)
    '1.5 KB'
    """
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""
