"""Sources: which files a recipe means, in what order, and the one stream of records that comes out of each.

| format | told by | a document is |
|---|---|---|
| jsonl | ``.jsonl``, ``.ndjson``, ``.json`` | an object on one line |
| parquet | ``.parquet``, ``.pq`` | a row |
| text | ``.txt``, ``.text``, ``.md``, ``.rst`` | the file, or what stands between separators |

A trailing ``.gz``, ``.zst`` or ``.xz`` is looked through. What the bytes are compressed with is told by their content.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.build.blocks import InputBytes, decompressed
from tokenreel.build.jsonl import read_jsonl
from tokenreel.build.parquet import read_parquet
from tokenreel.build.plain_text import read_text
from tokenreel.build.records import Records, SourceShape
from tokenreel.config import SourceField
from tokenreel.errors import RecipeError, SourceError
from tokenreel.store.atomic import read_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokenreel.config.recipe import Recipe, SourceTable

_SUFFIXES = {
    "jsonl": ("jsonl", "ndjson", "json"),
    "parquet": ("parquet", "pq"),
    "text": ("txt", "text", "md", "rst"),
}
_FORMATS = {suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes}
_COMPRESSED = re.compile(r"\.(gz|zst|xz)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlannedInput:
    """One input file: where it lies here, and what the output calls it."""

    shape: SourceShape
    location: str
    """Path on this machine."""
    path: str
    """POSIX, relative to the recipe's folder; outside of it, for absolute patterns: to the deepest folder of them all."""


def shape_of(table: SourceTable, extra: tuple[str, ...] = ()) -> SourceShape:
    """Return how a source's records are read, with more fields of theirs."""
    by_field = isinstance(table.source, SourceField)
    return SourceShape(
        name=table.name,
        format=table.format,
        text=table.text,
        id=table.id,
        source_field=table.source.field if isinstance(table.source, SourceField) else None,
        source=table.name if by_field or table.source is None else str(table.source),
        separator=table.separator,
        extra=extra,
    )


def plan_inputs(recipe: Recipe, folder: str | os.PathLike[str], recipe_path: object = None) -> list[PlannedInput]:
    """Return the inputs of a recipe: sources in its order, the files of each in byte order of their path.

    A path that several patterns of one source name is one input; two paths are two, also where they are links to one
    file. Raises `SourceError` (SRC014 a pattern without a file, SRC018 no file but a folder or a device, SRC019 a name
    that is not UTF-8, SRC021 two files that would be recorded under one path), `RecipeError` (RCP006, SRC015) for a
    format that cannot be told or lacks a field it needs, and `StorageError` (STO001, STO002).
    """
    return plan_sources(recipe.source, folder, recipe_path)


def plan_sources(
    tables: Sequence[SourceTable],
    folder: str | os.PathLike[str],
    recipe_path: object = None,
    *,
    patterns: Sequence[str] | None = None,
    extra: tuple[str, ...] = (),
) -> list[PlannedInput]:
    """Return the inputs of these sources, as `plan_inputs` does; `patterns` are those of all sources of the recipe."""
    base = Path(folder)
    all_patterns = [pattern for table in tables for pattern in table.paths] if patterns is None else patterns
    shared = _shared_folder(all_patterns, base)
    planned: list[PlannedInput] = []
    recorded: dict[str, str] = {}
    for table in tables:
        found: dict[str, PlannedInput] = {}
        for pattern in table.paths:
            locations = _match(pattern, base)
            if not locations:
                raise SourceError(
                    "SRC014",
                    f"source {table.name!r}",
                    path=recipe_path,
                    expected="at least one file",
                    found=pattern,
                    hint=f"ls {base / pattern}",
                )
            for location in locations:
                path = _recorded_path(location, pattern, base, shared)
                _check_name(path, location)
                real = os.path.realpath(location)
                if recorded.setdefault(path, real) != real:
                    raise SourceError(
                        "SRC021",
                        path=path,
                        expected="one file",
                        found=f"{recorded[path]} and {real}",
                        hint=f"ls {base}",
                    )
                found.setdefault(path, PlannedInput(settled_shape(table, path, extra), location, path))
        planned += sorted(found.values(), key=lambda one: os.fsencode(one.path))
    return planned


def in_two_sources(planned: Iterable[PlannedInput]) -> list[tuple[PlannedInput, PlannedInput]]:
    """Return, for every file that an earlier source names as well, the earlier input and the later one."""
    first: dict[str, PlannedInput] = {}
    pairs = []
    for one in planned:
        earlier = first.setdefault(os.path.realpath(one.location), one)
        if earlier.shape.name != one.shape.name:
            pairs.append((earlier, one))
    return pairs


def _match(pattern: str, folder: Path) -> list[str]:
    """Return the files that a pattern names; what it names outright must be there."""
    at = folder / pattern
    if not glob.has_magic(pattern) or os.path.lexists(at):
        _check_file(at, pattern)
        return [str(at)]
    # Only the recipe may hold wildcards: a folder above it can be called anything.
    whole = os.path.join(glob.escape(str(folder)), pattern)  # noqa: PTH118 (an absolute pattern stands alone)
    _check_listed(Path(whole))
    found = [name for name in glob.glob(whole, recursive=True) if not os.path.isdir(name)]  # noqa: PTH112, PTH207
    for name in found:
        _check_file(Path(name), pattern)
    return found


