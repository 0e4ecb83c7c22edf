"""The language of a text, told from its first characters by py3langid; the choice and its certainty are what it says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from tokenreel.errors import RecipeError, require

if TYPE_CHECKING:
    from tokenreel.build.gates import GateInput, Verdict


@dataclass(frozen=True, slots=True)
class Language:
    """Passes texts of some languages.

    Cost: 0.2 to 0.5 ms a text of a thousand characters.
    """

    name: str
    languages: tuple[str, ...]
    """Two letters each, as ISO 639-1."""
    min_score: float = 0.0
    chars: int = 1000

    def __post_init__(self) -> None:
        """Raise `RecipeError` (RCP004) for a language that the detector does not know."""
        labels = set(_identifier().labels)
        for one in self.languages:
            if one not in labels:
                raise RecipeError(
                    "RCP004", f"gate {self.name!r}: languages", expected=", ".join(sorted(labels)), found=one
                )

    def judge(self, documents: GateInput) -> list[Verdict]:
        """Return what is in another language, or of uncertain language."""
        import pyarrow.compute as pc

        from tokenreel.build.gates import Verdict, shown

        out = []
        heads = pc.utf8_slice_codeunits(documents.texts, 0, self.chars).to_pylist()
        for row, head in enumerate(heads):
            language, score = _identifier().classify(head)
            if language not in self.languages:
                out.append(Verdict(row, f"{self.name} not in {','.join(self.languages)}", f"{language} {score:.3f}"))
            elif score < self.min_score:
                out.append(Verdict(row, f"{self.name} < {shown(self.min_score)}", f"{language} {score:.3f}"))
        return out


def detector_version() -> str:
    """Return the detector's name and version, which staged parts record: another one may decide otherwise."""
    require("py3langid", extra="lang")
    return f"py3langid {metadata.version('py3langid')}"


@lru_cache(maxsize=1)
def _identifier() -> Any:
    require("py3langid", extra="lang")
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
