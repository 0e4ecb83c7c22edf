"""What packing does to a corpus, as plain data: waste by source and row length, concentration, counts by policy."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError, OrderError, UsageError, require
from tokenreel.pack.packed_policy import Packing
from tokenreel.pack.plan_sizes import Sizes
from tokenreel.pack.stats import pack_stats
from tokenreel.pack.waste import summed, top_shares, waste_of
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus

    Codes = tuple[npt.NDArray[np.int64], list[str]]

DOCUMENTS = "documents.parquet"
DOCS = "_docs.jsonl"
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
USUAL = (
    ("concat", None), ("bestfit", "split"), ("firstfit", "split"), ("one-per-row", "split"), ("truncate", None),
    ("crop", "truncate"), ("bos-aligned", None), ("decompose", None),
)  # fmt: skip
"""Policies that are shown where none is asked for, and what they do with long documents."""
_NUMBER = re.compile(r"[_-]?\d+$")


def usual_packings(row_tokens: int) -> list[Packing]:
    """Return the packings shown where none is asked for; decompose only for rows of a power of two.

    >>> [str(packing) for packing in usual_packings(100)][:3]
    ['concat', 'bestfit, split', 'firstfit, split']
    """
    return [
        Packing.of(policy, row_tokens, oversize=oversize)
        for policy, oversize in USUAL
        if policy != "decompose" or row_tokens & (row_tokens - 1) == 0
    ]


def corpus_packing(
    corpus: Corpus, packings: Sequence[Packing], *, seed: int = 0, group: str | None = None, threads: int = 1
) -> dict[str, Any]:
    """Return what rows of the lengths of `packings` waste on a corpus, by source, and what each packing does to it.

    `group` names what belongs together besides a document: ``source``, or a key of the documents' metadata. Raises
    `OrderError` (PCK023) for a corpus of unknown boundaries, `UsageError` (USE003) for a group that nothing names.
    """
    if not corpus.boundary.known:
        raise OrderError(
            "PCK023", path=corpus.path, expected="a prefix, a suffix or a table", hint="--boundary suffix=ID"
        )
    sizes = Sizes.of(corpus.table())
    lengths = sizes.lengths.astype(np.int64)
    rows = list(dict.fromkeys(packing.row_tokens for packing in packings))
    codes, names = sources_of(corpus, sizes)
    sources = [source_facts(name, lengths[codes == k], rows) for k, name in enumerate(names)]
    facts: dict[str, Any] = {
        "path": corpus.path,
        "documents": sizes.documents,
        "tokens": sizes.tokens,
        "sources": sources,
        "whole": source_facts("all", lengths, rows),
        "packing": [pack_stats(sizes, packing, seed, threads=threads).as_dict() for packing in packings],
    }
    if group is not None:
        by_group, members = (codes, names) if group == "source" else groups_of(corpus, sizes, group)
        facts["groups"] = {"by": group, "count": len(members), "top": _keys(top_shares(summed(lengths, by_group)))}
    return facts


def source_facts(name: str, lengths: npt.NDArray[np.int64], rows: Sequence[int]) -> dict[str, Any]:
    """Return one line of the table of sources: lengths, shares of the longest documents, waste at each row length."""
    some = lengths if len(lengths) else np.zeros(1, dtype=np.int64)
    quantiles = {
        key: int(value)
        for key, value in zip(
            QUANTILES, np.quantile(some, list(QUANTILES.values()), method="inverted_cdf"), strict=True
        )
    }
    return {
        "name": name,
        "documents": len(lengths),
        "tokens": int(lengths.sum()),
        "min": int(some.min()),
        **quantiles,
        "max": int(some.max()),
        "top": _keys(top_shares(lengths)),
        "waste": [{**waste_of(lengths, row).as_dict(), "longer": float(np.mean(some > row))} for row in rows],
    }


def _keys(shares: dict[int, float]) -> dict[str, float]:
    return {str(k): share for k, share in shares.items()}


def sources_of(corpus: Corpus, sizes: Sizes) -> Codes:
    """Return the number of each document's source, and the sources' names.

    A built corpus says them in ``documents.parquet``; else shards whose names differ in their number alone are one source.
    """
    found = _column(corpus, "source")
    if found is not None:
        return found
    edges = np.cumsum(corpus.shard_tokens) - corpus.first_token
    begins = sizes.offsets_at(np.arange(sizes.documents, dtype=np.int64))
    shard = np.minimum(np.searchsorted(edges, begins, side="right"), max(0, len(edges) - 1))
    families = [_NUMBER.sub("", entry.name) for entry in corpus.entries]
    names = list(dict.fromkeys(families)) or [corpus.path]
    of_shard = np.array([names.index(family) for family in families] or [0], dtype=np.int64)
    return of_shard[shard], names


def groups_of(corpus: Corpus, sizes: Sizes, key: str) -> Codes:
    """Return the number of each document's group, by a key of its metadata; those without it are one group each.

    Reads ``documents.parquet``, or the ``*_docs.jsonl`` beside the shards. Raises `UsageError` (USE003) where neither has
    the key.
    """
    found = _column(corpus, key)
    if found is None:
        values = _docs_values(corpus, sizes, key)
        found = None if values is None else _coded(values)
    if found is None:
        expected = f"source, or a key of the metadata in {DOCUMENTS} or *{DOCS}"
        raise UsageError("USE003", "--group", expected=expected, found=key)
    return found


def _coded(values: Sequence[Any]) -> Codes:
    """Number values as they come; None is a value of its own every time."""
    numbers: dict[str, int] = {}
    codes = np.empty(len(values), dtype=np.int64)
    for k, value in enumerate(values):
        codes[k] = numbers.setdefault(f"document {k}" if value is None else f"={value}", len(numbers))
    return codes, list(numbers)


def _column(corpus: Corpus, key: str) -> Codes | None:
    """Return a column of ``documents.parquet``, or a key of its metadata; None where it is not this corpus's."""
    if not corpus.store.exists(DOCUMENTS) or not hasattr(corpus.store, "root"):
        return None
    parquet = require("pyarrow.parquet", extra="build")
    wanted = "source" if key == "source" else "metadata"
    shards = {entry.name for entry in corpus.entries}
    values: list[Any] = []
    with parquet.ParquetFile(f"{corpus.store.root}/{DOCUMENTS}") as file:
        for batch in file.iter_batches(batch_size=1 << 16, columns=["shard", wanted]):
            columns = batch.to_pydict()
            values += [value for shard, value in zip(columns["shard"], columns[wanted], strict=True) if shard in shards]
    if len(values) != len(corpus):
        return None
    if wanted == "source":
        return _coded(values)
    values = [None if value is None else json.loads(value).get(key) for value in values]
    return _coded(values) if any(value is not None for value in values) else None


