"""Rows of a feed over formats whose ids do not lie in one run, or lie compressed: the same as the stream says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.formats.indexed_cases import write
from tokenreel.corpus.opening import open_corpus
from tokenreel.errors import FormatError
from tokenreel.feed.gather import Gatherer
from tokenreel.pack.policy import row_policy
from tokenreel.spans import SpanTable

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(3)
SHARDS = [[RNG.integers(0, 30_000, n).tolist() for n in sizes] for sizes in ([1], RNG.integers(0, 60, 50), [300, 2])]
CASES = [
    ("mds", {}),
    ("mds", {"compression": "zstd"}),
    ("litdata", {}),
    ("litdata", {"compression": "zstd"}),
    ("levanter", {}),
    ("parquet", {}),
    ("arrow", {}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_rows_are_those_of_the_stream(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    write(tmp_path, name, SHARDS, "int32", **options)
    corpus = open_corpus(tmp_path)
    whole = np.array([i for members in SHARDS for ids in members for i in ids])
    assert corpus.stream(0, corpus.tokens).tolist() == whole.tolist()
    begins = np.arange(0, corpus.tokens - 17, 11)
    table = SpanTable.of(np.arange(len(begins) + 1), begins, 16, flags=4)
    with Gatherer([corpus], row_policy("plain"), row_tokens=16, row_ahead=1) as gatherer:
        rows = gatherer.batch(table)
    assert rows["input_ids"].tolist() == [whole[at : at + 16].tolist() for at in begins]
    assert rows["labels"].tolist() == [whole[at + 1 : at + 17].tolist() for at in begins]
    if not all(corpus.shard(k).contiguous for k in range(3)):
        with pytest.raises(FormatError, match="FLT011"):
            corpus.pieces(table)
