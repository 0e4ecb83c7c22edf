"""Megatron pairs written byte by byte, so that tests of reading do not trust the writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def pair_bytes(documents: list[list[list[int]]], dtype: str = "uint16") -> tuple[bytes, bytes]:
    """Return (.bin, .idx) of documents, each a list of sequences, each a list of ids."""
    sequences = [sequence for document in documents for sequence in document]
    lengths = np.array([len(sequence) for sequence in sequences], dtype="<i4")
    ends = np.cumsum(lengths, dtype="<i8")
    pointers = (ends - lengths) * np.dtype(dtype).itemsize
    index = np.cumsum([0, *(len(document) for document in documents)])
    header = b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([CODES[dtype]])
    header += len(sequences).to_bytes(8, "little") + len(index).to_bytes(8, "little")
    tables = lengths.tobytes() + pointers.astype("<i8").tobytes() + index.astype("<i8").tobytes()
    payload = np.array([i for sequence in sequences for i in sequence], dtype=np.dtype(dtype).newbyteorder("<"))
    return payload.tobytes(), header + tables


def write_pair(prefix: Path, documents: list[list[list[int]]], dtype: str = "uint16") -> None:
    """Write a pair at `prefix`."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    payload, index = pair_bytes(documents, dtype)
    prefix.with_name(prefix.name + ".bin").write_bytes(payload)
    prefix.with_name(prefix.name + ".idx").write_bytes(index)


def flat(documents: list[list[list[int]]]) -> list[list[int]]:
    """Return the ids of each document."""
    return [[i for sequence in document for i in sequence] for document in documents]
