"""What verification finds: findings with codes, and what was not checked and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tokenreel.errors import StorageError, TokenreelError, codes, describe

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity = Literal["error", "warning", "information", "incomplete"]
KEPT = 20
"""Findings of one code that are kept whole; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that verification found, at the narrowest place it can prove.

    ``incomplete`` is a severity of its own: nothing is wrong, but something that belongs to a finished corpus is not
    there yet.

    >>> Finding("MAN040", "error", path="a.bin", expected="00", found="ff").line()
    "error MAN040 a.bin: a file's SHA-256 is not the recorded one (expected 00, found ff)"
    """

    code: str
    severity: Severity
    message: str = ""
    """Empty: the code's title."""
    path: str | None = None
    """Relative to the report's path."""
    offset: int | None = None
    """Byte in `path`."""
    shard: str | None = None
    document: int | None = None
    """Number within the shard, or within the file that `path` names."""
    expected: object = None
    found: object = None

    @property
    def text(self) -> str:
        """The message, or the code's title where there is none."""
        if self.message or self.code not in codes():
            return self.message
        return codes()[self.code].title

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form; fields that say nothing are left out."""
        out: dict[str, object] = {"code": self.code, "severity": self.severity, "message": self.text}
        for name in ("path", "offset", "shard", "document", "expected", "found"):
            value = getattr(self, name)
            if value is not None:
                out[name] = value if isinstance(value, str | int | float | bool | list | dict) else str(value)
        return out

    def line(self) -> str:
        """Return the one-line form for a terminal."""
        where: dict[str, str | int] = {}
        if self.path is not None:
            where["path"] = self.path
        if self.offset is not None:
            where["offset"] = self.offset
        # The shard is its files' path without suffix: said once.
        if self.shard is not None and not (self.path or "").startswith(self.shard):
            where["shard"] = self.shard
        if self.document is not None:
            where["document"] = self.document
        return f"{self.severity} {self.code} {describe(self.text, where, self.expected, self.found)}"


@dataclass(frozen=True, slots=True)
class NotChecked:
    """Something that could not be checked: never a finding, always said."""

    what: str
    why: str
    how: str = ""
    """What to do so that it is checked."""
    asked: bool = False
    """Whether the check was asked for by an option: then the report is incomplete (exit 4)."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {"what": self.what, "why": self.why, "how": self.how, "asked": self.asked}

    def line(self) -> str:
        """Return the one-line form for a terminal."""
        return f"not checked: {self.what}: {self.why}" + (f"; {self.how}" if self.how else "")


class Findings:
    """Collects findings: the first `KEPT` of each code and the number of all of them; not thread-safe.

    `select` and `ignore` are codes or beginnings of codes (``MAN``, ``TOK01``). Ignored findings are counted apart, so
    that a report says what was overruled; those not selected are left out.
    """

    def __init__(self, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> None:
        self.select = tuple(code.strip().upper() for code in select)
        self.ignore = tuple(code.strip().upper() for code in ignore)
        self.kept: list[Finding] = []
        self.ignored: dict[str, int] = {}
        self.not_checked: list[NotChecked] = []
        self._counts: dict[tuple[str, Severity], int] = {}
        self._kept: dict[str, int] = {}

    @property
    def counts(self) -> dict[str, int]:
        """All findings by code, kept or not."""
        out: dict[str, int] = {}
        for (code, _), count in self._counts.items():
            out[code] = out.get(code, 0) + count
        return out

    @property
    def severities(self) -> dict[Severity, int]:
        """All findings by severity, kept or not."""
        out: dict[Severity, int] = {}
        for (_, severity), count in self._counts.items():
            out[severity] = out.get(severity, 0) + count
        return out

    @property
    def total(self) -> int:
        """How many findings were made, those ignored included."""
        return sum(self._counts.values()) + sum(self.ignored.values())

    def wants(self, codes_of_rule: Iterable[str]) -> bool:
        """Return whether any of these codes, or codes that begin like this, would be reported."""
        return any(self._selected(code) or self._inside(code) for code in codes_of_rule)

    def _inside(self, family: str) -> bool:
        return any(one.startswith(family) for one in self.select)

    def _selected(self, code: str) -> bool:
        return not self.select or code.startswith(self.select)

    def add(self, finding: Finding, count: int = 1) -> None:
        """Add a finding that stands for `count` of its code."""
        if self._count(finding.code, finding.severity, count):
            self._keep(finding)

    def _count(self, code: str, severity: Severity, count: int) -> bool:
        """Count findings; returns whether they are reported: selected and not ignored."""
        if not self._selected(code):
            return False
        if self.ignore and code.startswith(self.ignore):
            self.ignored[code] = self.ignored.get(code, 0) + count
            return False
        self._counts[code, severity] = self._counts.get((code, severity), 0) + count
        return True

    def _keep(self, finding: Finding) -> None:
        if self._kept.get(finding.code, 0) < KEPT:
            self._kept[finding.code] = self._kept.get(finding.code, 0) + 1
            self.kept.append(finding)

    def error(self, code: str, message: str = "", **where: Any) -> None:
        """Add an error."""
        self.add(Finding(code, "error", message, **where))

    def warning(self, code: str, message: str = "", **where: Any) -> None:
        """Add a warning."""
        self.add(Finding(code, "warning", message, **where))

    def incomplete(self, code: str, message: str = "", **where: Any) -> None:
        """Add what a finished corpus has and this one does not."""
        self.add(Finding(code, "incomplete", message, **where))

    def skip(self, what: str, why: str, how: str = "", *, asked: bool = False) -> None:
        """Say that something could not be checked."""
        note = NotChecked(what, why, how, asked)
        if note not in self.not_checked:
            self.not_checked.append(note)

    def made(self, what: str) -> None:
        """Take back that something was not checked: another rule did it."""
        self.not_checked = [note for note in self.not_checked if note.what != what]

    def caught(self, error: TokenreelError, root: str, **where: Any) -> None:
        """Add what a reader raised; `where` fills places that the error does not name.

        Storage that refuses to be read (a full disk, no permission) is no property of the data and is raised on; a
        file that is shorter than it was, or not there any more, is.
        """
        if isinstance(error, StorageError) and error.code in ("STO002", "STO003"):
            raise error
        places = {key: value for key, value in error.where.items() if key in ("path", "offset", "shard", "document")}
        if "path" in places:
            places["path"] = str(places["path"]).removeprefix(root).lstrip("/")
        merged = {**where, **places}
        self.error(error.code, error.message, **merged, expected=error.expected, found=error.found)

    def merge(self, other: Findings) -> None:
        """Add everything another collector found, in its order."""
        reported = {code for (code, severity), n in other._counts.items() if self._count(code, severity, n)}
        for finding in other.kept:
            if finding.code in reported:
                self._keep(finding)
        for code, count in other.ignored.items():
            self.ignored[code] = self.ignored.get(code, 0) + count
        for note in other.not_checked:
            self.skip(note.what, note.why, note.how, asked=note.asked)
