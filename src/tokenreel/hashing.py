"""Hashes of files and of corpora: SHA-256, XXH3-128, BLAKE3 leaves and the corpus identity of format 1.

The identity is what lets corpora in other formats, shardings or integer widths be proved equal. A document's
content is its stored ids minus one declared prefix and one declared suffix where they are present. Three streams are
cut into leaves from the start of the corpus: lengths of content (uint64 LE) and flags (uint8) in leaves of 2**20
documents, content ids (uint32 LE, end to end) in leaves of 2**22 tokens. A leaf is the BLAKE3 of its bytes, and the
identity is SHA-256 over a tag, both counts and all leaves. `tests/identity_reference.py` is the short reference.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from tokenreel.errors import TokenError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.integer[Any]]

IDENTITY_TAG = b"tokenreel-identity-1\n"
DOCUMENT_LEAF = 1 << 20
TOKEN_LEAF = 1 << 22
PREFIX_ABSENT = 1
SUFFIX_ABSENT = 2
_CHUNK = 1 << 22


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes in hex; reads 4 MiB at a time."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (a raw, unbuffered handle)
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def sha256_lines(digests: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 over sorted ``"sha256  path\\n"`` lines: one hash for a set of files.

    >>> sha256_lines([("a.bin", "00")])[:8]
    '0e35b913'
    """
    lines = sorted(f"{digest}  {path}\n" for path, digest in digests)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Sha256Writer:
    """A binary sink that hashes and counts what passes through it to `file`."""

    __slots__ = ("_digest", "_file", "bytes")

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        """Write all of `data`, or raise what the file raises."""
        self._file.write(data)
        self._digest.update(data)
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        self.bytes += size
        return size

    def hexdigest(self) -> str:
        """Return the SHA-256 of everything written so far."""
        return self._digest.hexdigest()


def xxh3_128(data: bytes | memoryview) -> bytes:
    """Return the 16-byte XXH3-128 of `data` in canonical (big-endian) order.

    >>> xxh3_128(b"").hex()
    '99aa06d3014798d86001c324468d497f'
    """
    import xxhash

    return xxhash.xxh3_128_digest(data)


