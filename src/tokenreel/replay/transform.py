"""From an upstream record to texts: the text field, someone's entry point, or code in a checkout of theirs.

A transform is anything with ``run(record) -> texts``. An installed package offers one under the entry point group
``tokenreel.transforms``, named as `transform_module`. A checkout is used through a child process there: one JSON line a
record in, one JSON list of texts out; nothing of it is imported here.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tokenreel.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokenreel.replay.metadata import Source

GROUP = "tokenreel.transforms"
CHILD = Path(__file__).with_name("transform_child.py")


class Transform(Protocol):
    """Makes texts of a record."""

    def run(self, record: dict[str, Any]) -> Iterable[str]:
        """Return the texts of one upstream record, before normalisation; none drops it."""
        ...


@dataclass(frozen=True, slots=True)
class TextField:
    """Takes one field as it is; a missing or null one gives no text.

    >>> TextField("text").run({"text": 5})
    ['5']
    """

    name: str = "text"

    def run(self, record: dict[str, Any]) -> list[str]:
        """Return the field's value as text."""
        value = record.get(self.name)
        return [] if value is None else [value if isinstance(value, str) else str(value)]


@dataclass(eq=False)
class Checkout:
    """Runs a function of a checkout in a child process there; a context manager in `transforms_of`."""

    folder: Path
    module: str
    entry: str
    commit: str | None = None
    """What the checkout must stand at; None: not known."""
    _child: subprocess.Popen[str] | None = field(default=None, repr=False)

    def run(self, record: dict[str, Any]) -> list[str]:
        """Return the function's texts; raises `ReplayError` (RPL031) for what it raises or answers."""
        child = self._started()
        stdin, stdout = child.stdin, child.stdout
        if stdin is None or stdout is None:
            raise ReplayError("RPL031", "the child has no pipes", path=self.folder)
        try:
            stdin.write(json.dumps(record, default=str) + "\n")
            stdin.flush()
            answer = stdout.readline()
        except OSError as error:
            raise ReplayError("RPL031", f"the child went away: {error}", path=self.folder) from error
        try:
            found = json.loads(answer)
        except ValueError:
            raise ReplayError(
                "RPL031", path=self.folder, expected="a JSON list", found=answer[:80] or "nothing"
            ) from None
        if isinstance(found, dict):
            raise ReplayError("RPL031", f"{self.module}:{self.entry}: {found.get('error')}", path=self.folder)
        return [str(text) for text in found]

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            self._check_commit()
            own = self.folder / ".venv/bin/python"
            python = str(own) if own.exists() else sys.executable
            command = [python, str(CHILD), self.module, self.entry]
            self._child = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        return self._child

    def _check_commit(self) -> None:
        if self.commit is None:
            return
        asked = subprocess.run(
            ["git", "-C", str(self.folder), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
        found = asked.stdout.strip()
        if found != self.commit:
            hint = f"git -C {self.folder} checkout {self.commit}"
            raise ReplayError("RPL032", path=self.folder, expected=self.commit, found=found or "no commit", hint=hint)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            with contextlib.suppress(OSError):
                if self._child.stdin is not None:
                    self._child.stdin.close()
            self._child.wait()
            self._child = None


def transform_of(source: Source, checkout: Path | None, commit: str | None) -> Transform | None:
    """Return how a source's records become texts, or None where it cannot be done here.

    A source that names no code takes its text field; one that does needs an installed entry point of that name, or a
    checkout.
    """
    if not source.transform_module:
        return TextField(str(source.normalize_config.get("text_field") or "text"))
    for one in entry_points(group=GROUP):
        if one.name in (source.transform_module, source.source_id):
            found: Transform = one.load()()
            return found
    if checkout is not None:
        module, _, name = (source.replay_entrypoint or "").partition(":")
        return Checkout(checkout, module if name else source.transform_module, name or module or "run", commit)
    return None


@contextlib.contextmanager
def closing(transform: Transform) -> Iterator[Transform]:
    """Yield a transform and end its child afterwards, where it has one."""
    try:
        yield transform
    finally:
        if isinstance(transform, Checkout):
            transform.close()
