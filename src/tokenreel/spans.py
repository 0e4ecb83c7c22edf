"""The currency between corpora, orders, packing and feeds: `SpanTable`, its flags, and a corpus as orders see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Protocol

from tokenreel.errors import OrderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

UNRESOLVED = -1


class Flag(IntFlag):
    """What an extent is in its document and sample."""

    HEAD = 1
    """Starts its document."""
    TAIL = 2
    """Ends its document."""
    AHEAD = 4
    """The token at ``begin + length`` is the sample's last label."""
    CUT = 8
    """Truncated: its end is not the document's."""
    PAD = 16
    """Padding, no stored token."""


KEY_KINDS = ("identity", "tables", "files", "declared")
"""Kinds of corpus keys, strongest first: identity, hash of tables, names with sizes and times, a size stated."""


@dataclass(frozen=True, slots=True)
class CorpusKey:
    """What an order remembers of a corpus: enough to notice that it is another one."""

    kind: str
    """One of `KEY_KINDS`."""
    digest: str
    documents: int
    tokens: int

    def as_list(self) -> list[object]:
        """Return the JSON form that enters a fingerprint."""
        return [self.kind, self.digest, self.documents, self.tokens]


class DocTable(Protocol):
    """A corpus as orders see it: lengths and offsets of units (documents, or sequences) in one stream of tokens."""

    @property
    def key(self) -> CorpusKey:
        """The corpus's key."""
        ...

    @property
    def documents(self) -> int:
        """Number of units."""
        ...

    @property
    def tokens(self) -> int:
        """Stored tokens of the whole stream."""
        ...

    def lengths(self, i: int, j: int) -> I64:
        """Return the stored lengths of units [i, j)."""
        ...

    def offsets_at(self, docs: I64) -> I64:
        """Return the first token of each unit named, in any order."""
        ...

    def at_tokens(self, positions: I64) -> I64:
        """Return which unit holds each position of the stream."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SpanTable:
    """Extents of samples, as compressed rows: sample k owns extents ``splits[k]:splits[k + 1]``. Arrays are read-only.

    An extent is `length` input tokens of the stream of ``corpora[corpus]`` from token `begin`; the look-ahead is not
    counted. `document` and `start` (offset in that document) are -1 where unresolved: the extent may then cover several
    documents. An extent of length 0 is legal only with AHEAD: it is a label position, never input.
    """

    splits: I64
    corpus: npt.NDArray[np.int32]
    begin: I64
    length: I64
    document: I64
    start: I64
    flags: npt.NDArray[np.uint8]

    @classmethod
    def of(
        cls,
        splits: npt.ArrayLike,
        begin: npt.ArrayLike,
        length: npt.ArrayLike,
        *,
        corpus: npt.ArrayLike = 0,
        document: npt.ArrayLike = UNRESOLVED,
        start: npt.ArrayLike = UNRESOLVED,
        flags: npt.ArrayLike = 0,
    ) -> SpanTable:
        """Make a table from columns; scalars are repeated for every extent. The arrays are read-only copies.

        Raises `OrderError` (ORD004) for columns that differ in length or hold what their type cannot.

        >>> table = SpanTable.of([0, 1], [4], [3], flags=Flag.AHEAD)
        >>> table.samples, table.extents, table.label_positions
        (1, 1, 3)
        """
        import numpy as np

        edges = np.array(splits, dtype=np.int64)
        begins = np.array(begin, dtype=np.int64)

        def column(values: npt.ArrayLike, dtype: Any) -> npt.NDArray[Any]:
            try:
                return np.array(np.broadcast_to(np.asarray(values, dtype=dtype), begins.shape))
            except (ValueError, OverflowError) as error:
                raise OrderError("ORD004", f"a column of {len(begins)} extents: {error}") from error

        table = cls(
            edges,
            column(corpus, np.int32),
            begins,
            column(length, np.int64),
            column(document, np.int64),
            column(start, np.int64),
            column(flags, np.uint8),
        )
        for array in table.columns():
            array.flags.writeable = False
        return table

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the seven arrays in their declared order."""
        return self.splits, self.corpus, self.begin, self.length, self.document, self.start, self.flags

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.splits) - 1

    @property
    def extents(self) -> int:
        """Number of extents."""
        return len(self.begin)

    @property
    def tokens(self) -> int:
        """Input tokens of all samples; padding counts, look-ahead does not."""
        return int(self.length.sum())

    @property
    def label_positions(self) -> int:
        """Stored tokens that are labels: each sample's tokens but the first, and its look-ahead; never padding."""
        import numpy as np

        stored = np.where((self.flags & Flag.PAD) != 0, 0, self.length)
        labels = np.concatenate(([0], np.cumsum(stored + ((self.flags & Flag.AHEAD) != 0))))
        per_sample = labels[self.splits[1:]] - labels[self.splits[:-1]] - 1
        return int(np.maximum(per_sample, 0).sum())

    def sample_tokens(self) -> I64:
        """Return the input tokens of each sample."""
        import numpy as np

        total = np.concatenate(([0], np.cumsum(self.length)))
        return np.asarray(total[self.splits[1:]] - total[self.splits[:-1]], dtype=np.int64)

    def sample_of(self) -> I64:
        """Return, per extent, the row of the table it belongs to."""
        import numpy as np

        return np.repeat(np.arange(self.samples, dtype=np.int64), np.diff(self.splits))

    def check(self, sizes: Sequence[int]) -> None:
        """Raise `OrderError` unless the table is well formed over corpora of `sizes` tokens (ORD003, ORD004).

        Checks monotone splits, corpus numbers, ranges, look-ahead positions, zero lengths and one AHEAD per sample, last.
        """
        import numpy as np

        splits, corpus, flags = self.splits, self.corpus, self.flags
        if len(splits) == 0 or splits[0] != 0 or splits[-1] != self.extents or bool((np.diff(splits) < 0).any()):
            found = f"{len(splits)} splits, {splits[:1].tolist()} .. {splits[-1:].tolist()}"
            raise OrderError("ORD004", "splits do not cover the extents", expected=f"0 .. {self.extents}", found=found)
        if any(len(column) != self.extents for column in self.columns()[1:]):
            raise OrderError("ORD004", "columns differ in length", expected=self.extents)
        if self.extents == 0:
            return
        ahead = (flags & Flag.AHEAD) != 0
        stored = (flags & Flag.PAD) == 0
        limit = np.asarray(list(sizes), dtype=np.int64)
        unknown = (corpus < 0) | (corpus >= len(limit))
        if bool(unknown.any()):
            k = int(unknown.argmax())
            raise OrderError("ORD003", f"extent {k}", expected=f"a corpus below {len(limit)}", found=int(corpus[k]))
        if bool(((self.length < 0) | ((self.length == 0) & ~ahead)).any()):
            raise OrderError("ORD004", "an extent of length 0 without look-ahead, or a negative length")
        # The end is never computed: it could pass 2**63.
        outside = stored & ((self.begin < 0) | (self.begin > limit[corpus] - self.length - ahead))
        if bool(outside.any()):
            k = int(outside.argmax())
            raise OrderError(
                "ORD003",
                f"extent {k} reads past corpus {int(corpus[k])}",
                expected=f"at most {int(limit[corpus[k]])} tokens",
                found=int(self.begin[k]) + int(self.length[k]) + int(ahead[k]),
            )
        last = np.zeros(self.extents, dtype=bool)
        last[splits[1:][np.diff(splits) > 0] - 1] = True
        if bool((ahead & ~last).any()):
            raise OrderError("ORD004", "a look-ahead that is not on its sample's last extent")
