"""Rules that need a tokenizer: the split of every document re-derived from its decoded text, or from its source.

What decodes back to the exact text is known only where the tokenizer is lossless by construction, and only some split
rules depend on the text alone. Everything else is said to be not checked; it is never a finding.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.corpus.layout import split_of
from tokenreel.corpus.splits import HashMod, NoSplit, SplitInput, rule_from_dict
from tokenreel.errors import TokenizerError, TokenreelError
from tokenreel.text import load_tokenizer, tokenizer_from_bytes
from tokenreel.verify.files import tokenizer_file
from tokenreel.verify.finding import Finding
from tokenreel.verify.target import RUN_CONFIG, tokenizer_fact

if TYPE_CHECKING:
    import os

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.splits import SplitRule
    from tokenreel.formats import Found
    from tokenreel.text import Tokenizer
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target

VALIDATION = "validation"
SPLIT_CHECK = "the split of documents, re-derived from their text"
HOW = "--tokenizer FILE, or --source FOLDER"


def find_tokenizer(
    target: Target, given: str | os.PathLike[str] | None, findings: Findings
) -> tuple[Tokenizer | None, str]:
    """Return the tokenizer the corpus was made with, or None and why not; one that is not it is a finding.

    It is the file given, else the one in the output, else the embedded one where the run configuration names that. It
    is loaded once for a target.
    """
    if target.loaded is None:
        target.loaded = _find_tokenizer(target, given, findings)
    return target.loaded


def _find_tokenizer(
    target: Target, given: str | os.PathLike[str] | None, findings: Findings
) -> tuple[Tokenizer | None, str]:
    said = tokenizer_fact(target, "sha256", str)
    inside = tokenizer_file(target)
    try:
        if given is not None:
            path = Path(given)
            tok = tokenizer_from_bytes(target_bytes(path), name=path.name, path=path)
        elif inside is not None:
            tok = tokenizer_from_bytes(target.store.read(inside), name=inside, path=inside)
        elif tokenizer_fact(target, "kind", str) == "bytes":
            tok = load_tokenizer("bytes")
        else:
            return None, "the tokenizer's file is not at hand"
    except TokenreelError as error:
        if given is not None:
            raise
        return None, f"the tokenizer cannot be loaded ({error.code})"
    if said is not None and tok.sha256 != said:
        if given is not None:
            findings.error("MAN057", path=str(given), expected=f"{said}, as {RUN_CONFIG} says", found=tok.sha256)
        return None, "the tokenizer at hand is not the one it was made with"
    return tok, ""


def target_bytes(path: Path) -> bytes:
    """Return a file's bytes; raises `StorageError`."""
    from tokenreel.store import LocalStore

    return LocalStore(path.parent).read(path.name)


@dataclass(eq=False)
class SplitCheck:
    """Re-derives splits from decoded text: `visit` sees documents, from any thread; `finish` adds what is wrong."""

    target: Target
    tokenizer: Tokenizer
    rule: SplitRule
    checked: int = 0
    _wrong: list[Finding] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def visit(
        self, found: Found, first: int, ids: npt.NDArray[np.integer[Any]], lengths: npt.NDArray[np.int64]
    ) -> None:
        """Look at documents [first, first + n) of a shard, laid end to end."""
        split = split_of(found.name)
        if split is None:
            return
        known: list[int] = []
        texts: list[str] = []
        begin = 0
        suffix = self.target.recorded_boundary.suffix
        for k, length in enumerate(lengths.tolist()):
            content = ids[begin : begin + length]
            if suffix and tuple(content[length - len(suffix) :].tolist()) == suffix:
                content = content[: length - len(suffix)]
            begin += length
            # An id without a token is found as an id beyond the vocabulary.
            with contextlib.suppress(TokenizerError):
                texts.append(self.tokenizer.decode(content))
                known.append(k)
        validation = self.rule.validation(SplitInput.of(texts))
        bad = [k for k, held in zip(known, validation.tolist(), strict=True) if held != (split == VALIDATION)]
        with self._lock:
            self.checked += len(known)
            self._wrong += [
                Finding(
                    "SPL030",
                    "error",
                    shard=found.name,
                    document=first + k,
                    expected="train" if split == VALIDATION else VALIDATION,
                    found=split,
                )
                for k in bad
            ]

    def finish(self, findings: Findings) -> None:
        """Add the documents in the wrong split, in order."""
        for finding in sorted(self._wrong, key=lambda one: (one.shard or "", one.document or 0)):
            findings.add(finding)


def split_check(
    target: Target, tokenizer: str | os.PathLike[str] | None, findings: Findings, *, asked: bool = True
) -> SplitCheck | None:
    """Return the check of splits that can be made, or None after saying why there is none.

    With `asked`, a tokenizer that was given asks for it.
    """
    what = SPLIT_CHECK
    config = target.run_config.value if target.run_config else None
    asked = asked and tokenizer is not None
    if config is None or not config.split_rule or split_of(next((s.name for s in target.shards), "")) is None:
        if tokenizer is not None:
            find_tokenizer(target, tokenizer, findings)
            findings.skip(what, "no run_config.json records a split rule", asked=True)
        return None
    try:
        rule = rule_from_dict(config.split_rule)
    except TokenreelError as error:
        findings.error("SPL031", f"the split rule cannot be read: {error.message}", path=RUN_CONFIG)
        return None
    if not isinstance(rule, HashMod | NoSplit):
        findings.skip(what, "its rule depends on more than the text", "--source FOLDER", asked=asked)
        return None
    tok, why = find_tokenizer(target, tokenizer, findings)
    receipts = [sidecar.value for sidecar in target.receipts.values() if sidecar.value is not None]
    lossless = tokenizer_fact(target, "lossless", bool) or (
        bool(receipts) and all(receipt.lossless is True for receipt in receipts)
    )
    if not lossless:
        findings.skip(what, "nothing records that the tokenizer is lossless", "--source FOLDER", asked=asked)
    elif tok is None:
        findings.skip(what, why, HOW, asked=asked)
    elif not tok.lossless:
        findings.skip(what, f"the tokenizer is not lossless: {tok.why_lossy}", "--source FOLDER", asked=asked)
    elif config.special_in_text == "drop":
        findings.skip(what, "special tokens spelled in text were dropped", "--source FOLDER", asked=asked)
    else:
        return SplitCheck(target, tok, rule)
    return None
