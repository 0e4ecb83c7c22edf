"""`megatron-files@1`: the order that three index files give, whoever made them: Megatron, MaxText or we.

The files are checked whole before a sample is read: every entry names a unit of the corpus, every row stands where its
sample begins, every sample is shuffled to a row. They need not be a permutation: units may be left out or repeated.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tokenreel.errors import FormatError, OrderError
from tokenreel.index.arrays import read_array
from tokenreel.index.laying import edges_of, owners_of, packed_entries
from tokenreel.order.protocol import Hits, Node, fingerprint
from tokenreel.order.ranges import blocks, check_range, no_components, own_samples

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.order.megatron_spans import LaidOut
    from tokenreel.order.protocol import Order
    from tokenreel.spans import CorpusKey, DocTable, SpanTable

    I64 = npt.NDArray[np.int64]

STEP = 1 << 20
ARRAYS = ("document_index", "sample_index", "shuffle_index")


@dataclass(frozen=True, slots=True, eq=False)
class FileArrays:
    """The three arrays of one index, as maps, and where they are."""

    stem: str
    """Path of the files up to the last ``-``."""
    document_index: npt.NDArray[Any]
    sample_index: npt.NDArray[Any]
    shuffle_index: npt.NDArray[Any]


def find_stems(folder: str | os.PathLike[str]) -> list[str]:
    """Return what the names of complete sets in a folder begin with, sorted."""
    names = {path.name for path in Path(folder).iterdir()} if Path(folder).is_dir() else set()
    ends = [f"-{array}.npy" for array in ARRAYS]
    stems = sorted(name.removesuffix(ends[0]) for name in names if name.endswith(ends[0]))
    return [stem for stem in stems if all(stem + end in names for end in ends)]


def open_arrays(folder: str | os.PathLike[str], name: str | None = None) -> FileArrays:
    """Return the set in a folder whose names begin with `name`; raises `FormatError`: IDX001 none, IDX002, IDX006 several."""
    stems = [stem for stem in find_stems(folder) if name is None or stem.startswith(name)]
    if not stems:
        wanted = f"{name or '*'}-document_index.npy and its two companions"
        raise FormatError("IDX001", path=folder, expected=wanted, hint=f"ls {folder}")
    if len(stems) > 1:
        raise FormatError(
            "IDX006", path=folder, expected="one set", found=", ".join(stems[:4]), hint='name = "..." in [order]'
        )
    arrays = [read_array(Path(folder) / f"{stems[0]}-{array}.npy") for array in ARRAYS]
    return FileArrays(str(Path(folder) / stems[0]), *arrays)


@dataclass(eq=False, slots=True)
class Laid:
    """What `prepare` made; the inverse is made at the first `locate`."""

    laid: LaidOut
    shuffle: npt.NDArray[Any]
    digest: str
    entries: I64 | None = None
    """Entries sorted by the unit they name."""
    samples: I64 | None = None
    """Samples sorted by their row."""


@dataclass(frozen=True, slots=True)
class MegatronFilesOrder:
    """The order of a set of index files over a table of sequences (Megatron's) or documents (MaxText's)."""

    key: CorpusKey
    arrays: FileArrays = field(repr=False, compare=False)
    row_tokens: int
    row_ahead: int = 1
    table: DocTable | None = field(default=None, repr=False, compare=False)
    documents: DocTable | None = field(default=None, repr=False, compare=False)
    """The corpus's documents, where `table` is its sequences."""
    prepared: Laid | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "megatron-files@1"
    children: ClassVar[tuple[Order, ...]] = ()
    locate_cost: ClassVar[Literal["index"]] = "index"

    @classmethod
    def over(
        cls,
        table: DocTable,
        arrays: FileArrays,
        row_tokens: int,
        *,
        row_ahead: int = 1,
        documents: DocTable | None = None,
    ) -> MegatronFilesOrder:
        """Make the order; raises `OrderError` (ORD002) for a row length or look-ahead out of range. O(1)."""
        if row_ahead not in (0, 1) or not 1 <= row_tokens < (1 << 31) - row_ahead:
            raise OrderError("ORD002", "row_tokens", expected="1 .. 2**31 - 2, look-ahead 0 or 1", found=row_tokens)
        return cls(table.key, arrays, row_tokens, row_ahead, table, documents)

    @property
    def corpora(self) -> tuple[CorpusKey, ...]:
        """The one corpus."""
        return (self.key,)

    @property
    def length(self) -> int:
        """Samples that the shuffle index has."""
        return len(self.arrays.shuffle_index)

    @property
    def fingerprint(self) -> str:
        """Hash of what the arrays say, whatever their integer types, and of the corpus; raises ORD014 unless prepared."""
        parameters = {"files": self._ready().digest, "row_ahead": self.row_ahead, "row_tokens": self.row_tokens}
        return fingerprint(self.name, parameters, self.corpora)

    def fingerprint_until(self, i: int) -> str:
        """Return the whole fingerprint."""
        self._check(i, i)
        return self.fingerprint

    def prepare(self, cache: object = None) -> MegatronFilesOrder:  # noqa: ARG002
        """Return the order with its files checked whole and laid out; raises `FormatError` (IDX003) where they do not fit.

        Cost: about 20 ns and 16 bytes an entry, 10 ns a sample.
        """
        from tokenreel.order.megatron_spans import lay_out

        if self.prepared is not None:
            return self
        if self.table is None:
            raise OrderError("ORD002", "the order was made without its table", expected="MegatronFilesOrder.over(..)")
        documents, rows, shuffle = self.arrays.document_index, self.arrays.sample_index, self.arrays.shuffle_index
        self._check_shapes(documents, rows, shuffle)
        low, high = self._within("document_index", documents, 0, self.table.documents - 1)
        self._within("shuffle_index", shuffle, 0, len(rows) - 2)
        offsets = edges_of(self.table, low, high + 1)
        packed = packed_entries(documents, offsets, low)
        self._check_rows(rows, packed)
        digest = hashlib.sha256(f"{len(documents)} {len(shuffle)}\n".encode())
        for array in (documents, shuffle):
            for begin in range(0, len(array), STEP):
                digest.update(array[begin : begin + STEP].astype("<i8").tobytes())
        owners, first_owner = owners_of(self.documents, offsets)
        laid = lay_out(packed, offsets, low, self.row_tokens, self.row_ahead, len(rows) - 1, owners, first_owner)
        return replace(self, prepared=Laid(laid, shuffle, digest.hexdigest()))

    # -- checks ---------------------------------------------------------------------------------------------------------

    def _wrong(self, array: str, expected: object, found: object, message: str = "") -> FormatError:
        path = f"{self.arrays.stem}-{array}.npy"
        return FormatError(
            "IDX003", message, path=path, expected=expected, found=found, hint="tokenreel index check DIR"
        )

    def _check_shapes(self, documents: npt.NDArray[Any], rows: npt.NDArray[Any], shuffle: npt.NDArray[Any]) -> None:
        if documents.ndim != 1 or len(documents) == 0:
            raise self._wrong("document_index", "entries in one dimension", list(documents.shape))
        if rows.ndim != 2 or rows.shape[1] != 2 or len(rows) < 2:
            raise self._wrong("sample_index", "2 rows or more of 2", list(rows.shape))
        if shuffle.ndim != 1 or not 0 < len(shuffle) <= len(rows) - 1:
            raise self._wrong("shuffle_index", f"1 .. {len(rows) - 1} entries", list(shuffle.shape))

    def _within(self, array: str, values: npt.NDArray[Any], low: int, high: int) -> tuple[int, int]:
        least, most = int(values.min()), int(values.max())
        if least < low or most > high:
            at = int(np.argmax((values < low) | (values > high)))
            raise self._wrong(array, f"{low} .. {high}", int(values[at]), f"entry {at}")
        return least, most

    def _check_rows(self, rows: npt.NDArray[Any], packed: I64) -> None:
        """Check that row k stands at token k*S of the entries laid end to end, or at the end of a kept tail."""
        lengths = packed >> 32
        starts = np.cumsum(lengths) - lengths
        tokens = int(starts[-1] + lengths[-1])
        if (len(rows) - 2) * self.row_tokens + self.row_ahead > tokens:
            most = max(0, tokens - self.row_ahead) // self.row_tokens
            raise self._wrong("sample_index", f"at most {most} samples in {tokens} tokens", len(rows) - 1)
        for begin in range(0, len(rows), STEP):
            part = rows[begin : begin + STEP].astype(np.int64)
            entry, offset = part[:, 0], part[:, 1]
            inside = (entry >= 0) & (entry < len(lengths))
            safe = np.where(inside, entry, 0)
            wanted = np.minimum(np.arange(begin, begin + len(part)) * self.row_tokens, tokens - self.row_ahead)
            right = inside & (offset >= 0) & (offset <= lengths[safe]) & (starts[safe] + offset == wanted)
            if not bool(right.all()):
                k = int(np.argmin(right))
                found = f"entry {int(entry[k])}, token {int(offset[k])} of it"
                raise self._wrong("sample_index", f"the place of token {int(wanted[k])}", found, f"row {begin + k}")

    # -- reading --------------------------------------------------------------------------------------------------------

    def spans(self, i: int, j: int) -> SpanTable:
        """Return samples [i, j)."""
        self._check(i, j)
        ready = self._ready()
        return ready.laid.extents(ready.shuffle[i:j].astype(np.int64))

    def spans_at(self, samples: npt.ArrayLike) -> SpanTable:
        """Return any samples, in the order asked."""
        wanted = own_samples(samples, self.length)
        ready = self._ready()
        return ready.laid.extents(ready.shuffle[wanted].astype(np.int64))

    def chunks(self, i: int, j: int) -> Iterator[tuple[int, SpanTable]]:
        """Yield blocks of at most 65,536 samples."""
        return blocks(self, i, j)

    def components_at(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return zeros: there is one component."""
        return no_components(samples)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), by document as asked, then by sample.

        The first call sorts entries and samples: 8 bytes each.
        """
        from tokenreel.order.locating import select

        self._check(lo, hi)
        if corpus != 0:
            raise OrderError("ORD002", "corpus", expected=0, found=corpus)
        ready = self._ready()
        wanted = np.asarray(documents, dtype=np.int64).reshape(-1)
        rows = self._rows_of(ready, self._units_of(ready.laid, wanted))
        if ready.samples is None:
            ready.samples = np.argsort(ready.shuffle, kind="stable")
        at = _all_equal(ready.shuffle[ready.samples], np.unique(rows))
        found = np.sort(ready.samples[at])
        found = found[(found >= lo) & (found < hi)]
        return select(self.spans_at(found), found, wanted)

    def _units_of(self, laid: LaidOut, documents: I64) -> I64:
        """Return the units with tokens, counted from the first, that documents own."""
        count = len(laid.offsets) - 1
        if laid.owners is None:
            units = documents - laid.first
            units = units[(units >= 0) & (units < count)]
        else:
            local = documents - laid.first_owner
            local = local[(local >= 0) & (local < len(laid.owners) - 1)]
            low = np.searchsorted(laid.offsets, laid.owners[local], side="left")
            high = np.minimum(np.searchsorted(laid.offsets, laid.owners[local + 1], side="left"), count)
            units = _ranges(low, np.maximum(high, low))
        return units[laid.offsets[units + 1] > laid.offsets[units]]

    def _rows_of(self, ready: Laid, units: I64) -> I64:
        """Return the rows that hold tokens of units, some twice."""
        laid = ready.laid
        if ready.entries is None:
            ready.entries = np.argsort(laid.documents, kind="stable")
        entries = ready.entries[_all_equal(laid.documents[ready.entries], np.unique(units) + laid.first)]
        begins = laid.starts_of(np.ascontiguousarray(entries))
        unit = laid.documents[entries].astype(np.int64) - laid.first
        ends = begins + laid.offsets[unit + 1] - laid.offsets[unit]
        low = begins // self.row_tokens
        return _ranges(low, np.maximum(np.minimum((ends - 1) // self.row_tokens, laid.samples - 1) + 1, low))

    def describe(self) -> Node:
        """Return one line: samples and where the files are."""
        text = f"{self.name} [{self.length:,} samples x {self.row_tokens:,} tokens] {Path(self.arrays.stem).name}"
        return Node(f"{text} {self.key.digest[:12]}")

    def _ready(self) -> Laid:
        if self.prepared is None:
            raise OrderError("ORD014", hint="order = order.prepare()")
        return self.prepared

    def _check(self, i: int, j: int) -> None:
        check_range(i, j, self.length)


def _ranges(low: I64, high: I64) -> I64:
    """Return the numbers of ranges [low, high) end to end.

    >>> _ranges(np.array([3, 7]), np.array([5, 8])).tolist()
    [3, 4, 7]
    """
    counts = high - low
    within = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(np.repeat(low, counts) + within, dtype=np.int64)


def _all_equal(held: npt.NDArray[Any], wanted: I64) -> I64:
    """Return the places in sorted `held` of every value of `wanted`, each as often as it is held.

    >>> _all_equal(np.array([1, 4, 4, 9]), np.array([4, 9])).tolist()
    [1, 2, 3]
    """
    return _ranges(np.searchsorted(held, wanted, side="left"), np.searchsorted(held, wanted, side="right"))
