"""MaxText's spec strings: what ``grain_train_files`` and ``mmap_index_builder`` accept, and everything they may get wrong.

::

    value      := mixture if it holds ';' else spec
    mixture    := spec ',' weight (';' spec ',' weight)+        cut at the last comma
    spec       := index_dir '|' path (':' path)*                grain_file_type=mmap_npy
                | path                                          grain_file_type=mmap
    path       := P where P.idx is a file | a directory that holds *.idx

There is no quoting: '|', ':' and ';' cannot occur in a path. Positions in messages count from 0, as MaxText's do. What
MaxText lets through and fails on later (empty parts, URLs, weights that are not finite) is refused here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from tokenreel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FileType = Literal["mmap_npy", "mmap"]
LARGEST_BLEND = (1 << 15) - 2
"""Datasets of a blend: its dispatch is int16. MaxText does not check; this is Megatron's bound."""


@dataclass(frozen=True, slots=True)
class DataSpec:
    """One dataset of a spec string."""

    paths: tuple[str, ...]
    """Prefixes or directories as written, in the order written, which decides nothing: see `sorted_prefixes`."""
    index_dir: str | None = None
    """Where the index files are; None in direct mode."""


@dataclass(frozen=True, slots=True)
class Component:
    """One entry of a mixture."""

    spec: DataSpec
    weight: float
    """As written: not normalised, may be 0."""
    position: int
    """Place in the string, from 0; the N of the builder's ``dataset_N``."""


@dataclass(frozen=True, slots=True)
class FileSpec:
    """A whole spec string."""

    file_type: FileType
    components: tuple[Component, ...]
    mixture: bool
    """Whether it was written as a mixture, with weights."""

    @property
    def positive(self) -> tuple[Component, ...]:
        """The entries that are read: those of weight above 0."""
        return tuple(component for component in self.components if component.weight > 0)


def parse_files(text: str, file_type: FileType) -> FileSpec:
    """Return the datasets of ``grain_train_files`` or ``grain_eval_files``.

    Raises `UsageError`: ORD060 .. ORD069 for the grammar and the weights, one code for each way to be wrong.

    >>> parse_files("/cache/wiki|/data/wiki", "mmap_npy").components[0].spec
    DataSpec(paths=('/data/wiki',), index_dir='/cache/wiki')
    >>> [c.weight for c in parse_files("/data/wiki,0.7; /data/code ,3e-1", "mmap").components]
    [0.7, 0.3]
    """
    if file_type not in ("mmap_npy", "mmap"):
        raise UsageError("ORD076", "grain_file_type", expected="mmap_npy or mmap", found=file_type)
    spec = _npy_spec if file_type == "mmap_npy" else _mmap_spec
    if ";" not in text:
        return FileSpec(file_type, (Component(spec(text), 1.0, 0),), mixture=False)
    entries = [_entry(entry, position, file_type) for position, entry in enumerate(text.split(";"))]
    check_weights([weight for _, weight in entries], file_type)
    made = (Component(spec(part), weight, position) for position, (part, weight) in enumerate(entries))
    return FileSpec(file_type, tuple(made), mixture=True)


def parse_datasets(text: str) -> FileSpec:
    """Return the datasets of ``mmap_index_builder blend --datasets``: ``path,weight;path,weight``.

    Empty entries are skipped, as there, and take no number. Raises `UsageError`: ORD061 for an entry without a weight,
    ORD063 to ORD067 as `parse_files`, ORD062 for no entry at all.

    >>> [(c.position, c.weight) for c in parse_datasets("/data/a,1;;/data/b,0;").components]
    [(0, 1.0), (1, 0.0)]
    """
    entries = [_entry(part, k, "blend") for k, part in enumerate(p for p in text.split(";") if p.strip())]
    if not entries:
        raise UsageError("ORD062", "--datasets", expected="'path,weight;path,weight'", found=repr(text))
    check_weights([weight for _, weight in entries], "blend")
    made = (Component(_mmap_spec(part), weight, position) for position, (part, weight) in enumerate(entries))
    return FileSpec("mmap_npy", tuple(made), mixture=True)


def check_weights(weights: Sequence[float], name: str = "mmap_npy") -> None:
    """Raise `UsageError` unless weights can be a mixture's: ORD064 .. ORD066 and, for too many above 0, ORD068."""
    for position, weight in enumerate(weights):
        where = f"{name} mixture entry at position {position}"
        if not math.isfinite(weight):
            raise UsageError("ORD066", where, expected="a finite weight", found=weight)
        if weight < 0:
            raise UsageError("ORD064", where, expected="0 or more", found=weight)
    if not 0 < sum(weights) < math.inf:
        raise UsageError("ORD065", f"{name} mixture", expected="a positive total", found=sum(weights))
    positive = sum(weight > 0 for weight in weights)
    if positive > LARGEST_BLEND:
        raise UsageError("ORD068", f"{name} mixture", expected=f"at most {LARGEST_BLEND}", found=positive)


