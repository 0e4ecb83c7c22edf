"""A run's order made ready: permutations from our cache, and the dispatch files that a MaxText run names.

``blend_index_dir`` holds a dispatch that decides the order; ``blend_cache_dir`` is where a run keeps its own. As in MaxText
the first is tried, then the second, then it is computed, and nothing about either ends the run. Here none of it is silent.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.config.orders import MaxTextBlend
from tokenreel.errors import FormatError, OrderError, TokenreelError
from tokenreel.index.arrays import read_array
from tokenreel.index.cache import prepared
from tokenreel.index.files import put_or_warn
from tokenreel.index.plans import flat_warnings

if TYPE_CHECKING:
    import os

    import numpy as np
    import numpy.typing as npt

    from tokenreel.config.run import Run
    from tokenreel.index.assemble import Assembled
    from tokenreel.order.maxtext_blend import MaxTextBlendOrder

    Pair = tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]

TRAIN, EVAL = "train", "eval"


def make_ready(
    run: Run, made: Assembled, folder: str | os.PathLike[str] = ".", cache: str | os.PathLike[str] | None = None
) -> tuple[Assembled, tuple[TokenreelError, ...]]:
    """Return an assembled run with its order prepared, and what could not be read or kept on the way.

    Paths in the run are relative to `folder`; `cache` is our own. Raises what preparing raises.
    """
    order, warnings = prepared(made.order, cache)
    flat = flat_warnings(made)
    said = run.order
    more: tuple[TokenreelError, ...] = ()
    if isinstance(said, MaxTextBlend) and (said.blend_index_dir or said.blend_cache_dir):
        from tokenreel.order.maxtext_blend import MaxTextBlendOrder

        if isinstance(order, MaxTextBlendOrder) and len(order.children) > 1:
            order, more = dispatched(
                order,
                EVAL if said.evaluation else TRAIN,
                index_dir=Path(folder) / said.blend_index_dir if said.blend_index_dir else None,
                cache_dir=Path(folder) / said.blend_cache_dir if said.blend_cache_dir else None,
            )
    return replace(made, order=order), (*warnings, *flat, *more)


def dispatched(
    order: MaxTextBlendOrder,
    split: str = TRAIN,
    *,
    index_dir: Path | None = None,
    cache_dir: Path | None = None,
) -> tuple[MaxTextBlendOrder, tuple[TokenreelError, ...]]:
    """Return a prepared blend with the dispatch that its directories hold, else its own, kept in `cache_dir`.

    A pair that is missing, damaged, of another length or over other datasets is not used and returned as a warning.
    """
    from tokenreel.index.maxtext import pair_files
    from tokenreel.order.maxtext_blend import dispatch_weights
    from tokenreel.order.maxtext_files import blend_names, find_blend

    warnings: list[TokenreelError] = []
    if index_dir is not None:
        try:
            names = find_blend((path.name for path in index_dir.iterdir()) if index_dir.is_dir() else (), split)
            return order.with_dispatch(*_read(index_dir, names)), ()
        except (FormatError, OrderError) as error:
            warnings.append(error)
    if cache_dir is not None:
        weights = dispatch_weights(order.weights).tolist()
        names = blend_names(weights, [child.length for child in order.children], order.length, split)
        # What a cache under this name should hold is known: it is mended, not believed.
        warning = put_or_warn(cache_dir, [pair_files(order, names)])
        warnings.extend([warning] if warning else [])
    return order, tuple(warnings)


def _read(folder: Path, names: tuple[str, str]) -> Pair:
    return read_array(folder / names[0]), read_array(folder / names[1])
