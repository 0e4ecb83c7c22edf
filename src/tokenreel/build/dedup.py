"""Exact duplicates: of texts by the first 16 bytes of their SHA-256, and by url or id within a scope; the first one wins.

Pure: the caller gives keys in merge order and gets back which stand for the first time. In memory at most 20 bytes a
document; beyond a limit keys wait on disk by their top bits, and what stays are 4 bytes a document.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.id_matching import each_part, match
from tokenreel.build.id_spill import MEMORY, IdSpill, ids_of, parts_for
from tokenreel.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]

IN_MEMORY = 1 << 20
"""Keys beyond which they are put into parts, and beyond a limit of memory wait on disk."""
MAX_REMOVAL = 0.5
SAMPLES = 5
"""Clusters that a stopped build shows of a source."""


def text_key(text: str) -> bytes:
    """Return the first 16 bytes of the SHA-256 of a text's exact UTF-8.

    >>> text_key("").hex()
    'e3b0c44298fc1c149afbf4c8996fb924'
    """
    return hashlib.sha256(text.encode()).digest()[:16]


def scoped_key(scope: str, value: str) -> bytes:
    """Return the 16 bytes that name a url or an id within a scope; the same value in another scope is another key."""
    return hashlib.sha256(f"{len(scope)}:{scope}{value}".encode()).digest()[:16]


def keys_of(digests: Sequence[bytes]) -> U64:
    """Return keys of 16 bytes each as (keys, 2), high half first."""
    return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)


def first_places(
    batches: Iterable[U64], total: int, folder: Path | None = None, threads: int = 1
) -> npt.NDArray[np.int32]:
    """Return, for every key in order, the number of the first one that equals it: its own where it is the first.

    `total`, below 2**31, is how many keys there will be. Memory: 4 bytes a key for the result, and up to `IN_MEMORY` keys
    24 to 50 each; beyond, 16 each and at most `MEMORY`, the rest waits below `folder` on disk. Cost: about 0.1 us a key.

    >>> first_places([np.array([[1, 1], [2, 2], [1, 1]], np.uint64)], 3).tolist()
    [0, 1, 0]
    """
    if total <= IN_MEMORY:
        keys = np.concatenate([np.empty((0, 2), np.uint64), *batches])
        return match(keys, keys)
    out = np.arange(total, dtype=np.int32)
    with IdSpill(parts_for(total), folder, min(MEMORY, 16 * total)) as spill:
        at = 0
        for batch in batches:
            spill.add(batch, np.arange(at, at + len(batch), dtype=np.uint64))
            at += len(batch)

        def settle(number: int) -> None:
            part = spill.part(number)
            spill.give_back(number)
            ids, places = ids_of(part), part["value"]
            # A key is in one part: threads write to different places.
            out[places] = places[match(ids, ids)]

        for _ in each_part(spill.parts, settle, threads):
            pass
    return out


def joined_first(*keys: npt.NDArray[Any] | None) -> npt.NDArray[np.int64]:
    """Return each document's winner over several kinds of key: the smallest of its first places; -1 in one is no key.

    A document is a duplicate where this is not its own number.
    """
    out: npt.NDArray[np.int64] | None = None
    for places in keys:
        if places is None:
            continue
        known = np.where(places < 0, np.arange(len(places)), places).astype(np.int64)
        out = known if out is None else np.minimum(out, known)
    if out is None:
        raise ValueError("no key")
    return out


@dataclass(frozen=True, slots=True)
class Removal:
    """What dedup takes from one source."""

    source: str
    documents: int
    removed: int
    samples: tuple[tuple[int, int], ...]
    """(document, its winner) of some."""

    @property
    def share(self) -> float:
        """Removed of all."""
        return self.removed / self.documents if self.documents else 0.0


def removals(first: npt.NDArray[Any], source: npt.NDArray[np.int32], names: Sequence[str]) -> Iterator[Removal]:
    """Yield what is removed from every source; `source` is each document's number in `names`."""
    lost = first != np.arange(len(first))
    for number, name in enumerate(names):
        mine = source == number
        gone = np.flatnonzero(mine & lost)
        shown = tuple((int(k), int(first[k])) for k in gone[:SAMPLES])
        yield Removal(name, int(mine.sum()), len(gone), shown)


def brake(found: Iterable[Removal], limit: float = MAX_REMOVAL, allowed: Sequence[str] = ()) -> None:
    """Raise `SourceError` (SRC030) for the first source that would lose more than `limit`, unless it is allowed by name."""
    for one in found:
        if one.share > limit and one.source not in allowed:
            shown = ", ".join(f"{a} is {b}" for a, b in one.samples)
            raise SourceError(
                "SRC030",
                f"source {one.source!r}: {one.removed:,} of {one.documents:,} documents ({shown})",
                expected=f"at most {limit:.0%}",
                found=f"{one.share:.1%}",
                hint="allow it by name: dedup.allow",
            )
