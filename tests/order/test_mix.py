"""`mix@1`: exact shares, cursors that run on, explicit ends, prefixes that are interchangeable."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.order.laws import Table, brute_hits, check_views, hits, rows
from tokenreel.errors import OrderError
from tokenreel.order import mix_blocks, mix_counts
from tokenreel.order.mix import Component, MixOrder, Phase
from tokenreel.order.mix_counts import CYCLE, STRIDE, counts_before, units_of
from tokenreel.order.stream import StreamOrder
from tokenreel.order.windows import WindowsOrder
from tokenreel.order.windows_shuffle import BlockShuffle
from tokenreel.spans import CorpusKey


def stream(samples: int, digest: str = "00", width: int = 2) -> StreamOrder:
    return StreamOrder(CorpusKey("files", digest, 1, samples * width + 1), width)


def endless(windows: int, digest: str = "00", width: int = 2) -> WindowsOrder:
    return WindowsOrder(CorpusKey("files", digest, 1, windows * width + 1), width, 3, epochs=None)


def mixed(*weights: float, block: int = 8, seed: int = 5, samples: int | None = None, size: int = 10**6) -> MixOrder:
    parts = tuple(Component(f"c{k}", endless(size, f"{k:02}")) for k in range(len(weights)))
    return MixOrder(parts, (Phase(0, weights),), seed, block, samples)


# ---- shares -------------------------------------------------------------------------------------------------------

shares = st.lists(st.sampled_from([0, 0.01, 0.1, 1 / 3, 0.5, 1, 2, 7.5, 1000]), min_size=1, max_size=6).filter(any)


@given(shares, st.integers(1, 70))
def test_units_are_the_largest_remainders(weights: list[float], block: int) -> None:
    units = units_of(weights, block)
    assert sum(units) == block * CYCLE
    for weight, n in zip(weights, units, strict=True):
        assert abs(n - weight / sum(weights) * block * CYCLE) < 1
        assert (n == 0) == (weight == 0)


def test_weights_are_read_as_decimals() -> None:
    assert units_of([0.1, 0.2, 0.7], 10) == (CYCLE, 2 * CYCLE, 7 * CYCLE)


def test_equal_remainders_go_to_the_earlier_component() -> None:
    units = units_of([1, 1, 1], 1)
    assert [n - CYCLE // 3 for n in units] == [1, 0, 0]


@given(shares, st.integers(1, 40), st.integers(0, 3 * CYCLE))
def test_counts_are_sums_of_the_definition(weights: list[float], block: int, start: int) -> None:
    units = units_of(weights, block)
    sums = np.concatenate(([0], np.cumsum(units)))
    shift = (np.arange(start, start + 50) * STRIDE) % CYCLE
    held = np.diff((sums[None, :] + shift[:, None]) // CYCLE, axis=1)
    found = counts_before(units, np.arange(start, start + 51))
    assert np.diff(found, axis=0).tolist() == held.tolist()
    assert (held.sum(axis=1) == block).all()
    quotas = np.array(units) / CYCLE
    assert ((held >= np.floor(quotas)) & (held <= np.ceil(quotas))).all()
    assert found.sum(axis=1).tolist() == [block * b for b in range(start, start + 51)]


@given(shares, st.integers(1, 40))
@settings(max_examples=25)
def test_a_cycle_is_exact_and_nothing_runs_away_inside_it(weights: list[float], block: int) -> None:
    units = units_of(weights, block)
    assert counts_before(units, [CYCLE]).tolist() == [list(units)]
    blocks = np.concatenate([np.random.default_rng(block).integers(0, 1 << bits, 3000) for bits in (8, 16, 24, 30)])
    off = counts_before(units, blocks) - blocks[:, None] * (np.array(units) / CYCLE)
    assert np.abs(off).max() < 8


def test_the_largest_blocks_do_not_overflow() -> None:
    units = units_of([1, 2, 3], 1 << 20)
    last = (1 << 42) - 1
    assert counts_before(units, [CYCLE - 1, CYCLE, last]).sum(axis=1).tolist() == [
        (CYCLE - 1) << 20,
        CYCLE << 20,
        last << 20,
    ]
    order = mixed(1, 2, 3, block=1 << 20)
    near = (1 << 61) + 7
    components, numbers = order.ready.places_at(np.array([near]))
    assert order.ready.samples_of(int(components[0]), numbers).tolist() == [near]


def test_the_closed_form_equals_the_slow_sum() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, m, a, b = (int(x) for x in rng.integers([0, 1, 0, 0], [200, 60, 200, 200]))
        assert mix_counts.quotients(n, m, a, b) == sum((a * i + b) // m for i in range(n))


def test_a_rare_component_comes_although_blocks_are_small() -> None:
    order = mixed(0.999, 0.001, block=16, samples=160_000)
    assert abs(int(order.counts_between(0, 160_000)[1]) - 160) < 8
    places = np.flatnonzero(order.components_at(np.arange(160_000)) == 1)
    assert np.diff(places).max() < 2500


# ---- the order against one that is written down slowly ------------------------------------------------------------

U64 = (1 << 64) - 1


def scramble(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & U64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & U64
    return value ^ (value >> 31)


def slow(order: MixOrder, length: int) -> list[tuple[int, int]]:
    """Component and cursor of samples [0, length), block by block from the definition."""
    cursors = [0] * len(order.components)
    out: list[tuple[int, int]] = []
    phases = [(p.begin, units_of(p.weights, order.block)) for p in order.phases]
    phases = [p for k, p in enumerate(phases) if k == 0 or p[1] != phases[k - 1][1]]
    for number, (begin, units) in enumerate(phases):
        end = min(length, phases[number + 1][0]) if number + 1 < len(phases) else length
        sums = [sum(units[:c]) for c in range(len(units) + 1)]
        for b in range(max(0, -(-(end - begin) // order.block))):
            shift = b * STRIDE % CYCLE
            slots = []
            for c in range(len(units)):
                slots += [c] * ((sums[c + 1] + shift) // CYCLE - (sums[c] + shift) // CYCLE)
            first = begin + b * order.block
            state = scramble(order.seed) ^ scramble(first + (1 << 63))
            for i in range(order.block):
                state = state + 0x9E3779B97F4A7C15 & U64
                j = i + ((scramble(state) >> 32) * (order.block - i) >> 32)
                slots[i], slots[j] = slots[j], slots[i]
            for c in slots[: end - first]:
                out.append((c, cursors[c]))
                cursors[c] += 1
    return out


phased = st.lists(
    st.tuples(st.integers(1, 60), st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any)), max_size=4
)


def phases_of(first: list[int], rest: list[tuple[int, list[int]]]) -> tuple[Phase, ...]:
    begins = np.cumsum([n for n, _ in rest]).tolist()
    return (Phase(0, tuple(first)), *(Phase(b, tuple(w)) for b, (_, w) in zip(begins, rest, strict=True)))


@given(phased, st.integers(1, 12), st.integers(0, 2**64 - 1), st.integers(0, 300))
def test_every_sample_is_where_the_definition_puts_it(rest: Any, block: int, seed: int, length: int) -> None:
    parts = tuple(Component(f"c{k}", endless(10**6, f"{k:02}")) for k in range(3))
    order = MixOrder(parts, phases_of([1, 2, 0], rest), seed, block)
    expected = slow(order, length)
    components, numbers = order.places_at(np.arange(length))
    assert list(zip(components.tolist(), numbers.tolist(), strict=True)) == expected
    at = np.random.default_rng(seed % 1000).integers(0, max(1, length), 9) if length else np.empty(0, int)
    assert order.components_at(at).tolist() == [expected[k][0] for k in at.tolist()]
    for k in (0, length // 3, length):
        assert order.cursors_at([k])[0].tolist() == [sum(c == x for c, _ in expected[:k]) for x in range(3)]
    for c in range(3):
        mine = [(k, n) for k, (x, n) in enumerate(expected) if x == c]
        assert order.ready.samples_of(c, np.array([n for _, n in mine], dtype=np.int64)).tolist() == [
            k for k, _ in mine
        ]


def test_numbers_that_never_change() -> None:
    """The order under this name is frozen: these were computed once from the definition."""
    order = mixed(0.55, 0.3, 0.15, block=7, seed=1234)
    assert order.components_at(range(21)).tolist() == FIRST
    assert order.components_at(range(7 * CYCLE - 7, 7 * CYCLE + 7)).tolist() == ACROSS
    assert order.cursors_at([10**6, 10**15]).tolist() == CURSORS


FIRST = [1, 0, 0, 0, 1, 2, 2, 2, 1, 0, 0, 0, 1, 0, 0, 1, 2, 0, 0, 1, 0]
ACROSS = [2, 1, 0, 0, 0, 1, 0, 1, 1, 2, 0, 0, 0, 2]
CURSORS = [[550002, 299999, 149999], [550000000079829, 299999999946779, 149999999973392]]


def test_blocks_hold_exactly_their_share() -> None:
    order = mixed(0.5, 0.25, 0.25, block=256)
    components = order.components_at(np.arange(256 * 40)).reshape(40, 256)
    assert {tuple(np.bincount(row).tolist()) for row in components} == {(128, 64, 64)}
    assert len({tuple(row.tolist()) for row in components}) == 40


def test_a_components_samples_come_in_its_own_order() -> None:
    components, numbers = mixed(3, 1, 2).places_at(np.arange(2000))
    for c in range(3):
        mine = numbers[components == c]
        assert mine.tolist() == list(range(len(mine)))


def test_weights_changed_later_leave_cursors_where_they_were() -> None:
    parts = tuple(Component(f"c{k}", endless(50, f"{k:02}")) for k in range(2))
    before = MixOrder(parts, (Phase(0, (3, 1)),), 1, 16)
    after = MixOrder(parts, (Phase(0, (3, 1)), Phase(101, (1, 9))), 1, 16)
    assert rows(after.spans(0, 101)) == rows(before.spans(0, 101))
    assert after.cursors_at([101]).tolist() == before.cursors_at([101]).tolist()
    components, numbers = after.places_at(np.arange(101, 200))
    for c, cursor in enumerate(before.cursors_at([101])[0].tolist()):
        assert numbers[components == c][0] == cursor


def test_a_mixture_may_begin_with_cursors() -> None:
    """Begun where another stood, it gives the samples that follow; finite components end as soon as they are used up."""
    parts = (Component("a", endless(50, "00")), Component("b", StreamOrder.over(Table([41], "01"), 2), "stop"))
    before = MixOrder(parts, (Phase(0, (3, 1)),), 1, 16)
    assert before.length is not None
    starts = tuple(before.cursors_at([41])[0].tolist())
    order = MixOrder(parts, (Phase(0, (1, 1)),), 1, 16, starts=starts)
    components, numbers = order.places_at(np.arange(order.length or 0))
    assert order.cursors_at([0, order.length]).tolist() == [
        list(starts),
        [starts[0] + int((components == 0).sum()), 20],
    ]
    for c, start in enumerate(starts):
        mine = numbers[components == c]
        assert mine.tolist() == list(range(start, start + len(mine)))
    plain = MixOrder(parts, (Phase(0, (1, 1)),), 1, 16)
    assert order.fingerprint != plain.fingerprint
    assert MixOrder(parts, (Phase(0, (1, 1)),), 1, 16, starts=(0, 0)).fingerprint == plain.fingerprint
    assert order.fingerprint_until(3) != plain.fingerprint_until(3)
    for wrong in ((1,), (-1, 0)):
        with pytest.raises(OrderError, match="ORD002"):
            MixOrder(parts, (Phase(0, (1, 1)),), 1, 16, starts=wrong)


def test_the_same_weights_again_are_no_new_phase() -> None:
    parts = tuple(Component(f"c{k}", endless(50, f"{k:02}")) for k in range(2))
    one = MixOrder(parts, (Phase(0, (3, 1)),), 1, 16)
    two = MixOrder(parts, (Phase(0, (0.75, 0.25)), Phase(37, (6, 2))), 1, 16)
    assert one.fingerprint == two.fingerprint
    assert one.components_at(range(100)).tolist() == two.components_at(range(100)).tolist()


# ---- any components -----------------------------------------------------------------------------------------------


@st.composite
def mixtures(draw: Any) -> tuple[MixOrder, list[Table]]:
    """Mixtures of finite, wrapping, endless, two-corpus components over tables of documents."""
    width = draw(st.integers(1, 3))
    tables = [Table([*draw(st.lists(st.integers(0, 7), max_size=5)), width + 1], f"{k:02}") for k in range(4)]
    inner = MixOrder(
        (
            Component("a", WindowsOrder.over(tables[0], width, 1, epochs=None)),
            Component("b", StreamOrder.over(tables[1], width), "repeat"),
        ),
        (Phase(0, (1, 1)),),
        9,
        4,
    )
    parts = (
        Component("inner", inner),
        Component("stream", StreamOrder.over(tables[2], width), "repeat"),
        Component("windows", WindowsOrder.over(tables[3], width, 4, io=BlockShuffle(2, 2)), "repeat", 1000.5),
    )
    rest = draw(phased)
    starts = draw(st.sampled_from([(), (0, 0, 0), (2, 30, 5)]))
    order = MixOrder(parts, phases_of([1, 1, 1], rest), draw(st.integers(0, 99)), draw(st.integers(1, 9)), 90, starts)
    return order, tables


@given(mixtures(), st.data())
@settings(max_examples=60)
def test_views_and_locate_agree(made: tuple[MixOrder, list[Table]], data: st.DataObject) -> None:
    order, tables = made
    lo = data.draw(st.integers(0, 90))
    hi = data.draw(st.integers(lo, 90))
    check_views(order, lo, hi, np.random.default_rng(3))
    assert [key.digest for key in order.corpora] == ["00", "01", "02", "03"]
    for corpus, table in enumerate(tables):
        documents = data.draw(st.lists(st.integers(0, table.documents - 1), max_size=4, unique=True))
        found = order.locate(corpus, documents, lo, hi)
        assert hits(found) == brute_hits(order, corpus, table, documents, lo, hi)
        places = [documents.index(d) for d in found.document.tolist()]
        assert places == sorted(places)


@given(mixtures())
@settings(max_examples=30)
def test_samples_are_the_components_own(made: tuple[MixOrder, list[Table]]) -> None:
    order, _ = made
    components, numbers = order.places_at(np.arange(90))
    first = [0, 2, 3]
    whole = rows(order.spans(0, 90))
    for k, (c, n) in enumerate(zip(components.tolist(), numbers.tolist(), strict=True)):
        expected = rows(order.children[c].spans(n, n + 1))[0]
        assert whole[k] == [(extent[0] + first[c], *extent[1:]) for extent in expected]


# ---- ends ---------------------------------------------------------------------------------------------------------


def test_stop_ends_the_mixture_where_a_component_ends() -> None:
    parts = (Component("a", endless(9)), Component("b", stream(10, "01"), "stop"))
    order = MixOrder(parts, (Phase(0, (3, 1)),), 2, 8)
    assert order.length is not None
    components, numbers = order.places_at(np.arange(order.length))
    assert numbers[components == 1].tolist() == list(range(10))
    longer = MixOrder((parts[0], replace(parts[1], at_end="repeat")), order.phases, 2, 8)
    assert longer.places_at([order.length])[0].tolist() == [1]
    with pytest.raises(OrderError, match="ORD001"):
        order.spans(0, order.length + 1)


def test_error_refuses_what_would_run_out_and_says_where() -> None:
    parts = (Component("a", endless(9)), Component("b", stream(10, "01")))
    stopped = MixOrder((parts[0], replace(parts[1], at_end="stop")), (Phase(0, (3, 1)),), 2, 8)
    assert stopped.length is not None
    fits = MixOrder(parts, stopped.phases, 2, 8, samples=stopped.length)
    assert fits.length == stopped.length
    for samples in (None, stopped.length + 1):
        with pytest.raises(OrderError, match=f"component b .*runs out at sample {stopped.length}"):
            MixOrder(parts, stopped.phases, 2, 8, samples=samples)


def test_a_component_that_rests_before_its_end_does_not_run_out() -> None:
    parts = (Component("a", endless(9)), Component("b", stream(10, "01")))
    order = MixOrder(parts, (Phase(0, (3, 1)), Phase(40, (1, 0))), 2, 8)
    assert order.length is None
    assert order.counts_between(0, 10**6)[1] == 10
    with pytest.raises(OrderError, match="ORD110"):
        MixOrder(parts, (Phase(0, (3, 1)), Phase(40, (1, 0)), Phase(1000, (3, 1))), 2, 8)


def test_repeat_starts_again_and_a_cap_limits_it() -> None:
    parts = (Component("a", endless(9)), Component("b", stream(10, "01"), "repeat"))
    order = MixOrder(parts, (Phase(0, (3, 1)),), 2, 8)
    components, numbers = order.places_at(np.arange(200))
    assert numbers[components == 1].tolist() == [n % 10 for n in range(50)]
    capped = (parts[0], replace(parts[1], cap=2.5))
    assert MixOrder(capped, order.phases, 2, 8, samples=96).length == 96
    with pytest.raises(OrderError, match="ORD110"):
        MixOrder(capped, order.phases, 2, 8, samples=120)
    stopping = MixOrder((parts[0], replace(parts[1], at_end="stop", cap=2.5)), order.phases, 2, 8)
    assert stopping.counts_between(0, stopping.length)[1] == 25
    assert stopping.places_at(np.arange(stopping.length))[1].tolist() == numbers[: stopping.length].tolist()


def test_a_cap_counts_the_epochs_of_an_endless_component() -> None:
    parts = (Component("a", endless(10), "stop", 1.5), Component("b", endless(9, "01")))
    order = MixOrder(parts, (Phase(0, (1, 1)),), 2, 8)
    assert order.counts_between(0, order.length)[0] == 15
    windows = order.spans_at(np.flatnonzero(order.components_at(np.arange(order.length)) == 0)).begin
    assert sorted(windows[:10].tolist()) == list(range(0, 20, 2))
    assert len(set(windows[10:].tolist())) == 5


def test_caps_are_read_as_decimals() -> None:
    assert Component("a", stream(10), "stop", 0.7).supply == 7


# ---- fingerprints -------------------------------------------------------------------------------------------------


def test_phases_appended_leave_what_came_before_interchangeable() -> None:
    base = mixed(3, 1)
    longer = replace(base, phases=(*base.phases, Phase(100, (1, 1))))
    other = replace(base, phases=(*base.phases, Phase(100, (1, 2)), Phase(300, (1, 1))))
    for i in (0, 50, 100):
        assert len({order.fingerprint_until(i) for order in (base, longer, other)}) == 1
    assert len({order.fingerprint_until(101) for order in (base, longer, other)}) == 3
    assert len({order.fingerprint for order in (base, longer, other)}) == 3


def test_a_component_added_at_the_end_leaves_what_came_before_interchangeable() -> None:
    base = mixed(3, 1)
    parts = (*base.components, Component("new", stream(10, "09"), "repeat"))
    added = MixOrder(parts, (Phase(0, (3, 1, 0)), Phase(64, (3, 1, 1))), base.seed, base.block)
    assert added.fingerprint_until(64) == base.fingerprint_until(64)
    assert added.fingerprint_until(65) != base.fingerprint_until(65)
    assert rows(added.spans(0, 64)) == rows(base.spans(0, 64))
    first = MixOrder(parts[::-1], (Phase(0, (0, 1, 3)),), base.seed, base.block)
    assert first.fingerprint_until(64) != base.fingerprint_until(64)


def test_epochs_added_to_a_component_leave_what_came_before_interchangeable() -> None:
    def order(epochs: int | None) -> MixOrder:
        parts = (Component("a", replace(endless(50), epochs=epochs), "stop"), Component("b", endless(9, "01")))
        return MixOrder(parts, (Phase(0, (1, 1)),), 2, 8)

    assert order(1).fingerprint_until(90) == order(None).fingerprint_until(90)
    wrapped = MixOrder(
        (Component("a", replace(endless(50), epochs=1), "repeat"), Component("b", endless(9, "01"))),
        (Phase(0, (1, 1)),),
        2,
        8,
    )
    # The first pass is the same; the second is the first again in one and an epoch of its own in the other.
    assert wrapped.fingerprint_until(96) == order(None).fingerprint_until(96)
    assert wrapped.fingerprint_until(160) != order(None).fingerprint_until(160)
    assert rows(wrapped.spans(0, 96)) == rows(order(None).spans(0, 96))
    assert rows(wrapped.spans(96, 160)) != rows(order(None).spans(96, 160))


@pytest.mark.parametrize("changed", [{"seed": 6}, {"block": 4}, {"phases": (Phase(0, (1, 3)),)}, {"size": 10**5}])
def test_what_changes_the_samples_changes_the_fingerprints(changed: dict[str, Any]) -> None:
    base = mixed(3, 1)
    other = mixed(3, 1, **changed) if "size" in changed else replace(base, **changed)
    assert other.fingerprint != base.fingerprint
    assert other.fingerprint_until(40) != base.fingerprint_until(40)


def test_names_of_components_do_not_enter() -> None:
    base = mixed(3, 1)
    named = replace(base, components=tuple(replace(c, name=c.name * 2) for c in base.components))
    assert named.fingerprint == base.fingerprint


# ---- refusals, describe, cost -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"phases": (Phase(0, (1, -1)),)}, "ORD111"),
        ({"phases": (Phase(0, (0, 0)),)}, "ORD111"),
        ({"phases": (Phase(0, (1, math.nan)),)}, "ORD111"),
        ({"phases": (Phase(0, (1, math.inf)),)}, "ORD111"),
        ({"phases": (Phase(0, (1,)),)}, "ORD111"),
        ({"phases": ()}, "ORD113"),
        ({"phases": (Phase(1, (1, 1)),)}, "ORD113"),
        ({"phases": (Phase(0, (1, 1)), Phase(9, (1, 2)), Phase(9, (1, 3)))}, "ORD113"),
        ({"phases": (Phase(0, (1, 1e-12)),)}, "ORD114"),
        ({"components": ()}, "ORD002"),
        ({"components": (Component("a", endless(5)), Component("a", endless(5)))}, "ORD002"),
        ({"components": (Component("a", endless(5)), Component("b", endless(5, width=3)))}, "ORD112"),
        ({"components": (Component("a", endless(5)), Component("b", endless(5), "wrap"))}, "ORD002"),  # type: ignore[arg-type]
        ({"components": (Component("a", endless(5)), Component("b", stream(0), "repeat"))}, "ORD002"),
        ({"components": (Component("a", endless(5)), Component("b", stream(0), "stop", 2.0))}, "ORD002"),
        ({"components": (Component("a", endless(5)), Component("b", stream(5), "stop", 0.0))}, "ORD002"),
        ({"components": (Component("a", endless(5)), Component("b", stream(5), "stop", math.inf))}, "ORD002"),
        ({"components": (Component("a", endless(5)), Component("b", stream(0)))}, "ORD110"),
        ({"block": 0}, "ORD002"),
        ({"block": 1 << 21}, "ORD002"),
        ({"seed": -1}, "ORD002"),
        ({"samples": -1}, "ORD002"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], code: str) -> None:
    with pytest.raises(OrderError) as refused:
        replace(mixed(1, 1), **change)
    assert refused.value.code == code


def test_samples_outside_are_refused() -> None:
    order = mixed(1, 1, samples=50)
    for call in (
        lambda: order.spans(0, 51),
        lambda: order.spans_at([50]),
        lambda: order.spans_at([-1]),
        lambda: order.components_at([50]),
        lambda: order.cursors_at([51]),
        lambda: order.counts_between(0, 51),
        lambda: order.fingerprint_until(51),
        lambda: order.locate(2, [0], 0, 50),
        lambda: list(order.chunks(0, 51)),
    ):
        with pytest.raises(OrderError):
            call()


def test_a_description_names_phases_and_components() -> None:
    lines = list(mixed(3, 1, samples=50).describe().lines())
    assert lines[0].startswith("mix@1 [50 samples in blocks of 8")
    assert lines[1] == "  from 0: c0 75.0000%, c1 25.0000%"
    assert any("windows@1" in line for line in lines)


def test_seeking_does_not_depend_on_what_came_before() -> None:
    parts = tuple(Component(f"c{k}", endless(10**9, f"{k:02}")) for k in range(8))
    phases = tuple(Phase(n * 1_000_003, tuple(1 + (n + k) % 5 for k in range(8))) for n in range(50))
    order = MixOrder(parts, phases, 1, 1024)
    far = (1 << 62) - 10
    order.spans(far, far + 1)
    best = 1.0
    for attempt in range(10):
        begin = time.perf_counter()
        order.spans(far - attempt, far - attempt + 1)
        best = min(best, time.perf_counter() - begin)
    assert best < 5e-3
    assert order.cursors_at([far]).sum() == far


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any), st.integers(0, 2**64 - 1), st.data())
def test_kernels_compute_what_they_say(held: list[int], seed: int, data: st.DataObject) -> None:
    block = sum(held)
    counts = np.array([held, held], dtype=np.int64)
    firsts = np.array([data.draw(st.integers(0, 2**62)), 5], dtype=np.int64)
    at = np.array([data.draw(st.integers(0, block - 1)), block - 1], dtype=np.int64)
    which = np.arange(2)
    key = np.uint64(seed)

    def run(python: bool) -> list[Any]:
        def pick(kernel: Any) -> Any:
            return kernel.python if python else kernel

        components, ranks = np.empty(2, np.int32), np.empty(2, np.int64)
        before, found = np.zeros_like(counts), np.empty(2, np.int64)
        with np.errstate(over="ignore"):
            pick(mix_blocks._place)(firsts, counts, which, at, key, block, components, ranks)
            pick(mix_blocks._prefix)(firsts, counts, at, key, block, before)
            pick(mix_blocks._find)(firsts, counts, int(components[0]), ranks, key, block, found)
        return [components.tolist(), ranks.tolist(), before.tolist(), found[:1].tolist()]

    compiled = run(python=False)
    if compiled[0][0] == compiled[0][1]:
        assert compiled == run(python=True)
    assert compiled[3] == [at[0]]
    assert compiled[1] == [compiled[2][k][compiled[0][k]] for k in range(2)]
