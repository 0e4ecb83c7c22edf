"""Which shard every document of the merged order goes to: split rule, cuts by tokens, and names as the layout has them.

| layout | shards |
|---|---|
| ``native`` | ``shards/SPLIT/...``, or ``shards/...`` without a split rule |
| ``ounce`` | ``shard_00000`` .. at the root, ``val/shard_00000`` .. |
| ``hobbylm`` | ``SOURCE_000000`` .. of every source, at the root, or below ``train`` and ``val`` |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.splits import ById, EveryNth, HashMod, NoSplit
from tokenreel.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.build.mix_merge import I32
    from tokenreel.build.mix_table import Staged
    from tokenreel.config.mixed import MixedRecipe
    from tokenreel.corpus.splits import SplitRule
    from tokenreel.formats.writing import Holds, WriteOptions, Writing

FORMATS = {"native": "megatron-v1", "ounce": "ounce-v1", "hobbylm": "hobbylm-v1"}
VALIDATION = {"native": "validation", "ounce": "val", "hobbylm": "val"}


@dataclass(frozen=True, slots=True, eq=False)
class MixShard:
    """One shard before it is written."""

    number: int
    """Among all shards."""
    split: str
    folder: str
    """Where it lies below the output, with a slash at its end, or empty."""
    name: str
    """Below its folder."""
    documents: I32
    """Numbers of `Staged`, in order."""


def validation_mask(staged: Staged, order: I32, rule: SplitRule) -> npt.NDArray[np.bool_]:
    """Return which documents of the merged order are validation; numbers are those of the merged order, from 0.

    Raises `RecipeError` (RCP006) for a rule of a plug-in: a mix has no texts any more when it is split.
    """
    if isinstance(rule, NoSplit):
        return np.zeros(len(order), np.bool_)
    if isinstance(rule, EveryNth):
        every: npt.NDArray[np.bool_] = np.arange(len(order)) % rule.n == rule.n - 1
        return every
    chosen = np.zeros(len(staged), np.bool_)
    for number, part in enumerate(staged.parts):
        begin, end = int(staged.bases[number]), int(staged.bases[number + 1])
        if isinstance(rule, HashMod):
            # The key is the beginning of the same hash.
            heads = part.keys("id")[0][:, 0]
            chosen[begin:end] = heads % np.uint64(rule.modulo) == np.uint64(rule.validation_when_equal)
        elif isinstance(rule, ById):
            listed = [one in rule.listed for one in part.table(["upstream_id"]).column("upstream_id").to_pylist()]
            chosen[begin:end] = listed
        else:
            raise RecipeError("RCP006", "split.rule", expected="hash-mod, every-nth, by-id or none in a mix")
    mask: npt.NDArray[np.bool_] = chosen[order]
    return mask


def plan_shards(
    staged: Staged, order: I32, recipe: MixedRecipe, rule: SplitRule, writing: Writing, options: WriteOptions
) -> list[MixShard]:
    """Return the shards of a mix in the order of the corpus: splits, and shards by byte order of name."""
    names = {False: "train", True: VALIDATION[recipe.layout]}
    mask = validation_mask(staged, order, rule)
    out: list[MixShard] = []
    for held in (False, True):
        chosen = order[mask == held]
        if held and not len(chosen):
            continue
        split = "" if isinstance(rule, NoSplit) else names[held]
        target = recipe.output.shard_tokens.val if held else recipe.output.shard_tokens.train
        limit = most_tokens(writing.holds, options.dtype)
        cuts = list(_named(staged, chosen, recipe.layout, split, target, limit, writing, options))
        out += sorted(cuts, key=lambda one: f"{one.folder}{one.name}".encode())
    return [MixShard(k, one.split, one.folder, one.name, one.documents) for k, one in enumerate(out)]


def most_tokens(holds: Holds, dtype: str) -> int | None:
    """Return the most tokens that a shard of a format may have, None without a limit.

    >>> from tokenreel.formats.writing import Holds
    >>> most_tokens(Holds(table=True, empty=True, largest_id=65535, dtypes=("uint16",), shard_bytes=100), "uint16")
    50
    """
    limits = [] if holds.shard_tokens is None else [holds.shard_tokens]
    if holds.shard_bytes is not None:
        limits.append(holds.shard_bytes // np.dtype(dtype).itemsize)
    return min(limits, default=None)


def _named(
    staged: Staged,
    documents: I32,
    layout: str,
    split: str,
    target: int,
    limit: int | None,
    writing: Writing,
    options: WriteOptions,
) -> Iterator[MixShard]:
    if layout == "hobbylm":
        folder = f"{split}/" if split else ""
        sources = staged.source_of(documents)
        for number, source in enumerate(staged.names):
            mine = documents[sources == number]
            for k, run in enumerate(cut(staged, mine, target, limit)):
                yield MixShard(0, split, folder, f"{source}_{k:06d}", run)
        return
    if layout == "ounce":
        folder = "val/" if split == "val" else ""
    else:
        folder = f"shards/{split}/" if split else "shards/"
    name: Any = writing.shard_name or (lambda k, _: f"shard_{k:06d}")
    runs = list(cut(staged, documents, target, limit))
    for given, run in zip(in_order([name(k, options) for k in range(len(runs))]), runs, strict=True):
        yield MixShard(0, split, folder, given, run)


def in_order(names: list[str]) -> list[str]:
    """Return names whose byte order is theirs: where it is not, the numbers that they end with get leading zeros.

    >>> in_order(["chunk-0-0", "chunk-0-1"]), in_order([f"c-{k}" for k in range(11)])[1:3]
    (['chunk-0-0', 'chunk-0-1'], ['c-01', 'c-02'])
    """
    if sorted(names, key=str.encode) == names:
        return names
    width = len(str(len(names) - 1))
    return [re.sub(r"\d+$", lambda found: found[0].zfill(width), name) for name in names]


def cut(staged: Staged, documents: I32, target: int, limit: int | None = None) -> Iterator[I32]:
    """Yield runs of whole documents; each ends with the document that reaches `target` tokens, and holds at most `limit`."""
    sums = np.cumsum(staged.lengths[documents], dtype=np.int64)
    begin = 0
    while begin < len(documents):
        before = int(sums[begin - 1]) if begin else 0
        end = min(len(documents), int(np.searchsorted(sums, before + target, side="left")) + 1)
        if limit is not None and int(sums[end - 1]) - before > limit:
            end = max(begin + 1, int(np.searchsorted(sums, before + limit, side="right")))
        yield documents[begin:end]
        begin = end


def check_names(recipe: MixedRecipe, path: Path | None = None) -> None:
    """Raise `RecipeError` (RCP006) for sources whose names or fields the layout hobbylm cannot have in its files."""
    from tokenreel.formats.hobbylm import RESERVED
    from tokenreel.formats.llmc_write import name_given
    from tokenreel.formats.writing import WriteOptions

    if recipe.layout != "hobbylm":
        return
    for table in recipe.source:
        name_given(WriteOptions("uint16", options={"name": table.name}), "")
        taken = sorted(RESERVED & set(table.metadata))
        if taken:
            raise RecipeError(
                "RCP006", f"metadata of {table.name!r}", path=path, expected="other names", found=taken[0]
            )
