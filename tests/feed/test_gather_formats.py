"""Rows from shards of every format that can be written: the ids lie end to end in one file, or are read through the reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tokenreel
from tests.feed.gather_corpora import write_pair
from tokenreel.convert.conversion import convert
from tokenreel.corpus.corpus import Corpus
from tokenreel.errors import MissingExtra
from tokenreel.feed.gather import Gatherer
from tokenreel.formats.registry import FORMATS
from tokenreel.spans import Flag, SpanTable

WIDTH = 24
KINDS = {"llmc-v7": "uint32", "raw-uint32": "uint32", "olmo-uint32": "uint32", "levanter": "int32"}
WRITTEN = sorted(row.name for row in FORMATS if row.writes)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of documents that end with 2 and begin with 1, each of 3 to 40 ids."""
    folder = tmp_path_factory.mktemp("source")
    generator = np.random.Generator(np.random.PCG64(3))
    for shard in range(2):
        lengths = generator.integers(3, 41, 30)
        ids = generator.integers(10, 50000, int(lengths.sum()))
        ends = np.cumsum(lengths)
        ids[ends - 1] = 2
        ids[ends - lengths] = 1
        write_pair(folder, f"part_{shard}", "uint16", ids, lengths.tolist())
    return folder


def written(source: Path, to: str, folder: Path) -> Corpus:
    kind = KINDS.get(to, "uint16")
    try:
        convert(source, folder, to=to, dtype=kind, boundary="suffix=2")
        try:
            return tokenreel.open(folder, boundary="suffix=2", accept=["FLT003"])
        except tokenreel.TokenreelError:
            return tokenreel.open(folder, dtype=kind, boundary="suffix=2", accept=["FLT003"])
    except MissingExtra as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("to", WRITTEN)
def test_rows_of_every_format_are_its_stream(source: Path, to: str, tmp_path: Path) -> None:
    corpus = written(source, to, tmp_path / "out")
    stream = corpus.stream(0, corpus.tokens).astype(np.int64)
    begin = np.arange(0, len(stream) - WIDTH - 1, 7)
    table = SpanTable.of(np.arange(len(begin) + 1), begin, WIDTH, flags=Flag.AHEAD)
    windows = stream[begin[:, None] + np.arange(WIDTH + 1)]
    for policy in ("plain", {"kind": "documents", "ends": "next"}):
        with Gatherer([corpus], policy, row_tokens=WIDTH, row_ahead=1, dtype="int64") as gatherer:
            batch = gatherer.batch(table)
            assert np.array_equal(batch["input_ids"], windows[:, :-1])
            assert np.array_equal(batch["labels"], windows[:, 1:])
            if policy != "plain":
                fresh = np.ones(batch["input_ids"].shape, dtype=bool)
                fresh[:, 1:] = windows[:, :-2] == 2
                assert np.array_equal(batch["position_ids"] == 0, fresh)
