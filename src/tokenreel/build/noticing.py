"""What a build notices that is no error and must not pass in silence; each becomes a warning of its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.build.blocks import InputBytes
from tokenreel.build.sources import in_two_sources, read_records
from tokenreel.corpus.receipts import DecodedBack
from tokenreel.errors import TokenreelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from tokenreel.build.inputs import HashedInput
    from tokenreel.build.sources import PlannedInput
    from tokenreel.corpus.receipts import Receipt, Stats
    from tokenreel.text import Tokenizer

_LOOKED_AT = 1 << 20


def shared_inputs(planned: Sequence[PlannedInput]) -> list[str]:
    """Return the warning for files that more than one source names."""
    pairs = in_two_sources(planned)
    if not pairs:
        return []
    one, two = pairs[0]
    files = "1 file stands" if len(pairs) == 1 else f"{len(pairs):,} files stand"
    return [
        f"{files} in two sources, and so twice in the corpus: {two.path} in {two.shape.name} is {one.path} in {one.shape.name}"
    ]


def empty_splits(rule: dict[str, Any], stats: Stats) -> list[str]:
    """Return the warning for a rule that put every document on one side."""
    name = rule.get("rule", "hash-mod")
    counts = stats.by_split
    documents = sum(one.documents for one in counts.values())
    if name == "none" or not documents:
        return []
    return [
        f"split rule {name} gave no {split} document of {documents:,}"
        for split in ("validation", "train")
        if split in counts and not counts[split].documents
    ]


def ids_not_found(
    listed: AbstractSet[str], found: dict[str, AbstractSet[str]], receipts: Iterable[Receipt]
) -> tuple[int, list[str]]:
    """Return how many listed ids occur nowhere, and the warning.

    `found` are the listed ids that each part met, as its worker said. A part of an earlier run may have no such set
    (its log is lost); then as many are missing at least as there are more ids than validation documents.
    """
    held = {receipt.part: receipt.splits["validation"].documents for receipt in receipts}
    met = set().union(*(ids for part, ids in found.items() if part in held))
    known = met & listed
    unknown = sum(count for part, count in held.items() if part not in found)
    missing = len(listed) - len(known) - unknown
    if missing <= 0:
        return 0, []
    first = min(listed - known)
    least = "at least " if unknown else ""
    text = f"{least}{missing:,} of the {len(listed):,} ids that are validation occur in no document"
    return missing, [text + (f"; the first is {first!r}" if not unknown else "")]


def lossy(tok: Tokenizer, receipts: Iterable[Receipt], inputs: Sequence[HashedInput], special: bool) -> list[str]:
    """Return the warning for documents whose ids did not decode to their text, and the first of them.

    Only what was re-checked is known. The document is looked for at the beginning of the first input that has one.
    """
    checked = back = 0
    at = ""
    for receipt in receipts:
        if isinstance(receipt.lossless, DecodedBack):
            checked += receipt.lossless.checked
            back += receipt.lossless.decoded_back
            if not at and receipt.lossless.decoded_back < receipt.lossless.checked:
                at = receipt.part
    if tok.lossless or (checked and checked == back):
        return []
    if not checked:
        return [f"{tok.name} may lose text ({tok.why_lossy}), and no document was re-checked"]
    text = f"{checked - back:,} of {checked:,} re-checked documents do not decode to their text ({tok.why_lossy})"
    one = next((one for one in inputs if one.record.part == at), None)
    return [text + ("" if one is None else f"; first in {_first_lost(tok, one, special)}")]


def _first_lost(tok: Tokenizer, one: HashedInput, special: bool) -> str:
    place, left = one.planned.path, _LOOKED_AT
    try:
        for records in read_records(InputBytes(one.planned.location), one.planned.shape, 1 << 16):
            records.check()
            texts = records.texts.to_pylist()
            ids, lengths = tok.encode_batch(texts, special=special)
            begin = 0
            for number, (text, length) in enumerate(zip(texts, lengths.tolist(), strict=True)):
                decoded = tok.decode(ids[begin : begin + length])
                begin += length
                if decoded != text:
                    same = next((k for k, (a, b) in enumerate(zip(text, decoded, strict=False)) if a != b), None)
                    k = min(len(text), len(decoded)) if same is None else same
                    line = f" line {records.lines[number]}" if records.lines is not None else ""
                    return (
                        f"{place}{line} document {records.first + number}, from character {k} on: "
                        f"{text[k : k + 20]!r} became {decoded[k : k + 20]!r}"
                    )
                left -= len(text) + 1
            if left <= 0:
                break
    except TokenreelError:
        pass  # the warning is still true without the example
    return place
