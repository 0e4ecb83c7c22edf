"""Read HobbyLM's document tables: ``PREFIX_index.json`` and ``PREFIX_docs.jsonl`` beside ``PREFIX_NNNNNN.bin``.

An entry names a shard file, the offset of a document in its ids, and a length; the second file says the same, one line a
document, with metadata. Both have been written wrongly (slices taken for documents; an offset overwritten by a metadata
key of the same name), so a table is used only if its documents tile every shard, and if both files say the same.

The names of the fields are not published. Taken: objects with ``shard`` (``shard_file``, ``file``), ``offset``
(``start``) and ``length`` (``num_tokens``, ``n_tokens``), or rows of three; a list, or an object with ``documents``.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.llmc import open_file as open_llmc
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import numpy.typing as npt

    from tokenreel.formats.base import Edges
    from tokenreel.formats.flat import FlatShard
    from tokenreel.store.base import Store

    Entries = dict[str, npt.NDArray[np.int64]]

FORMAT = "hobbylm-v1"
INDEX, DOCS = "_index.json", "_docs.jsonl"
FIELDS = (("shard", "shard_file", "file"), ("offset", "start"), ("length", "num_tokens", "n_tokens"))
RESERVED = {name for names in FIELDS for name in names} | {"source"}
_NUMBERED = re.compile(r"_\d+$")


def prefix_of(name: str) -> str:
    """Return a shard's name without its number; the name itself where it has none.

    >>> prefix_of("a/wiki_000000"), prefix_of("wiki")
    ('a/wiki', 'wiki')
    """
    return _NUMBERED.sub("", name)


def sidecars_of(store: Store, name: str) -> tuple[str, ...]:
    """Return the tables that stand beside a shard, by its name without suffix; two look-ups.

    >>> from tokenreel.store import MemoryStore
    >>> sidecars_of(MemoryStore({"a/wiki_index.json": b"[]"}), "a/wiki_000000")
    ('a/wiki_index.json',)
    """
    prefix = prefix_of(name)
    if prefix == name:
        return ()
    return tuple(path for path in (prefix + INDEX, prefix + DOCS) if store.exists(path))


def open_file(store: Store, path: str, *, accept: Collection[str] = ()) -> FlatShard:
    """Open a shard, an llm.c shard of version 1; the tables beside it are the corpus's. Raises as `llmc.open_file`."""
    return open_llmc(store, path, accept=accept, named=FORMAT)


def document_tables(store: Store, sidecars: Iterable[str], sizes: Mapping[str, int]) -> Entries:
    """Return, by path of shard, the edges of its documents: int64, from 0 to its tokens.

    `sizes` are the tokens of the shards by path; entries of other shards that are there are passed over. Raises
    `FormatError`: SID001 an entry that is none, SID002 outside its shard, SID003 entries that do not tile a shard, SID004
    tables that differ, SID005 a field said twice, SID006 a shard without entries, or entries without a shard; and
    `ManifestError` (MAN001, MAN002) for JSON that is none.
    """
    tables: dict[str, Edges] = {}
    read: dict[str, tuple[str, Entries]] = {}
    for path in sidecars:
        entries = _by_shard(store, path)
        prefix = path.removesuffix(INDEX).removesuffix(DOCS)
        if prefix in read:
            _same(read[prefix][0], read[prefix][1], path, entries, store)
            continue
        read[prefix] = (path, entries)
        for shard, rows in entries.items():
            if shard in sizes:
                tables[shard] = _tiled(rows, sizes[shard], shard, path, store)
            elif not store.exists(shard):
                raise sidecar_error(
                    store, "SID006", path, f"{shard} is not there", expected=", ".join(sizes), found=shard
                )
    for shard in sizes:
        if shard not in tables:
            raise sidecar_error(
                store, "SID006", shard, "no entry is in it", expected=f"entries in {', '.join(sidecars)}"
            )
    return tables


