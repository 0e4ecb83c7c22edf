"""`verify`: open a path, run the rules, report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tokenreel.errors import UsageError
from tokenreel.formats.overruling import READERS
from tokenreel.verify.attested import check_sums, note_not_attested
from tokenreel.verify.contents import check_contents, check_inside, ends_hint
from tokenreel.verify.digests import check_hashes, check_identities, wanted_identities
from tokenreel.verify.documents import check_documents, check_documents_quick
from tokenreel.verify.finding import Findings
from tokenreel.verify.mixes import check_mix_hashes
from tokenreel.verify.options import known_dtype
from tokenreel.verify.report import Report
from tokenreel.verify.rules import RULES
from tokenreel.verify.sampled import read_sample
from tokenreel.verify.selecting import known_codes
from tokenreel.verify.since import read_receipt, write_receipt
from tokenreel.verify.sources import check_source
from tokenreel.verify.stream import Read, read_full
from tokenreel.verify.streamed import PIECE_QUICK
from tokenreel.verify.target import DOCUMENTS, open_store, open_target
from tokenreel.verify.texts import SPLIT_CHECK, split_check
from tokenreel.verify.wording import counted

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
    split_ids: str | os.PathLike[str] | None = None
    strict: bool = False
    progress: Callable[[int, int | None, int], None] | None = None
    since: str | os.PathLike[str] | None = None
    receipt: str | os.PathLike[str] | None = None


VOCABULARY = ("TOK020",)
ENDS = ("TOK021", "TOK022", "TOK023", "TOK024", "TOK027")
READING = (*VOCABULARY, *ENDS, "MAN040", "MAN052", "MAN056", "SPL030", "SPL031")
"""Codes that reading ids can give."""


@dataclass(slots=True)
class Checks:
    """What was checked, and which of it gave findings."""

    findings: Findings
    made: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    left_out: int = 0
    """Checks not made because their codes were not selected."""

    def run(self, what: str, codes: Iterable[str], check: Callable[[], object]) -> None:
        """Run one check, unless its codes are not selected; one that returns False looked at nothing."""
        if not self.findings.wants(codes):
            self.left_out += 1
            return
        before = self.findings.total
        if check() is not False:
            self.add(what, failed=self.findings.total > before)

    def add(self, what: str, *, failed: bool) -> None:
        """Say that something was checked."""
        self.made.append(what)
        if failed:
            self.failed.append(what)


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
    dtype: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    source_reader: SourceReader | None = None,
    split_ids: str | os.PathLike[str] | None = None,
    accept: Iterable[str] = (),
    strict: bool = False,
    progress: Callable[[int, int | None, int], None] | None = None,
    since: str | os.PathLike[str] | None = None,
    receipt: str | os.PathLike[str] | None = None,
) -> Report:
    """Check a corpus, a shard or a split, and report; raises only for usage and for storage that refuses to be read.

    ``quick`` reads headers, tables, sidecars and a `sample` of documents chosen by `seed`; ``full`` reads every byte
    once. `select` and `ignore` are codes or beginnings of codes. `source` is the recipe's folder: inputs are hashed,
    and with a `source_reader` every document is compared with what its text encodes to; `split_ids` is the file that
    lists the ids of a split by id. At level full a `receipt` of the run can be written, and given as `since` to a later one:
    shards whose files did not change are not read again. `progress` is called with bytes done, bytes in all and tokens read.

    Raises `UsageError`: USE001 for a code that the table does not have, USE003 for options that cannot be right.

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
    findings = Findings(known_codes(select, "--select"), known_codes(ignore, "--ignore"))
    overruled = known_codes(accept, "--accept", whole=True)
    _check_accept(overruled)
    piece = PIECE_QUICK if level == "quick" else None
    target = open_target(
        path, findings, boundary=boundary, vocab=vocab, accept=overruled, dtype=known_dtype(dtype), piece=piece
    )
    target.tokenizer = tokenizer
    options = Options(
        level=level,
        sample=SAMPLE if sample is None else sample,
        seed=seed,
        tokenizer=tokenizer,
        source=source,
        source_reader=source_reader,
        split_ids=split_ids,
        strict=strict,
        progress=progress,
        since=since,
        receipt=receipt,
    )
    if level != "full" and (since or receipt):
        raise UsageError("USE003", "--since and --receipt are of level full", found=level, hint="--level full")
    return _run(target, findings, options)


