"""Lengths of a corpus's documents in memory that ranks can share: 4 bytes a document, and an edge for every 16th.

What a packed order needs of its corpus to lay any row out: where a document begins, how long it is, which document holds a
token. A sum of at most 15 lengths, one line of a cache, stands in for an edge of every document, so that 100 million
documents take 450 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import inlined, kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.spans import DocTable

    I64 = npt.NDArray[np.int64]
    U32 = npt.NDArray[np.uint32]

SHIFT = 4
BLOCK = 1 << SHIFT
READ = 1 << 20
LONGEST = (1 << 32) - 1
READ_U32, READ_I64 = "Array(uint32, 1, 'C', True)", "Array(int64, 1, 'C', True)"
"""Arrays that a kernel only reads: they may be maps of files."""


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """Lengths of documents, end to end in one stream.

    >>> sizes = Sizes.of_lengths(np.array([3, 0, 5]))
    >>> sizes.offsets_at(np.array([0, 1, 2, 3])).tolist(), sizes.at_tokens(np.array([2, 3])).tolist()
    ([0, 3, 3, 8], [0, 2])
    """

    lengths: U32
    """Stored tokens of each document."""
    begins: I64
    """First token of every 16th document, and the end of the stream."""

    @classmethod
    def of(cls, table: DocTable) -> Sizes:
        """Read a table once, in order. Raises `OrderError` (ORD002) for a document of 2**32 tokens or more."""
        lengths = np.empty(table.documents, dtype=np.uint32)
        for low in range(0, table.documents, READ):
            high = min(table.documents, low + READ)
            some = np.asarray(table.lengths(low, high), dtype=np.int64)
            if int(some.max(initial=0)) > LONGEST:
                at = low + int(some.argmax())
                raise OrderError(
                    "ORD002", "tokens of a document", document=at, expected=f"at most {LONGEST}", found=int(some.max())
                )
            lengths[low:high] = some
        return cls.of_lengths(lengths)

    @classmethod
    def of_lengths(cls, lengths: npt.ArrayLike) -> Sizes:
        """Make the edges for lengths."""
        kept = np.ascontiguousarray(lengths, dtype=np.uint32)
        begins = np.empty(-(-len(kept) // BLOCK) + 1, dtype=np.int64)
        _sum_blocks(kept, begins)
        return cls(_readonly(kept), _readonly(begins))

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """Stored tokens."""
        return int(self.begins[-1])

    def offsets_at(self, documents: I64) -> I64:
        """Return the first token of each document; number `documents` stands for the end. Cost: about 15 ns each."""
        wanted = np.ascontiguousarray(documents, dtype=np.int64)
        out = np.empty(wanted.shape, dtype=np.int64)
        _offsets(self.lengths, self.begins, wanted.reshape(-1), out.reshape(-1))
        return out

    def at_tokens(self, positions: I64) -> I64:
        """Return which document holds each position of the stream; an empty one holds none."""
        wanted = np.ascontiguousarray(positions, dtype=np.int64)
        out = np.empty(wanted.shape, dtype=np.int64)
        _holders(self.lengths, self.begins, wanted.reshape(-1), out.reshape(-1))
        return out


def _readonly(array: Any) -> Any:
    array.flags.writeable = False
    return array


@inlined
def offset_of(lengths: Any, begins: Any, document: Any) -> Any:
    """Return the first token of one document."""
    block = document >> SHIFT
    at = begins[block]
    for k in range(block << SHIFT, document):
        at += np.int64(lengths[k])
    return at


@inlined
def block_of(edges: Any, value: Any) -> int:
    """Return the last block whose edge is at most `value`, of ascending edges; never the one that stands for the end."""
    low, high = 0, len(edges) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if edges[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@inlined
def holder_of(lengths: Any, begins: Any, position: Any) -> Any:
    """Return the document that holds a position, and its first token."""
    block = block_of(begins, position)
    at = begins[block]
    document = block << SHIFT
    while at + np.int64(lengths[document]) <= position:
        at += np.int64(lengths[document])
        document += 1
    return document, at


@kernel(f"void({READ_U32}, int64[::1])")
def _sum_blocks(lengths: Any, begins: Any) -> None:
    total = np.int64(0)
    for k in range(len(lengths)):
        if k & (BLOCK - 1) == 0:
            begins[k >> SHIFT] = total
        total += np.int64(lengths[k])
    begins[len(begins) - 1] = total


@kernel(f"void({READ_U32}, {READ_I64}, {READ_I64}, int64[::1])")
def _offsets(lengths: Any, begins: Any, documents: Any, out: Any) -> None:
    for k in range(len(documents)):
        out[k] = offset_of(lengths, begins, documents[k])


@kernel(f"void({READ_U32}, {READ_I64}, {READ_I64}, int64[::1])")
def _holders(lengths: Any, begins: Any, positions: Any, out: Any) -> None:
    for k in range(len(positions)):
        out[k] = holder_of(lengths, begins, positions[k])[0]
