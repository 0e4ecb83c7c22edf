"""Rules over what the full pass computed: SHA-256 of files against what names them, identity against the manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.verify.files import named_files
from tokenreel.verify.target import MANIFEST

if TYPE_CHECKING:
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.stream import Read
    from tokenreel.verify.target import Target


def wanted_identities(target: Target) -> tuple[str, ...]:
    """Return the splits whose identity the manifest records."""
    manifest = target.manifest.value if target.manifest else None
    if manifest is None or not target.whole:
        return ()
    return tuple(name for name, split in manifest.splits.items() if split.identity is not None)


def check_hashes(target: Target, read: Read, findings: Findings) -> bool:
    """Check the SHA-256 of every file read against each receipt and manifest that names it; False: there was none."""
    said: dict[str, str] = {}
    compared = 0
    for sidecar, record in named_files(target):
        there = read.sha256.get(record.path)
        compared += there is not None
        if there is None or there == record.sha256 or said.get(record.path) == record.sha256:
            continue
        said[record.path] = record.sha256
        findings.error(
            "MAN040",
            path=record.path,
            shard=record.path.rpartition(".")[0],
            expected=f"{record.sha256}, as {sidecar} says",
            found=there,
        )
    return compared > 0


def check_identities(target: Target, read: Read, findings: Findings) -> bool:
    """Check the identity of every split against the manifest's; False: there was none."""
    manifest = target.manifest.value if target.manifest else None
    if manifest is None:
        return False
    compared = 0
    for split in wanted_identities(target):
        said, found = manifest.splits[split].identity, read.identities.get(split)
        name = f"splits.{split}.identity" if split else "identity"
        if found is None:
            if split not in target.splits() and said is not None and not manifest.splits[split].shards:
                continue  # an empty split has no shard to read
            findings.skip(name, "a shard of it cannot be read, or was not read again", "mend the findings first")
            continue
        compared += 1
        if found.digest != said:
            findings.error(
                "MAN056",
                f"{name} is {said}, and the {found.documents:,} documents and {found.content_tokens:,} content tokens "
                f"there give {found.digest}",
                path=MANIFEST,
                expected=said,
                found=found.digest,
            )
    return compared > 0
