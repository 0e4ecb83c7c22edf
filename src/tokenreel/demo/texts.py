"""Text that every machine has: the running Python's standard library and installed licence texts."""

from __future__ import annotations

import json
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.store import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator

LICENCE_FOLDERS = (Path("/usr/share/common-licenses"), Path("/usr/share/licenses"))
PER_FILE = 400_000
"""Characters of text per JSONL file: several input files, so several parts."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """One JSONL file of documents."""

    path: Path
    documents: int
    characters: int


def licence_texts() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of licence texts on this machine, in byte order of path."""
    python = Path(sysconfig.get_paths()["stdlib"])
    found = [path for folder in LICENCE_FOLDERS if folder.is_dir() for path in sorted(folder.rglob("*"))]
    found += [python / "LICENSE.txt"]
    for path in found:
        if path.is_file() and not path.is_symlink():
            text = _read(path)
            if text:
                yield path.name, text


def library_texts(limit: int) -> Iterator[tuple[str, str]]:
    """Yield (module path, source) of the standard library, in byte order, until `limit` characters were given."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    given = 0
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder).as_posix()
        if given >= limit or relative.startswith(("site-packages", "test/", "idlelib/", "lib2to3/")):
            continue
        text = _read(path)
        if text:
            given += len(text)
            yield relative, text


def write_texts(folder: Path, limit: int = 3_000_000) -> list[TextFile]:
    """Write the texts as ``library-N.jsonl`` and ``licences.jsonl`` with the fields id and text; returns the files."""
    files: list[TextFile] = []
    part: list[tuple[str, str]] = []
    for item in library_texts(limit):
        part.append(item)
        if sum(len(text) for _, text in part) >= PER_FILE:
            files.append(_write(folder / f"library-{len(files):02d}.jsonl", part))
            part = []
    if part:
        files.append(_write(folder / f"library-{len(files):02d}.jsonl", part))
    licences = list(licence_texts())
    if licences:
        files.append(_write(folder / "licences.jsonl", licences))
    return files


def _write(path: Path, documents: list[tuple[str, str]]) -> TextFile:
    with atomic_write(path) as file:
        for name, text in documents:
            file.write(json.dumps({"id": name, "text": text}, ensure_ascii=False).encode() + b"\n")
    return TextFile(path, len(documents), sum(len(text) for _, text in documents))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
