"""Receipts of staged parts: what was seen, kept and dropped of one input, and the files that hold it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated

import msgspec

from tokenreel.build.text_batches import InputFacts  # noqa: TC001 (msgspec reads it)
from tokenreel.corpus.receipts import FileEntry, dump, parse_as, self_hash
from tokenreel.errors import ManifestError, TokenreelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STAGE_FORMAT = "tokenreel-stage/1"
EXAMPLES = 20
"""Dropped documents that a receipt shows of each reason."""


class Example(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One dropped document."""

    record: int
    value: str
    upstream_id: str | None = None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why documents were dropped, how many, and the first of them."""

    stage: str
    rule: str
    documents: int
    examples: tuple[Example, ...] = ()


class StageReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one input. Documents seen are those kept and those dropped, each for one reason."""

    format: Annotated[str, msgspec.Meta(pattern="^tokenreel-stage/1$")] = STAGE_FORMAT
    source: str
    part: int
    """Number of the input among those of its source."""
    path: str
    """The input, as recorded."""
    input: InputFacts
    plan_sha256: str
    """Of everything that decides the staged bytes besides the input."""
    tokens_before: int
    """Tokens staged of the source's earlier inputs, where it has a budget; else 0."""
    reached: bool
    """Whether the source's budget was reached in this input."""
    docs_seen: int
    kept: int
    dropped: tuple[Reason, ...]
    tokens_staged: int
    """Ids, and one token a document for its boundary."""
    text_tokens: int
    text_bytes: int
    """UTF-8 of the kept documents' whole texts."""
    capped: int
    """Documents of which only the first tokens were kept."""
    capped_tokens: int
    """Tokens that these caps cut off."""
    special_in_text: int
    eod_inside: int
    rechecked: int
    decoded_back: int
    with_url: int
    with_upstream_id: int
    blank_lines: int
    largest_id: int
    """-1 without any id."""
    data: FileEntry
    dropped_list: FileEntry | None = None
    receipt_sha256: str | None = None


def sealed(receipt: StageReceipt) -> StageReceipt:
    """Return the receipt with its own hash in it."""
    bare = msgspec.structs.replace(receipt, receipt_sha256=None)
    return msgspec.structs.replace(bare, receipt_sha256=hashlib.sha256(dump(bare)).hexdigest())


def contradictions(receipt: StageReceipt) -> Iterator[tuple[str, int, int]]:
    """Yield (what, expected, found) for every sum that does not hold."""
    gone = sum(one.documents for one in receipt.dropped)
    if receipt.docs_seen != receipt.kept + gone:
        yield "documents seen, and kept + dropped", receipt.docs_seen, receipt.kept + gone
    if receipt.tokens_staged != receipt.text_tokens + receipt.kept:
        yield "tokens staged, and ids + boundaries", receipt.tokens_staged, receipt.text_tokens + receipt.kept


def parse_stage_receipt(data: bytes, path: object = None) -> StageReceipt:
    """Return a receipt as it was written; raises `ManifestError`: MAN001, MAN002, MAN003, MAN012 a sum or its own hash."""
    receipt = parse_as(StageReceipt, data, path)
    recorded, found = self_hash(data, path)
    if recorded != found:
        raise ManifestError("MAN012", "the receipt's own hash", path=path, expected=recorded, found=found)
    for what, expected, got in contradictions(receipt):
        raise ManifestError("MAN012", what, path=path, expected=expected, found=got)
    return receipt


def receipt_at(path: Path) -> StageReceipt | None:
    """Return the receipt of a file, None where it is not there or not as it was written."""
    try:
        data = path.read_bytes()
        receipt = parse_stage_receipt(data, path)
    except (OSError, TokenreelError):
        return None
    return receipt if dump(receipt) == data else None


class SourceTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of a source's receipts."""

    docs_seen: int = 0
    kept: int = 0
    tokens_staged: int = 0
    text_tokens: int = 0
    text_bytes: int = 0
    capped: int = 0
    capped_tokens: int = 0
    inputs: int = 0
    dropped: dict[str, int] = {}
    """By ``STAGE/RULE``."""
    complete: bool = False
    """Whether the budget was reached, or without one, all inputs were read."""


def totals_of(receipts: list[StageReceipt], budget: int | None, inputs: int) -> SourceTotals:
    """Return the sums of a source's receipts; `inputs` is how many inputs it has in all."""
    dropped: dict[str, int] = {}
    for receipt in receipts:
        for one in receipt.dropped:
            key = f"{one.stage}/{one.rule}"
            dropped[key] = dropped.get(key, 0) + one.documents
    whole = len(receipts) == inputs and all(one.input.whole for one in receipts)
    return SourceTotals(
        docs_seen=sum(one.docs_seen for one in receipts),
        kept=sum(one.kept for one in receipts),
        tokens_staged=sum(one.tokens_staged for one in receipts),
        text_tokens=sum(one.text_tokens for one in receipts),
        text_bytes=sum(one.text_bytes for one in receipts),
        capped=sum(one.capped for one in receipts),
        capped_tokens=sum(one.capped_tokens for one in receipts),
        inputs=len(receipts),
        dropped=dict(sorted(dropped.items())),
        complete=any(one.reached for one in receipts) if budget is not None else whole,
    )
