"""`mix@1`: an order of orders: components with weights that may change from phase to phase.

Samples come in blocks of `block`. Every block of a phase holds each component's exact share, rounded down or up, and what
rounding gives or takes evens out over the blocks (`mix_counts`); inside a block the components are shuffled by key
(`mix_blocks`). With `block` the global batch size, every batch holds its exact share. Each component gives its own samples
in its own order, from its cursor on; cursors go on across phases. Everything is computed from the phases' cursors, so any
sample costs the same: nothing is replayed. Weights are shares of samples: of tokens too, unless rows vary in length.

A component that is needed beyond its last sample follows its policy, which has no silent case: "error" refuses the mixture
when it is made, "stop" ends it there, "repeat" starts the component again. `cap` is how often a component may be passed
over in all: without it once for "error" and "stop", any number of times for "repeat", for which reaching it is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from tokenreel.errors import OrderError
from tokenreel.order.children import child_of, corpora_of, dearest, first_corpora, in_order, interleaved
from tokenreel.order.mix_phases import FARTHEST, Phase, Phases
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, own_samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.spans import CorpusKey, SpanTable

    I64 = npt.NDArray[np.int64]

POLICIES = ("error", "stop", "repeat")


@dataclass(frozen=True, slots=True)
class Component:
    """One member of a mixture: an order, what happens at its end, and how many passes it may make in all."""

    name: str
    order: Order
    at_end: Literal["error", "stop", "repeat"] = "error"
    cap: float | None = None

    @property
    def pass_samples(self) -> int | None:
        """Samples of one pass: the order's length, or the epoch of an endless one; None where there is none."""
        length = self.order.length
        return length if length is not None else getattr(self.order, "epoch_samples", None)

    @property
    def supply(self) -> int | None:
        """Samples that it may give; None is any number."""
        if self.cap is None:
            return None if self.at_end == "repeat" else self.order.length
        return int(Fraction(str(self.cap)) * (self.pass_samples or 0))

    def check(self) -> None:
        """Raise `OrderError` (ORD002) for a policy that is none, or a cap that cannot be counted."""
        if self.at_end not in POLICIES:
            raise OrderError("ORD002", f"{self.name}: at_end", expected=" | ".join(POLICIES), found=self.at_end)
        if self.cap is not None and not (0 < self.cap < float("inf") and self.pass_samples):
            expected = "a positive number, of an order that has passes"
            raise OrderError("ORD002", f"{self.name}: cap", expected=expected, found=self.cap)
        if self.order.length == 0 and self.at_end == "repeat":
            raise OrderError("ORD002", f"{self.name}: repeat", expected="an order with samples", found="none")


