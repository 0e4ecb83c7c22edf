"""The format in thirty obvious lines, with `struct` only: what the reader, the writer and the corruptions are held to."""

from __future__ import annotations

import itertools
import struct

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}
LETTER = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 6: "d", 7: "f", 8: "H"}
MAGIC = b"MMIDIDX\0\0"

Documents = list[list[list[int]]]


def build(documents: Documents, dtype: str, *, counts_documents: bool = False) -> tuple[bytes, bytes]:
    """Return (.idx, .bin) of documents of sequences of ids."""
    sequences = [sequence for document in documents for sequence in document]
    index = [0]
    for document in documents:
        index.append(index[-1] + len(document))
    return tables([len(s) for s in sequences], index, dtype, counts_documents=counts_documents), b"".join(
        struct.pack(f"<{len(s)}{LETTER[CODES[dtype]]}", *s) for s in sequences
    )


def tables(lengths: list[int], index: list[int], dtype: str, *, counts_documents: bool = False) -> bytes:
    """Return an .idx."""
    width = struct.calcsize(f"<{LETTER[CODES[dtype]]}")
    pointers = [sum(lengths[:k]) * width for k in range(len(lengths))]
    out = MAGIC + struct.pack("<QBQQ", 1, CODES[dtype], len(lengths), len(index) - counts_documents)
    return out + struct.pack(f"<{len(lengths)}i{len(pointers)}q{len(index)}q", *lengths, *pointers, *index)


def parse(idx: bytes, payload: bytes) -> Documents:
    """Return the documents of a sound pair with Megatron's own count convention."""
    assert idx[:9] == MAGIC
    _, code, n, m = struct.unpack_from("<QBQQ", idx, 9)
    values = struct.unpack_from(f"<{n}i{n}q{m}q", idx, 34)
    lengths, pointers, index = values[:n], values[n : 2 * n], values[2 * n :]
    sequences = [
        list(struct.unpack_from(f"<{length}{LETTER[code]}", payload, at))
        for length, at in zip(lengths, pointers, strict=True)
    ]
    return [sequences[a:b] for a, b in itertools.pairwise(index)]
