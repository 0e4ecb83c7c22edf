"""Tiny corpora, written in a moment: what a test of a loader needs to read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenreel.corpus.corpus import Corpus

EOD = 2
"""The id that ends every document of `tiny_documents`."""


def tiny_documents(
    documents: int = 40, *, longest: int = 30, vocab: int = 97, seed: int = 0, eod: int = EOD
) -> list[npt.NDArray[np.int32]]:
    """Return documents of 1 .. `longest` random ids and `eod`, which occurs nowhere else; the same for the same seed.

    >>> [document.tolist() for document in tiny_documents(2, longest=3, seed=1)]
    [[50, 73, 2], [4, 14, 80, 2]]
    """
    import numpy as np

    if vocab < 3 or longest < 1 or not 0 <= eod < vocab:
        found = f"vocab {vocab}, longest {longest}, eod {eod}"
        raise UsageError("USE003", expected="3 ids or more, eod among them, documents of 1 id or more", found=found)
    random = np.random.default_rng(seed)
    made = []
    for _ in range(documents):
        ids = random.integers(0, vocab - 1, size=int(random.integers(1, longest + 1)))
        made.append(np.append(ids + (ids >= eod), eod).astype(np.int32))
    return made


def numbered_documents(lengths: Sequence[int], first: int = 0) -> list[npt.NDArray[np.int32]]:
    """Return documents whose ids are their positions in the stream: every label position then has a label of its own.

    >>> [document.tolist() for document in numbered_documents([2, 3])]
    [[0, 1], [2, 3, 4]]
    """
    import numpy as np

    ends = np.cumsum([first, *lengths])
    return [
        np.arange(begin, begin + length, dtype=np.int32) for begin, length in zip(ends.tolist(), lengths, strict=False)
    ]


def write_corpus(
    prefix: str | os.PathLike[str], documents: Sequence[npt.ArrayLike] | None = None, *, shards: int = 1
) -> Path:
    """Write documents (`tiny_documents` where none are given) as Megatron pairs; returns what `tokenreel.open` opens.

    With one shard that is the pair's ``.idx``; with more it is a folder `prefix` of pairs, documents in order.
    """
    import numpy as np

    from tokenreel.formats.megatron_write import MegatronWriter, choose_dtype

    ids = [np.asarray(one, dtype=np.int64) for one in (tiny_documents() if documents is None else documents)]
    largest = max((int(one.max()) for one in ids if len(one)), default=0)
    base = Path(prefix)
    edges = [len(ids) * k // shards for k in range(shards + 1)]
    for number, (low, high) in enumerate(pairwise(edges)):
        with MegatronWriter(base if shards == 1 else base / f"part-{number:03d}", choose_dtype(largest)) as writer:
            some = ids[low:high]
            joined = np.concatenate(some) if some else np.empty(0, dtype=np.int64)
            writer.add_documents(joined, np.array([len(one) for one in some], dtype=np.int64))
            writer.finish()
    return base.with_name(base.name + ".idx") if shards == 1 else base


def tiny_corpus(
    prefix: str | os.PathLike[str],
    documents: Sequence[npt.ArrayLike] | None = None,
    *,
    shards: int = 1,
    boundary: str | None = None,
) -> Corpus:
    """Write a corpus and open it.

    >>> import tempfile
    >>> corpus = tiny_corpus(tempfile.mkdtemp() + "/tiny", numbered_documents([3, 4, 5]), shards=2)
    >>> len(corpus), corpus.tokens, corpus[2].tolist()
    (3, 12, [7, 8, 9, 10, 11])
    """
    from tokenreel.corpus.opening import open_corpus

    return open_corpus(write_corpus(prefix, documents, shards=shards), boundary=boundary)
