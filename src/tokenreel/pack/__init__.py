"""Rows: policies, masks, positions, segment ids; packing plans. Pure: no files, no clock, no global random state.

The names below are loaded when first used: importing the package loads no numpy.

>>> from tokenreel.pack import greedy_packs
>>> greedy_packs([5, 3, 2, 8], 10)
[(0, 3), (3, 4)]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenreel.pack.bestfit import best_fit
    from tokenreel.pack.decompose import pieces_of
    from tokenreel.pack.firstfit import first_fit
    from tokenreel.pack.greedy import greedy_packs
    from tokenreel.pack.packed import PackedOrder
    from tokenreel.pack.packed_inputs import Thd, check_edges, positions_of, segments_of, thd
    from tokenreel.pack.packed_policy import Packing
    from tokenreel.pack.plan import Plan, make_plan
    from tokenreel.pack.plan_sizes import Sizes
    from tokenreel.pack.policy import RowPolicy, row_policy
    from tokenreel.pack.stats import PackStats, order_stats, pack_stats
    from tokenreel.pack.waste import Waste, top_shares, waste_of

_HOME = {
    "PackStats": "stats",
    "PackedOrder": "packed",
    "Packing": "packed_policy",
    "Plan": "plan",
    "RowPolicy": "policy",
    "Sizes": "plan_sizes",
    "Thd": "packed_inputs",
    "Waste": "waste",
    "best_fit": "bestfit",
    "check_edges": "packed_inputs",
    "first_fit": "firstfit",
    "greedy_packs": "greedy",
    "make_plan": "plan",
    "order_stats": "stats",
    "pack_stats": "stats",
    "pieces_of": "decompose",
    "positions_of": "packed_inputs",
    "row_policy": "policy",
    "segments_of": "packed_inputs",
    "thd": "packed_inputs",
    "top_shares": "waste",
    "waste_of": "waste",
}

__all__ = [
    "PackStats",
    "PackedOrder",
    "Packing",
    "Plan",
    "RowPolicy",
    "Sizes",
    "Thd",
    "Waste",
    "best_fit",
    "check_edges",
    "first_fit",
    "greedy_packs",
    "make_plan",
    "order_stats",
    "pack_stats",
    "pieces_of",
    "positions_of",
    "row_policy",
    "segments_of",
    "thd",
    "top_shares",
    "waste_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
