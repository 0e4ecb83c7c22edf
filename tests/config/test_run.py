"""Run files: read strictly, lineages of segments, schedules, schema."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.config.orders import AnyOrder, Megatron, Windows, corpora_named
from tokenreel.config.run import Schedule, Stage, load_run, parse_run, run_schema
from tokenreel.errors import RecipeError

TEXT = """
seed = 7
row_policy = "plain"
[[corpus]]
name = "web"
path = "data/web"
boundary = "suffix=0"
[[corpus]]
name = "code"
path = "data/code"
[order]
kind = "megatron"
corpus = "web"
row_tokens = 4096
samples = 1000
split = "99,1,0"
[schedule]
batch = 8
ramp = [{step = 10, batch = 16}]
[[segment]]
first = 0
last = 19
source = "log of 3 May"
[[segment]]
first = 20
last = 29
order = {row_tokens = 8192}
[[segment]]
first = 30
last = 39
at_sample = 0
seed = 8
order = {kind = "windows", corpus = "code", row_tokens = 128}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, "utf-8")
    return path


def table(**changes: Any) -> dict[str, Any]:
    return {
        "corpus": [{"name": "web", "path": "data/web"}],
        "order": {"kind": "windows", "row_tokens": 8},
        **changes,
    }


def refused(code: str, **changes: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        parse_run(table(**changes), "run.toml")
    assert caught.value.code == code
    return str(caught.value)


def test_a_lineage_carries_changes_on(tmp_path: Path) -> None:
    first, second, third = load_run(write(tmp_path, TEXT))
    assert isinstance(first.run.order, Megatron)
    assert (first.first, first.last, first.first_sample) == (0, 19, 0)
    assert (first.evidence, first.source, first.doubt) == ("declared", "log of 3 May", None)
    assert second.run.order == Megatron(corpus="web", row_tokens=8192, samples=1000, split="99,1,0")
    assert second.first_sample == 10 * 8 + 10 * 16
    assert second.run.seed == 7
    # Another kind replaces the whole order: nothing of Megatron's is left.
    assert third.run.order == Windows(corpus="code", row_tokens=128)
    assert (third.run.seed, third.first_sample) == (8, 0)
    assert [corpus.name for corpus in third.run.corpora_used()] == ["code"]


def test_one_run_is_one_segment() -> None:
    (only,) = parse_run(table(schedule={"batch": 4, "steps": 10}))
    assert (only.first, only.last, only.first_sample, only.evidence) == (0, 9, 0, "declared")
    assert only.run.corpora_used()[0].name == "web"
    assert corpora_named(only.run.order) == [None]
    assert parse_run(table())[0].last is None


def test_the_first_segment_may_give_the_order() -> None:
    made = parse_run(
        {
            "corpus": [{"name": "web", "path": "a"}],
            "segment": [{"first": 0, "last": 1, "order": {"kind": "stream", "row_tokens": 4}}],
        }
    )
    assert made[0].run.order.row_tokens == 4


def test_without_a_schedule_a_later_segment_s_sample_is_unknown() -> None:
    made = parse_run(table(segment=[{"first": 0, "last": 4}, {"first": 5, "last": 6}]))
    assert [segment.first_sample for segment in made] == [0, None]


def test_overrides(tmp_path: Path) -> None:
    assert load_run(write(tmp_path, TEXT), ["segment.0.order.samples=5"])[0].run.order.samples == 5  # type: ignore[union-attr]


def test_unknown_keys_name_the_nearest() -> None:
    assert "did you mean epochs?" in refused("RCP003", order={"kind": "windows", "row_tokens": 8, "epoch": 2})
    assert "did you mean schedule?" in refused("RCP003", schedul={})
    assert "order.io.blok" in refused("RCP003", order={"kind": "windows", "row_tokens": 8, "io": {"blok": 2}})
    text = refused("RCP003", segment=[{"first": 0, "last": 1, "order": {"row_tokenz": 9}}])
    assert "segment[0].order.row_tokenz; did you mean row_tokens?" in text
    # A key of another kind of order is unknown here.
    refused("RCP003", order={"kind": "stream", "row_tokens": 8, "epochs": 2})


def test_unknown_kinds_name_the_nearest() -> None:
    assert "did you mean 'windows'?" in refused("RCP040", order={"kind": "windos", "row_tokens": 8})
    assert "segment[0].order.kind" in refused(
        "RCP040", segment=[{"first": 0, "last": 1, "order": {"kind": "megatorn"}}]
    )


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"order": {"kind": "windows"}}, "row_tokens"),
        ({"order": {"kind": "windows", "row_tokens": 0}}, "order.row_tokens"),
        ({"order": {"kind": "windows", "row_tokens": "8"}}, "order.row_tokens"),
        ({"order": {"row_tokens": 8}}, "order"),
        ({"corpus": []}, "corpus"),
        ({"segment": [{"first": 0}]}, "segment[0]"),
        ({"segment": [{"first": 0, "last": 1, "order": {"row_tokens": -1}}]}, "segment[0].order.row_tokens"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_values_say_where(changes: dict[str, Any], place: str) -> None:
    assert place in refused("RCP004", **changes)


def test_corpora_must_be_named() -> None:
    two = [{"name": "web", "path": "a"}, {"name": "code", "path": "b"}]
    assert "says no corpus" in refused("RCP042", corpus=two)
    order = {"kind": "windows", "row_tokens": 8, "corpus": "wev"}
    assert "did you mean 'web'?" in refused("RCP042", corpus=two, order=order)
    assert "two corpora" in refused("RCP041", corpus=[two[0], two[0]])


@pytest.mark.parametrize(
    "steps", [[(0, 4), (6, 9)], [(0, 4), (4, 9)], [(5, 4)], [(0, 4), (5, 3)]], ids=["gap", "twice", "back", "later"]
)
def test_segments_must_follow(steps: list[tuple[int, int]]) -> None:
    refused("RCP043", segment=[{"first": first, "last": last} for first, last in steps])


def test_a_ramp_must_grow() -> None:
    ramp = [{"step": 9, "batch": 2}, {"step": 3, "batch": 4}]
    refused("RCP041", schedule={"batch": 1, "ramp": ramp})


def mix(**changes: Any) -> dict[str, Any]:
    inner = {"kind": "windows", "corpus": "web", "row_tokens": 8}
    return {
        "kind": "mix",
        "component": [{"name": "a", "order": inner, "weight": 1.0}, {"name": "b", "order": inner, "weight": 2.0}],
        **changes,
    }


def test_a_mixture_names_its_components_corpora() -> None:
    (only,) = parse_run(table(order=mix()))
    assert corpora_named(only.run.order) == ["web", "web"]
    assert [corpus.name for corpus in only.run.corpora_used()] == ["web"]


def test_a_mixture_is_checked_inside() -> None:
    part = {"name": "a", "weight": 1.0}
    bad = [{**part, "order": {"kind": "windows", "row_tokenz": 8}}]
    assert "order.component[0].order.row_tokenz" in refused("RCP003", order=mix(component=bad))
    bad = [{**part, "order": {"kind": "windous", "row_tokens": 8}}]
    assert "order.component[0].order.kind" in refused("RCP040", order=mix(component=bad))
    bad = [{**part, "order": {"kind": "windows", "row_tokens": "8"}}]
    assert "order.component[0].order.row_tokens" in refused("RCP004", order=mix(component=bad))


@pytest.mark.parametrize(
    "phase",
    [
        [{"sample": 0, "weights": {"a": 1.0}}],
        [],
    ],
)
def test_a_mixture_has_weights_or_phases(phase: list[dict[str, Any]]) -> None:
    order = mix(phase=phase)
    if not phase:
        for component in order["component"]:
            del component["weight"]
    refused("RCP041", order=order)


@pytest.mark.parametrize(
    "phase",
    [
        {"weights": {"a": 1.0}},
        {"sample": 0, "step": 0, "weights": {"a": 1.0}},
        {"step": 0, "weights": {"a": 1.0}},
        {"sample": 0, "weights": {"aa": 1.0}},
    ],
    ids=["nowhere", "twice", "no schedule", "no component"],
)
def test_a_phase_says_where_it_begins_and_what_it_weights(phase: dict[str, Any]) -> None:
    inner = {"kind": "windows", "row_tokens": 8}
    components = [{"name": "a", "order": inner}]
    refused("RCP041", order={"kind": "mix", "component": components, "phase": [phase]})


def test_a_blend_weighs_all_or_none() -> None:
    member = [{"corpus": "web", "weight": 1.0}, {"corpus": "web"}]
    refused("RCP041", order={"kind": "megatron-blend", "member": member, "row_tokens": 8})


SCHEDULES = st.builds(
    lambda batch, stages: Schedule(batch=batch, ramp=[Stage(step=s, batch=b) for s, b in sorted(stages.items())]),
    st.integers(1, 9),
    st.dictionaries(st.integers(0, 30), st.integers(1, 9), max_size=4),
)


@given(SCHEDULES, st.integers(0, 40), st.integers(0, 40))
def test_a_schedule_is_its_steps_one_by_one(schedule: Schedule, first: int, count: int) -> None:
    sizes = [schedule.batch_at(step) for step in range(first, first + count)]
    assert schedule.samples(first, first + count) == sum(sizes)
    at = 0
    for step, size in zip(range(first, first + count), sizes, strict=True):
        assert schedule.step_of(at, first) == step
        assert schedule.step_of(at + size - 1, first) == step
        at += size


def test_the_schema_is_json_and_knows_every_kind() -> None:
    text = json.dumps(run_schema())
    for kind in ("stream", "windows", "megatron", "megatron-files", "maxtext-npy", "hobbylm-stream", "nanogpt"):
        assert f'"{kind}"' in text


def test_the_page_s_run_files_are_run_files(repository: Path) -> None:
    text = (repository / "docs" / "run-files.md").read_text("utf-8")
    blocks = [block.partition("```")[0] for block in text.split("```toml\n")[1:]]
    assert [len(parse_run(tomllib.loads(block))) for block in blocks] == [1, 1, 2]
    kinds = {str(kind.__struct_config__.tag) for kind in AnyOrder.__args__}  # type: ignore[attr-defined]
    listed = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert listed == kinds