def _docs_values(corpus: Corpus, sizes: Sizes, key: str) -> list[Any] | None:
    """Return a key of the ``meta`` of every document, from the tables beside HobbyLM's shards."""
    names = [entry.files[0] for entry in corpus.entries]
    begin_of = dict(zip(names, (np.cumsum(corpus.shard_tokens) - corpus.shard_tokens).tolist(), strict=True))
    values: list[Any] = [None] * sizes.documents
    for path in (path for path in getattr(corpus, "sidecars", ()) if path.endswith(DOCS)):
        for shard, offset, meta in _docs_lines(corpus, path):
            if shard in begin_of:
                at = begin_of[shard] + offset - corpus.first_token
                if 0 <= at < sizes.tokens:
                    values[int(sizes.at_tokens(np.array([at], dtype=np.int64))[0])] = meta.get(key)
    return values if any(value is not None for value in values) else None


def _docs_lines(corpus: Corpus, path: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    folder = path.rpartition("/")[0]
    for number, line in enumerate(corpus.store.read(path).split(b"\n"), 1):
        if not line.strip():
            continue
        item = loads_strict(line, f"{corpus.store.root}/{path}, line {number}")
        said = item if isinstance(item, dict) else {}
        shard = next((said[name] for name in ("shard", "shard_file", "file") if name in said), None)
        offset = next((said[name] for name in ("offset", "start") if name in said), None)
        if not isinstance(shard, str) or not isinstance(offset, int):
            raise FormatError("SID001", path=path, line=number, expected="shard and offset", found=str(item)[:80])
        meta = said.get("meta")
        yield f"{folder}/{shard}" if folder else shard, offset, meta if isinstance(meta, dict) else {}


def run_packings(orders: Sequence[Any], rows: Sequence[int] = ()) -> list[Packing]:
    """Return the packings of a run's orders and of those inside them, each once; at the row lengths of `rows` where given.

    >>> run_packings([], [8])
    []
    """
    found: dict[Packing, None] = {}
    for order in orders:
        packing = getattr(order, "packing", None)
        if isinstance(packing, Packing):
            found |= dict.fromkeys(replace(packing, row_tokens=row) for row in rows or [packing.row_tokens])
        found |= dict.fromkeys(run_packings(getattr(order, "children", ()), rows))
    return list(found)
