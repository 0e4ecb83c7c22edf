"""A gate of one's own: a function of texts and columns, named by ``MODULE:FUNCTION`` or by an entry point."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from tokenreel.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokenreel.build.gates import GateInput, Verdict

GROUP = "tokenreel.gates"
"""Entry points of distributions that offer gates."""


@dataclass(frozen=True, slots=True)
class PythonGate:
    """Calls ``function(texts, columns)``: a list of str, and lists by field; it returns one value a text.

    None lets a document pass; anything else, as text, is what was found. The function must depend on each text and its
    fields alone: batches may be cut anywhere.
    """

    name: str
    entry: str
    function: Callable[[list[str], dict[str, list[Any]]], Sequence[Any]]

    def judge(self, documents: GateInput) -> list[Verdict]:
        """Return a verdict for every value that is not None; raises `RecipeError` (RCP047) for too few or too many."""
        from tokenreel.build.gates import Verdict

        try:
            found = list(self.function(documents.texts.to_pylist(), documents.columns))
        except Exception as error:
            raise RecipeError(
                "RCP047", f"gate {self.name!r}: {self.entry} raised {type(error).__name__}: {error}"
            ) from error
        if len(found) != len(documents):
            raise RecipeError(
                "RCP047",
                f"gate {self.name!r}: {self.entry}",
                expected=f"{len(documents)} values, one a text",
                found=len(found),
            )
        return [Verdict(row, self.name, str(value)[:200]) for row, value in enumerate(found) if value is not None]


def load_function(entry: str) -> Any:
    """Return the function that an entry names; raises `RecipeError` (RCP047) where there is none.

    >>> load_function("tokenreel.build.gate_python:load_function") is load_function
    True
    """
    if ":" not in entry:
        for point in metadata.entry_points(group=GROUP):
            if point.name == entry:
                return point.load()
        known = ", ".join(sorted(point.name for point in metadata.entry_points(group=GROUP))) or "none installed"
        raise RecipeError("RCP047", expected=f"MODULE:FUNCTION, or an entry point of {GROUP} ({known})", found=entry)
    module, _, name = entry.partition(":")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise RecipeError("RCP047", str(error), found=entry, hint=f'python -c "import {module}"') from error
    if not callable(found):
        raise RecipeError("RCP047", expected="a function", found=entry)
    return found
