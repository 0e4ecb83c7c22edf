"""The outcome of a verification: plain data, its status, and the form that people read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tokenreel.errors import EXIT_DATA, EXIT_INCOMPLETE, EXIT_OK
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tokenreel.verify.finding import Finding, NotChecked, Severity

SHOWN = 3
"""Findings of one code that people are shown; the JSON form has all that were kept."""
_WORDS: dict[Severity, tuple[str, str]] = {
    "error": ("error", "errors"),
    "warning": ("warning", "warnings"),
    "incomplete": ("thing missing", "things missing"),
    "information": ("note", "notes"),
}


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of `verify`; plain data."""

    path: str
    level: str
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    """All findings by code, kept or not."""
    severities: dict[Severity, int]
    not_checked: tuple[NotChecked, ...]
    checked: tuple[str, ...]
    """What was checked, in words: only what there was at least one of."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What is true and no finding: shards, documents, tokens, the validation share, bytes hashed."""
    ignored: dict[str, int] = field(default_factory=dict)
    strict: bool = False
    failed: tuple[str, ...] = ()
    """Those of `checked` that gave findings."""
    selected: tuple[str, ...] = ()
    """The codes or beginnings of codes that were asked for; empty: all."""
    left_out: int = 0
    """Checks that were not made because of `selected`."""
    hints: tuple[str, ...] = ()
    """What the findings together look like."""

    @property
    def status(self) -> Literal["ok", "broken", "incomplete"]:
        """``broken`` with an error (or, if strict, a warning); ``incomplete`` if not finished or not checkable."""
        if self.severities.get("error") or (self.strict and self.severities.get("warning")):
            return "broken"
        if self.severities.get("incomplete") or any(note.asked for note in self.not_checked):
            return "incomplete"
        return "ok"

    @property
    def exit_status(self) -> int:
        """0 fine, 1 broken, 4 incomplete."""
        return {"ok": EXIT_OK, "broken": EXIT_DATA, "incomplete": EXIT_INCOMPLETE}[self.status]

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "path": self.path,
            "level": self.level,
            "status": self.status,
            "exit": self.exit_status,
            "counts": dict(self.counts),
            "findings": [finding.as_dict() for finding in self.findings],
            "not_checked": [note.as_dict() for note in self.not_checked],
            "checked": list(self.checked),
            "facts": self.facts,
            "ignored": dict(self.ignored),
            "failed": list(self.failed),
            "selected": list(self.selected),
            "left_out": self.left_out,
            "hints": list(self.hints),
        }

    def lines(self, *, verbose: bool = False) -> list[str]:
        """Return the report for people: the verdict in one line, findings, facts, what was not checked.

        With `verbose` every check that was made has its line, else they are counted.
        """
        out = [self.verdict()]
        out += finding_lines(self.findings, self.counts)
        out += [f"  {hint}" for hint in self.hints]
        out += self._fact_lines()
        out += self._check_lines(verbose=verbose)
        out += [note.line() for note in self.not_checked]
        out += [f"ignored: {code} ({count:,})" for code, count in self.ignored.items()]
        if self.counts:
            out.append(f"  try: tokenreel explain {next(iter(self.counts))}")
        return out

    def annotations(self) -> list[str]:
        """Return the findings as GitHub's workflow commands, which show them beside the files of a change."""
        words = {"error": "error", "warning": "warning", "incomplete": "warning", "information": "notice"}
        out = []
        for finding in self.findings:
            where = f"{self.path.rstrip('/')}/{finding.path}" if finding.path else self.path
            text = finding.line().partition(" ")[2]
            out.append(
                f"::{words[finding.severity]} file={_property(where)},title={_property(finding.code)}::{_data(text)}"
            )
        return out

    def verdict(self) -> str:
        """Return the one line that says it all."""
        said = f"{self.path}: {self.status}"
        if self.selected:
            only = f" for {', '.join(self.selected)} only" if self.status == "ok" else ""
            said += f"{only} ({counted(self.left_out, 'check')} left out)"
        problems = [counted(self.severities[name], *_WORDS[name]) for name in _WORDS if self.severities.get(name)]
        unmade = sum(note.asked for note in self.not_checked)
        if unmade:
            problems.append(counted(unmade, "check could not be made", "checks could not be made"))
        return f"{said} - {'; '.join(part for part in (', '.join(problems), self._size()) if part)}"

    def _size(self) -> str:
        counts = _counts(self.facts)
        read = self.facts.get("documents_read", 0)
        unreadable = bool(self.facts.get("unreadable_shards"))
        if self.level == "full" and self.facts.get("bytes_hashed"):
            how = f"every byte {'that can be ' if unreadable else ''}read"
        elif read:
            whole = read == self.facts.get("documents")
            some = counted(read, "document") if not whole else "every document"
            how = f"headers, tables and {some} {'that can be ' if whole and unreadable else ''}read"
        else:
            how = "headers and tables read" if self.facts.get("shards") else ""
        return ", ".join(part for part in (counts, how) if part)

    def _fact_lines(self) -> list[str]:
        out = [f"  {name}: {_counts(row)}" for name, row in self.facts.get("splits", {}).items()]
        if "validation_share_of_documents" in self.facts:
            out.append(
                f"  validation: {self.facts['validation_share_of_documents']:.4%} of documents, "
                f"{self.facts.get('validation_share_of_tokens', 0):.4%} of tokens"
            )
        return out

    def _check_lines(self, *, verbose: bool) -> list[str]:
        passed = [what for what in self.checked if what not in self.failed]
        if verbose:
            return [f"passed: {what}" for what in passed] + [f"failed: {what}" for what in self.failed]
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        return [f"{counted(len(passed), 'check')} passed{failed} (-v lists them)"] if self.checked else []


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _counts(facts: dict[str, Any]) -> str:
    return ", ".join(counted(facts[name], name[:-1]) for name in ("shards", "documents", "tokens") if name in facts)


def finding_lines(findings: Iterable[Finding], counts: Mapping[str, int]) -> list[str]:
    """Return a line for each of the first findings of every code, and how many more of it there are."""
    found = list(findings)
    out, shown = [], dict.fromkeys(counts, 0)
    last = {finding.code: number for number, finding in enumerate(found)}
    for number, finding in enumerate(found):
        code = finding.code
        if shown[code] < SHOWN:
            shown[code] += 1
            out.append(finding.line())
        if number == last[code] and counts[code] > shown[code]:
            out.append(f"  and {counts[code] - shown[code]:,} more {code}")
    return out
