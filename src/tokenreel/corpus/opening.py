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
from tokenreel.errors import DocumentError, FormatError, ManifestError, StorageError, TokenError, UsageError
from tokenreel.formats import Boundary, Found, find_shards, open_shard
from tokenreel.formats.hobbylm import sidecars_of
from tokenreel.formats.registry import format_named
from tokenreel.store import LocalStore, read_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from tokenreel.corpus.manifest import Manifest
    from tokenreel.store import Entry, Store

MANIFEST = "tokenreel.json"
RUN_CONFIG = "run_config.json"
COMPLETE = "COMPLETE.json"


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
    Raises `StorageError` (STO001) for a path that is not there, `FormatError` for shards that are not whole, FLT001 for
    files whose dtype has to be given, FLT006 for a folder of several formats, and `DocumentError` (DOC006) where a folder
    holds no shard.
    """
    text = os.fspath(path)
    if "://" in text:
        raise UsageError("USE004", path=text, expected="a local path", found=text)
    root, only, split = _place(Path(text))
    store = LocalStore(root)
    listing = store.list() if only is None else [entry for entry in store.list(only[0][:-4]) if entry.path in only]
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
    if path.suffix == ".npy" and path.is_file():
        return path.parent, (path.name,), None
    name = path.name[:-4] if path.suffix in {".bin", ".idx"} else path.name
    for files in ((f"{name}.bin", f"{name}.idx"), (f"{name}.npy",)):
        if any((path.parent / file).is_file() for file in files) or (path.is_file() and ".npy" not in files[0]):
            return path.parent, files, None
    if path.parent.is_dir() and name and (path.parent / "shards").is_dir():
        return path.parent, None, name
    raise StorageError("STO001", path=path, hint=f"ls -l {path.parent}")


def _open(store: Store, listing: list[Entry], path: str, asked: Asked) -> Corpus:
    manifest = parse_manifest(store.read(MANIFEST), f"{path}/{MANIFEST}") if store.exists(MANIFEST) else None
    config = _optional_json(store, RUN_CONFIG)
    boundary = _stored_boundary(manifest, config)
    if manifest is not None and not asked.only:
        return _from_manifest(store, listing, path, manifest, boundary, asked.accept)
    found = find_shards(listing, store, _headerless(store, listing, asked))
    if not found:
        raise DocumentError("DOC006", path=path, found=f"{len(listing)} files", hint="tokenreel formats")
    entries = {shard.name: _entry(store, shard, asked.accept) for shard in found}
    flat = _one_format(entries.values(), path)
    splits = None if asked.only else splits_of(entries, in_names=flat)
    _one_dtype(entries.values())
    recorded = {} if manifest is None or asked.only else _identities(manifest)
    shards = () if splits else tuple(entries.values())
    by_split = {name: tuple(entries[shard] for shard in names) for name, names in (splits or {}).items()}
    if not flat:
        return Corpus(
            store, path, shards, boundary, by_split, manifest=manifest, recorded_identity=recorded, accept=asked.accept
        )
    sidecars = tuple(dict.fromkeys(sidecar for name in entries for sidecar in sidecars_of(store, name)))
    declared = Boundary(boundary.prefix, boundary.suffix, table=bool(sidecars))
    return StreamCorpus(store, path, shards, declared, by_split, accept=asked.accept, sidecars=sidecars)


def _headerless(store: Store, listing: list[Entry], asked: Asked) -> str | None:
    """Return the dtype of headerless files: as given, else as the vocabulary proves. Raises `FormatError` (FLT001)."""
    import numpy as np

    from tokenreel.formats.raw import WIDTHS, prove_dtype

    given = None if asked.dtype is None else np.dtype(asked.dtype)
    told = next((name for name, code in WIDTHS.items() if given is not None and given == np.dtype(code)), None)
    if told or any(entry.path.endswith(".idx") for entry in listing):
        return told
    lone = [shard.files[0] for shard in find_shards(listing, store, "uint16") if shard.format == "raw-uint16"]
    if not lone:
        return None
    if given is None and asked.vocab is not None:
        reader = store.reader(lone[0])
        told = prove_dtype(reader, asked.vocab)
        reader.close()
    if told is None:
        found = given.name if given is not None else f"a vocabulary of {asked.vocab}, which fits both or neither"
        raise FormatError(
            "FLT001",
            path=f"{store.root.rstrip('/')}/{lone[0]}",
            expected=f"dtype {' or '.join(WIDTHS)}, or an llm.c header, or an .idx beside it",
            found=None if given is None and asked.vocab is None else found,
            hint='tokenreel.open(PATH, dtype="uint16"), or dtype = "uint16" in the [[corpus]] of a run file',
        )
    return told


def _one_format(entries: Iterable[ShardEntry], path: str) -> bool:
    """Return whether shards are of formats of one file; raises `FormatError` (FLT006) for a mixture."""
    kinds: dict[str, str] = {}
    for entry in entries:
        kinds.setdefault(entry.format, entry.name)
    if len(kinds) > 1:
        found = ", ".join(f"{form} in {name}" for form, name in kinds.items())
        raise FormatError("FLT006", path=path, expected="one format", found=found)
    return all(format_named(form).one_file for form in kinds)


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
    splits: dict[str, tuple[ShardEntry, ...]] = {}
    for name, split in manifest.splits.items():
        for file in (file for shard in split.shards for file in shard.files):
            _same_size(path, file.path, file.bytes, sizes)
        splits[name] = tuple(
            ShardEntry(
                manifest.shard_format,
                shard.name,
                tuple(file.path for file in shard.files),
                shard.documents,
                shard.sequences,
                shard.tokens,
                manifest.dtype,
            )
            for shard in split.shards
        )
    single = splits.get("") if set(splits) == {""} else None
    return Corpus(
        store,
        path,
        single or (),
        boundary,
        {} if single is not None else splits,
        manifest=manifest,
        recorded_identity=_identities(manifest),
        accept=accept,
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
