"""Where a conversion, a merge or a repair may write: apart from what it reads, and in no corpus that is there already."""

from __future__ import annotations

import glob
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.convert.journal import FOLDER, PLAN, RECORD
from tokenreel.corpus.members import of_sets
from tokenreel.corpus.opening import COMPLETE, MANIFEST, MIX_COMPLETE, MIX_CONFIG, RUN_CONFIG
from tokenreel.errors import DocumentError, UsageError
from tokenreel.formats.recognising import GROUPS
from tokenreel.verify.left_out import INDEXED

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tokenreel.corpus.corpus import Corpus

RECORDS = (RUN_CONFIG, COMPLETE, MANIFEST, MIX_CONFIG, MIX_COMPLETE, RECORD, f"{FOLDER}/{PLAN}")
"""A folder with one of these is a corpus that says which files are its own."""
TWICE, INCOMPLETE = "USE018", "DOC014"


def refuse_place(
    root: Path,
    sources: Sequence[str | os.PathLike[str]],
    *,
    command: str = "convert",
    empty: bool = False,
    beside: bool = False,
) -> None:
    """Raise `UsageError` where `root` is no place for a new folder.

    USE005: it is one of the sources, or lies in one, above one, or, with `beside`, in the folder that holds the one shard that a
    source is, which would then be a corpus with a second one in it. USE011: it is a file, or, where it must be `empty`, a folder with something in it.
    USE012: it lies in a corpus that records its files.
    """
    # Not resolve(), to which links in a circle are an error of its own.
    place = Path(os.path.realpath(root))
    above = [one for one in (_number(path) for path in (place, *place.parents)) if one is not None]
    mine = _number(place)
    for source in sources:
        for folder in _folders(Path(source)):
            number = _number(folder)
            # By their numbers, as names may differ in case only, or lead to one folder from two.
            inside = (
                number is not None and number in above and (beside or not _is_shard(Path(source)) or number == mine)
            )
            around = mine is not None and mine in [_number(path) for path in folder.parents]
            if inside or around:
                raise UsageError(
                    "USE005",
                    "" if place == folder else _said(Path(source), inside=inside),
                    path=root,
                    expected=f"a new folder apart from {folder}, such as {_beside(folder, place)}",
                    hint=f"tokenreel {command} -h",
                )
    refuse_records(place, root, command)
    if os.path.lexists(root) and not root.is_dir():
        raise UsageError("USE011", "it is there, and no folder", path=root, hint=f"ls -ld {root}")
    if empty and root.is_dir() and any(root.iterdir()):
        raise UsageError("USE011", path=root, hint=f"ls -l {root}")


def has_neighbours(source: Path) -> bool:
    """Return whether a source is one shard, and another one of its kind is in its folder, or where a link leads."""
    return _is_shard(source) and any(_others(path) for path in {source, Path(os.path.realpath(source))})


def _others(source: Path) -> bool:
    stem = source.name.partition(".")[0]
    kinds = (
        {source.suffix} if source.is_file() else {path.suffix for path in source.parent.glob(f"{glob.escape(stem)}.*")}
    )
    seen = [path for path in source.parent.iterdir() if not path.name.startswith(".")]
    return any(path.suffix in kinds and path.name.partition(".")[0] != stem for path in seen)


def _is_shard(source: Path) -> bool:
    """Return whether a source is named by its file, or by the name of its pair of files; a split is named by its folder."""
    return not source.is_dir() and not (source.parent / "shards" / source.name).is_dir()


def refuse_records(place: Path, shown: Path, command: str) -> None:
    """Raise `UsageError` (USE012) where a folder above `place` is a corpus that records its files."""
    for folder in place.parents:
        for one in RECORDS:
            if (folder / one).exists():
                raise UsageError(
                    "USE012",
                    path=shown,
                    expected=f"a place outside {folder}",
                    found=one,
                    hint=f"tokenreel {command} -h",
                )


def refuse_twice(corpora: Sequence[Corpus], accept: Collection[str] = ()) -> None:
    """Raise `UsageError` (USE018) where two sources share a file, under whatever name: its documents would be there twice."""
    if TWICE in accept:
        return
    owner: dict[str, int] = {}
    for number, corpus in enumerate(corpora):
        for file in sorted({file for entry in _entries(corpus) for file in entry}):
            there = os.path.realpath(Path(corpus.store.root) / file)
            first = owner.setdefault(there, number)
            if first != number:
                raise UsageError(
                    TWICE,
                    path=there,
                    expected="every shard in one source",
                    found=f"sources {first + 1} ({corpora[first].path}) and {number + 1} ({corpus.path})",
                    hint="leave one of them out; where it is meant so, --accept USE018",
                )


def refuse_incomplete(corpora: Sequence[Corpus], accept: Collection[str] = ()) -> None:
    """Raise `DocumentError` (DOC014) where a folder lacks members of a set that its names say, and no manifest says otherwise."""
    for corpus in corpora:
        if INCOMPLETE in accept or corpus.manifest is not None or not Path(corpus.path).is_dir():
            continue
        parts = corpus.split_entries.values() if corpus.splits else [corpus.entries]
        names = [entry.name for part in parts for entry in part if not entry.format.startswith(INDEXED)]
        for one in of_sets(names):
            numbers = f"missing: {one.numbers}" if one.missing else f"too many: {', '.join(one.surplus[:3])}"
            raise DocumentError(
                INCOMPLETE,
                f"the set {one.name}; {numbers}",
                path=corpus.path,
                shard=one.first,
                expected=f"{one.said} members",
                found=one.there,
                hint="fetch them; where it is meant so, --accept DOC014",
            )


def _entries(corpus: Corpus) -> list[tuple[str, ...]]:
    parts = corpus.split_entries.values() if corpus.splits else [corpus.entries]
    return [entry.files for part in parts for entry in part]


def _folders(source: Path) -> list[Path]:
    """Return the folders that a source makes a corpus of: itself, or those that hold the one shard, or the split, that is named.

    None for what is not there: opening it says so.
    """
    if source.is_dir():
        return [Path(os.path.realpath(source))]
    parent = source.parent
    if source.is_file():
        real = Path(os.path.realpath(source))
        return list(dict.fromkeys([Path(os.path.realpath(parent)), real.parent, real]))
    stem = any((parent / f"{source.name}{suffix}").is_file() for suffix in {s for group in GROUPS for s in group})
    return [Path(os.path.realpath(parent))] if stem or (parent / "shards" / source.name).is_dir() else []


def _said(source: Path, *, inside: bool) -> str:
    if not inside:
        return "a source lies in the destination"
    if source.is_dir():
        return "the destination lies in a source"
    return "the destination lies in the folder of a source's shards, and would be read with them"


def _beside(folder: Path, place: Path) -> str:
    name = place.name if place.name != folder.name else f"{place.name}-new"
    return shlex.quote(str(folder.parent / name))


def _number(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
