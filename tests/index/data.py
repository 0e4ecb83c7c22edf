"""Small corpora in folders, and orders over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.corpus.pairs import write_pair
from tokenreel.corpus.corpus import Corpus
from tokenreel.corpus.opening import open_corpus


def lengths_of(seed: int, count: int = 60) -> list[int]:
    return np.random.RandomState(seed).randint(0, 40, count).tolist()


def write(prefix: Path, lengths: list[int], *, first: int = 10, eod: int = 2) -> Path:
    """Write a pair whose documents end with `eod`, and return its prefix."""
    documents = [[[first + k % 50 for k in range(n)] + [eod]] for n in lengths]
    write_pair(prefix, documents)
    return prefix


def opened(prefix: Path) -> Corpus:
    return open_corpus(f"{prefix}.idx")
