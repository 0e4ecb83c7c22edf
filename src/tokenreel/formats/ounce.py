"""Read and write offset shards, as ounce100m has them: a header, a table of offsets, the ids.

All little endian, for n documents of t ids::

    byte  0       u32  vocabulary: every id is below it
    byte  4       u32  n
    byte  8       u32  t
    byte 12       u32  flags; what they mean is not published, so any but 0 is refused
    byte 16       u32  [n + 1] offsets in ids; the first is 0, the last is t, none is below the one before
                  u16  [t] ids

There is no magic. A file is taken for such a shard when its size is what the header says, or its table is in its place;
then everything is checked, and the first thing wrong is told. Which ids delimit documents the file does not say.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import FormatError, TokenError
from tokenreel.formats.base import Found, Problem
from tokenreel.formats.sink import SinkWriter
from tokenreel.formats.tabled import CHUNK, TableShard, as_error
from tokenreel.formats.writing import Holds

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats.base import Edges, Ids, WrittenFile
    from tokenreel.formats.writing import FinishedShard, WriteOptions
    from tokenreel.store.base import Entry, Reader, Store

FORMAT = "ounce-v1"
HEADER = struct.Struct("<4I")
LARGEST_VOCAB = 1 << 16
MOST = (1 << 32) - 1
"""Documents and ids of a shard: counts and offsets are u32."""
SAMPLED, STRETCH = 16, 1 << 10
"""Stretches of ids, and ids in each, that opening holds against the vocabulary; all of a shard of 16,384 ids."""

HOLDS = Holds(table=True, empty=True, largest_id=(1 << 16) - 1, dtypes=("uint16",), shard_tokens=MOST)


def recognise(store: Store, entries: Sequence[Entry]) -> list[Found]:
    """Return the ``.bin`` files of a listing that are meant to be offset shards; three small reads of each.

    Meant to be one is a file in which two of three things fit: the vocabulary, the size, the ends of the table.
    """
    found = []
    for path in (entry.path for entry in entries if entry.path.endswith(".bin")):
        reader = store.reader(path)
        try:
            if _meant(reader):
                found.append(Found(FORMAT, path[:-4], (path,)))
        finally:
            reader.close()
    return found


def _meant(reader: Reader) -> bool:
    if reader.size < HEADER.size + 4:
        return False
    vocab, documents, tokens, _ = HEADER.unpack(reader.read(0, HEADER.size))
    table = HEADER.size + 4 * (documents + 1)
    if table > reader.size:
        return False
    ends = reader.read(HEADER.size, 4), reader.read(table - 4, 4)
    fits = (
        0 < vocab <= LARGEST_VOCAB,
        reader.size == table + 2 * tokens,
        ends == (bytes(4), tokens.to_bytes(4, "little")) and (documents > 0 or tokens == 0),
    )
    return sum(fits) >= 2 and (documents > 0 or all(fits))


def open_file(store: Store, path: str, *, accept: Collection[str] = ()) -> OunceShard:  # noqa: ARG001
    """Open a shard; O(1), with a sample of ids. Raises `FormatError` (OFF001 .. OFF007); nothing is overruled.

    >>> from tokenreel.store import MemoryStore
    >>> data = struct.pack("<4I3I3H", 100, 2, 3, 0, 0, 2, 3, 5, 6, 7)
    >>> shard = open_file(MemoryStore({"shard_00000.bin": data}), "shard_00000.bin")
    >>> shard.vocab, shard.documents, shard.document(0).tolist(), shard.document_edges(0, 2).tolist()
    (100, 2, [5, 6], [0, 2, 3])
    """
    reader = store.reader(path)
    try:
        problem = examine(reader, path)
        if problem is not None:
            raise as_error(problem, store)
        shard = OunceShard(store, Found(FORMAT, path.rpartition(".")[0], (path,)), reader)
        shard.check_if_small()
        return shard
    except BaseException:
        reader.close()
        raise


def examine(reader: Reader, path: str) -> Problem | None:
    """Return the first thing wrong with header, size, ends of the table and a sample of ids, or None."""
    size = reader.size
    if size < HEADER.size + 4:
        return Problem("OFF002", path, offset=size, expected=f">= {HEADER.size + 4} bytes", found=f"{size} bytes")
    vocab, documents, tokens, flags = HEADER.unpack(reader.read(0, HEADER.size))
    if not 0 < vocab <= LARGEST_VOCAB:
        return Problem("OFF001", path, offset=0, expected=f"1 .. {LARGEST_VOCAB}", found=vocab)
    if flags:
        return Problem("OFF003", path, offset=12, expected=0, found=flags)
    table = HEADER.size + 4 * (documents + 1)
    whole = table + 2 * tokens
    if size != whole:
        expected = f"{whole} bytes for {documents} documents of {tokens} ids"
        return Problem("OFF002", path, offset=min(size, whole), expected=expected, found=f"{size} bytes")
    first, last = (int.from_bytes(reader.read(at, 4), "little") for at in (HEADER.size, table - 4))
    if first:
        return Problem("OFF004", path, offset=HEADER.size, document=0, expected=0, found=first)
    if last != tokens:
        return Problem("OFF006", path, offset=table - 4, expected=tokens, found=last)
    return _sampled(reader, path, table, tokens, vocab)


def _sampled(reader: Reader, path: str, table: int, tokens: int, vocab: int) -> Problem | None:
    if tokens <= SAMPLED * STRETCH:
        places = [(0, tokens)] if tokens else []
    else:
        places = [((tokens - STRETCH) * k // (SAMPLED - 1), STRETCH) for k in range(SAMPLED)]
    for begin, count in places:
        ids = reader.array("<u2", table + 2 * begin, count)
        if int(ids.max()) >= vocab:
            at = int((ids >= vocab).argmax())
            place = table + 2 * (begin + at)
            return Problem("OFF007", path, offset=place, expected=f"ids below {vocab}", found=int(ids[at]))
    return None


class OunceShard(TableShard):
    """One open offset shard. Made by `open_file`."""

    def __init__(self, store: Store, found: Found, reader: Reader) -> None:
        self.vocab, documents, tokens, self.flags = HEADER.unpack(reader.read(0, HEADER.size))
        begin = HEADER.size + 4 * (documents + 1)
        super().__init__(store, found, reader, "<u2", begin, tokens, documents)

    def _edges(self, i: int, j: int) -> Edges:
        return self._payload.array("<u4", HEADER.size + 4 * i, j - i + 1).astype(np.int64)

    def _examine(self) -> Problem | None:
        for begin in range(0, self.documents, CHUNK):
            edges = self._edges(begin, min(self.documents, begin + CHUNK))
            falls = np.flatnonzero(edges[1:] < edges[:-1])
            if len(falls):
                k = int(falls[0])
                where = HEADER.size + 4 * (begin + k + 1)
                expected, found = f">= {int(edges[k])}", int(edges[k + 1])
                return Problem(
                    "OFF005", self.files[0], offset=where, document=begin + k, expected=expected, found=found
                )
        return None


def open_writer(root: Path, name: str, options: WriteOptions) -> OunceWriter:
    """Return a writer of ``name.bin`` below `root`; ``options.options["vocab"]`` enters the header, 65,536 if left out."""
    return OunceWriter(root, name, options)


def shard_name(number: int, options: WriteOptions) -> str:  # noqa: ARG001
    """Return a name as ounce100m's."""
    return f"shard_{number:05d}"


