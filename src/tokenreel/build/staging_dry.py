"""A mix before it is built: inputs and their sizes, and from a sample of each source how much it will give and take.

Nothing is written, and of sources that are not files nothing is read: what is said of them is their budget.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokenreel.build.file_source import FileSource
from tokenreel.build.staging_batch import Counts, stage_batch
from tokenreel.build.staging_plan import open_staging
from tokenreel.build.staging_run import plan_of
from tokenreel.build.staging_settings import settle_mixed
from tokenreel.text import open_engine

if TYPE_CHECKING:
    from tokenreel.build.settings import Settings
    from tokenreel.build.staging_plan import StagePlan
    from tokenreel.config.mixed import MixedRecipe
    from tokenreel.text.engines import Encoder

SAMPLE_BYTES = 2 << 20
"""Text of a source that is staged for its estimate."""
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """One source, and what is expected of it."""

    name: str
    kind: str
    inputs: int
    input_bytes: int
    budget: int | None
    sampled: int
    """Documents of the sample."""
    kept: int
    """Of those."""
    dropped: dict[str, int]
    """Of those, by ``STAGE/RULE``."""
    tokens: int | None
    """Expected to be staged; None where nothing is known."""
    read_bytes: int | None
    """Expected to be read."""
    seconds: float | None
    """Expected of one worker."""

    @property
    def enough(self) -> bool | None:
        """Whether the source is expected to reach its budget; None without one, or where nothing is known."""
        return None if self.budget is None or self.tokens is None else self.tokens >= self.budget

    def line(self) -> str:
        """Return a line for a terminal."""
        said = f"{self.name}: {self.inputs:,} inputs, {self.input_bytes:,} bytes"
        if self.budget is not None:
            said += f", budget {self.budget:,}"
        if self.tokens is not None and self.seconds is None and self.tokens == self.budget:
            said += ", which it is taken to reach: nothing of it was read"
        elif self.tokens is not None:
            said += f", about {self.tokens:,} tokens"
        if self.seconds is not None:
            share = 100 * self.kept / self.sampled if self.sampled else 0.0
            said += (
                f" in {self.seconds:,.0f} s of one worker ({share:.0f} % of {self.sampled:,} sampled documents kept)"
            )
        return said + ("" if self.enough is not False else "; that is less than the budget")


@dataclass(frozen=True, slots=True)
class MixPlan:
    """What a build of a mix would do."""

    name: str
    out: Path | None
    tokenizer: str
    vocab_size: int
    eod_id: int
    eod_token: str
    dtype: str
    workers: int
    sources: tuple[PlannedSource, ...] = field(default=())

    @property
    def tokens(self) -> int:
        """Expected tokens of all sources of which something is known."""
        return sum(one.tokens or 0 for one in self.sources)

    @property
    def seconds(self) -> float:
        """Expected seconds of staging with all workers."""
        each = [one.seconds or 0.0 for one in self.sources]
        # A source with a budget is one worker's at a time.
        longest = max((s for s, one in zip(each, self.sources, strict=True) if one.budget is not None), default=0.0)
        return max(longest, sum(each) / max(1, self.workers))

    @property
    def output_bytes(self) -> int:
        """Expected bytes of shards."""
        import numpy as np

        return self.tokens * int(np.dtype(self.dtype).itemsize)

    @property
    def stage_bytes(self) -> int:
        """Expected bytes below ``stage`` while the build goes on."""
        return 4 * self.tokens

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        keep = ("name", "tokenizer", "vocab_size", "eod_id", "eod_token", "dtype", "workers", "tokens", "output_bytes")
        facts = {name: getattr(self, name) for name in (*keep, "stage_bytes")}
        each = [{name: getattr(one, name) for name in (*PlannedSource.__slots__, "enough")} for one in self.sources]
        return {
            "dry_run": True,
            "out": None if self.out is None else str(self.out),
            **facts,
            "seconds": round(self.seconds, 3),
            "sources": each,
        }

    def lines(self) -> list[str]:
        """Return the lines for a terminal."""
        return [
            *(one.line() for one in self.sources),
            f"tokenizer: {self.tokenizer}, {self.vocab_size:,} ids, {self.dtype}, EOD {self.eod_id} {self.eod_token}",
            f"would stage about {self.tokens:,} tokens into {self.out or 'the folder that --out names'} in {self.seconds:,.0f} s with {self.workers} "
            f"workers; shards: {self.output_bytes:,} bytes, while building {self.stage_bytes:,} more",
        ]


def dry_run(recipe: MixedRecipe, folder: Path, out: Path | None, workers: int) -> MixPlan:
    """Return what a build of the recipe would do; raises what opening its tokenizer, sources and gates raises."""
    settings = settle_mixed(recipe, folder)
    # What a budget cuts off would make the sample of its rate too small.
    small = msgspec.structs.replace(
        recipe,
        output=msgspec.structs.replace(recipe.output, chunk_bytes=_CHUNK),
        source=[msgspec.structs.replace(table, budget=None) for table in recipe.source],
    )
    plan = plan_of(small, folder, Path("stage"), settings)
    mode: Any = recipe.tokenizer.special_in_text
    engine = recipe.tokenizer.engine
    chosen = settings.tok.reference if engine in ("auto", "reference") else engine
    encoder = open_engine(settings.tok, chosen, special_in_text=mode)
    sources = tuple(_planned(plan, number, encoder, table.budget) for number, table in enumerate(recipe.source))
    return _facts(recipe, out, settings, workers, sources)


def _facts(
    recipe: MixedRecipe, out: Path | None, settings: Settings, workers: int, sources: tuple[PlannedSource, ...]
) -> MixPlan:
    return MixPlan(
        name=recipe.corpus.name,
        out=out,
        tokenizer=settings.tok.name,
        vocab_size=settings.tok.vocab_size,
        eod_id=settings.eod_id,
        eod_token=settings.eod_token,
        dtype=settings.dtype,
        workers=workers,
        sources=sources,
    )


def _planned(plan: StagePlan, number: int, encoder: Encoder, budget: int | None) -> PlannedSource:
    table = plan.recipe.source[number]
    staging = open_staging(plan, number)
    inputs = staging.source.inputs()
    size = sum(one.bytes for one in inputs)
    counts, consumed, seconds = Counts(), 0, 0.0
    source = staging.source
    if isinstance(source, FileSource):
        for one in inputs:
            began, before, first = time.perf_counter(), counts.seen, counts.text_bytes
            with contextlib.closing(source.read(one)) as batches:  # type: ignore[type-var]
                for batch in batches:
                    stage_batch(batch, staging, encoder, counts, 0)
                    if counts.text_bytes - first >= SAMPLE_BYTES // 4 or counts.seen - before > 10_000:
                        break
            consumed += min(one.bytes, source.consumed(counts.seen - before))
            seconds += time.perf_counter() - began
            if counts.text_bytes >= SAMPLE_BYTES:
                break
    staged = counts.text_tokens + counts.kept
    if not consumed:
        known = budget if not isinstance(source, FileSource) else 0
        return PlannedSource(table.name, table.kind, len(inputs), size, budget, 0, 0, {}, known, None, None)
    tokens = int(staged * size / consumed)
    part = 1.0
    if budget is not None and tokens > budget:
        part, tokens = budget / tokens, budget
    dropped = {f"{one.stage}/{one.rule}": one.documents for one in counts.as_reasons()}
    expected = seconds * size / consumed * part
    return PlannedSource(
        table.name,
        table.kind,
        len(inputs),
        size,
        budget,
        counts.seen,
        counts.kept,
        dropped,
        tokens,
        int(size * part),
        expected,
    )
