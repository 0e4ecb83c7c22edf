"""Finding the documents of an index in public text again.

Every declared source is read, transformed, normalised and hashed; texts wait on disk by the top bits of their id, are
matched part by part with the index's rows, and are written in the order of the store. Memory does not grow with the
index nor with the text. Ids are not unique, on either side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.id_matching import each_part, match
from tokenreel.build.id_spill import IdSpill, ids_of, parts_for
from tokenreel.errors import ReplayError, StorageError
from tokenreel.replay.files import read_batches, rows_of
from tokenreel.replay.text_spill import NUMBER_BITS, TextSpill
from tokenreel.replay.transform import closing, transform_of
from tokenreel.replay.upstream import open_upstream, records
from tokenreel.text.normalise import Normaliser, normaliser, text_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tokenreel.replay.metadata import Manifest, Source, Sources
    from tokenreel.replay.transform import Transform
    from tokenreel.store import Store

ABSENT, NEEDS_TERMS, NOT_JOINABLE, READ = "not here", "needs terms", "not joinable here", "read"
LEAST_PARTS = 256
"""With so many a billion texts take 200 MB a thread while they are matched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPlan:
    """Where text is looked for, and how."""

    root: Path | None = None
    """A folder with the sources' files."""
    online: bool = False
    transforms: Path | None = None
    """A checkout whose functions make texts of records."""
    commit: str | None = None
    """What the checkout must stand at."""
    folder: Path | None = None
    """Where texts wait; None: where the system keeps temporaries."""
    whitespace: str = "python"
    threads: int = 2


@dataclass(eq=False)
class SourceCounts:
    """What became of one source."""

    state: str = READ
    wanted: int = 0
    """Rows of the index."""
    hits: int = 0
    """Rows whose text was found in this source."""
    elsewhere: int = 0
    """Rows whose text was found in another source only."""
    texts: int = 0
    """Texts that upstream gave, after normalisation."""
    dropped: int = 0
    """Texts that normalisation dropped."""
    repeated: int = 0
    """Texts whose id came before."""
    extra: int = 0
    """Texts, repeated ones left out, that the index does not want."""
    note: str = ""

    @property
    def missing(self) -> int:
        """Rows that were not found although the source was read; 0 where it was not."""
        return self.wanted - self.hits - self.elsewhere if self.state == READ else 0

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form, with the hit rate."""
        out: dict[str, object] = {
            name: getattr(self, name)
            for name in ("state", "wanted", "hits", "elsewhere", "missing", "texts", "dropped", "repeated", "extra")
        }
        out["hit_rate"] = self.hits / self.wanted if self.wanted else None
        if self.note:
            out["note"] = self.note
        return out


@dataclass(eq=False)
class Joined:
    """The outcome of a join."""

    by_source: dict[str, SourceCounts]
    documents: int = 0
    found: int = 0
    files: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every document was found."""
        return self.found == self.documents

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "documents": self.documents,
            "found": self.found,
            "complete": self.complete,
            "sources": {name: counts.as_dict() for name, counts in self.by_source.items()},
            "files": self.files,
        }


def join(
    store: Store,
    manifest: Manifest,
    sources: Sources,
    plan: JoinPlan,
    out: Path | None,
    progress: Callable[[int, int | None, int], None] | None = None,
) -> Joined:
    """Match an index with upstream text; write what was found to ``out/documents/*.parquet`` in the order of the store.

    Without `out` everything is counted and nothing is written. Raises `ReplayError` (RPL031, RPL032) for a transform
    that fails, RPL026 for a file with another number of rows than the manifest says, and what reading raises.
    """
    named = sources.named()
    joined = Joined({name: SourceCounts() for name in named})
    numbers = {name: number for number, name in enumerate(named)}
    # However small the index is, how much text its sources hold is not known.
    parts = max(LEAST_PARTS, parts_for(manifest.documents))
    with IdSpill(parts, plan.folder) as rows, TextSpill(parts, plan.folder) as texts:
        _index_rows(store, manifest, joined, numbers, rows)
        for name, source in named.items():
            if joined.by_source[name].wanted:
                _read_source(source, numbers[name], plan, manifest, joined.by_source[name], texts)
            if progress is not None:
                progress(texts.bytes, None, 0)
        _match(joined, rows, texts, out, plan, manifest, store)
    return joined


def _index_rows(store: Store, manifest: Manifest, joined: Joined, numbers: dict[str, int], rows: IdSpill) -> None:
    """Put the index's rows where they are matched: value = source << 40 | number of the row."""
    first = 0
    for file in sorted(manifest.files, key=lambda one: one.task_id):
        before = first
        for batch in read_batches(store, file.path):
            found = rows_of(batch, file.path)
            for name in found.sources:
                joined.by_source.setdefault(
                    name, SourceCounts(state=NOT_JOINABLE, note="not described in sources.json")
                )
                numbers.setdefault(name, len(numbers))
            codes = np.array([numbers[name] for name in found.sources], dtype=np.uint64)
            source = codes[found.source] if len(found) else codes
            place = np.arange(first, first + len(found), dtype=np.uint64)
            rows.add(found.ids, source << np.uint64(NUMBER_BITS) | place)
            for number, count in enumerate(np.bincount(found.source, minlength=len(found.sources)).tolist()):
                joined.by_source[found.sources[number]].wanted += count
            first += len(found)
        if first - before != file.documents:
            # Rows are known by their number: all later ones would get other documents' texts.
            hint = f"tokenreel replay validate {store.root} --level full"
            raise ReplayError("RPL026", path=file.path, expected=file.documents, found=first - before, hint=hint)
    joined.documents = first


