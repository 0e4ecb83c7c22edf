"""`megatron-blend@1`: Megatron-Core's BlendedDataset, bit for bit: members in their own order, dispatched by weight.

Weights are normalised twice, by the builder and by the blend, and sizes are rounded up for every member: a blend of 11
members may give 15 samples where 10 were asked for. Without weights every member is read once, and lengths are weights.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence  # noqa: TC003
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.children import interleaved
from tokenreel.order.megatron import CHUNK, MegatronOrder
from tokenreel.order.megatron_dispatch import check_weights, dispatch, dispatch_all, normalised
from tokenreel.order.megatron_plan import check_compat
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, own_samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.order.megatron_dispatch import Arithmetic
    from tokenreel.spans import CorpusKey, DocTable, SpanTable

    I64 = npt.NDArray[np.int64]

SURPLUS = 0.005


@dataclass(frozen=True, slots=True)
class MemberSize:
    """What a blend asks of one member."""

    use: int
    """Samples counted towards the blend's size."""
    build: int
    """Samples the member is built for: a surplus more."""


def member_sizes(weights: Sequence[float], samples: int, surplus: float = SURPLUS) -> list[MemberSize]:
    """Return the sizes for `samples` samples, in floats as Megatron computes them; raises `OrderError` (ORD015).

    >>> [size.use for size in member_sizes([0.07, 0.93], 100)]
    [8, 93]
    """
    uses = [math.ceil(samples * weight) for weight in normalised(weights)]
    return [MemberSize(use, math.ceil(use * (1 + surplus))) for use in uses]


@dataclass(eq=False, slots=True)
class Dispatched:
    """What `prepare` computed: member and member's sample of every sample; 10 bytes each."""

    member: npt.NDArray[np.int16]
    number: I64
    places: dict[int, I64] = field(default_factory=dict)
    """Samples of the blend that are a member's, by member: made when first needed."""


