"""Mixtures of ``grain_file_type=mmap`` datasets: each host mixes its own slices, and together they are one order.

Host h of H takes samples h, h + H, ... of every dataset and mixes those with `grain_mix_at`, so that all hosts draw from
the same dataset at the same step of theirs. Sample s of the whole is element ``s // H`` of host ``s % H``: with
`StridedRows`, exactly what that host reads. The order therefore depends on H, as MaxText's does. It ends before a host
would have nothing to read while others still do; MaxText's job hangs there.
"""

from __future__ import annotations

from collections.abc import Collection  # noqa: TC003
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.children import child_of, corpora_of, first_corpora, interleaved
from tokenreel.order.maxtext_blend import weighted
from tokenreel.order.maxtext_mix import grain_given, grain_mix_at, grain_mix_length, grain_mix_place, grain_shares
from tokenreel.order.maxtext_mmap import MaxTextMmapOrder, hits_in
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, own_samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.order.maxtext_joined import Tables
    from tokenreel.spans import CorpusKey, SpanTable

    I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MaxTextMmapMixOrder:
    """A mixture of direct datasets over `hosts` hosts; make it with `over`. Closed form, nothing to prepare."""

    children: tuple[MaxTextMmapOrder, ...]
    weights: tuple[float, ...]
    """Normalised once, all above 0."""
    hosts: int = 1

    row_ahead: ClassVar[int] = 0
    name: ClassVar[str] = "maxtext-mmap-mix@1"
    locate_cost: ClassVar[Literal["closed"]] = "closed"

    def __post_init__(self) -> None:
        if not self.children or len(self.children) != len(self.weights):
            raise OrderError(
                "ORD002", "children", expected=f"{len(self.weights)}, one a weight", found=len(self.children)
            )
        if len({child.row_tokens for child in self.children}) > 1:
            raise OrderError("ORD002", "children", expected="rows of one length", found="several")
        if self.hosts < 1:
            raise OrderError("ORD002", "hosts", expected="1 or more", found=self.hosts)
        grain_shares(self.weights)

    @classmethod
    def over(
        cls,
        tables: Sequence[Tables | None],
        weights: Sequence[float],
        row_tokens: int,
        *,
        hosts: int = 1,
        seed: int = 0,
        shuffled: bool = True,
        epochs: int = 1,
        compat: Collection[str] = (),
    ) -> MaxTextMmapMixOrder:
        """Make the mixture; datasets of weight 0 are left out. Raises as `MaxTextMmapOrder.over` and `normalised`.

        `compat` may hold "runtime-weights" and "grain-shuffle".
        """
        own = {"runtime-weights"} & set(compat)
        shares, read = weighted(tables, weights, compat=own)
        children = tuple(
            MaxTextMmapOrder.over(
                table, row_tokens, seed=seed, shuffled=shuffled, epochs=epochs, compat=set(compat) - own
            )
            for table in read
        )
        return cls(children, shares, hosts)

    @property
    def shares(self) -> tuple[int, ...]:
        """The weights as Grain counts with them."""
        return grain_shares(self.weights)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The corpora of all datasets, in their order."""
        return corpora_of(self.children)

    @property
    def row_tokens(self) -> int:
        """Tokens of a window."""
        return self.children[0].row_tokens

    def host_length(self, host: int) -> int:
        """Return the elements MaxText's host would read: up to the turn of the first dataset exhausted there."""
        slices = [max(0, -(-(child.length - host) // self.hosts)) for child in self.children]
        return grain_mix_length(slices, self.shares)

    @property
    def length(self) -> int:
        """Samples that every host before and at its place has: host lengths never rise with h."""
        # Only slices that are one shorter differ; the shortest host bounds the rounds that are whole.
        whole = self.host_length(self.hosts - 1)
        low, high = 0, self.hosts - 1
        while low < high:
            middle = (low + high) // 2
            if self.host_length(middle) > whole:
                low = middle + 1
            else:
                high = middle
        return whole * self.hosts + low

    @property
    def fingerprint(self) -> str:
        """Hash of datasets, weights and hosts."""
        parameters = {**self._parameters(), "children": [child.fingerprint for child in self.children]}
        return fingerprint(self.name, parameters, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return a hash that does not know how many epochs follow."""
        check_range(i, i, self.length)
        parameters = {**self._parameters(), "children": [child.fingerprint_until(0) for child in self.children]}
        return fingerprint(self.name, parameters, self.corpora)

    def _parameters(self) -> dict[str, object]:
        return {"hosts": self.hosts, "shares": list(self.shares)}

    def prepare(self, cache: object = None) -> MaxTextMmapMixOrder:  # noqa: ARG002
        """Return self: there is nothing to prepare."""
        return self

    def places_at(self, samples: npt.ArrayLike) -> tuple[npt.NDArray[np.int32], I64]:
        """Return (dataset, its sample) of each sample."""
        wanted = own_samples(samples, self.length).reshape(-1)
        component, element = grain_mix_at(wanted // self.hosts, self.shares)
        return component, element * self.hosts + wanted % self.hosts

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j)."""
        check_range(i, j, self.length)
        return self.spans_at(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        component, place = self.places_at(samples)
        read = [child.spans_at for child in self.children]
        return interleaved(component, place, read, first_corpora(self.children))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return which dataset each sample is of."""
        return self.places_at(samples)[0].reshape(np.shape(samples))

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents of corpus number `corpus` occur among samples [lo, hi), by document, then by sample."""
        check_range(lo, hi, self.length)
        number, local = child_of(self.children, corpus)
        child = self.children[number]
        runs, windows = child.windows_of(local, documents)
        whichs, places = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        # Elements that the mixture never reaches have positions too large to count with.
        reached = int(grain_given([-(-self.length // self.hosts)], self.shares)[0, number]) * self.hosts
        for epoch in range(child.epochs):
            which, found = child.samples_of(windows, epoch)
            kept = found < reached
            whichs.append(runs[which[kept]])
            places.append(found[kept])
        which, place = np.concatenate(whichs), np.concatenate(places)
        element, host = place // self.hosts, place % self.hosts
        sample = grain_mix_place(number, element, self.shares) * self.hosts + host
        inside = (lo <= sample) & (sample < hi)
        hits = hits_in(child, local, documents, which[inside], place[inside])
        element, host = hits.sample // self.hosts, hits.sample % self.hosts
        sample = grain_mix_place(number, element, self.shares) * self.hosts + host
        return replace(hits, sample=sample)

    def describe(self) -> Node:
        """Return the mixture and, below it, each dataset with its share."""
        total = sum(self.shares)
        children = tuple(
            Node(f"{share}/{total} x {child.describe().text}")
            for share, child in zip(self.shares, self.children, strict=True)
        )
        rows = f"{self.length:,} samples x {self.row_tokens:,} tokens"
        return Node(f"{self.name} [{rows}, {self.hosts} host{'s' * (self.hosts > 1)}]", children)
