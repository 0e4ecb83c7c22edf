"""Files that the record of a mix names besides its shards: indexes of folders, tables, pages, the tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.corpus.mix_records import RECORD
from tokenreel.errors import TokenreelError
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from tokenreel.verify.target import Target


def named_by_mix(target: Target) -> frozenset[str]:
    """Return the paths that ``mix.json`` lists; none where it is not there or cannot be read: that is a rule of its own."""
    if RECORD not in target.sizes:
        return frozenset()
    try:
        said = loads_strict(target.store.read(RECORD), RECORD)
    except TokenreelError:
        return frozenset()
    files = said.get("files") if isinstance(said, dict) else None
    rows = [one for one in files if isinstance(one, dict)] if isinstance(files, list) else []
    return frozenset(path for one in rows if isinstance(path := one.get("path"), str))
