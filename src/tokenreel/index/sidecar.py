"""What the data under an index was, recorded beside it: tables and a sample of the bytes.

Neither Megatron nor MaxText puts anything of the data into its index files or their names, so replaced data meets a stale
index unnoticed. ``<stem>-tokenreel.json`` is one more file in the directory, which neither of them reads.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import TokenreelError
from tokenreel.index.files import Difference
from tokenreel.store import dumps_canonical, loads_strict

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from tokenreel.corpus.corpus import Corpus

FORMAT = "tokenreel-index-1"
PLACES = 64
PLACE_TOKENS = 4096


def data_record(prefix: str, corpus: Corpus) -> dict[str, Any]:
    """Return what is recorded of a corpus: counts, a hash of its tables, a hash of 64 stretches of its ids.

    Cost: one read of the tables and at most 64 small reads.
    """
    digest = hashlib.sha256(f"{corpus.dtype.str}\n".encode())
    tokens = corpus.tokens
    places = sorted({max(0, tokens - PLACE_TOKENS) * k // (PLACES - 1) for k in range(PLACES)})
    for begin in places:
        digest.update(corpus.stream(begin, min(tokens, begin + PLACE_TOKENS)).tobytes())
    table = corpus.sequences()
    return {
        "path": prefix,
        "documents": len(corpus),
        "sequences": table.documents,
        "tokens": tokens,
        "dtype": corpus.dtype.name,
        "tables": table.key.digest,
        "sampled_ids": digest.hexdigest(),
    }


def sidecar(corpora: Sequence[tuple[str, Corpus]]) -> bytes:
    """Return the bytes of a sidecar; they follow from the data and the prefixes alone."""
    return dumps_canonical({"format": FORMAT, "data": [data_record(prefix, corpus) for prefix, corpus in corpora]})


def replaced(root: str | os.PathLike[str], path: str, made: bytes) -> Iterator[Difference]:
    """Yield what a stored sidecar says that the data no longer is; nothing where there is no sidecar."""
    place = Path(root) / path
    if not place.is_file():
        return
    try:
        stored = loads_strict(place.read_bytes(), str(place))
        before, now = stored["data"], loads_strict(made, path)["data"]
    except (TokenreelError, OSError, KeyError, TypeError) as error:
        yield Difference("IDX002", path, "a sidecar that cannot be read", "an object with data", str(error))
        return
    if len(before) != len(now):
        yield Difference("IDX007", path, "corpora", len(before), len(now))
        return
    for one, other in zip(before, now, strict=True):
        for key in other:
            if not isinstance(one, dict) or one.get(key) != other[key]:
                was = one.get(key) if isinstance(one, dict) else one
                yield Difference("IDX007", path, f"{key} of {other['path']}", was, other[key])
                break
