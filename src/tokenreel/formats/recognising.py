"""Which files of a folder are shards, and of which format: told by what is in them.

Each format has a function ``recognise(store, entries) -> list[Found]``; they are asked in a fixed order, each about the
files that none before it took. Magics come first, then files that stand beside others, then what only fits in size. Last
come ids without a header, whose dtype bytes cannot prove: it is given, or follows from the vocabulary, or is refused.
"""

from __future__ import annotations

import importlib
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokenreel.errors import FormatError
from tokenreel.formats.base import Found
from tokenreel.formats.plugins import others

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy.typing as npt

    from tokenreel.store import Entry, Store

RECOGNITION: tuple[str, ...] = (
    "tokenreel.formats.megatron:recognise_pairs",
    "tokenreel.formats.llmc:recognise_files",
    "tokenreel.formats.datatrove:recognise",
    "tokenreel.formats.olmo:recognise",
    "tokenreel.formats.litdata:recognise",
    "tokenreel.formats.mds:recognise",
    "tokenreel.formats.levanter:recognise",
    "tokenreel.formats.pbin:recognise",
    "tokenreel.formats.ounce:recognise",
)
"""In order of detection. A function gets all files that nothing took yet, and takes those of what it returns."""

WHERE_NOTHING_ELSE_IS: tuple[str, ...] = (
    "tokenreel.formats.raw:recognise_npy",
    "tokenreel.formats.parquet:recognise",
    "tokenreel.formats.arrow:recognise",
    "tokenreel.formats.olmo:recognise_tables",
)
"""Asked one after the other while no shard was found: such files stand beside shards of other formats too, as index files or sidecars."""

GROUPS: tuple[tuple[str, ...], ...] = (
    (".bin", ".idx"),
    (".npy", ".csv.gz"),
    (".ds", ".ds.index", ".ds.metadata", ".ds.loss"),
)
"""Suffixes of files that make one shard, the one with the ids first."""

