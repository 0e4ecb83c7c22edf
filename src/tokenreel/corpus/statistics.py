"""Exact statistics of a corpus in one pass: length quantiles, largest id, how documents begin and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.corpus.lengths import Lengths

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tokenreel.formats import Boundary


@dataclass(frozen=True, slots=True)
class Statistics:
    """What one pass over a corpus counts; shares are exact counts over documents."""

    documents: int
    tokens: int
    empty_documents: int
    quantiles: tuple[tuple[float, int], ...]
    """(q, stored length): the smallest length that at least q of the documents do not exceed."""
    mean_length: float
    max_id: int | None
    starts_with_prefix: int
    ends_with_suffix: int
    suffix_inside: int
    """Occurrences of a one-token suffix anywhere but at a document's end."""
    double_suffix: int
    """Documents that end with a one-token suffix twice."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form of manifests; integers and short decimals only."""
        return {
            "documents": self.documents,
            "tokens": self.tokens,
            "empty_documents": self.empty_documents,
            "length_quantiles": {format(q, "g"): length for q, length in self.quantiles},
            "max_id": self.max_id,
            "starts_with_prefix": self.starts_with_prefix,
            "ends_with_suffix": self.ends_with_suffix,
            "suffix_inside": self.suffix_inside,
            "double_suffix": self.double_suffix,
        }


class StatisticsCounter:
    """Counts batches of whole documents; memory is half a MiB and 8 bytes per document of 65,536 tokens and more.

    >>> import numpy as np
    >>> from tokenreel.formats import Boundary
    >>> counter = StatisticsCounter(Boundary(suffix=(0,)))
    >>> counter.update(np.array([5, 0, 6, 7, 0]), np.array([2, 3]))
    >>> stats = counter.finish()
    >>> stats.documents, stats.max_id, stats.ends_with_suffix, dict(stats.quantiles)[0.5]
    (2, 7, 2, 2)
    """

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._lengths = Lengths()
        self._max: int | None = None
        self._starts = self._ends = self._inside = self._double = 0

    def update(
        self,
        ids: npt.NDArray[np.integer[Any]],
        lengths: npt.NDArray[np.integer[Any]],
        *,
        largest: int | None = None,
        prefixes: int | None = None,
        suffixes: tuple[int, int, int] | None = None,
    ) -> None:
        """Add whole documents, end to end.

        Who knows it says what their largest id is, how many begin with the prefix, and of the suffix, how many end with it,
        end with two, and how often it stands anywhere.
        """
        import numpy as np

        sizes = np.asarray(lengths, dtype=np.int64)
        self._lengths.add(sizes)
        if ids.size:
            here = int(ids.max()) if largest is None else largest
            self._max = max(here, -1 if self._max is None else self._max)
        prefix, suffix = self._boundary.prefix, self._boundary.suffix
        ends = np.cumsum(sizes)
        if prefix and prefixes is None:
            prefixes = int(_match(ids, ends - sizes, sizes, prefix).sum())
        if suffix and suffixes is None:
            proper = int(np.count_nonzero(_match(ids, ends - len(suffix), sizes, suffix)))
            single = len(suffix) == 1
            double = int(_match(ids, ends - 2, sizes, suffix * 2).sum()) if single else 0
            suffixes = proper, double, int(np.count_nonzero(ids == suffix[0])) if single else 0
        self._starts += prefixes or 0
        if suffixes:
            self._ends += suffixes[0]
            if len(suffix) == 1:
                self._double += suffixes[1]
                self._inside += suffixes[2] - suffixes[0]

    def join(self, other: StatisticsCounter) -> None:
        """Add what was added to `other`, a counter for the same boundary."""
        self._lengths.join(other._lengths)
        if other._max is not None:
            self._max = max(other._max, -1 if self._max is None else self._max)
        self._starts += other._starts
        self._ends += other._ends
        self._inside += other._inside
        self._double += other._double

    def finish(self) -> Statistics:
        """Return the statistics of everything added."""
        lengths = self._lengths
        return Statistics(
            lengths.count,
            lengths.total,
            lengths.empty,
            tuple(lengths.quantiles().items()),
            lengths.total / lengths.count if lengths.count else 0.0,
            self._max,
            self._starts,
            self._ends,
            self._inside,
            self._double,
        )


def _match(
    ids: npt.NDArray[np.integer[Any]],
    at: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    wanted: tuple[int, ...],
) -> npt.NDArray[np.bool_]:
    import numpy as np

    found: npt.NDArray[np.bool_] = sizes >= len(wanted)
    if not ids.size:
        return found & False
    for k, value in enumerate(wanted):
        found = found & (ids[np.clip(at + k, 0, len(ids) - 1)] == value)
    return found