def blake3_leaf(data: bytes | memoryview) -> bytes:
    """Return the 32-byte BLAKE3 of one leaf's bytes."""
    import blake3

    return blake3.blake3(data).digest()


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a corpus and the leaves it was made of."""

    digest: str
    """SHA-256 in hex: equal for corpora with the same documents, whatever their format."""
    documents: int
    content_tokens: int
    lengths: tuple[bytes, ...]
    flags: tuple[bytes, ...]
    tokens: tuple[bytes, ...]

    def first_difference(self, other: Identity) -> tuple[str, int, int] | None:
        """Return (stream, first unit, last unit + 1) of the first leaf that differs, or None when equal.

        Units are documents for ``lengths`` and ``flags`` and content tokens for ``tokens``.
        """
        for stream, leaf in (("lengths", DOCUMENT_LEAF), ("flags", DOCUMENT_LEAF), ("tokens", TOKEN_LEAF)):
            mine: tuple[bytes, ...] = getattr(self, stream)
            theirs: tuple[bytes, ...] = getattr(other, stream)
            for k in range(max(len(mine), len(theirs))):
                if k >= len(mine) or k >= len(theirs) or mine[k] != theirs[k]:
                    return stream, k * leaf, (k + 1) * leaf
        return None


class _Leaves:
    """One stream cut into leaves of `size` units; holds at most one leaf of bytes."""

    __slots__ = ("_parts", "_room", "_size", "leaves")

    def __init__(self, size: int) -> None:
        self._size = size
        self._room = size
        self._parts: list[memoryview] = []
        self.leaves: list[bytes] = []

    def add(self, values: npt.NDArray[Any]) -> None:
        begin = 0
        while begin < len(values):
            take = min(self._room, len(values) - begin)
            # Own copy: the caller's array may be a view of a map or a buffer that is reused.
            self._parts.append(values[begin : begin + take].copy().data.cast("B"))
            self._room -= take
            begin += take
            if self._room == 0:
                self._close()

    def _close(self) -> None:
        if self._parts:
            self.leaves.append(blake3_leaf(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)))
        self._parts = []
        self._room = self._size

    def finish(self) -> tuple[bytes, ...]:
        self._close()
        return tuple(self.leaves)


class IdentityHasher:
    """Computes a corpus identity from documents in order; memory is at most one leaf per stream.

    `prefix` and `suffix` are the declared boundary ids (empty: none). The prefix is taken first, then the suffix from
    what remains. With ``exceptions=False`` flags stay out of the identity.

    >>> import numpy as np
    >>> h = IdentityHasher((), (0,))
    >>> h.update(np.array([5, 6, 0, 7, 0]), np.array([3, 2]))
    >>> h.finish().content_tokens
    3
    """

    def __init__(self, prefix: tuple[int, ...] = (), suffix: tuple[int, ...] = (), *, exceptions: bool = True) -> None:
        self.prefix = tuple(prefix)
        self.suffix = tuple(suffix)
        self.exceptions = exceptions
        self.documents = 0
        self.content_tokens = 0
        self._lengths = _Leaves(DOCUMENT_LEAF)
        self._flags = _Leaves(DOCUMENT_LEAF)
        self._tokens = _Leaves(TOKEN_LEAF)

    def update(self, ids: IntArray, lengths: IntArray) -> None:
        """Add whole documents: their stored ids end to end, and their stored lengths (sum equals ``len(ids)``).

        Raises `TokenError` (TOK001) for a negative id or one of 2**32 and more. Cost: about 1 ns a token.
        """
        import numpy as np

        ids = np.asarray(ids)
        _check_range(ids)
        ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
        begins = ends - lengths
        has_prefix = _present(ids, begins, ends, self.prefix, at_end=False)
        content_begins = begins + len(self.prefix) * has_prefix
        has_suffix = _present(ids, content_begins, ends, self.suffix, at_end=True)
        content_ends = ends - len(self.suffix) * has_suffix
        flags = np.zeros(len(ends), dtype=np.uint8)
        if self.prefix:
            flags |= (~has_prefix).astype(np.uint8) * np.uint8(PREFIX_ABSENT)
        if self.suffix:
            flags |= (~has_suffix).astype(np.uint8) * np.uint8(SUFFIX_ABSENT)
        content = content_ends - content_begins
        self._lengths.add(content.astype("<u8"))
        if self.exceptions:
            self._flags.add(flags)
        self._tokens.add(_without(ids, begins, content_begins, content_ends, ends).astype("<u4"))
        self.documents += len(ends)
        self.content_tokens += int(content.sum())

    def finish(self) -> Identity:
        """Return the identity of everything added; the hasher must not be used afterwards."""
        streams = self._lengths.finish(), self._flags.finish(), self._tokens.finish()
        digest = identity_digest(self.documents, self.content_tokens, *streams)
        return Identity(digest, self.documents, self.content_tokens, *streams)


def identity_digest(
    documents: int,
    content_tokens: int,
    lengths: tuple[bytes, ...],
    flags: tuple[bytes, ...],
    tokens: tuple[bytes, ...],
) -> str:
    """Return the identity in hex from counts and leaves.

    >>> identity_digest(0, 0, (), (), ())[:16]
    'fef7d30909b2b799'
    """
    digest = hashlib.sha256(IDENTITY_TAG)
    digest.update(documents.to_bytes(8, "little") + content_tokens.to_bytes(8, "little"))
    for leaf in _flatten(lengths, flags, tokens):
        digest.update(leaf)
    return digest.hexdigest()


def _flatten(*streams: tuple[bytes, ...]) -> Iterator[bytes]:
    for stream in streams:
        yield from stream


def _check_range(ids: IntArray) -> None:
    if ids.size == 0 or (ids.dtype.kind == "u" and ids.dtype.itemsize <= 4):
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= 1 << 32:
        bad = int(((ids < 0) | (ids >= 1 << 32)).argmax())
        raise TokenError(
            "TOK001",
            f"token {bad} of this run has id {int(ids[bad])}",
            expected="0 <= id < 2**32",
            found=int(ids[bad]),
            hint="tokenreel inspect PATH",
        )


def _present(
    ids: IntArray, begins: IntArray, ends: IntArray, wanted: tuple[int, ...], *, at_end: bool
) -> npt.NDArray[np.bool_]:
    """Return, per document, whether `wanted` stands at the given edge and fits between begin and end."""
    import numpy as np

    width = len(wanted)
    found: npt.NDArray[np.bool_] = np.asarray(ends - begins >= width)
    if not width or not ids.size:
        return found & (width > 0)
    first = ends - width if at_end else begins
    for k, value in enumerate(wanted):
        at = np.clip(first + k, 0, len(ids) - 1)
        found &= ids[at] == value
    return found


def _without(
    ids: IntArray, begins: IntArray, content_begins: IntArray, content_ends: IntArray, ends: IntArray
) -> IntArray:
    """Return the ids with each document's [begin, content_begin) and [content_end, end) taken out."""
    import numpy as np

    if np.array_equal(begins, content_begins) and np.array_equal(content_ends, ends):
        return ids
    edge = np.zeros(len(ids) + 1, dtype=np.int32)
    np.add.at(edge, content_begins, 1)
    np.add.at(edge, content_ends, -1)
    return ids[np.cumsum(edge[:-1]) > 0]