def _check_file(path: Path, pattern: str) -> None:
    """Raise `StorageError` (STO001: also a link to nothing, STO002) or `SourceError` (SRC018) unless it is a file."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise read_error(path, error) from error
    if not stat.S_ISREG(mode):
        found = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        hint = f"{pattern.rstrip('/')}/*.jsonl" if stat.S_ISDIR(mode) else f"ls -l {path}"
        raise SourceError("SRC018", path=path, expected="a file or a pattern", found=found, hint=hint)


def _check_listed(pattern: Path) -> None:
    """Raise `StorageError` (STO002) for a folder that the pattern looks into and that cannot be listed.

    `glob` passes over such folders, and what is in them would be missing from the corpus.
    """
    parts = pattern.parts
    for k, part in enumerate(parts):
        if not glob.has_magic(part):
            continue
        above = str(Path(*parts[:k]))
        looked = [above, *([os.path.join(above, "**", "")] if part == "**" else [])]  # noqa: PTH118 (the slash at the end)
        for found in looked:
            for folder in glob.glob(found, recursive=True) if glob.has_magic(found) else [found]:  # noqa: PTH207
                if os.path.isdir(folder):  # noqa: PTH112
                    try:
                        os.listdir(folder)  # noqa: PTH208 (an error now, not at the first entry)
                    except OSError as error:
                        raise read_error(folder, error) from error


def _fixed_folder(pattern: str) -> str:
    """Return the folder of an absolute pattern that comes before its first wildcard."""
    parts = Path(pattern).parts
    return str(Path(*parts[: next((k for k, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)]))


def _inside(folder: str, base: Path) -> str | None:
    """Return `folder` relative to the recipe's, whatever links lead there; None where it is not below."""
    relative = os.path.relpath(os.path.realpath(folder), os.path.realpath(base))
    return None if Path(relative).parts[:1] == ("..",) else relative


def _shared_folder(patterns: Iterable[str], base: Path) -> str:
    """Return the deepest folder of all absolute patterns that lead out of the recipe's folder."""
    outside = [_fixed_folder(one) for one in patterns if os.path.isabs(one)]  # noqa: PTH117
    outside = [os.path.normpath(one) for one in outside if _inside(one, base) is None]
    return os.path.commonpath(outside) if outside else ""


def _recorded_path(location: str, pattern: str, base: Path, shared: str) -> str:
    if not os.path.isabs(pattern):  # noqa: PTH117
        return Path(os.path.relpath(os.path.normpath(location), os.path.normpath(base))).as_posix()
    fixed = _fixed_folder(pattern)
    inside = _inside(fixed, base)
    if inside is None:
        return Path(os.path.relpath(os.path.normpath(location), shared)).as_posix()
    return Path(os.path.normpath(os.path.join(inside, os.path.relpath(location, fixed)))).as_posix()  # noqa: PTH118


def _check_name(path: str, location: str) -> None:
    try:
        f"{path}{Path(location).absolute()}".encode()
    except UnicodeEncodeError:
        raise SourceError(
            "SRC019",
            path=os.fsencode(location).decode("utf-8", "backslashreplace"),
            expected="a name in UTF-8",
            found=str(os.fsencode(path)),
        ) from None


def settled_shape(table: SourceTable, path: str, extra: tuple[str, ...] = ()) -> SourceShape:
    """Return the source's shape with its format told for this file."""
    shape = shape_of(table, extra)
    kind = shape.format
    if kind == "auto":
        bare = _COMPRESSED.sub("", path)
        kind = _FORMATS.get(bare.rpartition(".")[2].lower() if "." in bare else "", "")
        if not kind:
            raise RecipeError(
                "SRC015",
                f"source {table.name!r}",
                path=path,
                expected="a name ending in ." + ", .".join(_FORMATS),
                found=path,
                hint='set format = "jsonl", "parquet" or "text" in [[source]]',
            )
    if kind == "text" and (shape.id is not None or shape.source_field is not None or extra):
        fields = ", ".join(extra) or "id or source"
        raise RecipeError("RCP006", f"source {table.name!r}: plain text has no fields for {fields}", path=path)
    if kind != "text" and shape.separator is not None:
        raise RecipeError("RCP006", f"source {table.name!r}: separator goes with plain text", path=path)
    return SourceShape(
        name=shape.name,
        format=kind,
        text=shape.text,
        id=shape.id,
        source_field=shape.source_field,
        source=shape.source,
        separator=shape.separator,
        extra=shape.extra,
    )


def read_records(file: InputBytes, shape: SourceShape, chunk_bytes: int) -> Iterator[Records]:
    """Yield the records of one input in chunks of about `chunk_bytes`.

    Memory is bounded by a few chunks and the longest document. When it is exhausted, all bytes of `file` were read and
    hashed; Parquet files are hashed after reading.
    """
    if shape.format == "parquet":
        file.check_stamp()
        if os.path.getsize(file.path):  # noqa: PTH202
            yield from read_parquet(file.path, shape, chunk_bytes)
        file.drain()
        return
    raw = file.blocks()
    reader = read_text if shape.format == "text" else read_jsonl
    yield from reader(decompressed(raw, file.path), file.path, shape, chunk_bytes)
    for _ in raw:  # nothing is left unless a reader stopped early
        pass
