"""Rules over HobbyLM's document tables, each entry by itself: a reader stops at the first thing wrong, this lists all.

The two bugs that such tables have had: slices of a raw shard indexed as documents (separators inside, first ids that are none,
lengths all alike), and an offset overwritten by a metadata key of the same name (entries outside their shard, shards not
tiled, two tables that differ).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import TokenreelError
from tokenreel.formats import open_shard
from tokenreel.formats.hobbylm import DOCS, FIELDS, INDEX, RESERVED, sidecars_of
from tokenreel.store import loads_strict
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.formats import Found, Shard
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target

EOT = 50256
"""What stands before a document where no boundary is declared: such corpora are of GPT-2 ids."""
ALIKE = 3
"""Documents of one length, and that a round one, from which on it is suspicious."""
ROUND = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a table."""

    number: int
    shard: str
    """Path below the root."""
    offset: int
    length: int
    item: Any
    """As it was parsed."""


def read_entries(target_store: Any, path: str) -> tuple[list[Entry], list[tuple[int, str]]]:
    """Return the entries of a table in its order, and (number, why) of those that are none or say a field twice.

    Raises `ManifestError` (MAN001, MAN002) for JSON that is none, MAN003 for another shape.
    """
    from tokenreel.errors import ManifestError

    data = target_store.read(path)
    items: Any
    if path.endswith(DOCS):
        lines = (line for line in data.split(b"\n") if line.strip())
        items = [loads_strict(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    else:
        value = loads_strict(data, path)
        items = value.get("documents") if isinstance(value, dict) else value
    if not isinstance(items, list):
        raise ManifestError("MAN003", path=path, expected="a list of documents", found=type(items).__name__)
    folder = path.rpartition("/")[0]
    entries, wrong = [], []
    for number, item in enumerate(items):
        values, why = _values(item)
        if why:
            wrong.append((number, why))
        if values is not None:
            shard, offset, length = values
            entries.append(Entry(number, f"{folder}/{shard}" if folder else shard, offset, length, item))
    return entries, wrong


def _values(item: Any) -> tuple[tuple[str, int, int] | None, str]:
    why = ""
    if isinstance(item, dict):
        said = [[item[name] for name in names if name in item] for names in FIELDS]
        inner = item.get("meta")
        twice = sorted(RESERVED & set(inner)) if isinstance(inner, dict) else []
        if twice:
            why = f"meta holds the reserved {', '.join(twice)}"
        elif any(len(values) > 1 for values in said):
            why = f"a field is said twice: {', '.join(sorted(RESERVED & set(item)))}"
        values = [one[0] if one else None for one in said]
    else:
        values = item if isinstance(item, list) else [None]
    match values:
        case [str(shard), int(offset), int(length)] if shard and not any(isinstance(v, bool) for v in values):
            if max(offset, length, -offset, -length) >> 62 == 0:
                return (shard, offset, length), why
    return None, why or "no shard, offset and length"


def check_tables(target: Target, unit: Found, findings: Findings) -> bool:
    """Add everything wrong with the tables beside a unit's shards; returns whether documents cannot be told by them."""
    names = {file: found for found in target.files for file in found.files if file in unit.files}
    sidecars = tuple(dict.fromkeys(path for found in names.values() for path in sidecars_of(target.store, found.name)))
    if not sidecars:
        return False
    before = findings.severities.get("error", 0) + len(findings.ignored)
    first: dict[str, tuple[str, list[Entry]]] = {}
    covered: set[str] = set()
    for path in sidecars:
        try:
            entries, wrong = read_entries(target.store, path)
        except TokenreelError as error:
            findings.caught(error, target.store.root, path=path)
            continue
        for number, why in wrong:
            findings.error(
                "SID005" if "reserved" in why or "twice" in why else "SID001", why, path=path, document=number
            )
        prefix = path.removesuffix(INDEX).removesuffix(DOCS)
        if prefix in first:
            _same(findings, first[prefix], path, entries)
            continue
        first[prefix] = (path, entries)
        covered |= {entry.shard for entry in entries}
        _check_entries(target, findings, path, entries, names)
    for file in names:
        if file not in covered and any(_prefix(file) == prefix for prefix in first):
            findings.error("SID006", f"no entry is in {file}", path=file, expected=f"entries in {', '.join(sidecars)}")
    return findings.severities.get("error", 0) + len(findings.ignored) > before


def _prefix(file: str) -> str:
    stem = file.rpartition(".")[0]
    return stem.rstrip("0123456789").removesuffix("_")


def _same(findings: Findings, first: tuple[str, list[Entry]], path: str, entries: Sequence[Entry]) -> None:
    one, known = first
    if len(known) != len(entries):
        findings.error("SID004", path=path, expected=f"{len(known)} documents, as in {one}", found=len(entries))
    for a, b in zip(known, entries, strict=False):
        mine, theirs = (a.shard, a.offset, a.length), (b.shard, b.offset, b.length)
        if mine != theirs:
            findings.error(
                "SID004", path=path, document=b.number, expected=f"{list(mine)}, as in {one}", found=list(theirs)
            )


def _check_entries(
    target: Target, findings: Findings, path: str, entries: Sequence[Entry], names: dict[str, Found]
) -> None:
    by_shard: dict[str, list[Entry]] = {}
    for entry in entries:
        by_shard.setdefault(entry.shard, []).append(entry)
    for file, rows in by_shard.items():
        found = names.get(file)
        if found is None or found.name in target.broken:
            if found is None and target.missing(file):
                findings.error("SID006", f"{file} is not there", path=path, document=rows[0].number, found=file)
            continue
        shard = open_shard(target.store, found, target.accept)
        try:
            inside = []
            for row in rows:
                if row.offset >= 0 and row.length >= 0 and row.offset + row.length <= shard.tokens:
                    inside.append(row)
                    continue
                findings.error(
                    "SID002",
                    path=path,
                    shard=found.name,
                    document=row.number,
                    expected=f"within [0, {shard.tokens})",
                    found=f"[{row.offset}, {row.offset + row.length})",
                )
            _check_tiling(findings, path, found.name, rows, shard.tokens)
            _check_separators(target, findings, path, found.name, inside, shard)
        finally:
            shard.close()
    _check_lengths(findings, path, entries)


def _check_tiling(findings: Findings, path: str, shard: str, rows: Sequence[Entry], tokens: int) -> None:
    order = sorted(rows, key=lambda row: (row.offset, row.length))
    ends = [(0, None), *((row.offset + row.length, row) for row in order)]
    begins = [*((row.offset, row) for row in order), (tokens, None)]
    for (end, _), (begin, row) in zip(ends, begins, strict=True):
        if begin != end:
            findings.error(
                "SID003",
                f"{'a gap' if begin > end else 'an overlap'} at token {end}",
                path=path,
                shard=shard,
                document=None if row is None else row.number,
                expected=f"a document from {end} on" if row is not None else f"the last to end at {tokens}",
                found=begin if row is not None else end,
            )
    total = sum(row.length for row in rows)
    if total != tokens:
        message = f"its entries have {total:,} tokens in all, and the shard {tokens:,}"
        findings.error("SID003", message, path=path, shard=shard, expected=tokens, found=total)


def _check_separators(
    target: Target, findings: Findings, path: str, name: str, rows: Sequence[Entry], shard: Shard
) -> None:
    prefix = target.boundary.prefix or (() if target.boundary.suffix else (EOT,))
    if len(prefix) != 1:
        return
    declared = bool(target.boundary.prefix)
    bare = 0
    for row in rows:
        if row.length == 0:
            continue
        ids = shard.read(row.offset, row.offset + row.length)
        # Where the suffix is the same id, the last one is in its place.
        within = ids[1:-1] if target.boundary.suffix == prefix else ids[1:]
        inside = int(np.count_nonzero(within == prefix[0]))
        if inside:
            findings.error(
                "SID007",
                f"{prefix[0]} stands inside it {counted(inside, 'time')}",
                path=path,
                shard=name,
                document=row.number,
                expected="one only at its beginning",
                found=inside,
            )
        if int(ids[0]) != prefix[0]:
            bare += 1
            # A slice of a stream begins in the middle of a document: one, at the beginning of a shard, is no error.
            if declared and row.offset:
                findings.warning(
                    "SID008", path=path, shard=name, document=row.number, expected=prefix[0], found=int(ids[0])
                )
    if bare and not declared:
        message = f"{counted(bare, 'document')} do not begin with {prefix[0]}"
        findings.warning("SID008", message, path=path, shard=name, expected=prefix[0], found=bare)


def _check_lengths(findings: Findings, path: str, entries: Sequence[Entry]) -> None:
    """Warn of lengths that are all one round number: slices, not documents."""
    lengths = Counter(entry.length for entry in entries)
    if not lengths:
        return
    length, count = lengths.most_common(1)[0]
    alike = count >= ALIKE and count >= 0.9 * len(entries)
    if alike and length >= ROUND and length % ROUND == 0:
        found = f"{count} of {len(entries)} documents have {length:,} tokens"
        findings.warning("SID009", path=path, expected="documents of many lengths", found=found)


def slices_of(entries: Sequence[Entry], tokens: int) -> list[int] | None:
    """Return the edges of a shard's slices, if its entries' lengths in their order fill it exactly; else None.

    >>> slices_of([Entry(0, "a", 37, 100, None), Entry(1, "a", 150, 140, None)], 240)
    [0, 100, 240]
    """
    edges = np.concatenate(([0], np.cumsum([entry.length for entry in entries], dtype=np.int64))).tolist()
    whole = edges[-1] == tokens and all(a <= b for a, b in pairwise(edges))
    return edges if whole else None
