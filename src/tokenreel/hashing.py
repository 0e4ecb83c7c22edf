"""Hashes of files and of corpora: SHA-256, XXH3-128, BLAKE3 leaves and the corpus identity of format 1.

The identity is what lets corpora in other formats, shardings or integer widths be proved equal. A document's
content is its stored ids minus one declared prefix and one declared suffix where they are present. Three streams are
cut into leaves from the start of the corpus: lengths of content (uint64 LE) and flags (uint8) in leaves of 2**20
documents, content ids (uint32 LE, end to end) in leaves of 2**22 tokens. A leaf is the BLAKE3 of its bytes, and the
identity is SHA-256 over a tag, both counts and all leaves. `docs/identity.md` holds a reference in 30 lines.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from tokenreel.errors import StorageError, TokenError

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
_PIECE = 1 << 18
"""Ids widened together; a leaf is a whole number of pieces."""
_LONG = 2048
"""Ids a document from which on, in the mean, copying run by run is cheaper than masking."""


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes in hex; reads 4 MiB at a time.

    Raises `StorageError`: STO001 the file is not there, STO002 it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (a raw, unbuffered handle)
            while block := file.read(_CHUNK):
                digest.update(block)
    except FileNotFoundError as error:
        raise StorageError("STO001", path=path, hint=f"ls -l {path}") from error
    except OSError as error:
        raise StorageError("STO002", f"could not read: {error.strerror or error}", path=path) from error
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

    def without_flags(self) -> Identity:
        """Return the identity of the same documents with flags left out, as ``exceptions=False`` gives it."""
        digest = identity_digest(self.documents, self.content_tokens, self.lengths, (), self.tokens)
        return replace(self, digest=digest, flags=())

    def first_difference(self, other: Identity) -> tuple[str, int, int] | None:
        """Return (stream, first unit, last unit + 1) of the first leaf that differs, or None when equal.

        Units are documents for ``lengths`` and ``flags`` and content tokens for ``tokens``; the range ends where the
        longer corpus does. Streams are compared in that order, so a difference in lengths hides one in tokens. Flags
        are compared only where both identities have them.
        """
        documents = max(self.documents, other.documents)
        tokens = max(self.content_tokens, other.content_tokens)
        for stream, leaf, end in (
            ("lengths", DOCUMENT_LEAF, documents),
            ("flags", DOCUMENT_LEAF, documents),
            ("tokens", TOKEN_LEAF, tokens),
        ):
            mine: tuple[bytes, ...] = getattr(self, stream)
            theirs: tuple[bytes, ...] = getattr(other, stream)
            if stream == "flags" and not (mine and theirs):
                continue
            for k in range(max(len(mine), len(theirs))):
                if k >= len(mine) or k >= len(theirs) or mine[k] != theirs[k]:
                    return stream, k * leaf, min((k + 1) * leaf, end)
        return None


class _Leaves:
    """One stream cut into leaves of `size` units of type `kind`; holds a hash state, and bytes only of a head.

    Ids are collected until a piece of them is there. Then it is widened and hashed while it is in the processor's cache;
    BLAKE3 is twice as fast on pieces that begin at multiples of their size. A stream that begins at unit `begin`, inside a
    leaf, keeps its units up to that leaf's end as they are: they are hashed behind those before them, in `join`.
    """

    __slots__ = ("_head", "_held", "_kind", "_missing", "_narrow", "_new", "_open", "_room", "_size", "_wide", "leaves")

    def __init__(self, size: int, kind: str, begin: int = 0) -> None:
        import blake3

        self._new = blake3.blake3
        self._open = self._new()
        self._size = size
        self._kind = kind
        self._room = size
        self._head = bytearray()
        self._missing = -begin % size
        """Units that the head lacks up to the end of its leaf."""
        self._held = 0
        """Ids collected."""
        self._narrow: IntArray | None = None
        self._wide: npt.NDArray[np.uint32] | None = None
        self.leaves: list[bytes] = []

    def add_ids(self, ids: IntArray) -> None:
        """Add ids as uint32; they were checked to fit."""
        piece = self._piece(ids.dtype)
        begin = 0
        while begin < len(ids):
            if not self._held and len(ids) - begin >= _PIECE:
                self._widened(ids[begin : begin + _PIECE])
                begin += _PIECE
                continue
            take = min(_PIECE - self._held, len(ids) - begin)
            piece[self._held : self._held + take] = ids[begin : begin + take]
            begin += take
            self._collected(take)

    def add_runs(self, ids: IntArray, begins: IntArray, ends: IntArray) -> None:
        """Add the ids of the runs [begin, end), which follow each other. Cost: 100 ns a run, and a copy."""
        import numpy as np

        data = np.ascontiguousarray(ids).view(np.uint8).data
        width = ids.dtype.itemsize
        cuts = zip((begins * width).tolist(), (ends * width).tolist(), strict=True)
        self.add_ids(np.frombuffer(b"".join([data[begin:end] for begin, end in cuts]), dtype=ids.dtype))

    def _piece(self, dtype: np.dtype[Any]) -> IntArray:
        """Return where ids of this type are collected."""
        import numpy as np

        if self._narrow is None or self._narrow.dtype != dtype:
            self._flush()
            self._narrow = np.empty(_PIECE, dtype=dtype)
        return self._narrow

    def _collected(self, count: int) -> None:
        self._held += count
        if self._held == _PIECE:
            self._flush()

    def _flush(self) -> None:
        if self._narrow is not None and self._held:
            self._widened(self._narrow[: self._held])
        self._held = 0

    def _widened(self, ids: IntArray) -> None:
        import numpy as np

        if self._wide is None:
            self._wide = np.empty(_PIECE, dtype="<u4")
        np.copyto(self._wide[: len(ids)], ids, casting="unsafe")
        self.add(self._wide[: len(ids)])

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add values as they are."""
        begin = min(self._missing, len(values))
        if begin:
            self._head += values[:begin].data.cast("B")
            self._missing -= begin
        while begin < len(values):
            take = min(self._room, len(values) - begin)
            self._open.update(values[begin : begin + take].data.cast("B"))
            self._room -= take
            begin += take
            if self._room == 0:
                self._close()

    def _close(self) -> None:
        if self._room < self._size:
            self.leaves.append(self._open.digest())
        self._open = self._new()
        self._room = self._size

    def join(self, other: _Leaves) -> None:
        """Add what was added to `other`, which begins where this one ends."""
        import numpy as np

        self._flush()
        other._flush()
        self.add(np.frombuffer(other._head, dtype=self._kind))
        if other._missing == 0:
            self.leaves += other.leaves
            self._open, self._room = other._open, other._room

    def finish(self) -> tuple[bytes, ...]:
        self._flush()
        self._close()
        return tuple(self.leaves)


