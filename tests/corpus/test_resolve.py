"""`resolve` and `pieces` against a token-by-token reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenreel
from tests.corpus.pairs import flat
from tests.corpus.test_corpus import SHARDS, folder, make
from tokenreel.errors import OrderError
from tokenreel.spans import Flag, SpanTable

__all__ = ["folder"]


def draw_table(data: st.DataObject, tokens: int) -> SpanTable:
    splits, begins, lengths, flags = [0], [], [], []
    for _ in range(data.draw(st.integers(0, 4))):
        parts = data.draw(st.integers(0, 3))
        for k in range(parts):
            begin = data.draw(st.integers(0, tokens - 1))
            ahead = k == parts - 1 and data.draw(st.booleans())
            room = tokens - begin - ahead
            if room < (0 if ahead else 1):
                continue
            length = data.draw(st.integers(0 if ahead else 1, room))
            begins.append(begin)
            lengths.append(length)
            flags.append(Flag.AHEAD if ahead else 0)
        splits.append(len(begins))
    return SpanTable.of(splits, begins, lengths, flags=np.array(flags, dtype=np.uint8))


@settings(max_examples=80)
@given(shards=SHARDS, data=st.data())
def test_resolve_and_pieces_move_no_token(
    folder: Path, shards: list[list[list[list[int]]]], data: st.DataObject
) -> None:
    corpus = make(folder, shards)
    documents = [document for shard in shards for document in flat(shard)]
    if not corpus.tokens:
        return
    table = draw_table(data, corpus.tokens)
    found = corpus.resolve(table)
    found.check([corpus.tokens])
    assert found.samples == table.samples
    assert found.label_positions == table.label_positions
    starts = np.cumsum([0, *map(len, documents)])
    for k in range(table.samples):
        old = [(int(b), int(n)) for b, n in zip(*_rows(table, k), strict=True)]
        new = [(int(b), int(n)) for b, n in zip(*_rows(found, k), strict=True)]
        assert [t for b, n in old for t in range(b, b + n)] == [t for b, n in new for t in range(b, b + n)]
    for e in range(found.extents):
        d, s, b, n = (int(column[e]) for column in (found.document, found.start, found.begin, found.length))
        assert starts[d] + s == b
        assert b + n <= starts[d + 1]
        if n:
            assert bool(found.flags[e] & Flag.HEAD) == (s == 0)
            assert bool(found.flags[e] & Flag.TAIL) == (b + n == starts[d + 1])
    _check_pieces(corpus, found)
    _check_pieces(corpus, table)


def _rows(table: SpanTable, k: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = table.splits[k], table.splits[k + 1]
    return table.begin[low:high], table.length[low:high]


def _check_pieces(corpus: tokenreel.Corpus, table: SpanTable) -> None:
    pieces = corpus.pieces(table)
    got: dict[tuple[int, int], int] = {}
    for shard, byte, tokens, row, column in zip(
        pieces.shard, pieces.byte, pieces.tokens, pieces.row, pieces.column, strict=True
    ):
        entry = corpus.entries[int(shard)]
        data = corpus.store.read(entry.files[0])
        ids = np.frombuffer(data, dtype=entry.dtype, count=int(tokens), offset=int(byte))
        for k, value in enumerate(ids.tolist()):
            assert (int(row), int(column) + k) not in got
            got[int(row), int(column) + k] = value
    wanted: dict[tuple[int, int], int] = {}
    for k in range(table.samples):
        at = 0
        for e in range(int(table.splits[k]), int(table.splits[k + 1])):
            b, n = int(table.begin[e]), int(table.length[e]) + bool(table.flags[e] & Flag.AHEAD)
            for offset, value in enumerate(corpus.stream(b, b + n).tolist()):
                wanted[k, at + offset] = value
            at += int(table.length[e])
    assert got == wanted


def test_a_table_of_another_corpus_is_refused(folder: Path) -> None:
    corpus = make(folder, [[[[1, 2, 3]]]])
    with pytest.raises(OrderError, match="ORD003"):
        corpus.pieces(SpanTable.of([0, 1], [1], [3]))
    with pytest.raises(OrderError, match="ORD003"):
        corpus.resolve(SpanTable.of([0, 1], [1], [2], flags=Flag.AHEAD))


def test_stream_order_over_a_corpus_finds_documents(folder: Path) -> None:
    corpus = make(folder, [[[[1, 2, 3]], [[4, 5]]], [[[6, 7, 8, 9]]]])
    order = tokenreel.StreamOrder.over(corpus.table(), 2, 1, corpus.shard_tokens)
    hits = order.locate(0, [2], 0, order.length)
    assert hits.sample.tolist() == [2, 3]
    assert hits.length.tolist() == [1, 2]
    assert order.at(1, 0) == 5
    assert order.where(5) == (1, 0)
