"""`stream@1`: a corpus read end to end in rows of fixed length, in stored order.

Sample k is the tokens ``[k*S, k*S + S)`` of the stream and, with look-ahead, the label at ``k*S + S``. Everything is
closed form: memory is O(1) and seeking is free. The tail that fills no row is not read; `dropped` says how long it is.
Rows may begin at another token than the first: k*S then counts from `origin`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tokenreel.errors import OrderError
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, no_components, own_samples
from tokenreel.spans import CorpusKey, Flag, SpanTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.spans import DocTable


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """The stream of one corpus in rows of `row_tokens` input tokens.

    `shard_tokens` are the stored tokens of the corpus's shards in order: what `at` and `where` translate with.

    >>> from tokenreel.spans import CorpusKey
    >>> order = StreamOrder(CorpusKey("files", "00", 2, 11), row_tokens=5, shard_tokens=(7, 4))
    >>> order.length, order.dropped
    (2, 0)
    >>> order.at(1, 3), order.where(10)
    (10, (1, 3))
    """

    key: CorpusKey
    row_tokens: int
    row_ahead: int = 1
    shard_tokens: tuple[int, ...] = ()
    table: DocTable | None = field(default=None, repr=False, compare=False)
    """Needed by `locate` only."""
    origin: int = 0
    """Token that sample 0 begins with."""

    name: ClassVar[str] = "stream@1"
    children: ClassVar[tuple[Order, ...]] = ()
    locate_cost: ClassVar[Literal["closed"]] = "closed"

    def __post_init__(self) -> None:
        if not 1 <= self.row_tokens <= (1 << 31) - 1:
            raise OrderError("ORD002", "row_tokens", expected="1 .. 2**31 - 1", found=self.row_tokens)
        if self.row_ahead not in (0, 1):
            raise OrderError("ORD002", "row_ahead", expected="0 or 1", found=self.row_ahead)
        if not 0 <= self.origin <= self.key.tokens:
            raise OrderError("ORD002", "origin", expected=f"0 .. {self.key.tokens}", found=self.origin)
        if self.shard_tokens and (sum(self.shard_tokens) != self.key.tokens or min(self.shard_tokens) < 0):
            raise OrderError(
                "ORD002", "the shards' tokens do not sum", expected=self.key.tokens, found=sum(self.shard_tokens)
            )

    @classmethod
    def over(
        cls, table: DocTable, row_tokens: int, row_ahead: int = 1, shard_tokens: tuple[int, ...] = ()
    ) -> StreamOrder:
        """Make the order over a corpus's table."""
        return cls(table.key, row_tokens, row_ahead, shard_tokens, table)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The one corpus."""
        return (self.key,)

    @property
    def length(self) -> int:
        """Whole rows in the stream."""
        return max(0, (self.key.tokens - self.origin - self.row_ahead) // self.row_tokens)

    @property
    def dropped(self) -> int:
        """Stored tokens from `origin` on that no row holds, the last row's look-ahead not counted; all when there is no row."""
        read = self.length * self.row_tokens + self.row_ahead if self.length else 0
        return self.key.tokens - self.origin - read

    @property
    def fingerprint(self) -> str:
        """Hash of name, parameters and corpus key; the shards' sizes do not enter."""
        origin = {"origin": self.origin} if self.origin else {}
        return fingerprint(
            self.name, {"row_ahead": self.row_ahead, "row_tokens": self.row_tokens, **origin}, self.corpora
        )

    def fingerprint_until(self, i: int) -> str:
        """Return the whole fingerprint: two streams share a prefix only when they are the same."""
        self._check(i, i)
        return self.fingerprint

    def at(self, shard: int, offset: int) -> int:
        """Return the stream position of token `offset` of shard number `shard`; raises `OrderError` (ORD003)."""
        if not (0 <= shard < len(self.shard_tokens) and 0 <= offset <= self.shard_tokens[shard]):
            raise OrderError("ORD003", "no such position", found=f"shard {shard}, token {offset}")
        return sum(self.shard_tokens[:shard]) + offset

    def where(self, position: int) -> tuple[int, int]:
        """Return (shard number, token offset) of a stream position; the end of the stream is the last shard's end."""
        if not self.shard_tokens and self.key.tokens:
            raise OrderError("ORD002", "the order was made without its shards' tokens", expected="shard_tokens")
        left = position
        for shard, tokens in enumerate(self.shard_tokens):
            if 0 <= left < tokens:
                return shard, left
            left -= tokens
        if left == 0 and self.shard_tokens:
            return len(self.shard_tokens) - 1, self.shard_tokens[-1]
        raise OrderError("ORD003", "no such position", expected=f"0 .. {self.key.tokens}", found=position)

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j): one extent each, documents unresolved."""
        import numpy as np

        self._check(i, j)
        return self._table(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        return self._table(own_samples(samples, self.length))

    def _table(self, samples: npt.NDArray[np.int64]) -> SpanTable:
        import numpy as np

        splits = np.arange(len(samples) + 1, dtype=np.int64)
        flags = Flag.AHEAD if self.row_ahead else 0
        return SpanTable.of(splits, self.origin + samples * self.row_tokens, self.row_tokens, flags=int(flags))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return zeros: there is one component."""
        return no_components(samples)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi); closed form over the document table."""
        import numpy as np

        self._check(lo, hi)
        if corpus != 0 or self.table is None:
            raise OrderError("ORD002", "locate needs the corpus's table", expected="corpus 0", found=corpus)
        docs = np.asarray(documents, dtype=np.int64)
        begins = self.table.offsets_at(docs)
        sizes = np.array([int(self.table.lengths(int(d), int(d) + 1)[0]) for d in docs], dtype=np.int64)
        columns: list[tuple[int, int, int, int]] = []
        for document, begin, size in zip(docs.tolist(), begins.tolist(), sizes.tolist(), strict=True):
            first = max(lo, (begin - self.origin) // self.row_tokens)
            last = min(hi, -(-(begin + size - self.origin) // self.row_tokens))
            for sample in range(first, last if size else first):
                low = max(begin, self.origin + sample * self.row_tokens)
                high = min(begin + size, self.origin + (sample + 1) * self.row_tokens)
                columns.append((document, sample, low, high - low))
        table: Any = np.array(columns, dtype=np.int64).reshape(-1, 4).T
        return Hits(table[0], table[1], np.zeros_like(table[0]), table[2], table[3])

    def prepare(self, cache: object = None) -> StreamOrder:  # noqa: ARG002
        """Return self: there is nothing to prepare."""
        return self

    def describe(self) -> Node:
        """Return one line."""
        origin = f" from token {self.origin:,}" if self.origin else ""
        text = f"{self.name} [{self.length:,} samples x {self.row_tokens:,} tokens{origin}] {self.key.digest[:12]}"
        return Node(text)

    def _check(self, i: int, j: int) -> None:
        check_range(i, j, self.length)
