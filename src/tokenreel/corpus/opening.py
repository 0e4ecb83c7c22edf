"""`open_corpus`: recognise what a path holds by its bytes and manifests, and return a `Corpus`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.corpus.corpus import Corpus
from tokenreel.corpus.layout import ShardEntry, splits_of
from tokenreel.corpus.manifest import parse_manifest
from tokenreel.corpus.streamed import StreamCorpus
from tokenreel.corpus.unfinished import refuse_unfinished
from tokenreel.errors import DocumentError, FormatError, ManifestError, StorageError, TokenError, UsageError
from tokenreel.formats import Boundary, Found, open_shard, shards_of
from tokenreel.formats.hobbylm import prefix_of, sidecars_of
from tokenreel.formats.recognising import GROUPS, beside, group_of
from tokenreel.formats.registry import format_named
from tokenreel.store import Entry, LocalStore, read_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from tokenreel.corpus.manifest import Manifest
    from tokenreel.store import Store

MANIFEST = "tokenreel.json"
RUN_CONFIG = "run_config.json"
COMPLETE = "COMPLETE.json"
MIX_CONFIG, MIX_COMPLETE = "mix.config.json", "mix.complete.json"
"""First and last file of a mix."""


def open_corpus(
    path: str | os.PathLike[str],
    *,
    dtype: npt.DTypeLike | None = None,
    boundary: Boundary | str | None = None,
    vocab: int | None = None,
    accept: Iterable[str] = (),
) -> Corpus:
    """Open a corpus: a folder, one shard (``NAME.bin``, ``NAME.idx``, ``NAME.npy`` or ``NAME``), or ``ROOT/SPLIT``.

    `boundary` (``"suffix=2"``), `dtype` and `vocab` give what bytes cannot prove; each is checked against what is
    stored. `accept` overrules refusals by code. Cost: O(shards) without a manifest; one read and a listing with one.
    Files that do not say where their documents are make a `StreamCorpus`.
    Raises `UsageError` (USE003) for a `vocab` below 1, `StorageError` (STO001) for a path that is not there, `FormatError` for shards that are not whole, FLT001 for
    files whose dtype has to be given, FLT006 for a folder of several formats, and `DocumentError` (DOC006) where a folder
    holds no shard.
    """
    text = os.fspath(path)
    if "://" in text:
        raise UsageError("USE004", path=text, expected="a local path", found=text)
    if vocab is not None and vocab < 1:
        raise UsageError("USE003", "--vocab: a number of ids", expected="1 or more", found=vocab)
    root, only, split = _place(Path(text))
    store = LocalStore(root)
    if only is None:
        listing = store.list()
    else:
        listing = [Entry(file, store.size(file)) for file in sorted(only) if store.exists(file)]
    corpus = _open(store, listing, text, Asked(only is not None, dtype, vocab, tuple(accept)))
    if split is not None:
        corpus = corpus.split(split)
    return _declared(corpus, dtype, boundary, vocab)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, besides the path."""

    only: bool
    """One shard was named."""
    dtype: npt.DTypeLike | None
    vocab: int | None
    accept: tuple[str, ...]


def _place(path: Path) -> tuple[Path, tuple[str, ...] | None, str | None]:
    """Return (folder, files of the one shard named or None, split or None) for what was typed."""
    if path.is_dir():
        return path, None, None
    stem, files = group_of(path.name) or (path.name, ())
    for group in (files,) if files else tuple(tuple(stem + suffix for suffix in group) for group in GROUPS):
        if any((path.parent / file).is_file() for file in group):
            return path.parent, group, None
    name = path.name
    if path.is_file():
        return path.parent, (name,), None
    if path.parent.is_dir() and name and (path.parent / "shards").is_dir():
        return path.parent, None, name
    raise StorageError("STO001", path=path, hint=f"ls -l {path.parent}")


