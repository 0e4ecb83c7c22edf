"""Which shards a listing holds, for verification: as they are recognised, or as a manifest says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tokenreel.errors import TokenreelError
from tokenreel.formats import Found
from tokenreel.formats.recognising import given_for, recognise, settled, told_dtype
from tokenreel.formats.registry import format_named
from tokenreel.verify.finding import Findings

MEGATRON, OUNCE = "megatron-v1", "ounce-v1"

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokenreel.corpus.manifest import Manifest
    from tokenreel.store import Entry, Store


def shards_there(
    store: Store,
    entries: Sequence[Entry],
    findings: Findings,
    *,
    dtype: npt.DTypeLike | None = None,
    vocab: int | None = None,
    manifest: Manifest | None = None,
    built: bool = False,
) -> list[Found]:
    """Return the shards among files, in byte order of name, and add what hides some of them.

    Ids without a header take the dtype that is given, that a manifest records, or that the vocabulary proves; where none
    does they are a finding (FLT001), unless a build's records or an ``.idx`` anywhere say that they are half of a pair.
    """
    if manifest is not None and manifest.shard_format != MEGATRON and not built:
        return _as_recorded(store, entries, manifest, dtype=dtype, vocab=vocab)
    try:
        seen = recognise(store, entries)
    except TokenreelError as error:
        findings.caught(error, store.root)
        return []
    if not seen.waiting:
        return list(seen.found)
    if built or manifest is not None:
        return [_half(shard) for shard in seen.found]
    told = told_dtype(store, seen.waiting[0], dtype, vocab)
    if told is not None:
        return [settled(shard, told) for shard in seen.found]
    for shard in seen.waiting:
        findings.error(
            "FLT001",
            path=shard.files[0],
            expected=f"--dtype {' or '.join(given_for(shard))}, or --vocab where that proves one",
            found=None if dtype is None and vocab is None else "what was given fits both, or neither",
        )
    return [shard for shard in seen.found if shard not in seen.waiting]


def _half(shard: Found) -> Found:
    """Return half a pair, which the rules over pairs name as that."""
    if not shard.format.endswith("-") or not shard.files[0].endswith(".bin"):
        return shard
    return replace(shard, format="megatron-v1", files=(f"{shard.name}.bin", f"{shard.name}.idx"))


def _as_recorded(
    store: Store,
    entries: Sequence[Entry],
    manifest: Manifest,
    *,
    dtype: npt.DTypeLike | None,
    vocab: int | None,
) -> list[Found]:
    """Return the shards that a manifest lists, of its format whatever their bytes look like now, and others there are."""
    there = {entry.path for entry in entries}
    listed = [
        Found(manifest.shard_format, shard.name, tuple(file.path for file in shard.files))
        for split in manifest.splits.values()
        for shard in split.shards
        if any(file.path in there for file in shard.files)
    ]
    taken = {file for shard in listed for file in shard.files}
    rest = [entry for entry in entries if entry.path not in taken]
    others = shards_there(store, rest, Findings(), dtype=dtype or manifest.dtype, vocab=vocab)
    names = {shard.name for shard in listed}
    more = [
        one
        for one in others
        if one.format == manifest.shard_format and one.name not in names and not taken.intersection(one.files)
    ]
    return [*listed, *more]


def recorded_splits(
    store: Store, sizes: Mapping[str, int], shards: Sequence[Found], manifest: Manifest | None
) -> dict[str, list[str]] | None:
    """Return the names of shards by split as a manifest says, ours or ounce's; None where none does."""
    names = {shard.name for shard in shards}
    if manifest is not None and set(manifest.splits) != {""}:
        said = {
            split: [shard.name for shard in row.shards if shard.name in names] for split, row in manifest.splits.items()
        }
        listed = {name for chosen in said.values() for name in chosen}
        return {split: chosen for split, chosen in said.items() if chosen} if listed == names else None
    if shards and all(shard.format == OUNCE for shard in shards):
        try:
            found = ounce_splits(store, sizes, shards)
        except TokenreelError:
            return None  # a rule of its own says so
        return found if found is not None and set(found) != {"train"} else None
    return None


def ounce_splits(store: Store, sizes: Mapping[str, int], shards: Sequence[Found]) -> dict[str, list[str]] | None:
    """Return ounce shards by split as their own manifest says; raises `FormatError` (OFF009, OFF010)."""
    from tokenreel.formats.ounce_manifest import check_shards

    by_file = {shard.files[0]: shard.name for shard in shards}
    said = check_shards(store, {file: sizes[file] for file in by_file if file in sizes})
    return None if said is None else {split: [by_file[file] for file in files] for split, files in said.items()}


def is_streamed(shards: Sequence[Found]) -> bool:
    """Return whether shards are one stream cut into files."""
    return bool(shards) and all(format_named(shard.format).streamed for shard in shards)
