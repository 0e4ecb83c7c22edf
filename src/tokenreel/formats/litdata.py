"""Read LitData chunks of tokens (``TokensLoader``): documents end to end, with a table that LitData's reader never looks at.

Little endian. A chunk is a number of items n (u32), n + 1 offsets in bytes from the start of the file (u32), and the items'
ids. Its dtype, and how many items and ids it has, stand in ``index.json``. LitData cuts every chunk into blocks of equal
length, across documents; what is left of a chunk is never read (`lost_to_blocks`). Here every item is a document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.base import Found, Problem
from tokenreel.formats.indexed import parsed
from tokenreel.formats.litdata_index import CHUNK_NAME, INDEX, Chunk, parse_index, stem
from tokenreel.formats.loaded import full_path
from tokenreel.formats.tabled import CHUNK, TableShard, as_error
from tokenreel.formats.unpacking import UnpackedReader
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tokenreel.formats.base import Edges
    from tokenreel.store.base import Entry, Reader, Store

FORMAT = "litdata"
WORD = 4
BLOCKS = (2049, 4097, 8193)
"""Block sizes that `notices` counts for: a row of 2,048, 4,096 and 8,192 inputs, and the token after it."""


def recognise(store: Store, entries: Sequence[Entry]) -> list[Found]:
    """Return the chunks of a listing, in the order of the index that names them; one read of each ``index.json``.

    Chunks that an index names count whether they are there or not, so that opening says what is missing.
    """
    have = {entry.path for entry in entries}
    indices = {path for path in have if path.rpartition("/")[2] == INDEX}
    # A chunk may be asked about alone.
    beside = {_index_of(path) for path in have if path.endswith(".bin")} - indices
    found = []
    for index in sorted(indices | {path for path in beside if store.exists(path)}):
        if not _is_index(store, index):
            continue
        folder = index.rpartition("/")[0]
        for path, chunk in parsed(store, index, parse_index).items():
            if path == chunk.path and (index in indices or path in have or chunk.plain in have):
                here = path if path in have or chunk.plain not in have else chunk.plain
                found.append(Found(FORMAT, stem(path), (here,), f"{folder}/{chunk.order:012d}"))
    if not found:
        found = orphans(store, sorted(have))
    return found


def orphans(store: Store, paths: Sequence[str]) -> list[Found]:
    """Return files that are named as LitData's chunks and begin as they do, though no index names them.

    In the order that LitData gives them: by worker, then by number. One small read of each file of such a name.
    """
    found = []
    for path in paths:
        match = CHUNK_NAME.fullmatch(path.rpartition("/")[2])
        if match is None or not (match["packed"] or _begins_like_one(store, path)):
            continue
        folder = path.rpartition("/")[0]
        order = f"{folder}/{int(match['worker']):012d}-{int(match['number']):012d}"
        found.append(Found(FORMAT, stem(path), (path,), order))
    return sorted(found, key=lambda one: one.order)


def _begins_like_one(store: Store, path: str) -> bool:
    reader = store.reader(path)
    try:
        if reader.size < 2 * WORD:
            return False
        items, first = (int.from_bytes(reader.read(at, WORD), "little") for at in (0, WORD))
        return items > 0 and first == WORD * (items + 2)
    finally:
        reader.close()


def _index_of(path: str) -> str:
    folder = path.rpartition("/")[0]
    return f"{folder}/{INDEX}" if folder else INDEX


def _is_index(store: Store, path: str) -> bool:
    """Return whether an ``index.json`` is one of LitData: it has chunks."""
    data = store.read(path)
    try:
        value = loads_strict(data, path) if b'"chunks"' in data else None
    except ValueError:
        return False
    return isinstance(value, dict) and "chunks" in value and "shards" not in value


def open_file(store: Store, path: str, *, accept: Collection[str] = ()) -> LitDataShard:
    """Open a chunk; O(1) where it is not compressed, else it is decompressed.

    Raises `FormatError`: LIT001 an index that is none, LIT002 chunks of something else than tokens, LIT003 a dtype that is
    none, LIT004 a missing file, LIT005 a chunk that no index names, LIT006 a size or LIT007 counts that the index does not
    say, LIT009 .. LIT011 compressed chunks that are not read, not whole, or absurd (LIT011 may be accepted). `check_table` raises LIT008 for offsets
    that fall, or cut an id.

    >>> from tokenreel.store import MemoryStore
    >>> index = b'''{"chunks": [{"filename": "chunk-0-0.bin", "chunk_bytes": 22, "chunk_size": 2, "dim": 3}],
    ...   "config": {"data_format": ["no_header_tensor:20"], "item_loader": "TokensLoader"}}'''
    >>> data = np.array([2, 16, 18, 22], "<u4").tobytes() + np.array([5, 6, 7], "<u2").tobytes()
    >>> shard = open_file(MemoryStore({"index.json": index, "chunk-0-0.bin": data}), "chunk-0-0.bin")
    >>> shard.dtype.name, shard.document(1).tolist()
    ('uint16', [6, 7])
    """
    index = _index_of(path)
    chunk = parsed(store, index, parse_index).get(path) if store.exists(index) else None
    if chunk is None:
        raise FormatError(
            "LIT005",
            path=full_path(store, path),
            expected=f"{index} to name it, for its dtype",
            hint=f"tokenreel repair {store.root} --out DIR --dtype uint16, or what it is",
        )
    reader = _reader(store, chunk, accept)
    try:
        problem = examine(reader, path, chunk)
        if problem is not None:
            raise as_error(problem, store)
        return LitDataShard(store, path, reader, chunk)
    except BaseException:
        reader.close()
        raise


def _reader(store: Store, chunk: Chunk, accept: Collection[str]) -> Reader:
    there = next((path for path in (chunk.plain, chunk.path) if store.exists(path)), None)
    if there is None:
        expected = f"{chunk.bytes} bytes" if not chunk.algorithm else f"{chunk.bytes} bytes, packed with zstd"
        raise FormatError("LIT004", path=full_path(store, chunk.path), expected=expected, found="no such file")
    reader = store.reader(there)
    if there == chunk.plain:
        return reader
    try:
        return UnpackedReader(
            reader, full_path(store, there), chunk.algorithm, chunk.bytes, ("LIT011", "LIT010"), accept
        )
    except FormatError:
        reader.close()
        raise


def examine(reader: Reader, path: str, chunk: Chunk) -> Problem | None:
    """Return the first thing wrong with a chunk's size, its counts and the ends of its table, or None."""
    if reader.size != chunk.bytes:
        expected = f"{chunk.bytes} bytes, as {INDEX} says"
        at = min(reader.size, chunk.bytes)
        return Problem("LIT006", path, offset=at, expected=expected, found=f"{reader.size} bytes")
    whole = WORD * (chunk.items + 2) + chunk.tokens * chunk.dtype.itemsize
    if whole != chunk.bytes:
        said = f"{chunk.items} items of {chunk.tokens} ids of {chunk.dtype.name}"
        return Problem("LIT007", path, f"{INDEX} says {said}", expected=f"{whole} bytes", found=f"{chunk.bytes} bytes")
    items = int.from_bytes(reader.read(0, WORD), "little")
    if items != chunk.items:
        return Problem("LIT007", path, offset=0, expected=f"{chunk.items} items, as {INDEX} says", found=items)
    table = WORD * (items + 2)
    for at, right in ((WORD, table), (table - WORD, whole)):
        found = int.from_bytes(reader.read(at, WORD), "little")
        if found != right:
            return Problem("LIT008", path, "an end of the table", offset=at, expected=right, found=found)
    return None


