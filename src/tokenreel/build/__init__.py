"""Text to corpus: sources, split, tokenise, write, receipts; resumable at any moment, the same bytes every time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenreel.build.mix_report import MixReport
    from tokenreel.build.report import BuildReport
    from tokenreel.build.routes import build, build_mix
    from tokenreel.build.staging_dry import MixPlan

_HOME = {
    "BuildReport": "report",
    "MixPlan": "staging_dry",
    "MixReport": "mix_report",
    "build": "routes",
    "build_mix": "routes",
}

__all__ = ["BuildReport", "MixPlan", "MixReport", "build", "build_mix"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
