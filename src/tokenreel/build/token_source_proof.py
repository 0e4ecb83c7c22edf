"""Prove that a token corpus was made with the tokenizer of the build: by what its manifest says, else by its own ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import SourceError
from tokenreel.text.probe import probe_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    from tokenreel.text.tokenizer import Tokenizer

    Sample = Iterable[tuple[str, int, npt.NDArray[np.uint32]]]

DOCUMENTS = 64
"""Documents that are encoded again."""
LONGEST = 2048
"""Ids of each."""
TAIL = 16
"""Ids at the end of a document that was cut for the proof, which may be cut inside a word."""
SHARE = 0.9
"""Of documents that must agree: others may hold special tokens, or bytes that are no text."""


def prove(recorded: Mapping[str, Any] | None, tok: Tokenizer, sample: Sample, source: str, path: object) -> str:
    """Return how it was proved that `tok` made a corpus, in words that manifests record.

    `recorded` is what its manifest says of its tokenizer: the file's SHA-256 or the digest of the ids of the probe set,
    where either is the same, is proof. Without, `sample` (file, document, ids) is decoded and encoded again: whole
    documents, without special tokens where there are such. Raises `SourceError` (SRC060).
    """
    said = recorded or {}
    if said.get("sha256") == tok.sha256:
        return "sha256 of the tokenizer in its manifest"
    probe = said.get("probe_sha256")
    if probe is not None:
        found = probe_digest(tok)
        if found == probe:
            return "probe_sha256 in its manifest"
        raise _other(source, path, f"probe_sha256 {found} of {tok.name}", f"{probe} in its manifest")
    tried, agreed, first = 0, 0, ""
    for file, document, ids in sample:
        tried += 1
        if encodes_to_itself(tok, ids):
            agreed += 1
        else:
            first = first or f"; document {document} of {file} does not"
    if not agreed or agreed < SHARE * tried:
        found = f"{agreed} of {tried}{first}" if tried else "no whole document of any id to try"
        raise _other(source, path, f"documents whose text {tok.name} encodes to their ids", found)
    return f"{agreed} of {tried} documents encode to their ids"


def encodes_to_itself(tok: Tokenizer, ids: npt.NDArray[np.uint32]) -> bool:
    """Return whether a document's ids are what the tokenizer gives for its text.

    Of more than `LONGEST` ids the first are looked at, but for the last few of those.

    >>> from tokenreel.text import load_tokenizer
    >>> tok = load_tokenizer("bytes")
    >>> encodes_to_itself(tok, np.array([104, 105])), encodes_to_itself(tok, np.array([104, 255]))
    (True, False)
    """
    if not len(ids) or int(ids.max()) > tok.largest_id:
        return False
    taken = ids[:LONGEST]
    again, _ = tok.encode_batch([tok.decode(taken)])
    if len(taken) == len(ids):
        return bool(np.array_equal(again, ids))
    return bool(np.array_equal(again[: LONGEST - TAIL], taken[: LONGEST - TAIL]))


def _other(source: str, path: object, expected: str, found: str) -> SourceError:
    hint = "tokenreel inspect PATH" if path is None else f"tokenreel inspect {path}"
    return SourceError("SRC060", f"source {source!r}", path=path, expected=expected, found=found, hint=hint)
