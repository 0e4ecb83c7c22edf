"""What the staging of a mix is pinned to: tokenizer, end of document, width of ids; and which engine encodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tokenreel.build.choosing import choose
from tokenreel.build.inputs import HashedInput
from tokenreel.build.settings import Settings, tokenizer_spec
from tokenreel.build.sources import plan_sources
from tokenreel.corpus.receipts import InputFile
from tokenreel.errors import RecipeError
from tokenreel.formats.megatron_write import choose_dtype
from tokenreel.text import load_tokenizer

if TYPE_CHECKING:
    from tokenreel.config import Recipe
    from tokenreel.config.mixed import MixedRecipe
    from tokenreel.text import EngineChoice


def settle_mixed(recipe: MixedRecipe, folder: Path, recorded: dict[str, Any] | None = None) -> Settings:
    """Return the settings of a mix; `recorded` is what an earlier run's run_config.json says of the tokenizer.

    Raises what loading raises, and `RecipeError` (RCP006) for a tokenizer that would have to be trained: a mix has its
    tokenizer before it has its text.
    """
    spec = tokenizer_spec(cast("Recipe", recipe), recorded)
    if spec.kind == "train":
        raise RecipeError(
            "RCP006", "tokenizer.name: a mix does not train its tokenizer", hint="build it with a plain recipe first"
        )
    tok = load_tokenizer(spec, folder)
    eod_id, eod_token = tok.eod(spec)
    dtype = recipe.output.dtype or choose_dtype(max(tok.largest_id, eod_id), tok.vocab_size).name
    return Settings(spec, tok, eod_id, eod_token, dtype)


def choose_mixed(recipe: MixedRecipe, folder: Path, settings: Settings) -> EngineChoice:
    """Return the engine for a mix's text, tried on a sample of its files; raises `TokenizerError` (TKZ013)."""
    return choose(recipe.tokenizer, settings.tok, sampled_inputs(recipe, folder))


def sampled_inputs(recipe: MixedRecipe, folder: Path) -> list[HashedInput]:
    """Return the files of a recipe's sources of files as inputs that can be sampled; nothing is hashed."""
    tables = [table for table in recipe.source if table.kind == "files"]
    found = []
    for one in plan_sources(tables, folder) if tables else ():
        size = Path(one.location).stat().st_size
        record = InputFile(source=one.shape.name, path=one.path, bytes=size)
        found.append(HashedInput(one, record, (size, 0, 0, 0), fresh=False, settled=False))
    return found
