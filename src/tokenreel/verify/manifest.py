"""Rules over ``tokenreel.json``: its counts and files against the shards, and against the receipts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.formats import open_shard
from tokenreel.verify.files import named_files
from tokenreel.verify.streamed import StreamUnit
from tokenreel.verify.target import MANIFEST
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from tokenreel.corpus.manifest import ShardRecord
    from tokenreel.formats import Found, Shard
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target


def check_manifest(target: Target, findings: Findings) -> bool:
    """Check that the manifest lists the shards there are, in their order, with counts and hashes; False: unreadable."""
    manifest = target.manifest.value if target.manifest else None
    if manifest is None or not target.whole:
        return False
    there = {found.name: found for found in target.files}
    listed: set[str] = set()
    for split, said in manifest.splits.items():
        names = [shard.name for shard in said.shards]
        if names != sorted(names, key=str.encode):
            findings.error("MAN052", f"the shards of {split or 'the corpus'} are not in byte order", path=MANIFEST)
        for shard in said.shards:
            listed.add(shard.name)
            if shard.name in there:
                _check_shard(target, shard, there[shard.name], findings)
        for name in ("documents", "sequences", "tokens"):
            total, summed = getattr(said, name), sum(getattr(shard, name) for shard in said.shards)
            if total != summed:
                findings.error(
                    "MAN012",
                    f"splits.{split}.{name} is not the sum over its shards",
                    path=MANIFEST,
                    expected=summed,
                    found=total,
                )
    for name in there:
        if name not in listed:
            findings.error(
                "MAN043", path=there[name].files[0], shard=name, found=f"a shard that {MANIFEST} does not list"
            )
    _check_streams(target, findings)
    _check_hashes(target, findings)
    return True


def _check_streams(target: Target, findings: Findings) -> None:
    """Check the number of documents that begin in each file of a stream, where they were looked for."""
    manifest = target.manifest.value if target.manifest else None
    if manifest is None or not target.streamed:
        return
    said = {shard.name: shard.documents for split in manifest.splits.values() for shard in split.shards}
    for _, unit in target.opened():
        if not isinstance(unit, StreamUnit) or unit.piece:
            continue
        for entry, begins in zip(unit.entries, unit.begins(), strict=True):
            if said.get(entry.name, begins) != begins:
                findings.error(
                    "MAN052",
                    f"{MANIFEST} says that {counted(said[entry.name], 'document')} begin in this shard, and {begins:,} do",
                    path=MANIFEST,
                    shard=entry.name,
                    expected=begins,
                    found=said[entry.name],
                )


def _check_shard(target: Target, said: ShardRecord, found: Found, findings: Findings) -> None:
    shard: Shard | None
    if target.streamed:
        shard = None if found.name in target.broken else open_shard(target.store, found, target.accept)
    else:
        shard = target.shard(found)
    if shard is None:
        return
    for name in ("tokens",) if target.streamed else ("documents", "sequences", "tokens"):
        mine, there = getattr(said, name), getattr(shard, name)
        if mine != there:
            findings.error(
                "MAN052",
                f"{MANIFEST} says {counted(mine, name[:-1])} for this shard, and its tables hold {there:,}",
                path=MANIFEST,
                shard=said.name,
                expected=there,
                found=mine,
            )
    listed = [record.path for record in said.files]
    if set(listed) != set(found.files):
        findings.error(
            "MAN052",
            f"{MANIFEST} lists {', '.join(listed) or 'no files'} for this shard, whose files are "
            f"{', '.join(found.files)}",
            path=MANIFEST,
            shard=said.name,
            expected=", ".join(found.files),
            found=", ".join(listed),
        )


def _check_hashes(target: Target, findings: Findings) -> None:
    """Two sidecars that name one file must agree on it."""
    first: dict[str, tuple[str, str]] = {}
    for path, record in named_files(target):
        known = first.setdefault(record.path, (path, record.sha256))
        if known[1] != record.sha256:
            findings.error(
                "MAN053",
                f"{path} and {known[0]} give one file two hashes",
                path=record.path,
                expected=f"{known[1]} in {known[0]}",
                found=f"{record.sha256} in {path}",
            )
