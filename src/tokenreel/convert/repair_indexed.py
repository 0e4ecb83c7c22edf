"""Repair formats whose shards an index names, or that hold their documents in parts of their own: one module for each.

A module has ``rebuild(store, found, wish) -> Rebuilt``: what is whole of a shard, as files put together of the source's bytes,
or written by its own writer; and where a format has an index, ``find``, ``is_index`` and ``indices``. Everything is read as it
will be before anything is written, and again afterwards: the SHA-256 of the ids is the same.
"""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.convert.virtual import Spliced, VirtualStore, write_spliced
from tokenreel.errors import DocumentError, FormatError, TokenreelError
from tokenreel.formats import Found, open_shard
from tokenreel.formats.recognising import WAITING, settled
from tokenreel.formats.unpacking import largest, steps_of
from tokenreel.store import LocalStore, MemoryStore, write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokenreel.formats import Boundary, Shard
    from tokenreel.store import Store
    from tokenreel.store.base import Reader

MODULES = {name: f"tokenreel.convert.repair_{name}" for name in ("mds", "litdata", "levanter", "arrow", "parquet")}
"""By the beginning of a format's name."""
INDEXED = {"mds": "index.json", "litdata": "index.json", "levanter": "shard_ledger.json"}
STEP = 1 << 21


@dataclass(frozen=True, slots=True)
class Wish:
    """What was given to `repair`."""

    boundary: Boundary
    dtype: str | None = None
    as_format: str | None = None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What is whole of one shard."""

    found: Found
    """As it will be."""
    files: dict[str, Spliced]
    """Empty where `write` makes them."""
    changes: tuple[str, ...]
    lost_documents: int
    lost: int | None
    """Ids; None where nothing tells how many."""
    entry: Any = None
    """What the index will say of it."""
    write: Callable[[Path], None] | None = None
    digest: str = ""
    """SHA-256 of the ids that are kept, where `write` makes the files."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One shard of the result."""

    found: Found
    rebuilt: Rebuilt | None
    """None where it was whole."""


@dataclass(slots=True)
class Mended:
    """What `mend` did."""

    kept: list[Kept] = field(default_factory=list)
    shards: list[tuple[Rebuilt, int, int, str]] = field(default_factory=list)
    """(what, documents, ids, SHA-256 of them)."""
    beyond: list[str] = field(default_factory=list)


def beyond(found: Found, why: str, expected: str) -> FormatError:
    """Return the error of a shard of which nothing can be saved."""
    return FormatError(
        "FLT020", why, path=found.files[0] if found.files else found.name, shard=found.name, expected=expected
    )


def folder_of(path: str) -> str:
    """Return the folder of a path with its slash, empty for the root.

    >>> folder_of("a/b.mds"), folder_of("b.mds")
    ('a/', '')
    """
    folder, slash, _ = path.rpartition("/")
    return folder + slash


def family_of(format_name: str) -> str:
    """Return which of the modules repairs a format, empty for none."""
    return next((name for name in MODULES if format_name == name or format_name.startswith(f"{name}-")), "")


def module_of(format_name: str) -> Any:
    """Return the module that repairs a format."""
    return importlib.import_module(MODULES[family_of(format_name)])


def without_index(store: Store, paths: Sequence[str], wish: Wish) -> tuple[list[Found], str]:
    """Return shards whose index is gone or damaged, and in words what is wrong with it; nothing where none is."""
    for family, index in INDEXED.items():
        if wish.as_format and family_of(wish.as_format) != family:
            continue
        module = importlib.import_module(MODULES[family])
        found = module.find(store, paths, wish)
        lone = [one for one in found if not (hasattr(module, "is_named") and module.is_named(store, one))]
        places = {
            f"{module.place(one) if hasattr(module, 'place') else folder_of(one.files[0])}{index}" for one in lone
        }
        bad = sorted(place for place in places if not module.is_index(store, place))
        if found and bad:
            words = "was missing" if not store.exists(bad[0]) else "was damaged"
            return found, f"{', '.join(bad)} {words}: made anew from the shards"
    return [], ""


