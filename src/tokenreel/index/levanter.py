"""Levanter's order from a run file's table: its components' streams, stages from steps, keys from the trainer's seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.config import orders as kinds
from tokenreel.errors import OrderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokenreel.config.run import Run, Schedule
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.order.levanter_keys import LevanterReplay
    from tokenreel.order.protocol import Order

    Made = tuple[Order, list[str]]


def levanter_order(
    said: kinds.Levanter,
    run: Run,
    corpora: Mapping[str, Corpus],
    only: str,
    seed: int,
    make: Callable[[kinds.AnyOrder], Made],
) -> Made:
    """Return the order that a table says, and the names of its corpora in its order: of components with a weight."""
    from tokenreel.order.levanter import LevanterOrder
    from tokenreel.order.levanter_keys import LevanterReplay
    from tokenreel.order.levanter_shuffle import LevanterShuffle

    parts: dict[str, list[Order]] = {}
    names: dict[str, list[str]] = {}
    for component in said.component:
        parts[component.name], names[component.name] = _parts(component, said, corpora, only, make)
    replay = LevanterReplay(
        threefry_partitionable=said.replay.threefry_partitionable,
        enable_x64=said.replay.enable_x64,
        prng=said.replay.prng,
        python_sum=said.replay.python_sum,
        numpy_major=said.replay.numpy_major,
    )
    shuffle = LevanterShuffle(
        kind=said.shuffle.kind,
        permutation=said.shuffle.permutation,
        era_length=said.shuffle.era_length,
        io_block=said.shuffle.io_block,
        window_blocks=said.shuffle.window_blocks,
    )
    order = LevanterOrder.of(
        parts,
        levanter_stages(said, run.schedule, replay),
        block=said.block,
        seed=seed,
        data_seed=said.data_seed,
        trainer=said.trainer,
        shuffle=shuffle,
        stop=said.stop,
        randomized=said.randomized,
        replay=replay,
        take=_kept(said, run.schedule, parts),
        past_end=said.past_end,
    )
    return order, [name for kept in order.mixture.names for name in names[kept]]


def levanter_stages(
    said: kinds.Levanter, schedule: Schedule | None, replay: LevanterReplay
) -> list[tuple[int, dict[str, float]]]:
    """Return (first sample, weights) of each stage; steps are converted with the schedule.

    A launcher that normalises does so with the same sum as Levanter after it. Raises `OrderError` (ORD131) where Pythons
    differ and none is named.
    """
    if not said.stage:
        stages = [(0, {component.name: component.weight or 0.0 for component in said.component})]
    else:
        stages = [
            (
                stage.sample if stage.sample is not None else _offset(schedule, stage.step or 0),
                dict(said.weights[stage.weights] if isinstance(stage.weights, str) else stage.weights),
            )
            for stage in said.stage
        ]
    if not said.launcher_normalises:
        return stages
    from tokenreel.order.levanter_counts import counts_of, normalised

    made = [[(start, normalised(weights, way)) for start, weights in stages] for way in replay.sums()]
    for number in range(len(stages)):
        counts = [
            counts_of(list(normalised(one[number][1], way).values()), said.block).tolist()
            for one, way in zip(made, replay.sums(), strict=True)
        ]
        if counts[0] != counts[-1]:
            found = f"the counts of stage {number}"
            raise OrderError("ORD131", expected="python_sum plain or compensated", found=found)
    return made[0]


def _offset(schedule: Schedule | None, step: int) -> int:
    return schedule.samples(0, step) if schedule is not None else 0


def _parts(
    component: kinds.LevanterComponentTable,
    said: kinds.Levanter,
    corpora: Mapping[str, Corpus],
    only: str,
    make: Callable[[kinds.AnyOrder], Made],
) -> tuple[list[Order], list[str]]:
    from tokenreel.order.stream import StreamOrder

    if component.order is not None:
        order, names = make(kinds.component_order(component))
        try:
            _ = order.length
        except OrderError as error:
            if error.code != "ORD014":
                raise
            # How many rows a component has decides every sample of the mixture.
            order = order.prepare()
        return [order], names
    used = [name or only for name in kinds.component_corpora(component)]
    return [StreamOrder.over(corpora[name].stream_table(), said.row_tokens, 0) for name in used], used


def _kept(said: kinds.Levanter, schedule: Schedule | None, parts: Mapping[str, list[Order]]) -> dict[str, int]:
    """Return how many sequences of a component are kept: simulated epoching first, then a number of batches."""
    from tokenreel.order.levanter_sequences import simulated_sequences

    kept: dict[str, int] = {}
    for component in said.component:
        length = sum(part.length or 0 for part in parts[component.name])
        if said.experiment_budget is not None and said.target_budget is not None:
            kept[component.name] = simulated_sequences(length, said.experiment_budget, said.target_budget)
        if component.max_train_batches is not None:
            most = component.max_train_batches * (schedule.batch_at(0) if schedule is not None else 1)
            kept[component.name] = min(most, kept.get(component.name, length))
    return kept
