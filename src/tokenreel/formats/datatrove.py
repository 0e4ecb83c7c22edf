"""Read and write datatrove's tokenised files, which nanotron's Nanosets read too.

A shard is up to four files, little endian:

``X.ds``            ids end to end, uint16 or uint32, without a header
``X.ds.index``      u64, the end of each document, in ids; no leading 0 and no count
``X.ds.metadata``   three lines of text: ``NAME|WIDTH``, the number of ids, and that number for people; may be missing
``X.ds.loss``       one byte an id, 1 where it is trained on; may be missing: these are weights of tokens

The index is believed, not the ids: text that spells a special token was encoded as one by datatrove, so an end of
document may stand inside one. After datatrove's shuffle by chunks the index holds the chunks' ends too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import FormatError, UsageError
from tokenreel.formats.base import Found, Problem
from tokenreel.formats.raw import OPENED, OPENED_BYTES, contradiction, sample
from tokenreel.formats.sink import SinkWriter
from tokenreel.formats.tabled import CHUNK, TableShard, as_error
from tokenreel.formats.writing import Holds

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats.base import Edges, Ids
    from tokenreel.formats.sink import Sink
    from tokenreel.formats.writing import WriteOptions
    from tokenreel.store.base import Entry, Reader, Store

FORMAT = "datatrove"
DS, INDEX, METADATA, LOSS = ".ds", ".ds.index", ".ds.metadata", ".ds.loss"
WIDTHS = {2: "<u2", 4: "<u4"}
MOST_METADATA = 1 << 16
"""Bytes of a ``.ds.metadata``."""

HOLDS = Holds(table=True, empty=True, largest_id=(1 << 32) - 1, weights=True, dtypes=("uint16", "uint32"))


def recognise(store: Store, entries: Sequence[Entry]) -> list[Found]:  # noqa: ARG001 (names tell)
    """Return every ``.ds`` and every ``.ds.index`` of a listing, with the files beside it; either may be missing."""
    have = {entry.path for entry in entries}
    names = dict.fromkeys(path.removesuffix(suffix) for path in have for suffix in (DS, INDEX) if path.endswith(suffix))
    return [Found(FORMAT, name, _files(name, have)) for name in names]


def _files(name: str, have: Collection[str]) -> tuple[str, ...]:
    more = tuple(name + suffix for suffix in (METADATA, LOSS) if name + suffix in have)
    return (name + DS, name + INDEX, *more)


def open_file(store: Store, path: str, *, accept: Collection[str] = ()) -> DatatroveShard:
    """Open a shard by the path of its ``.ds``; O(1). Raises `FormatError` (DTV001 .. DTV009).

    Where no ``.ds.metadata`` says the width of an id it is the one that the index proves; DTV009 then says that the ids
    look like the other, and `accept` overrules it.

    >>> from tokenreel.store import MemoryStore
    >>> files = {"a.ds": bytes([5, 1, 6, 1]), "a.ds.index": bytes([1] + 7 * [0] + [2] + 7 * [0])}
    >>> shard = open_file(MemoryStore(files), "a.ds")
    >>> shard.dtype.name, [shard.document(i).tolist() for i in range(2)]
    ('uint16', [[261], [262]])
    """
    name = path.removesuffix(DS)
    have = [name + suffix for suffix in (DS, INDEX, METADATA, LOSS) if store.exists(name + suffix)]
    for missing in (name + DS, name + INDEX):
        if missing not in have:
            raise as_error(Problem("DTV001", missing, expected=f"{name + DS} and {name + INDEX}", found="one"), store)
    readers: dict[str, Reader] = {}
    try:
        for file in have:
            readers[file] = store.reader(file)
        shard = DatatroveShard(store, Found(FORMAT, name, _files(name, have)), readers)
        if not readers.get(name + METADATA) and "DTV009" not in accept:
            wrong = contradiction(sample(readers[name + DS], OPENED, OPENED_BYTES), shard.dtype.name)
            if wrong:
                found = f"{shard.dtype.name}, as the index fits"
                raise as_error(Problem("DTV009", name + DS, wrong, expected="ids of another width", found=found), store)
        shard.check_if_small()
        return shard
    except BaseException:
        for reader in readers.values():
            reader.close()
        raise


def read_metadata(reader: Reader, path: str) -> tuple[str, int, int] | Problem:
    """Return (name of the tokenizer, bytes of an id, number of ids), or what is wrong with a ``.ds.metadata``."""
    data = reader.read(0, min(reader.size, MOST_METADATA))
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) >= 2 and reader.size <= MOST_METADATA:
        # datatrove without a tokenizer's name writes the width twice.
        name, _, width = lines[0].rpartition("|")
        count = lines[1].strip()
        if width in ("2", "4") and count.isascii() and count.isdigit() and len(count) < 20:
            return name, int(width), int(count)
    expected = "NAME|2 or NAME|4, and a number of ids"
    return Problem("DTV005", path, offset=0, expected=expected, found=" / ".join(lines[:2])[:120])


class DatatroveShard(TableShard):
    """One open shard. Made by `open_file`."""

    def __init__(self, store: Store, found: Found, readers: dict[str, Reader]) -> None:
        name = found.name
        self._index = readers[name + INDEX]
        self._loss = readers.get(name + LOSS)
        self._readers = readers
        payload = readers[name + DS]
        self.tokenizer: str | None = None
        """Its name, where ``.ds.metadata`` says one."""
        width, documents = self._measure(store, name)
        super().__init__(store, found, payload, WIDTHS[width], 0, payload.size // width, documents)

    def _measure(self, store: Store, name: str) -> tuple[int, int]:
        """Return (bytes of an id, documents); raises `FormatError` for sizes that do not go together."""
        size, metadata = self._readers[name + DS].size, self._readers.get(name + METADATA)
        if self._index.size % 8:
            found = f"{self._index.size} bytes"
            raise as_error(Problem("DTV002", name + INDEX, offset=self._index.size // 8 * 8,
                                   expected="8 bytes a document", found=found), store)  # fmt: skip
        documents = self._index.size // 8
        tokens = int.from_bytes(self._index.read(8 * documents - 8, 8), "little") if documents else 0
        width = 4 if tokens and size == 4 * tokens else 2
        if metadata is not None:
            said = read_metadata(metadata, name + METADATA)
            if isinstance(said, Problem):
                raise as_error(said, store)
            self.tokenizer, width, count = said
            if count * width != size:
                expected = f"{count * width} bytes for {count} ids of {width} bytes"
                raise as_error(Problem("DTV006", name + DS, offset=min(size, count * width), expected=expected,
                                       found=f"{size} bytes"), store)  # fmt: skip
        if tokens * width != size:
            expected = f"{size // width}, the ids of {name + DS}"
            raise as_error(Problem("DTV004", name + INDEX, offset=max(0, 8 * documents - 8), expected=expected,
                                   found=tokens), store)  # fmt: skip
        if self._loss is not None and self._loss.size != tokens:
            raise as_error(Problem("DTV007", name + LOSS, offset=min(self._loss.size, tokens),
                                   expected=f"{tokens} bytes", found=f"{self._loss.size} bytes"), store)  # fmt: skip
        return width, documents

    def _edges(self, i: int, j: int) -> Edges:
        if i:
            return self._index.array("<i8", 8 * (i - 1), j - i + 1)
        return np.concatenate((np.zeros(1, dtype=np.int64), self._index.array("<i8", 0, j)))

    def _examine(self) -> Problem | None:
        name = self.files[1]
        for begin in range(0, self.documents, CHUNK):
            edges = self._edges(begin, min(self.documents, begin + CHUNK))
            falls = np.flatnonzero((edges[1:] < edges[:-1]) | (edges[1:] > self.tokens))
            if len(falls):
                k = int(falls[0])
                expected = f"{int(edges[k])} .. {self.tokens}"
                found = int(edges[k + 1]) % (1 << 64)
                return Problem(
                    "DTV003", name, offset=8 * (begin + k), document=begin + k, expected=expected, found=found
                )
        return None

    @property
    def has_weights(self) -> bool:
        """Whether there is a ``.ds.loss``."""
        return self._loss is not None

    def weights(self, begin: int, end: int) -> npt.NDArray[np.float32] | None:
        """Return the weights of ids [begin, end), 0 or 1, or None without a ``.ds.loss``.

        Raises `FormatError` (DTV008) for a byte that is neither.
        """
        if self._loss is None:
            return None
        self.read(begin, begin)
        flags = self._loss.array("u1", begin, end - begin)
        if len(flags) and int(flags.max()) > 1:
            at = int((flags > 1).argmax())
            path = self.name + LOSS
            raise as_error(
                Problem("DTV008", path, offset=begin + at, expected="0 or 1", found=int(flags[at])), self._store
            )
        return flags.astype(np.float32)

    def close(self) -> None:
        """Give all handles back; arrays handed out stay valid."""
        for reader in self._readers.values():
            reader.close()


def for_people(count: int) -> str:
    """Return a number of ids as the third line of ``.ds.metadata`` has it: three digits and an SI prefix.

    >>> for_people(0), for_people(339), for_people(1_200_000)
    ('0.00 T', '339 T', '1.20 MT')
    """
    exponent = int(f"{count:.2e}".rpartition("e")[2])  # of the rounded number: 999,999 is 1.00 M
    value = count / 10 ** (exponent // 3 * 3)
    return f"{value:.{2 - exponent % 3}f} {('', 'k', 'M', 'G', 'T', 'P', 'E')[exponent // 3]}T"


def open_writer(root: Path, name: str, options: WriteOptions) -> DatatroveWriter:
    """Return a writer of ``name.ds`` and what belongs to it; ``options.options["tokenizer"]`` names the tokenizer."""
    return DatatroveWriter(root, name, options)


def shard_name(number: int, options: WriteOptions) -> str:  # noqa: ARG001
    """Return a name as datatrove gives it to files that are not shuffled."""
    return f"{number:05d}_unshuffled"


class DatatroveWriter(SinkWriter):
    """Writes one shard; a ``.ds.loss`` only if weights were given."""

    def __init__(self, root: Path, name: str, options: WriteOptions) -> None:
        super().__init__()
        self._tokenizer = str(options.options.get("tokenizer") or "unknown")
        if not self._tokenizer.isprintable() or "|" in self._tokenizer:
            raise UsageError("USE003", expected="a tokenizer's name on one line, without |", found=self._tokenizer)
        self._dtype = np.dtype(options.dtype).newbyteorder("<").str
        self._root, self._name = root, name
        self._ids = self.sink(root, name + DS)
        self._index = self.sink(root, name + INDEX)
        self._loss: Sink | None = None

    def add_documents(
        self, ids: Ids, lengths: npt.NDArray[np.int64], weights: npt.NDArray[np.float32] | None = None
    ) -> None:
        """Append documents. Raises `FormatError` (DTV008) for a weight other than 0 and 1."""
        ends = np.cumsum(lengths, dtype=np.int64)
        if weights is not None:
            odd = np.flatnonzero((weights != 0) & (weights != 1))
            if len(odd):
                document = self.documents + int(np.searchsorted(ends, int(odd[0]), side="right"))
                raise FormatError(
                    "DTV008",
                    path=self._root / (self._name + LOSS),
                    document=document,
                    expected="0 or 1",
                    found=float(weights[odd[0]]),
                )
            if self._loss is None:
                self._loss = self.sink(self._root, self._name + LOSS)
                for begin in range(0, self.tokens, 1 << 20):
                    self._loss.write(b"\1" * min(1 << 20, self.tokens - begin))
        if self._loss is not None:
            flags = np.ones(len(ids), "u1") if weights is None else weights.astype("u1")
            self._loss.add(flags, "u1")
        self._ids.add(ids, self._dtype)
        self._index.add(ends + self.tokens, "<u8")
        self.documents += len(lengths)
        self.tokens += len(ids)

    def _complete(self) -> None:
        said = f"{self._tokenizer}|{np.dtype(self._dtype).itemsize}\n{self.tokens}\n{for_people(self.tokens)}"
        self.sink(self._root, self._name + METADATA).write(said.encode())
