"""Shuffle quality: figures that are known for orders whose shuffling is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.order.laws import Table
from tokenreel.errors import OrderError
from tokenreel.order.mix import Component, MixOrder, Phase
from tokenreel.order.quality import shuffle_quality
from tokenreel.order.stream import StreamOrder
from tokenreel.order.streams_nanogpt import NanogptOrder
from tokenreel.order.windows import WindowsOrder
from tokenreel.order.windows_shuffle import BlockShuffle
from tokenreel.spans import CorpusKey, SpanTable


def key(tokens: int, digest: str = "00") -> CorpusKey:
    return CorpusKey("files", digest, 1, tokens)


WIDE = key(16 * 65_536 + 1)


def test_stored_order_is_no_shuffle() -> None:
    quality = shuffle_quality(StreamOrder(key(16 * 65_536), 16, 0), 0, 65_536, window=1024)
    assert quality.sources == 64
    assert (quality.mean_run, quality.longest_run) == (1024, 1024)
    assert quality.expected_run == pytest.approx(64 / 63, rel=1e-3)
    assert quality.entropy == pytest.approx(6)
    assert (quality.window_entropy, quality.least_entropy) == (0, 0)
    assert quality.correlation == pytest.approx(1)
    assert quality.adjacent == pytest.approx(65_535 / 65_536)
    assert quality.reads == 64
    assert quality.bytes_per_read == 1024 * 16 * 2
    # A buffer's last look-ahead is read with it.
    ahead = shuffle_quality(StreamOrder(WIDE, 16), 0, 65_536)
    assert (ahead.reads, ahead.bytes_per_read) == (64, (1024 * 16 + 1) * 2)


def test_a_keyed_permutation_is_as_good_as_independent_draws() -> None:
    quality = shuffle_quality(WindowsOrder(WIDE, 16, 1), 0, 65_536)
    assert quality.mean_run == pytest.approx(quality.expected_run, rel=0.01)
    assert quality.longest_run < 8
    # 256 draws of 64 equal sources lose (64 - 1) / (2 * 256 * ln 2) bits, to first order.
    assert quality.window_entropy == pytest.approx(6 - 63 / (512 * math.log(2)), abs=0.02)
    assert abs(quality.correlation or 0) < 0.02
    assert quality.adjacent < 1e-3
    assert quality.bytes_per_read < 40


def test_blocks_read_ranges_and_stay_mixed() -> None:
    plain = shuffle_quality(WindowsOrder(WIDE, 16, 1), 0, 65_536)
    blocks = shuffle_quality(WindowsOrder(WIDE, 16, 1, io=BlockShuffle(64, 16)), 0, 65_536)
    # 16 blocks of 64 rows a buffer: at most 16 reads, fewer where blocks happen to be neighbours.
    assert 0.97 * 1024 <= blocks.reads <= 1024
    assert blocks.bytes_per_read > 50 * plain.bytes_per_read
    assert blocks.adjacent < 2 / 1024
    assert 3.5 < blocks.window_entropy < plain.window_entropy


def test_a_gap_joins_reads_and_costs_bytes() -> None:
    order = WindowsOrder(WIDE, 16, 1, row_ahead=0)
    near = shuffle_quality(order, 0, 8192, buffer=8192)
    joined = shuffle_quality(order, 0, 8192, buffer=8192, gap=64)
    assert near.bytes_per_token == 2
    assert joined.reads < 0.6 * near.reads
    assert joined.bytes_per_token > 3
    assert joined.bytes_per_read > 3 * near.bytes_per_read


def test_what_is_read_twice_is_fetched_once_a_buffer() -> None:
    quality = shuffle_quality(NanogptOrder(key(40), 20, 1), 0, 4096, buffer=4096)
    assert quality.reads == 1
    assert quality.bytes_per_read == 80
    assert quality.bytes_per_token == 80 / (4096 * 20)


def test_a_mixture_is_judged_by_its_components() -> None:
    parts = tuple(Component(n, WindowsOrder(key(4001, n), 4, 2, epochs=None)) for n in ("00", "01"))
    order = MixOrder(parts, (Phase(0, (3, 1)),), 1, 256)
    quality = shuffle_quality(order, 0, 25_600)
    assert quality.sources == 2
    assert quality.entropy == pytest.approx(-(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)))
    # Every block holds exactly its share, and a window is a block.
    assert quality.window_entropy == pytest.approx(quality.entropy)
    assert quality.least_entropy == pytest.approx(quality.entropy)
    assert quality.mean_run == pytest.approx(quality.expected_run, rel=0.05)
    assert shuffle_quality(order, 0, 25_600, source="corpus") == quality
    assert shuffle_quality(order, 0, 25_600, source="region", regions=4).sources == 8


def slow_ranges(table: SpanTable, gap: int) -> tuple[int, int]:
    """Ranges and their tokens, token by token."""
    held: set[tuple[int, int]] = set()
    for corpus, begin, length, flags in zip(table.corpus, table.begin, table.length, table.flags, strict=True):
        held |= {(int(corpus), t) for t in range(int(begin), int(begin + length + bool(flags & 4)))}
    ranges, tokens, last = 0, 0, (-1, 0)
    for corpus, token in sorted(held):
        if corpus == last[0] and token - last[1] - 1 <= gap:
            tokens += token - last[1]
        else:
            ranges += 1
            tokens += 1
        last = (corpus, token)
    return ranges, tokens


@given(st.integers(2, 60), st.integers(0, 9), st.integers(1, 20), st.integers(0, 40), st.integers(0, 1))
def test_ranges_are_what_a_reader_would_fetch(samples: int, gap: int, buffer: int, first: int, ahead: int) -> None:
    parts = (
        Component("a", WindowsOrder(key(91, "00"), 3, 2, ahead, epochs=None)),
        Component("b", StreamOrder(key(61, "01"), 3, ahead), "repeat"),
    )
    order = MixOrder(parts, (Phase(0, (1, 1)),), 1, 8)
    quality = shuffle_quality(order, first, samples, gap=gap, buffer=buffer, itemsize=4)
    expected = [
        slow_ranges(order.spans(k, min(k + buffer, first + samples)), gap)
        for k in range(first, first + samples, buffer)
    ]
    assert quality.reads == sum(n for n, _ in expected)
    assert quality.bytes_per_read == pytest.approx(4 * sum(t for _, t in expected) / quality.reads)
    assert quality.bytes_per_token == pytest.approx(4 * sum(t for _, t in expected) / (3 * samples))


@given(st.lists(st.integers(0, 3), min_size=2, max_size=80), st.integers(1, 90))
def test_runs_and_entropies_are_those_of_the_sources(sources: list[int], window: int) -> None:
    class Given:
        """An order whose components are given."""

        children = (None,)
        corpora = (key(100),)

        def spans(self, i: int, j: int) -> SpanTable:
            return SpanTable.of(range(j - i + 1), range(i, j), 1)

        def components_at(self, samples: Any) -> Any:
            return np.array(sources)[samples]

    quality = shuffle_quality(Given(), 0, len(sources), window=window)  # type: ignore[arg-type]
    runs: list[int] = []
    for k, one in enumerate(sources):
        if k and sources[k - 1] == one:
            runs[-1] += 1
        else:
            runs.append(1)
    assert quality.mean_run == pytest.approx(sum(runs) / len(runs))
    assert quality.longest_run == max(runs)
    assert quality.sources == len(set(sources))

    def entropy(part: list[int]) -> float:
        shares = [part.count(x) / len(part) for x in set(part)]
        return -sum(p * math.log2(p) for p in shares)

    width = min(window, len(sources))
    windows = [entropy(sources[k : k + width]) for k in range(0, len(sources) - width + 1, width)]
    assert quality.entropy == pytest.approx(entropy(sources), abs=1e-12)
    assert quality.window_entropy == pytest.approx(sum(windows) / len(windows), abs=1e-12)
    assert quality.least_entropy == pytest.approx(min(windows), abs=1e-12)


def test_one_place_has_no_correlation() -> None:
    assert shuffle_quality(WindowsOrder(key(3), 2, 1, epochs=9), 0, 9).correlation is None


def test_figures_are_plain_numbers_by_name() -> None:
    import json

    figures = shuffle_quality(WindowsOrder(WIDE, 16, 1), 100, 500).as_dict()
    assert json.loads(json.dumps(figures)) == figures
    assert (figures["first"], figures["samples"]) == (100, 500)


@pytest.mark.parametrize(
    "sizes", [{"samples": 1}, {"window": 0}, {"buffer": 0}, {"regions": 0}, {"gap": -1}, {"itemsize": 0}]
)
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(OrderError, match="ORD002"):
        shuffle_quality(StreamOrder(WIDE, 16), 0, **{"samples": 10, **sizes})  # type: ignore[arg-type]


def test_samples_outside_are_refused() -> None:
    with pytest.raises(OrderError, match="ORD001"):
        shuffle_quality(StreamOrder.over(Table([50, 51]), 10), 5, 6)
