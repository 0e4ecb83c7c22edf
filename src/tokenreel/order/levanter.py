"""`levanter@1`: Levanter's mixture over shuffled token sequences, bit for bit and without JAX.

Sample g is a sequence of a component: `LevanterMixture` says which, `LevanterSequences` where its tokens are. Sequences are
cut from streams wherever they fall, so documents are not resolved here and no table of them is needed. There is no state:
any sample is computed from its number, and its inverse in closed form but for one count over a block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.children import child_of, corpora_of, dearest, first_corpora, in_order, interleaved
from tokenreel.order.levanter_keys import LevanterReplay, Trainer, component_keys, data_key, mix_and_shuffle_keys
from tokenreel.order.levanter_mixture import FARTHEST, LevanterMixture, Stop
from tokenreel.order.levanter_sequences import LevanterSequences, kept_of, sequences_of
from tokenreel.order.levanter_shuffle import LevanterShuffle, Shuffles
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.spans import SpanTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.spans import CorpusKey

    I32 = npt.NDArray[np.int32]
    I64 = npt.NDArray[np.int64]

PastEnd = Literal["error", "clamp"]


@dataclass(frozen=True, slots=True)
class LevanterOrder:
    """A mixture and the sequences of its components, one order for each of ``mixture.names``.

    Raises `OrderError`: what `LevanterMixture` and `LevanterSequences` raise, ORD112 where components' rows differ, ORD134
    where the mixture would ask past a component's end and `past_end` does not clamp to its last sequence.
    Cost: to make, 3 us a component; a sample, about 0.2 us in sequence.

    >>> from tokenreel.order.stream import StreamOrder
    >>> from tokenreel.spans import CorpusKey
    >>> web, code = (StreamOrder(CorpusKey("files", d, 1, 400), row_tokens=4, row_ahead=0) for d in ("00", "01"))
    >>> order = LevanterOrder.of(
    ...     {"web": [web], "code": [code]}, [(0, {"web": 3, "code": 1}), (16, {"web": 1, "code": 1})], block=8
    ... )
    >>> order.components_at(range(8)).tolist(), order.counts_between(16, 32).tolist()
    ([0, 0, 0, 0, 0, 1, 1, 0], [8, 8])
    """

    mixture: LevanterMixture
    children: tuple[LevanterSequences, ...]
    past_end: PastEnd = "error"
    replay: LevanterReplay = field(default_factory=LevanterReplay)
    overruns: tuple[tuple[int, int, int], ...] = field(init=False, repr=False, compare=False)
    """(sample, component, number) asked for past a component's end."""
    _joint: Shuffles | None = field(init=False, repr=False, compare=False)
    """The shuffles of all components, where all are streams in rows."""
    _edges: I64 = field(init=False, repr=False, compare=False)
    """First sequence of each corpus among the sequences of all components, and the end."""

    name: ClassVar[str] = "levanter@1"

    def __post_init__(self) -> None:
        first = self.children[0]
        for name, child in zip(self.mixture.names, self.children, strict=True):
            if (child.row_tokens, child.row_ahead) != (first.row_tokens, first.row_ahead):
                expected = f"{first.row_tokens} tokens and {first.row_ahead} ahead, as {self.mixture.names[0]}"
                raise OrderError("ORD112", name, expected=expected, found=(child.row_tokens, child.row_ahead))
        overruns = self.mixture.overruns()
        if overruns and self.past_end == "error":
            sample, component, number = overruns[0]
            size = self.mixture.lengths[component]
            raise OrderError(
                "ORD134",
                f"sample {sample:,} asks {self.mixture.names[component]} for its sequence {number:,}",
                expected=f"one of its {size:,}",
                found=f"{len(overruns)} of {self.mixture.length:,} samples past an end",
                hint='past_end = "clamp" in the order',
            )
        object.__setattr__(self, "overruns", overruns)
        object.__setattr__(self, "_joint", self._joined())
        sizes = [part.length or 0 for child in self.children for part in child.parts] if self._joint else []
        object.__setattr__(self, "_edges", np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))))

    def _joined(self) -> Shuffles | None:
        first = self.children[0]
        facts = {(one.shuffle, one.partitionable, one.numpy_major) for one in self.children}
        if len(facts) > 1 or first.row_ahead or not all(one.plain for one in self.children):
            return None
        lengths, keys = [one.sequences for one in self.children], [one.key or (0, 0) for one in self.children]
        return Shuffles.of(
            lengths, keys, first.shuffle, partitionable=first.partitionable, numpy_major=first.numpy_major
        )

    @classmethod
    def of(
        cls,
        components: Mapping[str, Sequence[Order]],
        weights: Mapping[str, float] | Sequence[tuple[int, Mapping[str, float]]],
        *,
        block: int = 2048,
        seed: int = 0,
        data_seed: int | None = None,
        trainer: Trainer = "train_lm",
        shuffle: LevanterShuffle | None = None,
        stop: Stop = "restart",
        randomized: bool = True,
        replay: LevanterReplay | None = None,
        take: Mapping[str, int] | None = None,
        past_end: PastEnd = "error",
    ) -> LevanterOrder:
        """Make the order as a trainer does: keys from its seed, components in the order of its configuration.

        `components` are all of them, each of one part or of several one behind the other; those without a weight in any
        stage are left out and draw no key. `take` keeps so many sequences of a component.
        """
        said, how = replay or LevanterReplay(), shuffle or LevanterShuffle()
        said.check()
        flag = said.threefry_partitionable
        mix, shuffles = mix_and_shuffle_keys(
            data_key(seed, data_seed, trainer=trainer, partitionable=flag), partitionable=flag
        )
        kept = take or {}
        mixture = LevanterMixture.of(
            {name: kept_of(sequences_of(parts), kept.get(name)) for name, parts in components.items()},
            weights,
            block=block,
            key=mix,
            stop=stop,
            randomized=randomized,
            replay=said,
        )
        keys = component_keys(shuffles, len(mixture.names) if how.kind != "none" else 0, partitionable=flag)
        children = [
            LevanterSequences(
                tuple(components[name]), how, keys[number] if keys else None, kept.get(name), flag, said.numpy_major
            )
            for number, name in enumerate(mixture.names)
        ]
        return cls(mixture, tuple(children), past_end, said)

    @property
    def length(self) -> int | None:
        """Samples; None is endless."""
        return self.mixture.length

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The components' corpora, one component after the other."""
        return corpora_of(self.children)

    @property
    def row_tokens(self) -> int:
        """Input tokens of a sequence."""
        return self.children[0].row_tokens

    @property
    def row_ahead(self) -> int:
        """0: Levanter masks the last position."""
        return self.children[0].row_ahead

    @property
    def locate_cost(self) -> Literal["closed", "index", "scan"]:
        """That of the dearest component."""
        return dearest(self.children)

    @property
    def fingerprint(self) -> str:
        """Hash of name, key, block, counts of the stages, end and the components; weights and names do not enter."""
        parameters = {
            **self._parameters(),
            "children": [child.fingerprint for child in self.children],
            "length": self.length,
            "overruns": len(self.overruns),
            "stages": self._stages_until(FARTHEST if self.length is None else self.length),
            "stop": self.mixture.stop,
        }
        return fingerprint(self.name, parameters, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return a hash of what decides the samples [0, i): the stages begun and the components sampled until then.

        Stages appended, weights changed from `i` on and components that come later leave it as it was.
        """
        self.mixture.check_range(i, i)
        stages = self._stages_until(i)
        firsts = first_corpora(self.children)
        before = self.mixture.counts_before(-(-i // self.mixture.block)).tolist()
        used = []
        for c in sorted({c for _, counts in stages for c, _ in counts}):
            child = self.children[c]
            length = child.length
            wraps = length is not None and before[c] > length
            reached = before[c] if length is None else min(before[c], length)
            used.append([c, firsts[c], child.fingerprint_until(reached), length if wraps else None])
        past = [sample for sample, _, _ in self.overruns if sample < i]
        return fingerprint(self.name, {**self._parameters(), "children": used, "past": past, "stages": stages}, ())

    def _parameters(self) -> dict[str, object]:
        mixture = self.mixture
        return {
            "block": mixture.block,
            "key": list(mixture.key),
            "partitionable": mixture.partitionable if mixture.randomized else None,
            "randomized": mixture.randomized,
        }

    def _stages_until(self, i: int) -> list[tuple[int, list[tuple[int, int]]]]:
        out: list[tuple[int, list[tuple[int, int]]]] = []
        for start, counts in zip(self.mixture.starts, self.mixture.stage_counts, strict=True):
            held = [(c, n) for c, n in enumerate(counts) if n]
            if start < i and (not out or out[-1][1] != held):
                out.append((start, held))
        return out

    # -- samples -------------------------------------------------------------------------------------------------------

    def places_at(self, samples: npt.ArrayLike) -> tuple[I32, I64]:
        """Return each sample's component, and which of that component's shuffled sequences it is."""
        component, number = self.mixture.places_at(samples)
        if self.overruns:
            sizes = np.array([-1 if n is None else n for n in self.mixture.lengths], dtype=np.int64)[component]
            number = np.where(sizes >= 0, np.minimum(number, sizes - 1), number)
        return component, number

    def sequences_at(self, samples: npt.ArrayLike) -> tuple[I32, I64]:
        """Return each sample's component, and which of its sequences, as stored, it is."""
        asked = np.asarray(samples, dtype=np.int64).reshape(-1)
        component, number = self.places_at(asked)
        if self._joint is not None:
            return component, self._joint.sequences_at(component, number)
        for c in np.unique(component).tolist():
            mine = np.flatnonzero(component == c)
            number[mine] = self.children[c].sequences_at(number[mine])
        return component, number

    def components_at(self, samples: npt.ArrayLike) -> I32:
        """Return which component each sample belongs to."""
        return self.mixture.numbers_at(samples)[0]

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j): one extent each where components are streams, documents unresolved."""
        self.mixture.check_range(i, j)
        return self.spans_at(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        component, sequence = self.sequences_at(samples)
        firsts = np.array(first_corpora(self.children), dtype=np.int64)
        if self._joint is not None:
            joint = self._edges[firsts[component]] + sequence
            corpus = np.searchsorted(self._edges, joint, side="right") - 1
            begin = (joint - self._edges[corpus]) * self.row_tokens
            return SpanTable.of(np.arange(len(begin) + 1), begin, self.row_tokens, corpus=corpus)
        return interleaved(component, sequence, [child.spans_of for child in self.children], firsts.tolist())

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield the mixture's blocks."""
        self.mixture.check_range(i, j)
        block, first = self.mixture.block, i
        while first < j:
            end = min(j, (first // block + 1) * block)
            yield first, self.spans(first, end)
            first = end

    def cursors_at(self, samples: npt.ArrayLike) -> I64:
        """Return ``[n, c]``: sequences that each component has given before each of `samples`."""
        asked = np.asarray(samples, dtype=np.int64).reshape(-1)
        if asked.size:
            self.mixture.check_range(int(asked.min()), int(asked.max()))
        return self.mixture.cursors_at(asked)

    def counts_between(self, i: int, j: int) -> I64:
        """Return how many of samples [i, j) are of each component."""
        self.mixture.check_range(i, j)
        before, after = self.mixture.cursors_at([i, j])
        counts: I64 = after - before
        return counts

    # -- inverse -------------------------------------------------------------------------------------------------------

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), by document as asked, then by sample.

        Cost: closed form, and one count over a block for every occurrence.
        """
        self.mixture.check_range(lo, hi)
        c, local = child_of(self.children, corpus)
        docs = np.asarray(documents, dtype=np.int64).reshape(-1)
        child, block = self.children[c], self.mixture.block
        low = int(self.mixture.counts_before(lo // block)[c])
        high = int(self.mixture.counts_before(-(-hi // block))[c]) if hi > lo else low
        end = high if child.length is None else child.length
        hits = child.locate(local, docs, 0, end)
        which, numbers = _turns(hits.sample, child.length, low, high, self.mixture.stop != "first_exhausted")
        sample = self.mixture.samples_of(c, numbers)
        for at, component, _ in self.overruns:
            if component == c:
                again = np.flatnonzero(hits.sample == end - 1)
                which = np.concatenate((which, again))
                sample = np.concatenate((sample, np.full(len(again), at, dtype=np.int64)))
        kept = np.flatnonzero((sample >= lo) & (sample < hi))
        which, sample = which[kept], sample[kept]
        sort = in_order(docs, hits.document[which], sample, hits.extent[which])
        which = which[sort]
        return Hits(hits.document[which], sample[sort], hits.extent[which], hits.begin[which], hits.length[which])

    def prepare(self, cache: object = None) -> LevanterOrder:
        """Return the order of prepared components."""
        return replace(self, children=tuple(child.prepare(cache) for child in self.children))

    def describe(self) -> Node:
        """Return the stages with what a block holds, then the components."""
        mixture = self.mixture
        length = "endless" if self.length is None else f"{self.length:,} samples"
        stages = tuple(
            Node(
                f"from {start:,}: "
                + ", ".join(f"{name} {n:,}" for name, n in zip(mixture.names, counts, strict=True) if n)
            )
            for start, counts in zip(mixture.starts, mixture.stage_counts, strict=True)
        )
        parts = tuple(Node(name, (child.describe(),)) for name, child in zip(mixture.names, self.children, strict=True))
        said = ", ".join(f"{key} {value}" for key, value in self.replay.as_dict().items() if value is not None)
        return Node(f"{self.name} [{length} in blocks of {mixture.block:,}; {said}]", stages + parts)


def _turns(places: I64, length: int | None, low: int, high: int, again: bool) -> tuple[I64, I64]:
    """Return (which place, number) of every number in [low, high) that is one of `places`, on any pass."""
    if length is None or not again:
        which = np.flatnonzero((places >= low) & (places < high))
        return which, places[which]
    first = np.maximum(0, -((places - low) // length))
    counts = np.maximum(0, -((places - high) // length) - first)
    which = np.repeat(np.arange(len(places), dtype=np.int64), counts)
    within = np.arange(len(which), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, places[which] + (first[which] + within) * length