WAITING = "-"
"""A format whose name ends so waits for its dtype: ``raw-`` becomes ``raw-uint16``."""
PROVED_BY = {f"raw{WAITING}": "tokenreel.formats.raw", f"mds{WAITING}": "tokenreel.formats.mds"}
"""Where it is asked for: the module's ``GIVEN``, dtypes that may be given, and ``prove(store, path, vocab)``."""
_DIGITS = re.compile(r"\d+")
_SUFFIX_OF = {
    "tokenreel.formats.raw:recognise_npy": ".npy",
    "tokenreel.formats.parquet:recognise": ".parquet",
    "tokenreel.formats.arrow:recognise": ".arrow",
}
_INDEX = re.compile(r"(?i)[^/]*(?:index|idx|shuffle|indices)[^/]*\.npy$|/indices/")
_DATA = re.compile(
    r"(?i)\.(?:bin|idx|ds|ds\.index|mds|pbin)(?:\.(?:gz|zst|zstd|xz|bz2|br|snappy|lz4))?$|\.npy\.(?:gz|zst|xz|bz2|lz4)$"
)
APPLE_DOUBLE = b"\x00\x05\x16\x07"


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a folder holds."""

    found: tuple[Found, ...]
    """In byte order of name, or of what an index says; some may wait for their dtype."""
    pairs: bool
    """Whether any file is an ``.idx``: then a lone ``.bin`` has lost its own."""

    @property
    def waiting(self) -> tuple[Found, ...]:
        """Shards whose dtype has to be given."""
        return tuple(shard for shard in self.found if shard.format.endswith(WAITING))


def recognise(store: Store, entries: Iterable[Entry]) -> Recognised:
    """Return the shards among a folder's files. Cost: one small read for each file that may be one.

    Half a pair counts, so that opening it says what is missing. A lone ``.bin`` that no format knows waits for its dtype,
    unless its name says that it is one more of the others'. Sidecars, receipts and other files are left out.
    """
    left = [entry for entry in entries if not _apple_double(store, entry.path)]
    pairs = any(entry.path.endswith(".idx") for entry in left)
    found: list[Found] = []
    for place in RECOGNITION:
        left = _ask(place, store, left, found)
    if not found:
        for place in others():
            left = _ask(place, store, left, found)
    for path in [entry.path for entry in left if entry.path.endswith(".bin")]:
        found.append(_lone(path, found, pairs=pairs))
    if not found:
        for place in WHERE_NOTHING_ELSE_IS:
            if not found:
                left = _ask(place, store, left, found)
    return Recognised(tuple(sorted(found, key=lambda shard: os.fsencode(shard.order or shard.name))), pairs)


def _apple_double(store: Store, path: str) -> bool:
    """Return whether it is what macOS leaves beside each file on other disks: its name, and attributes in its bytes."""
    if not path.startswith("._", path.rfind("/") + 1):
        return False
    reader = store.reader(path)
    try:
        return reader.size < 4 or bytes(reader.read(0, 4)) == APPLE_DOUBLE
    finally:
        reader.close()


def beside(store: Store, entries: Iterable[Entry], found: Sequence[Found]) -> list[Found]:
    """Return shards of formats that are asked for only where nothing else is, among files beside shards of others.

    Such are Parquet and Arrow files with a column of ids, and NumPy's of ids as loaders of text have them; arrays of an
    index are none. Cost: the start of each file with such a name.
    """
    if not found:
        return []
    taken = {file for shard in found for file in shard.files}
    mine = {shard.format for shard in found}
    left = [entry for entry in entries if entry.path not in taken and not _apple_double(store, entry.path)]
    more: list[Found] = []
    for place in WHERE_NOTHING_ELSE_IS[:-1]:
        suffix = _SUFFIX_OF[place]
        asked = [entry for entry in left if entry.path.endswith(suffix) and not _INDEX.search(entry.path)]
        if asked:
            _ask(place, store, asked, more)
    return [shard for shard in more if shard.format not in mine and _holds_ids(store, shard)]


def _holds_ids(store: Store, shard: Found) -> bool:
    """Return whether a file is surely of ids: opens, and a NumPy file has the width that ids have."""
    from tokenreel.formats.registry import open_shard

    if shard.format.endswith(WAITING):
        return False
    if shard.format != "npy":
        return True
    try:
        opened = open_shard(store, shard)
    except FormatError:
        return False
    try:
        return opened.dtype.name in ("uint16", "uint32")
    finally:
        opened.close()


def form_of(path: str) -> str:
    """Return a path with ``#`` for each number: what names of one set of shards have in common.

    >>> form_of("a/part-0012.npy")
    'a/part-#.npy'
    """
    return _DIGITS.sub("#", path)


def looks_like_data(path: str, known: Collection[str]) -> bool:
    """Return whether a file that nothing took has a name as shards have; `known` are the forms of those taken.

    Hidden files and folders, and arrays of an index, are none. Parquet, Arrow and NumPy files stand beside shards for
    many reasons: they count where their names are those of shards but for the digits.

    >>> looks_like_data("data/a.BIN", []), looks_like_data("a_1.bin.gz", []), looks_like_data(".cache/a.bin", [])
    (True, True, False)
    >>> looks_like_data("a-2.npy", ["a-#.npy"]), looks_like_data("lengths.npy", ["a-#.npy"])
    (True, False)
    """
    if any(part.startswith(".") for part in path.split("/")) or _INDEX.search(path):
        return False
    if _DATA.search(path):
        return True
    form = form_of(path)
    return form != path and form in known


def _ask(place: str, store: Store, left: list[Entry], found: list[Found]) -> list[Entry]:
    module, _, function = place.partition(":")
    more: Sequence[Found] = getattr(importlib.import_module(module), function)(store, left)
    if not more:
        return left
    found.extend(more)
    taken = {file for shard in more for file in shard.files}
    return [entry for entry in left if entry.path not in taken]


def _lone(path: str, found: Sequence[Found], *, pairs: bool) -> Found:
    if pairs:
        return Found("megatron-v1", path[:-4], (path, f"{path[:-4]}.idx"))
    form = _DIGITS.sub("#", path)
    if form != path:
        for other in found:
            if other.files[0].endswith(".bin") and _DIGITS.sub("#", other.files[0]) == form:
                return Found(other.format, path[:-4], (path,))
    return Found(f"raw{WAITING}", path[:-4], (path,))


def shards_of(
    store: Store, entries: Iterable[Entry], *, dtype: npt.DTypeLike | None = None, vocab: int | None = None
) -> list[Found]:
    """Return the shards among a folder's files, every one with its dtype, in byte order of name.

    The dtype of ids without a header is `dtype`, else the one that `vocab` proves on the first such file. Raises
    `FormatError` (FLT001) where neither settles it.
    """
    import numpy as np

    seen = recognise(store, entries)
    if not seen.waiting:
        return list(seen.found)
    first = seen.waiting[0]
    told = told_dtype(store, first, dtype, vocab)
    if told is None:
        found = np.dtype(dtype).name if dtype is not None else f"a vocabulary of {vocab}, which fits several or none"
        raise FormatError(
            "FLT001",
            path=f"{store.root.rstrip('/')}/{first.files[0]}",
            expected=f"--dtype {' or '.join(given_for(first))}, or --vocab where that proves one",
            found=None if dtype is None and vocab is None else found,
            hint='--dtype uint16; tokenreel.open(PATH, dtype="uint16"); dtype = "uint16" in the [[corpus]] of a run file',
        )
    return [settled(shard, told) for shard in seen.found]


def given_for(shard: Found) -> tuple[str, ...]:
    """Return the dtypes that may be given for a shard that waits for its own."""
    names: tuple[str, ...] = importlib.import_module(PROVED_BY[shard.format]).GIVEN
    return names


def told_dtype(store: Store, shard: Found, dtype: npt.DTypeLike | None, vocab: int | None) -> str | None:
    """Return the dtype of a shard that waits for it: the one given, else the one that `vocab` proves; None for neither."""
    import numpy as np

    if dtype is not None:
        return next((name for name in given_for(shard) if np.dtype(dtype) == np.dtype(name)), None)
    if vocab is None:
        return None
    proved: str | None = importlib.import_module(PROVED_BY[shard.format]).prove(store, shard.files[0], vocab)
    return proved


def settled(shard: Found, dtype: str) -> Found:
    """Return a shard that waits for its dtype with that dtype; any other as it is.

    >>> settled(Found("raw-", "train", ("train.bin",)), "uint16").format
    'raw-uint16'
    """
    return replace(shard, format=shard.format + dtype) if shard.format.endswith(WAITING) else shard


def find_shards(entries: Iterable[Entry], store: Store | None = None, headerless: str | None = None) -> list[Found]:
    """Return the shards among a folder's files, in byte order of name; ids without a header are of dtype `headerless`.

    Where that is not given, such a ``.bin`` is half of a Megatron pair, and an ``.npy`` is none. Without a `store` no file
    is looked into: every ``.bin`` and ``.idx`` belongs to a pair.
    """
    if store is None:
        names = {entry.path[:-4] for entry in entries if entry.path.endswith((".bin", ".idx"))}
        pairs = [Found("megatron-v1", name, (f"{name}.bin", f"{name}.idx")) for name in names]
        return sorted(pairs, key=lambda shard: os.fsencode(shard.name))
    out = []
    for shard in recognise(store, entries).found:
        if not shard.format.endswith(WAITING):
            out.append(shard)
        elif headerless:
            out.append(settled(shard, headerless))
        elif shard.files[0].endswith(".bin"):
            out.append(replace(shard, format="megatron-v1", files=(f"{shard.name}.bin", f"{shard.name}.idx")))
    return out


def group_of(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return (name without suffix, the files that make one shard with it), or None for a name of no known suffix.

    >>> group_of("a/part-0.npy"), group_of("notes.txt")
    (('a/part-0', ('a/part-0.npy', 'a/part-0.csv.gz')), None)
    """
    for group in GROUPS:
        for suffix in group:
            if name.endswith(suffix) and len(name.rpartition("/")[2]) > len(suffix):
                stem = name[: -len(suffix)]
                return stem, tuple(stem + other for other in group)
    return None