@dataclass(frozen=True, slots=True)
class MegatronBlend:
    """Several `MegatronOrder` in one; make it with `over`, then `prepare` it. Corpus number m is member m's."""

    members: tuple[MegatronOrder, ...]
    weights: tuple[float, ...]
    """As dispatched with: normalised twice, or lengths where everything is used up."""
    samples: int | None
    """Samples, None where everything is used up."""
    arithmetic: Arithmetic = "x86"
    prepared: Dispatched | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "megatron-blend@1"
    locate_cost: ClassVar[Literal["index"]] = "index"

    @classmethod
    def over(
        cls,
        tables: Sequence[DocTable],
        row_tokens: int,
        *,
        seed: int,
        samples: int | None,
        weights: Sequence[float] | None = None,
        surplus: float = SURPLUS,
        arithmetic: Arithmetic = "x86",
        documents: Sequence[DocTable | None] | None = None,
        **settings: Any,
    ) -> MegatronBlend:
        """Make the blend of one part; `settings` (split, part, row_ahead, keep_partial, compat) are `MegatronOrder.over`'s.

        Raises `OrderError`: ORD002 for weights without `samples`, ORD015 for weights or a member without samples, and
        what a member raises. O(members).
        """
        owners = documents or [None] * len(tables)

        def member(number: int, asked: int | None) -> MegatronOrder:
            return MegatronOrder.over(
                tables[number], row_tokens, seed=seed, samples=asked, documents=owners[number], **settings
            )

        if weights is None:
            members = tuple(member(number, None) for number in range(len(tables)))
            lengths = [order.length for order in members]
            for number, length in enumerate(lengths):
                if not length:
                    raise OrderError("ORD015", f"member {number} has no samples", expected="1 or more", found=0)
            if samples is None:
                check_weights(lengths)
                return cls(members, tuple(lengths), None, arithmetic)
            return cls(members, tuple(normalised(lengths)), min(samples, sum(lengths)), arithmetic)
        if len(weights) != len(tables):
            raise OrderError("ORD015", "weights", expected=f"{len(tables)}", found=len(weights))
        if samples is None:
            raise OrderError("ORD002", "samples", expected="a number, where weights are given", found=None)
        sizes = member_sizes(weights, samples, surplus)
        members = tuple(member(number, size.build) for number, size in enumerate(sizes))
        twice = normalised(normalised(weights))
        return cls(members, tuple(twice), sum(size.use for size in sizes), arithmetic)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """One corpus for each member, repeats included."""
        return tuple(member.key for member in self.members)

    @property
    def children(self) -> tuple[MegatronOrder, ...]:
        """The members."""
        return self.members

    @property
    def length(self) -> int:
        """Samples; often a few more than were asked for."""
        return sum(member.length for member in self.members) if self.samples is None else self.samples

    @property
    def row_tokens(self) -> int:
        """Input tokens of a sample."""
        return self.members[0].row_tokens

    @property
    def row_ahead(self) -> int:
        """1 where samples carry a look-ahead, else 0."""
        return self.members[0].row_ahead

    def _parameters(self) -> dict[str, object]:
        return {
            "arithmetic": self.arithmetic,
            "members": [member.fingerprint for member in self.members],
            "weights": list(self.weights),
        }

    @property
    def fingerprint(self) -> str:
        """Hash of weights, members, arithmetic and size."""
        return fingerprint(self.name, {**self._parameters(), "samples": self.samples}, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return a hash without the size: a longer blend of the same members only adds samples at its end."""
        self._check(i, i)
        return fingerprint(self.name, {**self._parameters(), "all": self.samples is None}, self.corpora)

    def prepare(self, cache: object = None) -> MegatronBlend:
        """Return the blend with its members and its dispatch prepared; raises `OrderError` (ORD016) when one is overdrawn.

        Cost: the members', and 10 to 50 ns and 10 bytes a sample.
        """
        if self.prepared is not None:
            return self
        if self.samples is None:
            member, number = dispatch_all([int(weight) for weight in self.weights], arithmetic=self.arithmetic)
        else:
            member, number = dispatch(self.weights, self.samples, arithmetic=self.arithmetic)
        drawn = np.bincount(member, minlength=len(self.members)).tolist()
        for k, (count, order) in enumerate(zip(drawn, self.members, strict=True)):
            if count > order.length:
                raise OrderError(
                    "ORD016",
                    f"member {k}",
                    expected=f"at most {order.length} samples",
                    found=count,
                    hint="surplus=0.05",
                )
        members = tuple(order.prepare(cache) for order in self.members)
        return replace(self, members=members, prepared=Dispatched(member, number))

    def dispatched(self) -> tuple[npt.NDArray[np.int16], I64]:
        """Return Megatron's dataset index and dataset sample index; raises `OrderError` (ORD014) unless prepared."""
        ready = self._ready()
        return ready.member, ready.number

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j)."""
        self._check(i, j)
        ready = self._ready()
        return interleaved(ready.member[i:j], ready.number[i:j], [member.spans_at for member in self.members])

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        wanted = own_samples(samples, self.length)
        ready = self._ready()
        return interleaved(ready.member[wanted], ready.number[wanted], [member.spans_at for member in self.members])

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 8,192 samples."""
        return blocks(self, i, j, CHUNK)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return the member of each sample."""
        wanted = own_samples(samples, self.length)
        return self._ready().member[wanted].astype(np.int32)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents of member number `corpus` occur among samples [lo, hi)."""
        self._check(lo, hi)
        if not 0 <= corpus < len(self.members):
            raise OrderError("ORD002", "corpus", expected=f"0 .. {len(self.members) - 1}", found=corpus)
        ready = self._ready()
        places = ready.places.get(corpus)
        if places is None:
            places = ready.places[corpus] = np.flatnonzero(ready.member == corpus).astype(np.int64)
        low, high = np.searchsorted(places, [lo, hi]).tolist()
        hits = self.members[corpus].locate(0, documents, low, high)
        return replace(hits, sample=places[hits.sample])

    def describe(self) -> Node:
        """Return the blend with its members below, each with its weight."""
        lines = tuple(
            Node(f"{weight:.6g} x {member.describe().text}")
            for weight, member in zip(self.weights, self.members, strict=True)
        )
        return Node(f"{self.name} [{self.length:,} samples x {self.row_tokens:,} tokens, {self.arithmetic}]", lines)

    def _ready(self) -> Dispatched:
        if self.prepared is None:
            raise OrderError("ORD014", hint="order = order.prepare()")
        return self.prepared

    def _check(self, i: int, j: int) -> None:
        check_range(i, j, self.length)


# ---- what a job's arguments mean -------------------------------------------------------------------------------------


