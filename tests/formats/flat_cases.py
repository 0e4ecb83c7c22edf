"""What the tests of table formats share: write documents, read them back, damage files in memory."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from tokenreel.errors import TokenreelError
from tokenreel.formats.base import Boundary
from tokenreel.formats.writing import WriteOptions
from tokenreel.hashing import sha256_file
from tokenreel.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokenreel.formats.base import Shard, WrittenFile

Documents = list[list[int]]


def documents(largest: int = 65535, *, empty: bool = True) -> st.SearchStrategy[Documents]:
    """Lists of documents, with ids at the edges of what fits."""
    ids = st.one_of(st.integers(0, largest), st.sampled_from([0, 1, largest]))
    return st.lists(st.lists(ids, min_size=0 if empty else 1, max_size=9), min_size=1, max_size=12)


def write(
    opener: Callable[[Path, str, WriteOptions], Any],
    root: Path,
    name: str,
    docs: Documents,
    *,
    dtype: str = "uint16",
    calls: int = 2,
    facts: Sequence[Any] | None = None,
    weights: Sequence[float] | None = None,
    **options: object,
) -> tuple[WrittenFile, ...]:
    """Write documents in some calls; what comes back is checked against the files."""
    writer = opener(root, name, WriteOptions(dtype, Boundary(table=True), options))
    try:
        _add(writer, docs, dtype, max(1, -(-len(docs) // calls)), facts, weights)
        files: tuple[WrittenFile, ...] = writer.finish()
    finally:
        writer.abort()
    for file in files:
        assert (root / file.path).stat().st_size == file.bytes
        assert sha256_file(root / file.path) == file.sha256
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")}
    assert left >= {file.path for file in files}
    return files


def _add(
    writer: Any,
    docs: Documents,
    dtype: str,
    step: int,
    facts: Sequence[Any] | None,
    weights: Sequence[float] | None,
) -> None:
    at = 0
    for first in range(0, len(docs), step):
        part = docs[first : first + step]
        if facts is not None:
            writer.add_facts(facts[first : first + step])
        ids = np.array([i for document in part for i in document], dtype=dtype)
        lengths = np.array([len(document) for document in part], dtype=np.int64)
        mine = None if weights is None else np.array(weights[at : at + len(ids)], dtype=np.float32)
        writer.add_documents(ids, lengths, mine)
        at += len(ids)


def read(shard: Shard) -> Documents:
    """Return the documents, read one by one; every other way to read them gives the same."""
    n = shard.documents
    out = [shard.document(i).tolist() for i in range(n)]
    edges = shard.document_edges(0, n)
    assert edges[0] == 0
    assert edges[-1] == shard.tokens
    assert np.diff(edges).tolist() == [len(document) for document in out]
    assert shard.read(0, shard.tokens).tolist() == [i for document in out for i in document]
    assert shard.document_sequences(0, n).tolist() == list(range(n + 1))
    assert shard.sequence_edges(n // 2, n).tolist() == edges[n // 2 :].tolist()
    owners = [k for k, document in enumerate(out) for _ in document]
    assert shard.documents_at(np.arange(shard.tokens)).tolist() == owners
    file, byte = shard.byte_at(0)
    assert file in shard.files
    assert byte >= 0
    return out


def survives(
    opener: Callable[..., Shard], files: dict[str, bytes], path: str, data: bytes, target: str, allowed: Sequence[str]
) -> Shard | None:
    """Open and read with one file replaced; return the shard, or None where it was refused by an allowed code."""
    try:
        shard = opener(MemoryStore({**files, target: data}), path)
        shard.check_table()
        with contextlib.suppress(AttributeError):
            shard.weights(0, shard.tokens)  # type: ignore[attr-defined]
        read(shard)
    except TokenreelError as error:
        assert error.code[:3] in allowed, error  # noqa: PT017
        return None
    return shard


def mutated(data: bytes) -> st.SearchStrategy[bytes]:
    """Cut, lengthened, with bits flipped or words replaced."""
    size = len(data)

    def flip(at: int, bit: int) -> bytes:
        out = bytearray(data)
        out[at % size] ^= 1 << bit
        return bytes(out)

    def word(at: int, value: int, width: int) -> bytes:
        at = at % max(1, size - width) // width * width
        return data[:at] + value.to_bytes(8, "little")[:width] + data[at + width :]

    big = st.sampled_from(
        [0, 1, 255, 65535, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1]
    )
    return st.one_of(
        st.integers(0, size).map(lambda cut: data[:cut]),
        st.binary(min_size=1, max_size=9).map(lambda more: data + more),
        st.builds(flip, st.integers(0, size - 1), st.integers(0, 7)),
        st.builds(word, st.integers(0, size), big, st.sampled_from([1, 2, 4, 8])),
    )