@dataclass(frozen=True, slots=True)
class MixOrder:
    """A mixture of components by phases, of `samples` samples, or as many as its components last, or endless.

    Raises `OrderError`: ORD110 where a component runs out under "error" or reaches its cap under "repeat"; ORD111, ORD113
    and ORD114 for phases; ORD112 where components' rows differ; ORD002 for other parameters.
    Cost: to make, O(phases * block); a sample, 0.1 us in sequence and O(block) alone, besides what its component takes.

    >>> from tokenreel.order.stream import StreamOrder
    >>> from tokenreel.spans import CorpusKey
    >>> web, code = (StreamOrder(CorpusKey("files", d, 1, 401), row_tokens=4) for d in ("00", "01"))
    >>> parts = (Component("web", web), Component("code", code, "repeat"))
    >>> order = MixOrder(parts, (Phase(0, (3, 1)), Phase(16, (1, 1))), seed=7, block=8, samples=40)
    >>> order.counts_between(0, 16).tolist(), order.counts_between(16, 40).tolist()
    ([12, 4], [12, 12])
    >>> order.components_at(range(8)).tolist()
    [0, 0, 0, 1, 0, 0, 1, 0]
    """

    components: tuple[Component, ...]
    phases: tuple[Phase, ...]
    seed: int
    block: int = 1024
    samples: int | None = None
    starts: tuple[int, ...] = ()
    """Samples that each component had given before this mixture began; none where it is empty."""
    ready: Phases = field(init=False, repr=False, compare=False)
    """The phases made ready."""
    length: int | None = field(init=False, repr=False, compare=False)
    """Samples; None is endless."""

    name: ClassVar[str] = "mix@1"

    def __post_init__(self) -> None:
        if not self.components or not 1 <= self.block <= 1 << 20:
            raise OrderError("ORD002", "a mixture", expected="components, and blocks of 1 .. 2**20", found=self.block)
        if not 0 <= self.seed < 1 << 64:
            raise OrderError("ORD002", "seed", expected="0 .. 2**64 - 1", found=self.seed)
        if self.samples is not None and not 0 <= self.samples < FARTHEST:
            raise OrderError("ORD002", "samples", expected="0 .. 2**62 - 1", found=self.samples)
        if self.starts and (len(self.starts) != len(self.components) or min(self.starts) < 0):
            expected = "one a component, none negative"
            raise OrderError("ORD002", "starts", expected=expected, found=list(self.starts))
        names = [component.name for component in self.components]
        if len(set(names)) != len(names):
            raise OrderError("ORD002", "names of components", expected="different ones", found=names)
        first = self.components[0].order
        for component in self.components:
            component.check()
            rows = (component.order.row_tokens, component.order.row_ahead)
            if rows != (first.row_tokens, first.row_ahead):
                expected = f"{first.row_tokens} tokens and {first.row_ahead} ahead, as {self.components[0].name}"
                raise OrderError("ORD112", component.name, expected=expected, found=rows)
        ready = Phases.of(self.phases, len(self.components), self.block, self.seed)
        object.__setattr__(self, "ready", ready)
        object.__setattr__(self, "length", self._length())

    def _length(self) -> int | None:
        """Return where the mixture ends; raises ORD110 if a component does before it."""
        length = self.samples
        ends = [self.runs_out(c) for c in range(len(self.components))]
        for component, end in zip(self.components, ends, strict=True):
            if component.at_end == "stop" and end is not None:
                length = end if length is None else min(length, end)
        for component, end in zip(self.components, ends, strict=True):
            if component.at_end != "stop" and end is not None and (length is None or end < length):
                raise OrderError(
                    "ORD110",
                    f"component {component.name} has {component.supply} samples and the mixture asks for more",
                    expected="an endless mixture" if length is None else f"{length} samples of the mixture",
                    found=f"it runs out at sample {end}",
                    hint='at_end = "repeat" or "stop" beside its name in [[order.component]]',
                )
        return length

    def runs_out(self, component: int) -> int | None:
        """Return the first sample that asks a component for more than it may give; None where none does."""
        import numpy as np

        supply = self.components[component].supply
        if supply is None:
            return None
        supply = max(0, supply - self._start(component))
        end = int(self.ready.samples_of(component, np.array([supply], dtype=np.int64))[0])
        return None if end < 0 else end

    def _start(self, component: int) -> int:
        return self.starts[component] if self.starts else 0

    @property
    def children(self) -> tuple[Order, ...]:
        """The components' orders."""
        return tuple(component.order for component in self.components)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The components' corpora, one component after the other; one that two components read comes twice."""
        return corpora_of(self.children)

    @property
    def row_tokens(self) -> int:
        """Input tokens of a sample, in every component the same."""
        return self.children[0].row_tokens

    @property
    def row_ahead(self) -> int:
        """1 where samples carry a look-ahead."""
        return self.children[0].row_ahead

    @property
    def locate_cost(self) -> Literal["closed", "index", "scan"]:
        """That of the dearest component."""
        return dearest(self.children)

    @property
    def fingerprint(self) -> str:
        """Hash of name, seed, block, phases in units, length and the components' fingerprints; names do not enter."""
        parameters = {
            "block": self.block,
            "children": [child.fingerprint for child in self.children],
            "length": self.length,
            "phases": self._phases_until(FARTHEST if self.length is None else self.length),
            "seed": self.seed,
            **self._begun(),
        }
        return fingerprint(self.name, parameters, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return a hash of what decides the samples [0, i): the phases begun and the components weighted until then.

        Phases appended, weights changed from `i` on and components added at the end leave it as it was.
        """
        self._check(i, i)
        phases = self._phases_until(i)
        used = sorted({c for _, units in phases for c, _ in units})
        cursors, firsts = self.cursors_at([i])[0].tolist(), first_corpora(self.children)
        children: list[object] = []
        for c in used:
            child = self.children[c]
            reached = cursors[c] if child.length is None else min(cursors[c], child.length)
            wraps = child.length is not None and cursors[c] > child.length
            until = child.fingerprint_until(reached)
            children.append([c, firsts[c], until, child.length if wraps else None])
        parameters = {"block": self.block, "children": children, "phases": phases, "seed": self.seed, **self._begun()}
        return fingerprint(self.name, parameters, ())

    def _begun(self) -> dict[str, object]:
        begun = [(c, start) for c, start in enumerate(self.starts) if start]
        return {"starts": begun} if begun else {}

    def _phases_until(self, i: int) -> list[tuple[int, list[tuple[int, int]]]]:
        begun = zip(self.ready.begins.tolist(), self.ready.units, strict=True)
        return [(begin, [(c, n) for c, n in enumerate(units) if n]) for begin, units in begun if begin < i]

    def cursors_at(self, samples: npt.ArrayLike) -> I64:
        """Return ``[n, c]``: samples that each component has given before each of `samples` (the length included).

        Those it had given before the mixture began count among them.
        """
        import numpy as np

        asked = np.asarray(samples, dtype=np.int64).reshape(-1)
        if asked.size:
            self._check(int(asked.min()), int(asked.max()))
        cursors = self.ready.cursors_at(asked)
        return cursors + np.array(self.starts, dtype=np.int64) if self.starts else cursors

    def counts_between(self, i: int, j: int) -> I64:
        """Return how many of samples [i, j) are of each component."""
        self._check(i, j)
        before, after = self.ready.cursors_at([i, j])
        counts: I64 = after - before
        return counts

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return which component each sample belongs to."""
        return self.places_at(samples)[0]

    def places_at(self, samples: npt.ArrayLike) -> tuple[npt.NDArray[np.int32], I64]:
        """Return each sample's component, and which of that order's samples it is."""
        import numpy as np

        asked = own_samples(samples, self.length, FARTHEST)
        flat = asked.reshape(-1)
        components, numbers = self.ready.places_at(flat)
        if self.starts:
            numbers += np.array(self.starts, dtype=np.int64)[components]
        for c, child in enumerate(self.children):
            if child.length is not None and (self.starts or self.components[c].supply != child.length):
                mine = components == c
                numbers[mine] %= max(1, child.length)
        return components.reshape(asked.shape), numbers.reshape(asked.shape)

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j)."""
        import numpy as np

        self._check(i, j)
        return self.spans_at(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked; each component is asked once for all of its own."""
        import numpy as np

        components, numbers = self.places_at(np.asarray(samples, dtype=np.int64).reshape(-1))
        children = self.children
        read = [partial(_spans_of, child) for child in children]
        return interleaved(components, numbers, read, first_corpora(children))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), by document as asked, then by sample, through the component."""
        import numpy as np

        self._check(lo, hi)
        c, local = child_of(self.children, corpus)
        child = self.children[c]
        docs = np.asarray(documents, dtype=np.int64).reshape(-1)
        first, last = self.cursors_at([lo, hi])[:, c].tolist()
        found: list[tuple[Hits, int]] = []
        if child.length is None:
            found.append((child.locate(local, docs, first, last), 0))
        elif last > first:
            size = child.length
            for number in range(first // size, (last - 1) // size + 1):
                low, high = max(first - number * size, 0), min(last - number * size, size)
                found.append((child.locate(local, docs, low, high), number * size))
        numbers = np.concatenate([np.empty(0, np.int64), *(hits.sample + shift for hits, shift in found)])
        sample = self.ready.samples_of(c, numbers - self._start(c))
        document, extent, begin, length = (
            np.concatenate([np.empty(0, np.int64), *(getattr(hits, column) for hits, _ in found)])
            for column in ("document", "extent", "begin", "length")
        )
        order = in_order(docs, document, sample, extent)
        return Hits(document[order], sample[order], extent[order], begin[order], length[order])

    def prepare(self, cache: object = None) -> MixOrder:
        """Return the mixture of prepared components."""
        parts = (replace(component, order=component.order.prepare(cache)) for component in self.components)
        return MixOrder(tuple(parts), self.phases, self.seed, self.block, self.samples, self.starts)

    def describe(self) -> Node:
        """Return the phases with their weights, then the components."""
        length = "endless" if self.length is None else f"{self.length:,} samples"
        total = sum(self.ready.units[0])
        names = [component.name for component in self.components]
        phases = tuple(
            Node(
                f"from {begin:,}: " + ", ".join(f"{n} {u / total:.4%}" for n, u in zip(names, units, strict=True) if u)
            )
            for begin, units in zip(self.ready.begins.tolist(), self.ready.units, strict=True)
        )
        parts = tuple(Node(_policy(component), (component.order.describe(),)) for component in self.components)
        return Node(f"{self.name} [{length} in blocks of {self.block:,}, seed {self.seed}]", phases + parts)

    def _check(self, i: int, j: int) -> None:
        check_range(i, j, self.length, FARTHEST)


def _policy(component: Component) -> str:
    cap = "" if component.cap is None else f", at most {component.cap:g} passes"
    return f"{component.name} (at end: {component.at_end}{cap})"


def _spans_of(child: Order, numbers: I64) -> SpanTable:
    """Return a component's samples, by range where they follow one another."""
    import numpy as np

    first, last = int(numbers[0]), int(numbers[-1])
    straight = last - first == len(numbers) - 1 and bool((np.diff(numbers) == 1).all())
    return child.spans(first, last + 1) if straight else child.spans_at(numbers)
