"""Files of source code as documents, one a repository: which repositories, which files, in which order. Pure.

A repository counts where more than half of its bytes are of one language. Its files follow by class: setup and
configuration, ``__init__.py``, other sources, tests; within a class by path. Files of no class are left out. Source: the
HobbyLM long-context corpus; what its card leaves open is an option here, recorded with the build.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SETUP = (
    "setup.py", "setup.cfg", "pyproject.toml", "requirements*.txt", "Pipfile", "tox.ini", "MANIFEST.in",
    "environment.y*ml", "config*.py", "settings.py",
)  # fmt: skip
TEST_FOLDERS = ("test", "tests", "testing")
TEST_FILES = ("test_*.py", "*_test.py", "conftest.py")
MAJORITY = 0.5
_SPLIT = re.compile(r"/")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a repository."""

    path: str
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Grouping:
    """The choices that the card leaves open."""

    language: str = "Python"
    suffix: str = ".py"
    majority: float = MAJORITY
    """A repository needs more than this share of its bytes in the language."""
    separator: str = "\n"
    headers: bool = False
    """Whether a line ``# path`` stands before each file."""


def file_class(path: str, grouping: Grouping = Grouping()) -> int | None:
    """Return 0 setup and configuration, 1 ``__init__``, 2 other sources, 3 tests; None for a file that is left out.

    >>> [file_class(p) for p in ("setup.py", "a/__init__.py", "a/b.py", "tests/test_b.py", "README.md")]
    [0, 1, 2, 3, None]
    """
    *folders, name = _SPLIT.split(path)
    source = name.endswith(grouping.suffix)
    setup = any(fnmatchcase(name, one) for one in SETUP)
    if not source and not setup:
        return None
    if any(folder in TEST_FOLDERS for folder in folders) or any(fnmatchcase(name, one) for one in TEST_FILES):
        return 3 if source else None
    if setup:
        return 0
    return 1 if name == f"__init__{grouping.suffix}" else 2


def is_majority(files: Iterable[SourceFile], grouping: Grouping = Grouping()) -> bool:
    """Return whether more than the asked share of a repository's bytes is in the language.

    >>> is_majority([SourceFile("a.py", "Python", "xx"), SourceFile("b.c", "C", "x")])
    True
    """
    total = mine = 0
    for file in files:
        size = len(file.text.encode())
        total += size
        mine += size if file.language == grouping.language else 0
    return has_majority(mine, total, grouping)


def has_majority(mine: int, total: int, grouping: Grouping = Grouping()) -> bool:
    """Return whether `mine` bytes of `total` are more than the asked share.

    >>> has_majority(1, 2), has_majority(2, 3)
    (False, True)
    """
    return total > 0 and mine > grouping.majority * total


def in_order(files: Iterable[SourceFile], grouping: Grouping = Grouping()) -> list[SourceFile]:
    """Return the files of a repository that make its document, in order: by class, then bytewise by path."""
    classed = [(file_class(file.path, grouping), file.path.encode(), file) for file in files]
    kept = [(kind, path, file) for kind, path, file in classed if kind is not None]
    return [file for _, _, file in sorted(kept, key=lambda row: row[:2])]


def document_of(files: Sequence[SourceFile], grouping: Grouping = Grouping()) -> str:
    """Return the text of a repository: its files in the order given, joined.

    >>> document_of([SourceFile("a.py", "Python", "x"), SourceFile("b.py", "Python", "y")])
    'x\\ny'
    """
    texts = (f"# {file.path}\n{file.text}" if grouping.headers else file.text for file in files)
    return grouping.separator.join(texts)
