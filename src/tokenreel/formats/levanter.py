"""Read Levanter caches: ids of all documents end to end, and their ends, each an array in Zarr's format 3.

``input_ids/offsets`` (int64) holds the number of rows n, then the n ends; ``input_ids/data`` holds the ids. Both are
declared far longer than they are: what is in them is known from the offsets. See `levanter_ledger` for the rest.
"""

from __future__ import annotations

from itertools import chain, takewhile
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.base import Found, Problem
from tokenreel.formats.indexed import parsed
from tokenreel.formats.levanter_ledger import FIELDS, LEDGER, Member, parse_ledger
from tokenreel.formats.loaded import full_path
from tokenreel.formats.tabled import CHUNK, TableShard
from tokenreel.formats.zarr_array import METADATA, ZarrArray

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tokenreel.formats.base import Edges, Ids
    from tokenreel.store.base import Entry, Store

FORMAT = "levanter"


def recognise(store: Store, entries: Sequence[Entry]) -> list[Found]:
    """Return the stores of the caches of a listing, in the order of their ledgers; one read of each ``shard_ledger.json``."""
    have = sorted(entry.path for entry in entries)
    ledgers = [path for path in have if path.rpartition("/")[2] == LEDGER]
    found: dict[str, Found] = {}
    inside: set[str] = set()
    for path in sorted(ledgers, key=lambda path: (path.count("/"), path)):
        folder = path.rpartition("/")[0]
        if folder in inside:  # what a shard was made with
            continue
        for member in parsed(store, path, parse_ledger).members.values():
            inside.add(member.path.removesuffix("/0").rpartition("/")[0])
            found[member.path] = Found(FORMAT, member.path, (), f"{folder}/{member.order:012d}")
    if not ledgers:  # opening says that there is none
        ends = tuple(f"/{field}/offsets/{METADATA}" for field in FIELDS)
        names = [path.removesuffix(f"/offsets/{METADATA}") for path in have if f"/{path}".endswith(ends)]
        found = {name: Found(FORMAT, name, ()) for name in names}
    files: dict[str, list[str]] = {name: [] for name in found}
    for path in have:
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in files:
                files[above].append(path)
                break
    # The files with ids first.
    return [
        Found(
            FORMAT,
            name,
            tuple(sorted(files[name], key=lambda path: not path.startswith(f"{name}/data/c"))),
            shard.order,
        )
        for name, shard in found.items()
    ]


def open_cache(store: Store, name: str, *, accept: Collection[str] = ()) -> LevanterShard:
    """Open one store of a cache, by the path of its field of ids; O(1): at most two chunks of offsets are decoded.

    Raises `FormatError`: LEV001 .. LEV004 for the ledger (LEV002, not finished, may be accepted), LEV005 and LEV010 for
    arrays that are not read. Rows and ids are as the ledger says, where it says them by store; else the offsets are looked
    into. `check_table` raises LEV006 for counts that are others, LEV007 for offsets that fall, LEV008 and LEV009 for chunks
    that are missing or damaged.
    """
    path, member, finished = _member(store, name)
    if not finished and "LEV002" not in accept:
        raise FormatError("LEV002", path=full_path(store, path), expected="is_finished", found="not finished")
    data, offsets = (ZarrArray(store, f"{name}/{part}", frozenset(accept)) for part in ("data", "offsets"))
    if offsets.dtype != np.dtype("<i8"):
        place = full_path(store, f"{name}/offsets")
        raise FormatError("LEV005", path=place, expected="int64", found=offsets.dtype.name)
    rows, tokens = member.rows, member.tokens
    if not finished or tokens is None:
        rows = _rows(offsets, member.rows)
        tokens = _last(store, name, offsets, rows)
    if not (rows < offsets.described.length and 0 <= tokens <= data.described.length):
        raise _counts(store, name, "as many as the arrays are long", f"{rows} rows of {tokens} ids")
    if finished and rows != member.rows:
        raise _counts(store, name, f"{member.rows} rows", rows)
    return LevanterShard(store, name, data, offsets, rows, tokens)


