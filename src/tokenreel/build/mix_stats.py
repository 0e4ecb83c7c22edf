"""What a mix says of each source: documents and tokens at every stage, lengths, what rows would waste, who has most of it.

Waste is of rows with one document each: chunked, 1 - tokens / (rows x length of a row); truncated the same of what fits, and
`lost` is what does not. Shares are those of the largest documents, and of the largest groups (repositories), before the cap on
documents and after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.mix_merge import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.build.mix_merge import Merged
    from tokenreel.build.mix_shards import MixShard
    from tokenreel.build.mix_table import Staged
    from tokenreel.build.mix_write import WrittenShard
    from tokenreel.build.staging_run import StagedSource

    I64 = npt.NDArray[np.int64]

ROWS = (1024, 4096, 8192, 32768)
TOP = (1, 5, 50)


def source_facts(
    sources: Sequence[StagedSource],
    staged: Staged,
    merged: Merged,
    shards: Sequence[MixShard],
    written: Sequence[WrittenShard],
) -> list[dict[str, Any]]:
    """Return the facts of every source, in the recipe's order; documents seen are those emitted and those dropped."""
    emitted: dict[str, dict[str, list[int]]] = {name: {} for name in staged.names}
    for shard, one in zip(shards, written, strict=True):
        for name, tokens in one.source_tokens.items():
            row = emitted[name].setdefault(shard.split, [0, 0])
            row[0] += one.source_documents[name]
            row[1] += tokens
    homes = staged.source_of(merged.order)
    out = []
    for number, source in enumerate(sources):
        table, totals = source.table, source.totals
        begin, end = int(staged.begins[number]), int(staged.begins[number + 1])
        codes = np.bincount(merged.why[begin:end], minlength=max(RULES) + 1)
        stage = {rule: ("decontaminate" if rule == "overlap" else "dedup") for rule in RULES.values()}
        gone = {f"{stage[rule]}/{rule}": int(codes[code]) for code, rule in RULES.items() if codes[code]}
        mine = merged.order[homes == number]
        splits = {split: {"documents": d, "tokens": t} for split, (d, t) in sorted(emitted[source.name].items())}
        out.append(
            {
                "name": source.name,
                "kind": table.kind,
                "family": table.family,
                "licence": table.licence,
                "transformations": table.transformations,
                "reason": table.reason,
                "budget": table.budget,
                "complete": totals.complete,
                "docs_seen": totals.docs_seen,
                "docs_staged": totals.kept,
                "tokens_staged": totals.tokens_staged,
                "dropped": {**totals.dropped, **gone},
                "documents": len(mine),
                "tokens": int(staged.lengths[mine].sum(dtype=np.int64)),
                "splits": splits,
                "capped": totals.capped,
                "capped_tokens": totals.capped_tokens,
                "bytes_per_token": round(totals.text_bytes / totals.text_tokens, 4) if totals.text_tokens else None,
                **length_facts(staged, mine),
                "inputs": [
                    {"path": part.path, "sha256": part.receipt.input.sha256, "bytes": part.receipt.input.bytes,
                     "whole": part.receipt.input.whole, **({"position": part.receipt.input.position} if part.receipt.input.position else {})}
                    for part in source.parts
                ],
                "inputs_not_read": len(source.inputs) - len(source.parts),
            }
        )  # fmt: skip
    return out


def length_facts(staged: Staged, documents: npt.NDArray[np.int32]) -> dict[str, Any]:
    """Return quantiles of lengths, waste, and concentration of some documents."""
    stored = staged.lengths[documents].astype(np.int64)
    full = np.empty(len(documents), np.int64)
    groups: list[Any] = []
    for at in range(0, len(documents), 1 << 20):
        table = staged.take(documents[at : at + (1 << 20)], ("full_tokens", "group"))
        full[at : at + table.num_rows] = table.column("full_tokens").to_numpy() + 1
        groups.append(table.select(["group"]))
    facts: dict[str, Any] = {
        "lengths": quantiles(stored),
        "waste": [waste(stored, row) for row in ROWS],
        "largest": {"documents": shares(stored), "documents_before_cap": shares(full)},
    }
    import pyarrow as pa

    if groups:
        column = pa.concat_tables(groups).column("group").combine_chunks()
        if column.null_count < len(column):
            codes = (
                column.dictionary_encode()
                if not hasattr(column, "chunks")
                else column.combine_chunks().dictionary_encode()
            )
            known = np.asarray(codes.is_valid())
            number = np.asarray(codes.indices.fill_null(0))[known]
            for name, sizes in (("groups", stored), ("groups_before_cap", full)):
                sums = np.zeros(len(codes.dictionary), np.int64)
                np.add.at(sums, number, sizes[known])
                facts["largest"][name] = shares(sums, int(sizes.sum()))
    return facts


def quantiles(lengths: I64) -> dict[str, Any]:
    """Return minimum, median, 90 %, 99 % and maximum, each the smallest length that so many documents do not exceed.

    >>> quantiles(np.array([1, 2, 3, 4]))
    {'min': 1, 'p50': 2, 'p90': 4, 'p99': 4, 'max': 4}
    """
    if not len(lengths):
        return {}
    ordered = np.sort(lengths)
    at = {
        name: ordered[max(0, int(np.ceil(q * len(ordered))) - 1)]
        for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }
    return {"min": int(ordered[0]), **{name: int(value) for name, value in at.items()}, "max": int(ordered[-1])}


def waste(lengths: I64, row: int) -> dict[str, Any]:
    """Return what rows of one document each would waste.

    >>> waste(np.array([3, 5]), 4)
    {'row_tokens': 4, 'chunked': 0.333333, 'truncated': 0.125, 'lost': 0.125}
    """
    total = int(lengths.sum())
    if not total:
        return {"row_tokens": row, "chunked": 0.0, "truncated": 0.0, "lost": 0.0}
    rows = int((-(-lengths // row)).sum())
    fits = int(np.minimum(lengths, row).sum())
    return {
        "row_tokens": row,
        "chunked": round(1 - total / (rows * row), 6),
        "truncated": round(1 - fits / (len(lengths) * row), 6),
        "lost": round(1 - fits / total, 6),
    }


def shares(sizes: I64, total: int | None = None) -> dict[str, float]:
    """Return which share of all tokens the largest have.

    >>> shares(np.array([1, 1, 6]))
    {'top_1': 0.75, 'top_5': 1.0, 'top_50': 1.0}
    """
    whole = int(sizes.sum()) if total is None else total
    ordered = np.sort(sizes)[::-1]
    return {f"top_{k}": round(int(ordered[:k].sum()) / whole, 6) if whole else 0.0 for k in TOP}
