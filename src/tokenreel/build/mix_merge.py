"""The merged order of a mix, without duplicates: whoever comes first in it stays, and what went stands for nothing.

Documents come in turn: proportionally to budgets, source by source, or shuffled. One that equals a document that stayed, by
text, url or id, is skipped when its turn comes and does not count as emitted, so that every prefix has the mix of the budgets.
Near duplicates go after that. In memory: 25 bytes a document with exact dedup (those of the walk; to find equal keys takes
less), 4 more shuffled, 8 for each further key; with near duplicates 130 more, their signatures are a mapped file.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.dedup import SAMPLES, Removal, first_places
from tokenreel.build.merge_order import shuffled
from tokenreel.errors import SourceError
from tokenreel.order.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.build.mix_table import Staged
    from tokenreel.config.mixed import DedupTable, MixedRecipe

    I32 = npt.NDArray[np.int32]
    U8 = npt.NDArray[np.uint8]

KEPT, EXACT, URL, ID, NEAR, EVAL = range(6)
RULES = {EXACT: "exact", URL: "url", ID: "id", NEAR: "near", EVAL: "overlap"}
_RUN = 1 << 14
_COLUMNS = {EXACT: "id", URL: "url_key", ID: "id_key"}


@dataclass(slots=True, eq=False)
class Merged:
    """Which documents stay, in merged order, and why the others do not."""

    order: I32
    """Documents that stay, as numbers of `Staged`."""
    why: U8
    """Of every staged document: `KEPT`, or what it went for."""
    winner: I32
    """Of every duplicate, the document that stayed; -1 for others."""

    def remove(self, documents: npt.NDArray[np.bool_], reason: int) -> None:
        """Take documents (a mask over all) out of the order."""
        self.why[documents & (self.why == KEPT)] = reason
        self.order = self.order[self.why[self.order] == KEPT]


def merge(staged: Staged, recipe: MixedRecipe, spill: Path | None = None, threads: int = 1) -> Merged:
    """Return the merged order of a recipe; keys beyond a limit of memory wait below `spill`. Raises `SourceError` (SRC030) where a source would lose too much."""
    dedup, total = recipe.dedup, len(staged)
    kinds = _kinds(dedup)
    classes = np.empty((len(kinds), total), np.int32)
    for row, kind in enumerate(kinds):
        classes[row] = _classes(staged, _COLUMNS[kind], spill, threads)
    given = np.empty(0, np.int32)
    if recipe.merge.how == "sequential":
        given = np.arange(total, dtype=np.int32)
    elif recipe.merge.how == "shuffle":
        given = shuffled(total, recipe.merge.seed)
    budgets = budgets_of(staged, recipe)
    rank = np.argsort(np.array(staged.names, dtype=object), kind="stable").astype(np.int64)
    order, winner = np.empty(total, np.int32), np.full(total, -1, np.int32)
    why = np.zeros(total, np.uint8)
    holders = np.full(classes.shape, -1, np.int32)
    codes = np.array(kinds, np.uint8)
    kept = _walk(given, staged.lengths, staged.begins, budgets, rank, classes, codes, holders, order, winner, why)
    del classes, holders
    merged = Merged(order[:kept].copy(), why, winner)
    if dedup is not None:
        if dedup.near is not None:
            _near(staged, merged, dedup.near.threshold, spill)
        _brake(staged, merged, dedup)
    return merged


def budgets_of(staged: Staged, recipe: MixedRecipe) -> npt.NDArray[np.float64]:
    """Return what sources are interleaved by: their budgets, or what was staged of them where they have none."""
    sums = np.add.reduceat(np.append(staged.lengths, 0).astype(np.int64), staged.begins[:-1])
    sums[np.diff(staged.begins) == 0] = 0
    said = [table.budget or max(1, int(found)) for table, found in zip(recipe.source, sums, strict=True)]
    return np.array(said, np.float64)


def removed_of(staged: Staged, merged: Merged) -> Iterator[Removal]:
    """Yield what duplicates take from every source."""
    for number, name in enumerate(staged.names):
        begin, end = int(staged.begins[number]), int(staged.begins[number + 1])
        gone = np.flatnonzero(merged.winner[begin:end] >= 0) + begin
        shown = tuple((int(k), int(merged.winner[k])) for k in gone[:SAMPLES])
        yield Removal(name, end - begin, len(gone), shown)


def _kinds(dedup: DedupTable | None) -> list[int]:
    if dedup is None:
        return []
    return [
        *([EXACT] if dedup.exact else []),
        *([URL] if "url" in dedup.by else []),
        *([ID] if "id" in dedup.by else []),
    ]


def _classes(staged: Staged, column: str, spill: Path | None, threads: int) -> I32:
    """Return, of every document, the first one that has its key, -1 without a key."""
    parts = [part for part in staged.parts if len(part)]
    known = [np.empty(0, np.bool_), *(np.asarray(part.table([column]).column(column).is_valid()) for part in parts)]
    valid = np.concatenate(known)
    whole = bool(valid.all())

    def batches() -> Iterator[npt.NDArray[np.uint64]]:
        for part in parts:
            keys, has = part.keys(column)
            yield keys[has]

    first = first_places(batches(), int(np.count_nonzero(valid)), spill, threads)
    if whole:
        return first
    there = np.flatnonzero(valid).astype(np.int32)
    out = np.full(len(staged), -1, np.int32)
    out[there] = there[first]
    return out


def _near(staged: Staged, merged: Merged, threshold: float, spill: Path | None) -> None:
    from tokenreel.build.near_duplicates import near_first

    if not len(merged.order):
        return
    with tempfile.TemporaryFile(dir=spill) as file:
        # Signatures in merged order: on disk, since they are many times as large as all else that a merge needs.
        for begin in range(0, len(merged.order), _RUN):
            taken = staged.take(merged.order[begin : begin + _RUN], ("near",)).column("near").combine_chunks()
            file.write(np.ascontiguousarray(taken.flatten()).data)
        file.flush()
        signed = np.asarray(np.memmap(file, np.uint32, mode="r")).reshape(len(merged.order), -1)
        first = near_first(signed, threshold)
    gone = np.flatnonzero(first != np.arange(len(first)))
    documents = merged.order[gone]
    merged.winner[documents] = merged.order[first[gone]]
    mask = np.zeros(len(staged), np.bool_)
    mask[documents] = True
    merged.remove(mask, NEAR)


def _brake(staged: Staged, merged: Merged, dedup: DedupTable) -> None:
    for one in removed_of(staged, merged):
        if one.share > dedup.max_removal and one.source not in dedup.allow:
            shown = "; ".join(f"{staged.name_of(a)} is {staged.name_of(b)}" for a, b in one.samples)
            raise SourceError(
                "SRC030",
                f"source {one.source!r}: {one.removed:,} of {one.documents:,} documents ({shown})",
                expected=f"at most {dedup.max_removal:.0%}",
                found=f"{one.share:.1%}",
                hint=f"tokenreel build RECIPE --set 'dedup.allow=[\"{one.source}\"]'",
            )


@kernel(
    "int64(int32[::1], int32[::1], int64[::1], float64[::1], int64[::1], int32[:, ::1], uint8[::1], int32[:, ::1], "
    "int32[::1], int32[::1], uint8[::1])"
)
def _walk(
    given: Any, lengths: Any, begins: Any, budgets: Any, rank: Any, classes: Any, codes: Any, holders: Any, order: Any,
    winner: Any, why: Any,
) -> int:  # fmt: skip
    sources = len(budgets)
    emitted = np.zeros(sources, dtype=np.int64)
    at = begins[:-1].copy()
    kept = 0
    for step in range(len(lengths)):
        source = np.int64(0)
        if len(given):
            document = np.int64(given[step])
        else:
            source, least = np.int64(-1), 0.0
            for k in range(sources):
                one = rank[k]
                if at[one] == begins[one + 1]:
                    continue
                share = (emitted[one] + 1) / budgets[one]
                if source < 0 or share < least:
                    source, least = one, share
            document = at[source]
            at[source] += 1
        for k in range(len(codes)):
            key = classes[k, document]
            if key >= 0 and holders[k, key] >= 0:
                winner[document] = holders[k, key]
                why[document] = codes[k]
                break
        if winner[document] >= 0:
            continue
        for k in range(len(codes)):
            if classes[k, document] >= 0:
                holders[k, classes[k, document]] = document
        order[kept] = document
        kept += 1
        emitted[source] += lengths[document]
    return kept
