"""What a mix is written as: format, dtype and boundary that its layout and tokenizer ask for, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.build.mix_shards import FORMATS, check_names
from tokenreel.errors import RecipeError
from tokenreel.formats.base import Boundary
from tokenreel.formats.registry import all_formats
from tokenreel.formats.writing import WriteOptions, writing_of

if TYPE_CHECKING:
    from tokenreel.build.settings import Settings
    from tokenreel.config.mixed import MixedRecipe
    from tokenreel.formats.writing import Writing


@dataclass(frozen=True, slots=True, eq=False)
class MixTarget:
    """How shards are written."""

    format: str
    writing: Writing
    options: WriteOptions
    lead: bool
    vocab: int

    @property
    def inside(self) -> str:
        """What readers add to the name of a shard that is a folder."""
        return "/input_ids" if self.format == "levanter" else ""

    @property
    def boundary(self) -> Boundary:
        """What stands around every document."""
        return self.options.boundary


def target_of(recipe: MixedRecipe, settings: Settings) -> MixTarget:
    """Return how a recipe's shards are written.

    Raises `RecipeError`: RCP004 for a format that is not written, RCP006 for a dtype that it cannot hold, and
    for a format that the layout does not have.
    """
    check_names(recipe)
    wanted = recipe.output.format or FORMATS[recipe.layout]
    if recipe.layout != "native" and wanted != FORMATS[recipe.layout]:
        raise RecipeError(
            "RCP006", f"output.format: the layout {recipe.layout} is of {FORMATS[recipe.layout]}", found=wanted
        )
    rows = [row for row in all_formats() if row.writer and (row.name == wanted or row.name.startswith(f"{wanted}-"))]
    if not rows:
        known = ", ".join(row.name for row in all_formats() if row.writer)
        raise RecipeError("RCP004", "output.format", expected=known, found=wanted, hint="tokenreel formats")
    largest = max(settings.tok.largest_id, settings.eod_id)
    said = recipe.output.dtype
    fitting = []
    for row in rows:
        writing = writing_of(row)
        able = [one for one in writing.holds.dtypes if int(np.iinfo(one).max) >= largest and said in (None, one)]
        if able:
            fitting.append((row, writing, able))
    if not fitting:
        able = [one for row in rows for one in writing_of(row).holds.dtypes]
        expected = f"one of {', '.join(able)} that holds the id {largest}"
        raise RecipeError("RCP006", "output.dtype", expected=expected, found=said or settings.dtype)
    row, writing, dtypes = fitting[0]
    if recipe.layout == "native" and row.name == FORMATS["hobbylm"]:
        # Its tables are those of sources.
        hint = 'layout = "hobbylm"'
        raise RecipeError(
            "RCP006", "output.format: files by source are a layout of their own", found=row.name, hint=hint
        )
    dtype = settings.dtype if settings.dtype in dtypes else dtypes[0]
    lead = recipe.tokenizer.eod_at == "begin"
    ids = (settings.eod_id,)
    boundary = Boundary(ids if lead else (), () if lead else ids, table=writing.holds.table)
    vocab = max(settings.tok.vocab_size, largest + 1)
    options: dict[str, Any] = {"vocab": vocab} if row.name == "ounce-v1" else {}
    return MixTarget(row.name, writing, WriteOptions(dtype, boundary, options), lead, vocab)
