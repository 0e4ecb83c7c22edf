"""Rules that read the source again: input files by hash, every document and count against what its text encodes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tokenreel.corpus.receipts import InputFile
from tokenreel.corpus.splits import rule_from_dict
from tokenreel.errors import MissingExtra, StorageError, TokenreelError, UsageError
from tokenreel.hashing import sha256_file
from tokenreel.store.atomic import read_error
from tokenreel.text.engines import open_engine
from tokenreel.verify.rereading import PartCheck
from tokenreel.verify.texts import SPLIT_CHECK, find_tokenizer

if TYPE_CHECKING:
    import os

    from tokenreel.corpus.receipts import RunConfig
    from tokenreel.corpus.splits import SplitRule
    from tokenreel.text.spec import SpecialInText
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target


@dataclass(frozen=True, slots=True)
class Reread:
    """A run of records of one input, in order, nothing dropped."""

    texts: Sequence[str]
    ids: Sequence[str | None] | None = None
    """Upstream ids, one a record, where the source names a field for them."""
    sources: Sequence[str] | str = ""
    """Sources, one a record or one for all; empty: not known."""


SourceReader = Callable[[InputFile], Iterable[Reread]]
"""Given one input, yields all its records."""

WHAT = "documents against their source"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What reading the source came to."""

    inputs: int = 0
    """Inputs whose size and hash were compared."""
    documents: int = 0
    """Documents compared with their text."""
    splits: bool = False
    """Whether every document was compared, and the split it must be in was derived."""


def check_source(
    target: Target,
    folder: str | os.PathLike[str],
    reader: SourceReader | None,
    tokenizer: str | os.PathLike[str] | None,
    findings: Findings,
    *,
    split_ids: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Check inputs by size and SHA-256 and, with a `reader`, every document by its text, and the receipts' counts.

    Where the split rule cannot be had (a split by id whose list is not given), a document may be in either split, in
    order. Cost: reads the source once, and encodes it with the reference (1 to 4 MB a second and core). Raises
    `SplitError` (SPL014) for a list of ids that is not the recorded one, `UsageError` (USE003) where there is none.
    """
    config = target.run_config.value if target.run_config else None
    if config is None or not config.inputs:
        findings.skip(WHAT, "no run_config.json lists its inputs", asked=True)
        return Outcome()
    rule = _rule(config, split_ids)
    seen = [(listed, _same_input(Path(folder), listed, findings)) for listed in config.inputs]
    inputs = sum(same is not None for _, same in seen)
    tok, why = find_tokenizer(target, tokenizer, findings)
    if reader is None or tok is None:
        reason, how = (
            (why, "--tokenizer FILE") if reader else ("no reader of sources was given", "tokenreel verify --source")
        )
        findings.skip(WHAT, reason, how, asked=True)
        return Outcome(inputs)
    mode = config.special_in_text if config.special_in_text in ("drop", "special") else "text"
    encoder = open_engine(tok, special_in_text=cast("SpecialInText", mode))
    compared, whole = 0, all(same for _, same in seen)
    for listed, same in seen:
        if not same:
            continue
        part = PartCheck(target, config, listed, str(Path(folder) / listed.path), rule, encoder)
        try:
            for batch in reader(listed):
                part.add(batch, findings)
            part.finish(findings)
        except MissingExtra as error:
            findings.skip(WHAT, error.message, error.hint or "", asked=True)
            return Outcome(inputs, compared)
        except TokenreelError as error:
            findings.caught(error, target.store.root)
            whole = False
        compared += part.kept
    if compared and rule is None:
        findings.made(SPLIT_CHECK)
        reason = "the list of ids is not in the corpus" if config.split_rule.get("rule") == "by-id" else "no rule"
        findings.skip(SPLIT_CHECK, f"{reason}: each was taken to be where it stands", "--split-ids FILE")
    return Outcome(inputs, compared, whole and rule is not None)


def _rule(config: RunConfig, split_ids: str | os.PathLike[str] | None) -> SplitRule | None:
    """Return the recorded rule, by id with the list that was given; None where it cannot be had."""
    if split_ids is not None:
        path = Path(split_ids)
        try:
            lines = path.read_text("utf-8-sig").splitlines()
        except OSError as error:
            raise read_error(path, error) from error
        except UnicodeDecodeError as error:
            raise UsageError("USE003", "--split-ids: not UTF-8", path=path, offset=error.start) from error
        if config.split_rule.get("rule") != "by-id":
            raise UsageError("USE003", "--split-ids: the corpus was not split by id", found=config.split_rule)
        return rule_from_dict(config.split_rule, ids=[line for line in lines if line])
    try:
        return rule_from_dict(config.split_rule)
    except TokenreelError:
        return None  # the rule over run_config.json says so


def _same_input(folder: Path, listed: InputFile, findings: Findings) -> bool | None:
    """Return whether an input is the recorded one; None where it could not be read."""
    path = folder / listed.path
    try:
        digest, size = sha256_file(path), path.stat().st_size
    except StorageError as error:
        part = f" of {listed.part}" if listed.part else ""
        findings.skip(f"the input {path}{part}", f"it cannot be read ({error.code})", "--source FOLDER", asked=True)
        return None
    of_part = f" for {listed.part}" if listed.part else ""
    for said, found, unit in ((listed.bytes, size, " bytes"), (listed.sha256, digest, "")):
        if said is not None and said != found:
            what = f"has {found:,} bytes" if unit else "has the right size and another SHA-256"
            findings.error(
                "MAN058",
                f"{path} {what}; run_config.json records {f'{said:,}' if unit else said}{unit}{of_part}",
                path=listed.path,
                expected=said,
                found=found,
            )
            return False
    return True