def verify_store(
    store: Store,
    *,
    level: Literal["quick", "full"] = "full",
    boundary: Boundary | str | None = None,
    vocab: int | None = None,
    dtype: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> Report:
    """Check what a store holds, as `verify` does for a path."""
    findings = Findings()
    piece = PIECE_QUICK if level == "quick" else None
    target = open_store(
        store, store.root, findings, boundary=boundary, vocab=vocab, dtype=known_dtype(dtype), piece=piece
    )
    target.tokenizer = tokenizer
    return _run(target, findings, Options(level=level, tokenizer=tokenizer))


def _check_level(level: str, sample: int | None) -> None:
    if level not in LEVELS:
        raise UsageError("USE003", "no such level", expected=" or ".join(LEVELS), found=level, hint="--level full")
    if sample is not None and sample < 0:
        raise UsageError("USE003", "a sample is a number of documents", expected=">= 0", found=sample)


def _check_accept(overruled: tuple[str, ...]) -> None:
    for code in overruled:
        if code not in READERS:
            known = ", ".join(sorted(READERS))
            raise UsageError("USE003", "--accept: this finding cannot be overruled", expected=known, found=code)


def _run(target: Target, findings: Findings, options: Options) -> Report:
    checks = Checks(findings)
    hints: tuple[str, ...] = ()
    try:
        _check_rules(target, findings, checks)
        facts = _facts(target)
        if target.broken:
            facts["unreadable_shards"] = len(target.broken)
            one = counted(len(target.broken), "shard")
            findings.skip(f"the ids of {one}", "it cannot be read", "mend the findings first", asked=True)
        read = Read()
        if findings.wants(READING):
            read = _read_ids(target, findings, options, facts, checks)
            hints = ends_hint(target, read)
        else:
            checks.left_out += 1
        _check_contents(target, findings, options, read, checks)
        note_not_attested(target, findings)
        facts["bytes_hashed"] = read.bytes
        if read.special:
            facts["special"] = {name: counts.as_dict() for name, counts in read.special.items()}
        if options.source is not None:
            _check_source(target, findings, options, facts, checks)
    finally:
        target.close()
    report = Report(
        target.path,
        options.level,
        tuple(findings.kept),
        findings.counts,
        findings.severities,
        tuple(findings.not_checked),
        tuple(checks.made),
        facts,
        dict(findings.ignored),
        options.strict,
        tuple(checks.failed),
        findings.select,
        checks.left_out,
        hints,
    )
    if options.receipt is not None:
        write_receipt(options.receipt, target, report, read)
    return report


def _check_rules(target: Target, findings: Findings, checks: Checks) -> None:
    for rule in RULES:
        if (rule.whole and not target.whole) or not rule.needs(target):
            continue
        if rule is RULES[0] and not findings.wants(rule.codes):
            rule.check(target, findings)  # what the others may read depends on it
        checks.run(rule.what, rule.codes, lambda rule=rule: rule.check(target, findings))  # type: ignore[misc]


def _check_contents(target: Target, findings: Findings, options: Options, read: Read, checks: Checks) -> None:
    """Run what needs whole files read, or says that they were not."""
    if options.level == "full":
        checks.run("SHA-256 of every file that is named", ("MAN040",), lambda: check_hashes(target, read, findings))
        checks.run("checksums that others recorded", ("MAN040",), lambda: check_sums(target, read, findings))
        checks.run("files that records of a mix name", ("MAN040",), lambda: check_mix_hashes(target, read, findings))
        checks.run("identity of every split", ("MAN056",), lambda: check_identities(target, read, findings))
        checks.run(
            "largest ids and statistics of tokenreel.json", ("MAN052",), lambda: check_contents(target, read, findings)
        )
        checks.run(
            f"rows of {DOCUMENTS} against shards, receipts and COMPLETE.json",
            ("DOC011", "DOC013", "DOC027", "MAN003", "MAN047", "MAN061"),
            lambda: check_documents(target, findings),
        )
    else:
        checks.run(f"number of rows of {DOCUMENTS}", ("DOC011",), lambda: check_documents_quick(target, findings))
        findings.skip("SHA-256 and identity", "level quick reads samples", "--level full")


def _check_source(target: Target, findings: Findings, options: Options, facts: dict[str, Any], checks: Checks) -> None:
    if options.source is None:
        return
    if not target.whole:
        findings.skip(
            "documents against their source", "one split or one shard was named", "name the corpus", asked=True
        )
        return
    before = findings.total
    outcome = check_source(
        target, options.source, options.source_reader, options.tokenizer, findings, split_ids=options.split_ids
    )
    failed = findings.total > before
    facts["documents_from_source"] = outcome.documents
    if outcome.inputs:
        checks.add(f"size and SHA-256 of {counted(outcome.inputs, 'input')}", failed="MAN058" in findings.counts)
    if outcome.documents:
        what = f"{counted(outcome.documents, 'document')}{' and their splits' if outcome.splits else ''}"
        checks.add(f"{what} against their source", failed=failed)
    if outcome.splits and not failed:
        findings.made(SPLIT_CHECK)


def _read_ids(target: Target, findings: Findings, options: Options, facts: dict[str, Any], checks: Checks) -> Read:
    """Read ids, all or a sample, and run every rule over ids on the way."""
    splits = split_check(target, options.tokenizer, findings, asked=options.source is None)
    visit = splits.visit if splits is not None else None
    if options.level == "full":
        manifest = target.manifest.value if target.manifest and target.whole else None
        statistics = [name for name, split in manifest.splits.items() if split.statistics] if manifest else []
        unchanged = read_receipt(options.since, target).unchanged(target) if options.since is not None else {}
        if unchanged:
            facts["unchanged_shards"] = len(unchanged)
            findings.skip(f"the ids of {counted(len(unchanged), 'shard')}", "unchanged since the receipt")
        read = read_full(
            target,
            findings,
            wanted_identities(target),
            visit,
            options.progress,
            statistics=tuple(statistics),
            unchanged=unchanged,
        )
    else:
        read = read_sample(target, findings, options.sample, options.seed, visit)
    check_inside(target, read, findings, whole=options.level == "full")
    if splits is not None:
        splits.finish(findings)
        facts["splits_rederived"] = splits.checked
        if splits.checked:
            what = f"the split of {counted(splits.checked, 'document')}, re-derived from their text"
            checks.add(what, failed="SPL030" in findings.counts)
    facts["documents_read"], facts["tokens_read"] = read.documents, read.tokens
    every = read.documents == facts.get("documents") and not target.broken
    what = "every document" if every else counted(read.documents, "document")
    pieces = any(getattr(shard, "piece", None) for _, shard in target.opened())
    if pieces:
        facts["documents_read"], what = 0, f"{counted(read.documents, 'stretch', 'stretches')} of ids"
    found = set(findings.counts) | set(findings.ignored)
    for name, codes, known, why, how in (
        (
            "how documents begin and end (EOD)",
            ENDS,
            target.boundary.prefix or target.boundary.suffix,
            "no boundary ids are declared",
            "--boundary suffix=ID, or tokenreel adopt",
        ),
        ("ids against the vocabulary", VOCABULARY, target.vocab is not None, "its size is not recorded", "--vocab N"),
    ):
        if not known:
            findings.skip(name, why, how)
        elif pieces and codes is ENDS:
            findings.skip(name, "documents of files without a table are found by scanning all of them", "--level full")
        elif not findings.wants(codes):
            checks.left_out += 1
        elif read.documents:
            checks.add(f"{name}: {what}", failed=bool(found.intersection(codes)))
    return read


def _facts(target: Target) -> dict[str, Any]:
    """Return counts by split, and the share of validation: true, and never a finding."""
    splits: dict[str, dict[str, int]] = {}
    whole = True
    for name, chosen in target.splits().items():
        row = {"shards": len(chosen), "documents": 0, "sequences": 0, "tokens": 0}
        if target.streamed:
            row["shards"] = sum(len(found.files) for found in chosen)
        for found in chosen:
            shard = target.shard(found)
            if shard is not None:
                row["documents"] += shard.documents
                row["sequences"] += shard.sequences
                row["tokens"] += shard.tokens
                whole &= not getattr(shard, "piece", None)
        splits[name] = row
    facts: dict[str, Any] = {
        "shards": len(target.files),
        "documents": sum(row["documents"] for row in splits.values()),
        "tokens": sum(row["tokens"] for row in splits.values()),
    }
    if not whole:
        # Pieces were read, and nothing counted documents.
        for row in (facts, *splits.values()):
            row.pop("documents")
    if set(splits) != {""}:
        facts["splits"] = splits
    held = next((splits[name] for name in ("validation", "valid", "val") if name in splits), None)
    if held is not None:
        for unit in ("documents", "tokens"):
            if facts.get(unit):
                facts[f"validation_share_of_{unit}"] = round(held[unit] / facts[unit], 6)
    return facts