class OunceWriter(SinkWriter):
    """Writes one offset shard: the ids to a second temporary first, since the table comes before them."""

    def __init__(self, root: Path, name: str, options: WriteOptions) -> None:
        super().__init__()
        vocab = options.options.get("vocab") or LARGEST_VOCAB
        if not isinstance(vocab, int) or not 0 < vocab <= LARGEST_VOCAB:
            raise FormatError("OFF001", path=root / f"{name}.bin", expected=f"1 .. {LARGEST_VOCAB}", found=vocab)
        self.vocab = vocab
        self._ends: list[npt.NDArray[np.uint32]] = []
        self._file = self.sink(root, f"{name}.bin")
        self._ids = self.sink(root, f"{name}.bin.ids")

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the format has no place for them)
    ) -> None:
        """Append documents. Raises `FormatError` (OFF008) past 2**32 - 1 ids, `TokenError` (TOK041) from `vocab` on."""
        ends = self.tokens + np.cumsum(lengths, dtype=np.int64)
        documents, tokens = self.documents + len(lengths), self.tokens + len(ids)
        if max(documents, tokens) > MOST:
            found = f"{documents} documents of {tokens} ids"
            raise FormatError("OFF008", path=self._file.target, expected=f"<= {MOST} of each", found=found)
        if len(ids) and int(ids.max()) >= self.vocab:
            at = int((ids >= self.vocab).argmax())
            document = self.documents + int(np.searchsorted(ends - self.tokens, at, side="right"))
            raise TokenError(
                "TOK041",
                path=self._file.target,
                document=document,
                expected=f"ids below {self.vocab}",
                found=int(ids[at]),
            )
        self._ids.add(ids, "<u2")
        self._ends.append(ends.astype("<u4"))
        self.documents, self.tokens = documents, tokens

    def _complete(self) -> None:
        self._file.write(HEADER.pack(self.vocab, self.documents, self.tokens, 0) + bytes(4))
        for ends in self._ends:
            self._file.write(ends.data.cast("B"))
        self._file.append_from(self._ids)
        self._ids.discard()
        self.sinks.remove(self._ids)


def finish_folder(root: Path, shards: Sequence[FinishedShard], options: WriteOptions) -> tuple[WrittenFile, ...]:
    """Write ``manifest.json``; see `ounce_manifest`."""
    from tokenreel.formats.ounce_manifest import write_manifest

    return write_manifest(root, shards, options)
