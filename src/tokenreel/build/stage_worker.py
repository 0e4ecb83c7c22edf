"""A worker process that stages: as `tokenreel.build.worker`, with other jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokenreel.build.staging import stage_input
from tokenreel.build.staging_plan import StageJob, StagePlan, open_staging
from tokenreel.build.worker import serve
from tokenreel.text import open_engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenreel.build.staging_plan import Staging


class StageSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs before its first job."""

    plan: StagePlan
    engine: str


def opened(
    setup: StageSetup,
) -> tuple[Path, Callable[[StageJob, Callable[[int, int], None]], tuple[int, tuple[str, ...]]]]:
    """Return the folder to lock, and what stages a job; sources are opened when their first job comes."""
    plan = setup.plan
    mode: Any = plan.recipe.tokenizer.special_in_text
    encoder = open_engine(plan.place.open_tokenizer(), setup.engine, special_in_text=mode)
    sources: dict[int, Staging] = {}

    def perform(job: StageJob, tick: Callable[[int, int], None]) -> tuple[int, tuple[str, ...]]:
        if job.source not in sources:
            sources[job.source] = open_staging(plan, job.source)
        return stage_input(job, sources[job.source], encoder, tick).tokens_staged, ()

    return Path(plan.stage), perform


def main() -> None:
    """Serve one parent until it closes stdin."""
    serve(StageSetup, StageJob, opened)


if __name__ == "__main__":
    main()
