"""Make HobbyLM's document tables anew: from their own entries where those can be mended, else from inline separators.

Three ways, the first that fits a shard: its entries tile it and hold no separator inside (kept, with their metadata); their
offsets count over all shards instead of each (made relative, kept); else the shard is cut at its slices, where the
lengths of its entries in their order say where those were, and each slice before every separator. Ids are never
touched: every id of a shard is in exactly one document afterwards.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.scanning import find_pattern
from tokenreel.errors import DocumentError, TokenreelError
from tokenreel.formats import open_shard
from tokenreel.formats.hobbylm import DOCS, INDEX, RESERVED, prefix_of
from tokenreel.store import LocalStore, write_bytes_atomic
from tokenreel.verify.hobbylm_tables import EOT, Entry, read_entries, slices_of
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats import Boundary, Found, Shard
    from tokenreel.verify.target import Target


_ANEW = "made anew from"


@dataclass(frozen=True, slots=True)
class MendedTable:
    """The tables of one prefix, before and after."""

    path: str
    """The ``_index.json``."""
    before: int
    """Entries before."""
    documents: int
    """Entries now."""
    tokens: int
    how: dict[str, str]
    """By shard: kept, made relative, or from separators."""

    def lines(self) -> list[str]:
        """Return the form for people."""
        out = [
            f"{self.path}: {counted(self.before, 'entry', 'entries')} before, {counted(self.documents, 'document')} now, "
            f"{counted(self.tokens, 'id')} in them, as in the shards"
        ]
        return [*out, *(f"  {shard}: {how}" for shard, how in self.how.items())]


def mend_tables(target: Target, shards: Sequence[Found], out: Path, *, every: bool = False) -> list[MendedTable]:
    """Write both tables of each prefix that has any, or of `every` one, for the shards that stand in `out` now."""
    groups: dict[str, list[Found]] = {}
    for found in shards:
        prefix = prefix_of(found.name)
        if every or any(prefix + suffix in target.sizes for suffix in (INDEX, DOCS)):
            groups.setdefault(prefix, []).append(found)
    return [_mend(target, prefix, found, out) for prefix, found in groups.items()]


def _mend(target: Target, prefix: str, shards: Sequence[Found], out: Path) -> MendedTable:
    tables = _tables(target, prefix)
    entries = next(iter(tables.values()), [])
    store = LocalStore(out)
    rows: list[dict[str, Any]] = []
    how: dict[str, str] = {}
    base = tokens = 0
    for found in shards:
        file = found.files[0]
        shard = open_shard(store, found)
        try:
            made, how[found.name] = _best(shard, file, tables, base, target.boundary)
            if sum(row["length"] for row in made) != shard.tokens:
                raise DocumentError("DOC024", path=out, shard=found.name, expected=f"{shard.tokens} ids in documents")
            rows += ({"shard": file.rpartition("/")[2], **row} for row in made)
            base += shard.tokens
            tokens += shard.tokens
        finally:
            shard.close()
    source = next((e.item["source"] for e in entries if isinstance(e.item, dict) and "source" in e.item), None)
    index = [{key: row[key] for key in ("shard", "offset", "length")} for row in rows]
    docs = [_line(row, source if source is not None else prefix.rpartition("/")[2]) for row in rows]
    write_bytes_atomic(out / (prefix + INDEX), json.dumps(index, ensure_ascii=False).encode())
    write_bytes_atomic(
        out / (prefix + DOCS), "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in docs).encode()
    )
    return MendedTable(prefix + INDEX, len(entries), len(rows), tokens, how)


def edges_said(target: Target, found: Found, tokens: int | None) -> npt.NDArray[np.int64] | None:
    """Return the edges of a shard's documents as its table says them, where its entries tile so many ids; else None."""
    if tokens is None or not found.format.startswith("hobbylm"):
        return None
    for entries in _tables(target, prefix_of(found.name)).values():
        mine = (entry for entry in entries if entry.shard == found.files[0])
        ordered = sorted(mine, key=lambda entry: (entry.offset, entry.length))
        if ordered and _tiles(ordered, 0, tokens):
            return np.cumsum([0, *(entry.length for entry in ordered)], dtype=np.int64)
    return None


def _tables(target: Target, prefix: str) -> dict[str, list[Entry]]:
    """Return the tables that can be read, by path; first the one that says more: with metadata where both have as many."""
    out: dict[str, list[Entry]] = {}
    for suffix in (DOCS, INDEX):
        if prefix + suffix not in target.sizes:
            continue
        try:
            out[prefix + suffix] = read_entries(target.store, prefix + suffix)[0]
        except TokenreelError:
            continue
    return dict(sorted(out.items(), key=lambda table: -len(table[1])))


def _best(
    shard: Shard, file: str, tables: dict[str, list[Entry]], base: int, boundary: Boundary
) -> tuple[list[dict[str, Any]], str]:
    """Return the documents of a shard by the first table that needs no separators, else by the first table and separators."""
    first: tuple[list[dict[str, Any]], str] | None = None
    for path, entries in (tables or {"": []}).items():
        mine = [entry for entry in entries if entry.shard == file]
        made = _documents(shard, mine, base, boundary)
        if not made[1].startswith(_ANEW):
            return made if first is None else (made[0], f"{made[1]}, of {path.rpartition('/')[2]}")
        first = first or made
    if first is None:
        raise ValueError("no table was tried")
    return first