class IdentityHasher:
    """Computes a corpus identity from documents in order; keeps 32 bytes a leaf and a few copies of one update.

    `prefix` and `suffix` are the declared boundary ids (empty: none). The prefix is taken first, then the suffix from
    what remains. With ``exceptions=False`` flags stay out of the identity.

    Parts of a corpus can be added to hashers of their own, in threads, and joined in order: a part's hasher is told where
    it begins, in documents and content tokens, and keeps up to 16 MiB until then.

    >>> import numpy as np
    >>> h = IdentityHasher((), (0,))
    >>> h.update(np.array([5, 6, 0, 7, 0]), np.array([3, 2]))
    >>> part = IdentityHasher((), (0,), begin=h.end)
    >>> part.update(np.array([8, 0]), np.array([2]))
    >>> h.join(part)
    >>> h.finish().content_tokens
    4
    """

    def __init__(
        self,
        prefix: tuple[int, ...] = (),
        suffix: tuple[int, ...] = (),
        *,
        exceptions: bool = True,
        begin: tuple[int, int] = (0, 0),
    ) -> None:
        self.prefix = tuple(prefix)
        self.suffix = tuple(suffix)
        self.exceptions = exceptions
        self.begin = begin
        self.documents, self.content_tokens = begin
        self._lengths = _Leaves(DOCUMENT_LEAF, "<u8", begin[0])
        self._flags = _Leaves(DOCUMENT_LEAF, "u1", begin[0])
        self._tokens = _Leaves(TOKEN_LEAF, "<u4", begin[1])
        self._kept: Any = ()
        """True for each id of an update; kept, since making it anew costs as much as using it."""

    @property
    def end(self) -> tuple[int, int]:
        """Documents and content tokens up to here, those before `begin` among them."""
        return self.documents, self.content_tokens

    def update(self, ids: IntArray, lengths: IntArray) -> None:
        """Add whole documents: their stored ids end to end, and their stored lengths (sum equals ``len(ids)``).

        Raises `TokenError`: TOK001 an id that is negative or 2**32 and more, or not an integer; TOK005 lengths that do
        not delimit the ids. Nothing is added then. Cost: about 1 ns a token and 200 ns a document.
        """
        import numpy as np

        ids = np.asarray(ids)
        sizes = _checked_lengths(np.asarray(lengths), len(ids), self.documents)
        ends = np.cumsum(sizes)
        _check_range(ids, ends, self.documents)
        begins = ends - sizes
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
        total = int(content.sum())
        self._lengths.add(content.astype("<u8"))
        if self.exceptions:
            self._flags.add(flags)
        if total == len(ids):
            self._tokens.add_ids(ids)
        elif len(ends) * _LONG < len(ids):
            self._tokens.add_runs(ids, content_begins, content_ends)
        else:
            prefixes = begins[has_prefix], len(self.prefix)
            suffixes = content_ends[has_suffix], len(self.suffix)
            self._tokens.add_ids(self._without(ids, prefixes, suffixes))
        self.documents += len(ends)
        self.content_tokens += total

    def _without(self, ids: IntArray, *runs: tuple[npt.NDArray[np.int64], int]) -> IntArray:
        """Return the ids with every run taken out: (first positions, width) of the prefixes and of the suffixes."""
        import numpy as np

        if len(self._kept) < len(ids):
            self._kept = np.ones(len(ids), dtype=np.bool_)
        kept = self._kept[: len(ids)]
        places = [firsts + k for firsts, width in runs for k in range(width)]
        for at in places:
            kept[at] = False
        left: IntArray = ids[kept]
        for at in places:
            kept[at] = True
        return left

    def join(self, part: IdentityHasher) -> None:
        """Add what was added to `part`, which must not be used afterwards; raises `ValueError` unless it begins here.

        Cost: that of hashing up to a leaf, whatever the part holds.
        """
        mine, theirs = ((one.prefix, one.suffix, one.exceptions) for one in (self, part))
        if part.begin != self.end or mine != theirs:
            raise ValueError(
                f"a part that begins at {part.begin} with {theirs} is not what follows {self.end} with {mine}"
            )
        self._lengths.join(part._lengths)
        self._flags.join(part._flags)
        self._tokens.join(part._tokens)
        self.documents, self.content_tokens = part.end

    def finish(self) -> Identity:
        """Return the identity of everything added; the hasher must not be used afterwards.

        Raises `ValueError` for a part that begins inside a corpus: it has none.
        """
        if self.begin != (0, 0):
            raise ValueError(f"a part that begins at {self.begin} has no identity: join it to what is before it")
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


