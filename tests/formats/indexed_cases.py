"""What the tests of formats with an index share: documents to write, a corpus written and read back, files broken at random."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from tokenreel.errors import TokenreelError
from tokenreel.formats import open_shard, shards_of
from tokenreel.formats.registry import format_named
from tokenreel.formats.writing import FactsShard, FinishedShard, WriteOptions, writing_of
from tokenreel.store import LocalStore, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tokenreel.formats.base import Shard
    from tokenreel.store import Store

Documents = list[list[int]]
LARGEST = 64 << 20


MANY = 20_000
"""Broken files that a parser alone is tried with by `./run test --all`; `test_fuzz` tries more, otherwise damaged."""
fewer = settings(max_examples=25)
"""For properties that write files: each waits for the disk."""


def documents(dtype: str) -> st.SearchStrategy[list[Documents]]:
    """Shards of documents: empty ones, short ones, ids at the ends of the dtype."""
    info = np.iinfo(dtype)
    ids = st.one_of(st.integers(0, min(300, int(info.max))), st.sampled_from([0, 1, int(info.max) - 1, int(info.max)]))
    document = st.one_of(
        st.lists(ids, max_size=5), st.integers(0, 300).map(lambda n: [i % (info.max + 1) for i in range(n)])
    )
    return st.lists(st.lists(document, min_size=1, max_size=6), min_size=1, max_size=3)


def write(root: Path, name: str, shards: Sequence[Documents], dtype: str, **options: object) -> list[FinishedShard]:
    """Write shards as `convert` does, half of a shard's documents at a time."""
    writing = writing_of(format_named(name))
    chosen = WriteOptions(dtype, options=options)
    finished = []
    for number, members in enumerate(shards):
        naming = writing.shard_name or (lambda number, _: f"part-{number:06d}")
        called = naming(number, chosen)
        writer = writing.open_writer(root, called, chosen)
        half = len(members) // 2
        for part in (members[:half], members[half:]):
            lengths = np.array([len(ids) for ids in part], dtype=np.int64)
            writer.add_documents(np.array([i for ids in part for i in ids], dtype=dtype), lengths)
        tokens = sum(map(len, members))
        finished.append(FinishedShard(called, len(members), tokens, writer.finish()))
    if writing.finish_folder is not None:
        writing.finish_folder(root, finished, chosen)
    return finished


def opened(store: Store, **given: Any) -> list[Shard]:
    """Every shard of a store."""
    return [open_shard(store, found) for found in shards_of(store, store.list(), **given)]


def read(store: Store, **given: Any) -> list[Documents]:
    """The documents of every shard, read one by one; held against the shard's other ways to say the same."""
    out = []
    for shard in opened(store, **given):
        edges = shard.document_edges(0, shard.documents)
        members = [shard.document(i).tolist() for i in range(shard.documents)]
        whole = shard.read(0, shard.tokens).tolist()
        assert [i for ids in members for i in ids] == whole
        assert (int(edges[0]), int(edges[-1])) == (0, shard.tokens)
        middle = shard.tokens // 2
        assert shard.read(0, middle).tolist() + shard.read(middle, shard.tokens).tolist() == whole
        if shard.tokens:
            held = shard.documents_at(np.array([0, middle, shard.tokens - 1]))
            assert all(edges[d] <= at < edges[d + 1] for d, at in zip(held, (0, middle, shard.tokens - 1), strict=True))
        out.append(members)
        shard.close()
    return out


def in_memory(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    store = LocalStore(root)
    return {entry.path: store.read(entry.path) for entry in store.list()}


def broken(files: dict[str, bytes], seed: int, count: int) -> Iterator[dict[str, bytes]]:
    """Yield `count` corpora, each with one file changed: bytes, numbers, cuts, more bytes, nothing left, or gone."""
    rng = np.random.default_rng(seed)
    names = sorted(files)
    for _ in range(count):
        name = names[int(rng.integers(len(names)))]
        data = bytearray(files[name])
        kind = int(rng.integers(10))
        at = int(rng.integers(max(1, len(data)))) if rng.integers(2) else int(rng.integers(max(1, min(64, len(data)))))
        changed = dict(files)
        if kind < 4 and data:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 4:
            data[at : at + 4] = int(rng.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000])).to_bytes(4, "little")
        elif kind == 5:
            data[at : at + 8] = int(rng.choice([0, 1 << 62, (1 << 63) - 1, 1 << 40])).to_bytes(8, "little")
        elif kind == 6:
            del data[at:]
        elif kind == 7:
            data[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 9)), dtype=np.uint8))
        elif kind == 8:
            digits = [k for k, byte in enumerate(data) if 48 <= byte < 58]
            if digits:
                data[digits[int(rng.integers(len(digits)))]] = int(rng.integers(48, 58))
        else:
            data[at : at + int(rng.integers(1, 9))] = b""
        changed[name] = bytes(data)
        if kind == 9 and not rng.integers(4):
            del changed[name]
        yield changed


def look(files: dict[str, bytes], **given: Any) -> list[Documents] | str:
    """What a corpus in memory reads as, or the code that refuses it; any other error is a bug."""
    store = MemoryStore(files)
    try:
        return [
            [shard.document(i).tolist() for i in range(min(shard.documents, 50))] for shard in opened(store, **given)
        ]
    except TokenreelError as error:
        return error.code


def look_at(opener: Any, files: dict[str, bytes], path: str) -> str:
    """The code that refuses one shard in memory, or nothing: the parser alone, without recognition."""
    try:
        shard = opener(MemoryStore(files), path)
        shard.check_table()
        shard.read(0, min(shard.tokens, 1000))
        if shard.documents:
            shard.document(shard.documents - 1)
        if isinstance(shard, FactsShard):
            shard.facts(0, min(shard.documents, 100))
        shard.close()
    except TokenreelError as error:
        return error.code
    return ""


def peak(files: dict[str, bytes], **given: Any) -> int:
    """Bytes that looking takes at most."""
    tracemalloc.start()
    try:
        look(files, **given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
