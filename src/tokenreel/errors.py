"""Every error tokenreel raises, and the one table of codes shared by errors and findings.

The tree, with the builtin each class also is and the exit status it ends a command with::

    TokenreelError
    ├── UsageError        ValueError     2   an argument or option
    │   └── RecipeError                  2   a recipe or a run file
    ├── DataError         ValueError     1   the data is wrong
    │   ├── FormatError                      bytes of a shard
    │   ├── SourceError                      a record of a source
    │   ├── TokenError                       ids and boundaries
    │   ├── DocumentError                    documents of a corpus
    │   ├── ManifestError                    manifests and receipts
    │   ├── SplitError                       splits
    │   ├── TokenizerError                   tokenizers and their engines
    │   ├── OrderError                       orders and spans
    │   ├── StateError                       states and ledgers of feeds
    │   └── ReplayError                      replay indices and traces
    ├── StorageError      OSError        3   could not read or write
    ├── IncompleteError   RuntimeError   4   nothing wrong, not finished
    └── MissingExtra      ImportError    2   an optional dependency is not installed

A code (``MEG004``) never changes meaning and is never used twice. ``codes.toml`` beside this file is the table;
a code whose ``exit`` differs from its class's says so there.
"""

from __future__ import annotations

import importlib
import math
import shlex
import tomllib
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

EXIT_OK = 0
EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_STORAGE = 3
EXIT_INCOMPLETE = 4
EXIT_BUG = 70
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Code:
    """One row of the table of codes."""

    code: str
    title: str
    meaning: str
    why: str
    mend: str
    exit: int | None = None
    """Exit status when it differs from the error class's."""


@cache
def codes() -> dict[str, Code]:
    """Return the whole table, by code, in the order of the file. Cost: one small file, read once."""
    table = tomllib.loads(Path(__file__).with_name("codes.toml").read_text("utf-8"))
    return {code: Code(code, **row) for code, row in table.items()}


def explain(code: str) -> Code:
    """Return what a code means, why it matters and how to mend it.

    Raises `UsageError` (USE001) for a code that is not in the table, naming the nearest one.

    >>> explain("meg001").code
    'MEG001'
    """
    table = codes()
    wanted = code.strip().upper()
    if wanted in _WORDS:
        return _WORDS[wanted]
    if wanted not in table:
        near = nearest(wanted, table)
        raise UsageError(
            "USE001",
            f"no such code: {code}",
            expected="a code of the table",
            found=code,
            hint=f"tokenreel explain {near}" if near else "tokenreel explain --list",
        )
    return table[wanted]


_WORDS = {
    row.code.upper(): row
    for row in (
        Code(
            "bug",
            "a bug in tokenreel",
            "The program came to a place where it should never be; exit status 70.",
            "What it was doing is not done. What was finished before stays as it is.",
            "Please report the lines printed above the message, and the command.",
        ),
        Code(
            "interrupted",
            "stopped by a signal",
            "Ctrl-C (exit status 130) or SIGTERM (143) stopped the command.",
            "What it was doing is not done; nothing half-written has a final name.",
            "Run the same command again: a build goes on where it was.",
        ),
    )
}
"""What ``--json`` prints as a code where none of the table fits."""


def nearest(word: str, known: Iterable[object]) -> str | None:
    """Return the known word closest to `word`, or None when nothing is close; for typo hints.

    >>> nearest("sufix", ["prefix", "suffix"])
    'suffix'
    """
    from difflib import get_close_matches

    found = get_close_matches(word, [str(k) for k in known], n=1, cutoff=0.5)
    return found[0] if found else None


class TokenreelError(Exception):
    """An error with a stable code, the place it happened, what was expected and what was found."""

    default_exit: ClassVar[int] = EXIT_DATA

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        path: object = None,
        offset: int | None = None,
        shard: str | None = None,
        document: int | str | None = None,
        line: int | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        self.code = code
        self.message = message
        self.expected = expected
        self.found = found
        self.hint = None if hint is None else _quoted(hint, path)
        places: dict[str, object] = {
            "path": None if path is None else str(path),
            "offset": offset,
            "shard": shard,
            "document": document,
            "line": line,
        }
        # numpy's integers would not print as JSON.
        self.where: dict[str, str | int] = {
            k: int(v) if isinstance(v, Integral) else str(v) for k, v in places.items() if v is not None
        }
        super().__init__(code, message)

    def __reduce__(self) -> tuple[object, ...]:
        # A worker process hands its error to its parent: keep every field, not only the args, and nothing that cannot
        # travel (a view of a map, an open file).
        facts = _plain(self.expected), _plain(self.found)
        return _rebuild, (type(self), self.code, self.message, self.where, *facts, self.hint)

    @property
    def exit_status(self) -> int:
        """The status a command that fails with this error exits with."""
        row = codes().get(self.code)
        return self.default_exit if row is None or row.exit is None else row.exit

    @property
    def title(self) -> str:
        """The code's one-line title from the table."""
        row = codes().get(self.code)
        return row.title if row else ""

    def __str__(self) -> str:
        return f"{self.code} {describe(self.message or self.title, self.where, self.expected, self.found, self.hint)}"

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form printed under ``error`` by every command's ``--json``: what `json.dumps` always takes."""
        out: dict[str, object] = {"code": self.code, "message": self.message or self.title, "where": dict(self.where)}
        if self.expected is not None:
            out["expected"] = _plain(self.expected)
        if self.found is not None:
            out["found"] = _plain(self.found)
        out["hint"] = self.hint or f"tokenreel explain {self.code}"
        return out


