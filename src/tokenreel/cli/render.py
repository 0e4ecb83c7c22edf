"""Plain data of commands as lines for people."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tokenreel.verify.histogram import histogram_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.verify.inspect import Document, Inspection

SHOWN_IDS = 32
SHOWN_CHARACTERS = 2000


def inspection_lines(seen: Inspection, *, lengths: bool = False) -> Iterator[str]:
    """Yield what `inspect` found; the histogram when there is more than one bucket, or when asked for."""
    state = {True: ", complete", False: ", NOT complete (no COMPLETE.json)", None: ""}[seen.complete]
    yield f"{seen.path}: {', '.join(seen.formats)}; {seen.layout}{state}"
    for name, counts in seen.splits.items():
        label = name or "corpus"
        yield (
            f"  {label}: {counts['shards']:,} shards, {counts['documents']:,} documents, "
            f"{counts['sequences']:,} sequences, {counts['tokens']:,} tokens"
        )
        if name in seen.identity:
            yield f"    identity {seen.identity[name]} (as recorded)"
    yield f"  ids: {', '.join(seen.dtypes) or 'none'}"
    sides = [
        f"{side} {list(ids)}"
        for side, ids in (("prefix", seen.boundary.prefix), ("suffix", seen.boundary.suffix))
        if ids
    ]
    yield f"  boundary: {', '.join([*sides, *(['table'] if seen.boundary.table else [])]) or 'unknown'}"
    yield f"  end of document: {seen.ends.says}"
    if seen.tokenizer:
        facts = (
            f"{key} {seen.tokenizer[key]}" for key in ("name", "repo", "vocab_size", "sha256") if key in seen.tokenizer
        )
        yield f"  tokenizer: {', '.join(facts)}"
    if seen.quantiles:
        yield "  document lengths: " + ", ".join(f"q{q:g} {length:,}" for q, length in seen.quantiles.items())
        yield f"  mean {seen.mean_length:,.1f}, empty {seen.empty_documents:,}"
    if lengths or len(seen.buckets) > 1:
        yield from (f"  {line}" for line in histogram_lines(seen.buckets, _columns() - 2))
    yield from (f"  note: {note}" for note in seen.notes)
    yield from (finding.line() for finding in seen.findings)
    for document in seen.documents:
        yield from _document_lines(document)
    for place in seen.places:
        yield (
            f"token {place.position:,}: shard {place.shard}, token {place.offset:,} ({place.file} byte {place.byte:,}), "
            f"document {place.document:,} token {place.within:,}, id {place.id}"
        )


def _document_lines(document: Document) -> Iterator[str]:
    ids = document.ids
    shown = " ".join(map(str, ids[:SHOWN_IDS])) + (f" ... {ids[-1]}" if len(ids) > SHOWN_IDS else "")
    yield (
        f"document {document.number:,}: {len(ids):,} ids, number {document.local:,} of {document.shard} "
        f"({document.file} byte {document.byte:,})"
    )
    yield f"  {shown}"
    if document.text is None:
        yield f"  no text: {document.why_no_text}"
        return
    text = document.text
    yield from (f"  | {line}" for line in text[:SHOWN_CHARACTERS].splitlines())
    if len(text) > SHOWN_CHARACTERS:
        yield f"  ... {len(text) - SHOWN_CHARACTERS:,} more characters (--json shows all)"


def _columns() -> int:
    return max(40, min(120, shutil.get_terminal_size((80, 24)).columns))
