"""What a Megatron IndexedDataset v1 pair looks like on disk: constants, codes of integer types, and the layout.

A pair is ``PREFIX.idx`` and ``PREFIX.bin``. The ``.bin`` is tokens end to end, little endian, nothing else. The
``.idx`` is packed, little endian, with n sequences and a document index of m entries::

    byte  0   "MMIDIDX\\0\\0"
    byte  9   u64  version, 1
    byte 17   u8   code of the integer type
    byte 18   u64  n
    byte 26   u64  m
    byte 34   i32  [n] length of each sequence, in tokens
              i64  [n] byte in the .bin where each sequence begins
              i64  [m] document d owns sequences [index[d], index[d + 1]); the first is 0, the last is n

So m is the number of documents **plus one**. Some writers put the number of documents there and still write one entry
more; both are read. Source: ``megatron/core/datasets/indexed_dataset.py`` of Megatron-LM.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

FORMAT = "megatron-v1"
MAGIC = b"MMIDIDX\x00\x00"
LEGACY_MAGIC = b"TNTIDX\x00\x00"
VERSION = 1
VERSION_AT, CODE_AT, SEQUENCES_AT, ENTRIES_AT, LENGTHS_AT = 9, 17, 18, 26, 34
HEADER_BYTES = LENGTHS_AT
MAX_LENGTH = (1 << 31) - 1
"""Tokens in one sequence: lengths are i32."""

LENGTH = np.dtype("<i4")
WIDE = np.dtype("<i8")
"""Pointers and document index."""

DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("i1"),
    3: np.dtype("<i2"),
    4: np.dtype("<i4"),
    5: np.dtype("<i8"),
    8: np.dtype("<u2"),
}
FLOATS = {6: ("float64", "float32"), 7: ("float32", "float64")}
"""What Megatron means by the code, and what GPT-NeoX means by it."""

_FIELDS = struct.Struct("<QBQQ")


def dtype_code(dtype: np.dtype[Any]) -> int | None:
    """Return the code of an integer type, or None when the format has none for it (uint32, uint64).

    >>> dtype_code(np.dtype("uint16")), dtype_code(np.dtype("uint32"))
    (8, None)
    """
    for code, known in DTYPES.items():
        if known == dtype.newbyteorder("<"):
            return code
    return None


def pack_header(code: int, sequences: int, entries: int) -> bytes:
    """Return the 34 bytes before the arrays; `entries` is the length of the document index.

    >>> pack_header(8, 1, 2)[17]
    8
    """
    return MAGIC + _FIELDS.pack(VERSION, code, sequences, entries)


def unpack_header(data: bytes) -> tuple[int, int, int, int]:
    """Return version, type code, n and m of 34 bytes whose magic was checked."""
    version, code, sequences, entries = _FIELDS.unpack_from(data, len(MAGIC))
    return version, code, sequences, entries


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is in an ``.idx`` whose size equation holds. Counts are Python ints; nothing is allocated."""

    dtype: np.dtype[Any]
    sequences: int
    entries: int
    """Entries of the document index: documents + 1."""
    counts_documents: bool = False
    """Whether the header holds the number of documents instead of the number of entries."""

    @property
    def documents(self) -> int:
        """Documents."""
        return self.entries - 1

    @property
    def pointers_at(self) -> int:
        """Byte of the first pointer."""
        return LENGTHS_AT + 4 * self.sequences

    @property
    def index_at(self) -> int:
        """Byte of the first entry of the document index."""
        return LENGTHS_AT + 12 * self.sequences

    @property
    def end(self) -> int:
        """Byte after the document index: the size of a sound ``.idx``."""
        return self.index_at + 8 * self.entries
