"""States of Megatron and Grain: the counters of their files, checked, in the order of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.feed.feeds import corpus_of, windows_over
from tokenreel.config.run import Run, Schedule, Segment, Stage, parse_run
from tokenreel.corpus.corpus import Corpus
from tokenreel.errors import StateError, TokenreelError, UsageError
from tokenreel.feed.foreign import foreign
from tokenreel.feed.importing import GrainCount, holding, import_grain, import_megatron, read_grain, read_megatron
from tokenreel.order.megatron import MegatronOrder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus_of(tmp_path_factory.mktemp("corpus") / "a", 163)


def segments(schedule: dict[str, Any] | None = None, **more: Any) -> tuple[Segment, ...]:
    run: dict[str, Any] = {
        "corpus": [{"name": "a", "path": "a"}],
        "order": {"kind": "megatron", "row_tokens": 4},
        **more,
    }
    if schedule is not None:
        run["schedule"] = schedule
    return parse_run(run)


def megatron_over(corpus: Corpus) -> MegatronOrder:
    return MegatronOrder.over(corpus.sequences(), 4, samples=None, seed=1234, documents=corpus.table()).prepare()


# ---- Megatron -------------------------------------------------------------------------------------------------------


def test_megatron_s_counters_are_a_position(corpus: Corpus) -> None:
    order = megatron_over(corpus)
    state = import_megatron(segments({"batch": 6}), order, 18)
    assert (state.cursor.position, state.cursor.step, state.cursor.tokens) == (18, 3, 72)
    assert state.fingerprint == order.fingerprint_until(18)
    ramp = {"batch": 2, "ramp": [{"step": 3, "batch": 6}]}
    assert import_megatron(segments(ramp), order, 18, 5).cursor.step == 5
    assert import_megatron(segments(), order, 18, 9).cursor.step == 9


@pytest.mark.parametrize(
    ("code", "schedule", "consumed", "iteration"),
    [
        ("STA008", {"batch": 6}, 20, None),
        ("STA008", {"batch": 6}, 18, 4),
        ("STA003", {"batch": 6}, 60, None),
        ("STA017", None, 18, None),
    ],
)
def test_counters_that_cannot_be_are_refused(
    corpus: Corpus, code: str, schedule: Any, consumed: int, iteration: int | None
) -> None:
    with pytest.raises(TokenreelError) as caught:
        import_megatron(segments(schedule), megatron_over(corpus), consumed, iteration)
    assert caught.value.code == code


def test_megatron_s_counters_mean_nothing_in_another_order(corpus: Corpus) -> None:
    with pytest.raises(StateError) as caught:
        import_megatron(segments({"batch": 6}), windows_over(corpus), 18)
    assert caught.value.code == "STA007"


def test_phases_count_from_the_last_change_of_data(corpus: Corpus) -> None:
    """Steps 0 .. 3 with batches of 3 in one order, then batches of 6 from sample 0 of another."""
    two = segments(
        {"batch": 3},
        segment=[
            {"first": 0, "last": 3},
            {"first": 4, "last": 9, "at_sample": 0, "schedule": {"batch": 6}, "order": {"seed": 5, "row_tokens": 8}},
        ],
    )
    order = MegatronOrder.over(corpus.sequences(), 8, samples=None, seed=5, documents=corpus.table()).prepare()
    assert holding(two, 12) == 1
    assert holding(two, 9) == 0
    state = import_megatron(two, order, 12 + 12)
    assert (state.cursor.position, state.cursor.step, state.cursor.tokens) == (12, 6, 12 * 4 + 12 * 8)


@pytest.mark.parametrize(
    "said",
    [
        {"consumed_train_samples": 18, "iteration": 3},
        {"args": {"consumed_train_samples": 18, "iteration": 3, "lr": 0.1}},
        {"train_state": {"consumed_train_samples": 18, "iteration": 3}},
    ],
    ids=str,
)
def test_megatron_s_numbers_may_stand_in_a_file(tmp_path: Path, said: Any) -> None:
    (tmp_path / "args.json").write_text(json.dumps(said))
    assert read_megatron(tmp_path / "args.json") == (18, 3)


@pytest.mark.parametrize("text", ["[]", "{}", '{"consumed_train_samples": "18"}', "{"])
def test_a_file_without_megatron_s_numbers(tmp_path: Path, text: str) -> None:
    (tmp_path / "args.json").write_text(text)
    with pytest.raises(StateError, match="STA001"):
        read_megatron(tmp_path / "args.json")


# ---- Grain ----------------------------------------------------------------------------------------------------------


def workers(*counts: int) -> dict[str, Any]:
    n = len(counts)
    return {
        "next_index_in_cycle": 0,
        "next_index_in_datasets": n,
        "iterators_in_use_indices": list(range(n)),
        "iterators_in_use_states": [{"next_index": count} for count in counts],
        "exhausted": [0] * n,
        "future_states": {},
    }


def checkpoint(folder: Path, states: list[Any], world: int | None = None) -> Path:
    for process, state in enumerate(states):
        if state is not None:
            (folder / f"process_{process}-of-{world or len(states)}.json").write_text(json.dumps(state, indent=4))
    return folder


MIX = {"parents": [{"next_index": 6}, {"next_index": 2}], "index": 8, "stop": False}


# As Grain 0.2.18 wrote them for 2 batches of 4 in each process.
@pytest.mark.parametrize(
    ("samples", "states"),
    [
        (8, [{"next_index": 8}]),
        (16, [{"next_index": 8}, {"next_index": 8}]),
        (8, [workers(8)]),
        (8, [workers(4, 4)]),
        (8, [workers(3, 3, 2)]),
        (16, [workers(3, 3, 2), workers(3, 3, 2)]),
        (8, [MIX]),
        (32, [MIX] * 4),
        (16, [{"global_next_index": 16}] * 2),
        (8, [{"state": {"next_index": 8}}]),
    ],
    ids=str,
)
def test_grain_s_files_are_counted(tmp_path: Path, samples: int, states: list[Any]) -> None:
    assert read_grain(checkpoint(tmp_path, states)) == GrainCount(samples, len(states))
    assert read_grain(tmp_path / f"process_0-of-{len(states)}.json").samples == samples


@pytest.mark.parametrize(
    ("code", "states"),
    [
        ("STA001", []),
        ("STA001", [[1]]),
        ("STA001", [{"next_index": -1}]),
        ("STA001", [{"next_index": "8"}]),
        ("STA008", [{"next_index": 8}, None]),
        ("STA008", [None, {"next_index": 8}]),
        ("STA008", [{"next_index": 8}, {"next_index": 4}]),
        ("STA008", [workers(8, 4)]),
        ("STA008", [workers(4, 4, 0)]),
        ("STA008", [{**workers(4, 4), "iterators_in_use_indices": [0, 3]}]),
        ("STA008", [{**MIX, "index": 9}]),
        ("STA008", [{"global_next_index": 16}, {"global_next_index": 8}]),
        (
            "STA007",
            [{"version": 2, "last_seen_indices": {"0": 1}, "worker_count": 0, "sampler": "", "data_source": ""}],
        ),
        ("STA007", [{"something": 1, "else": 2}]),
    ],
    ids=str,
)
def test_grain_s_files_that_say_no_one_sample(tmp_path: Path, code: str, states: list[Any]) -> None:
    with pytest.raises(StateError) as caught:
        read_grain(checkpoint(tmp_path, states))
    assert caught.value.code == code


def test_files_of_two_checkpoints_are_told_apart(tmp_path: Path) -> None:
    checkpoint(tmp_path, [{"next_index": 8}])
    checkpoint(tmp_path, [{"next_index": 4}, {"next_index": 4}])
    with pytest.raises(StateError, match="STA008"):
        read_grain(tmp_path)
    assert read_grain(tmp_path / "process_1-of-2.json") == GrainCount(8, 2)
    assert read_grain(tmp_path / "process_0-of-1.json") == GrainCount(8, 1)


def test_grain_s_count_is_a_position(corpus: Corpus) -> None:
    run = Segment(
        Run(corpus=[], order=segments()[0].run.order, schedule=Schedule(batch=8, ramp=[Stage(step=1, batch=4)]))
    )
    order = windows_over(corpus)
    state = import_grain((run,), order, GrainCount(16, 2))
    assert (state.cursor.position, state.cursor.step, state.cursor.tokens) == (16, 3, 64)
    with pytest.raises(StateError, match="STA008"):
        import_grain((run,), order, GrainCount(15, 1))
    with pytest.raises(StateError, match="STA003"):
        import_grain((run,), order, GrainCount(44, 1))
    with pytest.raises(UsageError, match="STA017"):
        import_grain(segments(), order, GrainCount(16, 2))


def test_an_order_for_so_many_hosts_takes_no_others(corpus: Corpus) -> None:
    class Hosted:
        """An order that was made for four hosts."""

        name, hosts = "maxtext-mmap-mix@1", 4

    with pytest.raises(StateError, match="STA008"):
        import_grain(segments({"batch": 8}), Hosted(), GrainCount(16, 2))  # type: ignore[arg-type]


# ---- others ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("MosaicML streaming", {"epoch": 1, "sample_in_epoch": 5, "num_canonical_nodes": 2, "shuffle_seed": 9}),
        (
            "OLMo-core",
            {"dataset_fingerprint": "ab", "dataset_fingerprint_version": 2, "batches_processed": 4, "seed": 0},
        ),
        ("OLMo-core", {"batches_processed": 4, "tokens_processed": 4096, "epoch": 1}),
        ("Grain", {"next_index": 4}),
        ("Grain", MIX),
        ("Megatron", {"consumed_train_samples": 4, "iteration": 1, "lr": 1.0}),
    ],
    ids=str,
)
def test_other_systems_are_known_by_their_keys(system: str, said: dict[str, Any]) -> None:
    found = foreign(said)
    assert found is not None
    assert found.system == system
    assert found.reason


def test_what_nobody_wrote_is_not_known() -> None:
    assert foreign({"epoch": 1}) is None
    assert foreign({}) is None
