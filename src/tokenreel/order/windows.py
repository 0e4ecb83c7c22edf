"""`windows@1`: a corpus's rows of fixed length, once per epoch, in a keyed random order.

Window w is the tokens ``[w*S, w*S + S)`` of the stream and, with look-ahead, the label at ``w*S + S``. Sample k is the
window at position ``k % windows`` of epoch ``k // windows``; every epoch has a key of its own. There is no index: memory is
O(1), any sample costs the same, and the inverse is closed form too. With `io` the windows are shuffled within groups of
blocks, so that storage reads large ranges (`BlockShuffle`); every epoch still reads each window exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from tokenreel.errors import OrderError
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, no_components, own_samples
from tokenreel.spans import CorpusKey, Flag, SpanTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.order.windows_shuffle import BlockShuffle
    from tokenreel.spans import DocTable

    I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WindowsOrder:
    """The windows of one corpus under a keyed permutation, `epochs` times over; endless where `epochs` is None.

    Raises `OrderError`: ORD002 for parameters out of range, ORD100 for epochs over a corpus that has no whole window.
    Cost: nothing to open; about 0.1 us a sample, anywhere.

    >>> from tokenreel.spans import CorpusKey
    >>> order = WindowsOrder(CorpusKey("files", "00", 2, 21), row_tokens=4, seed=7, epochs=2)
    >>> order.windows, order.length
    (5, 10)
    >>> order.spans(0, 5).begin.tolist(), order.spans(5, 10).begin.tolist()
    ([0, 8, 12, 16, 4], [0, 12, 4, 16, 8])
    """

    key: CorpusKey
    row_tokens: int
    seed: int
    row_ahead: int = 1
    epochs: int | None = 1
    io: BlockShuffle | None = None
    table: DocTable | None = field(default=None, repr=False, compare=False)
    """Needed by `locate` only."""

    name: ClassVar[str] = "windows@1"
    children: ClassVar[tuple[Order, ...]] = ()
    locate_cost: ClassVar[Literal["closed"]] = "closed"

    def __post_init__(self) -> None:
        if not 1 <= self.row_tokens <= (1 << 31) - 1:
            raise OrderError("ORD002", "row_tokens", expected="1 .. 2**31 - 1", found=self.row_tokens)
        if self.row_ahead not in (0, 1):
            raise OrderError("ORD002", "row_ahead", expected="0 or 1", found=self.row_ahead)
        if not 0 <= self.seed < 1 << 64:
            raise OrderError("ORD002", "seed", expected="0 .. 2**64 - 1", found=self.seed)
        if self.epochs is not None and self.epochs < 0:
            raise OrderError("ORD002", "epochs", expected="0 or more, or None", found=self.epochs)
        if self.windows == 0 and self.epochs != 0:
            needed = f"{self.row_tokens + self.row_ahead} tokens or more"
            raise OrderError("ORD100", expected=needed, found=self.key.tokens)
        if self.epochs is not None and self.epochs * self.windows >= 1 << 63:
            raise OrderError("ORD002", "samples", expected="fewer than 2**63", found=self.epochs * self.windows)

    @classmethod
    def over(
        cls,
        table: DocTable,
        row_tokens: int,
        seed: int,
        *,
        row_ahead: int = 1,
        epochs: int | None = 1,
        io: BlockShuffle | None = None,
    ) -> WindowsOrder:
        """Make the order over a corpus's table."""
        return cls(table.key, row_tokens, seed, row_ahead, epochs, io, table)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The one corpus."""
        return (self.key,)

    @property
    def windows(self) -> int:
        """Whole windows in the stream: the samples of one epoch."""
        return max(0, (self.key.tokens - self.row_ahead) // self.row_tokens)

    @property
    def epoch_samples(self) -> int:
        """Samples of one epoch."""
        return self.windows

    @property
    def length(self) -> int | None:
        """Samples of all epochs; None is endless."""
        return None if self.epochs is None else self.epochs * self.windows

    @property
    def dropped(self) -> int:
        """Stored tokens at the stream's end that no window holds, the last look-ahead not counted among them."""
        return self.key.tokens - (self.windows * self.row_tokens + self.row_ahead if self.windows else 0)

    @property
    def fingerprint(self) -> str:
        """Hash of name, parameters and corpus key."""
        return fingerprint(self.name, {**self._parameters(), "epochs": self.epochs}, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return a hash that does not know how many epochs follow: more of them may be appended."""
        self._check(i, i)
        return fingerprint(self.name, self._parameters(), self.corpora)

    def _parameters(self) -> dict[str, object]:
        io = None if self.io is None else [self.io.block, self.io.together]
        return {"io": io, "row_ahead": self.row_ahead, "row_tokens": self.row_tokens, "seed": self.seed}

    def window_at(self, samples: npt.ArrayLike) -> I64:
        """Return the window that each sample reads."""
        from tokenreel.order.windows_shuffle import windows_at

        wanted = own_samples(samples, self.length)
        if wanted.size == 0:
            return wanted
        return windows_at(self.windows, self.seed, self.io, wanted // self.windows, wanted % self.windows)

    def sample_of(self, windows: npt.ArrayLike, epoch: int) -> I64:
        """Return the sample that reads each window in `epoch`; raises `OrderError` (ORD001) for a window outside."""
        import numpy as np

        from tokenreel.order.windows_shuffle import places_of

        asked = np.asarray(windows, dtype=np.int64)
        if asked.size == 0:
            return asked
        if int(asked.min()) < 0 or int(asked.max()) >= self.windows:
            raise OrderError(
                "ORD001", "a window", expected=f"0 .. {self.windows - 1}", found=f"{asked.min()} .. {asked.max()}"
            )
        self._check(epoch * self.windows, (epoch + 1) * self.windows)
        epochs = np.full(asked.shape, epoch, dtype=np.int64)
        return epoch * self.windows + places_of(self.windows, self.seed, self.io, epochs, asked)

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j): one extent each, documents unresolved."""
        import numpy as np

        self._check(i, j)
        return self.spans_at(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        import numpy as np

        windows = self.window_at(np.asarray(samples, dtype=np.int64).reshape(-1))
        splits = np.arange(len(windows) + 1, dtype=np.int64)
        flags = Flag.AHEAD if self.row_ahead else 0
        return SpanTable.of(splits, windows * self.row_tokens, self.row_tokens, flags=int(flags))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return zeros: there is one component."""
        return no_components(samples)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), by document as asked, then by sample; closed form."""
        import numpy as np

        from tokenreel.order.windows_shuffle import places_of

        self._check(lo, hi)
        if corpus != 0 or self.table is None:
            raise OrderError("ORD002", "locate needs the corpus's table", expected="corpus 0", found=corpus)
        docs = np.asarray(documents, dtype=np.int64).reshape(-1)
        begin, end = self.table.offsets_at(docs), self.table.offsets_at(docs + 1)
        which, window = covered(begin, end, self.row_tokens, self.windows)
        if lo == hi or len(which) == 0:
            return Hits(*(np.empty(0, dtype=np.int64) for _ in range(5)))
        first, last = lo // self.windows, (hi - 1) // self.windows
        epochs = np.arange(first, last + 1, dtype=np.int64)
        which, window = np.repeat(which, len(epochs)), np.repeat(window, len(epochs))
        epoch = np.tile(epochs, len(which) // len(epochs))
        sample = epoch * self.windows + places_of(self.windows, self.seed, self.io, epoch, window)
        kept = np.flatnonzero((sample >= lo) & (sample < hi))
        kept = kept[np.lexsort((sample[kept], which[kept]))]
        which, window, sample = which[kept], window[kept], sample[kept]
        low = np.maximum(begin[which], window * self.row_tokens)
        high = np.minimum(end[which], (window + 1) * self.row_tokens)
        return Hits(docs[which], sample, np.zeros_like(sample), low, high - low)

    def prepare(self, cache: object = None) -> WindowsOrder:  # noqa: ARG002
        """Return self: there is nothing to prepare."""
        return self

    def describe(self) -> Node:
        """Return one line."""
        epochs = "endless" if self.epochs is None else f"{self.epochs:,} x"
        io = "" if self.io is None else f", io {self.io.block:,} x {self.io.together:,}"
        return Node(
            f"{self.name} [{epochs} {self.windows:,} samples x {self.row_tokens:,} tokens{io}] {self.key.digest[:12]}"
        )

    def _check(self, i: int, j: int) -> None:
        check_range(i, j, self.length)


def covered(begin: I64, end: I64, width: int, windows: int) -> tuple[I64, I64]:
    """Return, for runs ``[begin, end)`` of a stream cut into windows, pairs of (run, window it has tokens in).

    >>> import numpy as np
    >>> [a.tolist() for a in covered(np.array([0, 9]), np.array([9, 9]), 4, 2)]
    [[0, 0], [0, 1]]
    """
    import numpy as np

    first = begin // width
    count = np.where(end > begin, np.minimum(-(-end // width), windows) - first, 0)
    count = np.maximum(count, 0)
    which = np.repeat(np.arange(len(begin), dtype=np.int64), count)
    within = np.arange(len(which), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    return which, first[which] + within
