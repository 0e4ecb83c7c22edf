"""What every build is asked for besides its recipe: where it goes, with how many workers, under which date."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tokenreel.errors import RecipeError, UsageError


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of one build, checked."""

    recipe: object
    folder: Path
    """What the recipe's paths are relative to."""
    out: Path | None
    """None where neither the call nor the recipe names one."""
    processes: int
    """0: in this process."""

    @classmethod
    def of(
        cls,
        recipe: str | os.PathLike[str],
        out: str | os.PathLike[str] | None,
        said: str | None,
        workers: int | None,
        *,
        in_process: bool = False,
    ) -> Asked:
        """Return them; `said` is the recipe's ``output.folder``."""
        folder = Path(recipe).parent
        place = Path(out) if out is not None else folder / said if said is not None else None
        return cls(recipe, folder, place, 0 if in_process else cores() if workers is None else workers)

    def place(self) -> Path:
        """Return the output folder; raises `RecipeError` (RCP007) where there is none."""
        if self.out is None:
            raise RecipeError("RCP007", path=self.recipe, hint="tokenreel build RECIPE --out DIR")
        return self.out


def check_asked(workers: int | None, built_at: str | None) -> None:
    """Raise `UsageError` (USE003) for a number of workers or a date that cannot be, before anything is read."""
    if workers is not None and workers < 1:
        raise UsageError("USE003", "workers", expected="1 or more", found=workers, hint="leave it out for all cores")
    try:
        datetime.fromisoformat(built_at or "2000-01-01")
    except ValueError:
        expected = "a date or time of ISO 8601, as 2026-11-30"
        raise UsageError("USE003", "built_at", expected=expected, found=built_at, hint="date -u +%F") from None


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