class LitDataShard(TableShard):
    """One open chunk. Its ids are contiguous; in a compressed chunk `byte_at` counts decompressed bytes."""

    def __init__(self, store: Store, path: str, reader: Reader, chunk: Chunk) -> None:
        begin = WORD * (chunk.items + 2)
        found = Found(FORMAT, stem(path), (path,))
        super().__init__(store, found, reader, chunk.dtype.str, begin, chunk.tokens, chunk.items)
        self.contiguous = not isinstance(reader, UnpackedReader)

    def _edges(self, i: int, j: int) -> Edges:
        offsets = self._payload.array("<u4", WORD * (1 + i), j - i + 1).astype(np.int64)
        return (offsets - self._begin) // self.dtype.itemsize

    def _examine(self) -> Problem | None:
        return next(self.problems(), None)

    def problems(self) -> Iterator[Problem]:
        """Yield every offset that is wrong."""
        width = self.dtype.itemsize
        for begin in range(0, self.documents, CHUNK):
            count = min(self.documents - begin, CHUNK) + 1
            offsets = self._payload.array("<u4", WORD * (1 + begin), count).astype(np.int64)
            lengths = np.diff(offsets)
            for k in np.flatnonzero((lengths < 0) | (lengths % width != 0)).tolist():
                yield Problem(
                    "LIT008",
                    self.files[0],
                    offset=WORD * (2 + begin + k),
                    document=begin + k,
                    expected=f"{int(offsets[k])} and some ids of {width} bytes",
                    found=int(offsets[k + 1]),
                )


def check(store: Store, found: Found) -> Iterator[Problem]:
    """Yield everything wrong with a chunk that opens; raises what `open_file` does."""
    shard = open_file(store, found.files[0])
    try:
        yield from shard.problems()
    finally:
        shard.close()


def notices(store: Store, found: Sequence[Found]) -> list[Problem]:
    """Return what is no error and worth knowing of a folder of chunks: how many ids LitData's reader drops (LIT020)."""
    out = []
    for index in dict.fromkeys(_index_of(shard.files[0]) for shard in found):
        chunks = [chunk for path, chunk in parsed(store, index, parse_index).items() if path == chunk.path]
        total = sum(chunk.tokens for chunk in chunks)
        lost = {block: sum(chunk.tokens % block for chunk in chunks) for block in BLOCKS}
        if any(lost.values()):
            said = "; ".join(f"of {block}, {count} ({count / total:.2%})" for block, count in lost.items() if count)
            message = f"with blocks {said} of {total} ids are never read".replace("%", " %")
            out.append(Problem("LIT020", index, message))
    return out


def lost_to_blocks(store: Store, index: str, block: int) -> list[Problem]:
    """Return, for each chunk of an index, what LitData's reader never gives with blocks of `block` ids (LIT020).

    That is what is left of each chunk after its last whole block. Nothing but the index is read.
    """
    lost = []
    for path, chunk in parsed(store, index, parse_index).items():
        if path == chunk.path and chunk.tokens % block:
            kept = chunk.tokens // block * block
            expected, found = f"{chunk.tokens} ids", f"{kept}, in blocks of {block}"
            lost.append(Problem("LIT020", path, f"{chunk.tokens - kept} ids", expected=expected, found=found))
    return lost