def _checked_lengths(lengths: IntArray, tokens: int, first: int) -> npt.NDArray[np.int64]:
    """Return the lengths as int64; raises `TokenError` (TOK005) unless they delimit exactly `tokens` ids."""
    import numpy as np

    if lengths.size and lengths.dtype.kind not in "iu":
        raise TokenError("TOK005", "lengths are not integers", expected="integers", found=str(lengths.dtype))
    # Checked one by one before the sum: a sum of large lengths wraps around.
    if lengths.size and (int(lengths.min()) < 0 or int(lengths.max()) > tokens):
        bad = int(((lengths < 0) | (lengths > tokens)).argmax())
        raise TokenError("TOK005", document=first + bad, expected=f"0 .. {tokens} tokens", found=int(lengths[bad]))
    sizes = lengths.astype(np.int64)
    if int(sizes.sum()) != tokens:
        raise TokenError("TOK005", document=first, expected=f"{tokens} tokens in all", found=int(sizes.sum()))
    return sizes


def _check_range(ids: IntArray, ends: npt.NDArray[np.int64], first: int) -> None:
    if ids.size == 0 or (ids.dtype.kind == "u" and ids.dtype.itemsize <= 4):
        return
    if ids.dtype.kind not in "iu":
        raise TokenError("TOK001", "ids are not integers", document=first, expected="integers", found=str(ids.dtype))
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= 1 << 32:
        bad = int(((ids < 0) | (ids >= 1 << 32)).argmax())
        raise TokenError(
            "TOK001",
            f"token {bad} of this run",
            document=first + int(ends.searchsorted(bad, side="right")),
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
    if not width or not ids.size:
        return np.zeros(len(ends), dtype=np.bool_)
    found: npt.NDArray[np.bool_] = np.asarray(ends - begins >= width)
    fits = bool(found.all())
    first = ends - width if at_end else begins
    for k, value in enumerate(wanted):
        at = first + k if fits else np.clip(first + k, 0, len(ids) - 1)
        found &= ids[at] == value
    return found
