"""`inspect`: what a path holds, from headers, tables, sidecars and a sample of documents; plain data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.layout import order_finding
from tokenreel.corpus.lengths import Lengths
from tokenreel.errors import DocumentError, SplitError
from tokenreel.verify.begun import check_begun, is_begun
from tokenreel.verify.finding import Findings
from tokenreel.verify.histogram import histogram_lines
from tokenreel.verify.left_out import check_left_out, check_one_format, check_sets
from tokenreel.verify.options import known_dtype
from tokenreel.verify.other_files import what_is_there
from tokenreel.verify.pairs import check_structure, tell_notices
from tokenreel.verify.sampled import choose_documents, read_sample
from tokenreel.verify.stream import BLOCK_DOCUMENTS, read_pieces
from tokenreel.verify.streamed import PIECE_QUICK, StreamUnit
from tokenreel.verify.target import no_such_split, open_target
from tokenreel.verify.texts import find_tokenizer
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from tokenreel.formats import Boundary, Found, Shard
    from tokenreel.verify.finding import Finding
    from tokenreel.verify.target import Target

__all__ = ["Document", "Ends", "Inspection", "Place", "histogram_lines", "inspect"]

SAMPLE = 1000
SCANNED = 1 << 29
"""Bytes up to which documents without a table are looked for."""


@dataclass(frozen=True, slots=True)
class Ends:
    """How sampled documents end and begin: the answer to "does this corpus have EOS?"."""

    sampled: int
    last_id: int | None
    """The declared one-token suffix, else the most common last id."""
    ending_with_it: int
    first_id: int | None
    beginning_with_it: int
    declared: bool
    """Whether `last_id` is declared."""

    @property
    def says(self) -> str:
        """The answer in words."""
        if not self.sampled or self.last_id is None:
            return "no documents to look at"
        end = "document ends" if self.sampled == 1 else "documents end"
        share = f"{self.ending_with_it:,} of {self.sampled:,} sampled {end} with id {self.last_id}"
        if self.declared:
            return f"{share}, the declared end of document"
        if self.ending_with_it == self.sampled > 1:
            return f"{share}: it looks like an end of document; none is declared"
        return f"{share}: no end of document is declared, and none is plain to see"


@dataclass(frozen=True, slots=True)
class Document:
    """One document, by its number in the corpus or split."""

    number: int
    shard: str
    local: int
    """Its number in the shard."""
    begin: int
    """Its first token in the shard's stream."""
    byte: int
    file: str
    ids: list[int]
    text: str | None
    why_no_text: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a token of the stream is."""

    position: int
    shard: str
    offset: int
    """Token in the shard's stream."""
    file: str
    byte: int
    document: int
    """Number in the corpus or split; 0 where documents are not told apart."""
    within: int
    """Token in the document."""
    id: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a path holds. Shards that cannot be read are in `findings` and in no count."""

    path: str
    formats: tuple[str, ...]
    layout: str
    """``mahan``, ``native``, ``shards with a manifest``, ``shards`` or ``one shard``."""
    complete: bool | None
    """None where the layout has no COMPLETE.json."""
    shards: int
    splits: dict[str, dict[str, int]]
    """Shards, documents, sequences and tokens by split; one split named ``""`` where there are none."""
    dtypes: tuple[str, ...]
    boundary: Boundary
    ends: Ends
    quantiles: dict[float, int]
    """Of stored document lengths, exact, by q."""
    mean_length: float
    buckets: list[tuple[int, int, int]]
    """(lowest, highest, count) of stored lengths, doubling."""
    empty_documents: int
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    counts: dict[str, int] = field(default_factory=dict)
    """All findings by code, kept or not."""
    identity: dict[str, str] = field(default_factory=dict)
    """By split, as recorded; not computed here."""
    tokenizer: dict[str, Any] = field(default_factory=dict)
    documents: tuple[Document, ...] = ()
    places: tuple[Place, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        from dataclasses import asdict

        out = {name: getattr(self, name) for name in self.__slots__}
        out["boundary"] = self.boundary.as_dict()
        out["ends"] = {**asdict(self.ends), "says": self.ends.says}
        out["quantiles"] = {format(q, "g"): length for q, length in self.quantiles.items()}
        out["findings"] = [finding.as_dict() for finding in self.findings]
        out["documents"] = [asdict(document) for document in self.documents]
        out["places"] = [asdict(place) for place in self.places]
        return out


def inspect(
    path: str | os.PathLike[str],
    *,
    boundary: Boundary | str | None = None,
    vocab: int | None = None,
    dtype: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    split: str | None = None,
    documents: Iterable[int] = (),
    at: Iterable[int] = (),
    sample: int = SAMPLE,
    seed: int = 0,
) -> Inspection:
    """Return what a path holds; reads tables whole, sidecars, and a sample of documents. About 20 ms a million documents.

    `documents` (negative: from the end) and `at` (token positions) are looked up in `split`, or in the corpus where it
    has no splits; with several and none chosen raises `SplitError` (SPL001), and SPL002 for a split without a document.
    A `vocab` that is given is checked on the sample. Raises `DocumentError`: DOC001, DOC004 for numbers outside, DOC006
    where there is no shard.

    >>> from tokenreel.formats.megatron_write import MegatronWriter
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with MegatronWriter(f"{folder}/web", np.uint16) as writer:
    ...     writer.add_documents(np.array([5, 6, 0, 7, 0]), np.array([3, 2]))
    ...     files = writer.finish()
    >>> seen = inspect(folder, documents=[1], at=[3])
    >>> seen.ends.says
    '2 of 2 sampled documents end with id 0: it looks like an end of document; none is declared'
    >>> seen.documents[0].ids, seen.places[0].document, seen.places[0].byte
    ([7, 0], 1, 6)
    """
    findings = Findings()
    kind = None if dtype is None else known_dtype(dtype)
    target = open_target(path, findings, boundary=boundary, vocab=vocab, dtype=kind, piece=PIECE_QUICK)
    target.tokenizer = tokenizer
    wanted, positions = list(documents), list(at)
    if (
        wanted
        or positions
        or sum(target.sizes.get(file, 0) for found in target.files for file in found.files) <= SCANNED
    ):
        target.piece = None
    try:
        if is_begun(target):
            check_begun(target, findings)
        if not target.shards and not target.built and not findings.total:
            raise DocumentError(
                "DOC006",
                what_is_there(target),
                path=target.path,
                found=counted(len(target.sizes), "file"),
                hint="tokenreel formats",
            )
        check_structure(target, findings)
        tell_notices(target, findings)
        if target.files and target.only is None:
            check_sets(target, findings)
            if target.whole:
                check_one_format(target, findings)
                check_left_out(target, findings)
        opened = list(target.opened())
        notes = [*_notes(target, opened), *_check_vocabulary(target, findings, vocab, sample, seed)]
        lengths = Lengths()
        for _, shard in opened:
            if _in_pieces(shard):
                continue
            for first in range(0, shard.documents, BLOCK_DOCUMENTS):
                lengths.add(np.diff(shard.document_edges(first, min(shard.documents, first + BLOCK_DOCUMENTS))))
        chosen = _chosen(target, split, needed=bool(wanted or positions))
        return Inspection(
            target.path,
            tuple(sorted({found.format for found in target.shards})),
            _layout(target),
            target.complete is not None if target.built else None,
            len(target.files),
            _splits(target),
            tuple(sorted({shard.dtype.name for _, shard in opened})),
            target.boundary,
            _ends(target, opened, sample, seed),
            lengths.quantiles(),
            lengths.total / lengths.count if lengths.count else 0.0,
            lengths.buckets(),
            sum(count for low, _, count in lengths.buckets() if low == 0),
            tuple(notes),
            tuple(findings.kept),
            findings.counts,
            _identities(target),
            _tokenizer(target),
            tuple(_documents(target, chosen, wanted, tokenizer, findings)),
            tuple(_place(target, chosen, position) for position in positions),
        )
    finally:
        target.close()


def _layout(target: Target) -> str:
    if target.only is not None:
        return "one shard"
    if target.built:
        return "native" if target.native else "mahan"
    return "shards with a manifest" if target.manifest is not None else "shards"


def _splits(target: Target) -> dict[str, dict[str, int]]:
    out = {}
    for name, chosen in target.splits().items():
        opened = [shard for found in chosen if (shard := target.shard(found)) is not None]
        out[name] = {
            "shards": sum(len(found.files) for found in chosen) if target.streamed else len(chosen),
            "documents": sum(shard.documents for shard in opened),
            "sequences": sum(shard.sequences for shard in opened),
            "tokens": sum(shard.tokens for shard in opened),
        }
        if any(map(_in_pieces, opened)):
            del out[name]["documents"], out[name]["sequences"]
    return out


def _in_pieces(shard: Shard) -> bool:
    return isinstance(shard, StreamUnit) and shard.piece is not None


def _ends(target: Target, opened: list[tuple[Found, Shard]], sample: int, seed: int) -> Ends:
    """Look at the first and last id of sampled documents; one small read each."""
    opened = [(found, shard) for found, shard in opened if not _in_pieces(shard)]
    bases = np.cumsum([0, *(shard.documents for _, shard in opened)])
    first: Counter[int] = Counter()
    last: Counter[int] = Counter()
    sampled = 0
    for document in choose_documents(int(bases[-1]), sample, seed):
        number = int(np.searchsorted(bases, document, side="right")) - 1
        shard, local = opened[number][1], document - int(bases[number])
        begin, end = (int(edge) for edge in shard.document_edges(local, local + 1))
        sampled += 1
        if end > begin:
            first[int(shard.read(begin, begin + 1)[0])] += 1
            last[int(shard.read(end - 1, end)[0])] += 1
    prefix, suffix = target.boundary.prefix, target.boundary.suffix
    last_id = suffix[-1] if suffix else next((value for value, _ in last.most_common(1)), None)
    first_id = prefix[0] if prefix else next((value for value, _ in first.most_common(1)), None)
    return Ends(
        sampled,
        last_id,
        last[last_id] if last_id is not None else 0,
        first_id,
        first[first_id] if first_id is not None else 0,
        bool(suffix),
    )


def _notes(target: Target, opened: list[tuple[Found, Shard]]) -> tuple[str, ...]:
    notes = []
    if any(_in_pieces(shard) for _, shard in opened):
        known = target.boundary.prefix or target.boundary.suffix
        notes.append(
            "documents are told by ids around them, and were not looked for in so many: verify --level full counts them"
            if known
            else "documents are told by ids around them: say which with --boundary prefix=ID or suffix=ID"
        )
    for _, shard in opened:
        if isinstance(shard, StreamUnit) and not shard.piece and not shard.boundary.table:
            notes += _fragments(shard)
    for chosen in target.splits().values():
        pair = order_finding([found.name for found in chosen])
        if pair is not None:
            notes.append(f"shards are read in byte order of name: {pair[0]} before {pair[1]}")
    if any(shard.sequences != shard.documents for _, shard in opened):
        notes.append("some documents have several sequences, or none; Megatron's GPT data orders sequences")
    return tuple(notes)


def _fragments(unit: StreamUnit) -> Iterable[str]:
    """Yield what is cut at the ends of a stream: some of many shards begin and end inside documents."""
    prefix, suffix = unit.boundary.prefix, unit.boundary.suffix
    if not unit.documents:
        return
    if prefix and tuple(unit.document(0)[: len(prefix)].tolist()) != prefix:
        yield "the stream begins inside a document, whose beginning is in a shard that is not here"
    if suffix and tuple(unit.document(unit.documents - 1)[-len(suffix) :].tolist()) != suffix:
        yield "the stream ends inside a document, which goes on in a shard that is not here"


def _check_vocabulary(target: Target, findings: Findings, vocab: int | None, sample: int, seed: int) -> Iterable[str]:
    """Check the ids of sampled documents against a vocabulary that was given, and yield what came out."""
    if vocab is None:
        return
    beyond = Findings(("TOK020",))
    read = read_sample(target, beyond, sample, seed)
    findings.merge(beyond)
    count = beyond.counts.get("TOK020", 0)
    what = counted(read.documents, "sampled document")
    if not read.documents:
        yield f"vocabulary of {vocab:,}: not checked, there are no documents"
    else:
        yield f"vocabulary of {vocab:,}: {counted(count, 'id') if count else 'no id'} of {what} beyond it"


def _identities(target: Target) -> dict[str, str]:
    manifest = target.manifest.value if target.manifest else None
    if manifest is None:
        return {}
    return {name: split.identity for name, split in manifest.splits.items() if split.identity is not None}


def _tokenizer(target: Target) -> dict[str, Any]:
    config = target.run_config.value if target.run_config else None
    manifest = target.manifest.value if target.manifest else None
    if config is not None and config.tokenizer:
        return dict(config.tokenizer)
    return dict(manifest.tokenizer) if manifest is not None and manifest.tokenizer else {}


def _chosen(target: Target, split: str | None, *, needed: bool) -> list[tuple[Found, Shard]]:
    """Return the shards that numbers count over."""
    splits = target.splits()
    if split is not None and split not in splits:
        raise no_such_split(target.path, split, (name for name in splits if name), built=target.built)
    if split is None and len(splits) > 1:
        if needed:
            raise SplitError("SPL001", path=target.path, expected=f"one of: {', '.join(splits)}", hint="--split train")
        return []
    names = splits[split] if split is not None else next(iter(splits.values()), [])
    return [(found, shard) for found in names if (shard := target.shard(found)) is not None]


def _documents(
    target: Target,
    chosen: list[tuple[Found, Shard]],
    wanted: list[int],
    tokenizer: str | os.PathLike[str] | None,
    findings: Findings,
) -> Iterable[Document]:
    if not wanted:
        return
    tok, why = find_tokenizer(target, tokenizer, findings)
    bases = np.cumsum([0, *(shard.documents for _, shard in chosen)])
    if any(_in_pieces(shard) for _, shard in chosen):
        raise DocumentError("DOC002", path=target.path, hint="--boundary suffix=ID")
    for number in wanted:
        total = int(bases[-1])
        if not -total <= number < total:
            known = f"0 <= number < {total}, or from -{total} on from the end" if total else "no document is there"
            raise DocumentError("DOC001", path=target.path, document=number, expected=known, found=number)
        number += total if number < 0 else 0  # noqa: PLW2901
        home = int(np.searchsorted(bases, number, side="right")) - 1
        found, shard = chosen[home]
        local = number - int(bases[home])
        begin, end = (int(edge) for edge in shard.document_edges(local, local + 1))
        ids = read_pieces(shard, begin, end)
        file, byte = shard.byte_at(begin)
        text = None if tok is None else tok.decode(_content(ids.tolist(), target.boundary))
        name = found.name
        if isinstance(shard, StreamUnit):
            name, start = shard.shard_at(begin)
            begin -= start
        yield Document(number, name, local, begin, byte, file, ids.tolist(), text, why)


def _content(ids: list[int], boundary: Boundary) -> list[int]:
    prefix, suffix = list(boundary.prefix), list(boundary.suffix)
    if prefix and ids[: len(prefix)] == prefix:
        ids = ids[len(prefix) :]
    return ids[: len(ids) - len(suffix)] if suffix and ids[len(ids) - len(suffix) :] == suffix else ids


def _place(target: Target, chosen: list[tuple[Found, Shard]], position: int) -> Place:
    tokens = np.cumsum([0, *(shard.tokens for _, shard in chosen)])
    if not 0 <= position < int(tokens[-1]):
        raise DocumentError("DOC004", path=target.path, expected=f"0 <= position < {int(tokens[-1])}", found=position)
    home = int(np.searchsorted(tokens, position, side="right")) - 1
    found, shard = chosen[home]
    offset = position - int(tokens[home])
    local = int(shard.documents_at(np.array([offset], dtype=np.int64))[0])
    file, byte = shard.byte_at(offset)
    before = sum(one.documents for _, one in chosen[:home])
    within = offset - int(shard.document_edges(local, local)[0])
    value = int(shard.read(offset, offset + 1)[0])
    name, known = found.name, before + local
    if isinstance(shard, StreamUnit):
        name, start = shard.shard_at(offset)
        known, within = (0, offset) if shard.piece else (known, within)
        offset -= start
    return Place(position, name, offset, file, byte, known, within, value)