def unpacked(store: Store, path: str, algorithm: str) -> Reader:
    """Return as much of a compressed file as can be decompressed, in memory."""
    data = store.read(path)
    out = bytearray()
    most = largest(len(data))
    if algorithm in ("br", "snappy"):
        found = Found("", path, (path,))
        raise beyond(
            found, f"{algorithm} is decompressed whole or not at all", "the shard once more, from where it came"
        )
    try:
        for part in steps_of(data, algorithm):
            if len(out) + len(part) > most:
                break
            out += part
    except ValueError:
        pass  # what came before is there
    return MemoryStore({path: bytes(out)}).reader(path)


def ids_digest(shard: Shard) -> str:
    """Return the SHA-256 of all ids of a shard, whose table is checked."""
    shard.check_table()
    digest = hashlib.sha256()
    for begin in range(0, shard.tokens, STEP):
        digest.update(np.ascontiguousarray(shard.read(begin, min(shard.tokens, begin + STEP))).data.cast("B"))
    return digest.hexdigest()


def mend(
    store: Store, out: Path, shards: Sequence[Found], wrong: dict[str, bool], wish: Wish, copy: Callable[[Found], None]
) -> Mended:
    """Write what is whole of `shards` into `out`: `copy` takes those that are, the others are put together.

    Raises `FormatError` (FLT020) where nothing can be saved, `DocumentError` (DOC024) where ids differ afterwards.
    """
    module = module_of(shards[0].format)
    done = Mended()
    for found in shards:
        if not wrong[found.name]:
            done.kept.append(Kept(found, None))
            continue
        try:
            done.kept.append(_one(module, store, found, wish, done))
        except TokenreelError as error:
            done.beyond.append(f"{found.name}: {error.code} {error.message or error.title} ({error.expected})")
    if not done.kept:
        said = "; ".join(done.beyond[:3])
        raise FormatError(
            "FLT020", "nothing of it can be saved", path=store.root, found=said, hint="tokenreel explain FLT020"
        )
    for one in done.kept:
        if one.rebuilt is None:
            copy(one.found)
        elif one.rebuilt.write is not None:
            one.rebuilt.write(out)
        else:
            for path, file in one.rebuilt.files.items():
                write_spliced(store, path, file, out / path)
    for path, data in _indices(module, store, done.kept).items():
        write_bytes_atomic(out / path, data)
    _reread(out, done)
    return done


def _indices(module: Any, store: Store, kept: Sequence[Kept]) -> dict[str, bytes]:
    made: dict[str, bytes] = module.indices(store, kept) if hasattr(module, "indices") else {}
    return made


def _one(module: Any, store: Store, found: Found, wish: Wish, done: Mended) -> Kept:
    rebuilt: Rebuilt = module.rebuild(store, found, wish)
    if rebuilt.found.format.endswith(WAITING):
        if wish.dtype is None:
            raise beyond(found, "nothing says how wide an id is", "--dtype uint16, int32 or int64")
        rebuilt = replace(rebuilt, found=settled(rebuilt.found, wish.dtype))
    if not rebuilt.changes:
        rebuilt = replace(rebuilt, changes=("what its index says of it was wrong: made anew",))
    if rebuilt.write is None:
        one = Kept(rebuilt.found, rebuilt)
        index = {path: Spliced((data,)) for path, data in _indices(module, store, [one]).items()}
        shard = open_shard(VirtualStore(store, rebuilt.files | index), rebuilt.found)
        try:
            documents, tokens, digest = shard.documents, shard.tokens, ids_digest(shard)
        finally:
            shard.close()
    else:
        (documents, tokens), digest = rebuilt.entry, rebuilt.digest
    if not documents:
        why = f"no whole document is left of it: {rebuilt.changes[-1]}"
        raise beyond(found, why, "the shard once more, from where it came")
    done.shards.append((rebuilt, documents, tokens, digest))
    return Kept(rebuilt.found, rebuilt)


def _reread(out: Path, done: Mended) -> None:
    store = LocalStore(out)
    for rebuilt, _, _, digest in done.shards:
        shard = open_shard(store, rebuilt.found)
        try:
            again = ids_digest(shard)
        finally:
            shard.close()
        if again != digest:
            raise DocumentError("DOC024", path=out, shard=rebuilt.found.name, expected=digest, found=again)
