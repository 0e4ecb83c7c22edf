"""`windows@1`: every window once per epoch, blocks read whole, closed forms both ways."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.order.laws import Table, brute_hits, check_views, hits
from tokenreel.errors import OrderError
from tokenreel.order import windows_shuffle
from tokenreel.order.keyed import KeyedPermutation
from tokenreel.order.windows import WindowsOrder
from tokenreel.order.windows_shuffle import BlockShuffle, scrambled
from tokenreel.spans import CorpusKey

ios = st.none() | st.builds(BlockShuffle, st.integers(1, 9), st.integers(1, 5))


def key(tokens: int) -> CorpusKey:
    return CorpusKey("files", "00", 1, tokens)


def one(value: int, name: int) -> int:
    return int(scrambled(np.array([value ^ name], dtype=np.uint64))[0])


def slow_epoch(n: int, seed: int, io: BlockShuffle | None, epoch: int) -> list[int]:
    """One epoch, written down from the definition."""
    if io is None:
        return KeyedPermutation(n, seed, epoch).at(range(n)).tolist()
    blocks = [list(range(b, min(b + io.block, n))) for b in range(0, n, io.block)]
    sequence = KeyedPermutation(len(blocks), one(seed, 0xB10C5), epoch).at(range(len(blocks))).tolist()
    out = []
    for g in range(0, len(blocks), io.together):
        group = [w for b in sequence[g : g + io.together] for w in blocks[b]]
        places = KeyedPermutation(len(group), one(one(seed, 0x6709B5), epoch), g // io.together).at(range(len(group)))
        out += [group[p] for p in places]
    return out


@given(st.integers(1, 130), st.integers(0, 2**64 - 1), ios, st.integers(0, 5))
def test_an_epoch_is_what_its_definition_says(n: int, seed: int, io: BlockShuffle | None, epoch: int) -> None:
    order = WindowsOrder(key(n * 3 + 1), 3, seed, epochs=6, io=io)
    found = order.window_at(np.arange(epoch * n, (epoch + 1) * n)).tolist()
    assert found == slow_epoch(n, seed, io, epoch)
    assert sorted(found) == list(range(n))
    assert order.sample_of(found, epoch).tolist() == list(range(epoch * n, (epoch + 1) * n))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=20), st.integers(1, 6), st.integers(0, 1), ios, st.data())
def test_slices_views_and_locate_agree(
    lengths: list[int], width: int, ahead: int, io: BlockShuffle | None, data: st.DataObject
) -> None:
    table = Table(lengths)
    windows = max(0, (table.tokens - ahead) // width)
    order = WindowsOrder.over(table, width, 5, row_ahead=ahead, epochs=3 if windows else 0, io=io)
    assert order.length == 3 * windows
    lo = data.draw(st.integers(0, order.length))
    hi = data.draw(st.integers(lo, order.length))
    check_views(order, lo, hi, np.random.default_rng(1))
    documents = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=6, unique=True))
    assert hits(order.locate(0, documents, lo, hi)) == brute_hits(order, 0, table, documents, lo, hi)


def test_locate_answers_by_document_as_asked_then_by_sample() -> None:
    table = Table([5, 9, 4])
    found = WindowsOrder.over(table, 2, 3, epochs=4).locate(0, [2, 0], 0, 32)
    assert found.document.tolist() == sorted(found.document.tolist(), reverse=True)
    for document in (0, 2):
        samples = found.sample[found.document == document].tolist()
        assert samples == sorted(samples)
        assert len(samples) >= 4


def test_every_epoch_and_every_seed_has_an_order_of_its_own() -> None:
    io = BlockShuffle(8, 4)
    for kind in (None, io):
        order = WindowsOrder(key(10_001), 10, 1, epochs=3, io=kind)
        epochs = order.window_at(np.arange(3000)).reshape(3, 1000)
        other = WindowsOrder(key(10_001), 10, 2, epochs=3, io=kind).window_at(np.arange(1000))
        for a, b in ((epochs[0], epochs[1]), (epochs[1], epochs[2]), (epochs[0], other)):
            assert np.count_nonzero(a == b) < 20


@given(st.integers(1, 400), st.builds(BlockShuffle, st.integers(1, 20), st.integers(1, 6)))
def test_a_group_is_read_with_one_read_a_block(n: int, io: BlockShuffle) -> None:
    windows = WindowsOrder(key(n), 1, 3, row_ahead=0, io=io).window_at(np.arange(n))
    blocks = windows // io.block
    last_of_block = {int(b): int(np.flatnonzero(blocks == b).max()) for b in np.unique(blocks)}
    first_of_block = {int(b): int(np.flatnonzero(blocks == b).min()) for b in np.unique(blocks)}
    # All windows of a block are asked for within the span of one group.
    assert all(last_of_block[b] - first_of_block[b] < io.block * io.together for b in last_of_block)


def test_windows_are_mixed_inside_and_across_blocks() -> None:
    io = BlockShuffle(64, 16)
    windows = WindowsOrder(key(1 << 16), 1, 3, row_ahead=0, io=io).window_at(np.arange(1 << 16))
    blocks = windows // io.block
    assert np.count_nonzero(blocks[1:] == blocks[:-1]) / len(blocks) < 1.5 / io.together
    assert np.count_nonzero(np.diff(windows) == 1) / len(windows) < 2 / (io.block * io.together)


def test_a_trillion_windows_open_and_seek_at_once() -> None:
    for io in (None, BlockShuffle(1024, 32)):
        WindowsOrder(key(4096 * 5), 4096, 7, io=io).spans(0, 1)  # compile
        best = 1.0
        for attempt in range(20):
            begin = time.perf_counter()
            order = WindowsOrder(key(4096 * 10**12 + 1), 4096, 7, epochs=3, io=io)
            order.spans(2 * 10**12 + attempt, 2 * 10**12 + attempt + 1)
            best = min(best, time.perf_counter() - begin)
        assert order.windows == 10**12
        assert best < 1e-3
        samples = np.random.default_rng(0).integers(10**12, 2 * 10**12, 1000)
        assert (order.sample_of(order.window_at(samples), 1) == samples).all()


def test_the_largest_corpus_does_not_overflow() -> None:
    for io in (None, BlockShuffle(1000, 7)):
        order = WindowsOrder(key((1 << 62) + 1), 1, 2**64 - 1, io=io)
        samples = np.array([0, 1, (1 << 62) - 1, 12345678901234567])
        windows = order.window_at(samples)
        assert ((windows >= 0) & (windows < 1 << 62)).all()
        assert order.sample_of(windows, 0).tolist() == samples.tolist()


def test_more_epochs_keep_what_came_before() -> None:
    short, long = (WindowsOrder(key(101), 10, 4, epochs=e) for e in (2, None))
    assert long.length is None
    assert short.fingerprint_until(20) == long.fingerprint_until(20)
    assert short.fingerprint != long.fingerprint
    assert long.window_at(np.arange(20)).tolist() == short.window_at(np.arange(20)).tolist()


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 5},
        {"row_tokens": 5},
        {"row_ahead": 0},
        {"io": BlockShuffle(2, 2)},
        {"io": BlockShuffle(2, 3)},
        {"key": CorpusKey("files", "01", 1, 101)},
    ],
)
def test_what_changes_the_samples_changes_the_fingerprints(changed: dict[str, object]) -> None:
    made = {"key": key(101), "row_tokens": 10, "seed": 4, "io": BlockShuffle(3, 2)}
    a, b = WindowsOrder(**made), WindowsOrder(**{**made, **changed})
    assert a.fingerprint != b.fingerprint
    assert a.fingerprint_until(3) != b.fingerprint_until(3)


def test_numbers_that_never_change() -> None:
    """The order under this name is frozen: these were computed once from the definition."""
    plain = WindowsOrder(key(1001), 10, 1234)
    blocks = WindowsOrder(key(1001), 10, 1234, io=BlockShuffle(8, 4))
    assert plain.window_at(np.arange(12)).tolist() == PLAIN
    assert blocks.window_at(np.arange(12)).tolist() == BLOCKS


PLAIN = [68, 30, 93, 16, 52, 96, 66, 81, 47, 39, 33, 58]
BLOCKS = [66, 28, 76, 68, 26, 74, 24, 27, 15, 14, 8, 65]


@pytest.mark.parametrize(
    ("made", "code"),
    [
        ({"tokens": 10, "row_tokens": 0}, "ORD002"),
        ({"tokens": 10, "row_ahead": 2}, "ORD002"),
        ({"tokens": 10, "seed": -1}, "ORD002"),
        ({"tokens": 10, "seed": 1 << 64}, "ORD002"),
        ({"tokens": 10, "epochs": -1}, "ORD002"),
        ({"tokens": 5, "row_tokens": 5}, "ORD100"),
        ({"tokens": 1 << 62, "row_tokens": 1, "epochs": 3}, "ORD002"),
    ],
)
def test_what_cannot_be_is_refused(made: dict[str, int], code: str) -> None:
    given_ = {"row_tokens": 3, "seed": 1, **made}
    with pytest.raises(OrderError) as refused:
        WindowsOrder(key(given_.pop("tokens")), **given_)
    assert refused.value.code == code


@pytest.mark.parametrize(("block", "together"), [(0, 1), (1, 0), (1 << 20, 1 << 20)])
def test_block_shuffles_that_cannot_be_are_refused(block: int, together: int) -> None:
    with pytest.raises(OrderError, match="ORD002"):
        BlockShuffle(block, together)


def test_one_sample_may_be_asked_for_as_a_number() -> None:
    order = WindowsOrder(key(101), 10, 4)
    assert order.spans_at(3).begin.tolist() == order.spans(3, 4).begin.tolist()
    assert order.spans_at([]).samples == 0


def test_samples_outside_are_refused() -> None:
    order = WindowsOrder(key(101), 10, 4, epochs=2)
    for call in (
        lambda: order.spans(0, 21),
        lambda: order.spans(5, 4),
        lambda: order.spans_at([20]),
        lambda: order.spans_at([-1]),
        lambda: order.sample_of([10], 0),
        lambda: order.sample_of([0], 2),
        lambda: list(order.chunks(0, 21)),
        lambda: order.fingerprint_until(21),
        lambda: order.locate(0, [0], 0, 21),
    ):
        with pytest.raises(OrderError):
            call()
    with pytest.raises(OrderError, match="ORD002"):
        order.locate(0, [0], 0, 20)


@given(st.integers(1, 1000), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.data())
def test_kernels_compute_what_they_say(n: int, seed: int, stream: int, data: st.DataObject) -> None:
    values = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=5)), dtype=np.int64)
    arguments = (
        values,
        np.full(len(values), n),
        np.full(len(values), seed, dtype=np.uint64),
        np.full(len(values), stream, dtype=np.uint64),
    )
    permutation = KeyedPermutation(n, seed, stream)
    for kernel, expected in (
        (windows_shuffle._forward_each, permutation.at(values)),
        (windows_shuffle._backward_each, permutation.where(values)),
    ):
        compiled, plain = np.empty_like(values), np.empty_like(values)
        kernel(*arguments, compiled)
        with np.errstate(over="ignore"):
            kernel.python(*arguments, plain)
        assert compiled.tolist() == plain.tolist() == expected.tolist()
