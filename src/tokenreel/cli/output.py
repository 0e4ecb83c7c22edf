"""What commands print: one JSON document on stdout, or text; progress and messages on stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class ReaderGone(Exception):
    """Whoever read our output went away, as ``| head`` does."""


def write_out(text: str, *, flush: bool = False) -> None:
    """Write to stdout; raises `ReaderGone` where the pipe is closed."""
    try:
        sys.stdout.write(text)
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered must not fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ReaderGone from None


def print_json(value: object) -> None:
    """Print one JSON document on stdout."""
    write_out(json.dumps(value, ensure_ascii=False, indent=1, default=_plain) + "\n", flush=True)


def _plain(value: object) -> Any:
    as_dict = getattr(value, "as_dict", None)
    if callable(as_dict):
        return as_dict()
    return str(value)


def print_line(text: str = "") -> None:
    """Print one line on stdout."""
    write_out(text + "\n")


def note(text: str) -> None:
    """Print one line on stderr."""
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
