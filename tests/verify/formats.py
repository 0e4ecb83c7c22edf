"""One small corpus in every writable format, made once: for tests of what readers and rules make of damage."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.convert.test_pairs import Case, make
from tokenreel.convert import convert
from tokenreel.testing.corruptors import RECORDS

ONE = Case(
    "one",
    "uint16",
    "suffix=2",
    (((5, 6, 2), (700, 2), (30, 31, 32, 2)), ((8, 2), (99, 2)), ((9, 9, 9, 2), (4, 2), (1000, 4000, 2))),
    {},
)
OTHER = Case(
    "other",
    "int32",
    "suffix=2",
    (((5, 7, 2), (701, 2), (30, 30, 2)), ((8, 2), (99, 2), (7, 7, 2)), ((9, 8, 9, 2), (5, 2), (1000, 2))),
    {},
)
_MADE: dict[str, dict[str, bytes]] = {}


def made(name: str, tmp_path_factory: pytest.TempPathFactory, case: Case = ONE) -> dict[str, bytes]:
    """Return the files of a converted corpus, records included."""
    key = f"{name} {case.name}"
    if key not in _MADE:
        folder = tmp_path_factory.mktemp("made")
        convert(make(folder / "in", case), folder / "out", to=name, boundary=case.boundary, workers=1)
        _MADE[key] = files_below(folder / "out")
    return _MADE[key]


def files_below(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def bare(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files without our records."""
    return {path: data for path, data in files.items() if path not in RECORDS}


@cache
def dtype_of(name: str) -> str | None:
    """Return the dtype that has to be given for a format without a header."""
    return name.removeprefix("raw-") if name.startswith("raw-") else None
