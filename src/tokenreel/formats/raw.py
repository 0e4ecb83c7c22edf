"""Read ids without a header (nanoGPT's ``train.bin``, ``val.bin``) and NumPy's ``.npy`` files (build-nanogpt).

A headerless file proves nothing: any even number of bytes is a file of uint16. Its dtype is given, or follows from the
vocabulary where only one width gives ids inside it; and what is given is held against the ids. A ``.npy`` file says its
dtype, and is parsed without running anything that is in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.base import Found
from tokenreel.formats.flat import FlatShard

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tokenreel.store.base import Entry, Reader, Store

NPY_MAGIC = b"\x93NUMPY"
WIDTHS = {"uint16": "<u2", "uint32": "<u4"}
GIVEN = tuple(WIDTHS)
STRETCHES, STRETCH_BYTES = 64, 1 << 14
"""Of a file whose dtype is to be proved."""
OPENED, OPENED_BYTES = 8, 1 << 12
"""Of every file that is opened."""
INTERLEAVED = 0.4
"""Zeros among every second 16 bits, from which on a file is one of 32 bits."""
NO_VOCABULARY = 1 << 24
"""No tokenizer has an id as large as this; two ids of 16 bits read as one mostly are."""
_MOST_HEADER = 10_000
_DESCR = r"""['"]descr['"] ?: ?['"]([<>=|]?[a-zA-Z][0-9]*)['"]"""
_ORDER = r"""['"]fortran_order['"] ?: ?(True|False)"""
_SHAPE = r"""['"]shape['"] ?: ?\(([0-9, ]*)\)"""
_DICTIONARY = re.compile(rf"\{{ ?(?:(?:{_DESCR}|{_ORDER}|{_SHAPE}),? ?){{3}}\}} *\n?")
"""What NumPy and others write: a dictionary of three keys, spelled as Python does. Nothing of it is run."""
_INTEGER = re.compile(r"[<>|=]?[iu]1|<[iu][248]")


def open_uint16(store: Store, path: str, *, accept: Collection[str] = ()) -> FlatShard:
    """Open a headerless file of uint16; see `open_raw`."""
    return open_raw(store, path, "uint16", accept=accept)


def open_uint32(store: Store, path: str, *, accept: Collection[str] = ()) -> FlatShard:
    """Open a headerless file of uint32; see `open_raw`."""
    return open_raw(store, path, "uint32", accept=accept)


def open_raw(store: Store, path: str, dtype: str, *, accept: Collection[str] = ()) -> FlatShard:
    """Open a headerless file. Raises `FormatError`: FLT002 for a size no such file has, FLT003 for ids of another width.

    FLT003 looks at 8 stretches of 4 KiB, and `accept` overrules it.

    >>> from tokenreel.store import MemoryStore
    >>> open_raw(MemoryStore({"train.bin": bytes([5, 1, 6, 1])}), "train.bin", "uint16").read(0, 2).tolist()
    [261, 262]
    """
    reader = store.reader(path)
    try:
        width = np.dtype(WIDTHS[dtype]).itemsize
        if reader.size == 0 or reader.size % width:
            raise FormatError(
                "FLT002",
                path=_full(store, path),
                expected=f"a positive multiple of {width}, for {dtype}",
                found=f"{reader.size} bytes",
            )
        wrong = contradiction(sample(reader, OPENED, OPENED_BYTES), dtype)
        if wrong and "FLT003" not in accept:
            raise FormatError(
                "FLT003", wrong, path=_full(store, path), expected=dtype, hint="--accept FLT003 to read it all the same"
            )
        return FlatShard(f"raw-{dtype}", path, reader, WIDTHS[dtype], 0)
    except BaseException:
        reader.close()
        raise


def sample(reader: Reader, stretches: int = STRETCHES, length: int = STRETCH_BYTES) -> bytes:
    """Return stretches of a file, spread evenly, whole 32-bit words each; all of a file that is no longer than they are."""
    size = reader.size // 4 * 4
    if size <= stretches * length:
        return reader.read(0, size)
    begins = [(size - length) * k // (stretches - 1) // 4 * 4 for k in range(stretches)]
    return b"".join(reader.read(begin, length) for begin in begins)


def contradiction(data: bytes, dtype: str) -> str:
    """Return why ids of this dtype cannot be what a sample of a file holds, or an empty string.

    >>> contradiction(np.arange(1000, dtype="<u4").tobytes(), "uint16")
    '100 % of every second 16 bits are zero: ids of 32 bits look like that'
    >>> contradiction(np.arange(300, 1300, dtype="<u2").tobytes(), "uint32")
    '100 % of the ids are 16777216 and more: two ids of 16 bits in one look like that'
    """
    if len(data) < 8:
        return ""
    if dtype == "uint16":
        high = np.frombuffer(data, "<u2")[1::2]
        share = float((high == 0).mean())
        if share >= INTERLEAVED:
            return f"{share:.0%} of every second 16 bits are zero: ids of 32 bits look like that".replace("%", " %")
        return ""
    share = float((np.frombuffer(data, "<u4") >= NO_VOCABULARY).mean())
    if share >= INTERLEAVED:
        said = f"{share:.0%} of the ids are {NO_VOCABULARY} and more: two ids of 16 bits in one look like that"
        return said.replace("%", " %")
    return ""


def prove_dtype(reader: Reader, vocab: int) -> str | None:
    """Return the one dtype under which a sample of a file holds nothing but ids below `vocab`, or None."""
    data = sample(reader)
    possible = []
    for dtype, code in WIDTHS.items():
        if len(data) < 8 or reader.size % np.dtype(code).itemsize:
            continue
        ids = np.frombuffer(data, code)
        if int(ids.max()) < vocab and not contradiction(data, dtype):
            possible.append(dtype)
    return possible[0] if len(possible) == 1 else None


def prove(store: Store, path: str, vocab: int) -> str | None:
    """Return what `prove_dtype` says of a file."""
    reader = store.reader(path)
    try:
        return prove_dtype(reader, vocab)
    finally:
        reader.close()


def is_npy(reader: Reader) -> bool:
    """Return whether a file begins as NumPy's do; OLMo's ``.npy`` files do not."""
    return reader.size >= len(NPY_MAGIC) and reader.read(0, len(NPY_MAGIC)) == NPY_MAGIC


def recognise_npy(store: Store, entries: Sequence[Entry]) -> list[Found]:
    """Return the ``.npy`` files of a listing: NumPy's, and headerless ones, which wait for their dtype."""
    found = []
    for path in (entry.path for entry in entries if entry.path.endswith(".npy")):
        reader = store.reader(path)
        try:
            found.append(Found("npy" if is_npy(reader) else "raw-", path[:-4], (path,)))
        finally:
            reader.close()
    return found


def open_npy(store: Store, path: str, *, accept: Collection[str] = ()) -> FlatShard:  # noqa: ARG001
    """Open a ``.npy`` file. Raises `FormatError`: FLT004 for one that holds no ids, FLT005 for a size that is wrong."""
    reader = store.reader(path)
    try:
        begin, dtype, shape = _npy_header(reader, _full(store, path))
        if not _INTEGER.fullmatch(dtype) or len(shape) != 1 or shape[0] == 0:
            raise FormatError(
                "FLT004",
                path=_full(store, path),
                offset=0,
                expected="one dimension of little-endian integers",
                found=f"shape {shape}, dtype {dtype}",
            )
        kind: np.dtype[Any] = np.dtype(dtype)
        whole = begin + shape[0] * kind.itemsize
        if whole != reader.size:
            raise FormatError(
                "FLT005",
                path=_full(store, path),
                offset=min(whole, reader.size),
                expected=f"{whole} bytes for {shape[0]} ids of {kind.itemsize} bytes",
                found=f"{reader.size} bytes",
            )
        return FlatShard("npy", path, reader, kind.str, begin)
    except BaseException:
        reader.close()
        raise


def _npy_header(reader: Reader, path: str) -> tuple[int, str, tuple[int, ...]]:
    """Return (byte where the array begins, its dtype as written, its shape)."""
    start = reader.read(0, min(reader.size, _MOST_HEADER + 12))
    wide = start[6:8] in (b"\x02\x00", b"\x03\x00")
    at = 12 if wide else 10
    begin = at + int.from_bytes(start[8:at], "little")
    text = start[at:begin].decode("utf-8" if start[6:7] == b"\x03" else "latin-1", "replace")
    known = start[:6] == NPY_MAGIC and (wide or start[6:8] == b"\x01\x00") and begin <= len(start)
    if known and _DICTIONARY.fullmatch(text):
        descr, order, shape = (re.findall(item, text) for item in (_DESCR, _ORDER, _SHAPE))
        if len(descr) == len(order) == len(shape) == 1:
            sizes = [size for size in shape[0].replace(" ", "").split(",") if size]
            if all(len(size) < 19 for size in sizes):
                return begin, descr[0], tuple(map(int, sizes))
    raise FormatError("FLT004", "its header cannot be read", path=path, offset=0, found=text.strip()[:120])


def _full(store: Store, path: str) -> str:
    return f"{store.root.rstrip('/')}/{path}"
