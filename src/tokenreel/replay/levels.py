"""How sure an answer is: what a ledger saw, what a configuration says, and what is known to be inexact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokenreel.config.run import Segment

OBSERVED = "exact: a ledger recorded it"
DECLARED = "exact under declared configuration"
APPROXIMATE = "approximate"


@dataclass(frozen=True, slots=True)
class Level:
    """One of `OBSERVED`, `DECLARED`, `APPROXIMATE`, and why it is no better."""

    level: str
    reasons: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {"level": self.level, "reasons": list(self.reasons)}


def step_level(segment: Segment, corpora: Iterable[str] = (), *, observed: bool = False) -> Level:
    """Return how sure it is what a step of a segment read, from these corpora.

    A segment's own doubt and a corpus's `fidelity` make it approximate; a ledger lifts the doubt about the order, never
    that about the text.
    """
    reasons = []
    doubt = getattr(segment, "doubt", None)
    if doubt and not observed:
        reasons.append(str(doubt))
    used = set(corpora)
    reasons += [f"{one.name}: {one.fidelity}" for one in segment.run.corpus if one.fidelity and one.name in used]
    if reasons:
        return Level(APPROXIMATE, tuple(reasons))
    return Level(OBSERVED if observed else DECLARED)
