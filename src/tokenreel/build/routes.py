"""The front door: a recipe, plain or of a mix, is built, planned, or asked what became of a document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.build.asked import Asked, check_asked
from tokenreel.build.pool import STALL_SECONDS
from tokenreel.build.run import build as plain
from tokenreel.config.mixed import is_mixed, load_mixed
from tokenreel.config.reading import override, read_toml
from tokenreel.errors import RecipeError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from tokenreel.build.explain import Fate
    from tokenreel.build.mix_report import MixReport
    from tokenreel.build.report import BuildReport
    from tokenreel.build.staging_dry import MixPlan


def is_mix(recipe: str | os.PathLike[str], overrides: Iterable[str] = ()) -> bool:
    """Return whether a file is the recipe of a mix; raises `RecipeError` (RCP001, RCP002, RCP005)."""
    table = read_toml(recipe)
    for one in overrides:
        override(table, one)
    return is_mixed(table)


def build(
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
) -> BuildReport | MixReport | MixPlan:
    """Build a recipe, plain or of a mix, into `out`, and return what was done; arguments and errors as of `run.build`.

    A plain recipe gives a `BuildReport`, one of a mix a `MixReport`, or with `dry_run` a `MixPlan`; each has `as_dict` and
    `lines`.
    """
    overrides = list(overrides)
    way = build_mix if is_mix(recipe, overrides) else plain
    return way(
        recipe, out, workers, overrides=overrides, dry_run=dry_run, built_at=built_at, progress=progress, stall=stall,
        in_process=in_process,
    )  # fmt: skip


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
) -> MixReport | MixPlan:
    """Build the mix of a recipe into `out`, or with `dry_run` say what would be done; arguments as of `build`.

    Raises what `load_mixed` and the stages raise, `RecipeError` (RCP007) without any folder for the output.
    """
    check_asked(workers, built_at)
    loaded = load_mixed(recipe, overrides)
    asked = Asked.of(recipe, out, loaded.output.folder, workers, in_process=in_process)
    if dry_run:
        from tokenreel.build.staging_dry import dry_run as plan

        return plan(loaded, asked.folder, asked.out, max(1, asked.processes))
    place = asked.place()
    from tokenreel.build.mixed import run_mixed

    return run_mixed(
        loaded, asked.folder, place, workers=asked.processes, built_at=built_at, progress=progress, stall=stall
    )


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