def _read_source(
    source: Source, number: int, plan: JoinPlan, manifest: Manifest, counts: SourceCounts, texts: TextSpill
) -> None:
    transform = transform_of(source, plan.transforms, plan.commit)
    if transform is None:
        counts.state, counts.note = NOT_JOINABLE, f"needs {source.transform_module}; --transforms DIR"
        return
    try:
        upstream = open_upstream(source, plan.root, online=plan.online)
    except StorageError as error:
        if error.code not in ("STO001", "STO020"):
            raise
        counts.state = NEEDS_TERMS if error.code == "STO020" else ABSENT
        counts.note = str(error.message or error.title)
        return
    if upstream is None or not upstream.files:
        counts.state, counts.note = ABSENT, "no files of it were found"
        return
    normalise = _normaliser(source, manifest, plan)
    with closing(transform):
        for store, path in upstream.files:
            try:
                for made in _texts(store, path, transform):
                    _spill(made, number, normalise, counts, texts)
            except StorageError as error:
                if error.code != "STO020":
                    raise
                counts.state, counts.note = NEEDS_TERMS, str(error.found)
                return


def _texts(store: Store, path: str, transform: Transform) -> Iterator[list[str]]:
    for batch in records(store, path):
        yield [text for record in batch for text in transform.run(record)]


def _spill(made: Iterable[str], number: int, normalise: Normaliser, counts: SourceCounts, texts: TextSpill) -> None:
    ids, kept = [], []
    for text in made:
        normal = normalise(text)
        if normal is None:
            counts.dropped += 1
            continue
        ids.append(text_id(normal))
        kept.append(normal)
    counts.texts += len(kept)
    texts.add(ids, kept, number)


def _normaliser(source: Source, manifest: Manifest, plan: JoinPlan) -> Normaliser:
    """Return a source's normalisation: its own configuration, else the index's."""
    config = source.normalize_config
    if "max_whitespace_run_chars" in config:
        return normaliser(
            {"kind": "marin", "whitespace": plan.whitespace, "max_run": int(config["max_whitespace_run_chars"])}
        )
    return normaliser(manifest.normalise or "none")


# -- matching ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows of the index and texts whose ids have the same top bits, and which text each row gets."""

    source: Any
    """Of each row; likewise `place`, its number in the store."""
    place: Any
    from_source: Any
    """Of each text."""
    number: Any
    found: Any
    """For each row a text of this part, or -1."""
    first: Any
    """Of each text: whether its id comes for the first time from its source."""
    extra: Any
    """Of each text: whether it is a first one that no row wants."""


def _match(
    joined: Joined,
    rows: IdSpill,
    texts: TextSpill,
    out: Path | None,
    plan: JoinPlan,
    manifest: Manifest,
    store: Store,
) -> None:
    from tokenreel.replay.emit import Emission

    names = list(joined.by_source)
    with Emission(manifest, out, plan.folder) as emission:
        for part in each_part(rows.parts, lambda number: _matched(rows, texts.ids, number), plan.threads):
            _count(joined, names, part)
            hits = np.flatnonzero(part.found >= 0)
            joined.found += len(hits)
            if out is not None and len(hits):
                emission.add(part.place[hits], part.number[part.found[hits]])
        if out is not None:
            joined.files = emission.write(store, texts)


def _matched(rows: IdSpill, texts: IdSpill, number: int) -> _Part:
    wanted, there = rows.part(number), texts.part(number)
    ids, keys = ids_of(wanted), ids_of(there)
    bits, mask = np.uint64(NUMBER_BITS), np.uint64((1 << NUMBER_BITS) - 1)
    source, from_source = wanted["value"] >> bits, there["value"] >> bits
    own_ids, own_keys = _of_source(ids, source), _of_source(keys, from_source)
    found = match(own_ids, own_keys)
    # A row takes a text of its own source where that has one, else of any.
    lost = np.flatnonzero(found < 0)
    if len(lost):
        found[lost] = match(ids[lost], keys)
    first = match(own_keys, own_keys) == np.arange(len(keys))
    extra = first & (match(keys, ids) < 0)
    place, texts_ = ((side["value"] & mask).astype(np.int64) for side in (wanted, there))
    return _Part(source.astype(np.int64), place, from_source.astype(np.int64), texts_, found, first, extra)


def _of_source(ids: Any, source: Any) -> Any:
    """Return ids that also tell their source: an odd multiplier makes 64-bit values of small numbers, no two the same."""
    mixed = ids.copy()
    mixed[:, 1] ^= np.asarray(source, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mixed


def _count(joined: Joined, names: Sequence[str], part: _Part) -> None:
    hit = part.found >= 0
    own = np.zeros(len(hit), dtype=bool)
    own[hit] = part.from_source[part.found[hit]] == part.source[hit]
    for field_, sources in (
        ("hits", part.source[own]),
        ("elsewhere", part.source[hit & ~own]),
        ("repeated", part.from_source[~part.first]),
        ("extra", part.from_source[part.extra]),
    ):
        for number, count in enumerate(np.bincount(sources, minlength=1).tolist()):
            if count:
                counts = joined.by_source[names[number]]
                setattr(counts, field_, getattr(counts, field_) + count)
