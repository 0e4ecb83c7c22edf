"""Corpus identity, format 1, in plain Python: documents are lists of ids. docs/identity.md shows the same lines."""

import hashlib
import struct

import blake3


def leaves(units, size, code):
    for k in range(0, len(units), size):
        part = units[k : k + size]
        yield blake3.blake3(struct.pack(f"<{len(part)}{code}", *part)).digest()


def identity(documents, prefix=(), suffix=(), exceptions=True):
    prefix, suffix, lengths, flags, tokens = list(prefix), list(suffix), [], [], []
    for ids in documents:
        begin = len(prefix) if ids[: len(prefix)] == prefix else 0
        end = len(ids) - len(suffix)
        end = end if end >= begin and ids[end:] == suffix else len(ids)
        lengths.append(end - begin)
        flags.append((1 if begin < len(prefix) else 0) | (2 if suffix and end == len(ids) else 0))
        tokens.extend(ids[begin:end])
    parts = [b"tokenreel-identity-1\n", struct.pack("<QQ", len(lengths), len(tokens))]
    parts += leaves(lengths, 2**20, "Q")
    parts += leaves(flags if exceptions else [], 2**20, "B")
    parts += leaves(tokens, 2**22, "I")
    return hashlib.sha256(b"".join(parts)).hexdigest()
