"""What staging goes by: jobs, the plan that all of them share, and a source opened with its rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tokenreel.build.gates import columns_for, gates_for
from tokenreel.build.text_batches import Place, SourceInput, open_source
from tokenreel.config.mixed import MixedRecipe  # noqa: TC001 (msgspec reads it when plans are decoded)
from tokenreel.text.normalise import Normaliser

if TYPE_CHECKING:
    from tokenreel.build.gates import Gate
    from tokenreel.build.text_batches import Source
    from tokenreel.config.mixed import MixedSourceTable


class StageJob(msgspec.Struct, frozen=True, kw_only=True):
    """One input to stage; travels to workers as JSON."""

    part: str
    """``SOURCE/part-000000``."""
    source: int
    """Number of its source in the recipe."""
    number: int
    input: SourceInput
    tokens_before: int = 0

    @property
    def bytes(self) -> int:
        """What progress counts."""
        return self.input.bytes


class StagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What all parts share; travels to workers as JSON."""

    recipe: MixedRecipe
    place: Place
    stage: str
    """The folder ``stage`` of the output, absolute."""
    plans: tuple[str, ...]
    """SHA-256 of what decides each source's staged bytes."""
    eod_id: int
    largest_id: int
    """The largest id that the output can hold."""


@dataclass(slots=True, eq=False)
class Staging:
    """One source with its rules, opened in the process that stages it."""

    plan: StagePlan
    number: int
    table: MixedSourceTable
    source: Source
    normaliser: Normaliser
    before: list[Gate]
    after: list[Gate]

    @property
    def name(self) -> str:
        """The source's name."""
        return self.table.name


def open_staging(plan: StagePlan, number: int) -> Staging:
    """Return source `number` of a recipe with its rules; raises what opening sources and gates raises."""
    table, recipe = plan.recipe.source[number], plan.recipe
    said = recipe.normalise
    before, after = gates_for(recipe.gate, table.name)
    source = open_source(table, plan.place, columns_for(recipe.gate, table.name))
    # Ids of a token corpus are taken as they are: nothing is normalised that was tokenised.
    kind = "none" if table.kind == "tokens" else said.kind
    return Staging(plan, number, table, source, Normaliser(kind, said.whitespace, said.max_run), before, after)


def keeps_text(recipe: MixedRecipe) -> bool:
    """Return whether staged parts hold texts: for an audit by words."""
    return recipe.decontaminate is not None and recipe.decontaminate.by == "words"


def signs(recipe: MixedRecipe) -> bool:
    """Return whether staged parts hold MinHash signatures."""
    return recipe.dedup is not None and recipe.dedup.near is not None
