"""Special tokens spelled in text: found, counted, refused or dropped, before any engine sees the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import TokenizerError
from tokenreel.text.texts import text_array

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from tokenreel.text.spec import SpecialInText
    from tokenreel.text.texts import Texts


def pattern(specials: Iterable[str]) -> str:
    """Return one regular expression for all strings, longer ones first; empty when there are none.

    >>> pattern(["<s>", "<s>>", "a.b"])
    '<s>>|<s>|a\\\\.b'
    """
    return "|".join(re.escape(s) for s in sorted({s for s in specials if s}, key=lambda s: (-len(s), s)))


def count_special(texts: Texts, specials: Iterable[str]) -> npt.NDArray[np.int64]:
    """Return, per document, how often one of `specials` is spelled (leftmost, longest, without overlap).

    Cost: about 0.2 ms a MB of text, whatever the number of strings.
    """
    return _counts(text_array(texts), specials)


def _counts(array: Any, specials: Iterable[str]) -> npt.NDArray[np.int64]:
    wanted = pattern(specials)
    if not wanted or not len(array):
        return np.zeros(len(array), np.int64)
    import pyarrow.compute as pc

    counts: npt.NDArray[np.int64] = pc.count_substring_regex(array, wanted).to_numpy(zero_copy_only=False)
    return counts.astype(np.int64)


def screen(
    texts: Texts, specials: Iterable[str], mode: SpecialInText, *, first_document: int = 0, checked: bool = False
) -> tuple[Any, npt.NDArray[np.int64]]:
    """Return the texts as they are to be encoded, and per document how many special tokens were spelled in them.

    ``text`` and ``special`` return the texts unchanged. ``error`` raises `TokenizerError` (TKZ006) that names the first
    document and token. ``drop`` removes every occurrence, again and again until none is left (removal can join the
    parts of another), and counts them all. Documents are numbered from `first_document`; the offset in an error counts
    bytes of the document's text. `checked`: the texts are known to be valid UTF-8.
    """
    array = text_array(texts, first_document, checked=checked)
    specials = tuple(specials)
    counts = _counts(array, specials)  # `array` was checked: looking at every text twice costs more than counting
    if mode in ("text", "special") or not counts.any():
        return array, counts
    if mode == "error":
        number = int(np.argmax(counts > 0))
        text = array[number].as_py()
        found = re.search(pattern(specials), text)
        raise TokenizerError(
            "TKZ006",
            document=first_document + number,
            offset=None if found is None else len(text[: found.start()].encode()),
            expected="no special token spelled in text",
            found=None if found is None else found[0],
            hint='set special_in_text = "text" (encode it as ordinary text) or "drop" in the recipe',
        )
    return _dropped(array, counts, re.compile(pattern(specials)))


def _dropped(array: Any, counts: npt.NDArray[np.int64], wanted: re.Pattern[str]) -> tuple[Any, npt.NDArray[np.int64]]:
    import pyarrow as pa

    texts = array.to_pylist()
    totals = np.zeros_like(counts)
    for number in np.flatnonzero(counts).tolist():
        found = 1
        while found:
            texts[number], found = wanted.subn("", texts[number])
            totals[number] += found
    return pa.array(texts, pa.large_string()), totals