def _line(row: dict[str, Any], source: str) -> dict[str, Any]:
    return {key: row[key] for key in ("shard", "offset", "length")} | {"source": source, "meta": row["meta"]}


def _separators(shard: Shard, boundary: Boundary) -> tuple[npt.NDArray[np.int64], str]:
    """Return where documents begin by the ids around them, and which: a prefix, else what is behind a suffix."""
    if boundary.suffix and not boundary.prefix:
        begins = find_pattern(shard.read, shard.tokens, boundary.suffix) + len(boundary.suffix)
        return np.append(0, begins[begins < shard.tokens]), f"suffixes {list(boundary.suffix)}"
    separator = boundary.prefix or (EOT,)
    return find_pattern(shard.read, shard.tokens, separator), f"separators {list(separator)}"


def _documents(
    shard: Shard, entries: Sequence[Entry], base: int, boundary: Boundary
) -> tuple[list[dict[str, Any]], str]:
    """Return the documents of a shard, and how they were found."""
    at, separators = _separators(shard, boundary)
    ordered = sorted(entries, key=lambda entry: entry.offset)
    if ordered and _tiles(ordered, 0, shard.tokens) and _whole(ordered, 0, at):
        return [_kept(entry, entry.offset) for entry in ordered], "entries kept"
    if ordered and base and _tiles(ordered, base, shard.tokens) and _whole(ordered, base, at):
        made = [_kept(entry, entry.offset - base) for entry in ordered]
        return made, f"offsets counted over all shards: made relative, {base} less"
    within = [entry for entry in ordered if entry.offset + entry.length <= shard.tokens]
    fewer = within and len(within) < len(ordered)
    if fewer and _tiles(within, 0, shard.tokens) and _whole(within, 0, at):
        gone = counted(len(ordered) - len(within), "entry", "entries")
        return [_kept(entry, entry.offset) for entry in within], f"entries kept, {gone} of what is gone left out"
    edges = slices_of(entries, shard.tokens) if entries else None
    slices = edges or [0, shard.tokens]
    made = []
    for number, (first, end) in enumerate(pairwise(slices)):
        owner = entries[number] if edges else None
        for begin, stop in _pieces(at, first, end):
            starts = bool(np.isin(begin, at))
            made.append({"offset": begin, "length": stop - begin, "meta": _meta(owner, begin - first, starts=starts)})
    slices_said = f", in {counted(len(slices) - 1, 'slice')}" if len(slices) > 2 else ""
    return made, f"{_ANEW} {separators}{slices_said}"


def split_by_eot(
    ids: npt.NDArray[Any], separator: tuple[int, ...] = (EOT,), *, keep_head: bool = True
) -> list[tuple[int, int]]:
    """Return the documents of a slice of a stream as (begin, end): cut before every separator, the last to the end.

    What comes before the first separator is the rest of a document that was cut where the slice begins; without
    `keep_head` it is left out. With it every id is in exactly one document.

    >>> split_by_eot(np.array([7, 50256, 5, 50256]))
    [(0, 1), (1, 3), (3, 4)]
    >>> split_by_eot(np.array([7, 50256, 5, 50256]), keep_head=False)
    [(1, 3), (3, 4)]
    """
    at = find_pattern(lambda begin, end: ids[begin:end], len(ids), separator)
    pieces = _pieces(at, 0, len(ids))
    return pieces if keep_head or not pieces or (len(at) and at[0] == 0) else pieces[1:]


def _pieces(at: npt.NDArray[np.int64], first: int, end: int) -> list[tuple[int, int]]:
    """Return [first, end) cut at every place of `at` inside it."""
    inside = at[(at > first) & (at < end)].tolist()
    return list(pairwise([first, *inside, end])) if end > first else []


def _tiles(entries: Sequence[Entry], base: int, tokens: int) -> bool:
    end = base
    for entry in entries:
        if entry.offset != end or entry.length < 0:
            return False
        end += entry.length
    return end == base + tokens


def _whole(entries: Sequence[Entry], base: int, at: Any) -> bool:
    """Return whether no separator stands inside a document."""
    begins = np.array([entry.offset - base for entry in entries])
    return bool(np.isin(at, begins).all())


def _kept(entry: Entry, offset: int) -> dict[str, Any]:
    item = entry.item if isinstance(entry.item, dict) else {}
    inner = item.get("meta")
    meta: dict[str, Any] = inner if isinstance(inner, dict) else {}
    flat = {key: value for key, value in item.items() if key not in RESERVED and key != "meta"}
    meta = {key: value for key, value in (meta | flat).items() if key not in RESERVED}
    return {"offset": offset, "length": entry.length, "meta": meta}


def _meta(owner: Entry | None, within: int, *, starts: bool) -> dict[str, Any]:
    """Return what is known of a piece of a slice: where the slice came from, and whether the piece begins a document."""
    item = owner.item if owner is not None and isinstance(owner.item, dict) else {}
    meta: dict[str, Any] = {}
    if owner is not None and "source_shard" in item:
        meta["source_shard"] = item["source_shard"]
        meta["source_offset"] = owner.offset + within
    if not starts:
        meta["truncated_start"] = True
    return meta
