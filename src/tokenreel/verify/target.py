"""What is verified: a listing, the shards in it, and the sidecars, read once; nothing here judges, it only reads."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from tokenreel.corpus.layout import SPLIT_NAMES, split_of, splits_of
from tokenreel.corpus.manifest import MANIFEST_FORMAT, Manifest
from tokenreel.corpus.opening import has_sidecars
from tokenreel.corpus.receipts import (
    COMPLETE_FORMAT,
    RECEIPT_FORMAT,
    SPLITS,
    Complete,
    Receipt,
    RunConfig,
    Stats,
    parse_as,
)
from tokenreel.errors import (
    DocumentError,
    FormatError,
    ManifestError,
    SplitError,
    StorageError,
    TokenreelError,
    UsageError,
)
from tokenreel.formats import Boundary, Found, open_shard
from tokenreel.formats.recognising import GROUPS, group_of, recognise
from tokenreel.store import Entry, LocalStore, loads_strict
from tokenreel.store.atomic import read_error
from tokenreel.verify.at_work import build_at_work
from tokenreel.verify.other_files import HEAD, what_it_is
from tokenreel.verify.streamed import PIECE_FULL, open_stream, stream_unit
from tokenreel.verify.there import is_streamed, recorded_splits, shards_there

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from tokenreel.formats import Shard
    from tokenreel.store import Store
    from tokenreel.text import Tokenizer
    from tokenreel.verify.finding import Findings

T = TypeVar("T", bound=msgspec.Struct)
F = TypeVar("F", int, str, bool)

MANIFEST, RUN_CONFIG, STATS, COMPLETE = "tokenreel.json", "run_config.json", "stats.json", "COMPLETE.json"
DOCUMENTS, BUILD_LOG = "documents.parquet", "build.log.jsonl"
TOKENIZER = "tokenizer/"
RECEIPTS = "receipts/"
SHARDS = "shards/"

REQUIRED: dict[type, tuple[str, ...]] = {
    Receipt: ("format", "input", "run_config_sha256", "by_source"),
    RunConfig: ("tokenizer", "split_rule", "dtype", "eod_id", "inputs", "layout"),
    Complete: ("format", "receipts_sha256"),
    Manifest: ("format",),
}
"""Fields that readers may do without, and that are always there in a file of ours."""

VERSIONS: dict[type, str] = {
    Receipt: RECEIPT_FORMAT,
    Complete: COMPLETE_FORMAT,
    Manifest: MANIFEST_FORMAT,
}
"""What the field ``format`` holds in a file of ours."""


@dataclass(frozen=True, slots=True)
class Sidecar(Generic[T]):
    """One JSON file: its bytes, its SHA-256, and what it says where it can be read."""

    path: str
    data: bytes
    sha256: str
    raw: dict[str, Any] | None
    value: T | None
    """None when it cannot be read as what it should be; the finding is made then."""

    @property
    def ours(self) -> bool:
        """Whether it claims to be written by this package: then it is held to every field and to one spelling."""
        return self.raw is not None and "ASSUMED_SCHEMA" not in self.raw


@dataclass(eq=False)
class Target:
    """A path opened for verification. Broken shards and sidecars are left out, with their findings made."""

    store: Store
    path: str
    sizes: dict[str, int]
    """Every file of the listing, in byte order of path, and its size."""
    files: tuple[Found, ...]
    """The shards as they lie there, each of its own files."""
    only: str | None = None
    """A single shard was named: sidecars are not looked at, but for what they declare."""
    split: str | None = None
    """A single split was named."""
    run_config: Sidecar[RunConfig] | None = None
    complete: Sidecar[Complete] | None = None
    stats: Sidecar[Stats] | None = None
    manifest: Sidecar[Manifest] | None = None
    receipts: dict[str, Sidecar[Receipt]] = field(default_factory=dict)
    boundary: Boundary = field(default_factory=Boundary)
    vocab: int | None = None
    """Ids are below this, where something says so."""
    tokenizer: str | os.PathLike[str] | None = None
    """The tokenizer's file, where one was given."""
    boundary_given: bool = False
    """Whether the boundary was given, not recorded."""
    accept: tuple[str, ...] = ()
    piece: int | None = None
    """Ids of a piece, where files that are one stream are looked at in pieces instead of documents."""
    broken: set[str] = field(default_factory=set)
    """Shards that cannot be read; filled by the first rule."""
    loaded: tuple[Tokenizer | None, str] | None = field(default=None, repr=False)
    """The tokenizer at hand, or why there is none; None before it was looked for."""
    _opened: dict[str, Shard] = field(default_factory=dict, repr=False)

    @property
    def built(self) -> bool:
        """Whether a build wrote it (or began to): sidecars of a build are there."""
        return bool(self.run_config or self.complete or self.receipts) and self.only is None

    @property
    def recorded_boundary(self) -> Boundary:
        """The boundary that is recorded, whatever was given; the target's where none is."""
        manifest = self.manifest.value if self.manifest else None
        if manifest is None:
            return _stored_boundary(self) or self.boundary
        return Boundary(tuple(manifest.boundary.prefix), tuple(manifest.boundary.suffix), table=True)

    @cached_property
    def at_work(self) -> bool:
        """Whether a build is at work in the folder; asked only where it is not complete."""
        if self.complete is not None or not isinstance(self.store, LocalStore):
            return False
        return build_at_work(self.store.root)

    @property
    def whole(self) -> bool:
        """Whether the path is a whole corpus, not one split or one shard of it."""
        return self.only is None and self.split is None

    @cached_property
    def entries(self) -> list[Entry]:
        """The listing."""
        return [Entry(path, size) for path, size in self.sizes.items()]

    @property
    def native(self) -> bool:
        """Whether it has the native layout."""
        config = self.run_config.value if self.run_config else None
        if config is not None and config.layout is not None:
            return config.layout == "native"
        return self.manifest is not None

    @cached_property
    def streamed(self) -> bool:
        """Whether the shards are one stream cut into files: then documents are those of the stream."""
        return is_streamed(self.files)

    @cached_property
    def shards(self) -> tuple[Found, ...]:
        """What has documents: the shards, or of files that are one stream, one unit for each split."""
        if not self.streamed:
            return self.files
        manifest = self.manifest.value if self.manifest else None
        names = splits_of((shard.name for shard in self.files), in_names=True)
        if names is None or (manifest is not None and set(manifest.splits) == {""}):  # whatever names of files say
            return (stream_unit("", self.files),)
        by_name = {shard.name: shard for shard in self.files}
        return tuple(stream_unit(split, [by_name[name] for name in chosen]) for split, chosen in names.items())

    def read_boundary(self, shard: Shard) -> Boundary:
        """Return what documents of an opened shard are held against: nothing, where they are only pieces."""
        return Boundary() if getattr(shard, "piece", None) else self.boundary

    @cached_property
    def by_name(self) -> dict[str, Found]:
        """The shards by name."""
        return {found.name: found for found in self.shards}

    @cached_property
    def counted_inside(self) -> dict[str, list[str]]:
        """The shards of every receipt that counts EOD ids inside documents, by the receipt's path.

        Only where special tokens in text were encoded as such: elsewhere an EOD inside a document is wrong, counted or
        not.
        """
        config = self.run_config.value if self.run_config else None
        if config is None or config.special_in_text != "special":
            return {}
        out = {}
        for path, sidecar in self.receipts.items():
            receipt = sidecar.value
            if receipt is not None and eod_inside(sidecar):
                names = (f"{SHARDS}{split}/{receipt.part}" for split in receipt.splits)
                out[path] = [name for name in names if name in self.by_name]
        return out

    @cached_property
    def excused(self) -> frozenset[str]:
        """Shards in which suffixes inside documents are counted against their receipt, and are no findings."""
        return frozenset(name for names in self.counted_inside.values() for name in names)

    def splits(self) -> dict[str, list[Found]]:
        """Return the shards by split; one split named ``""`` where paths say none."""
        names = self._recorded_splits or splits_of(shard.name for shard in self.shards)
        if names is None:
            return {"": list(self.shards)}
        return {split: [self.by_name[name] for name in chosen] for split, chosen in names.items()}

    @cached_property
    def _recorded_splits(self) -> dict[str, list[str]] | None:
        if not self.whole or self.streamed:
            return None
        manifest = self.manifest.value if self.manifest else None
        return recorded_splits(self.store, self.sizes, self.files, manifest)

    def shard(self, found: Found) -> Shard | None:
        """Return an opened, validated shard, or None when it is broken."""
        if found.name in self.broken:
            return None
        shard = self._opened.get(found.name)
        if shard is None:
            try:
                shard = self.open(found)
                shard.check_table()
            except (FormatError, ManifestError):
                self.broken.add(found.name)
                return None
            self._opened[found.name] = shard
        return shard

    def open(self, found: Found) -> Shard:
        """Open a shard, or a stream of several; raises `FormatError`."""
        if not self.streamed:
            return open_shard(self.store, found, self.accept)
        names = {file: shard for shard in self.files for file in shard.files}
        piece = self.piece if self.piece or self.boundary.prefix or self.boundary.suffix else PIECE_FULL
        return open_stream(self.store, found, [names[file] for file in found.files], self.boundary, piece, self.accept)

    def opened(self) -> Iterator[tuple[Found, Shard]]:
        """Yield every shard that can be read."""
        for found in self.shards:
            shard = self.shard(found)
            if shard is not None:
                yield found, shard

    def missing(self, path: str) -> bool:
        """Return whether a file is not in the listing."""
        return path not in self.sizes

    def close(self) -> None:
        """Give all handles back."""
        for shard in self._opened.values():
            shard.close()
        self._opened.clear()