def _rows(offsets: ZarrArray, told: int) -> int:
    """Return the number of rows; of a store that is said to have none, no chunk need be there: zeros are not stored."""
    try:
        return int(offsets.read(0, 1)[0])
    except FormatError as error:
        if error.code != "LEV008" or told:
            raise
        return 0


def _last(store: Store, name: str, offsets: ZarrArray, rows: int) -> int:
    if not 0 <= rows < offsets.described.length:
        raise _counts(store, name, f"0 .. {offsets.described.length - 1} rows", rows)
    return int(offsets.read(rows, rows + 1)[0]) if rows else 0


def _member(store: Store, name: str) -> tuple[str, Member, bool]:
    parts = name.split("/")
    for depth in range(len(parts)):  # the outermost: a shard may hold the ledger it was made with
        path = "/".join([*parts[:depth], LEDGER])
        if store.exists(path):
            ledger = parsed(store, path, parse_ledger)
            if name in ledger.members:
                return path, ledger.members[name], ledger.finished
    raise FormatError(
        "LEV001",
        path=full_path(store, name),
        expected=f"a {LEDGER} that names it",
        hint=f"tokenreel repair {store.root} --out DIR",
    )


def _counts(store: Store, name: str, expected: object, found: object) -> FormatError:
    return FormatError("LEV006", path=full_path(store, f"{name}/offsets"), expected=expected, found=found)


class LevanterShard(TableShard):
    """One open store. Its ids are not contiguous: chunks are decoded, a MiB at a time.

    `byte_at` names the file and the byte where the stored chunk begins that holds a token.
    """

    contiguous = False

    def __init__(self, store: Store, name: str, data: ZarrArray, offsets: ZarrArray, rows: int, tokens: int) -> None:
        self._data = data
        self._offsets = offsets
        described = [f"{name}/{part}/{METADATA}" for part in ("data", "offsets")]
        # As far as they are there: counts are not looked at yet.
        stored = (takewhile(store.exists, part) for part in (data.files(tokens), offsets.files(rows + 1)))
        found = Found(FORMAT, name, (*chain.from_iterable(stored), *described))
        super().__init__(store, found, store.reader(described[0]), data.dtype.str, 0, tokens, rows)

    def _edges(self, i: int, j: int) -> Edges:
        if not self.documents:
            return np.zeros(1, dtype=np.int64)
        edges = self._offsets.read(i, j + 1)
        if i == 0:
            edges[0] = 0  # the number of rows stands there
        return edges

    def _examine(self) -> Problem | None:
        return next(self.problems(), None)

    def problems(self) -> Iterator[Problem]:
        """Yield everything wrong with the counts and the offsets; raises `FormatError` for chunks (LEV008, LEV009)."""
        rows = _rows(self._offsets, self.documents)
        tokens = _last(self._store, self.name, self._offsets, rows)
        if (rows, tokens) != (self.documents, self.tokens):
            path, offset = self._offsets.place_of(0)
            expected = f"{self.documents} rows of {self.tokens} ids, as the ledger says"
            yield Problem("LEV006", path, "", offset, expected=expected, found=f"{rows} of {tokens}")
            return
        for begin in range(0, self.documents, CHUNK):
            edges = self._edges(begin, min(self.documents, begin + CHUNK))
            for k in np.flatnonzero((edges[1:] < edges[:-1]) | (edges[1:] > self.tokens)).tolist():
                path, offset = self._offsets.place_of(begin + k + 1)
                expected, found = f"{int(edges[k])} .. {self.tokens}", int(edges[k + 1])
                yield Problem("LEV007", path, "", offset, document=begin + k, expected=expected, found=found)
        self._data.check(self.tokens)

    def _ids(self, begin: int, end: int) -> Ids:
        ids = self._data.read(begin, end)
        ids.flags.writeable = False
        return ids

    def byte_at(self, position: int) -> tuple[str, int]:
        """Return the file and the byte where the stored chunk of a token begins."""
        return self._data.place_of(position)
