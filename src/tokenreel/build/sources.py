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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.build.blocks import InputBytes, decompressed
from tokenreel.build.jsonl import read_jsonl
from tokenreel.build.parquet import read_parquet
from tokenreel.build.plain_text import read_text
from tokenreel.build.records import Records, SourceShape
from tokenreel.config import SourceField
from tokenreel.errors import RecipeError, SourceError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """POSIX, relative to the recipe's folder; for an absolute pattern, relative to its fixed folder."""


def shape_of(table: SourceTable) -> SourceShape:
    """Return how a source's records are read."""
    by_field = isinstance(table.source, SourceField)
    return SourceShape(
        name=table.name,
        format=table.format,
        text=table.text,
        id=table.id,
        source_field=table.source.field if isinstance(table.source, SourceField) else None,
        source=table.name if by_field or table.source is None else str(table.source),
        separator=table.separator,
    )


def plan_inputs(recipe: Recipe, folder: str | os.PathLike[str], recipe_path: object = None) -> list[PlannedInput]:
    """Return the inputs of a recipe: sources in its order, the files of each in byte order of their path.

    A file that several patterns of one source name is one input. Raises `SourceError` (SRC014) for a pattern without
    a file, and `RecipeError` (RCP006, SRC015) for a format that cannot be told or lacks a field it needs.
    """
    planned = []
    for table in recipe.source:
        found: dict[str, PlannedInput] = {}
        for pattern in table.paths:
            matches = _match(pattern, Path(folder))
            if not matches:
                raise SourceError(
                    "SRC014",
                    f"source {table.name!r}",
                    path=recipe_path,
                    expected="at least one file",
                    found=pattern,
                    hint=f"ls {Path(folder) / pattern}",
                )
            for path, location in matches:
                found.setdefault(os.path.realpath(location), PlannedInput(settled_shape(table, path), location, path))
        planned += sorted(found.values(), key=lambda one: (os.fsencode(one.path), one.location))
    return planned


def _match(pattern: str, folder: Path) -> list[tuple[str, str]]:
    """Return (path as recorded, location) of the files that a pattern names."""
    base = folder
    if os.path.isabs(pattern):  # noqa: PTH117
        parts = Path(pattern).parts
        fixed = next((k for k, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
        base, pattern = Path(*parts[:fixed]), str(Path(*parts[fixed:]))
    if glob.has_magic(pattern) and not (base / pattern).is_file():
        found = glob.glob(pattern, root_dir=base, recursive=True)  # noqa: PTH207 (pathlib's ** is another)
        names = [name for name in found if (base / name).is_file()]
    else:
        # Named outright: a folder or a file that is not there must be an error with its name.
        names = [pattern] if (base / pattern).exists() else []
    if any((base / name).is_dir() for name in names):
        raise StorageError(
            "STO002",
            "a folder in place of a file",
            path=base / names[0],
            expected="a file or a pattern",
            hint=f"{pattern}/*.jsonl",
        )
    return [(Path(os.path.normpath(name)).as_posix(), str(base / name)) for name in names]


def settled_shape(table: SourceTable, path: str) -> SourceShape:
    """Return the source's shape with its format told for this file."""
    shape = shape_of(table)
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
    if kind == "text" and (shape.id is not None or shape.source_field is not None):
        raise RecipeError("RCP006", f"source {table.name!r}: plain text has no fields for id or source", path=path)
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
