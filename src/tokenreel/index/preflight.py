"""What a Levanter mixture does to small weights before it runs: components that a block has no room for, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenreel.order.levanter import LevanterOrder
    from tokenreel.order.levanter_counts import RoundedShare
    from tokenreel.order.protocol import Order


@dataclass(frozen=True, slots=True)
class StageCheck:
    """One stage: which components it never samples, and which one is furthest from its weight."""

    first: int
    components: int
    """Those with a weight."""
    never: tuple[str, ...]
    furthest: RoundedShare

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "first": self.first,
            "components": self.components,
            "never": list(self.never),
            "furthest": {
                "name": self.furthest.name,
                "asked": self.furthest.asked,
                "realised": self.furthest.realised,
                "per_block": self.furthest.count,
            },
        }


@dataclass(frozen=True, slots=True)
class Preflight:
    """The stages of a mixture, and the smallest block that gives every weight a place in all of them."""

    block: int
    stages: tuple[StageCheck, ...]
    mended: int | None
    """None: no block below 65,536 does."""

    @property
    def never(self) -> bool:
        """Whether a component with a weight is never sampled in some stage."""
        return any(stage.never for stage in self.stages)

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "block": self.block,
            "smallest_block": self.mended,
            "stages": [stage.as_dict() for stage in self.stages],
        }

    def lines(self) -> list[str]:
        """Return what to read before a run."""
        out = []
        for stage in self.stages:
            far, left = stage.furthest, f" but {len(stage.never)}" if stage.never else ""
            out.append(
                f"from sample {stage.first:,}: blocks of {self.block:,} hold all{left} of {stage.components} "
                f"components; furthest from its weight is {far.name}, asked {far.asked:.4%}, has {far.realised:.4%}"
            )
            if stage.never:
                out.append(f"  never sampled: {', '.join(stage.never)}")
        if self.never:
            mended = f"block = {self.mended}" if self.mended else "no block below 65,536; raise the weights"
            out.append(f"the smallest block that samples every component: {mended}")
        return out


def preflight(order: Order) -> Preflight | None:
    """Return the check of a Levanter mixture; None for any other order. Cost: O(stages * components)."""
    from tokenreel.order.levanter import LevanterOrder

    return _checked(order) if isinstance(order, LevanterOrder) else None


def _checked(order: LevanterOrder) -> Preflight:
    from tokenreel.order.levanter_counts import smallest_block

    mixture = order.mixture
    stages = []
    for number, start in enumerate(mixture.starts):
        rounded = [share for share in mixture.rounded(number) if share.asked > 0]
        never = tuple(share.name for share in rounded if share.never)
        furthest = max(rounded, key=lambda share: abs(share.realised - share.asked))
        stages.append(StageCheck(start, len(rounded), never, furthest))
    return Preflight(mixture.block, tuple(stages), smallest_block(mixture.shares, mixture.starts))
