"""Rules over what reading ids counted: the manifest's largest ids and statistics, EOD ids inside documents, and a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.verify.target import MANIFEST, eod_inside
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.stream import Read
    from tokenreel.verify.target import Target

NEARLY_ALL = 0.9


def check_contents(target: Target, read: Read, findings: Findings) -> bool:
    """Check largest ids by shard and statistics by split of the manifest; returns whether there was one to check."""
    manifest = target.manifest.value if target.manifest else None
    if manifest is None or not target.whole:
        return False
    compared = 0
    for name, split in manifest.splits.items():
        for shard in split.shards:
            if shard.max_id is None or shard.name not in read.max_id:
                continue
            compared += 1
            _compare(findings, f"max_id of {shard.name}", shard.max_id, read.max_id[shard.name], shard=shard.name)
        there = read.statistics.get(name)
        if split.statistics is None or there is None:
            continue
        compared += 1
        for key in [*split.statistics, *(key for key in there if key not in split.statistics)]:
            said: Any = split.statistics.get(key, "nothing")
            _compare(findings, f"statistics.{key} of {name or 'the corpus'}", said, there.get(key, "nothing"))
    return compared > 0


def _compare(findings: Findings, what: str, said: object, there: object, **where: Any) -> None:
    if said != there:
        findings.error(
            "MAN052",
            f"{what} is {said} in {MANIFEST}, and the stored ids give {there}",
            path=MANIFEST,
            expected=there,
            found=said,
            **where,
        )


def check_inside(target: Target, read: Read, findings: Findings, *, whole: bool) -> None:
    """Check EOD ids inside documents against the receipts that count them: equal when all was read, else no more."""
    for path, sidecar in target.receipts.items():
        receipt = sidecar.value
        names = [] if receipt is None else target.counted_inside.get(path, [])
        if receipt is None or not names or any(name in target.broken for name in names):
            continue
        said, there = eod_inside(sidecar), sum(read.inside.get(name, 0) for name in names)
        if there > said or (whole and target.whole and there != said):
            findings.error(
                "TOK022",
                f"the receipt counts {counted(said, 'EOD id')} inside documents, and {there:,} stand there",
                path=path,
                expected=said,
                found=there,
            )


def ends_hint(target: Target, read: Read) -> tuple[str, ...]:
    """Return what nearly all documents end with when it is not the declared suffix."""
    if not read.lacking or not read.documents:
        return ()
    value, count = read.lacking.most_common(1)[0]
    if value < 0 or count < NEARLY_ALL * read.documents:
        return ()
    prefix = target.boundary.prefix
    spelled = f"prefix={'+'.join(map(str, prefix))}," if prefix else ""
    whole = f"{count:,} of {read.documents:,} documents read end with {value}"
    if target.boundary_given:
        return (f"{whole}: did you mean --boundary {spelled}suffix={value}?",)
    return (f"{whole}, not with the recorded {'+'.join(map(str, target.boundary.suffix))}",)
