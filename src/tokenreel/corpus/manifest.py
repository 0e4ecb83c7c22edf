"""The manifest ``tokenreel.json``: what a corpus is, by split and shard."""

from __future__ import annotations

from typing import Any

import msgspec

from tokenreel.corpus.receipts import Count, FileEntry, Sha256, dump, parse_as
from tokenreel.errors import ManifestError

MANIFEST_FORMAT = "tokenreel-manifest-1"


class ShardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One shard: counts, the largest id stored (None: no tokens), and its files."""

    name: str
    documents: Count
    sequences: Count
    tokens: Count
    max_id: Count | None = None
    files: tuple[FileEntry, ...]


class SplitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One split: sums, identity, shards in order; statistics as `tokenreel.corpus.statistics` gives them."""

    documents: Count
    sequences: Count
    tokens: Count
    identity: Sha256 | None = None
    shards: tuple[ShardRecord, ...]
    statistics: dict[str, Any] | None = None


class BoundaryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How documents are delimited."""

    prefix: tuple[Count, ...] = ()
    suffix: tuple[Count, ...] = ()
    table: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``tokenreel.json``. A corpus without splits has one, named with the empty string."""

    format: str = MANIFEST_FORMAT
    name: str | None = None
    layout: str | None = None
    shard_format: str
    dtype: str
    boundary: BoundaryRecord
    tokenizer: dict[str, Any] | None = None
    split_rule: dict[str, Any] | None = None
    document_order: str | None = None
    """``as-is``: documents stand as their inputs had them; nothing was shuffled."""
    built_at: str | None = None
    splits: dict[str, SplitRecord]


def parse_manifest(data: bytes, path: object = None) -> Manifest:
    """Return a manifest whose sums hold; raises `ManifestError` (MAN001, MAN002, MAN003, MAN012)."""
    manifest = parse_as(Manifest, data, path)
    if manifest.format != MANIFEST_FORMAT:
        raise ManifestError("MAN003", "another format", path=path, expected=MANIFEST_FORMAT, found=manifest.format)
    for name, split in manifest.splits.items():
        for field in ("documents", "sequences", "tokens"):
            total = sum(getattr(shard, field) for shard in split.shards)
            if total != getattr(split, field):
                raise ManifestError(
                    "MAN012", f"{field} of split {name!r}", path=path, expected=total, found=getattr(split, field)
                )
    return manifest


def dump_manifest(manifest: Manifest) -> bytes:
    """Return the canonical bytes of a manifest; fields that are None are left out."""
    return dump(manifest)
