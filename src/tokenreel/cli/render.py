"""Plain data of commands as lines for people."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from tokenreel.verify.histogram import BLOCKS, histogram_lines
from tokenreel.verify.report import finding_lines
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.verify.inspect import Document, Inspection

SHOWN_IDS = 32
SHOWN_CHARACTERS = 2000


_NAMES = {0.0: "min", 0.5: "median", 1.0: "max"}


def inspection_lines(seen: Inspection, *, lengths: bool = False) -> Iterator[str]:
    """Yield what `inspect` found: the documents and positions that were asked for, else all there is to say.

    The histogram comes when there is more than one bucket, or with `lengths`.
    """
    state = {True: ", complete", False: ", NOT complete (no COMPLETE.json)", None: ""}[seen.complete]
    yield f"{seen.path}: {', '.join(seen.formats) or 'no shard'}; {seen.layout}{state}"
    if seen.documents or seen.places:
        for document in seen.documents:
            yield from _document_lines(document)
        for place in seen.places:
            yield (
                f"token {place.position:,}: shard {place.shard}, token {place.offset:,} "
                f"({place.file} byte {place.byte:,}), document {place.document:,} token {place.within:,}, id {place.id}"
            )
    else:
        yield from _summary_lines(seen, lengths=lengths)
    yield from finding_lines(seen.findings, seen.counts)


def _summary_lines(seen: Inspection, *, lengths: bool) -> Iterator[str]:
    for name, counts in seen.splits.items():
        several = counts.get("sequences") != counts.get("documents")
        units = ["shard", "document", *(["sequence"] if several else []), "token"]
        units = [unit for unit in units if unit + "s" in counts]
        label = f"{name}: " if name else ""
        yield f"  {label}{', '.join(counted(counts[unit + 's'], unit) for unit in units)}"
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
        named = (f"{_NAMES.get(q, f'p{100 * q:g}')} {length:,}" for q, length in seen.quantiles.items())
        yield f"  document lengths: {', '.join(named)}"
        yield f"  mean {seen.mean_length:,.1f}, empty {seen.empty_documents:,}"
    if lengths or len(seen.buckets) > 1:
        bars = histogram_lines(seen.buckets, _columns() - 2, plain=not _takes(BLOCKS))
        yield from (f"  {line}" for line in bars)
    yield from (f"  note: {note}" for note in seen.notes)
    if lengths:
        yield (
            "  note: lengths are of stored tokens, without padding; a training row of S inputs reads S + 1 of them, and "
            "the next row begins at the last one"
        )


def _takes(text: str) -> bool:
    """Return whether the standard output can show these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _document_lines(document: Document) -> Iterator[str]:
    ids = document.ids
    shown = " ".join(map(str, ids[:SHOWN_IDS])) + (f" ... {ids[-1]}" if len(ids) > SHOWN_IDS else "")
    yield (
        f"document {document.number:,}: {counted(len(ids), 'id')}, number {document.local:,} of {document.shard} "
        f"({document.file} byte {document.byte:,})"
    )
    yield f"  {shown}"
    if document.text is None:
        yield f"  no text: {document.why_no_text}"
        return
    text = document.text
    yield from (f"  | {_shown(line)}" for line in text[:SHOWN_CHARACTERS].splitlines())
    if len(text) > SHOWN_CHARACTERS:
        yield f"  ... {len(text) - SHOWN_CHARACTERS:,} more characters (--json shows all)"


def _shown(line: str) -> str:
    """Return a line without characters that would move the cursor or hide what is written."""
    return "".join(one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode() for one in line)


def _columns() -> int:
    return max(40, min(120, shutil.get_terminal_size((80, 24)).columns))
