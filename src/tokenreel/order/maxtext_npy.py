"""`maxtext-npy@1`: the order in which MaxText's ``grain_file_type=mmap_npy`` reads one dataset, bit for bit.

It is Megatron's order over *documents*: give it `corpus.table()`, or one table for each prefix of a list, in MaxText's
order of prefixes (`sorted_prefixes`). Where every document is one sequence it is `megatron@1` with the same samples.
Empty documents are what they are: MaxText takes the next sequence's length for theirs, or fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError, UsageError
from tokenreel.order.maxtext_files import index_hash
from tokenreel.order.maxtext_joined import JoinedTable, join
from tokenreel.order.maxtext_plan import plan_npy, split_range
from tokenreel.order.megatron import MegatronOrder
from tokenreel.order.megatron_index import INT32_MAX, MegatronIndices, build_indices
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, no_components

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.order.maxtext_joined import Tables
    from tokenreel.order.megatron_plan import EpochPlan
    from tokenreel.order.protocol import Order
    from tokenreel.spans import CorpusKey, SpanTable


@dataclass(frozen=True, slots=True)
class MaxTextNpyOrder:
    """The documents of one split in MaxText's order; make it with `over`, then `prepare` it."""

    inner: MegatronOrder
    """The same order over the joined documents."""
    joined: JoinedTable = field(repr=False, compare=False)
    split: str = ""
    split_index: int = 0

    name: ClassVar[str] = "maxtext-npy@1"
    children: ClassVar[tuple[Order, ...]] = ()
    locate_cost: ClassVar[Literal["index"]] = "index"

    @classmethod
    def over(
        cls,
        tables: Tables,
        row_tokens: int,
        *,
        seed: int = 0,
        samples: int | None = None,
        epochs: int | None = None,
        num_epoch: int = 1,
        split: str = "",
        split_index: int = 0,
        row_ahead: int = 1,
    ) -> MaxTextNpyOrder:
        """Make the order of one split.

        `samples` is what a run asks for (steps x batch), `epochs` what the offline builder's ``--num-epochs`` gives; with
        neither it is `num_epoch` epochs' worth, as in a run without steps. MaxText's seed is 0 unless set, its builder's
        and Megatron's 1234. O(1): no length is read. Raises `OrderError`: ORD074, ORD075 and ORD077 for a split with too
        little in it, ORD002 for parameters; `UsageError`: ORD072 and ORD073 for the split, ORD078 for both counts.

        """
        joined = join(tables)
        check_seed(seed)
        first, end = split_range(split, split_index, joined.documents)
        edges = joined.offsets_at(np.array([first, end], dtype=np.int64))
        plan = plan_npy(
            end - first,
            int(edges[1] - edges[0]),
            row_tokens,
            samples=samples,
            epochs=epochs,
            num_epoch=num_epoch,
            row_ahead=row_ahead,
        )
        inner = MegatronOrder(joined.key, first, end, plan, row_tokens, seed, row_ahead, table=joined)
        return cls(inner, joined, split, split_index)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """One key for each table."""
        return tuple(table.key for table in self.joined.tables)

    @property
    def plan(self) -> EpochPlan:
        """Epochs and samples: all that the permutations depend on beside the seed."""
        return self.inner.plan

    @property
    def length(self) -> int:
        """Samples: those of whole epochs, usually more than were asked for."""
        return self.plan.samples

    @property
    def row_tokens(self) -> int:
        """Input tokens of a sample."""
        return self.inner.row_tokens

    @property
    def row_ahead(self) -> int:
        """1: every sample has its last label."""
        return self.inner.row_ahead

    @property
    def seed(self) -> int:
        """Seed of the one generator that shuffles documents and samples."""
        return self.inner.seed

    @property
    def fingerprint(self) -> str:
        """Hash of what the permutations depend on; the split enters as the documents it selects."""
        parameters = {
            "epochs": self.plan.epochs,
            "first": self.inner.first,
            "last": self.inner.last,
            "row_ahead": self.row_ahead,
            "row_tokens": self.row_tokens,
            "seed": self.seed,
            "separate": self.plan.separate,
        }
        return fingerprint(self.name, parameters, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return the whole fingerprint: other epochs or another seed shuffle everything from the first sample on."""
        check_range(i, i, self.length)
        return self.fingerprint

    def index_hash(self, prefixes: Sequence[str]) -> str:
        """Return the hash in the names of this order's index files, for data under `prefixes` as MaxText spells them."""
        return index_hash(
            prefixes,
            self.plan.epochs,
            self.plan.separate,
            self.seed,
            self.row_tokens,
            split=self.split,
            split_index=self.split_index,
            row_ahead=self.row_ahead,
        )

    def prepare(self, cache: object = None) -> MaxTextNpyOrder:
        """Return the order with its permutations computed; costs as `MegatronOrder.prepare`."""
        return replace(self, inner=self.inner.prepare(cache))

    def indices(self) -> MegatronIndices:
        """Return the three arrays MaxText would build, with its dtypes; they are computed unless the order is prepared.

        Cost: 0.2 s of processor time for one epoch of 10 million documents. Raises `OrderError` (ORD002) for a document
        of 2**31 tokens or more.
        """
        if self.inner.prepared is not None:
            return self.inner.indices()
        lengths = self.joined.lengths(self.inner.first, self.inner.last)
        if int(lengths.max()) > INT32_MAX:
            raise OrderError("ORD002", "tokens of a document", expected="at most 2**31 - 1", found=int(lengths.max()))
        narrow = lengths.astype(np.int32)
        del lengths
        return build_indices(narrow, self.inner.first, self.plan, self.seed, self.row_tokens, self.row_ahead)

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j): extents of single documents."""
        return self.joined.apart(self.inner.spans(i, j))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        return self.joined.apart(self.inner.spans_at(samples))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return zeros: there is one component."""
        return no_components(samples)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents of table number `corpus` occur among samples [lo, hi), by document as asked.

        The first call inverts the permutations: 4 bytes a document and a sample.
        """
        wanted = self.joined.check_documents(corpus, documents)
        base = int(self.joined.document_edges[corpus])
        hits = self.inner.locate(0, wanted + base, lo, hi)
        return replace(hits, document=hits.document - base, begin=hits.begin - int(self.joined.token_edges[corpus]))

    def describe(self) -> Node:
        """Return one line: samples, epochs and what is separate."""
        line = self.inner.describe().text.replace(self.inner.name, self.name, 1)
        return Node(f"{line}, split {self.split_index} of {self.split}" if self.split else line)


def check_seed(seed: int) -> None:
    """Raise `UsageError` (ORD002) for a seed that numpy and Grain would refuse."""
    if not 0 <= seed < 1 << 32:
        raise UsageError("ORD002", "data_shuffle_seed", expected="0 .. 2**32 - 1", found=seed)
