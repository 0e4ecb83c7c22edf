"""`maxtext-npy-blend@1`: MaxText's blend of `mmap_npy` datasets, in global order, before hosts take their rows.

Sample s goes to the dataset that lags most behind its weight, the first of equals; each dataset is read from its sample 0
onwards. A longer blend only adds to a shorter one. Exactly as many samples as asked for: Megatron's has a few more.
"""

from __future__ import annotations

import math
from collections.abc import Collection  # noqa: TC003
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError, UsageError
from tokenreel.order.children import child_of, corpora_of, first_corpora, interleaved
from tokenreel.order.maxtext_files import check_dispatch, check_enough
from tokenreel.order.maxtext_npy import MaxTextNpyOrder
from tokenreel.order.maxtext_spec import check_weights
from tokenreel.order.megatron_dispatch import dispatch
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, own_samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.order.maxtext_joined import Tables
    from tokenreel.spans import CorpusKey, SpanTable

    I64 = npt.NDArray[np.int64]

MARGIN = 0.5
"""Percent of samples more than its share that each dataset is built for; fixed in a run, ``--margin`` in the builder."""
COMPAT = {
    "runtime-weights": "weights are divided by their sum before those of 0 are left out, as a MaxText run does; its "
    "builder and Megatron leave them out first. From 8 weights on, the last bit may differ",
}
"""Quirks of MaxText that are reproduced only when named."""


# ---- weights and sizes ---------------------------------------------------------------------------------------------


def normalised(weights: Sequence[float], *, compat: Collection[str] = ()) -> tuple[float, ...]:
    """Return the weights above 0, divided by numpy's sum of them once.

    Raises `UsageError`: ORD064 .. ORD068 for weights that cannot be a mixture's, ORD002 for an unknown `compat`.

    >>> normalised([0.5, 0.0, 0.2])
    (0.7142857142857143, 0.28571428571428575)
    """
    check_weights(weights)
    for unknown in sorted(set(compat) - set(COMPAT)):
        raise UsageError("ORD002", "compat", expected=f"some of {', '.join(COMPAT)}", found=unknown)
    array = np.array(weights, dtype=np.float64)
    if "runtime-weights" not in compat:
        array = array[array > 0]
    array = array / np.sum(array)
    return tuple(array[array > 0].tolist())


def weighted(
    tables: Sequence[Tables | None], weights: Sequence[float], *, compat: Collection[str] = ()
) -> tuple[tuple[float, ...], list[Tables]]:
    """Return (normalised weights, tables) of what is read; a table may be None where its weight is 0.

    Raises `OrderError` (ORD002) for a missing table, `UsageError` as `normalised`, and ORD065 for a weight that is
    nothing beside the others.
    """
    shares = normalised(weights, compat=compat)
    read = [table for table, weight in zip(tables, weights, strict=False) if weight > 0 and table is not None]
    if len(tables) != len(weights) or len(read) != sum(weight > 0 for weight in weights):
        raise OrderError("ORD002", "datasets", expected=f"{len(weights)}, one a weight", found=len(tables))
    if len(shares) != len(read):
        raise UsageError("ORD065", "a weight vanishes beside the others", found=min(w for w in weights if w > 0))
    return shares, read


