"""One part against its input read again: documents by their ids, splits by the rule, the receipt by its counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.corpus.receipts import Counts, DecodedBack, as_table, total_of
from tokenreel.corpus.splits import SplitInput
from tokenreel.text.recheck import LARGEST_DOCUMENT
from tokenreel.verify.target import RECEIPTS, SHARDS
from tokenreel.verify.texts import VALIDATION

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.corpus.receipts import InputFile, Receipt, RunConfig
    from tokenreel.corpus.splits import SplitRule
    from tokenreel.formats import Shard
    from tokenreel.text.engines import Batch, Encoder
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.sources import Reread
    from tokenreel.verify.target import Target

    Ids = npt.NDArray[np.integer[Any]]

SIDES = ("train", VALIDATION)
MOST_WAYS = 256
"""Ways in which documents may be shared out to two splits that are followed at once, where no rule says it."""


@dataclass(eq=False)
class PartCheck:
    """Compares one part with its input, batch by batch; `finish` ends it."""

    target: Target
    config: RunConfig
    listed: InputFile
    file: str
    """The file that is read, as messages name it."""
    rule: SplitRule | None
    encoder: Encoder
    kept: int = 0
    """Documents compared."""
    _records: int = 0
    _empty: int = 0
    _special: int = 0
    _inside: int = 0
    _checked: int = 0
    _back: int = 0
    _sources: dict[str, dict[str, Counts]] = field(default_factory=dict)
    _done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    _wrong: set[str] = field(default_factory=set)
    _ways: set[int] = field(default_factory=lambda: {0})
    """Without a rule: how many documents may be in train by now."""

    def shard_name(self, split: str) -> str:
        """Return the name of the part's shard of a split."""
        return f"{SHARDS}{split}/{self.listed.part}"

    def _shard(self, split: str) -> Shard | None:
        found = self.target.by_name.get(self.shard_name(split))
        return None if found is None else self.target.shard(found)

    def add(self, records: Reread, findings: Findings) -> None:
        """Compare the next records."""
        keep_empty = self.config.empty_documents != "drop"
        kept = [k for k, text in enumerate(records.texts) if text or keep_empty]
        batch = self.encoder.encode_counted([records.texts[k] for k in kept])
        self._special += int(batch.special.sum())
        if self.encoder.special_in_text == "drop" and not keep_empty:
            # A text of special tokens alone is empty only now.
            full = [k for k, text in enumerate(batch.texts.to_pylist()) if text]
            kept, batch = [kept[k] for k in full], _picked(batch, full)
        numbers = [self._records + k for k in kept]
        self._records += len(records.texts)
        self._empty += len(records.texts) - len(kept)
        if not kept:
            return
        texts = [records.texts[k] for k in kept]
        boundary = self.target.recorded_boundary
        wanted = _laid(batch, boundary.prefix, boundary.suffix)
        sources: list[str] = (
            [records.sources] * len(kept) if isinstance(records.sources, str) else [records.sources[k] for k in kept]
        )
        if self.rule is None:
            self._follow(wanted, numbers, findings)
            sides = np.zeros(len(kept), np.bool_)
        else:
            ids = None if records.ids is None else [records.ids[k] for k in kept]
            sides = self.rule.validation(SplitInput.of(texts, first=self.kept, ids=ids))
            for split in SIDES:
                mine = np.flatnonzero(sides == (split == VALIDATION)).tolist()
                self._compare(split, [wanted[k] for k in mine], [numbers[k] for k in mine], findings)
        self._tally(batch, sources, sides)
        self.kept += len(kept)

    def _tally(self, batch: Batch, sources: list[str], sides: npt.NDArray[np.bool_]) -> None:
        if self.config.eod_id is not None:
            self._inside += int(np.count_nonzero(batch.ids == self.config.eod_id))
        for k, (source, length) in enumerate(zip(sources, batch.lengths.tolist(), strict=True)):
            splits = self._sources.setdefault(source, {})
            split = SIDES[int(sides[k])]
            more = Counts(documents=1, text_tokens=length, eod_tokens=1, total_tokens=length + 1)
            splits[split] = splits.get(split, Counts()).plus(more)
        one_in = self.config.recheck or 0
        edges = np.concatenate(([0], np.cumsum(batch.lengths)))
        for k in range(-self.kept % one_in, len(sources), one_in) if one_in else ():
            text = batch.texts[k].as_py()
            if len(text.encode()) <= LARGEST_DOCUMENT:
                self._checked += 1
                self._back += self.encoder.tok.decode(batch.ids[edges[k] : edges[k + 1]]) == text

    def _compare(self, split: str, wanted: list[Ids], numbers: list[int], findings: Findings) -> None:
        """Compare the next documents of a split's shard with what their texts encode to."""
        first = self._done[split]
        self._done[split] += len(wanted)
        if not wanted or split in self._wrong:
            return
        shard = self._shard(split)
        there = 0 if shard is None else shard.documents
        if shard is None or there < first + len(wanted):
            self._wrong.add(split)
            findings.error(
                "DOC012",
                f"{self.file} has more documents for this shard than the {there:,} it holds",
                shard=self.shard_name(split),
                expected=f"{first + len(wanted):,} or more",
                found=there,
            )
            return
        edges = shard.document_edges(first, first + len(wanted))
        stored = shard.read(int(edges[0]), int(edges[-1]))
        if np.array_equal(stored, np.concatenate(wanted)) and np.diff(edges).tolist() == [len(w) for w in wanted]:
            return
        self._wrong.add(split)
        begin = int(edges[0])
        for k, ids in enumerate(wanted):
            mine = stored[int(edges[k]) - begin : int(edges[k + 1]) - begin]
            if not np.array_equal(mine, ids):
                self._differs(split, shard, first + k, int(edges[k]), (mine, ids), numbers[k], findings)
                return

    def _differs(
        self,
        split: str,
        shard: Shard,
        document: int,
        begin: int,
        both: tuple[Ids, Ids],
        number: int,
        findings: Findings,
    ) -> None:
        stored, wanted = both
        common = min(len(stored), len(wanted))
        at = int(np.argmax(np.append(stored[:common] != wanted[:common], True)))
        path, offset = shard.byte_at(min(begin + at, max(0, shard.tokens - 1)))
        findings.error(
            "DOC012",
            f"the ids are not what record {number:,} of {self.file} encodes to, from token {at:,} on",
            path=path,
            offset=offset,
            shard=self.shard_name(split),
            document=document,
            expected=wanted[at : at + 4].tolist(),
            found=stored[at : at + 4].tolist(),
        )

    def _follow(self, wanted: list[Ids], numbers: list[int], findings: Findings) -> None:
        """Find each document at the next place of either split; all ways in which that can be are followed."""
        if self._wrong:
            return
        shards = [self._shard(split) for split in SIDES]
        for k, ids in enumerate(wanted):
            total = self.kept + k
            ways = {way + 1 for way in self._ways if _stands(shards[0], way, ids)}
            ways |= {way for way in self._ways if _stands(shards[1], total - way, ids)}
            if not ways:
                places = ", ".join(
                    f"{self.shard_name(split)} document {at:,}"
                    for way in sorted(self._ways)[:1]
                    for split, at in zip(SIDES, (way, total - way), strict=True)
                )
                findings.error(
                    "DOC012",
                    f"record {numbers[k]:,} of {self.file} is in neither split where it must be next",
                    shard=self.shard_name(SIDES[0]),
                    expected=f"{ids[:4].tolist()} at one of {places}",
                )
            elif len(ways) > MOST_WAYS:
                findings.skip(
                    f"documents of {self.listed.part} from record {numbers[k]:,} on",
                    "too many of them are the same to tell which split each is in",
                    "--split-ids FILE",
                    asked=True,
                )
            if not ways or len(ways) > MOST_WAYS:
                self._wrong.update(SIDES)
                return
            self._ways = ways

    def finish(self, findings: Findings) -> None:
        """Compare the number of documents, and what the receipt counts."""
        for split in SIDES:
            shard = self._shard(split)
            there = 0 if shard is None else shard.documents
            if self.rule is None:
                done = max(self._ways) if split == SIDES[0] else self.kept - max(self._ways)
                done = there if self._ends_well() else done
            else:
                done = self._done[split]
            if split not in self._wrong and there != done:
                findings.error(
                    "DOC012",
                    f"the shard holds {there:,} documents, and {self.file} gives it {done:,}",
                    shard=self.shard_name(split),
                    expected=done,
                    found=there,
                )
        path = f"{RECEIPTS}{self.listed.part}.json"
        sidecar = self.target.receipts.get(path)
        if sidecar is not None and sidecar.value is not None and sidecar.raw is not None:
            self._compare_receipt(path, sidecar.value, sidecar.raw, findings)

    def _ends_well(self) -> bool:
        shards = [self._shard(split) for split in SIDES]
        train, held = (0 if shard is None else shard.documents for shard in shards)
        return train in self._ways and self.kept - train == held

    def _compare_receipt(self, path: str, receipt: Receipt, raw: dict[str, Any], findings: Findings) -> None:
        rows: list[tuple[str, object, object]] = []
        if "special_in_text" in raw:
            rows.append(("special tokens spelled in text", receipt.special_in_text, self._special))
        if "empty" in receipt.dropped:
            rows.append(("empty documents that were dropped", receipt.dropped["empty"], self._empty))
        if receipt.input is not None and receipt.input.rows is not None:
            rows.append(("records of the input", receipt.input.rows, self._records))
        if "eod_inside" in raw:
            rows.append(("EOD ids inside documents", raw["eod_inside"], self._inside))
        if isinstance(receipt.lossless, DecodedBack) and self.config.recheck:
            rows.append(("documents checked for decoding back", receipt.lossless.checked, self._checked))
            rows.append(("documents that decode back", receipt.lossless.decoded_back, self._back))
        if receipt.by_source and "" not in self._sources:
            rows += self._by_source(receipt)
        for what, said, there in rows:
            if said != there:
                findings.error(
                    "MAN061",
                    f"the receipt says {said} {what}, and {self.file} gives {there}",
                    path=path,
                    expected=there,
                    found=said,
                )

    def _by_source(self, receipt: Receipt) -> list[tuple[str, object, object]]:
        rows: list[tuple[str, object, object]] = []
        for source in sorted({*receipt.by_source, *self._sources}):
            mine, theirs = self._sources.get(source, {}), receipt.by_source.get(source, {})
            if self.rule is None:  # which split a document is in is not known: both together
                pairs = [("", total_of(theirs.values()), total_of(mine.values()))]
            else:
                pairs = [(f" in {name}", theirs.get(name, Counts()), mine.get(name, Counts())) for name in SIDES]
            for where, said, there in pairs:
                for name, value in as_table(there).items():
                    rows.append((f"{name} of source {source}{where}", as_table(said)[name], value))
        return rows


def _picked(batch: Batch, kept: list[int]) -> Batch:
    """Return the documents `kept` of a batch."""
    mask = np.zeros(len(batch.lengths), np.bool_)
    mask[kept] = True
    ids = batch.ids[np.repeat(mask, batch.lengths)]
    return replace(
        batch, ids=ids, lengths=batch.lengths[mask], special=batch.special[mask], texts=batch.texts.take(kept)
    )


def _laid(batch: Batch, prefix: tuple[int, ...], suffix: tuple[int, ...]) -> list[Ids]:
    """Return the ids of each document as they are stored: with prefix and suffix."""
    edges = np.concatenate(([0], np.cumsum(batch.lengths))).tolist()
    before, after = np.array(prefix, np.int64), np.array(suffix, np.int64)
    ids = batch.ids.astype(np.int64)
    return [np.concatenate((before, ids[i:j], after)) for i, j in pairwise(edges)]


def _stands(shard: Shard | None, document: int, ids: Ids) -> bool:
    if shard is None or not 0 <= document < shard.documents:
        return False
    begin, end = (int(edge) for edge in shard.document_edges(document, document + 1))
    return end - begin == len(ids) and np.array_equal(shard.read(begin, end), ids)
