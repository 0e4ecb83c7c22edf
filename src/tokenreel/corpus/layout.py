"""Which shards make a corpus, in what order, and which split each belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SPLIT_NAMES = ("train", "training", "valid", "validation", "val", "test", "eval", "dev")
"""Folder names that make a root a root with splits when every shard lies below one of them."""

_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """What a corpus knows of a shard before it opens it."""

    format: str
    name: str
    files: tuple[str, ...]
    documents: int
    sequences: int
    tokens: int
    dtype: str


def split_of(name: str) -> str | None:
    """Return the split a shard's path says: the folder after ``shards/``, or the first folder, if it is a split name.

    >>> split_of("shards/train/part-000000"), split_of("val/a/part-1"), split_of("web/part-1")
    ('train', 'val', None)
    """
    folders = name.split("/")[:-1]
    if folders and folders[0] == "shards":
        folders = folders[1:]
    return folders[0] if folders and folders[0] in SPLIT_NAMES else None


def split_in_name(name: str) -> str | None:
    """Return the split a file's own name says, as loaders of flat files look for it: ``train``, ``fineweb_val_000000``.

    >>> split_in_name("a/fineweb_val_000000"), split_in_name("train"), split_in_name("training_notes")
    ('val', 'train', None)
    """
    words = re.sub(r"_\d+$", "", name.rpartition("/")[2]).rsplit("_", 1)
    return words[-1] if words[-1] in SPLIT_NAMES else None


def splits_of(names: Iterable[str], *, in_names: bool = False) -> dict[str, list[str]] | None:
    """Return the names by split when every shard's path says one, else None: then all are one corpus.

    With `in_names` a file's own name may say it, where no folder does.

    >>> splits_of(["train/a", "val/b"])
    {'train': ['train/a'], 'val': ['val/b']}
    >>> splits_of(["train/a", "b"]) is None
    True
    >>> splits_of(["train", "val"], in_names=True)
    {'train': ['train'], 'val': ['val']}
    """
    found: dict[str, list[str]] = {}
    for name in names:
        split = split_of(name) or (split_in_name(name) if in_names else None)
        if split is None:
            return None
        found.setdefault(split, []).append(name)
    return found or None


def order_finding(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the first two neighbours whose byte order is not their numeric order, or None.

    Shards are read in byte order of their path; a writer that forgot to pad its numbers meant another order.

    >>> order_finding(["part-10", "part-9"])
    ('part-10', 'part-9')
    >>> order_finding(["part-09", "part-10"]) is None
    True
    """
    for one, two in pairwise(names):
        if _numeric(two) < _numeric(one):
            return one, two
    return None


def _numeric(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in _DIGITS.split(name) if part]