def describe(
    message: str, where: dict[str, str | int], expected: object = None, found: object = None, hint: str | None = None
) -> str:
    """Return the human form of an error or a finding: place, message, expected, found, one command that helps.

    >>> describe("length is negative", {"path": "a.idx", "offset": 34}, ">= 0", -1)
    'a.idx byte 34: length is negative (expected >= 0, found -1)'
    """
    parts = []
    if "path" in where:
        parts.append(str(where["path"]))
    parts += [f"{label} {where[key]}" for key, label in _LABELS if key in where]
    place = " ".join(parts)
    text = f"{place}: {message}" if place else message
    facts = [f"{name} {value}" for name, value in (("expected", expected), ("found", found)) if value is not None]
    if facts:
        text += f" ({', '.join(facts)})"
    return f"{text}\n  try: {hint}" if hint else text


_LABELS = (("line", "line"), ("offset", "byte"), ("shard", "shard"), ("document", "document"))


def _quoted(hint: str, path: object) -> str:
    """Return a command with `path`, or a folder above it, quoted where the shell would take it apart."""
    text = "" if path is None else str(path)
    while text.strip("/"):
        quoted = shlex.quote(text)
        if quoted in hint and quoted != text:
            return hint
        if quoted != text and text in hint:
            return hint.replace(text, quoted)
        text = text.rpartition("/")[0]
    return hint


def _plain(value: object) -> object:
    if value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(value)


def _rebuild(
    cls: type[TokenreelError],
    code: str,
    message: str,
    where: dict[str, str | int],
    expected: object,
    found: object,
    hint: str | None,
) -> TokenreelError:
    return cls(code, message, expected=expected, found=found, hint=hint, **where)  # type: ignore[arg-type]


class UsageError(TokenreelError, ValueError):
    """An argument, option or combination of them cannot be right."""

    default_exit = EXIT_USAGE


class RecipeError(UsageError):
    """A recipe or run file cannot be read as one."""


class DataError(TokenreelError, ValueError):
    """The data is wrong."""


class FormatError(DataError):
    """The bytes of a shard are not what its format demands."""


class SourceError(DataError):
    """A record of a source cannot become a document."""


class TokenError(DataError):
    """Token ids, or the boundaries declared over them, are wrong."""


class DocumentError(DataError, IndexError):
    """A document does not exist, or a document-level operation cannot be done."""


class ManifestError(DataError):
    """A manifest, a receipt or another sidecar is wrong, or disagrees with the files it names."""


class SplitError(DataError):
    """A split is missing, needed, or not what its rule gives."""


class TokenizerError(DataError):
    """A tokenizer cannot be loaded or does not do what was declared."""


class OrderError(DataError):
    """An order, its parameters or a position in it cannot be right."""


class StateError(DataError):
    """A feed's state or ledger cannot be read, or does not fit the feed."""


class ReplayError(DataError):
    """A replay index, or what is joined to one, is wrong."""


class StorageError(TokenreelError, OSError):
    """Something could not be read or written."""

    default_exit = EXIT_STORAGE


class IncompleteError(TokenreelError, RuntimeError):
    """Nothing is wrong, but it is not finished."""

    default_exit = EXIT_INCOMPLETE


class MissingExtra(TokenreelError, ImportError):
    """An optional dependency is not installed."""

    default_exit = EXIT_USAGE


def require(module: str, *, extra: str) -> ModuleType:
    """Import and return an optional module, or raise `MissingExtra` (USE002) that names the extra to install.

    >>> require("json", extra="build").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            "USE002",
            f"{module} is not installed",
            expected=f"the extra [{extra}]",
            found=str(error),
            hint=f"pip install '.[{extra}]' in a clone; elsewhere pip install 'tokenreel[{extra}]'",
        ) from error
