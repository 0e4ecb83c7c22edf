"""How well an order is shuffled, in four figures that a data loader and a loss curve feel.

Runs: how long the order stays with one source, beside what independent draws of the same shares would do. Entropy: how
evenly sources are spread inside each window of samples, beside the whole. Neighbours: whether a sample's place in its
corpus predicts the next one's, and how many samples simply follow the one before. Reads: how many bytes one contiguous
read brings when the samples of a read-ahead buffer are fetched together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.spans import Flag

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.spans import SpanTable

    I64 = npt.NDArray[np.int64]

Source = Literal["component", "corpus", "region"]


@dataclass(frozen=True, slots=True)
class ShuffleQuality:
    """Figures over samples [first, first + samples)."""

    first: int
    samples: int
    sources: int
    """Sources that occur."""
    mean_run: float
    """Samples that come from one source in a row, on average."""
    longest_run: int
    expected_run: float
    """Mean run of independent draws with the same shares."""
    entropy: float
    """Of all samples' sources, in bits."""
    window_entropy: float
    """Of the sources inside one window, on average; never above `entropy` by more than chance."""
    least_entropy: float
    """Of the most uneven whole window."""
    correlation: float | None
    """Of neighbours' places in the stream, -1 .. 1; None where all places are the same."""
    adjacent: float
    """Share of samples that begin where the one before ended."""
    reads: int
    """Contiguous ranges fetched, a buffer of samples at a time."""
    bytes_per_read: float
    bytes_per_token: float
    """Bytes fetched for every input token used: the token's own size, and more where gaps are read over."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def shuffle_quality(
    order: Order,
    first: int,
    samples: int,
    *,
    source: Source | None = None,
    regions: int = 64,
    window: int = 256,
    buffer: int = 1024,
    gap: int = 0,
    itemsize: int = 2,
) -> ShuffleQuality:
    """Return the shuffle quality of `samples` samples from `first` on; pure; about 1 us a sample.

    A sample's source is its component, its corpus, or which of `regions` equal parts of its corpus it begins in; by default
    the component of a mixture, else the corpus of several, else the region. Reads are counted for every `buffer` samples
    fetched together; ranges at most `gap` tokens apart are read as one, of `itemsize` bytes a token.
    Raises `OrderError`: ORD001 outside the order, ORD002 for fewer than 2 samples or sizes below 1.

    >>> from tokenreel.order.stream import StreamOrder
    >>> from tokenreel.spans import CorpusKey
    >>> quality = shuffle_quality(StreamOrder(CorpusKey("files", "00", 1, 40_001), row_tokens=10), 0, 4000)
    >>> quality.adjacent, quality.longest_run, quality.bytes_per_read > 20_000
    (0.99975, 63, True)
    """
    if samples < 2 or min(regions, window, buffer, itemsize) < 1 or gap < 0:
        found = {
            "samples": samples,
            "regions": regions,
            "window": window,
            "buffer": buffer,
            "itemsize": itemsize,
            "gap": gap,
        }
        raise OrderError("ORD002", "sizes", expected="2 samples, the others positive, gap 0 or more", found=found)
    if source is None:
        source = "component" if order.children else "corpus" if len(order.corpora) > 1 else "region"
    sizes = np.array([max(1, key.tokens) for key in order.corpora], dtype=np.int64)
    sources, places, ends = (np.empty(samples, dtype=np.int64) for _ in range(3))
    corpora = np.empty(samples, dtype=np.int64)
    reads, fetched, used = 0, 0, 0
    step = max(1, (1 << 16) // buffer) * buffer
    for begin in range(first, first + samples, step):
        end = min(first + samples, begin + step)
        table = order.spans(begin, end)
        at = slice(begin - first, end - first)
        corpora[at], places[at], ends[at] = _ends(table)
        if source == "component":
            sources[at] = order.components_at(np.arange(begin, end))
        for number in range(0, table.samples, buffer):
            ranges, tokens = _ranges(table, number, min(number + buffer, table.samples), gap)
            reads += ranges
            fetched += tokens
        used += table.tokens
    if source == "corpus":
        sources = corpora
    elif source == "region":
        within = (places / sizes[corpora] * regions).astype(np.int64)
        sources = corpora * regions + np.minimum(within, regions - 1)
    names, sources = np.unique(sources, return_inverse=True)
    shares = np.bincount(sources) / samples
    runs = np.diff(np.flatnonzero(np.concatenate(([True], sources[1:] != sources[:-1], [True]))))
    windows = _window_entropies(sources, len(names), window)
    follows = (corpora[1:] == corpora[:-1]) & (places[1:] == ends[:-1])
    return ShuffleQuality(
        first=first,
        samples=samples,
        sources=len(names),
        mean_run=float(runs.mean()),
        longest_run=int(runs.max()),
        expected_run=float(samples / (1 + (samples - 1) * (1 - (shares**2).sum()))),
        entropy=_entropy(shares),
        window_entropy=float(windows.mean()),
        least_entropy=float(windows.min()),
        correlation=_correlation(places / sizes[corpora]),
        adjacent=float(follows.sum() / samples),
        reads=reads,
        bytes_per_read=fetched * itemsize / max(1, reads),
        bytes_per_token=fetched * itemsize / max(1, used),
    )


def _ends(table: SpanTable) -> tuple[I64, I64, I64]:
    """Return each sample's corpus and first token, and the token behind its last; an empty sample counts as token 0."""
    held = np.diff(table.splits) > 0
    corpora, places, ends = (np.zeros(table.samples, dtype=np.int64) for _ in range(3))
    head, tail = table.splits[:-1][held], table.splits[1:][held] - 1
    corpora[held], places[held] = table.corpus[head], table.begin[head]
    ends[held] = table.begin[tail] + table.length[tail]
    return corpora, places, ends


def _ranges(table: SpanTable, i: int, j: int, gap: int) -> tuple[int, int]:
    """Return how many contiguous ranges the stored tokens of samples [i, j) lie in, and the tokens of those ranges."""
    rows = slice(int(table.splits[i]), int(table.splits[j]))
    stored = (table.flags[rows] & Flag.PAD) == 0
    corpus, begin = table.corpus[rows][stored].astype(np.int64), table.begin[rows][stored]
    end = begin + table.length[rows][stored] + ((table.flags[rows][stored] & Flag.AHEAD) != 0)
    ranges, tokens = 0, 0
    for number in np.unique(corpus).tolist():
        mine = corpus == number
        by_begin = np.argsort(begin[mine], kind="stable")
        low, high = begin[mine][by_begin], np.maximum.accumulate(end[mine][by_begin])
        opens = np.concatenate(([True], low[1:] > high[:-1] + gap))
        closes = np.concatenate((opens[1:], [True]))
        ranges += int(opens.sum())
        tokens += int((high[closes] - low[opens]).sum())
    return ranges, tokens


def _entropy(shares: npt.NDArray[np.float64]) -> float:
    held = shares[shares > 0]
    return abs(float((held * np.log2(held)).sum()))


def _window_entropies(sources: I64, names: int, window: int) -> npt.NDArray[np.float64]:
    """Return the entropy of every whole window in bits; of all samples where there is no whole window."""
    window = min(window, len(sources))
    out = np.empty(len(sources) // window)
    for k in range(len(out)):
        out[k] = _entropy(np.bincount(sources[k * window : (k + 1) * window], minlength=names) / window)
    return out


def _correlation(places: npt.NDArray[np.float64]) -> float | None:
    a, b = places[:-1] - places[:-1].mean(), places[1:] - places[1:].mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum() / scale) if scale > 0 else None