def _open(store: Store, listing: list[Entry], path: str, asked: Asked) -> Corpus:
    manifest = parse_manifest(store.read(MANIFEST), f"{path}/{MANIFEST}") if store.exists(MANIFEST) else None
    config = _optional_json(store, RUN_CONFIG)
    boundary = _stored_boundary(manifest, config)
    if manifest is not None and not asked.only:
        return _from_manifest(store, listing, path, manifest, boundary, asked.accept)
    if not asked.only:
        refuse_unfinished([entry.path for entry in listing], path, asked.accept)
    told = manifest.dtype if manifest is not None and asked.dtype is None else asked.dtype
    found = shards_of(store, listing, dtype=told, vocab=asked.vocab)
    if not found:
        raise DocumentError("DOC006", path=path, found=f"{len(listing)} files", hint="tokenreel formats")
    others = [] if asked.only else beside(store, listing, found)
    _one_format((*found, *others), path)
    entries = {shard.name: _entry(store, shard, asked.accept) for shard in found}
    flat = all(format_named(entry.format).streamed for entry in entries.values())
    splits = None if asked.only else _splits(store, listing, entries, in_names=flat)
    _one_dtype(entries.values())
    recorded = {} if manifest is None or asked.only else _identities(manifest)
    shards = () if splits else tuple(entries.values())
    by_split = {name: tuple(entries[shard] for shard in names) for name, names in (splits or {}).items()}
    if not flat:
        return Corpus(
            store, path, shards, boundary, by_split, manifest=manifest, recorded_identity=recorded, accept=asked.accept
        )
    sidecars = _sidecars(store, entries)
    declared = Boundary(boundary.prefix, boundary.suffix, table=bool(sidecars))
    return StreamCorpus(store, path, shards, declared, by_split, accept=asked.accept, sidecars=sidecars)


def has_sidecars(store: Store, names: Iterable[str]) -> bool:
    """Return whether HobbyLM's tables stand beside any of these shards, and are of them."""
    return bool(_sidecars(store, names))


def _sidecars(store: Store, names: Iterable[str]) -> tuple[str, ...]:
    prefixes = dict.fromkeys(prefix_of(name) + "_0" for name in names if prefix_of(name) != name)
    return tuple(dict.fromkeys(sidecar for name in prefixes for sidecar in sidecars_of(store, name)))


def _splits(
    store: Store, listing: list[Entry], entries: dict[str, ShardEntry], *, in_names: bool
) -> dict[str, list[str]] | None:
    """Return the names of shards by split, as paths or an ounce manifest say; raises `FormatError` (OFF009, OFF010)."""
    if any(entry.format == "ounce-v1" for entry in entries.values()):
        from tokenreel.formats.ounce_manifest import check_shards

        by_file = {entry.files[0]: name for name, entry in entries.items()}
        said = check_shards(store, {entry.path: entry.size for entry in listing if entry.path in by_file})
        if said is not None:
            split = {name: [by_file[file] for file in files] for name, files in said.items()}
            return split if set(split) != {"train"} else None
    return splits_of(entries, in_names=in_names)


def kinds_of(shards: Iterable[Found]) -> list[tuple[str, str]]:
    """Return every format among shards, with the first shard of each."""
    kinds: dict[str, str] = {}
    for shard in shards:
        kinds.setdefault(shard.format, shard.files[0])
    return list(kinds.items())


def _one_format(shards: Iterable[Found], path: str) -> None:
    """Refuse shards of several formats; raises `FormatError` (FLT006)."""
    kinds = kinds_of(shards)
    if len(kinds) > 1:
        found = ", ".join(f"{form} in {name}" for form, name in kinds)
        hint = f"name one file ({path.rstrip('/')}/{kinds[0][1]}), or move one format to a folder of its own"
        raise FormatError("FLT006", path=path, expected="one format", found=found, hint=hint)


def _entry(store: Store, shard: Found, accept: tuple[str, ...]) -> ShardEntry:
    opened = open_shard(store, shard, accept)
    try:
        return ShardEntry(
            shard.format,
            shard.name,
            shard.files,
            opened.documents,
            opened.sequences,
            opened.tokens,
            opened.dtype.name,
        )
    finally:
        opened.close()


