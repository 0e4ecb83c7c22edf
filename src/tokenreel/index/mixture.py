"""What a run reads of each of its sources: samples, tokens, epochs, and the share it was meant to have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.config import orders as kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.config.run import Run
    from tokenreel.index.assemble import Assembled
    from tokenreel.order.protocol import Order

    I64 = npt.NDArray[np.int64]

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class MixRow:
    """One source over one stretch of samples."""

    name: str
    weight: float
    """Share of samples asked for, 0 .. 1."""
    share: float
    """Share it has."""
    samples: int
    tokens: int
    """Input tokens read from it, padding among them."""
    source_tokens: int
    """Stored tokens of one pass over it."""
    epochs_before: float
    """Passes over it before this stretch."""
    epochs: float
    """Passes in this stretch."""

    @property
    def repeats(self) -> int:
        """How often, at the end of the stretch, its most read tokens were read again."""
        return max(0, int(np.ceil(round(self.epochs_before + self.epochs, 9))) - 1)

    @property
    def state(self) -> str:
        """``wraps`` where tokens come again, ``never`` where none is read, else nothing."""
        if self.samples == 0:
            return "never"
        return "wraps" if self.repeats else ""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "weight": self.weight,
            "share": self.share,
            "samples": self.samples,
            "tokens": self.tokens,
            "source_tokens": self.source_tokens,
            "epochs_before": self.epochs_before,
            "epochs": self.epochs,
            "repeats": self.repeats,
            "state": self.state,
        }


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows of samples [first, end): a phase, or a whole segment."""

    first: int
    end: int
    rows: tuple[MixRow, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {"first": self.first, "end": self.end, "sources": [row.as_dict() for row in self.rows]}


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    order: Order | None
    tokens: int


def mix_table(run: Run, made: Assembled, lo: int, hi: int) -> tuple[Stretch, ...]:
    """Return what samples [lo, hi) of a prepared order read of each source, phase by phase.

    A source is a component of a mixture, a member of a blend (those of weight 0 included), or the one corpus. Cost: closed
    form for `mix@1`, one look at each sample's component for blends.
    """
    sources = _sources(run, made)
    edges = _phase_edges(made.order, sources, lo, hi)
    before = _counts(made.order, sources, 0, lo)
    out = []
    for (first, weights), end in zip(edges, [*(edge for edge, _ in edges[1:]), hi], strict=True):
        counts = _counts(made.order, sources, first, end)
        out.append(Stretch(first, end, tuple(_rows(made.order, sources, weights, counts, before))))
        before = before + counts
    return tuple(out)


def _rows(order: Order, sources: Sequence[_Source], weights: Sequence[float], counts: I64, before: I64) -> list[MixRow]:
    total, meant = int(counts.sum()), sum(weights)
    rows = []
    for number, source in enumerate(sources):
        samples = int(counts[number])
        width = order.row_tokens
        passed = [_passes(source, count, width) for count in (int(before[number]), samples)]
        share = samples / total if total else 0.0
        weight = weights[number] / meant if meant else 0.0
        rows.append(MixRow(source.name, weight, share, samples, samples * width, source.tokens, *passed))
    return rows


def _passes(source: _Source, count: int, width: int) -> float:
    """Return how many passes over a source its samples are. Packed rows are padded, or lose tokens: those are counted."""
    from tokenreel.pack.packed import PackedOrder

    if isinstance(source.order, PackedOrder):
        return count / source.order.rows if source.order.rows else 0.0
    return count * width / source.tokens if source.tokens else 0.0


def _sources(run: Run, made: Assembled) -> list[_Source]:
    from tokenreel.order.levanter import LevanterOrder

    said, order = run.order, made.order
    if isinstance(said, kinds.Mix):
        names = [component.name for component in said.component]
        return [_Source(n, child, _tokens(child)) for n, child in zip(names, order.children, strict=True)]
    if isinstance(said, kinds.Levanter):
        held = dict(zip(order.mixture.names, order.children, strict=True)) if isinstance(order, LevanterOrder) else {}
        return [
            _Source(part.name, held.get(part.name), _tokens(held[part.name]) if part.name in held else 0)
            for part in said.component
        ]
    if isinstance(said, kinds.MegatronBlendTable | kinds.MaxTextBlend | kinds.MaxTextMmapMix):
        out, at = [], 0
        for member in said.member:
            child = None if member.weight == 0 else order.children[at]
            at += child is not None
            out.append(_Source(member.corpus, child, 0 if child is None else _tokens(child)))
        return out
    return [_Source("+".join(made.names), order, _tokens(order))]


def _tokens(order: Order) -> int:
    """Return the stored tokens of one pass over an order's data: of its split, where it has one."""
    plan: Any = getattr(order, "plan", None)
    return plan.tokens if plan is not None else sum(key.tokens for key in order.corpora)


def _phase_edges(order: Order, sources: Sequence[_Source], lo: int, hi: int) -> list[tuple[int, Sequence[float]]]:
    """Return (first sample, weights of the sources) of each phase within [lo, hi)."""
    from tokenreel.order.levanter import LevanterOrder
    from tokenreel.order.mix import MixOrder

    if isinstance(order, LevanterOrder):
        shares = [dict(zip(order.mixture.names, row, strict=True)) for row in order.mixture.shares]
        weights = [tuple(row.get(source.name, 0.0) for source in sources) for row in shares]
        return _within(list(order.mixture.starts), weights, lo, hi)
    if not isinstance(order, MixOrder):
        given = iter(getattr(order, "weights", (1.0,)))
        return [(lo, [0.0 if source.order is None else float(next(given)) for source in sources])]
    return _within([phase.begin for phase in order.phases], [phase.weights for phase in order.phases], lo, hi)


def _within(
    begins: list[int], weights: Sequence[Sequence[float]], lo: int, hi: int
) -> list[tuple[int, Sequence[float]]]:
    held = [k for k, end in enumerate([*begins[1:], hi + 1]) if begins[k] < hi and end > lo] or [len(begins) - 1]
    return [(max(lo, begins[k]), weights[k]) for k in held]


def _counts(order: Order, sources: Sequence[_Source], lo: int, hi: int) -> I64:
    """Return how many of samples [lo, hi) each source gives."""
    from tokenreel.order.levanter import LevanterOrder
    from tokenreel.order.mix import MixOrder

    read = [number for number, source in enumerate(sources) if source.order is not None]
    out = np.zeros(len(sources), dtype=np.int64)
    if isinstance(order, MixOrder | LevanterOrder):
        out[read] = order.counts_between(lo, hi)
    elif len(order.children) == 0:
        out[read] = hi - lo
    else:
        for first in range(lo, hi, CHUNK):
            components = order.components_at(np.arange(first, min(hi, first + CHUNK), dtype=np.int64))
            out[read] += np.bincount(components, minlength=len(read))
    return out
