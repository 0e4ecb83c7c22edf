"""Find documents in a stream by the ids around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from tokenreel.formats.base import Boundary

    Ids = npt.NDArray[np.integer[Any]]
    I64 = npt.NDArray[np.int64]

STEP = 1 << 20
"""Ids looked at together."""


def find_pattern(read: Callable[[int, int], Ids], tokens: int, pattern: tuple[int, ...], step: int = STEP) -> I64:
    """Return where a pattern of ids begins in a stream; of occurrences that overlap, the first. About 1 ns an id.

    `read(begin, end)` gives the ids of the stream.

    >>> ids = np.array([2, 2, 2, 5, 2, 2])
    >>> find_pattern(lambda begin, end: ids[begin:end], 6, (2, 2)).tolist()
    [0, 4]
    """
    width = len(pattern)
    parts = []
    for begin in range(0, tokens - width + 1, step):
        ids = read(begin, min(tokens, begin + step + width - 1))
        count = len(ids) - width + 1
        there = ids[:count] == pattern[0]
        for k, value in enumerate(pattern[1:], 1):
            there &= ids[k : k + count] == value
        parts.append(np.flatnonzero(there) + begin)
    found = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    if width > 1 and len(found) > 1 and int(np.diff(found).min()) < width:
        found = np.fromiter(_apart(found.tolist(), width), dtype=np.int64)
    return found


def _apart(places: list[int], width: int) -> Iterator[int]:
    end = -1
    for place in places:
        if place >= end:
            end = place + width
            yield place


def scan_edges(read: Callable[[int, int], Ids], tokens: int, boundary: Boundary, path: str) -> I64:
    """Return the edges of the documents of a stream, from 0 to `tokens`, by a declared prefix, suffix or both.

    A document begins at each prefix and ends behind each suffix. What comes before the first prefix or behind the last
    suffix is a document cut short, and counts as one. Raises `FormatError`: FLT007 where prefix and suffix share ids,
    FLT008 where neither occurs.

    >>> from tokenreel.formats.base import Boundary
    >>> ids = np.array([7, 1, 8, 1, 1, 9])
    >>> scan_edges(lambda begin, end: ids[begin:end], 6, Boundary(prefix=(1,)), "here").tolist()
    [0, 1, 3, 4, 6]
    >>> scan_edges(lambda begin, end: ids[begin:end], 6, Boundary(suffix=(1,)), "here").tolist()
    [0, 2, 4, 5, 6]
    """
    prefix, suffix = boundary.prefix, boundary.suffix
    if set(prefix) & set(suffix):
        said = f"prefix {list(prefix)}, suffix {list(suffix)}"
        raise FormatError("FLT007", path=path, expected="a prefix or a suffix", found=said)
    begins = find_pattern(read, tokens, prefix) if prefix else np.empty(0, dtype=np.int64)
    ends = find_pattern(read, tokens, suffix) + len(suffix) if suffix else np.empty(0, dtype=np.int64)
    if tokens and not len(begins) and not len(ends):
        said = f"prefix {list(prefix)}, suffix {list(suffix)}"
        raise FormatError("FLT008", path=path, expected=said, found=f"{tokens} ids without it")
    return np.unique(np.concatenate(([0, tokens], begins, ends)).astype(np.int64))


def separator_inside(read: Callable[[int, int], Ids], edges: I64, boundary: Boundary) -> tuple[int, int] | None:
    """Return (document, token of the stream) of the first declared prefix or suffix that stands inside a document.

    >>> from tokenreel.formats.base import Boundary
    >>> ids = np.array([1, 8, 1, 9])
    >>> separator_inside(lambda begin, end: ids[begin:end], np.array([0, 4]), Boundary(prefix=(1,)))
    (0, 2)
    """
    prefix, suffix, tokens = boundary.prefix, boundary.suffix, int(edges[-1])
    inside = []
    for pattern in dict.fromkeys(ids for ids in (prefix, suffix) if ids):
        places = find_pattern(read, tokens, pattern)
        in_place = np.zeros(len(places), dtype=bool)
        if pattern == prefix:
            in_place |= np.isin(places, edges)
        if pattern == suffix:
            in_place |= np.isin(places + len(pattern), edges)
        inside += places[~in_place][:1].tolist()
    if not inside:
        return None
    token = min(inside)
    return int(np.searchsorted(edges, token, side="right")) - 1, token