def eod_inside(sidecar: Sidecar[Receipt]) -> int:
    """Return how many EOD ids inside documents a receipt counts; 0 where it counts none."""
    said = sidecar.raw.get("eod_inside") if sidecar.raw is not None else None
    return said if isinstance(said, int) and not isinstance(said, bool) else 0


def open_target(
    path: str | os.PathLike[str],
    findings: Findings,
    *,
    boundary: Boundary | str | None = None,
    vocab: int | None = None,
    accept: Iterable[str] = (),
    dtype: npt.DTypeLike | None = None,
    piece: int | None = None,
) -> Target:
    """Open a folder, one shard or ``ROOT/SPLIT``; raises `StorageError` (STO001) for a path that is not there."""
    text = str(path)
    if "://" in text:
        raise UsageError("USE004", path=text, expected="a local path", found=text)
    if vocab is not None and vocab < 1:
        raise UsageError("USE003", "--vocab is a number of ids", expected=">= 1", found=vocab)
    root, only, split = _place(Path(path))
    return open_store(
        LocalStore(root),
        text,
        findings,
        only=only,
        split=split,
        boundary=boundary,
        vocab=vocab,
        accept=accept,
        dtype=dtype,
        piece=piece,
    )


def open_store(
    store: Store,
    path: str,
    findings: Findings,
    *,
    only: str | None = None,
    split: str | None = None,
    boundary: Boundary | str | None = None,
    vocab: int | None = None,
    accept: Iterable[str] = (),
    dtype: npt.DTypeLike | None = None,
    piece: int | None = None,
) -> Target:
    """Open what a store holds: list it, pair the shards up, read the sidecars. Cost: one listing and the sidecars."""
    listing = store.list()
    chosen = [entry for entry in listing if _wanted(entry.path, only, split)]
    target = Target(
        store,
        path,
        {entry.path: entry.size for entry in listing},
        (),
        only,
        split,
        accept=tuple(accept),
        piece=piece,
    )
    target.run_config = _optional(target, RUN_CONFIG, RunConfig, findings)
    target.manifest = _optional(target, MANIFEST, Manifest, findings)
    target.files = tuple(
        shards_there(
            store,
            chosen,
            findings,
            dtype=dtype,
            vocab=vocab,
            manifest=target.manifest.value if target.manifest else None,
            built=target.run_config is not None or any(path.startswith(RECEIPTS) for path in target.sizes),
        )
    )
    if only is None:
        target.complete = _optional(target, COMPLETE, Complete, findings)
        target.stats = _optional(target, STATS, Stats, findings)
        for name in target.sizes:
            if name.startswith(RECEIPTS) and name.endswith(".json"):
                receipt = _optional(target, name, Receipt, findings)
                if receipt is not None:
                    target.receipts[name] = receipt
    target.boundary = _boundary(target, boundary, findings)
    target.boundary_given = boundary is not None
    target.vocab = vocab if vocab is not None else _vocab(target)
    return target


