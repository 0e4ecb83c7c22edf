"""Normalisation of text before it is hashed or tokenised: none, NFC, or Marin's; and the id of a text.

Marin's cuts every run of more than 128 whitespace characters to its first 128 and drops a text of whitespace alone. Its
versions disagree about what whitespace is: the one that goes record by record uses Python's class, the columnar ones
leave U+001C to U+001F out. Both are here, by name, since the choice decides the id of a few documents.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import xxhash

from tokenreel.errors import RecipeError, SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["none", "nfc", "marin"]
Whitespace = Literal["python", "columnar"]

MAX_RUN = 128
"""Whitespace characters of one run that Marin keeps."""
SEPARATORS = "\x1c\x1d\x1e\x1f"
"""What Python calls whitespace and the columnar versions do not."""


@dataclass(frozen=True, slots=True)
class Normaliser:
    """A named normalisation with its parameters.

    >>> Normaliser("marin", max_run=2)("a     b"), Normaliser("marin")(" \\n ")
    ('a  b', None)
    """

    kind: Kind = "none"
    whitespace: Whitespace = "python"
    max_run: int = MAX_RUN

    def __call__(self, text: str) -> str | None:
        """Return the normalised text; None where the rule drops the document."""
        if self.kind == "none":
            return text
        if self.kind == "nfc":
            return unicodedata.normalize("NFC", text)
        if is_blank(text, self.whitespace):
            return None
        return _long_runs(self.whitespace, self.max_run).sub(lambda run: run[0][: self.max_run], text)

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form of receipts and manifests; parameters only where the kind has them."""
        if self.kind != "marin":
            return {"kind": self.kind}
        return {"kind": self.kind, "whitespace": self.whitespace, "max_run": self.max_run}


def normaliser(said: str | Mapping[str, object] | None) -> Normaliser:
    """Return the normaliser that a recipe or an index names: a word, or a table with its parameters.

    Raises `RecipeError` (RCP004).

    >>> normaliser({"kind": "marin", "whitespace": "columnar"}).whitespace
    'columnar'
    """
    table = {"kind": said or "none"} if said is None or isinstance(said, str) else dict(said)
    kind, whitespace, run = table.pop("kind", "none"), table.pop("whitespace", "python"), table.pop("max_run", MAX_RUN)
    if table:
        raise RecipeError("RCP004", "normalise", expected="kind, whitespace, max_run", found=", ".join(table))
    if kind not in ("none", "nfc", "marin"):
        raise RecipeError("RCP004", "normalise.kind", expected="none, nfc or marin", found=kind)
    if whitespace not in ("python", "columnar"):
        raise RecipeError("RCP004", "normalise.whitespace", expected="python or columnar", found=whitespace)
    if not isinstance(run, int) or isinstance(run, bool) or run < 1:
        raise RecipeError("RCP004", "normalise.max_run", expected="1 or more", found=run)
    return Normaliser(kind, whitespace, run)


def is_blank(text: str, whitespace: Whitespace = "python") -> bool:
    """Return whether a text is whitespace alone, or empty.

    >>> is_blank("\\x1c"), is_blank("\\x1c", "columnar")
    (True, False)
    """
    if whitespace == "python":
        return not text or text.isspace()
    return all(char.isspace() and char not in SEPARATORS for char in text)


def text_id(text: str) -> bytes:
    """Return the 16 bytes that name a text: XXH3-128 of its UTF-8, seed 0, in canonical (big-endian) order.

    Raises `SourceError` (SRC002) for a lone surrogate, which UTF-8 cannot hold. Source: Marin's datakit.

    >>> text_id("a").hex()
    'a96faf705af16834e6c632b61e964e1f'
    """
    try:
        return xxhash.xxh3_128_digest(text.encode())
    except UnicodeEncodeError as error:
        raise SourceError("SRC002", f"character {error.start} is a lone surrogate") from error


@lru_cache(maxsize=8)
def _long_runs(whitespace: Whitespace, longest: int) -> re.Pattern[str]:
    kind = r"\s" if whitespace == "python" else rf"[^\S{SEPARATORS}]"
    return re.compile(rf"{kind}{{{longest + 1},}}")
