"""Read and write OLMo's and Dolma's files: ``NAME.npy``, ids without a header whatever the name says, and ``NAME.csv.gz``.

The width of an id is nowhere in them: the table proves it where it ends with the file, else it is given. The table is
believed; OLMo-core, which looks for the end-of-document id instead, loses what comes behind the last one.
"""

from __future__ import annotations

import csv
import gzip
import io
from typing import TYPE_CHECKING, cast

import numpy as np

from tokenreel.errors import UsageError
from tokenreel.formats.base import Found, Problem
from tokenreel.formats.olmo_table import TableError, fact_columns, read_edges, read_facts
from tokenreel.formats.raw import WIDTHS, is_npy
from tokenreel.formats.sink import SinkWriter
from tokenreel.formats.tabled import TableShard, as_error
from tokenreel.formats.writing import DocumentFacts, Holds

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import numpy.typing as npt

    from tokenreel.formats.base import Edges, Ids
    from tokenreel.formats.writing import WriteOptions
    from tokenreel.store.base import Entry, Reader, Store

IDS, TABLE = ".npy", ".csv.gz"
HOLDS = {
    f"olmo-{dtype}": Holds(table=True, empty=False, largest_id=(1 << bits) - 1, metadata=True, dtypes=(dtype,))
    for dtype, bits in (("uint16", 16), ("uint32", 32))
}
"""OLMo's reader refuses a document that begins where the file ends: an empty one does, if it is the last."""


def recognise(store: Store, entries: Sequence[Entry]) -> list[Found]:
    """Return the headerless ``.npy`` files of a folder where at least one has its table, and tables without their file.

    All are taken to be of the dtype that the first table proves which proves one, uint16 where none does so that opening says
    why; each is held against its own when it is opened.
    """
    have = {entry.path for entry in entries}
    names = [path[: -len(IDS)] for path in have if path.endswith(IDS)]
    if not any(name + TABLE in have for name in names):
        return []
    names = [name for name in names if not _numpy_s(store, name + IDS)]
    both = sorted(name for name in names if name + TABLE in have)
    if not both:
        return []
    names += [path[: -len(TABLE)] for path in have if path.endswith(TABLE) and path[: -len(TABLE)] + IDS not in have]
    dtype = next(filter(None, (prove_dtype(store, name) for name in both)), "uint16")
    return [Found(f"olmo-{dtype}", name, (name + IDS, name + TABLE)) for name in names]


def recognise_tables(store: Store, entries: Sequence[Entry]) -> list[Found]:  # noqa: ARG001 (names tell)
    """Return tables where there is nothing but tables: opening them says that their ids are missing."""
    names = [entry.path[: -len(TABLE)] for entry in entries if entry.path.endswith(TABLE)]
    return (
        [Found("olmo-uint16", name, (name + IDS, name + TABLE)) for name in names] if len(names) == len(entries) else []
    )


def _numpy_s(store: Store, path: str) -> bool:
    reader = store.reader(path)
    try:
        return is_npy(reader)
    finally:
        reader.close()


