"""What an order of orders has from its children: their corpora one after the other, the dearest inverse, one table of several."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from tokenreel.errors import OrderError
from tokenreel.spans import SpanTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.spans import CorpusKey

    I64 = npt.NDArray[np.int64]

COSTS: tuple[Literal["closed", "index", "scan"], ...] = ("closed", "index", "scan")


def corpora_of(children: Sequence[Order]) -> tuple[CorpusKey, ...]:
    """Return the children's corpora, one child after the other; one that two of them read comes twice."""
    return tuple(key for child in children for key in child.corpora)


def first_corpora(children: Sequence[Order]) -> list[int]:
    """Return the number of each child's first corpus, and of all corpora."""
    return list(accumulate((len(child.corpora) for child in children), initial=0))


def child_of(children: Sequence[Order], corpus: int) -> tuple[int, int]:
    """Return (child, its number for the corpus); raises `OrderError` (ORD002) for a corpus that none of them has."""
    left = corpus
    for number, child in enumerate(children):
        if 0 <= left < len(child.corpora):
            return number, left
        left -= len(child.corpora)
    last = first_corpora(children)[-1] - 1
    raise OrderError("ORD002", "corpus", expected=f"0 .. {last}", found=corpus)


def dearest(children: Sequence[Order]) -> Literal["closed", "index", "scan"]:
    """Return what `locate` costs where every child may be asked."""
    return COSTS[max(COSTS.index(child.locate_cost) for child in children)]


def interleave(samples: int, rows: list[I64], tables: list[SpanTable], offsets: list[int]) -> SpanTable:
    """Return one table of `samples` rows from several: row k of table t becomes row `rows[t][k]`.

    The corpora of table t are numbered on from `offsets[t]`. Cost: O(extents).
    """
    import numpy as np

    if len(tables) == 1 and offsets == [0] and len(rows[0]) == samples:
        return tables[0]
    counts = np.zeros(samples, dtype=np.int64)
    for mine, table in zip(rows, tables, strict=True):
        counts[mine] = np.diff(table.splits)
    splits = np.concatenate(([0], np.cumsum(counts)))
    columns: list[Any] = [np.empty(int(splits[-1]), dtype=d) for d in ("i4", "i8", "i8", "i8", "i8", "u1")]
    for mine, table, offset in zip(rows, tables, offsets, strict=True):
        shift = np.repeat(splits[mine] - table.splits[:-1], np.diff(table.splits))
        target = shift + np.arange(table.extents, dtype=np.int64)
        columns[0][target] = table.corpus + np.int32(offset)
        for column, values in zip(columns[1:], table.columns()[2:], strict=True):
            column[target] = values
    made = SpanTable(splits, *columns)
    for column in made.columns():
        column.flags.writeable = False
    return made


def interleaved(
    member: npt.NDArray[Any],
    number: I64,
    read: Sequence[Callable[[I64], SpanTable]],
    firsts: Sequence[int] | None = None,
) -> SpanTable:
    """Return the table whose sample n is sample ``number[n]`` of member ``member[n]``; every member is read once.

    ``read[m]`` gives samples of member m, whose corpora are numbered on from ``firsts[m]``, or from m where members have
    one corpus each. Cost: about 40 ns an extent besides the reading.

    >>> import numpy as np
    >>> tables = [lambda k: SpanTable.of([0, *range(1, len(k) + 1)], 10 * k, 10)] * 2
    >>> table = interleaved(np.array([1, 0]), np.array([3, 2]), tables)
    >>> table.begin.tolist(), table.corpus.tolist()
    ([30, 20], [1, 0])
    """
    import numpy as np

    members = np.unique(member).tolist()
    rows = [np.flatnonzero(member == m) for m in members]
    tables = [read[m](number[mine]) for m, mine in zip(members, rows, strict=True)]
    return interleave(len(member), rows, tables, [m if firsts is None else firsts[m] for m in members])


def in_order(asked: I64, documents: I64, samples: I64, extents: I64) -> I64:
    """Return what sorts hits by document as asked, then by sample and extent."""
    import numpy as np

    known, place = np.unique(asked, return_index=True)
    sort: I64 = np.lexsort((extents, samples, place[np.searchsorted(known, documents)]))
    return sort
