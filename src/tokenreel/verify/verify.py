"""`verify`: open a path, run the rules, report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tokenreel.errors import UsageError
from tokenreel.verify.digests import check_hashes, check_identities, wanted_identities
from tokenreel.verify.documents import check_documents, check_documents_quick
from tokenreel.verify.finding import Findings, Report
from tokenreel.verify.rules import RULES
from tokenreel.verify.sources import check_source
from tokenreel.verify.stream import Read, read_full, read_sample
from tokenreel.verify.target import open_store, open_target
from tokenreel.verify.texts import split_check

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from tokenreel.formats import Boundary
    from tokenreel.store import Store
    from tokenreel.verify.sources import SourceReader
    from tokenreel.verify.target import Target

LEVELS = ("quick", "full")
SAMPLE = 1000
"""Documents read at level quick, unless another number is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run of the rules was asked to do; see `verify`."""

    level: str = "full"
    sample: int = SAMPLE
    seed: int = 0
    tokenizer: str | os.PathLike[str] | None = None
    source: str | os.PathLike[str] | None = None
    source_reader: SourceReader | None = None
    strict: bool = False
    progress: Callable[[int, int | None, int], None] | None = None


IDS = ("TOK001", "TOK020", "TOK021", "TOK022", "TOK023", "TOK024")


def verify(  # noqa: PLR0913 (the options of the command)
    path: str | os.PathLike[str],
    *,
    level: str = "quick",
    sample: int | None = None,
    seed: int = 0,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    boundary: Boundary | str | None = None,
    vocab: int | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    source_reader: SourceReader | None = None,
    accept: Iterable[str] = (),
    strict: bool = False,
    progress: Callable[[int, int | None, int], None] | None = None,
) -> Report:
    """Check a corpus, a shard or a split, and report; raises only for usage and for storage that refuses to be read.

    ``quick`` reads headers, tables, sidecars and a `sample` of documents chosen by `seed`; ``full`` reads every byte
    once. `select` and `ignore` are codes or beginnings of codes. `source` is the recipe's folder: inputs are hashed,
    and with a `source_reader` every document is compared with what its text encodes to. `progress` is called with
    bytes done, bytes in all and tokens read.

    >>> from tokenreel.formats.megatron_write import MegatronWriter
    >>> import numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with MegatronWriter(f"{folder}/web", np.uint16) as writer:
    ...     writer.add_documents(np.array([5, 6, 0, 7]), np.array([3, 1]))
    ...     files = writer.finish()
    >>> report = verify(folder, boundary="suffix=0")
    >>> report.status, [(f.code, f.path, f.offset, f.document) for f in report.findings]
    ('broken', [('TOK021', 'web.bin', 6, 1)])
    """
    _check_level(level, sample)
    findings = Findings(select, ignore)
    target = open_target(path, findings, boundary=boundary, vocab=vocab, accept=accept)
    options = Options(
        level=level,
        sample=SAMPLE if sample is None else sample,
        seed=seed,
        tokenizer=tokenizer,
        source=source,
        source_reader=source_reader,
        strict=strict,
        progress=progress,
    )
    return _run(target, findings, options)


def verify_store(
    store: Store,
    *,
    level: Literal["quick", "full"] = "full",
    boundary: Boundary | str | None = None,
    vocab: int | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> Report:
    """Check what a store holds, as `verify` does for a path."""
    findings = Findings()
    target = open_store(store, store.root, findings, boundary=boundary, vocab=vocab)
    return _run(target, findings, Options(level=level, tokenizer=tokenizer))


def _check_level(level: str, sample: int | None) -> None:
    if level not in LEVELS:
        raise UsageError("USE003", "no such level", expected=" or ".join(LEVELS), found=level, hint="--level full")
    if sample is not None and sample < 0:
        raise UsageError("USE003", "a sample is a number of documents", expected=">= 0", found=sample)


def _run(target: Target, findings: Findings, options: Options) -> Report:
    checked = []
    try:
        for rule in RULES:
            # The first rule always runs: what the others may read depends on it.
            if rule is not RULES[0] and not findings.wants(rule.codes):
                continue
            if (rule.whole and not target.whole) or not rule.needs(target):
                continue
            rule.check(target, findings)
            checked.append(rule.what)
        facts = _facts(target)
        read = Read()
        if findings.wants((*IDS, "MAN040", "MAN056", "SPL030", "SPL031")):
            read = _read_ids(target, findings, options, facts, checked)
        if options.level == "full":
            check_hashes(target, read, findings)
            check_identities(target, read, findings)
            check_documents(target, findings)
            checked.append("SHA-256 of every file and identity of every split, where recorded")
            facts["bytes_hashed"] = read.bytes
        else:
            check_documents_quick(target, findings)
            findings.skip("SHA-256 and identity", "level quick reads samples", "--level full")
        if options.source is not None:
            facts["documents_from_source"] = check_source(
                target, options.source, options.source_reader, options.tokenizer, findings
            )
            checked.append("documents against their source")
    finally:
        target.close()
    return Report(
        target.path,
        options.level,
        tuple(findings.kept),
        findings.counts,
        findings.severities,
        tuple(findings.not_checked),
        tuple(checked),
        facts,
        dict(findings.ignored),
        options.strict,
    )


def _read_ids(target: Target, findings: Findings, options: Options, facts: dict[str, Any], checked: list[str]) -> Read:
    """Read ids, all or a sample, and run every rule over ids on the way."""
    splits = split_check(target, options.tokenizer, findings)
    visit = splits.visit if splits is not None else None
    if options.level == "full":
        read = read_full(target, findings, wanted_identities(target), visit, options.progress)
    else:
        read = read_sample(target, findings, options.sample, options.seed, visit)
    if splits is not None:
        splits.finish(findings)
        facts["splits_rederived"] = splits.checked
        checked.append(f"the split of {splits.checked} documents, re-derived from their text")
    facts["documents_read"], facts["tokens_read"] = read.documents, read.tokens
    what = "every document" if read.documents == facts["documents"] else f"{read.documents} documents"
    if target.boundary.prefix or target.boundary.suffix:
        checked.append(f"prefix and suffix of {what}")
    else:
        findings.skip(
            "how documents begin and end (EOD)",
            "no boundary ids are declared",
            "--boundary suffix=ID, or tokenreel adopt",
        )
    if target.vocab is not None:
        checked.append(f"ids of {what} against the vocabulary")
    else:
        findings.skip("ids against the vocabulary", "its size is not recorded", "--vocab N")
    return read


def _facts(target: Target) -> dict[str, Any]:
    """Return counts by split, and the share of validation: true, and never a finding."""
    splits: dict[str, dict[str, int]] = {}
    for name, chosen in target.splits().items():
        row = {"shards": len(chosen), "documents": 0, "sequences": 0, "tokens": 0}
        for found in chosen:
            shard = target.shard(found)
            if shard is not None:
                row["documents"] += shard.documents
                row["sequences"] += shard.sequences
                row["tokens"] += shard.tokens
        splits[name] = row
    facts: dict[str, Any] = {
        "shards": len(target.shards),
        "documents": sum(row["documents"] for row in splits.values()),
        "tokens": sum(row["tokens"] for row in splits.values()),
    }
    if set(splits) != {""}:
        facts["splits"] = splits
    held = next((splits[name] for name in ("validation", "valid", "val") if name in splits), None)
    if held is not None:
        for unit in ("documents", "tokens"):
            if facts[unit]:
                facts[f"validation_share_of_{unit}"] = round(held[unit] / facts[unit], 6)
    return facts
