"""Which engine a build encodes with: the recipe's, or the fastest whose ids are the reference's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenreel.build.sample import sample_array
from tokenreel.errors import RecipeError, TokenizerError
from tokenreel.text import EngineChoice, choose_engine
from tokenreel.text.engines import CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.build.inputs import HashedInput
    from tokenreel.config.recipe import TokenizerTable
    from tokenreel.text import Tokenizer

SMALL_BYTES = 4 << 20
"""Inputs of fewer bytes are encoded by the reference in less time than it takes to probe other engines."""
_SAMPLE_BYTES = 2 << 20


def check_engine(table: TokenizerTable, tok: Tokenizer, recipe_path: object) -> None:
    """Raise `RecipeError` (RCP004) for an engine that does not exist."""
    known = ("auto", "reference", *(candidate.name for candidate in CANDIDATES))
    if table.engine not in (*known, tok.reference):
        raise RecipeError("RCP004", "tokenizer.engine", path=recipe_path, expected=", ".join(known), found=table.engine)


def choose(table: TokenizerTable, tok: Tokenizer, todo: Sequence[HashedInput]) -> EngineChoice:
    """Return the engine for these inputs; raises `TokenizerError` (TKZ013) where the one asked for cannot be used."""
    mode: Any = table.special_in_text
    known = {candidate.name: candidate for candidate in CANDIDATES}
    size = sum(one.record.bytes or 0 for one in todo)
    small = table.engine == "auto" and size < SMALL_BYTES
    if small or table.engine in ("reference", tok.reference):
        choice = choose_engine(tok, special_in_text=mode, candidates=())
        return replace(choice, rejected=tuple((name, "not tried: little text") for name in known)) if small else choice
    candidates = CANDIDATES if table.engine == "auto" else (known[table.engine],)
    choice = choose_engine(tok, sample_array(todo, _SAMPLE_BYTES), special_in_text=mode, candidates=candidates)
    if table.engine not in ("auto", choice.name):
        reason = dict(choice.rejected).get(table.engine, "")
        raise TokenizerError("TKZ013", f"{table.engine} was asked for: {reason}", path=tok.name)
    return choice
