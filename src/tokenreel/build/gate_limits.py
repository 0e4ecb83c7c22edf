"""Limits of measures: Gopher's (Rae et al. 2021, table A1 and appendix A.1.1), and the recipe's in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tokenreel.errors import RecipeError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

GOPHER: dict[str, dict[str, float]] = {
    "repetition": {
        "lines_repeated_max": 0.30,
        "paragraphs_repeated_max": 0.30,
        "line_characters_repeated_max": 0.20,
        "paragraph_characters_repeated_max": 0.20,
        "top_2_gram_max": 0.20,
        "top_3_gram_max": 0.18,
        "top_4_gram_max": 0.16,
        "repeated_5_grams_max": 0.15,
        "repeated_6_grams_max": 0.14,
        "repeated_7_grams_max": 0.13,
        "repeated_8_grams_max": 0.12,
        "repeated_9_grams_max": 0.11,
        "repeated_10_grams_max": 0.10,
    },
    "symbols": {
        "words_min": 50,
        "words_max": 100_000,
        "word_length_min": 3,
        "word_length_max": 10,
        "symbols_max": 0.10,
        "bullets_max": 0.90,
        "ellipses_max": 0.30,
        "alphabetic_min": 0.80,
        "stop_words_min": 2,
    },
    "shingles": {"shingles_repeated_max": 0.0},
}


@dataclass(frozen=True, slots=True)
class Limit:
    """At least, or at most, so much of a measure."""

    measure: str
    least: bool
    value: float


def limits_of(kind: Literal["repetition", "symbols", "shingles"], said: Mapping[str, float]) -> tuple[Limit, ...]:
    """Return the limits of a kind with those of a recipe in place of Gopher's, by ``MEASURE_min`` or ``MEASURE_max``.

    A bare ``MEASURE`` is its only limit. Raises `RecipeError` (RCP003) for a name that is none.

    >>> [one.value for one in limits_of("repetition", {"top_2_gram": 0.5}) if one.measure == "top_2_gram"]
    [0.5]
    """
    table = dict(GOPHER[kind])
    for name, value in said.items():
        key = name if name in table else f"{name}_max" if f"{name}_max" in table else f"{name}_min"
        if key not in table or (name not in table and {f"{name}_min", f"{name}_max"} <= set(table)):
            near = nearest(name, table)
            raise RecipeError(
                "RCP003",
                f"unknown limit {name!r} of {kind}" + (f"; did you mean {near}?" if near else ""),
                expected=", ".join(table),
                found=name,
            )
        table[key] = float(value)
    return tuple(Limit(key[:-4], key.endswith("_min"), value) for key, value in table.items())
