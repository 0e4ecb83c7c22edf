"""What packing does to a corpus, as plain data: waste by source and row length, concentration, counts by policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.index.plan_groups import groups_of, sources_of
from tokenreel.pack.packed_policy import Packing
from tokenreel.pack.plan_sizes import Sizes
from tokenreel.pack.stats import pack_stats
from tokenreel.pack.waste import summed, top_shares, waste_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus

QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
USUAL = (
    ("concat", None), ("bestfit", "split"), ("firstfit", "split"), ("one-per-row", "split"), ("truncate", None),
    ("crop", "wait"), ("bos-aligned", None), ("levanter-greedy", "split"), ("decompose", None),
)  # fmt: skip
"""Policies that are shown where none is asked for, and what they do with long documents."""


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
        by_group, members = (codes, names) if group == "source" else groups_of(corpus, group)
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


def run_packings(orders: Sequence[Any], rows: Sequence[int] = ()) -> list[Packing]:
    """Return the packings of a run's orders and of those inside them, each once; at the row lengths of `rows` where given.

    >>> run_packings([], [8])
    []
    """
    found: dict[Packing, None] = {}
    for order in orders:
        packing = getattr(order, "packing", None)
        if isinstance(packing, Packing):
            found |= dict.fromkeys(packing.in_rows_of(row) for row in rows or [packing.row_tokens])
        found |= dict.fromkeys(run_packings(getattr(order, "children", ()), rows))
    return list(found)
