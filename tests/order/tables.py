"""Corpora that are only lengths, as orders see them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from tokenreel.spans import CorpusKey


@dataclass(eq=False)
class Lengths:
    """A `DocTable` over units of these lengths."""

    sizes: list[int] | np.ndarray

    def __post_init__(self) -> None:
        self.edges = np.concatenate(([0], np.cumsum(np.asarray(self.sizes, dtype=np.int64))))

    @property
    def key(self) -> CorpusKey:
        digest = hashlib.sha256(self.edges.astype("<i8").tobytes()).hexdigest()
        return CorpusKey("tables", digest, self.documents, self.tokens)

    @property
    def documents(self) -> int:
        return len(self.edges) - 1

    @property
    def tokens(self) -> int:
        return int(self.edges[-1])

    def lengths(self, i: int, j: int) -> np.ndarray:
        return np.diff(self.edges[i : j + 1])

    def offsets_at(self, docs: np.ndarray) -> np.ndarray:
        return self.edges[:-1][np.asarray(docs, dtype=np.int64)]

    def at_tokens(self, positions: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.edges, positions, side="right") - 1
