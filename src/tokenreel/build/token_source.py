"""Token corpora as a source: whole documents of any readable format, their ids unchanged, of the build's own tokenizer.

Boundary tokens come off, since the build puts its own on. A `sample` is chosen by a hash of each document's ids and the
seed: the same documents whatever format, shards or order they stand in; two documents of the same ids go together.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from tokenreel.build.blocks import stamp_of
from tokenreel.build.text_batches import InputFacts, SourceInput, TextBatch
from tokenreel.build.token_source_proof import DOCUMENTS, prove
from tokenreel.build.token_source_units import WHOLE, open_unit, unit_files, unit_numbers, without_boundary
from tokenreel.corpus.opening import open_corpus
from tokenreel.errors import RecipeError, SourceError
from tokenreel.formats.base import Boundary
from tokenreel.hashing import sha256_file, sha256_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.build.blocks import Stamp
    from tokenreel.build.text_batches import Place
    from tokenreel.build.token_source_units import Unit
    from tokenreel.config.mixed import MixedSourceTable
    from tokenreel.corpus.corpus import Corpus

PROOF_UNITS = 8
"""Units that documents are taken from for the proof."""
_BATCH_DOCUMENTS = 1 << 14


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """What finds an input."""

    unit: int
    proof: str


@dataclass(slots=True)
class TokenSource:
    """The documents of a corpus; an input is a shard, or all of it where documents run across shards."""

    name: str
    table: MixedSourceTable
    place: Place
    _corpus: Corpus | None = field(default=None, repr=False)
    _reading: _Reading | None = field(default=None, repr=False)

    def inputs(self) -> list[SourceInput]:
        """Return the inputs, hashed, after the corpus's tokenizer was proved to be the build's.

        Raises what `open_corpus` raises, `SplitError` (SPL001) where a split has to be named, `DocumentError` (DOC002)
        where nothing tells documents, and `SourceError` (SRC060). Cost: every file is read once for its hash.
        """
        corpus = self._opened()
        numbers = unit_numbers(corpus, split=self.table.split_by_eot)
        recorded = None if corpus.manifest is None else corpus.manifest.tokenizer
        proof = prove(recorded, self.place.open_tokenizer(), self._sample(numbers), self.name, self._at)
        return [self._input(number, proof) for number in numbers]

    def read(self, one: SourceInput, start: int = 0) -> Iterator[TextBatch]:
        """Yield the documents of an input from number `start` on.

        Raises `SourceError`: SRC012 an input that changed, SRC061 an id that the tokenizer does not have.
        """
        corpus, key = self._opened(), _key(one)
        self._check_stamp(one)
        unit = open_unit(corpus, key.unit, self.boundary, split=self.table.split_by_eot)
        reading = self._reading = _Reading(one, unit)
        largest = self.place.open_tokenizer().largest_id
        most = max(1, self.place.chunk_bytes // 4)
        at = start
        while at < len(unit):
            edges = unit.edges[at : at + _BATCH_DOCUMENTS + 1]
            count = max(1, int(np.searchsorted(edges, edges[0] + most, side="right")) - 1)
            yield self._batch(unit, at, at + count, largest, one, reading)
            at += count
        reading.whole = True

    def facts(self, one: SourceInput) -> InputFacts:
        """Return the input's bytes and hash, and how its documents were told and proved; raises `SourceError` (SRC012)."""
        reading = self._reading
        if reading is None or reading.one != one:
            raise SourceError("SRC012", "asked for before it was read", path=one.path)
        self._check_stamp(one)
        unit = reading.unit
        position: dict[str, Any] = {
            "boundary": self.boundary.as_dict(),
            "split_by_eot": self.table.split_by_eot,
            "documents": len(unit),
            "truncated_start": int(unit.cut_start.sum()),
            "truncated_end": int(unit.cut_end.sum()),
            "tokenizer_proof": _key(one).proof,
        }
        if self.table.sample is not None and reading.whole:
            position["outside_sample"] = reading.outside
        return InputFacts(bytes=one.bytes, sha256=one.sha256, whole=reading.whole, position=position)

    @property
    def boundary(self) -> Boundary:
        """What tells documents: as the recipe says, else as the corpus does; for `split_by_eot` else the build's EOD as prefix."""
        stored, said = self._opened().boundary, self.table.boundary
        if self.table.split_by_eot and said is not None:
            return Boundary.parse(said, table=stored.table)
        if self.table.split_by_eot and not (stored.prefix or stored.suffix):
            return Boundary(prefix=(self.place.eod_id,), table=stored.table)
        return stored

    @property
    def _at(self) -> Path:
        return Path(self.place.folder) / str(self.table.path)

    def _opened(self) -> Corpus:
        if self._corpus is None:
            # Documents that are cut again may have their boundary inside: it is not declared of them.
            corpus = open_corpus(self._at, boundary=None if self.table.split_by_eot else self.table.boundary)
            if not self.table.split_by_eot and not corpus.boundary.known:
                corpus.table()  # refuses: nothing tells documents
            self._corpus = corpus
        return self._corpus

    def _files(self, unit: int) -> list[Path]:
        corpus = self._opened()
        return [Path(corpus.store.root) / file for file in unit_files(corpus, unit)]

    def _input(self, unit: int, proof: str) -> SourceInput:
        files = self._files(unit)
        stamp = _stamp(files)
        hashes = [(sha256_file(file), self._recorded(file)) for file in files]
        whole = hashes[0][0] if len(hashes) == 1 else sha256_lines(hashes)
        root = Path(self._opened().store.root)
        return SourceInput(
            path=self._recorded(root if unit == WHOLE and len(files) > 1 else files[0]),
            key=msgspec.json.encode(_Key(unit=unit, proof=proof)).decode(),
            bytes=stamp[0],
            sha256=whole,
            stamp=stamp,
        )

    def _recorded(self, path: Path) -> str:
        """Return what receipts call a file: relative to the recipe's folder, outside of it to the corpus's parent."""
        root = Path(self._opened().store.root)
        inside = os.path.relpath(path.resolve(), Path(self.place.folder).resolve())
        if Path(inside).parts[:1] != ("..",):
            return Path(inside).as_posix()
        return path.relative_to(root.parent).as_posix()

    def _check_stamp(self, one: SourceInput) -> None:
        found = _stamp(self._files(_key(one).unit))
        if one.stamp is not None and found != tuple(one.stamp):
            raise SourceError(
                "SRC012",
                f"source {self.name!r}",
                path=one.path,
                expected=f"size, times, inodes {tuple(one.stamp)}",
                found=str(found),
                hint="find what writes there, then run the build again",
            )

    def _batch(self, unit: Unit, low: int, high: int, largest: int, one: SourceInput, reading: _Reading) -> TextBatch:
        import pyarrow as pa

        begin = int(unit.edges[low])
        stored = unit.read(begin, int(unit.edges[high]))
        edges = (unit.edges[low : high + 1] - begin).tolist()
        documents: list[npt.NDArray[np.uint32]] = []
        numbers: list[int] = []
        for k in range(low, high):
            ids = without_boundary(stored[edges[k - low] : edges[k - low + 1]], unit.boundary)
            if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) <= largest):
                bad = int(ids[(ids < 0) | (ids > largest)][0])
                raise SourceError(
                    "SRC061", f"source {self.name!r}", path=one.path, document=k, expected=f"0..{largest}", found=bad
                )
            made = ids.astype(np.uint32)
            if in_sample(made, self.table.sample, self.table.seed):
                documents.append(made)
                numbers.append(k)
        reading.outside += high - low - len(numbers)
        return TextBatch(
            texts=pa.array([""] * len(documents), pa.large_string()),
            first=low,
            metadata=[_metadata(unit, k) for k in numbers],
            ids=documents,
            numbers=np.array(numbers, np.int64),
        )

    def _sample(self, numbers: list[int]) -> Iterator[tuple[str, int, npt.NDArray[np.uint32]]]:
        """Yield documents for the proof, spread over the corpus; without special tokens where there are such."""
        corpus, special = self._opened(), np.array(sorted(self.place.open_tokenizer().special_ids), np.uint32)
        chosen = _spread(len(numbers), PROOF_UNITS)
        passed: list[tuple[str, int, npt.NDArray[np.uint32]]] = []
        given = False
        for at in chosen:
            unit = open_unit(corpus, numbers[at], self.boundary, split=self.table.split_by_eot)
            whole = np.flatnonzero(~(unit.cut_start | unit.cut_end) & (np.diff(unit.edges) > 0))
            for k in whole[_spread(len(whole), DOCUMENTS // len(chosen))].tolist():
                ids = unit.content(k)
                one = (unit.origin(k)[0], k, ids)
                if not len(ids):
                    continue
                if len(special) and bool(np.isin(ids, special).any()):
                    passed.append(one)
                    continue
                given = True
                yield one
        if not given:
            yield from passed


@dataclass(slots=True)
class _Reading:
    """The input that was opened last."""

    one: SourceInput
    unit: Unit
    whole: bool = False
    outside: int = 0
    """Documents that are not in the sample."""


def open_tokens(table: MixedSourceTable, place: Place, columns: Sequence[str]) -> TokenSource:
    """Return the source of a table of kind ``tokens``; raises `RecipeError` (RCP006) for fields: ids have none."""
    asked = [table.id, table.url, *table.metadata, *columns]
    fields = [name for name in asked if name is not None]
    if fields:
        raise RecipeError("RCP006", f"source {table.name!r}: a token corpus has no fields for {', '.join(fields)}")
    return TokenSource(table.name, table, place)


def in_sample(ids: npt.NDArray[np.uint32], share: float | None, seed: int) -> bool:
    """Return whether a document is in the sample: where XXH3-64 of its ids (uint32 LE) under the seed is in the share.

    >>> [in_sample(np.array([k], np.uint32), 0.5, 0) for k in range(6)]
    [True, False, True, False, False, False]
    """
    if share is None:
        return True
    return xxhash.xxh3_64_intdigest(ids.astype("<u4").tobytes(), seed=seed) < int(share * (1 << 64))


def _key(one: SourceInput) -> _Key:
    return msgspec.json.decode(one.key, type=_Key)


def _metadata(unit: Unit, k: int) -> dict[str, Any]:
    file, offset = unit.origin(k)
    found: dict[str, Any] = {"source_shard": file, "source_offset": offset}
    if unit.cut_start[k]:
        found["truncated_start"] = True
    if unit.cut_end[k]:
        found["truncated_end"] = True
    return found


def _spread(count: int, most: int) -> list[int]:
    """Return at most `most` of 0 .. count-1, evenly apart.

    >>> _spread(3, 8), _spread(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    if count <= most:
        return list(range(count))
    return [k * (count - 1) // max(1, most - 1) for k in range(most)]


def _stamp(files: list[Path]) -> Stamp:
    """Return one stamp for several files: sizes summed, the latest times, inodes put together."""
    stamps = [stamp_of(file) for file in files]
    inodes = 0
    for stamp in stamps:
        inodes = (inodes * 31 + stamp[3]) % (1 << 62)
    return sum(s[0] for s in stamps), max(s[1] for s in stamps), max(s[2] for s in stamps), inodes
