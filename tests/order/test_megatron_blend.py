"""`megatron-blend@1`: dispatch against the plain loop, samples, locate, prefixes, refusals; samplers' laws."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.order.tables import Lengths
from tests.order.test_megatron_order import check_locate
from tokenreel.errors import OrderError
from tokenreel.order import megatron_choosing as choosing
from tokenreel.order import megatron_samplers as samplers
from tokenreel.order.kernels import kernel
from tokenreel.order.megatron import MegatronOrder
from tokenreel.order.megatron_blend import MegatronBlend, megatron_orders, training_targets
from tokenreel.order.megatron_dispatch import dispatch, dispatch_all, normalised

WEIGHT = st.one_of(st.floats(1e-6, 1e3), st.integers(1, 9).map(float))
WEIGHTS = st.one_of(st.lists(WEIGHT, min_size=1, max_size=12), st.lists(WEIGHT, min_size=13, max_size=70))


@kernel("Tuple((int64, int64, float64))(float64[::1], float64[::1], int64[::1], int64, float64, boolean, int64[::1])")
def front_in_a_kernel(
    share: Any, taken: Any, member: Any, head: int, at: float, contract: bool, chosen: Any
) -> tuple[int, int, float]:
    return choosing.choose_front(share, taken, member, head, at, contract, chosen)


def plain(weights: list[float], samples: int, limits: list[float], contract: bool) -> tuple[list[int], list[int]]:
    """The dispatch as it is described, one member after the other."""
    taken = [0] * len(weights)
    members, numbers = [], []
    for s in range(samples):
        at = float(max(s, 1))
        best, most = -1, float("-inf")
        for k, weight in enumerate(weights):
            if taken[k] < limits[k]:
                exact = contract and k > 0
                error = float(Fraction(weight) * Fraction(at) - taken[k]) if exact else weight * at - taken[k]
                if error > most:
                    best, most = k, error
        members.append(best)
        numbers.append(taken[best])
        taken[best] += 1
    return members, numbers


@given(WEIGHTS, st.integers(0, 150), st.sampled_from(["x86", "fused"]), st.booleans())
def test_dispatch_is_the_plain_loop(weights: list[float], samples: int, arithmetic: Any, raw: bool) -> None:
    used = weights if raw else normalised(weights)
    member, number = dispatch(used, samples, arithmetic=arithmetic)
    expected = plain(used, samples, [float("inf")] * len(used), arithmetic == "fused")
    assert (member.tolist(), number.tolist()) == expected


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40))
def test_dispatch_of_everything_is_the_plain_loop(sizes: list[int]) -> None:
    total = sum(sizes)
    expected = plain([size / float(total) for size in sizes], total, [float(size) for size in sizes], contract=False)
    member, number = dispatch_all(sizes)
    assert (member.tolist(), number.tolist()) == expected
    assert Counter(member.tolist()) == dict(enumerate(sizes))


@given(st.integers(17, 60), st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.9, 1.0, 1.1, 3.0]))
def test_both_kernels_choose_the_same(n: int, seed: int, contract: bool, scale: float) -> None:
    random = np.random.default_rng(seed)
    weights = random.random(n) ** random.integers(1, 6) + 1e-9
    weights *= scale / weights.sum()
    found = []
    for choose in (choosing.choose_of_all, choosing.choose_of_many):
        out = np.empty(3000, np.int16), np.empty(3000, np.int64)
        choose(weights.copy(), np.zeros(n), np.full(n, np.inf), contract, *out)
        found.append(out)
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@given(st.integers(1, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_four_or_fewer_members_choose_the_same(n: int, seed: int, contract: bool) -> None:
    random = np.random.default_rng(seed)
    weights = random.integers(1, 9, n) / random.integers(1, 9)
    limits = random.integers(1, 400, n).astype(np.float64)
    found = []
    for choose, size in ((choosing.choose_of_all, n), (choosing.choose_of_four, 4)):
        out = np.empty(int(limits.sum()), np.int16), np.empty(int(limits.sum()), np.int64)
        pad = np.zeros(size - n)
        taken = np.concatenate([np.zeros(n), pad + np.inf])
        choose(np.concatenate([weights, pad]), taken, np.concatenate([limits, pad + np.inf]), contract, *out)
        found.append(out)
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@given(st.integers(17, 60), st.integers(0, 2**32 - 1), st.booleans())
def test_spent_members_drop_out_of_the_queue(n: int, seed: int, contract: bool) -> None:
    random = np.random.default_rng(seed)
    limits = random.integers(1, 200, n).astype(np.float64)
    found = []
    for choose in (choosing.choose_of_all, choosing.choose_of_many):
        out = np.empty(int(limits.sum()), np.int16), np.empty(int(limits.sum()), np.int64)
        choose(
            random.permutation(limits) / limits.sum() if seed % 2 else limits / limits.sum(),
            np.zeros(n),
            limits,
            contract,
            *out,
        )
        random = np.random.default_rng(seed)
        random.integers(1, 200, n)
        found.append(out)
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("contract", [False, True])
@given(st.data())
def test_vector_code_is_the_loop(contract: bool, data: Any) -> None:
    share, taken = np.zeros(choosing.FRONT + 3), np.full(choosing.FRONT + 3, np.inf)
    used = data.draw(st.integers(1, choosing.FRONT))
    numbers = st.lists(st.integers(1, 60), min_size=used, max_size=used)
    share[3 : 3 + used] = np.array(data.draw(numbers)) / 7
    taken[3 : 3 + used] = data.draw(numbers)
    member = np.random.default_rng(used).permutation(len(share))
    found = []
    for choose in (choosing.choose_front, front_in_a_kernel):
        chosen = np.zeros(choosing.STEP, np.int64)
        found.append((*choose(share, taken, member, 3, 11.0, contract, chosen), chosen.tolist()))
    assert found[0] == found[1]


def test_members_that_wait_longer_than_the_window() -> None:
    weights = [1e-5, 2e-5, *[1.0] * 17, 1.5]
    used = normalised(weights)
    samples = 12 * choosing.WINDOW
    member, _ = dispatch(used, samples)
    assert member.tolist() == plain(used, samples, [float("inf")] * 20, contract=False)[0]


@pytest.mark.parametrize("arithmetic", ["x86", "fused"])
def test_equal_members_take_turns(arithmetic: Any) -> None:
    for n in (1, 3, 17, 100):
        used = normalised([1.0] * n)
        member, number = dispatch(used, 700, arithmetic=arithmetic)
        expected = plain(used, 700, [float("inf")] * n, arithmetic == "fused")
        assert (member.tolist(), number.tolist()) == expected


@given(WEIGHTS, st.integers(0, 200), st.integers(0, 200))
def test_a_longer_dispatch_only_adds(weights: list[float], a: int, b: int) -> None:
    used = normalised(weights)
    short, long = sorted((a, b))
    assert np.array_equal(dispatch(used, long)[0][:short], dispatch(used, short)[0])


@pytest.mark.parametrize("weights", [[], [0.0], [1.0, -1.0], [float("nan")], [float("inf"), 1.0], [1.0] * 32767])
def test_weights_refused(weights: list[float]) -> None:
    for act in (lambda: dispatch(weights, 5), lambda: normalised(weights)):
        with pytest.raises(OrderError, match="ORD015"):
            act()


def test_other_refusals_of_dispatch() -> None:
    with pytest.raises(OrderError, match="ORD002"):
        dispatch([1.0], -1)
    with pytest.raises(OrderError, match="ORD002"):
        dispatch([1.0], 1, arithmetic="arm")  # type: ignore[arg-type]


# ---- the order ---------------------------------------------------------------------------------------------------------

TABLES = [Lengths([5, 0, 9, 30] * 6), Lengths([3] * 40), Lengths([70, 2, 2, 1] * 4)]


def blend(**changes: Any) -> MegatronBlend:
    settings: dict[str, Any] = {"seed": 4, "samples": 60, "weights": [5.0, 3.0, 2.0], "surplus": 0.1, **changes}
    return MegatronBlend.over(TABLES, settings.pop("row_tokens", 8), **settings)


def test_samples_are_those_of_the_members() -> None:
    order = blend().prepare()
    member, number = order.dispatched()
    whole = order.spans(0, order.length)
    whole.check([table.tokens for table in TABLES])
    for s in range(order.length):
        low, high = whole.splits[s], whole.splits[s + 1]
        own = order.members[member[s]].spans_at([number[s]])
        assert set(whole.corpus[low:high].tolist()) == {int(member[s])}
        for name in ("begin", "length", "document", "start", "flags"):
            assert np.array_equal(getattr(whole, name)[low:high], getattr(own, name))
    assert order.components_at(range(order.length)).tolist() == member.tolist()
    asked = [5, 5, 0, order.length - 1]
    some = order.spans_at(asked)
    for k, s in enumerate(asked):
        span = slice(whole.splits[s], whole.splits[s + 1])
        assert np.array_equal(some.begin[some.splits[k] : some.splits[k + 1]], whole.begin[span])
    assert sum(table.samples for _, table in order.chunks(0, order.length)) == order.length
    assert not whole.begin.flags.writeable


@pytest.mark.parametrize("weights", [[5.0, 3.0, 2.0], None])
def test_locate_is_a_scan_of_the_blend(weights: Any) -> None:
    order = blend(weights=weights, samples=30).prepare()
    for corpus, asked in ((0, [3, 1, 0]), (1, [7, 39]), (2, [0, 15])):
        check_locate(order, asked, 3, order.length - 2, corpus)


def test_a_blend_of_everything() -> None:
    order = blend(weights=None, samples=None).prepare()
    assert order.length == sum(member.length for member in order.members)
    assert order.weights == tuple(member.length for member in order.members)
    assert Counter(order.components_at(range(order.length)).tolist()) == {
        k: member.length for k, member in enumerate(order.members)
    }
    capped = blend(weights=None, samples=10)
    assert capped.length == 10
    assert blend(weights=None, samples=10**6).length == order.length


def test_blends_that_differ_only_in_length_share_a_prefix() -> None:
    longer, shorter = blend(samples=50), blend(samples=48)
    assert [member.plan for member in longer.members] == [member.plan for member in shorter.members]
    assert longer.fingerprint != shorter.fingerprint
    assert longer.fingerprint_until(48) == shorter.fingerprint_until(48)
    n = min(longer.length, shorter.length)
    a, b = longer.prepare().spans(0, n), shorter.prepare().spans(0, n)
    assert np.array_equal(a.begin, b.begin)
    others = [blend(seed=5), blend(weights=[5.0, 3.0, 2.1]), blend(arithmetic="fused"), blend(weights=None)]
    assert len({longer.fingerprint_until(1), *(order.fingerprint_until(1) for order in others)}) == 5


def test_description_shows_the_members() -> None:
    lines = list(blend().describe().lines())
    assert lines[0] == "megatron-blend@1 [60 samples x 8 tokens, x86]"
    assert lines[1].startswith("  0.5 x megatron@1 [")
    order = blend()
    assert (order.row_ahead, len(order.children), len(order.corpora), order.locate_cost) == (1, 3, 3, "index")
    prepared = order.prepare()
    assert prepared.prepare() is prepared


def test_refusals_of_blends() -> None:
    for changes, code in (
        ({"weights": [1.0, 2.0]}, "ORD015"), ({"weights": [1.0, 0.0, 1.0]}, "ORD015"), ({"samples": None}, "ORD002"),
        ({"row_tokens": 200, "weights": None}, "ORD015"), ({"split": "99,1", "part": "test"}, "ORD011"),
    ):  # fmt: skip
        with pytest.raises(OrderError, match=code):
            blend(**changes)
    for act in (
        lambda o: o.spans(0, 1),
        lambda o: o.spans_at([0]),
        lambda o: o.dispatched(),
        lambda o: o.components_at([0]),
    ):
        with pytest.raises(OrderError, match="ORD014"):
            act(blend())
    ready = blend().prepare()
    for outside in (lambda: ready.spans(0, 61), lambda: ready.spans_at([-1]), lambda: ready.components_at([60])):
        with pytest.raises(OrderError, match="ORD001"):
            outside()
    with pytest.raises(OrderError, match="ORD002"):
        ready.locate(3, [0], 0, 1)


def test_what_a_jobs_arguments_make() -> None:
    one, many = TABLES[:1], TABLES
    given = {"row_tokens": 8, "seed": 1, "samples": 5}
    assert isinstance(megatron_orders(one, **given)[0], MegatronOrder)
    assert isinstance(megatron_orders(one, weights=[3.0], **given)[0], MegatronBlend)
    assert isinstance(megatron_orders(one, weights=[3.0], per_split=True, **given)[0], MegatronOrder)
    sets = {"per_split": True, "multiple_validation_sets": True}
    assert len(megatron_orders(many, part="valid", **sets, **given)) == 3
    assert len(megatron_orders(many, part="train", **sets, **given)) == 1
    with pytest.raises(OrderError, match="ORD002"):
        megatron_orders(many, part="valid", full_validation=True, **sets, **given)
    with pytest.raises(OrderError, match="ORD015"):
        megatron_orders([], **given)


def test_targets_of_a_job() -> None:
    sizes = {"global_batch": 8, "eval_interval": 50, "eval_iters": 2}
    assert training_targets(train_samples=804, **sizes) == training_targets(train_iters=100, **sizes).__class__(
        804, 48, 16
    )
    later = training_targets(train_iters=100, start_eval_at_iter=60, eval_global_batch=4, **sizes)
    assert (later.valid, later.test) == (16, 8)
    assert training_targets(train_iters=100, full_validation=True, **sizes).valid is None
    for bad in ({}, {"train_iters": 1, "train_samples": 8}):
        with pytest.raises(OrderError, match="ORD002"):
            training_targets(**bad, **sizes)


# ---- samplers ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(0, 199), st.integers(1, 5), st.integers(1, 5))
def test_ranks_share_out_what_is_left(total: int, consumed: int, micro: int, ranks: int) -> None:
    if consumed >= total:
        with pytest.raises(OrderError, match="ORD017"):
            samplers.single(total, consumed, micro, ranks, 0)
        return
    for drop in (True, False):
        each = [list(samplers.single(total, consumed, micro, ranks, rank, drop_last=drop)) for rank in range(ranks)]
        assert len({len(batches) for batches in each}) == 1
        seen = sorted(sample for batches in each for batch in batches for sample in batch)
        end = total if not drop else consumed + (total - consumed) // (micro * ranks) * micro * ranks
        assert seen == list(range(consumed, end))


@given(st.integers(1, 150), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.integers(0, 60))
def test_cyclic_resumes_where_it_stopped(total: int, micro: int, ranks: int, sharding: bool, steps: int) -> None:
    block = micro * ranks

    def start(consumed: int, rank: int) -> Any:
        return samplers.cyclic(total, consumed, micro, ranks, rank, data_sharding=sharding)

    if total < block:
        with pytest.raises(OrderError, match="ORD017"):
            start(0, 0)
        return
    try:
        whole = [list(islice(start(0, rank), steps + 5)) for rank in range(ranks)]
        resumed = [list(islice(start(steps * block, rank), 5)) for rank in range(ranks)]
    except OrderError as error:
        refused = error.code
    else:
        refused = ""
    if refused:
        assert (refused, sharding) == ("ORD017", False)
        return
    assert resumed == [batches[steps:] for batches in whole]
    epoch = total // block
    first = [sample for batches in whole for batch in batches[: min(epoch, steps + 5)] for sample in batch]
    assert len(set(first)) == len(first)


def test_uneven_ranks_are_refused_unless_asked_for() -> None:
    with pytest.raises(OrderError, match="ORD017"):
        samplers.cyclic(5, 0, 1, 2, 0, data_sharding=False)
    counts = [len(list(samplers.cyclic_epoch(5, 0, 1, 2, rank, data_sharding=False))) for rank in (0, 1)]
    assert counts == [3, 2]
    endless = samplers.cyclic(5, 0, 1, 2, 0, data_sharding=False, compat=["uneven-ranks"])
    assert len(list(islice(endless, 7))) == 7


def test_refusals_of_samplers() -> None:
    for act in (
        lambda: samplers.single(10, 0, 1, 2, 2), lambda: samplers.single(0, 0, 1, 1, 0),
        lambda: samplers.single(10, 10, 1, 1, 0), lambda: samplers.cyclic(50, 3, 2, 2, 0),
        lambda: samplers.full_validation(3, 2, -1), lambda: samplers.hybrid_context_parallel(10, 0, 2, 6, 2, 0),
        lambda: samplers.hybrid_context_parallel(8, 8, 2, 8, 2, 0),
    ):  # fmt: skip
        with pytest.raises(OrderError, match="ORD017"):
            act()