def dispatch_weights(weights: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return normalised weights divided by their sum once more, as the dispatch has them: the last bit may move."""
    array = np.array(weights, dtype=np.float64)
    return np.asarray(array / np.sum(array), dtype=np.float64)


def blend_buffers(samples: int, weights: Sequence[float], margin: float = MARGIN) -> list[int]:
    """Return the samples that each dataset of a blend is built for; `weights` are normalised once, `margin` in percent.

    >>> blend_buffers(1000, [0.7, 0.3])
    [704, 302]
    """
    if not 0 <= margin < math.inf:
        raise UsageError("ORD002", "margin", expected="0 or more, in percent", found=margin)
    return [math.ceil(math.ceil(samples * weight) * (1 + margin / 100)) for weight in weights]


def inferred_size(weights: Sequence[float], lengths: Sequence[int]) -> int:
    """Return the samples of a blend whose size was not asked for: until the first dataset would be exhausted.

    Raises `OrderError` (ORD085) where that is none.

    >>> inferred_size([0.7, 0.3], [71, 30])
    100
    """
    if len(weights) != len(lengths) or min(lengths) <= 0:
        raise OrderError("ORD085", expected=f"{len(weights)} datasets with samples", found=list(lengths))
    size = math.floor(min(length / weight for length, weight in zip(lengths, weights, strict=True)))
    if size < 1:
        raise OrderError("ORD085", expected="at least one sample", found=size)
    return size


def blend_dispatch(weights: Sequence[float], size: int) -> tuple[npt.NDArray[np.int16], I64]:
    """Return, for each sample of a blend, its dataset (int16) and its number there (int64).

    `weights` are normalised once; they are divided by their sum again here. About 10 ns a sample for a few datasets.

    >>> [array.tolist() for array in blend_dispatch([0.7, 0.3], 5)]
    [[0, 1, 0, 0, 1], [0, 0, 1, 2, 1]]
    """
    if size < 1:
        raise OrderError("ORD085", "size", expected="1 or more", found=size)
    return dispatch(dispatch_weights(weights).tolist(), size)


# ---- the order -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """A blend's pair of arrays, as MaxText stores them."""

    dataset_index: npt.NDArray[np.int16]
    dataset_sample_index: I64


@dataclass(frozen=True, slots=True)
class MaxTextBlendOrder:
    """A blend of datasets; make it with `over` or from children, then `prepare` it."""

    children: tuple[MaxTextNpyOrder, ...]
    weights: tuple[float, ...]
    """Normalised once, all above 0."""
    length: int
    prepared: Dispatch | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "maxtext-npy-blend@1"
    locate_cost: ClassVar[Literal["index"]] = "index"

    def __post_init__(self) -> None:
        if not self.children or len(self.children) != len(self.weights):
            raise OrderError(
                "ORD002", "children", expected=f"{len(self.weights)}, one a weight", found=len(self.children)
            )
        check_weights(self.weights)
        shapes = {(child.row_tokens, child.row_ahead) for child in self.children}
        if min(self.weights) <= 0 or len(shapes) > 1:
            raise OrderError("ORD002", "children", expected="weights above 0 and rows of one length", found=shapes)
        if self.length < 1:
            raise OrderError("ORD085", expected="at least one sample", found=self.length)

    @classmethod
    def over(
        cls,
        tables: Sequence[Tables | None],
        weights: Sequence[float],
        row_tokens: int,
        *,
        seed: int = 0,
        samples: int | None = None,
        num_epoch: int = 1,
        split: str = "",
        split_index: int = 0,
        margin: float = MARGIN,
        compat: Collection[str] = (),
    ) -> MaxTextBlendOrder:
        """Make the blend of datasets that share seed, row length and split; those of weight 0 are left out.

        `samples` None is the inferred size over `num_epoch` epochs of each. One dataset that is left is a blend of one:
        its order is that dataset's own, built for a blend's buffer. Raises as `MaxTextNpyOrder.over` and `normalised`;
        `OrderError` (ORD079) where a dataset has too few samples because `margin` is too small.
        """
        shares, read = weighted(tables, weights, compat=compat)
        buffers = [None] * len(read) if samples is None else blend_buffers(samples, shares, margin)
        children = tuple(
            MaxTextNpyOrder.over(
                table,
                row_tokens,
                seed=seed,
                samples=buffer,
                num_epoch=num_epoch,
                split=split,
                split_index=split_index,
            )
            for table, buffer in zip(read, buffers, strict=True)
        )
        lengths = [child.length for child in children]
        size = inferred_size(dispatch_weights(shares).tolist(), lengths) if samples is None else samples
        return cls(children, shares, size)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The corpora of all datasets, in their order; one that is read twice is named twice."""
        return corpora_of(self.children)

    @property
    def row_tokens(self) -> int:
        """Input tokens of a sample."""
        return self.children[0].row_tokens

    @property
    def row_ahead(self) -> int:
        """1: every sample has its last label."""
        return self.children[0].row_ahead

    @property
    def fingerprint(self) -> str:
        """Hash of weights, datasets and size."""
        return fingerprint(self.name, {**self._parameters(), "length": self.length}, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return a hash without the size: a longer blend of the same datasets gives the same first samples."""
        check_range(i, i, self.length)
        return fingerprint(self.name, self._parameters(), self.corpora)

    def _parameters(self) -> dict[str, object]:
        return {"children": [child.fingerprint for child in self.children], "weights": list(self.weights)}

    def prepare(self, cache: object = None) -> MaxTextBlendOrder:
        """Return the blend with its dispatch and every dataset's permutations computed: 10 bytes a sample.

        Raises `OrderError` (ORD079) where a dataset has fewer samples than the blend takes from it.
        """
        if self.prepared is not None:
            return self
        datasets, numbers = blend_dispatch(self.weights, self.length)
        used = np.bincount(datasets, minlength=len(self.children)).tolist()
        for number, (count, child) in enumerate(zip(used, self.children, strict=True)):
            check_enough(number, count, child.length)
        children = tuple(child.prepare(cache) for child in self.children)
        return replace(self, children=children, prepared=Dispatch(datasets, numbers))

    def with_dispatch(
        self, dataset_index: npt.NDArray[Any], dataset_sample_index: npt.NDArray[Any]
    ) -> MaxTextBlendOrder:
        """Return the blend prepared with a pair made elsewhere (`blend_index_dir`); Megatron's longer one is cut.

        Raises `OrderError` (ORD079, ORD083) for a pair that is not one of these datasets.
        """
        datasets, numbers = dataset_index[: self.length], dataset_sample_index[: self.length]
        check_dispatch(datasets, numbers, [child.length for child in self.children], self.length)
        children = tuple(child.prepare() for child in self.children)
        return replace(self, children=children, prepared=Dispatch(datasets, numbers))

    def dispatch_pair(self) -> Dispatch:
        """Return the pair of arrays MaxText would build; raises `OrderError` (ORD014) unless prepared."""
        if self.prepared is None:
            raise OrderError("ORD014", hint="order = order.prepare()")
        return self.prepared

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j)."""
        check_range(i, j, self.length)
        return self.spans_at(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        wanted = np.asarray(samples, dtype=np.int64).reshape(-1)
        pair = self.dispatch_pair()
        component = self.components_at(wanted)
        number = np.asarray(pair.dataset_sample_index[wanted], dtype=np.int64)
        read = [child.spans_at for child in self.children]
        return interleaved(component, number, read, first_corpora(self.children))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return which dataset each sample is of."""
        wanted = own_samples(samples, self.length)
        return np.asarray(self.dispatch_pair().dataset_index[wanted], dtype=np.int32)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents of corpus number `corpus` occur among samples [lo, hi); reads that part of the dispatch."""
        check_range(lo, hi, self.length)
        number, local = child_of(self.children, corpus)
        pair = self.dispatch_pair()
        mine = np.flatnonzero(pair.dataset_index[lo:hi] == number) + lo
        first = int(pair.dataset_sample_index[mine[0]]) if len(mine) else 0
        hits = self.children[number].locate(local, documents, first, first + len(mine))
        return replace(hits, sample=mine[hits.sample - first])

    def describe(self) -> Node:
        """Return the blend and, below it, each dataset with its weight."""
        children = tuple(
            Node(f"{weight:.6g} x {child.describe().text}")
            for weight, child in zip(self.weights, self.children, strict=True)
        )
        return Node(f"{self.name} [{self.length:,} samples x {self.row_tokens:,} tokens]", children)
