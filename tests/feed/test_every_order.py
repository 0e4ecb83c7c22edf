"""Exactly once, in process: every order and every rim, stopped after any step, resumed in any other setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.feed.jobs import ORDERS, expected_rows, made_order, policy_of, row_names, write_data
from tests.feed.rims import RIMS, WITH_WORKERS, fits, gather_of, takes
from tokenreel.feed.opening import open_feed
from tokenreel.index.samples import samples_of
from tokenreel.testing import Setting, every_setting, exactly_once
from tokenreel.testing.exactly_once import labels_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("every"), 12)


def check(
    folder: Path, order: str, rim: str, settings: list[Setting], samples: int, *, prefetch: int = 0, **options: Any
) -> int:
    """Prove one order in one rim; returns the cases tried. Loaders are opened once and loaded with each case's state."""
    made, policy = made_order(folder, order, samples), policy_of(order)
    opened: dict[tuple[Setting, int], Any] = {}

    def make(setting: Setting, rank: int, state: Any) -> Any:
        if state is None or rim not in ("feed", "strided"):
            return RIMS[rim](made, policy, setting, rank, state, prefetch)
        if (setting, rank) not in opened:
            opened[setting, rank] = Kept(RIMS[rim](made, policy, setting, rank, None, prefetch))
        opened[setting, rank].load_state_dict(state)
        return opened[setting, rank]

    report = exactly_once(
        make, settings, expected_rows(made, policy), rows=row_names, gather=gather_of(rim),  # type: ignore[arg-type]
        **options,
    )  # fmt: skip
    for kept in opened.values():
        kept.feed.close()
    assert report.holds, "\n".join(report.lines()[:5])
    return report.cases


class Kept:
    """A feed that is not closed after each case."""

    def __init__(self, feed: Any) -> None:
        self.feed = feed
        self.load_state_dict, self.state_dict = feed.load_state_dict, feed.state_dict

    def __iter__(self) -> Any:
        return iter(self.feed)


@pytest.mark.parametrize("order", ORDERS)
def test_labels_are_those_of_the_samples(order: str, folder: Path) -> None:
    """The rows that the proofs expect, against ids read extent by extent."""
    made = made_order(folder, order, 12)
    with open_feed(made, rows=policy_of(order), batch=5) as feed:
        for batch in feed:
            for labels, sample in zip(
                labels_of(batch), samples_of(made, made.order.prepare().spans_at(batch.samples)), strict=True
            ):
                ids = [*sample.inputs.tolist()[1:], *([] if sample.label is None else [sample.label])]
                kept = [(a, b) for a, b in zip(labels.tolist(), ids, strict=False) if a >= 0]
                assert kept
                assert all(a == b for a, b in kept)


@pytest.mark.parametrize("order", ORDERS)
def test_every_order(order: str, folder: Path) -> None:
    settings = every_setting((1, 2, 3), (0,), (1, 4, 6))
    assert check(folder, order, "feed", settings, 12) >= 50


@pytest.mark.parametrize("rim", RIMS)
def test_every_rim(rim: str, folder: Path) -> None:
    order = next(one for one in ("mix", "megatron-blend", "maxtext-npy-blend") if takes(rim, one))
    settings = [one for one in every_setting((1, 2), (0,), (1, 2, 6)) if fits(rim, order, one)]
    assert check(folder, order, rim, settings, 12, stops=lambda step: step in (0, 1, 3)) >= 20


@pytest.mark.parametrize("rim", WITH_WORKERS)
def test_workers(rim: str, folder: Path) -> None:
    first = [Setting(world=2, workers=1, batch=2)]
    later = [Setting(world=1, workers=3, batch=3)]
    order = "windows" if takes(rim, "windows") else "megatron"
    check(folder, order, rim, first, 12, later=later, stops=lambda step: step in (0, 2))


def test_prefetch_changes_nothing(folder: Path) -> None:
    check(folder, "megatron", "feed", every_setting((1, 2), (0,), (2, 4)), 12, prefetch=64)


@pytest.mark.parametrize("order", ["stream", "windows", "mix", "megatron"])
def test_endless_feeds_over_the_end_of_a_pass(order: str, folder: Path) -> None:
    """Stopped anywhere in the first pass or the second, gone on with over the end of either."""
    made, policy = made_order(folder, order, 12), policy_of(order)
    once = expected_rows(made, policy)

    def make(setting: Setting, rank: int, state: Any) -> Any:
        return open_feed(
            made,
            rows=policy,
            batch=setting.batch,
            rank=rank,
            world=setting.world,
            state=state,
            endless=True,
            prefetch=1,
        )

    report = exactly_once(
        make, every_setting((1, 2), (0,), (1, 4, 10)), (once * 3)[:26], rows=row_names, limit=26, stops=lambda step: step % 4 < 2
    )  # fmt: skip
    assert report.holds, "\n".join(report.lines()[:5])
    assert report.cases >= 100


@pytest.mark.slow
@pytest.mark.parametrize("rim", RIMS)
def test_every_rim_and_order(rim: str, folder: Path) -> None:
    for order in (one for one in ORDERS if takes(rim, one)):
        settings = [one for one in every_setting((1, 2, 3), (0,), (2, 3, 6)) if fits(rim, order, one)]
        check(folder, order, rim, settings, 12, prefetch=1)