def prove_dtype(store: Store, name: str) -> str | None:
    """Return the dtype under which a table ends with its file, None where neither does."""
    table, size = store.reader(name + TABLE), store.size(name + IDS)
    try:
        end = int(read_edges(table, name + TABLE, size // 2, exact=False)[0][-1])
    except TableError:
        return None
    finally:
        table.close()
    return {2: "uint16", 4: "uint32"}.get(size // end) if end and size % end == 0 else None


def open_uint16(store: Store, path: str, *, accept: Collection[str] = ()) -> OlmoShard:
    """Open a file of uint16 and its table; see `open_file`."""
    return open_file(store, path, "uint16", accept=accept)


def open_uint32(store: Store, path: str, *, accept: Collection[str] = ()) -> OlmoShard:
    """Open a file of uint32 and its table; see `open_file`."""
    return open_file(store, path, "uint32", accept=accept)


def open_file(store: Store, path: str, dtype: str, *, accept: Collection[str] = ()) -> OlmoShard:  # noqa: ARG001
    """Open ``NAME.npy`` and read its table whole. Raises `FormatError` (OLM001 .. OLM007, FLT002); nothing is overruled.

    >>> from tokenreel.store import MemoryStore
    >>> files = {"a.npy": bytes([5, 1, 6, 1]), "a.csv.gz": gzip.compress(b"0,1" + bytes([10]) + b"1,2" + bytes([10]))}
    >>> shard = open_file(MemoryStore(files), "a.npy", "uint16")
    >>> shard.documents, shard.document(1).tolist()
    (2, [262])
    """
    name = path.removesuffix(IDS)
    for missing in (path, name + TABLE):
        if not store.exists(missing):
            raise as_error(Problem("OLM001", missing, expected=f"{path} and {name + TABLE}", found="one"), store)
    payload, table = store.reader(path), store.reader(name + TABLE)
    try:
        width = np.dtype(WIDTHS[dtype]).itemsize
        if payload.size % width:
            expected, found = f"a multiple of {width}, for {dtype}", f"{payload.size} bytes"
            raise as_error(Problem("FLT002", path, expected=expected, found=found), store)
        try:
            edges, columns = read_edges(table, name + TABLE, payload.size // width)
        except TableError as error:
            raise as_error(error.problem, store) from error
        kind = OlmoShard if columns == 2 else KnownOlmoShard
        return kind(store, Found(f"olmo-{dtype}", name, (path, name + TABLE)), payload, table, edges)
    except BaseException:
        payload.close()
        table.close()
        raise


class OlmoShard(TableShard):
    """One open file with its table, which was read and checked. Made by `open_file`."""

    def __init__(self, store: Store, found: Found, payload: Reader, table: Reader, edges: Edges) -> None:
        self._csv = table
        self._all = edges
        dtype = WIDTHS[found.format.removeprefix("olmo-")]
        super().__init__(store, found, payload, dtype, 0, int(edges[-1]), len(edges) - 1)

    def _edges(self, i: int, j: int) -> Edges:
        return self._all[i : j + 1].copy()

    def _examine(self) -> Problem | None:
        return None

    def close(self) -> None:
        """Give both handles back; arrays handed out stay valid."""
        self._payload.close()
        self._csv.close()


class KnownOlmoShard(OlmoShard):
    """One whose table has five columns."""

    _facts: list[DocumentFacts] | None = None

    def facts(self, i: int, j: int) -> list[DocumentFacts]:
        """Return what the table says of documents [i, j); reads it whole once."""
        self._in_range(i, j)
        if self._facts is None:
            try:
                self._facts = read_facts(self._csv, self.files[1])
            except TableError as error:
                raise as_error(error.problem, self._store) from error
        return self._facts[i:j]


def open_writer(root: Path, name: str, options: WriteOptions) -> OlmoWriter:
    """Return a writer of ``name.npy`` and ``name.csv.gz``: two columns, or five where facts are given."""
    return OlmoWriter(root, name, options)


def shard_name(number: int, options: WriteOptions) -> str:  # noqa: ARG001
    """Return a name as Dolma's tokeniser gives it."""
    return f"part-000-{number:05d}"


class OlmoWriter(SinkWriter):
    """Writes one file and its table. The same documents give the same bytes for one version of zlib."""

    def __init__(self, root: Path, name: str, options: WriteOptions) -> None:
        super().__init__()
        self._dtype = np.dtype(options.dtype).newbyteorder("<").str
        self._ids = self.sink(root, name + IDS)
        self._packed = gzip.GzipFile(
            filename="", mode="wb", compresslevel=6, mtime=0, fileobj=cast("BinaryIO", self.sink(root, name + TABLE))
        )
        self._facts: list[DocumentFacts] = []
        self._columns = 0

    def add_facts(self, facts: Sequence[DocumentFacts]) -> None:
        """Say what is known of the documents that the next `add_documents` brings, one for each."""
        self._facts = list(facts)

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the format has no place for them)
    ) -> None:
        """Append documents. Raises `UsageError` (USE003) for facts that begin where the table has two columns already."""
        if self._facts and self._columns == 2:
            raise UsageError("USE003", expected="facts of all documents or of none", found=f"from {self.documents} on")
        self._ids.add(ids, self._dtype)
        ends = self.tokens + np.cumsum(lengths, dtype=np.int64)
        rows = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
        if len(lengths) and not self._columns:
            self._columns = 5 if self._facts else 2
        if self._columns == 5:
            text = io.StringIO()
            facts = self._facts or [DocumentFacts()] * len(lengths)
            csv.writer(text).writerows((*row, *fact_columns(fact)) for row, fact in zip(rows, facts, strict=True))
            self._packed.write(text.getvalue().encode())
        else:
            self._packed.write("".join(f"{start},{end}\n" for start, end in rows).encode())
        self._facts = []
        self.documents += len(lengths)
        self.tokens += len(ids)

    def _complete(self) -> None:
        self._packed.close()

    def abort(self) -> None:
        """Remove what was written; harmless after `finish`."""
        self._packed.fileobj = None  # type: ignore[assignment] # else it would write its end to a closed file
        super().abort()