def _place(path: Path) -> tuple[Path, str | None, str | None]:
    """Return (folder, shard name or None, split or None) for what was typed; as `tokenreel.open` takes it."""
    if path.is_dir():
        return path, None, None
    name, _ = group_of(path.name) or (path.name, ())
    if any(path.with_name(name + suffix).is_file() for group in GROUPS for suffix in group):
        return path.parent, name, None
    if path.is_file():
        if not recognise(LocalStore(path.parent), [Entry(path.name, path.stat().st_size)]).found:
            raise _no_shard(path)
        return path.parent, path.name, None
    root = path.parent
    if name and root.is_dir() and ((root / SHARDS).is_dir() or (root / RUN_CONFIG).is_file()):
        if (root / SHARDS / name).is_dir():
            return root, None, name
        if name in SPLIT_NAMES:
            raise no_such_split(str(root), name, sorted(one.name for one in (root / SHARDS).glob("*") if one.is_dir()))
    raise StorageError("STO001", path=path, hint=f"ls -l {path.parent}")


def _no_shard(path: Path) -> DocumentError:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise read_error(path, error) from error
    return DocumentError("DOC006", what_it_is(head), path=path, hint="tokenreel formats")


def no_such_split(root: str, name: str, known: Iterable[str], *, built: bool = True) -> SplitError:
    """Return the error for a split without a shard: one that every build has is empty, another is not there."""
    empty = built and name in SPLITS
    return SplitError(
        "SPL002",
        f"the split {name} is empty: no document of the corpus is in it" if empty else "",
        path=root,
        expected=f"one of: {', '.join(known) or 'none'}",
        found=name,
    )


