"""What a packing policy does to a corpus, counted exactly over one pass: rows, padding, cuts, losses, attention saved."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import kernel
from tokenreel.pack.packed_rows import AHEAD, ConcatRows, FlatRows, PlannedRows
from tokenreel.pack.plan import make_plan

if TYPE_CHECKING:
    from tokenreel.pack.packed import PackedOrder
    from tokenreel.pack.packed_files import FileRows
    from tokenreel.pack.packed_policy import Packing
    from tokenreel.pack.packed_ranks import RankRows
    from tokenreel.pack.plan import Plan
    from tokenreel.pack.plan_sizes import Sizes

CHUNK = 1 << 15
READ = "Array({}, 1, 'C', True)"


@dataclass(frozen=True, slots=True)
class PackStats:
    """Counts of one pass. ``kept + cropped + dropped == tokens`` and ``kept + padded == rows * row_takes``."""

    packing: dict[str, object]
    row_tokens: int
    row_takes: int
    """Tokens of documents that a full row takes: its inputs, and one more where its last label is its own."""
    documents: int
    tokens: int
    rows: int
    kept: int
    """Tokens that stand in rows, each once: as inputs, or as a row's own last label."""
    last_labels: int
    """Of those, the ones that are a row's last label and no row's input."""
    padded: int
    """Room of rows that holds no token."""
    cropped: int
    """Tokens that are lost of documents that stand in rows."""
    dropped: int
    """Tokens of documents that stand in no row."""
    documents_dropped: int
    documents_cut: int
    """Documents in more than one piece, or not whole."""
    cut_needlessly: int
    """Of those, the ones that are no longer than a row takes."""
    pieces: int
    pairs: int
    """Pairs of tokens that attention sees within pieces (padding is one); whole rows have ``S * (S + 1) / 2`` each."""

    @property
    def padding(self) -> float:
        """Share of rows that holds no token."""
        return self.padded / (self.rows * self.row_takes) if self.rows else 0.0

    @property
    def lost(self) -> float:
        """Share of the corpus's tokens that no row holds."""
        return (self.cropped + self.dropped) / self.tokens if self.tokens else 0.0

    @property
    def attention_saved(self) -> float:
        """Share of the pairs of causal attention over whole rows that masks by document leave out."""
        whole = self.rows * (self.row_tokens * (self.row_tokens + 1) // 2)
        return 1 - self.pairs / whole if whole else 0.0

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form, with the three shares."""
        shares = {"padding": self.padding, "lost": self.lost, "attention_saved": self.attention_saved}
        return {**asdict(self), **shares}


def pack_stats(
    sizes: Sizes, packing: Packing, seed: int = 0, *, plan: Plan | None = None, threads: int = 1
) -> PackStats:
    """Pack the documents of a corpus once and count; 8 bytes a document besides the plan. About 0.2 us a document.

    >>> from tokenreel.pack.packed_policy import Packing
    >>> from tokenreel.pack.plan_sizes import Sizes
    >>> stats = pack_stats(Sizes.of_lengths([5, 3, 7, 12]), Packing.of("bestfit", 8, oversize="split"))
    >>> stats.rows, stats.kept, stats.padded, stats.documents_cut, stats.cut_needlessly, stats.lost
    (4, 27, 5, 1, 0, 0.0)
    """
    laid: ConcatRows | PlannedRows
    if packing.policy in ("concat", "flat"):
        laid = ConcatRows(sizes, packing.row_tokens, packing.tail == "drop")
    else:
        laid = PlannedRows(sizes, plan or make_plan(sizes, packing, seed, threads), packing)
    return _count(laid, sizes, packing)


def order_stats(order: PackedOrder) -> PackStats:
    """Count one pass of a prepared order: what `pack_stats` does, of the rows that `compat` shares out among ranks too.

    Rows of padding that a rank is filled up with count as rows. Raises `OrderError`: ORD014 where it is not prepared, ORD002
    for flat rows, which know no documents.

    >>> from tokenreel.spans import CorpusKey
    >>> from tokenreel.pack.packed import PackedOrder
    >>> from tokenreel.pack.packed_policy import Packing
    >>> from tokenreel.pack.plan_sizes import Sizes
    >>> order = PackedOrder(
    ...     CorpusKey("files", "00", 3, 12), Packing.of("concat", 4), 0, False, compat="hobbylm", ranks=2
    ... )
    >>> stats = order_stats(order.with_rows(Sizes.of_lengths([5, 2, 5])))
    >>> stats.rows, stats.kept, stats.padded
    (6, 12, 12)
    """
    if order.laid is None:
        raise OrderError("ORD014", hint="order = order.prepare()")
    if isinstance(order.laid, FlatRows):
        raise OrderError("ORD002", "flat rows", expected="pack_stats(sizes, packing)", found="an order")
    return _count(order.laid, order.laid.sizes, order.packing)


def _count(laid: ConcatRows | PlannedRows | RankRows | FileRows, sizes: Sizes, packing: Packing) -> PackStats:
    pieces = np.zeros(sizes.documents, dtype=np.uint32)
    kept = np.zeros(sizes.documents, dtype=np.uint32)
    totals = np.zeros(3, dtype=np.int64)
    for low in range(0, laid.rows, CHUNK):
        table = laid.extents(np.arange(low, min(laid.rows, low + CHUNK), dtype=np.int64))
        _tally(table.document, table.length, table.flags, packing.own_ahead, pieces, kept, totals)
    out = np.zeros(6, dtype=np.int64)
    _judge(sizes.lengths, pieces, kept, packing.takes, out)
    cropped, dropped, documents_dropped, cut, needlessly, in_rows = out.tolist()
    padded, pairs, labels = totals.tolist()
    padded += (laid.rows - labels) * packing.own_ahead
    if packing.policy == "flat":
        pairs = _pairs_of_flat(sizes.tokens, packing.row_tokens)
    return PackStats(
        packing.as_dict(), packing.row_tokens, packing.takes, sizes.documents, sizes.tokens, laid.rows, in_rows, labels,
        padded, cropped, dropped, documents_dropped, cut, needlessly, int(pieces.sum(dtype=np.int64)), pairs,
    )  # fmt: skip


def _pairs_of_flat(tokens: int, room: int) -> int:
    """Return the pairs of rows that nothing is masked in, but for the padding at the end."""
    rows = FlatRows(tokens, room).rows
    last = tokens - (rows - 1) * room if rows else 0
    return max(0, rows - 1) * (room * (room + 1) // 2) + sum(n * (n + 1) // 2 for n in (last, rows and room - last))


@kernel(
    f"void({READ.format('int64')}, {READ.format('int64')}, {READ.format('uint8')}, boolean, uint32[::1], uint32[::1], "
    "int64[::1])"
)
def _tally(document: Any, length: Any, flags: Any, own_ahead: bool, pieces: Any, kept: Any, totals: Any) -> None:
    for e in range(len(document)):
        if document[e] < 0:
            totals[0] += length[e]
        else:
            label = 1 if own_ahead and flags[e] & AHEAD else 0
            pieces[document[e]] += 1
            kept[document[e]] += length[e] + label
            totals[2] += label
        totals[1] += length[e] * (length[e] + 1) // 2


@kernel(f"void({READ.format('uint32')}, {READ.format('uint32')}, {READ.format('uint32')}, int64, int64[::1])")
def _judge(lengths: Any, pieces: Any, kept: Any, room: int, out: Any) -> None:
    for d in range(len(lengths)):
        size, held = np.int64(lengths[d]), np.int64(kept[d])
        out[5] += held
        if held == 0:
            out[1] += size
            out[2] += 1 if size > 0 else 0
        elif pieces[d] > 1 or held < size:
            out[0] += size - held
            out[3] += 1
            out[4] += 1 if size <= room else 0
