"""Our own cache: the same order from it, never a stale one, never a damaged one, no harm when it cannot be written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.index.data import lengths_of
from tests.order.tables import Lengths
from tokenreel.index.cache import prepared
from tokenreel.order.maxtext_blend import MaxTextBlendOrder
from tokenreel.order.megatron import MegatronOrder
from tokenreel.order.megatron_blend import MegatronBlend
from tokenreel.order.mix import Component, MixOrder
from tokenreel.order.mix_phases import Phase
from tokenreel.order.protocol import Order

ONE, TWO = Lengths(lengths_of(1)), Lengths(lengths_of(2, 90))
ORDERS: dict[str, Order] = {
    "megatron": MegatronOrder.over(ONE, 8, seed=3, samples=400),
    "kept tail": MegatronOrder.over(ONE, 8, seed=3, samples=None, split=None, part="valid", keep_partial=True),
    "blend": MegatronBlend.over([ONE, TWO], 8, seed=3, samples=50, weights=[0.5, 1.5]),
    "maxtext blend": MaxTextBlendOrder.over([ONE, [TWO, ONE]], [1, 2], 8, samples=50),
    "mix": MixOrder(
        (Component("a", MegatronOrder.over(ONE, 8, seed=1, samples=None), "repeat"),), (Phase(0, (1,)),), 0, samples=50
    ),
}


def spans(order: Order) -> list[list[int]]:
    return [column.tolist() for column in order.spans(0, order.length or 0).columns()]


@pytest.mark.parametrize("name", ORDERS)
def test_the_second_time_is_read_and_is_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = ORDERS[name]
    plain, none = prepared(order)
    first, warnings = prepared(order, tmp_path)
    assert none == warnings == ()
    held = sorted(tmp_path.iterdir())
    assert held

    def never(*_: object) -> None:
        raise RuntimeError("shuffled again")

    monkeypatch.setattr("tokenreel.order.megatron.laid_out", never)
    second, _ = prepared(order, tmp_path)
    assert sorted(tmp_path.iterdir()) == held
    assert spans(second) == spans(first) == spans(plain)
    assert second.fingerprint == plain.fingerprint
    documents = range(0, 60, 7)
    for one in (first, second):
        assert one.locate(0, documents, 0, 40).sample.tolist() == plain.locate(0, documents, 0, 40).sample.tolist()


def test_replaced_data_has_another_key(tmp_path: Path) -> None:
    prepared(ORDERS["megatron"], tmp_path)
    count = len(list(tmp_path.iterdir()))
    # The same number of documents and tokens, two lengths swapped.
    sizes = lengths_of(1)
    at = next(k for k in range(len(sizes) - 1) if sizes[k] != sizes[k + 1])
    sizes[at], sizes[at + 1] = sizes[at + 1], sizes[at]
    other = MegatronOrder.over(Lengths(sizes), 8, seed=3, samples=400)
    made, _ = prepared(other, tmp_path)
    assert spans(made) == spans(other.prepare())
    assert len(list(tmp_path.iterdir())) == 2 * count


@pytest.mark.parametrize("ending", ["-entries.npy", "-order.npy", ".json"])
@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_a_damaged_entry_is_made_again(ending: str, how: str, tmp_path: Path) -> None:
    order = ORDERS["megatron"]
    prepared(order, tmp_path)
    (path,) = (one for one in tmp_path.iterdir() if one.name.endswith(ending))
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[-3] ^= 4
    path.write_bytes(whole[: len(whole) // 2] if how == "cut" else bytes(damaged))
    if how == "gone":
        path.unlink()
    made, warnings = prepared(order, tmp_path)
    assert warnings == ()
    assert spans(made) == spans(order.prepare())
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    made, warnings = prepared(ORDERS["blend"], tmp_path / "cache")
    assert [warning.code for warning in warnings] == ["IDX005", "IDX005"]
    assert spans(made) == spans(ORDERS["blend"].prepare())


def test_the_seed_and_the_plan_enter_the_key(tmp_path: Path) -> None:
    for seed, samples in ((3, 400), (4, 400), (3, 5000)):
        order = MegatronOrder.over(ONE, 8, seed=seed, samples=samples)
        made, _ = prepared(order, tmp_path)
        assert np.array_equal(made.spans(0, 30).begin, order.prepare().spans(0, 30).begin)
    assert len(list(tmp_path.iterdir())) == 9
