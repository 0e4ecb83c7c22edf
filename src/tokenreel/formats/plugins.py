"""Formats that other packages add: entry points of the group ``tokenreel.formats``, each the `Format` of one layout.

Its module has a function ``recognise(store, entries)``, which is asked where none of ours finds a shard. What is written in
docs/formats.md for such a module is all that it needs.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tokenreel.errors import FormatError

if TYPE_CHECKING:
    from tokenreel.formats.registry import Format

GROUP = "tokenreel.formats"


@cache
def added() -> tuple[Format, ...]:
    """Return the formats of the packages that are installed, in the order of their names.

    Raises `FormatError` (FLT010) for an entry point that cannot be loaded, is no `Format`, or has a name that is taken.
    Cost: a look through what is installed, once.
    """
    from importlib.metadata import entry_points

    from tokenreel.formats.registry import FORMATS, Format

    taken = {row.name for row in FORMATS}
    rows = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            row = point.load()
        except Exception as error:
            raise _wrong(point.value, f"{type(error).__name__}: {error}") from error
        if not isinstance(row, Format):
            raise _wrong(point.value, type(row).__name__)
        if row.name in taken:
            raise _wrong(point.value, f"the name {row.name} again")
        taken.add(row.name)
        rows.append(row)
    return tuple(rows)


def others() -> tuple[str, ...]:
    """Return where the recognisers of added formats are, ``MODULE:FUNCTION``, each once."""
    return tuple(dict.fromkeys(f"{row.module}:recognise" for row in added()))


def _wrong(value: str, found: str) -> FormatError:
    return FormatError(
        "FLT010", f"the entry point {value}", expected="a Format with a name of its own", found=found[:200]
    )
