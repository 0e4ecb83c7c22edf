"""Rules over names: which files there are, and which ones something names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokenreel.corpus.layout import split_of
from tokenreel.corpus.opening import MIX_COMPLETE
from tokenreel.verify.mix_names import named_by_mix
from tokenreel.verify.target import (
    BUILD_LOG,
    COMPLETE,
    DOCUMENTS,
    MANIFEST,
    RECEIPTS,
    RUN_CONFIG,
    SHARDS,
    STATS,
    TOKENIZER,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.corpus.receipts import FileEntry
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target

_PART = re.compile(r"part-(\d{6,})")
_LAYOUT_FILES = frozenset({MANIFEST, RUN_CONFIG, STATS, COMPLETE, DOCUMENTS, BUILD_LOG})


def named_files(target: Target) -> Iterator[tuple[str, FileEntry]]:
    """Yield (path of the sidecar, file record) for every file that a receipt or the manifest names."""
    for path, receipt in target.receipts.items():
        if receipt.value is not None:
            for record in receipt.value.files():
                yield path, record
    manifest = target.manifest.value if target.manifest else None
    if target.manifest is not None and manifest is not None:
        for split in manifest.splits.values():
            for shard in split.shards:
                for record in shard.files:
                    yield target.manifest.path, record


def check_named(target: Target, findings: Findings) -> bool:
    """Add a finding for every file that a receipt or the manifest names and that is missing or has another size.

    Returns False where none is named.
    """
    looked = False
    for sidecar, record in named_files(target):
        if target.split is not None and split_of(record.path) != target.split:
            continue
        looked = True
        if target.missing(record.path):
            findings.error(
                "MAN004", path=record.path, expected=f"{record.bytes} bytes, as {sidecar} says", found="no such file"
            )
        elif target.sizes[record.path] != record.bytes:
            findings.error(
                "MAN004",
                path=record.path,
                expected=f"{record.bytes} bytes, as {sidecar} says",
                found=f"{target.sizes[record.path]} bytes",
            )
    return looked


def check_unnamed(target: Target, findings: Findings) -> bool:
    """Add a finding for files that nothing names: in shards/, receipts/ and, in a built corpus, anywhere a reader looks.

    While a build is under way a pair without a receipt is a part not finished yet, and only said to be that. Returns
    False where the manifest cannot be read.
    """
    manifest_only = target.manifest is not None and not target.built
    if not target.built and (target.manifest is None or target.manifest.value is None):
        return False
    named = {record.path for _, record in named_files(target)} | named_by_mix(target)
    shard_files = {path for found in target.files for path in found.files}
    for path in target.sizes:
        if path in named or path in target.receipts or path in _LAYOUT_FILES:
            continue
        inside = path.startswith((SHARDS, RECEIPTS))
        if not inside and path not in shard_files:
            continue
        if target.complete is None and path in shard_files and target.built:
            findings.incomplete("MAN045", "a pair without a receipt: its part is not finished", path=path)
        else:
            findings.error("MAN043", path=path, found="named by no receipt and no manifest")
    if manifest_only:
        return True
    for path in target.receipts:
        name = path[len(RECEIPTS) : -len(".json")]
        if not _PART.fullmatch(name) and target.receipts[path].ours:
            findings.error("MAN043", path=path, expected="receipts/part-NNNNNN.json", found=path)
    return True


COMPANIONS = frozenset({"README.md", "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", ".gitattributes", ".gitignore"})
"""What stands beside a published corpus and says nothing about its tokens."""


def check_layout(target: Target, findings: Findings) -> None:
    """Warn of every file that the layout does not have, outside the folders that other rules answer for.

    A card, a licence and the like (`COMPANIONS`) may stand beside any corpus.

    What a build that goes on leaves in its own folders, whose names begin with a dot, is no part of any layout; it goes
    when the build ends.
    """
    known = {RUN_CONFIG, STATS, COMPLETE, BUILD_LOG, tokenizer_file(target)}
    if target.native:
        known |= {MANIFEST, DOCUMENTS}
    shard_files = {path for found in target.files for path in found.files}
    for path in target.sizes:
        if path in known or path in shard_files or path.startswith((SHARDS, RECEIPTS)):
            continue
        if path in COMPANIONS or (target.complete is None and path.startswith(".")):
            continue
        layout = "native" if target.native else "mahan"
        findings.warning("MAN063", f"the layout {layout} has no such file", path=path, found=path)


def tokenizer_file(target: Target) -> str | None:
    """Return the path of the tokenizer that the output holds, or None.

    It is one file: ``tokenizer.json``, or ``tokenizer.model`` where it was trained by SentencePiece.
    """
    names = (f"{TOKENIZER}tokenizer.json", f"{TOKENIZER}tokenizer.model")
    return next((path for path in names if path in target.sizes), None)


def check_mix(target: Target, findings: Findings) -> None:
    """Check that a mix came to its end: its last file is there."""
    if MIX_COMPLETE not in target.sizes:
        findings.incomplete(
            "MAN046",
            "the mix did not come to its end: run it again, finished parts are kept",
            path=MIX_COMPLETE,
            expected="written when everything else is",
            found="no such file",
        )


def check_parts(target: Target, findings: Findings) -> None:
    """Check that every part is there: receipts against the inputs of run_config.json and the number in COMPLETE.json."""
    if not target.built:
        return
    complete = target.complete.value if target.complete else None
    if target.complete is None:
        findings.incomplete(
            "MAN046",
            "a build is at work in this folder: wait until it ends"
            if target.at_work
            else "the build did not come to its end: run it again, finished parts are kept",
            path=COMPLETE,
            expected="written when everything else is",
            found="no such file",
        )
    said: list[tuple[str, int]] = []
    config = target.run_config.value if target.run_config else None
    if config is not None and config.inputs:
        said.append((RUN_CONFIG, len(config.inputs)))
    if complete is not None:
        said.append((COMPLETE, complete.parts))
    for path, parts in said:
        if parts == len(target.receipts):
            continue
        message = f"{path} counts {parts} parts, and there are {len(target.receipts)} receipts"
        if target.complete is None and len(target.receipts) < parts:
            findings.incomplete("MAN045", message, path=path, expected=parts, found=len(target.receipts))
        else:
            findings.error("MAN045", message, path=path, expected=parts, found=len(target.receipts))
    for number, path in enumerate(sorted(target.receipts)):
        expected = f"{RECEIPTS}part-{number:06d}.json"
        if path != expected and target.complete is not None:
            findings.error("MAN045", "a part is missing", path=expected, expected=expected, found=path)
            break
    _check_sidecars(target, findings)


def _check_sidecars(target: Target, findings: Findings) -> None:
    """Check that the files of the layout are there; without COMPLETE.json only what receipts rest on."""
    finished = target.complete is not None
    wanted = [
        RUN_CONFIG,
        *([STATS] if finished else []),
        *([MANIFEST, DOCUMENTS] if finished and target.native else []),
    ]
    for path in wanted:
        if target.missing(path):
            findings.error("MAN004", path=path, expected="part of the layout", found="no such file")
    if target.missing(RUN_CONFIG) and any(path.startswith(TOKENIZER) for path in target.sizes):
        findings.skip("the tokenizer folder", "no run_config.json says what it should be")