def _wanted(path: str, only: str | None, split: str | None) -> bool:
    if only is not None:
        return path == only or path in {only + suffix for group in GROUPS for suffix in group}
    return split is None or split_of(path) == split


def _optional(target: Target, path: str, kind: type[T], findings: Findings) -> Sidecar[T] | None:
    """Read a sidecar if it is there, and add what is wrong with its form."""
    if target.missing(path):
        return None
    data = target.store.read(path)
    digest = hashlib.sha256(data).hexdigest()
    try:
        raw = loads_strict(data, path)
    except TokenreelError as error:
        findings.caught(error, target.store.root, path=path)
        return Sidecar(path, data, digest, None, None)
    if not isinstance(raw, dict):
        findings.error("MAN003", "not an object", path=path, expected="an object", found=type(raw).__name__)
        return Sidecar(path, data, digest, None, None)
    try:
        value: T | None = parse_as(kind, data, path)
    except TokenreelError as error:
        findings.caught(error, target.store.root, path=path)
        value = None
    sidecar = Sidecar(path, data, digest, raw, value)
    _check_form(sidecar, kind, findings)
    return sidecar


def _check_form(sidecar: Sidecar[Any], kind: type, findings: Findings) -> None:
    """Add what a file of ours lacks, and a version that is not known."""
    if sidecar.raw is None or not sidecar.ours:
        return
    for name in REQUIRED.get(kind, ()):
        if name not in sidecar.raw:
            findings.error("MAN003", f"the field {name!r} is missing", path=sidecar.path)
    said, known = sidecar.raw.get("format"), VERSIONS.get(kind)
    if known is not None and said is not None and said != known:
        findings.error("MAN055", path=sidecar.path, expected=known, found=said)


def _boundary(target: Target, given: Boundary | str | None, findings: Findings) -> Boundary:
    stored = _stored_boundary(target)
    table = bool(target.files) and (
        not target.streamed or has_sidecars(target.store, (found.name for found in target.files))
    )
    if given is None:
        return stored or Boundary(table=table)
    asked = Boundary.parse(given) if isinstance(given, str) else given
    asked = Boundary(asked.prefix, asked.suffix, table=table)
    if stored is not None and (stored.prefix, stored.suffix) != (asked.prefix, asked.suffix):
        findings.error(
            "TOK004",
            expected=f"prefix {list(stored.prefix)}, suffix {list(stored.suffix)}, as recorded",
            found=f"prefix {list(asked.prefix)}, suffix {list(asked.suffix)}",
        )
    return asked


def _stored_boundary(target: Target) -> Boundary | None:
    manifest = target.manifest.value if target.manifest else None
    if manifest is not None and manifest.boundary is not None:
        stored = manifest.boundary
        if stored.prefix or stored.suffix:
            return Boundary(tuple(stored.prefix), tuple(stored.suffix), table=True)
    config = target.run_config.value if target.run_config else None
    if config is not None and config.eod_id is not None:
        return Boundary((), (config.eod_id,), table=True)
    return None


def _vocab(target: Target) -> int | None:
    largest = tokenizer_fact(target, "largest_id", int)
    manifest = target.manifest.value if target.manifest else None
    if largest is None and manifest is not None and manifest.tokenizer is not None:
        # What has no run configuration, as a mix, has its tokenizer there.
        said = manifest.tokenizer.get("largest_id")
        largest = said if isinstance(said, int) and not isinstance(said, bool) else None
    return None if largest is None else largest + 1


def tokenizer_fact(target: Target, name: str, kind: type[F]) -> F | None:
    """Return a field of the tokenizer in run_config.json, or None where it is absent or of another type."""
    config = target.run_config.value if target.run_config else None
    value = None if config is None else config.tokenizer.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return None
    return value