def _from_manifest(
    store: Store, listing: list[Entry], path: str, manifest: Manifest, boundary: Boundary, accept: tuple[str, ...]
) -> Corpus:
    sizes = {entry.path: entry.size for entry in listing}
    streamed = format_named(manifest.shard_format).streamed
    splits: dict[str, tuple[ShardEntry, ...]] = {}
    for name, split in manifest.splits.items():
        for file in (file for shard in split.shards for file in shard.files):
            _same_size(path, file.path, file.bytes, sizes)
        splits[name] = tuple(
            ShardEntry(
                manifest.shard_format,
                shard.name,
                tuple(file.path for file in shard.files),
                1 if streamed else shard.documents,
                1 if streamed else shard.sequences,
                shard.tokens,
                manifest.dtype,
            )
            for shard in split.shards
        )
    single = splits.get("") if set(splits) == {""} else None
    if format_named(manifest.shard_format).streamed:
        entries = [entry for chosen in splits.values() for entry in chosen]
        sidecars = _sidecars(store, (entry.name for entry in entries))
        return StreamCorpus(
            store,
            path,
            single or (),
            Boundary(boundary.prefix, boundary.suffix, table=bool(sidecars)),
            {} if single is not None else splits,
            manifest=manifest,
            recorded_identity=_identities(manifest),
            accept=accept,
            sidecars=sidecars,
        )
    by_split = {} if single is not None else splits
    recorded = _identities(manifest)
    if not streamed:
        return Corpus(
            store,
            path,
            single or (),
            boundary,
            by_split,
            manifest=manifest,
            recorded_identity=recorded,
            accept=accept,
        )
    names = [entry.name for entries in splits.values() for entry in entries]
    return StreamCorpus(
        store,
        path,
        single or (),
        boundary,
        by_split,
        manifest=manifest,
        recorded_identity=recorded,
        accept=accept,
        sidecars=_sidecars(store, names),
    )


def _same_size(root: str, path: str, said: int, sizes: dict[str, int]) -> None:
    if sizes.get(path) != said:
        found = f"{sizes[path]} bytes" if path in sizes else "no such file"
        raise ManifestError(
            "MAN004", path=f"{root}/{path}", expected=f"{said} bytes", found=found, hint=f"tokenreel verify {root}"
        )


def _identities(manifest: Manifest) -> dict[str, str]:
    return {name: split.identity for name, split in manifest.splits.items() if split.identity}


def _stored_boundary(manifest: Manifest | None, config: dict[str, Any] | None) -> Boundary:
    if manifest is not None:
        stored = manifest.boundary
        return Boundary(stored.prefix, stored.suffix, stored.table)
    if config is not None and isinstance(config.get("eod_id"), int):
        return Boundary((), (int(config["eod_id"]),), table=True)
    return Boundary(table=True)


def _optional_json(store: Store, path: str) -> dict[str, Any] | None:
    if not store.exists(path):
        return None
    value = read_json(store, path)
    if not isinstance(value, dict):
        raise ManifestError("MAN003", path=path, expected="an object", found=type(value).__name__)
    return value


def _one_dtype(entries: Iterable[ShardEntry]) -> None:
    kinds: dict[str, str] = {}
    for entry in entries:
        kinds.setdefault(entry.dtype, entry.name)
    if len(kinds) > 1:
        found = ", ".join(f"{dtype} in {name}" for dtype, name in kinds.items())
        raise FormatError("TOK002", expected="one dtype", found=found, hint="tokenreel convert SRC DST --dtype int32")


def _declared(
    corpus: Corpus, dtype: npt.DTypeLike | None, boundary: Boundary | str | None, vocab: int | None
) -> Corpus:
    from dataclasses import replace

    import numpy as np

    if dtype is not None and np.dtype(dtype) != corpus.dtype:
        raise TokenError("TOK003", path=corpus.path, expected=np.dtype(dtype).name, found=corpus.dtype.name)
    if boundary is not None:
        given = Boundary.parse(boundary) if isinstance(boundary, str) else boundary
        stored = corpus.boundary
        declared = replace(given, table=given.table or stored.table)
        if (stored.prefix or stored.suffix) and (declared.prefix, declared.suffix) != (stored.prefix, stored.suffix):
            raise TokenError(
                "TOK004",
                path=corpus.path,
                expected=f"prefix {list(stored.prefix)}, suffix {list(stored.suffix)}, as its manifest says",
                found=f"prefix {list(declared.prefix)}, suffix {list(declared.suffix)}",
                hint=f"tokenreel inspect {corpus.path}",
            )
        corpus = replace(corpus, boundary=declared, _shards={})
    return corpus if vocab is None else replace(corpus, vocab=vocab, _shards={})