def _by_shard(store: Store, path: str) -> Entries:
    """Return the (offset, length) rows of each shard that a table names, sorted by offset."""
    folder = path.rpartition("/")[0]
    rows: dict[str, array[int]] = {}
    for number, item in enumerate(_items(store, path)):
        shard, offset, length = entry_of(store, path, number, item)
        found = rows.setdefault(f"{folder}/{shard}" if folder else shard, array("q"))
        found.extend((offset, length))
    return {shard: _sorted(np.frombuffer(found, dtype=np.int64).reshape(-1, 2)) for shard, found in rows.items()}


def _sorted(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


def _items(store: Store, path: str) -> Iterator[Any]:
    """Yield the entries of a table; one line of ``PREFIX_docs.jsonl`` at a time."""
    data = store.read(path)
    if path.endswith(DOCS):
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                yield loads_strict(line, f"{store.root}/{path}, line {number}")
        return
    value = loads_strict(data, f"{store.root}/{path}")
    items = value.get("documents") if isinstance(value, dict) else value
    if not isinstance(items, list):
        raise sidecar_error(store, "SID001", path, expected="a list of documents", found=type(items).__name__)
    yield from items


def entry_of(store: Store, path: str, number: int, item: Any) -> tuple[str, int, int]:
    """Return (shard, offset, length) of one entry; raises `FormatError` (SID001, SID005)."""
    if isinstance(item, dict):
        said = [[item[name] for name in names if name in item] for names in FIELDS]
        inner = item.get("meta")
        twice = sorted(RESERVED & set(inner)) if isinstance(inner, dict) else []
        if twice or any(len(values) > 1 for values in said):
            raise sidecar_error(
                store, "SID005", path, document=number, expected="each field once, none of them in meta",
                found=", ".join(twice) or ", ".join(sorted(RESERVED & set(item))),
            )  # fmt: skip
        values = [one[0] if one else None for one in said]
    else:
        values = item if isinstance(item, list) else [None]
    match values:
        case [str(shard), int(offset), int(length)] if shard and not any(isinstance(v, bool) for v in values):
            if max(offset, length, -offset, -length) >> 62 == 0:
                return shard, offset, length
    raise sidecar_error(store, "SID001", path, document=number, expected="shard, offset, length", found=str(item)[:120])


def _tiled(rows: npt.NDArray[np.int64], tokens: int, shard: str, path: str, store: Store) -> Edges:
    begins, lengths = rows[:, 0], rows[:, 1]
    wrong = np.flatnonzero((begins < 0) | (lengths < 0) | (begins + lengths > tokens))
    if len(wrong):
        k = int(wrong[0])
        found = f"[{int(begins[k])}, {int(begins[k] + lengths[k])})"
        raise sidecar_error(store, "SID002", path, shard=shard, expected=f"within [0, {tokens})", found=found)
    edges = np.append(begins, tokens)
    ends = np.concatenate(([0], begins + lengths))
    apart = np.flatnonzero(edges != ends)
    if len(apart):
        k = int(apart[0])
        what = "a gap" if edges[k] > ends[k] else "an overlap"
        raise sidecar_error(store, "SID003", path, f"{what} at token {int(ends[k])}", shard=shard,
                     expected=f"a document from {int(ends[k])} on", found=int(edges[k]))  # fmt: skip
    return edges


def _same(one: str, entries: Entries, path: str, other: Entries, store: Store) -> None:
    for shard in sorted({*entries, *other}):
        a, b = entries.get(shard), other.get(shard)
        if a is None or b is None or not np.array_equal(a, b):
            counts = [0 if rows is None else len(rows) for rows in (a, b)]
            what = "" if counts[0] != counts[1] else ", other offsets or lengths"
            raise sidecar_error(store, "SID004", path, shard=shard,
                         expected=f"{counts[0]} documents, as in {one}", found=f"{counts[1]}{what}")  # fmt: skip


def sidecar_error(
    store: Store,
    code: str,
    path: str,
    message: str = "",
    *,
    shard: str | None = None,
    document: int | None = None,
    expected: object = None,
    found: object = None,
) -> FormatError:
    """Return the error for something wrong with a table."""
    return FormatError(
        code,
        message,
        path=f"{store.root.rstrip('/')}/{path}",
        shard=shard,
        document=document,
        expected=expected,
        found=found,
    )
