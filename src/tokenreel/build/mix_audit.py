"""The audit of a mix: what documents that stay share with evaluation sets, counted by set and source, with evidence.

Evaluation sets are opened here and nowhere else; every file is in the report with its SHA-256, and none is of a test split.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.contamination import Words, grams_of, overlap, word_items
from tokenreel.build.evals import load_eval
from tokenreel.build.mix_items import Items
from tokenreel.build.mix_merge import KEPT
from tokenreel.build.staging_parts import batch_ids
from tokenreel.corpus.mix_records import AUDIT_FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.build.contamination import Grams
    from tokenreel.build.evals import EvalSet
    from tokenreel.build.mix_merge import Merged
    from tokenreel.build.mix_table import Staged
    from tokenreel.config.mixed import DecontaminateTable

EVIDENCE = 1000
"""Pairs of document and item that the report shows of each set, in merged order."""
NORMALISED = "lower case; runs of letters and digits"


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Documents and items that share n-grams, one row a pair, in merged order."""

    document: npt.NDArray[np.int64]
    item: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    share: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """What was found."""

    report: dict[str, Any]
    flagged: npt.NDArray[np.bool_]
    strong: npt.NDArray[np.bool_]
    reasons: dict[int, str]
    """Of flagged documents: set, item, and share of its n-grams."""


def load_evals(table: DecontaminateTable, folder: Path) -> list[EvalSet]:
    """Return the evaluation sets of a recipe; raises `SourceError`: SRC040 a test split, SRC041."""
    return [load_eval(one.name, folder / one.path, one.split, one.fields, one.path) for one in table.eval]


def audit(
    staged: Staged,
    merged: Merged,
    table: DecontaminateTable,
    sets: Sequence[EvalSet],
    encode: Callable[[list[str]], tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]],
    workers: int = 1,
) -> Audit:
    """Return the overlap of all documents that stay; `encode` gives (ids end to end, edges) of items, for audits by ids.

    Cost: about 4 ns an id and set by ids; by words the time of finding them, about 50 ns a character.
    """
    words = Words()
    by_words = table.by == "words"
    grams = [grams_of(*(word_items(one.items, words) if by_words else encode(one.items)), n=table.n) for one in sets]
    items = [Items.of(one) for one in grams]
    with ThreadPoolExecutor(max(1, workers)) as pool:
        found = list(
            pool.map(
                lambda k: _of_part(staged, merged, k, grams, items, words if by_words else None),
                range(len(staged.parts)),
            )
        )
    place = np.full(len(staged), -1, np.int64)
    place[merged.order] = np.arange(len(merged.order))
    flagged, strong = np.zeros(len(staged), np.bool_), np.zeros(len(staged), np.bool_)
    reasons: dict[int, str] = {}
    reports = []
    for number, one in enumerate(sets):
        rows = sorted((row for part in found for row in part[number]), key=lambda row: (int(place[row[0]]), row[1]))
        document, item, begin, share = zip(*rows, strict=True) if rows else ((), (), (), ())
        hits = Hits(
            np.array(document, np.int64),
            np.array(item, np.int64),
            np.array(begin, np.int64),
            np.array(share, np.float64),
        )
        flagged[hits.document] = True
        strong[hits.document[hits.share >= table.strong]] = True
        for document_, item_, _, share_ in rows:
            reasons.setdefault(document_, f"{one.name} item {item_}: {share_:.0%} of its {table.n}-grams")
        reports.append(_report(staged, one, grams[number], hits, table))
    return Audit(_whole(staged, table, sets, reports, flagged, strong), flagged, strong, reasons)


def _of_part(
    staged: Staged, merged: Merged, number: int, grams: Sequence[Grams], items: Sequence[Items], words: Words | None
) -> list[list[tuple[int, int, int, float]]]:
    """Return (document, item, first n-gram, share) for every set, of the documents of one part that stay."""
    out: list[list[tuple[int, int, int, float]]] = [[] for _ in grams]
    at = int(staged.bases[number])
    for batch in staged.table(number).to_batches():
        stays = np.flatnonzero(merged.why[at : at + len(batch)] == KEPT)
        if len(stays):
            if words is None:
                ids, lengths = batch_ids(batch)
                stays = np.arange(len(batch))
            else:
                texts = batch.column("text").take(stays).to_pylist()
                parts = [words.ids(text, add=False) for text in texts]
                ids, lengths = np.concatenate(parts), np.array([len(part) for part in parts], np.int64)
            for k, one in enumerate(grams):
                for row, item, begin, share in items[k].pairs(overlap(one, ids, lengths)):
                    document = at + int(stays[row])
                    if merged.why[document] == KEPT:
                        out[k].append((document, item, begin, share))
        at += len(batch)
    return out


def _report(staged: Staged, one: EvalSet, grams: Grams, hits: Hits, table: DecontaminateTable) -> dict[str, Any]:
    documents = np.unique(hits.document)
    strong = np.unique(hits.document[hits.share >= table.strong])
    by_source = {}
    for name, all_of, strong_of in zip(
        staged.names, _by_source(staged, documents), _by_source(staged, strong), strict=True
    ):
        by_source[name] = {"documents": all_of, "strong": strong_of}
    return {
        "name": one.name,
        "split": one.split,
        "items": len(one.items),
        "items_without_ngrams": int(np.count_nonzero(np.diff(grams.edges) < table.n)),
        "items_hit": len(np.unique(hits.item)),
        "docs_hit": len(documents),
        "docs_strong": len(strong),
        "by_source": by_source,
        "files": [{"path": path, "sha256": digest} for path, digest in one.files],
        "pairs": len(hits.document),
        "evidence": _evidence(staged, hits, table),
    }


def _by_source(staged: Staged, documents: npt.NDArray[np.int64]) -> list[int]:
    counts: list[int] = np.bincount(staged.source_of(documents), minlength=len(staged.names)).tolist()
    return counts


def _evidence(staged: Staged, hits: Hits, table: DecontaminateTable) -> list[dict[str, Any]]:
    shown = hits.document[:EVIDENCE]
    if not len(shown):
        return []
    rows = staged.take(shown, ("doc", "upstream_id", "record")).to_pylist()
    parts = staged.part_of(shown).tolist()
    return [
        {
            "document": row["doc"].hex(),
            "upstream_id": row["upstream_id"],
            "source": staged.parts[part].source,
            "input": staged.parts[part].path,
            "record": row["record"],
            "item": int(hits.item[k]),
            "span": [int(hits.begin[k]), int(hits.begin[k]) + table.n],
            "share": round(float(hits.share[k]), 6),
        }
        for k, (row, part) in enumerate(zip(rows, parts, strict=True))
    ]


def _whole(
    staged: Staged,
    table: DecontaminateTable,
    sets: Sequence[EvalSet],
    reports: list[dict[str, Any]],
    flagged: npt.NDArray[np.bool_],
    strong: npt.NDArray[np.bool_],
) -> dict[str, Any]:
    del staged
    return {
        "format": AUDIT_FORMAT,
        "method": f"{table.n}-grams of {table.by}",
        "n": table.n,
        "by": table.by,
        "normalisation": NORMALISED if table.by == "words" else "none: ids as the tokenizer gives them",
        "strong_share": table.strong,
        "remove": table.remove,
        "documents_flagged": int(flagged.sum()),
        "documents_strong": int(strong.sum()),
        "splits_opened": sorted({one.split for one in sets}),
        "test_opened": False,
        "evals": reports,
    }