def megatron_orders(
    tables: Sequence[DocTable],
    row_tokens: int,
    *,
    samples: int | None,
    weights: Sequence[float] | None = None,
    per_split: bool = False,
    multiple_validation_sets: bool = False,
    full_validation: bool = False,
    surplus: float = SURPLUS,
    arithmetic: Arithmetic = "x86",
    documents: Sequence[DocTable | None] | None = None,
    part: str = "train",
    split: str | None = "1",
    **settings: Any,
) -> tuple[MegatronOrder | MegatronBlend, ...]:
    """Return the order a job makes of the prefixes of one part: one, or one for each of several validation sets.

    `per_split` says that the prefixes were given for this part alone: the split string then does not count, and one
    prefix is read without a blend whatever its weight. Raises `OrderError`: ORD002 for combinations Megatron refuses.
    """
    if not tables:
        raise OrderError("ORD015", "members", expected="1 or more", found=0)
    owners = documents or [None] * len(tables)
    given = {**settings, "part": part, "split": None if per_split else split}
    if multiple_validation_sets and per_split and part == "valid" and len(tables) > 1:
        if full_validation and samples is not None:
            raise OrderError("ORD002", "samples", expected="None with full_validation", found=samples)
        return tuple(
            MegatronOrder.over(table, row_tokens, samples=samples, documents=owner, **given)
            for table, owner in zip(tables, owners, strict=True)
        )
    if len(tables) == 1 and (per_split or weights is None):
        return (MegatronOrder.over(tables[0], row_tokens, samples=samples, documents=owners[0], **given),)
    return (
        MegatronBlend.over(
            tables, row_tokens, samples=samples, weights=weights, surplus=surplus, arithmetic=arithmetic,
            documents=documents, **given,
        ),
    )  # fmt: skip


def blend_list(items: Sequence[str], *, compat: Collection[str] = ()) -> tuple[list[str], list[float] | None]:
    """Return (prefixes, weights or None) of a job's list of weights and prefixes in turn, or of prefixes alone.

    Raises `OrderError` (ORD015) for a list that is neither: numbers where prefixes stand. Megatron takes a list that only
    starts with a number for prefixes; `compat` "blend-list" does so too.

    >>> blend_list(["0.3", "a", "7e-1", " b "])
    (['a', 'b'], [0.3, 0.7])
    """
    quirk = "blend-list" in check_compat(compat)
    numbers = [_number(item) for item in items]
    if len(items) % 2 == 0:
        weights = [number for number in numbers[0::2] if number is not None]
        if len(weights) == len(items) // 2 and items:
            check_weights(weights)
            return [item.strip() for item in items[1::2]], weights
        leading = next((k for k, number in enumerate(numbers[0::2]) if number is None), 0)
        if len(weights) > leading or (weights and not quirk):
            raise OrderError("ORD015", "a blend", expected="weight, prefix, weight, prefix ..", found=" ".join(items))
    elif len(items) > 1 and any(number is not None for number in numbers) and not quirk:
        raise OrderError("ORD015", "a blend", expected="weight, prefix, weight, prefix ..", found=" ".join(items))
    return [item.strip() for item in items], None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Targets:
    """Samples a job asks of each part; None is one epoch."""

    train: int
    valid: int | None
    test: int


def training_targets(
    *,
    global_batch: int,
    eval_iters: int,
    eval_interval: int,
    train_iters: int | None = None,
    train_samples: int | None = None,
    eval_global_batch: int | None = None,
    start_eval_at_iter: int = 0,
    full_validation: bool = False,
) -> Targets:
    """Return how many samples a job's arguments ask for; exactly one of `train_iters` and `train_samples` is given.

    >>> training_targets(global_batch=8, train_iters=100, eval_interval=50, eval_iters=2)
    Targets(train=800, valid=48, test=16)
    """
    if (train_iters is None) == (train_samples is None) or eval_interval < 1 or global_batch < 1:
        found = f"train_iters {train_iters}, train_samples {train_samples}, eval_interval {eval_interval}"
        raise OrderError("ORD002", "a job's sizes", expected="train_iters or train_samples, and intervals", found=found)
    train = train_samples if train_samples is not None else (train_iters or 0) * global_batch
    iters = train_iters if train_iters is not None else train // global_batch
    each = eval_iters * (eval_global_batch or global_batch)
    rounds = iters // eval_interval + 1 - start_eval_at_iter // eval_interval
    return Targets(train, None if full_validation else rounds * each, each)
