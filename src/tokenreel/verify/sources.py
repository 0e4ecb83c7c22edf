"""Rules that read the source again: input files by hash, and every document against what its text encodes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.receipts import InputFile
from tokenreel.corpus.splits import SplitInput, rule_from_dict
from tokenreel.errors import StorageError, TokenreelError
from tokenreel.hashing import sha256_file
from tokenreel.verify.target import SHARDS
from tokenreel.verify.texts import VALIDATION, find_tokenizer

if TYPE_CHECKING:
    import os

    from tokenreel.corpus.splits import SplitRule
    from tokenreel.text import Tokenizer
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target

SourceReader = Callable[[InputFile], Iterable[tuple[Sequence[str], Sequence[str] | None]]]
"""Given one input, yields batches of (texts, upstream ids or None) of all its records, in order, nothing dropped."""

WHAT = "documents against their source"


def check_source(
    target: Target,
    folder: str | os.PathLike[str],
    reader: SourceReader | None,
    tokenizer: str | os.PathLike[str] | None,
    findings: Findings,
) -> int:
    """Check inputs by size and SHA-256 and, with a `reader`, every document by its text; returns documents compared.

    Cost: reads the source once, and encodes it with the reference (1 to 4 MB a second and core).
    """
    config = target.run_config.value if target.run_config else None
    if config is None or not config.inputs:
        findings.skip(WHAT, "no run_config.json lists its inputs", asked=True)
        return 0
    sound = [listed for listed in config.inputs if _same_input(Path(folder), listed, findings)]
    if reader is None:
        findings.skip(WHAT, "no reader of sources was given", "tokenreel verify PATH --source FOLDER", asked=True)
        return 0
    try:
        rule = rule_from_dict(config.split_rule)
    except TokenreelError:
        rule = None
    tok, why = find_tokenizer(target, tokenizer, findings)
    if rule is None or tok is None or config.special_in_text == "drop":
        reason = why or (
            "its split rule cannot be read back" if rule is None else "special tokens in text were dropped"
        )
        findings.skip(WHAT, reason, "--tokenizer FILE" if tok is None else "", asked=True)
        return 0
    compared = 0
    for listed in sound:
        try:
            compared += _check_part(target, listed, reader, rule, tok, findings)
        except TokenreelError as error:
            findings.caught(error, target.store.root)
    return compared


def _same_input(folder: Path, listed: InputFile, findings: Findings) -> bool:
    path = folder / listed.path
    try:
        digest, size = sha256_file(path), path.stat().st_size
    except StorageError as error:
        findings.skip(f"the input {listed.path}", f"it cannot be read ({error.code})", "--source FOLDER", asked=True)
        return False
    for name, said, found in (("bytes", listed.bytes, size), ("sha256", listed.sha256, digest)):
        if said is not None and said != found:
            findings.error("MAN058", name, path=listed.path, expected=said, found=found)
            return False
    return True


def _check_part(
    target: Target, listed: InputFile, reader: SourceReader, rule: SplitRule, tok: Tokenizer, findings: Findings
) -> int:
    config = target.run_config.value if target.run_config else None
    keep_empty = config is None or config.empty_documents != "drop"
    special = config is not None and config.special_in_text == "special"
    done = {"train": 0, VALIDATION: 0}
    wrong: set[str] = set()
    for texts, ids in reader(listed):
        kept = [k for k, text in enumerate(texts) if text or keep_empty]
        chosen = [texts[k] for k in kept]
        upstream = None if ids is None else [ids[k] for k in kept]
        validation = rule.validation(SplitInput.of(chosen, first=sum(done.values()), ids=upstream))
        for split, before in done.items():
            mine = np.flatnonzero(validation == (split == VALIDATION)).tolist()
            if split not in wrong and not _same_documents(
                target, listed, split, before, [chosen[k] for k in mine], tok, special, findings
            ):
                wrong.add(split)
            done[split] = before + len(mine)
    for split, count in done.items():
        shard = _shard(target, listed, split)
        there = 0 if shard is None else shard.documents
        if split not in wrong and there != count:
            findings.error("DOC012", "documents", shard=f"{SHARDS}{split}/{listed.part}", expected=count, found=there)
    return sum(done.values())


def _shard(target: Target, listed: InputFile, split: str) -> Any:
    found = target.by_name.get(f"{SHARDS}{split}/{listed.part}")
    return None if found is None else target.shard(found)


def _same_documents(
    target: Target,
    listed: InputFile,
    split: str,
    first: int,
    texts: list[str],
    tok: Tokenizer,
    special: bool,
    findings: Findings,
) -> bool:
    """Compare documents [first, first + n) of a split's shard with what their texts encode to."""
    if not texts:
        return True
    shard, name = _shard(target, listed, split), f"{SHARDS}{split}/{listed.part}"
    if shard is None or shard.documents < first + len(texts):
        there = 0 if shard is None else shard.documents
        findings.error("DOC012", "documents", shard=name, expected=f">= {first + len(texts)}", found=there)
        return False
    ids, lengths = tok.encode_batch(texts, special=special)
    edges = shard.document_edges(first, first + len(texts))
    begins = np.cumsum([0, *lengths.tolist()])
    prefix, suffix = target.boundary.prefix, target.boundary.suffix
    for k in range(len(texts)):
        stored = shard.read(int(edges[k]), int(edges[k + 1]))
        wanted = [*prefix, *ids[begins[k] : begins[k + 1]].tolist(), *suffix]
        if stored.tolist() != wanted:
            same = next((j for j, (a, b) in enumerate(zip(stored.tolist(), wanted, strict=False)) if a != b), None)
            at = min(len(stored), len(wanted)) if same is None else same
            path, offset = shard.byte_at(min(int(edges[k]) + at, max(0, shard.tokens - 1)))
            findings.error(
                "DOC012",
                path=path,
                offset=offset,
                shard=name,
                document=first + k,
                expected=f"{wanted[at : at + 4]} from token {at}",
                found=stored.tolist()[at : at + 4],
            )
            return False
    return True
