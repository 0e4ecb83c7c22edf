"""Orders of the loaders that read flat shards: llm.c, HobbyLM, nanoGPT."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.order.laws import Table, brute_hits, check_views, hits
from tokenreel.errors import OrderError
from tokenreel.order.streams_hobbylm import WALKS, HobbyStream, cycle_order
from tokenreel.order.streams_llmc import LlmcStream
from tokenreel.order.streams_nanogpt import NanogptOrder
from tokenreel.order.streams_words import STEP, Words, python_shuffle
from tokenreel.spans import CorpusKey

GOLDEN = Path(__file__).parent.parent / "golden"


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


def key(tokens: int) -> CorpusKey:
    return CorpusKey("files", "00", 1, tokens)


# ---- words --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 3 * STEP), max_size=5))
def test_words_are_the_generators_outputs(seed: int, positions: list[int]) -> None:
    outputs = np.random.RandomState(seed).bytes(4 * (3 * STEP + 1))
    assert Words(seed).at(positions).tolist() == np.frombuffer(outputs, dtype="<u4")[positions].tolist()


def test_words_are_those_that_llmc_says_it_draws() -> None:
    """The first words for seed 137, from the head of llm.c's ``rand.h``, which says they are torch's."""
    assert Words(137).at(range(5)).tolist() == [4053805790, 2173880614, 380293709, 1237255315, 2986595568]


def test_words_can_be_read_backwards() -> None:
    source, fresh = Words(3), Words(3)
    late = source.at([5 * STEP + 7, 2 * STEP, 1])
    assert (
        fresh.at([1]).tolist() + fresh.at([2 * STEP]).tolist() + fresh.at([5 * STEP + 7]).tolist()
        == late.tolist()[::-1]
    )


@given(st.integers(-(2**70), 2**70), st.lists(st.integers(0, 40), max_size=4))
def test_python_shuffle_is_pythons(seed: int, sizes: list[int]) -> None:
    ours = [list(range(n)) for n in sizes]
    theirs = [list(range(n)) for n in sizes]
    generator = random.Random(seed)
    for listed in theirs:
        generator.shuffle(listed)
    python_shuffle(ours, seed)
    assert ours == theirs


# ---- llm.c --------------------------------------------------------------------------------------------------------


def slow_llmc(tokens: tuple[int, ...], batch: int, width: int, world: int, rank: int, shuffle: bool, steps: int) -> Any:
    """One process of llm.c's loader as the state machine it is: first tokens of the rows of each step."""
    drawn = np.random.RandomState(42 + rank)

    def permute(listed: list[int]) -> None:
        for i in range(len(listed) - 1, 0, -1):
            j = int(np.frombuffer(drawn.bytes(4), dtype="<u4")[0]) % (i + 1)
            listed[i], listed[j] = listed[j], listed[i]

    block = world * batch * width
    begins = np.concatenate(([0], np.cumsum(tokens)))
    shards = list(range(len(tokens)))
    inside: list[int] = []
    shard, sample = len(tokens) - 1, 0
    for _ in range(steps):
        if sample >= len(inside):
            shard += 1
            if shard == len(tokens):
                shard = 0
                if shuffle:
                    permute(shards)
            inside = list(range((tokens[shards[shard]] - 1) // block))
            if shuffle:
                permute(inside)
            sample = 0
        first = int(begins[shards[shard]]) + inside[sample] * block + rank * batch * width
        yield [first + row * width for row in range(batch)]
        sample += 1


llmc_shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.booleans())


@given(llmc_shapes, st.lists(st.integers(0, 60), min_size=1, max_size=4))
def test_llmc_reads_what_its_loader_reads(shape: tuple[int, int, int, bool], extra: list[int]) -> None:
    batch, width, world, shuffle = shape
    tokens = tuple(world * batch * width + 1 + n for n in extra)
    steps = 2 * sum((n - 1) // (world * batch * width) for n in tokens) + 3
    order = LlmcStream(key(sum(tokens)), width, batch, tokens, world, shuffle, steps=steps)
    found = order.spans(0, order.length).begin.reshape(steps, world, batch)
    for rank in range(world):
        assert found[:, rank].tolist() == list(slow_llmc(tokens, batch, width, world, rank, shuffle, steps))


@given(llmc_shapes, st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_llmc_reads_every_row_once_an_epoch(shape: tuple[int, int, int, bool], extra: list[int]) -> None:
    batch, width, world, shuffle = shape
    tokens = tuple(world * batch * width + 1 + n for n in extra)
    order = LlmcStream(key(sum(tokens)), width, batch, tokens, world, shuffle)
    epochs = [order.spans(e * order.epoch_samples, (e + 1) * order.epoch_samples).begin.tolist() for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert len(set(epochs[0])) == len(epochs[0])
    read = {t for begin in epochs[0] for t in range(begin, begin + width)}
    labels = {begin + width for begin in epochs[0]}
    assert order.dropped == sum(tokens) - len(read) - len(tokens)
    assert read | labels <= set(range(sum(tokens)))


# ---- HobbyLM ------------------------------------------------------------------------------------------------------


def test_hobbylm_gives_the_golden_batches() -> None:
    known = golden("hobbylm/data_generator.json")
    stream = np.array([t for shard in known["shards"] for t in shard])
    tokens = tuple(len(shard) for shard in known["shards"])
    order = HobbyStream(key(len(stream)), known["S"], known["B"], tokens, tuple(known["names"]), world=known["world"])
    steps = len(known["batches"]["0"])
    begins = order.spans(0, steps * order.step_samples).begin.reshape(steps, known["world"], known["B"])
    for rank in range(known["world"]):
        for step in range(steps):
            x, y = known["batches"][str(rank)][step]
            for row in range(known["B"]):
                begin = int(begins[step, rank, row])
                assert stream[begin : begin + known["S"]].tolist() == x[row]
                assert stream[begin + 1 : begin + known["S"] + 1].tolist() == y[row]


def test_hobbylm_gives_the_golden_stratified_orders() -> None:
    for cycle, expected in golden("hobbylm/data_generator.json")["stratified_shard_order_seed1337"].items():
        listing = tuple(sorted(expected, key=lambda n: (("edu", "dclm", "code", "math").index(n.split("_")[0]), n)))
        for names in (listing, tuple(sorted(expected))):
            found = [names[k] for k in cycle_order(names, "stratified", 1337, int(cycle))]
            if found == expected:
                break
        else:
            pytest.fail(f"cycle {cycle}")


@pytest.mark.parametrize("walk", WALKS)
def test_hobbylm_gives_the_golden_walks_of_two_ranks(walk: Any) -> None:
    known = golden("hobbylm/walks.json")
    tokens, names = tuple(known["tokens"]), tuple(known["names"])
    order = HobbyStream(
        key(sum(tokens)), known["S"], known["B"], tokens, names, tuple(known["listing"]), known["world"], walk
    )
    assert order.cycle_steps[0] > order.cycle_steps[1]
    expected = known["begins"][walk]
    steps = len(expected[0])
    assert steps > 2 * order.cycle_steps[0]
    found = order.spans(0, steps * order.step_samples).begin.reshape(steps, known["world"], known["B"])
    assert [found[:, rank].tolist() for rank in range(known["world"])] == expected


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(WALKS),
)
def test_hobbylm_gives_every_block_of_a_cycle_to_one_rank(
    extra: list[int], batch: int, width: int, world: int, walk: Any
) -> None:
    tokens = (world * batch * width + 1, *extra)
    names = tuple(f"{'ab'[k % 2]}_{k}.bin" for k in range(len(tokens)))
    order = HobbyStream(key(sum(tokens)), width, batch, tokens, names, world=world, walk=walk)
    assert sum(order.cycle_steps) == sum(order.blocks)
    begins = []
    for rank, steps in enumerate(order.cycle_steps):
        samples = (np.arange(steps)[:, None] * world + rank) * batch + np.arange(batch)
        assert (order.rank_of(samples) == rank).all()
        begins += order.spans_at(samples.reshape(-1)).begin.tolist()
    edges = np.concatenate(([0], np.cumsum(tokens)))
    rows = [int(edges[s]) + r * width for s, n in enumerate(order.blocks) for r in range(n * batch)]
    assert sorted(begins) == rows
    if order.epoch_samples is not None:
        assert sorted(order.spans(order.epoch_samples, 2 * order.epoch_samples).begin.tolist()) == rows


# ---- nanoGPT ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(5))
def test_nanogpt_draws_what_torch_draws(number: int) -> None:
    known = golden("nanogpt/randint.json")
    case = dict(known["cases"][number])
    expected = case.pop("begins")
    order = NanogptOrder(key(case.pop("tokens")), world=known["world"], seed=known["seed"], **case)
    steps = len(expected[0])
    found = order.spans(0, steps * order.step_samples).begin.reshape(steps, known["world"], order.batch)
    assert [found[:, rank].tolist() for rank in range(known["world"])] == expected


@given(st.integers(0, 9), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_nanogpt_counts_evaluations_from_where_it_resumed(
    first: int, accumulate: int, interval: int, iters: int, wide: bool
) -> None:
    width, batch, tokens = 8, 2, (1 << 28) + 8 if wide else 500
    order = NanogptOrder(
        key(tokens), width, batch, 1, 7, 3, accumulate, interval, iters, 100, first, steps=1 + 6 * accumulate
    )
    source = np.random.RandomState(7)
    source.bytes(4 * 3)

    def draw(count: int, words: int) -> list[int]:
        if count == 0:
            return []
        raw = np.frombuffer(source.bytes(4 * words * count), dtype="<u4").astype(object).reshape(count, words)
        return [int(r[0] if words == 1 else (int(r[0]) << 32) | int(r[1])) % (tokens - width) for r in raw]

    expected = draw(batch, 1 + wide)
    for iteration in range(first, first + 6):
        if iteration % interval == 0:
            draw(iters * batch, 1 + wide)
            draw(iters * batch, 1)
        for _ in range(accumulate):
            expected += draw(batch, 1 + wide)
    assert order.spans(0, order.length).begin.tolist() == expected


# ---- all ----------------------------------------------------------------------------------------------------------


def make(kind: str, table: Table, batch: int, width: int, world: int, cuts: list[int]) -> Any:
    """An order of each kind over one table, its stream cut into shards."""
    least = world * batch * width + 1
    edges = [0]
    for cut in sorted(cuts):
        if cut >= edges[-1] + least and cut <= table.tokens - least:
            edges.append(cut)
    tokens = tuple(np.diff([*edges, table.tokens]).tolist())
    names = tuple(f"{'ab'[k % 2]}_{k}.bin" for k in range(len(tokens)))
    if kind.startswith("llmc"):
        return LlmcStream(table.key, width, batch, tokens, world, kind == "llmc shuffled", steps=9, table=table)
    if kind == "nanogpt":
        return NanogptOrder(table.key, width, batch, world, 5, steps=9, table=table)
    return HobbyStream(table.key, width, batch, tokens, names, None, world, kind, steps=9, table=table)  # type: ignore[arg-type]


KINDS = ("llmc", "llmc shuffled", "nanogpt", *WALKS)


@given(
    st.sampled_from(KINDS),
    st.lists(st.integers(0, 20), min_size=1, max_size=12),
    st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 3)),
    st.lists(st.integers(0, 200), max_size=3),
    st.data(),
)
def test_views_and_locate_agree(
    kind: str, lengths: list[int], shape: tuple[int, int, int], cuts: list[int], data: st.DataObject
) -> None:
    batch, width, world = shape
    table = Table([*lengths, world * batch * width + 1])
    order = make(kind, table, batch, width, world, cuts)
    lo = data.draw(st.integers(0, order.length))
    hi = data.draw(st.integers(lo, order.length))
    check_views(order, lo, hi, np.random.default_rng(2))
    documents = data.draw(st.lists(st.integers(0, table.documents - 1), max_size=5, unique=True))
    assert hits(order.locate(0, documents, lo, hi)) == brute_hits(order, 0, table, documents, lo, hi)
    assert order.components_at(range(lo, hi)).tolist() == [0] * (hi - lo)


@pytest.mark.parametrize("kind", KINDS)
def test_more_steps_keep_what_came_before(kind: str) -> None:
    from dataclasses import replace

    order = make(kind, Table([50, 70, 30]), 2, 3, 2, [60])
    endless = replace(order, steps=None)
    assert endless.length is None
    assert endless.fingerprint_until(9) == order.fingerprint_until(9)
    assert endless.fingerprint != order.fingerprint
    assert endless.spans(0, 36).begin.tolist() == order.spans(0, 36).begin.tolist()
    other = replace(order, key=CorpusKey("tables", "01", 3, 150))
    assert other.fingerprint_until(9) != order.fingerprint_until(9)


def test_fingerprints_know_only_what_is_used() -> None:
    tokens, names = (30, 40), ("a_1", "b_1")
    base = HobbyStream(key(70), 2, 1, tokens, names)
    assert base.fingerprint == HobbyStream(key(70), 2, 1, tokens, ("x", "y"), seed=4).fingerprint
    assert base.fingerprint != HobbyStream(key(70), 2, 1, tokens, names, listing=(1, 0)).fingerprint
    mixed = HobbyStream(key(70), 2, 1, tokens, names, walk="stratified")
    assert mixed.fingerprint != HobbyStream(key(70), 2, 1, tokens, ("a_1", "a_2"), walk="stratified").fingerprint
    llmc = LlmcStream(key(70), 2, 1, tokens)
    assert llmc.fingerprint == LlmcStream(key(70), 2, 1, tokens, seed=9).fingerprint
    assert len({LlmcStream(key(70), 2, 1, tokens, shuffle=True, seed=s).fingerprint for s in range(3)}) == 3
    assert NanogptOrder(key(70), 2, 1, eval_interval=5).fingerprint == NanogptOrder(key(70), 2, 1).fingerprint


def test_random_windows_repeat_before_they_are_complete() -> None:
    """What sampling with replacement means, in numbers: of n draws over n places, 1/e of the places are never drawn."""
    begins = NanogptOrder(key(10_001), 1, 10_000).spans(0, 10_000).begin
    seen = Counter(begins.tolist())
    assert 0.35 < 1 - len(seen) / 10_000 < 0.39


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: LlmcStream(key(20), 2, 2, (9, 11), world=2), None),
        (lambda: LlmcStream(key(19), 2, 2, (8, 11), world=2), "ORD120"),
        (lambda: LlmcStream(key(21), 2, 2, (9, 11)), "ORD002"),
        (lambda: LlmcStream(key(9), 2, 0, (9,)), "ORD002"),
        (lambda: LlmcStream(key(9), 2, 2, (9,), seed=2**32), "ORD002"),
        (lambda: LlmcStream(key(9), 2, 2, (9,), steps=-1), "ORD002"),
        (lambda: HobbyStream(key(9), 2, 2, (9,), ("a",), world=2), None),
        (lambda: HobbyStream(key(8), 2, 2, (8,), ("a",), world=2), "ORD121"),
        (lambda: HobbyStream(key(9), 2, 2, (9,), ("a", "b")), "ORD002"),
        (lambda: HobbyStream(key(9), 2, 2, (9,), ("a",), listing=(0, 0)), "ORD002"),
        (lambda: HobbyStream(key(9), 2, 2, (9,), ("a",), listing=(1,)), "ORD002"),
        (lambda: HobbyStream(key(9), 2, 2, (9,), ("a",), listing=()), "ORD121"),
        (lambda: HobbyStream(key(9), 2, 2, (9,), ("a",), walk="random"), "ORD002"),  # type: ignore[arg-type]
        (lambda: NanogptOrder(key(9), 8, 1), None),
        (lambda: NanogptOrder(key(8), 8, 1), "ORD122"),
        (lambda: NanogptOrder(key(9), 8, 1, wide=5), "ORD002"),
        (lambda: NanogptOrder(key(9), 8, 1, seed=-1), "ORD002"),
        (lambda: NanogptOrder(key(9), 8, 1, eval_interval=1, eval_iters=1, eval_tokens=8), "ORD002"),
        (lambda: NanogptOrder(key(9), 8, 1, accumulate=0), "ORD002"),
    ],
)
def test_what_cannot_be_is_refused(build: Any, code: str | None) -> None:
    if code is None:
        build().spans(0, 1)
        return
    with pytest.raises(OrderError) as refused:
        build()
    assert refused.value.code == code


@pytest.mark.parametrize("kind", KINDS)
def test_samples_outside_are_refused(kind: str) -> None:
    order = make(kind, Table([50, 70, 30]), 2, 3, 2, [60])
    end = order.length
    for call in (
        lambda: order.spans(0, end + 1),
        lambda: order.spans(2, 1),
        lambda: order.spans_at([end]),
        lambda: order.spans_at([-1]),
        lambda: list(order.chunks(0, end + 1)),
        lambda: order.fingerprint_until(end + 1),
        lambda: order.locate(0, [0], 0, end + 1),
        lambda: order.locate(1, [0], 0, end),
    ):
        with pytest.raises(OrderError):
            call()
