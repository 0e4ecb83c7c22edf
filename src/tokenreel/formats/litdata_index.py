"""The ``index.json`` of LitData: which chunks there are, in what order, and what is in them.

``{"chunks": [{"filename", "chunk_bytes", "chunk_size", "dim"}, ...], "config": {"data_format": ["no_header_tensor:16"],
"compression", "encryption", "item_loader", ...}}``: `chunk_bytes` are those of the chunk when it is not compressed,
`chunk_size` its items, `dim` its ids. The number after the colon is torch's or NumPy's dtype in LitData's own numbering.
Source: LitData 0.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.indexed import beside, is_count
from tokenreel.formats.loaded import full_path
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from tokenreel.store.base import Store

INDEX = "index.json"
_PACKED = re.compile(r"\.zstd(:\d+)?\.bin$")
"""How a compressed chunk's name ends: with the level, where its writer was given one."""
CHUNK_NAME = re.compile(r"chunk-(?P<worker>\d{1,9})-(?P<number>\d{1,9})(?P<packed>\.zstd(:\d+)?)?\.bin")
KINDS = {
    "no_header_tensor": {11: "u1", 12: "i1", 14: "<i2", 16: "<i4", 18: "<i8", 20: "<u2"},
    "no_header_numpy": {0: "i1", 1: "<i2", 2: "<i4", 3: "<i8", 4: "u1", 5: "<u2", 6: "<u4", 7: "<u8"},
}
"""Integer types by LitData's numbers."""
UNREAD = ("encryption", "ipc_compression", "compression_batch_size")
"""Settings under which a chunk is something else; null in all that is read."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What an index says of one chunk."""

    path: str
    plain: str
    """Where it is when it is not compressed: LitData's reader puts it there."""
    algorithm: str
    """``zstd``, or empty."""
    bytes: int
    items: int
    tokens: int
    dtype: np.dtype[Any]
    order: int


def stem(path: str) -> str:
    """Return a chunk's path without suffixes.

    >>> stem("a/chunk-0-1.zstd.bin"), stem("chunk-0-1.zstd:9.bin"), stem("chunk-0-1.bin")
    ('a/chunk-0-1', 'chunk-0-1', 'chunk-0-1')
    """
    return _PACKED.sub("", path).removesuffix(".bin")


def parse_index(store: Store, path: str) -> dict[str, Chunk]:
    """Return the chunks of an index by path, in its order; each compressed one also by its path when it is not.

    Raises `FormatError`: LIT001 for what is no index, LIT002 for chunks of something else than tokens, LIT003 for a dtype
    that is none, LIT009 for a compression or encryption that is not read; and `ManifestError` (MAN001, MAN002).
    """
    value = loads_strict(store.read(path), full_path(store, path))
    chunks, config = (value.get(key) if isinstance(value, dict) else None for key in ("chunks", "config"))
    if not isinstance(chunks, list) or not isinstance(config, dict):
        raise _wrong(store, path, "LIT001", "chunks and their config", str(value)[:80])
    dtype = _dtype(store, path, config)
    said = config.get("compression")
    others = [name for name in UNREAD if config.get(name) is not None]
    if others or not (said is None or (isinstance(said, str) and said.partition(":")[0] == "zstd")):
        found = ", ".join(f"{name} {config.get(name)}" for name in others) or f"compression {said}"
        raise _wrong(store, path, "LIT009", "no encryption, no compression or zstd of whole chunks", found[:80])
    found_chunks: dict[str, Chunk] = {}
    for number, one in enumerate(chunks):
        name = beside(path, one.get("filename")) if isinstance(one, dict) else None
        if name is None or not name.endswith(".bin") or name in found_chunks:
            raise _wrong(store, path, "LIT001", f"the file of chunk {number}, once", str(one)[:80])
        counts = [one.get(key) for key in ("chunk_bytes", "chunk_size", "dim")]
        if counts[2] is None and is_count(counts[0]) and is_count(counts[1]):
            # LitData writes none where the first item of a chunk is empty; then its size tells.
            counts[2] = max(0, counts[0] - 4 * (counts[1] + 2)) // dtype.itemsize
        if not all(is_count(count) for count in counts):
            raise _wrong(store, path, "LIT001", f"chunk_bytes, chunk_size and dim of chunk {number}", str(one)[:80])
        size, items, tokens = (int(count) for count in counts if count is not None)
        plain = f"{stem(name)}.bin" if said else name
        chunk = Chunk(name, plain, "zstd" if said else "", size, items, tokens, dtype, number)
        found_chunks[name] = found_chunks[plain] = chunk
    return found_chunks


def _dtype(store: Store, path: str, config: dict[str, Any]) -> np.dtype[Any]:
    loader, kinds = config.get("item_loader"), config.get("data_format")
    one = kinds[0] if isinstance(kinds, list) and len(kinds) == 1 else None
    kind, colon, number = one.partition(":") if isinstance(one, str) else ("", "", "")
    if loader not in (None, "TokensLoader") or kind not in KINDS or not colon:
        found = f"{loader}, {str(kinds)[:80]}"
        raise _wrong(store, path, "LIT002", f"TokensLoader and one column of {' or '.join(KINDS)}", found)
    known = KINDS[kind]
    if not (number.isascii() and number.isdigit() and len(number) < 4 and int(number) in known):
        expected = ", ".join(f"{code} {np.dtype(dtype).name}" for code, dtype in known.items())
        raise _wrong(store, path, "LIT003", expected, f"{kind}:{number}")
    return np.dtype(known[int(number)])


def _wrong(store: Store, path: str, code: str, expected: object, found: object) -> FormatError:
    return FormatError(code, path=full_path(store, path), expected=expected, found=found)
