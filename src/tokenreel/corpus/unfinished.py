"""Whether a listing holds the beginning of a conversion that did not come to its end: some of its shards, whole each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.errors import IncompleteError

if TYPE_CHECKING:
    from collections.abc import Collection

UNFINISHED = "DOC029"
PLAN = ".convert/plan.json"
"""Made before the first shard of a conversion, removed when all is proved and recorded."""
MANIFEST = "tokenreel.json"


def unfinished(paths: Collection[str]) -> str | None:
    """Return the first folder in which a conversion did not come to its end, empty for the root; None where there is none.

    Its manifest is written last: a folder that has one is whole, whatever else is left in it.

    >>> unfinished(["a/.convert/plan.json", "a/part-000000.bin"])
    'a'
    >>> unfinished(["a/.convert/plan.json", "a/tokenreel.json"])
    """
    for path in paths:
        if path.endswith(PLAN) and (len(path) == len(PLAN) or path[-len(PLAN) - 1] == "/"):
            folder = path[: -len(PLAN)]
            if f"{folder}{MANIFEST}" not in paths:
                return folder.rstrip("/")
    return None


def refuse_unfinished(paths: Collection[str], root: str, accept: Collection[str] = ()) -> None:
    """Raise `IncompleteError` (DOC029) for a listing with a conversion that did not come to its end."""
    folder = None if UNFINISHED in accept else unfinished(paths)
    if folder is not None:
        path = f"{root.rstrip('/')}/{folder}" if folder else root
        raise IncompleteError(UNFINISHED, path=path, expected=MANIFEST, found=PLAN, hint=f"ls -a {path}")
