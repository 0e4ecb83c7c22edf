"""Read Megatron IndexedDataset v1 pairs: recognise them, list them, open them as shards.

Opening costs O(1): header, size equation, first and last entries. The tables are validated whole, once, before
anything is read (about 10 ms per million documents). Layout: `megatron_layout`; every check: `megatron_check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import DocumentError, FormatError, OrderError
from tokenreel.formats.base import Boundary, Found
from tokenreel.formats.megatron_check import (
    CHUNK,
    OVERRULABLE,
    Examined,
    TableScan,
    as_error,
    examine,
    missing_member,
    scan_table,
    table_findings,
)
from tokenreel.formats.megatron_layout import FORMAT, LEGACY_MAGIC, MAGIC, WIDE, Layout

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from tokenreel.formats.base import Edges, Ids
    from tokenreel.store.base import Entry, Reader, Store


def recognise(store: Store, path: str) -> bool:
    """Return whether `path` (a prefix, an ``.idx`` or a ``.bin``) is a Megatron pair; O(1).

    True when the ``.idx`` begins with the magic of version 1 or of the legacy layout (which opening refuses by name),
    or when both files of the pair are there: no other format names its files so, and opening says what is wrong.
    """
    prefix = path.removesuffix(".idx").removesuffix(".bin")
    idx = f"{prefix}.idx"
    if not store.exists(idx):
        return False
    if store.exists(f"{prefix}.bin"):
        return True
    reader = store.reader(idx)
    try:
        start = reader.read(0, min(len(MAGIC), reader.size))
    finally:
        reader.close()
    return start == MAGIC or start.startswith(LEGACY_MAGIC)


def recognise_pairs(store: Store, entries: Sequence[Entry]) -> list[Found]:  # noqa: ARG001 (names tell)
    """Return every ``.idx`` of a listing as a pair; one of its files may be missing."""
    names = [entry.path[:-4] for entry in entries if entry.path.endswith(".idx")]
    return [Found(FORMAT, name, (f"{name}.bin", f"{name}.idx")) for name in names]


def list_pairs(store: Store, prefix: str = "") -> list[str]:
    """Return the names (paths without suffix) of all pairs below `prefix`, in byte order of name.

    Every ``.idx`` counts, so that one without its ``.bin`` is an error when opened and not overlooked. A lone ``.bin``
    may be another format's.

    >>> from tokenreel.store import MemoryStore
    >>> list_pairs(MemoryStore({"a-b.idx": b"", "a.idx": b"", "a.bin": b"", "c.bin": b""}))
    ['a', 'a-b']
    """
    names = (entry.path.removesuffix(".idx") for entry in store.list(prefix) if entry.path.endswith(".idx"))
    return sorted(names, key=lambda name: name.encode("utf-8", "surrogateescape"))


def open_pair(store: Store, prefix: str, *, accept: Collection[str] = ()) -> MegatronShard:
    """Open the pair ``prefix.idx`` / ``prefix.bin`` as a shard; O(1) for a sound one.

    Raises `FormatError` with the first problem of `megatron_check.check_pair` at level ``open``; problems whose code
    is in `accept` are passed over where Megatron itself ignores them (MEG009, MEG020, MEG021), other codes never.
    Raises `StorageError` when the files cannot be read (STO001: neither is there).
    """
    missing = missing_member(store, prefix)
    if missing is not None:
        raise as_error(missing, store, prefix)
    idx, payload = store.reader(f"{prefix}.idx"), store.reader(f"{prefix}.bin")
    try:
        return open_readers(store, prefix, idx, payload, accept=accept)
    except BaseException:
        idx.close()
        payload.close()
        raise


def open_readers(
    store: Store, prefix: str, idx: Reader, payload: Reader, *, accept: Collection[str] = ()
) -> MegatronShard:
    """Open a pair from two readers, whatever their files are called; `store` and `prefix` name it in messages."""
    passed = OVERRULABLE.intersection(accept)
    examined = examine(idx, prefix, payload.size)
    for problem in examined.problems:
        if problem.code not in passed:
            raise as_error(problem, store, prefix)
    shard = MegatronShard(store, prefix, idx, payload, examined, frozenset(passed))
    if not examined.settled:
        shard.check_table()
    return shard


class MegatronShard:
    """One open pair; see `formats.base.Shard` for the contract of each method. Made by `open_pair`.

    >>> from tokenreel.store import MemoryStore
    >>> from tokenreel.formats.megatron_layout import pack_header
    >>> tables = np.array([2], "<i4").tobytes() + np.array([0, 0, 1], "<i8").tobytes()
    >>> files = {"a.idx": pack_header(8, 1, 2) + tables, "a.bin": np.array([5, 6], "<u2").tobytes()}
    >>> shard = open_pair(MemoryStore(files), "a")
    >>> shard.documents, shard.read(0, 2).tolist(), shard.document_edges(0, 1).tolist()
    (1, [5, 6], [0, 2])
    """

    format = FORMAT
    boundary = Boundary(table=True)
    contiguous = True

    def __init__(
        self, store: Store, prefix: str, idx: Reader, payload: Reader, examined: Examined, accepted: frozenset[str]
    ) -> None:
        if examined.layout is None:
            raise as_error(examined.problems[0], store, prefix)
        self.layout: Layout = examined.layout
        self.accepted = accepted
        """Codes of problems that were passed over, if present."""
        self._store = store
        self._prefix = prefix
        self._idx = idx
        self._bin = payload
        self._tokens = examined.tokens
        self._scan: TableScan | None = None
        self._wrong: FormatError | None = None

    @property
    def name(self) -> str:
        """Path without suffix."""
        return self._prefix

    @property
    def files(self) -> tuple[str, ...]:
        """The ``.bin`` and the ``.idx``."""
        return f"{self._prefix}.bin", f"{self._prefix}.idx"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Stored integer type, little endian."""
        return self.layout.dtype

    @property
    def tokens(self) -> int:
        """Stored ids of all sequences."""
        return self._tokens

    @property
    def documents(self) -> int:
        """Documents; some may own no sequence."""
        return self.layout.documents

    @property
    def sequences(self) -> int:
        """Sequences; some may be empty."""
        return self.layout.sequences

    @property
    def plain(self) -> bool:
        """Whether every document is exactly one sequence; validates the table."""
        return self._checked().plain

    def check_table(self) -> None:
        """Validate the whole tables once; raises `FormatError` with the first problem, now and at every later call."""
        self._checked()

    def _checked(self) -> TableScan:
        if self._wrong is not None:
            raise self._wrong
        if self._scan is None:
            scan = scan_table(self.layout, self._idx)
            if not scan.sound or scan.end != self._bin.size:
                for problem in table_findings(self.layout, self._idx, self._prefix, self._bin.size):
                    if problem.code not in self.accepted:
                        self._wrong = as_error(problem, self._store, self._prefix)
                        raise self._wrong
            self._tokens = scan.end // self.dtype.itemsize
            self._scan = scan
        return self._scan

    def document_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit documents [i, j)."""
        if self._checked().plain:
            self._in_range(i, j, self.documents, "documents")
            return self.sequence_edges(i, j)
        first = self.document_sequences(i, j)
        edges: Edges = self.sequence_edges(int(first[0]), int(first[-1]))[first - first[0]]
        return edges

    def sequence_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit sequences [i, j)."""
        self._checked()
        self._in_range(i, j, self.sequences, "sequences")
        edges = np.empty(j - i + 1, dtype=np.int64)
        have = min(j + 1, self.sequences) - i
        # Some at a time, as copies: views of a map would hold the whole table in memory besides the edges.
        for low in range(0, have, CHUNK):
            high = min(have, low + CHUNK)
            pointers = self._idx.array(WIDE, self.layout.pointers_at + 8 * (i + low), high - low)
            np.floor_divide(pointers, self.dtype.itemsize, out=edges[low:high])
        edges[have:] = self._tokens
        return edges

    def document_sequences(self, i: int, j: int) -> Edges:
        """Return the first sequence of each document of [i, j), and the end of the last."""
        scan = self._checked()
        self._in_range(i, j, self.documents, "documents")
        if scan.plain:
            return np.arange(i, j + 1, dtype=np.int64)
        return self._idx.array(WIDE, self.layout.index_at + 8 * i, j - i + 1)

    def documents_at(self, positions: Edges) -> Edges:
        """Return which document holds each token position; an empty document holds none.

        Cost: one chunk of 64 Ki entries per table and chunk that holds a position.
        """
        scan = self._checked()
        wanted = np.asarray(positions, dtype=np.int64)
        if wanted.size and (int(wanted.min()) < 0 or int(wanted.max()) >= self._tokens):
            raise self._outside(int(wanted.min()), int(wanted.max()) + 1)
        width = self.dtype.itemsize
        found = self._last_at_most(self.layout.pointers_at, self.sequences, scan.pointer_fences, wanted * width)
        if scan.plain:
            return found
        return self._last_at_most(self.layout.index_at, self.layout.entries, scan.index_fences, found)

    def _last_at_most(self, at: int, count: int, fences: npt.NDArray[np.int64], values: Edges) -> Edges:
        """Return, per value, the last entry of a rising table that is not larger."""
        chunk = np.searchsorted(fences, values, side="right") - 1
        found = np.empty(len(values), dtype=np.int64)
        for c in np.unique(chunk).tolist():
            here = chunk == c
            entries = self._idx.array(WIDE, at + 8 * CHUNK * c, min(CHUNK, count - CHUNK * c))
            found[here] = CHUNK * c + np.searchsorted(entries, values[here], side="right") - 1
        return found

    def read(self, begin: int, end: int) -> Ids:
        """Return the stored ids [begin, end), read-only; raises `StorageError` (STO004) when the file changed size."""
        self._checked()
        if not 0 <= begin <= end <= self._tokens:
            raise self._outside(begin, end)
        return self._bin.array(self.dtype, begin * self.dtype.itemsize, end - begin)

    def document(self, i: int) -> Ids:
        """Return the stored ids of document `i`, read-only; the short way of `document_edges` and `read`."""
        if not self._checked().plain or not 0 <= i < self.documents:
            edges = self.document_edges(i, i + 1)
            return self.read(int(edges[0]), int(edges[1]))
        last = i + 1 == self.documents
        pair = self._idx.read(self.layout.pointers_at + 8 * i, 8 if last else 16)
        width = self.dtype.itemsize
        begin = int.from_bytes(pair[:8], "little")
        end = self._tokens * width if last else int.from_bytes(pair[8:], "little")
        return self._bin.array(self.dtype, begin, (end - begin) // width)

    def byte_at(self, position: int) -> tuple[str, int]:
        """Return the file and the byte offset of a token."""
        return f"{self._prefix}.bin", position * self.dtype.itemsize

    def close(self) -> None:
        """Give both handles back; arrays handed out stay valid."""
        self._idx.close()
        self._bin.close()

    def _in_range(self, i: int, j: int, count: int, what: str) -> None:
        if not 0 <= i <= j <= count:
            raise DocumentError("DOC001", shard=self.name, expected=f"{what} within [0, {count}]", found=f"[{i}, {j})")

    def _outside(self, begin: int, end: int) -> OrderError:
        return OrderError(
            "ORD003",
            "tokens outside the shard",
            shard=self.name,
            expected=f"within [0, {self._tokens}]",
            found=f"[{begin}, {end})",
        )
