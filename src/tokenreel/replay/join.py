"""Finding the documents of an index in public text again.

Every declared source is read, transformed, normalised and hashed; texts wait on disk by the top bits of their id, are
matched part by part with the index's rows, and are written in the order of the store. Memory does not grow with the
index nor with the text. Ids are not unique, on either side.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.id_matching import match
from tokenreel.build.id_spill import IdSpill, ids_of, parts_for
from tokenreel.errors import StorageError
from tokenreel.replay.files import read_batches, rows_of
from tokenreel.replay.text_spill import TextSpill
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
    that fails, and what reading raises.
    """
    named = sources.named()
    joined = Joined({name: SourceCounts() for name in named})
    numbers = {name: number for number, name in enumerate(named)}
    parts = parts_for(max(manifest.documents, 1))
    with IdSpill(parts, plan.folder) as rows, TextSpill(parts, plan.folder) as texts:
        _index_rows(store, manifest, joined, numbers, rows)
        for name, source in named.items():
            if joined.by_source[name].wanted:
                _read_source(source, numbers[name], plan, manifest, joined.by_source[name], texts)
            if progress is not None:
                progress(texts.bytes, None, 0)
        _match(joined, list(named), rows, texts, out, plan.folder, manifest, store)
    return joined


def _index_rows(store: Store, manifest: Manifest, joined: Joined, numbers: dict[str, int], rows: IdSpill) -> None:
    """Put the index's rows where they are matched: value = source << 40 | number of the row."""
    first = 0
    for file in sorted(manifest.files, key=lambda one: one.task_id):
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
            rows.add(found.ids, source << np.uint64(40) | place)
            for number, count in enumerate(np.bincount(found.source, minlength=len(found.sources)).tolist()):
                joined.by_source[found.sources[number]].wanted += count
            first += len(found)
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
        for path in upstream.files:
            try:
                for made in _texts(upstream.store, path, transform):
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


def _match(
    joined: Joined,
    names: Sequence[str],
    rows: IdSpill,
    texts: TextSpill,
    out: Path | None,
    folder: Path | None,
    manifest: Manifest,
    store: Store,
) -> None:
    from tokenreel.replay.emit import Emission

    names = list(joined.by_source)
    with Emission(manifest, out, folder) as emission:
        for number in range(rows.parts):
            wanted = rows.part(number)
            there, read = texts.part(number)
            ids, keys = ids_of(wanted), ids_of(there)
            found = _prefer_own(ids, keys, wanted["value"] >> np.uint64(40), there["value"])
            _count(joined, names, wanted, there, found, ids, keys)
            hits = np.flatnonzero(found >= 0)
            joined.found += len(hits)
            if out is not None and len(hits):
                place = (wanted["value"][hits] & np.uint64((1 << 40) - 1)).astype(np.int64)
                emission.add(place, read.take(found[hits]))
        if out is not None:
            joined.files = emission.write(store)


def _prefer_own(ids: Any, keys: Any, wanted: Any, there: Any) -> Any:
    """Return each row's text: of its own source where that has one, else of any."""
    if not len(keys):
        return np.full(len(ids), -1, dtype=np.int32)
    mixed_ids, mixed_keys = ids.copy(), keys.copy()
    mixed_ids[:, 1] ^= _spread(wanted)
    mixed_keys[:, 1] ^= _spread(there)
    found = match(mixed_ids, mixed_keys)
    lost = np.flatnonzero(found < 0)
    if len(lost):
        found[lost] = match(np.ascontiguousarray(ids[lost]), keys)
    return found


def _spread(number: Any) -> Any:
    # An odd multiplier makes 64-bit values of small numbers, no two the same.
    return np.asarray(number, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def _count(joined: Joined, names: Sequence[str], wanted: Any, there: Any, found: Any, ids: Any, keys: Any) -> None:
    sources = (wanted["value"] >> np.uint64(40)).astype(np.int64)
    hit = found >= 0
    from_source = there["value"].astype(np.int64)
    own = np.zeros(len(found), dtype=bool)
    own[hit] = from_source[found[hit]] == sources[hit]
    for number, count in Counter(sources[own].tolist()).items():
        joined.by_source[names[number]].hits += count
    for number, count in Counter(sources[hit & ~own].tolist()).items():
        joined.by_source[names[number]].elsewhere += count
    if not len(keys):
        return
    mixed = keys.copy()
    mixed[:, 1] ^= _spread(there["value"])
    first = match(mixed, mixed) == np.arange(len(mixed))
    for number, count in Counter(from_source[~first].tolist()).items():
        joined.by_source[names[number]].repeated += count
    unwanted = first & (match(keys, ids) < 0) if len(ids) else first
    for number, count in Counter(from_source[unwanted].tolist()).items():
        joined.by_source[names[number]].extra += count