def _entry(entry: str, position: int, name: str) -> tuple[str, float]:
    where = f"{name} mixture entry at position {position}"
    part, comma, number = entry.strip().rpartition(",")
    if not comma:
        raise UsageError("ORD061", where, expected="'spec,weight'", found=repr(entry.strip()))
    if not part.strip():
        raise UsageError("ORD062", where, expected="a spec before the comma", found=repr(entry.strip()))
    try:
        weight = float(number)
    except ValueError as error:
        raise UsageError("ORD063", where, expected="a number after the comma", found=repr(number)) from error
    return part.strip(), weight


def _npy_spec(text: str) -> DataSpec:
    parts = text.strip().split("|")
    if len(parts) != 2:
        raise UsageError("ORD060", expected="'npy_dir|bin_paths', with one '|'", found=repr(text.strip()))
    index_dir, paths = parts[0].strip(), tuple(path.strip() for path in _cut_paths(parts[1]))
    if not index_dir:
        raise UsageError("ORD067", "index directory", expected="'npy_dir|bin_paths'", found=repr(text.strip()))
    for path in (index_dir, *paths):
        _check_path(path, text)
    return DataSpec(paths, index_dir)


def _mmap_spec(text: str) -> DataSpec:
    path = text.strip()
    if "|" in path:
        hint = "drop the part before '|', or set grain_file_type=mmap_npy"
        raise UsageError("ORD060", "direct mmap", expected="a path, without '|'", found=repr(path), hint=hint)
    _check_path(path, text)
    if ":" in path:
        hint = "put the shards in one directory and give that"
        raise UsageError("ORD060", "direct mmap", expected="one path, without ':'", found=repr(path), hint=hint)
    return DataSpec((path,))


def _cut_paths(text: str) -> list[str]:
    """Cut at ':', but not inside a URL's "://": it is refused as what it is."""
    return [part.replace("\0", "://") for part in text.replace("://", "\0").split(":")]


def _check_path(path: str, text: str) -> None:
    if not path:
        raise UsageError("ORD067", expected="a path between the separators", found=repr(text.strip()))
    if "://" in path:
        hint = "mount the bucket (Cloud Storage FUSE for gs://) and give the path where it is mounted"
        raise UsageError("ORD069", expected="a local or mounted path", found=repr(path), hint=hint)


# ---- prefixes ------------------------------------------------------------------------------------------------------


def sorted_prefixes(
    paths: Iterable[str], is_file: Callable[[str], bool], names_in: Callable[[str], Iterable[str] | None]
) -> tuple[str, ...]:
    """Return the prefixes that paths stand for, in the order MaxText numbers their documents: sorted as strings.

    The file system is asked through `is_file(path)` and `names_in(directory)`, None where there is no such directory.
    A path whose ``.idx`` is a file is a prefix; a directory stands for each visible ``.idx`` file directly in it. "shard_10" sorts
    before "shard_2", and the order in which paths were given is lost. Raises `UsageError`: ORD070 for a path with no
    index files, ORD071 for a prefix that is named twice (MaxText reads it twice in each epoch).

    >>> files = {"d.idx", "e/a.idx", "e/b.idx"}
    >>> sorted_prefixes(["e/", "d"], files.__contains__, {"e/": ["b.idx", "a.idx", "a.bin"]}.get)
    ('d', 'e/a', 'e/b')
    """
    found: list[str] = []
    for path in paths:
        if is_file(f"{path}.idx"):
            found.append(path)
            continue
        names = names_in(path)
        if names is None:
            hint = f"ls {path}.idx {path}.bin"
            raise UsageError("ORD070", path=path, expected=f"{path}.idx, or a directory", found="neither", hint=hint)
        folder = path.rstrip("/") + "/"
        shown = (folder + name for name in names if name.endswith(".idx") and not name.startswith("."))
        inside = [prefix.removesuffix(".idx") for prefix in shown if is_file(prefix)]
        if not inside:
            raise UsageError("ORD070", path=path, expected="*.idx in the directory", found="none")
        found += inside
    found.sort()
    for one, other in pairwise(found):
        if one == other:
            raise UsageError("ORD071", path=one, expected="each prefix once", found="twice")
    return tuple(found)
