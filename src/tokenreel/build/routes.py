"""Mixes through the front door: a recipe of a mix is built, planned, or asked what became of a document."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tokenreel.build.pool import STALL_SECONDS
from tokenreel.build.run import check_date, cores
from tokenreel.config.mixed import is_mixed, load_mixed
from tokenreel.config.reading import override, read_toml
from tokenreel.errors import RecipeError, UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from tokenreel.build.explain import Fate


class Report(Protocol):
    """What a command prints."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        ...

    def lines(self) -> list[str]:
        """Return the lines for a terminal."""
        ...


def is_mix(recipe: str | os.PathLike[str], overrides: Iterable[str] = ()) -> bool:
    """Return whether a file is the recipe of a mix; raises `RecipeError` (RCP001, RCP002, RCP005)."""
    table = read_toml(recipe)
    for one in overrides:
        override(table, one)
    return is_mixed(table)


def build_mix(
    recipe: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    *,
    overrides: Iterable[str] = (),
    dry_run: bool = False,
    built_at: str | None = None,
    progress: Callable[[int, int | None, int], None] | None = None,
    stall: float = STALL_SECONDS,
    in_process: bool = False,
) -> Report:
    """Build the mix of a recipe into `out`, or with `dry_run` say what would be done; arguments as of `build`.

    Raises what `load_mixed` and the stages raise, `RecipeError` (RCP007) without any folder for the output.
    """
    if workers is not None and workers < 1:
        raise UsageError("USE003", "workers", expected="1 or more", found=workers, hint="leave it out for all cores")
    check_date(built_at)
    loaded = load_mixed(recipe, overrides)
    folder = Path(recipe).parent
    place = Path(out) if out is not None else None
    if place is None and loaded.output.folder is not None:
        place = folder / loaded.output.folder
    if dry_run:
        from tokenreel.build.staging_dry import dry_run as plan

        return plan(loaded, folder, place, cores() if workers is None else workers)
    if place is None:
        raise RecipeError("RCP007", path=recipe, hint="tokenreel build RECIPE --out DIR")
    processes = 0 if in_process else cores() if workers is None else workers
    run_mixed = import_module("tokenreel.build.mixed").run_mixed
    report: Report = run_mixed(
        loaded, folder, place, recipe_path=recipe, workers=processes, built_at=built_at, progress=progress, stall=stall
    )
    return report


def explain_in(
    recipe: str | os.PathLike[str],
    identity: str,
    out: str | os.PathLike[str] | None = None,
    overrides: Iterable[str] = (),
) -> list[Fate]:
    """Return what a recipe's output records of a document; raises what `explain` raises, and RCP007."""
    from tokenreel.build.explain import explain

    place = Path(out) if out is not None else None
    if place is None:
        table = read_toml(recipe)
        for one in overrides:
            override(table, one)
        output = table.get("output")
        said = output.get("folder") if isinstance(output, dict) else None
        if not isinstance(said, str):
            raise RecipeError("RCP007", path=recipe, hint="tokenreel build RECIPE --out DIR --explain ID")
        place = Path(recipe).parent / said
    return explain(place, identity)
