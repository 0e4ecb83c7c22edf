"""Evaluation sets for the audit: files of items, never of a test split, each opened file logged with its SHA-256.

A file is refused where its declared split, its path, what a link points to, or a split that its Parquet metadata names is
``test``. The words are compared as parts of names (``test``, ``test-00000``, ``my_test``), never inside one (``latest``).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokenreel.errors import SourceError, require
from tokenreel.hashing import sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TEST = re.compile(r"(?<![a-z])tests?(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class EvalSet:
    """The items of one evaluation set."""

    name: str
    split: str
    items: list[str]
    files: tuple[tuple[str, str], ...]
    """(path as declared, SHA-256) of every file that was opened."""


def is_test(name: str) -> bool:
    """Return whether a name says that it is a test split.

    >>> [
    ...     is_test(name)
    ...     for name in ("test", "test-00000-of-1.parquet", "hellaswag_test.jsonl", "latest", "contest", "dev")
    ... ]
    [True, True, True, False, False, False]
    """
    return _TEST.search(name.replace("_", " ").replace("-", " ")) is not None


def load_eval(name: str, path: Path, split: str, fields: Sequence[str], shown: str | None = None) -> EvalSet:
    """Return the items of a file, or of every file of a folder: JSON lines, a JSON list, or Parquet.

    An item is its fields joined with a line feed; lists within a field are joined too. Raises `SourceError`: SRC040 for
    a test split, SRC041 for items without the fields; `StorageError` (STO001).
    """
    for said, what in ((split, "its split"), (_declared(shown or path.name), "its path")):
        if is_test(said):
            raise SourceError("SRC040", f"{what} is {said!r}", path=path)
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    for one in files:
        refuse_test(one, path)
    items, opened = [], []
    for one in files:
        if one.suffix == ".parquet":
            _refuse_metadata(one)
        label = shown or path.name
        opened.append((label if one == path else f"{label}/{one.relative_to(path).as_posix()}", sha256_file(one)))
        items += [_item(record, fields, one, number) for number, record in enumerate(_records(one))]
    return EvalSet(name, split, items, tuple(opened))


def refuse_test(path: Path, base: Path) -> None:
    """Raise `SourceError` (SRC040) where a path below its base, or what a link on the way leads to, says test."""
    inside = path.relative_to(base).as_posix() if path != base else path.name
    plain = Path(os.path.abspath(path))  # noqa: PTH100 (resolve() follows links)
    # Names that the path itself has are the reader's own folders; those that only a link brings are data.
    linked = "/".join(part for part in plain.resolve().parts if part not in plain.parts)
    for said, what in ((inside, "its path"), (linked, "what it links to")):
        if is_test(said):
            raise SourceError("SRC040", f"{what} is {said!r}", path=path)


def _declared(shown: str) -> str:
    """Return what of a declared path may name a split: all of a relative one, of an absolute one the last two names.

    >>> _declared("evals/test/a.jsonl"), _declared("/home/me/test-runs/evals/dev.jsonl")
    ('evals/test/a.jsonl', 'evals/dev.jsonl')
    """
    return "/".join(Path(shown).parts[-2:]) if Path(shown).is_absolute() else shown


def _refuse_metadata(path: Path) -> None:
    parquet = require("pyarrow.parquet", extra="build")
    with parquet.ParquetFile(path) as file:
        metadata = file.schema_arrow.metadata or {}
    for key, value in metadata.items():
        text = value.decode("utf-8", "replace")
        try:
            said = _splits(json.loads(text))
        except ValueError:
            said = [text] if b"split" in key.lower() else []
        for one in said:
            if is_test(one):
                raise SourceError("SRC040", f"its metadata names the split {one!r}", path=path)


def _splits(value: Any) -> list[str]:
    """Return what a JSON value says under keys that are called split."""
    if isinstance(value, dict):
        found = [str(one) for key, one in value.items() if "split" in str(key).lower() and isinstance(one, str)]
        return found + [text for one in value.values() for text in _splits(one)]
    if isinstance(value, list):
        return [text for one in value for text in _splits(one)]
    return []


def _records(path: Path) -> Iterator[Any]:
    if path.suffix == ".parquet":
        parquet = require("pyarrow.parquet", extra="build")
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=4096):
                yield from batch.to_pylist()
        return
    from tokenreel.build.blocks import InputBytes, decompressed

    data = b"".join(decompressed(InputBytes(path).blocks(), str(path)))
    if data.lstrip()[:1] == b"[":
        yield from msgspec.json.decode(data)
        return
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                yield msgspec.json.decode(line)
            except msgspec.DecodeError as error:
                raise SourceError("SRC003", str(error), path=path, line=number) from error


def _item(record: Any, fields: Sequence[str], path: Path, number: int) -> str:
    if not isinstance(record, dict):
        raise SourceError("SRC041", path=path, document=number, expected="an object", found=type(record).__name__)
    parts = []
    for name in fields:
        if name not in record:
            found = ", ".join(map(str, record))
            raise SourceError("SRC041", path=path, document=number, expected=f"a field {name}", found=found)
        parts += _texts(record[name])
    return "\n".join(parts)


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    return [str(value)]
