"""An ``index.json`` that stands beside many shards is parsed once for all of them."""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from tokenreel.errors import StorageError
from tokenreel.store.base import path_checked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokenreel.store.base import Store

    T = TypeVar("T")

_DIGITS = re.compile(r"\d+")
_PARSED: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], tuple[int, Any]]] = weakref.WeakKeyDictionary()


def parsed(store: Store, path: str, parse: Callable[[Store, str], T]) -> T:
    """Return ``parse(store, path)``, kept as long as `store` is and the file keeps its size.

    A corpus is opened with a store of its own, so an index that is written again is read again by the next opening.
    """
    size = store.size(path)
    key = (parse.__module__, path)
    kept = _PARSED.setdefault(store, {})
    if key not in kept or kept[key][0] != size:
        kept[key] = (size, parse(store, path))
    value: T = kept[key][1]
    return value


def beside(index: str, name: object) -> str | None:
    """Return the path of a file that an index names, relative to its own folder; None for what is no plain path.

    >>> beside("train/index.json", "shard.00000.mds"), beside("index.json", "../x"), beside("index.json", 3)
    ('train/shard.00000.mds', None, None)
    """
    if not isinstance(name, str) or not name:
        return None
    folder = index.rpartition("/")[0]
    try:
        return path_checked(f"{folder}/{name}" if folder else name, "")
    except StorageError:
        return None


def alike(others: Sequence[str], ours: Sequence[str]) -> list[str]:
    """Return the files among `others` whose names differ from one of `ours` in digits alone: they should be the same.

    >>> alike(["train-00002.parquet", "notes.parquet"], ["train-00001.parquet"])
    ['train-00002.parquet']
    """
    forms = {_DIGITS.sub("#", path) for path in ours}
    return [path for path in others if _DIGITS.search(path) and _DIGITS.sub("#", path) in forms]


def is_count(value: object) -> bool:
    """Return whether a value of an index is a whole number that a file can have of anything.

    >>> is_count(3), is_count(True), is_count(-1), is_count(1 << 63), is_count("3")
    (True, False, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
