"""Ids and sources of documents by number, as a corpus's ``documents.parquet`` records them; read once, kept small."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tokenreel.errors import MissingExtra, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.corpus.corpus import Corpus

DOCUMENTS = "documents.parquet"
_tables: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def recorded(corpus: Corpus, documents: Sequence[int]) -> list[dict[str, Any]]:
    """Return, per document, its ``id`` (hex) and ``source``; nothing where the corpus does not record them."""
    table = rows_of(corpus)
    if table is None:
        return [{} for _ in documents]
    ids, sources = table
    return [{"id": ids[k].as_py().hex(), "source": sources[k].as_py()} for k in documents]


def rows_of(corpus: Corpus) -> tuple[Any, Any] | None:
    """Return (ids, sources) of all documents of a corpus as Arrow arrays, or None. Memory: 20 bytes a document."""
    try:
        found = _tables.get(corpus)
    except TypeError:
        found = None
    if found is None:
        found = (_read(corpus),)
        _tables[corpus] = found
    table: tuple[Any, Any] | None = found[0]
    return table


def _read(corpus: Corpus) -> tuple[Any, Any] | None:
    root = getattr(corpus.store, "root", None)
    if corpus.manifest is None or root is None or not Path(root, DOCUMENTS).is_file():
        return None
    try:
        pa = require("pyarrow", extra="build")
        parquet = require("pyarrow.parquet", extra="build")
    except MissingExtra:
        return None
    import pyarrow.compute as pc

    starts = dict(
        zip(
            (entry.name for entry in corpus.entries),
            accumulate((entry.documents for entry in corpus.entries), initial=-corpus.lo),
            strict=False,
        )
    )
    table = parquet.read_table(Path(root, DOCUMENTS), columns=["id", "source", "shard", "index"])
    shard = table.column("shard").cast(pa.string()).combine_chunks()
    mine = pc.is_in(shard, pa.array(list(starts), pa.string()))
    table, shard = table.filter(mine), shard.filter(mine)
    base = pa.array([starts[name] for name in shard.to_pylist()], pa.int64())
    number = pc.add(base, table.column("index").combine_chunks())
    order = pc.sort_indices(number)
    inside = order.filter(pc.and_(pc.greater_equal(number.take(order), 0), pc.less(number.take(order), len(corpus))))
    if len(inside) != len(corpus):
        return None
    ids = table.column("id").combine_chunks().take(inside)
    return ids, table.column("source").cast(pa.string()).combine_chunks().take(inside)
