"""`packed@1`: documents put into rows by a policy, rows under a keyed permutation, once per epoch.

Which rows there are follows from the lengths of the documents, the policy and, among documents of equal length, the seed:
never from ranks, workers or batches. Sample k is the row at position ``k % rows`` of epoch ``k // rows``; its extents know
their documents, and what the last label of a row is (`packed_rows`). The permutation is computed, not stored, so that any
sample costs the same and a position is all there is to resume.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError, nearest
from tokenreel.order.locating import select
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.windows_shuffle import BlockShuffle, places_of, windows_at
from tokenreel.pack.packed_files import FileRows
from tokenreel.pack.packed_policy import Packing
from tokenreel.pack.packed_ranks import RankRows
from tokenreel.pack.packed_rows import CUT, TAIL, ConcatRows, FlatRows, PlannedRows
from tokenreel.pack.plan import make_plan
from tokenreel.pack.plan_sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.pack.plan import Plan
    from tokenreel.spans import CorpusKey, DocTable, SpanTable

    I64 = npt.NDArray[np.int64]

CHUNK = 1 << 14
COMPAT = {"hobbylm": "concat", "nanochat": "crop", "modded-nanogpt": "bos-aligned"}
"""The policy of each program whose share of rows among ranks can be asked for."""
MOST_RANKS = 1 << 20
Laid = ConcatRows | FileRows | FlatRows | PlannedRows | RankRows


@dataclass(frozen=True, slots=True)
class PackedOrder:
    """The documents of one corpus in rows by a policy, `epochs` times over; endless where `epochs` is None.

    Raises `OrderError`: ORD002 for a seed or epochs out of range, PCK020 for options that do not go together, ORD100 for
    epochs over a corpus without tokens. Sizes and rows are known once it is prepared (ORD014 before), for ``concat`` and
    ``flat`` their number at once. Cost: to prepare, 20 ns and 5 bytes a document, 0.1 us and at most 8 bytes more where the
    policy plans; a row, about 0.1 us an extent, anywhere.

    >>> from tokenreel.spans import CorpusKey
    >>> packing = Packing.of("bestfit", 8, oversize="split")
    >>> order = PackedOrder(CorpusKey("files", "00", 4, 19), packing, shuffle=False)
    >>> order = order.with_rows(Sizes.of_lengths([5, 9, 2, 3]))
    >>> table = order.spans(0, order.length)
    >>> table.splits.tolist(), table.document.tolist(), table.length.tolist()
    ([0, 1, 3, 6], [1, 0, 3, 1, 2, -1], [8, 5, 3, 1, 2, 5])
    """

    key: CorpusKey
    packing: Packing
    seed: int = 0
    shuffle: bool = True
    """False: rows as they were planned, about as their documents are stored."""
    epochs: int | None = 1
    io: BlockShuffle | None = None
    compat: str | None = None
    """Another program's share of rows among `ranks`: sample k * ranks + r is row k of rank r. ``hobbylm`` with concat, and
    ``nanochat`` with crop: each rank packs documents of its own. ``modded-nanogpt`` with bos-aligned: ranks take rows in turn,
    a batch that not all of them fill is dropped, and a document cut before the row's end has the next one's first token for
    its last label."""
    ranks: int | None = None
    group: int | None = None
    """nanochat: documents that a rank takes at a time, a row group of its tables; 1 where it is left out."""
    files: tuple[int, ...] = ()
    """modded-nanogpt: tokens of each file, in which rows begin anew; none: all documents are one file's."""
    cut: tuple[int, ...] = ()
    """Documents whose stored end is not their real one: their last token has no end-of-document label."""
    table: DocTable | None = field(default=None, repr=False, compare=False)
    """The corpus's documents; needed by `prepare`."""
    laid: Laid | None = field(default=None, repr=False, compare=False)
    """The rows, once prepared."""

    name: ClassVar[str] = "packed@1"
    children: ClassVar[tuple[Order, ...]] = ()
    row_ahead: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 64:
            raise OrderError("ORD002", "seed", expected="0 .. 2**64 - 1", found=self.seed)
        if self.epochs is not None and self.epochs < 0:
            raise OrderError("ORD002", "epochs", expected="0 or more, or None", found=self.epochs)
        if self.key.tokens == 0 and self.epochs != 0:
            raise OrderError("ORD100", expected="a corpus with tokens", found=0)
        if self.io is not None and not self.shuffle:
            raise OrderError("PCK020", "io", expected="shuffle", found="rows that are not shuffled")
        self._check_compat()
        if list(self.cut) != sorted(set(self.cut)) or (self.cut and self.cut[-1] >= self.key.documents):
            expected = f"different documents below {self.key.documents}, ascending"
            raise OrderError("PCK020", "cut", expected=expected, found=str(self.cut[:5]))

    def _check_compat(self) -> None:
        if self.compat is not None and self.compat not in COMPAT:
            raise OrderError("PCK020", "compat", expected=", ".join(COMPAT), found=self.compat)
        if (self.compat is None) != (self.ranks is None):
            expected = f"with compat = {', '.join(COMPAT)}, and only there"
            raise OrderError("PCK020", "ranks", expected=expected, found=self.ranks)
        if self.compat and (
            self.packing.policy != COMPAT[self.compat] or self.shuffle or not 1 <= (self.ranks or 0) <= MOST_RANKS
        ):
            found = f"{self.packing.policy}, shuffle {self.shuffle}, ranks {self.ranks}"
            expected = f"{COMPAT[self.compat]}, shuffle false, ranks 1 .. {MOST_RANKS}"
            raise OrderError("PCK020", self.compat, expected=expected, found=found)
        if self.compat == "modded-nanogpt" and self.packing.tail != "drop":
            raise OrderError("PCK020", "modded-nanogpt: tail", expected="drop", found=self.packing.tail)
        if self.group is not None and (self.compat != "nanochat" or self.group < 1):
            expected = '1 or more, with compat = "nanochat"'
            raise OrderError("PCK020", "group", expected=expected, found=f"{self.group}, {self.compat}")
        if self.files and (
            self.compat != "modded-nanogpt" or min(self.files) < 0 or sum(self.files) != self.key.tokens
        ):
            expected = f'{self.key.tokens} tokens in all, with compat = "modded-nanogpt"'
            raise OrderError("PCK020", "files", expected=expected, found=f"{sum(self.files)}, {self.compat}")

    @classmethod
    def over(
        cls,
        table: DocTable,
        packing: Packing,
        *,
        seed: int = 0,
        shuffle: bool | None = None,
        epochs: int | None = 1,
        io: BlockShuffle | None = None,
        compat: str | None = None,
        ranks: int | None = None,
        group: int | None = None,
        files: tuple[int, ...] = (),
        cut: tuple[int, ...] = (),
    ) -> PackedOrder:
        """Make the order over a corpus's documents, not yet prepared. O(1)."""
        shuffled = compat is None if shuffle is None else shuffle
        return cls(table.key, packing, seed, shuffled, epochs, io, compat, ranks, group, files, cut, table)

    # -- what it is -----------------------------------------------------------------------------------------------------

    @property
    def apart(self) -> bool:
        """Whether documents are packed rank by rank, or file by file: there is then no plan of them all."""
        return self.compat in ("hobbylm", "nanochat") or len(self.files) > 1

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The one corpus."""
        return (self.key,)

    @property
    def row_tokens(self) -> int:
        """Tokens of a row, padding included."""
        return self.packing.row_tokens

    @property
    def rows(self) -> int:
        """Rows of one epoch; raises `OrderError` (ORD014) where they are not known yet."""
        if self.laid is not None:
            return self.laid.rows
        if self.packing.policy in ("concat", "flat") and self.compat is None:
            short = 0 if self.packing.tail == "drop" else self.row_tokens - 1
            return (self.key.tokens + short) // self.row_tokens
        raise OrderError("ORD014", hint="order = order.prepare()")

    @property
    def epoch_samples(self) -> int:
        """Samples of one epoch."""
        return self.rows

    @property
    def length(self) -> int | None:
        """Samples of all epochs; None is endless."""
        return None if self.epochs is None else self.epochs * self.rows

    @property
    def locate_cost(self) -> Literal["closed", "index"]:
        """What `locate` costs: an inverse of the plan, made for the windows that are asked about."""
        return "index" if self.packing.planned else "closed"

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
        return {
            "compat": [self.compat, self.ranks, self.group or 1, list(self.files)] if self.compat else None,
            "cut": list(self.cut),
            "io": io,
            "packing": self.packing.as_dict(),
            "seed": self.seed if self.shuffle or self.packing.policy == "bestfit" else None,
            "shuffle": self.shuffle,
        }

    # -- preparing ------------------------------------------------------------------------------------------------------

    def prepare(self, cache: object = None) -> PackedOrder:  # noqa: ARG002
        """Return the order with its rows planned, in memory; `index.plans` keeps them in files that ranks share.

        Raises `OrderError`: ORD002 without the table, PCK022 for a document longer than a row where those are errors.
        """
        if self.laid is not None:
            return self
        sizes = None if self.packing.policy == "flat" else Sizes.of(self._table())
        return self.with_rows(sizes)

    def with_rows(self, sizes: Sizes | None, plan: Plan | None = None, threads: int = 1) -> PackedOrder:
        """Return the order prepared, with the lengths of its documents, and its plan where there is one already."""
        laid: Laid

        def planned(part: Sizes, plan: Plan | None = None) -> PlannedRows:
            made = plan or make_plan(part, self.packing, self.seed, threads)
            turns = (self.ranks or 1) if self.compat == "modded-nanogpt" else 1
            return PlannedRows(part, made, self.packing, turns, self.compat == "modded-nanogpt")

        def of_rank(part: Sizes) -> ConcatRows | PlannedRows:
            if self.packing.policy == "concat":
                return ConcatRows(part, self.row_tokens, self.packing.tail == "drop")
            return planned(part)

        if self.packing.policy == "flat" or sizes is None:
            laid = FlatRows(self.key.tokens, self.row_tokens)
        elif len(self.files) > 1:
            laid = FileRows.over(sizes, self.files, planned)
        elif self.apart:
            laid = RankRows.over(sizes, self.row_tokens, self.ranks or 1, of_rank, self.group or 1)
        else:
            laid = of_rank(sizes) if plan is None else planned(sizes, plan)
        made = replace(self, laid=laid)
        if made.epochs is not None and made.epochs * made.rows >= 1 << 63:
            raise OrderError("ORD002", "samples", expected="fewer than 2**63", found=made.epochs * made.rows)
        if made.rows == 0 and made.epochs != 0:
            raise OrderError("ORD100", "no row", expected="a document that is not dropped", found="none")
        return made

    def _table(self) -> DocTable:
        if self.table is None:
            raise OrderError("ORD002", "the order was made without its table", expected="PackedOrder.over(table, ..)")
        return self.table

    # -- reading --------------------------------------------------------------------------------------------------------

    def row_at(self, samples: npt.ArrayLike) -> I64:
        """Return the row of its epoch that each sample is."""
        wanted = np.asarray(samples, dtype=np.int64).reshape(-1)
        if wanted.size == 0:
            return wanted
        self._check(int(wanted.min()), int(wanted.max()) + 1)
        if not self.shuffle:
            return wanted % self.rows
        return windows_at(self.rows, self.seed, self.io, wanted // self.rows, wanted % self.rows)

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j)."""
        self._check(i, j)
        return self.spans_at(np.arange(i, j, dtype=np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        if self.laid is None:
            raise OrderError("ORD014", hint="order = order.prepare()")
        table = self.laid.extents(self.row_at(samples))
        if not self.cut:
            return table
        false = np.asarray(self.cut, dtype=np.int64)
        at = np.minimum(np.searchsorted(false, table.document), len(false) - 1)
        ends = (false[at] == table.document) & ((table.flags & TAIL) != 0)
        flags = np.where(ends, table.flags | CUT, table.flags).astype(np.uint8)
        flags.flags.writeable = False
        return replace(table, flags=flags)

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 16,384 samples."""
        self._check(i, j)
        for first in range(i, j, CHUNK):
            yield first, self.spans(first, min(j, first + CHUNK))

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return zeros: there is one component."""
        return np.zeros(np.asarray(samples).shape, dtype=np.int32)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), by document as asked, then by sample.

        The first call for a window of documents inverts its plan: 16 bytes an entry.
        """
        self._check(lo, hi)
        if corpus != 0 or self.packing.policy == "flat":
            raise OrderError("ORD002", "locate needs documents", expected="corpus 0, not flat", found=corpus)
        if self.laid is None:
            raise OrderError("ORD014", hint="order = order.prepare()")
        wanted = np.asarray(documents, dtype=np.int64).reshape(-1)
        if wanted.size and not (int(wanted.min()) >= 0 and int(wanted.max()) < self.key.documents):
            raise OrderError("ORD003", "a document", expected=f"below {self.key.documents}", found=int(wanted.max()))
        _, row = self.laid.rows_of(wanted)
        row = np.unique(row)
        epochs = np.arange(lo // self.rows, -(-hi // self.rows), dtype=np.int64) if hi > lo else row[:0]
        epoch, row = np.repeat(epochs, len(row)), np.tile(row, len(epochs))
        place = places_of(self.rows, self.seed, self.io, epoch, row) if self.shuffle and len(row) else row
        sample = epoch * self.rows + place
        found = np.unique(sample[(lo <= sample) & (sample < hi)])
        return select(self.spans_at(found), found, wanted)

    def describe(self) -> Node:
        """Return one line."""
        epochs = "endless" if self.epochs is None else f"{self.epochs:,} x"
        try:
            rows = f"{epochs} {self.rows:,} samples"
        except OrderError:
            rows = f"{epochs} rows not planned yet"
        how = "" if self.shuffle else ", not shuffled"
        compat = f", {self.compat} {self.ranks} ranks" if self.compat else ""
        return Node(
            f"{self.name} {self.packing} [{rows} x {self.row_tokens:,} tokens{how}{compat}] {self.key.digest[:12]}"
        )

    def _check(self, i: int, j: int) -> None:
        limit = (1 << 63) - 1 if self.epochs is None else self.epochs * self.rows
        if not 0 <= i <= j <= limit:
            raise OrderError("ORD001", expected=f"0 <= i <= j <= {limit}", found=f"[{i}, {j})")


def packed(table: DocTable, row_tokens: int, policy: str, **options: Any) -> PackedOrder:
    """Return a packed order over a table, not yet prepared: options of `Packing` and of `PackedOrder.over` together.

    Raises what both raise, and `OrderError` (PCK020) for an option of neither.
    """
    own = ("seed", "shuffle", "epochs", "io", "compat", "ranks", "group", "files", "cut")
    known = (*own, *(one.name for one in fields(Packing)))
    for name in options:
        if name not in known:
            near = nearest(name, known)
            said = f"there is no option {name!r}" + (f"; did you mean {near!r}?" if near else "")
            raise OrderError("PCK020", said, expected=", ".join(known), found=name)
    packing = Packing.of(policy, row_tokens, **{k: v for k, v in options.items() if k not in own})
    return PackedOrder.over(table, packing, **{k: v for k, v in options.items() if k in own})
