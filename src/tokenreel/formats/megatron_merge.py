"""Merge Megatron pairs into one, checked: what was written is read again and compared before it gets its name."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError, UsageError
from tokenreel.formats.megatron import MegatronShard, open_pair, open_readers
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.hashing import sha256_file
from tokenreel.store import LocalStore, MapPool
from tokenreel.store.atomic import remove_own

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator, Sequence

    import numpy.typing as npt

    from tokenreel.formats.base import WrittenFile

_DOCUMENTS = 1 << 16


def merge(
    sources: Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    *,
    dtype: npt.DTypeLike | None = None,
    accept: Collection[str] = (),
) -> tuple[WrittenFile, WrittenFile]:
    """Write the documents of all sources, in the order given, as one pair; returns its two files.

    Paths are without suffix. Sources of different integer types need the type of the result (`FormatError` MEG027
    else); ids that do not fit it are a `TokenError` (TOK010). A damaged source is a `FormatError`, as in `open_pair`.
    Before the result gets its name it is read again: its tables are validated, its counts and lengths compared with
    the sources', its payload with the SHA-256 of what was read (MEG028). Memory: a few MiB whatever is merged. Cost:
    the payload is read once and written once, and the result read again.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for name in "ab":
    ...     with MegatronWriter(f"{folder}/{name}", "uint16") as writer:
    ...         writer.add_documents(np.array([7, 0]), np.array([2]))
    ...         _ = writer.finish()
    >>> merge([f"{folder}/a", f"{folder}/b"], f"{folder}/ab")[0].bytes
    8
    """
    if not sources:
        raise UsageError("MEG032")
    pool = MapPool()
    wanted = _common_dtype(sources, dtype, pool, accept)
    plain = all(shard.plain for shard in _opened(sources, pool, accept))
    digest = hashlib.sha256()
    try:
        with MegatronWriter(destination, wanted, one_sequence_per_document=plain) as writer:
            for shard in _opened(sources, pool, accept):
                for i in range(0, shard.documents, _DOCUMENTS):
                    _copy(shard, i, min(i + _DOCUMENTS, shard.documents), writer, digest)

            def check(payload: Path, index: Path) -> None:
                if sha256_file(payload) != digest.hexdigest():
                    raise FormatError("MEG028", "the payload differs", path=payload, expected=digest.hexdigest())
                _compare(sources, pool, accept, payload, index)

            return writer.finish(check)
    except BaseException:
        remove_own(Path(destination))
        raise


def _opened(
    sources: Sequence[str | os.PathLike[str]], pool: MapPool, accept: Collection[str]
) -> Iterator[MegatronShard]:
    """Open one source after the other: any number of them needs only two open files."""
    for source in sources:
        shard = open_pair(LocalStore(Path(source).parent, pool), Path(source).name, accept=accept)
        yield shard
        shard.close()


def _common_dtype(
    sources: Sequence[str | os.PathLike[str]], dtype: npt.DTypeLike | None, pool: MapPool, accept: Collection[str]
) -> np.dtype[Any]:
    if dtype is not None:
        return _dtype(dtype)
    first: np.dtype[Any] | None = None
    for source, shard in zip(sources, _opened(sources, pool, accept), strict=True):
        first = first or shard.dtype
        if shard.dtype != first:
            raise FormatError(
                "MEG027",
                path=source,
                expected=first.name,
                found=shard.dtype.name,
                hint="tokenreel merge --dtype int32 ...",
            )
    return first or np.dtype("<u2")


def _dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    try:
        return np.dtype(dtype).newbyteorder("<")
    except TypeError:
        raise UsageError("MEG030", expected="uint16 or int32", found=dtype, hint="--dtype int32") from None


def _copy(shard: MegatronShard, i: int, j: int, writer: MegatronWriter, digest: hashlib._Hash) -> None:
    owners = shard.document_sequences(i, j)
    edges = shard.sequence_edges(int(owners[0]), int(owners[-1]))
    ids = shard.read(int(edges[0]), int(edges[-1]))
    writer.add_documents(ids, np.diff(edges), sequences=np.diff(owners))
    # Piecewise: a view of a map is hashed without a copy of it in memory, whatever its size.
    for begin in range(0, len(ids), 1 << 20):
        digest.update(np.ascontiguousarray(ids[begin : begin + (1 << 20)], dtype=writer.dtype).data.cast("B"))


def _compare(
    sources: Sequence[str | os.PathLike[str]], pool: MapPool, accept: Collection[str], payload: Path, index: Path
) -> None:
    """Raise `FormatError` (MEG028) unless the finished pair has the sources' tables, one after the other."""
    store = LocalStore(payload.parent, pool)
    made = open_readers(store, payload.name, store.reader(index.name), store.reader(payload.name))
    documents = sequences = tokens = 0
    for shard in _opened(sources, pool, accept):
        for i in range(0, shard.documents, _DOCUMENTS):
            j = min(i + _DOCUMENTS, shard.documents)
            want, have = shard.document_sequences(i, j), made.document_sequences(documents + i, documents + j)
            same = np.array_equal(want + sequences, have) and np.array_equal(
                shard.sequence_edges(int(want[0]), int(want[-1])) + tokens,
                made.sequence_edges(int(have[0]), int(have[-1])),
            )
            if not same:
                raise FormatError("MEG028", "the tables differ", path=index, document=documents + i)
        documents, sequences, tokens = documents + shard.documents, sequences + shard.sequences, tokens + shard.tokens
    counts = (made.documents, made.sequences, made.tokens)
    made.close()
    if counts != (documents, sequences, tokens):
        raise FormatError(
            "MEG028", "the counts differ", path=index, expected=(documents, sequences, tokens), found=counts
        )
