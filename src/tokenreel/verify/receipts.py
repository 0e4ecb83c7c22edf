"""Rules over receipts: their own sums, the shards they name, the input they were made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.corpus.receipts import contradictions, self_hash
from tokenreel.verify.target import RECEIPTS, SHARDS
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from tokenreel.corpus.receipts import Receipt
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target


def check_receipts(target: Target, findings: Findings) -> None:
    """Check every receipt by itself: its name, its sums, where its files lie; and its hash of run_config.json."""
    owners: dict[str, str] = {}
    for path, sidecar in target.receipts.items():
        receipt = sidecar.value
        if receipt is None:
            continue
        name = path[len(RECEIPTS) : -len(".json")]
        if receipt.part != name:
            findings.error("MAN003", "the part is not the file's name", path=path, expected=name, found=receipt.part)
        recorded, own = self_hash(sidecar.data, path)
        if recorded is not None and recorded != own:
            findings.error(
                "MAN064",
                f"the receipt says its SHA-256 is {recorded}, and the rest of it gives {own}",
                path=path,
                expected=own,
                found=recorded,
            )
        for what, expected, held in contradictions(receipt, _itemsize(target)):
            findings.error("MAN012", what, path=path, expected=expected, found=held)
        _check_files(path, receipt, owners, findings)
        config = target.run_config
        said = receipt.run_config_sha256
        if said is not None and config is not None and said != config.sha256:
            findings.error("MAN049", path=path, expected=config.sha256, found=f"{said} in the receipt")


def _itemsize(target: Target) -> int | None:
    """Return the bytes of a stored id, as the run configuration says or the first shard shows."""
    config = target.run_config.value if target.run_config else None
    known = {"uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8}
    if config is not None and config.dtype in known:
        return known[config.dtype]
    first = next(target.opened(), None)
    return None if first is None else first[1].dtype.itemsize


def _check_files(path: str, receipt: Receipt, owners: dict[str, str], findings: Findings) -> None:
    """A split with documents has the pair that its part names, an empty one has none, and no two receipts share one."""
    for split, counts in receipt.splits.items():
        stem = f"{SHARDS}{split}/{receipt.part}"
        wanted = [f"{stem}.bin", f"{stem}.idx"] if counts.documents else []
        names = sorted(record.path for record in counts.files)
        if names != wanted:
            findings.error(
                "MAN044",
                f"splits.{split}: {counts.documents} documents",
                path=path,
                expected=", ".join(wanted) or "no files",
                found=", ".join(names) or "no files",
            )
        for record in counts.files:
            if owners.setdefault(record.path, path) != path:
                findings.error(
                    "MAN044", f"{record.path} is named by two receipts", path=path, found=owners[record.path]
                )


def check_receipt_shards(target: Target, findings: Findings) -> bool:
    """Check the counts of receipts against the shards they name; False where no shard of theirs can be read."""
    looked = False
    for path, sidecar in target.receipts.items():
        receipt = sidecar.value
        if receipt is None:
            continue
        for split, counts in receipt.splits.items():
            found = target.by_name.get(f"{SHARDS}{split}/{receipt.part}")
            if found is None:
                continue
            shard = target.shard(found)
            if shard is None:
                continue
            looked = True
            for unit, said, there in (
                ("document", counts.documents, shard.documents),
                ("token", counts.total_tokens, shard.tokens),
            ):
                if said != there:
                    findings.error(
                        "MAN041",
                        f"the receipt says {counted(said, unit)} in {split}, and the shard holds {there:,}",
                        path=path,
                        shard=found.name,
                        expected=there,
                        found=said,
                    )
    return looked


def check_inputs(target: Target, findings: Findings) -> None:
    """Check the input that each receipt names against the list in run_config.json, part by part."""
    config = target.run_config.value if target.run_config else None
    if config is None or not config.inputs:
        return
    by_part = {record.part: record for record in config.inputs}
    for path, sidecar in target.receipts.items():
        receipt = sidecar.value
        if receipt is None or receipt.input is None:
            continue
        mine, listed = receipt.input, by_part.get(receipt.part)
        if listed is None:
            findings.error("MAN054", path=path, expected="an input of run_config.json", found=receipt.part)
            continue
        for name in ("source", "path", "bytes", "sha256"):
            said, wanted = getattr(mine, name), getattr(listed, name)
            if said is not None and wanted is not None and said != wanted:
                findings.error(
                    "MAN054",
                    f"input.{name} is {said} in the receipt, and run_config.json lists {wanted} for {receipt.part}",
                    path=path,
                    expected=wanted,
                    found=said,
                )
