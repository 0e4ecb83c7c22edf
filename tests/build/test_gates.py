"""Gates: each rule beside a slow spelling of it, in the order of the recipe, and whatever batches documents come in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.build.gate_limits import GOPHER, limits_of
from tokenreel.build.gates import GateInput, Verdict, columns_for, gates_for, judge_all, open_gate
from tokenreel.build.measures import GRAMS, LINES, SHINGLES, measure
from tokenreel.config.mixed import GateTable
from tokenreel.errors import RecipeError


def texts(*values: str) -> Any:
    return pa.array(values, pa.large_string())


def verdicts(table: GateTable, *values: str, **columns: list[Any]) -> list[tuple[int, str, str]]:
    return [(one.row, one.rule, one.value) for one in open_gate(table).judge(GateInput(texts(*values), columns))]


PROSE = (
    "The night was quiet and the river went on below the old bridge. Nobody had crossed it since the flood, and those who "
    "came from the other side had to walk for an hour to be in the town that they could see from their windows. "
    "With patience, the miller said, water will have found another way before the council has found its money."
)


def first_reason(text: str, quality: Any, gates: list[tuple[str, float | None, float | None]]) -> str | None:
    """Return the rule of the first gate that drops a document, spelled slowly."""
    for kind, low, high in gates:
        value = len(text) if kind == "characters" else quality
        if kind == "quality" and (isinstance(value, bool) or not isinstance(value, int | float)):
            return "quality is no number"
        if low is not None and value < low:
            return f"{kind} < {int(low)}"
        if high is not None and value > high:
            return f"{kind} > {int(high)}"
    return None


@given(
    documents=st.lists(
        st.tuples(st.text(max_size=12), st.one_of(st.none(), st.integers(0, 9), st.booleans(), st.just("8"))),
        max_size=12,
    ),
    gates=st.lists(
        st.tuples(
            st.sampled_from(["characters", "quality"]), st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)
        ),
        max_size=4,
    ),
    cut=st.integers(0, 12),
)
def test_the_first_rule_that_drops_is_the_reason(documents: list[Any], gates: list[Any], cut: int) -> None:
    opened = [
        open_gate(GateTable(kind=kind, min=low, max=high, column="q" if kind == "quality" else None))
        for kind, low, high in gates
    ]
    wanted = [first_reason(text, quality, gates) for text, quality in documents]
    found: list[str | None] = []
    for part in (documents[:cut], documents[cut:]):
        batch = GateInput(texts(*(text for text, _ in part)), {"q": [quality for _, quality in part]})
        rules = {one.row: one.rule for one in judge_all(opened, batch)}
        found += [rules.get(row) for row in range(len(part))]
    assert found == wanted


def test_characters_are_code_points_and_tokens_are_counted() -> None:
    assert verdicts(GateTable(kind="characters", min=3, max=4), "日本語", "é", "abcde") == [
        (1, "characters < 3", "1"),
        (2, "characters > 4", "5"),
    ]
    gate = open_gate(GateTable(kind="tokens", min=2, name="short"))
    found = gate.judge(GateInput(texts("a", "b"), {}, np.array([1, 2])))
    assert found == [Verdict(0, "short < 2", "1")]
    with pytest.raises(RecipeError, match="RCP006"):
        gate.judge(GateInput(texts("a")))


def test_a_field_that_is_no_number_is_a_reason_and_none_at_all_an_error() -> None:
    table = GateTable(kind="quality", column="q", min=0.5)
    assert verdicts(table, "a", "b", "c", "d", q=[0.5, None, "0.9", True]) == [
        (1, "quality is no number", "null"),
        (2, "quality is no number", "0.9"),
        (3, "quality is no number", "True"),
    ]
    with pytest.raises(RecipeError, match="RCP006"):
        verdicts(table, "a")


def test_an_integer_beyond_a_float_is_a_large_number() -> None:
    table = GateTable(kind="quality", column="q", min=0.5)
    assert verdicts(table, "a", "b", q=[10**400, -(10**400)]) == [(1, "quality < 0.5", "-inf")]


def test_allowed_values_keep_their_type() -> None:
    table = GateTable(kind="allow", column="kind", values=["forum", 1])
    found = verdicts(table, *"abcde", kind=["forum", 1, True, None, ["forum"]])
    assert [row for row, _, _ in found] == [2, 3, 4]
    assert found[1][1:] == ("allow not allowed", "null")


def test_gopher_drops_what_repeats_and_what_is_no_prose() -> None:
    assert verdicts(GateTable(kind="repetition"), PROSE) == []
    assert verdicts(GateTable(kind="symbols"), PROSE) == []
    lines = "the same line again\n" * 30
    assert verdicts(GateTable(kind="repetition"), lines)[0][1] == "repetition: lines_repeated > 0.3"
    assert verdicts(GateTable(kind="symbols"), "too few words")[0][1:] == ("symbols: words < 50", "3")
    hashes = " ".join(f"#{word}" for word in PROSE.split())
    assert verdicts(GateTable(kind="symbols"), hashes)[0][1] == "symbols: symbols > 0.1"


def test_generated_code_repeats_its_shingles() -> None:
    generated = "".join(f"case {k}:\n    x = {k};\n    break;\n" for k in range(40))
    written = "".join(f"{word} = {k}\n" for k, word in enumerate(PROSE.split()))
    table = GateTable(kind="shingles", max=0.5)
    assert [row for row, _, _ in verdicts(table, generated, written)] == [0]
    assert verdicts(table, generated)[0][1] == "shingles > 0.5"


def test_limits_by_name_in_place_of_gophers() -> None:
    assert verdicts(GateTable(kind="symbols", limits={"words_min": 2}), PROSE, "to have") == []
    loose = dict.fromkeys(GOPHER["repetition"], 1.0)
    assert verdicts(GateTable(kind="repetition", limits=loose), "the same line again\n" * 30) == []
    with pytest.raises(RecipeError, match="did you mean top_2_gram_max"):
        limits_of("repetition", {"top_2_grams": 1})
    with pytest.raises(RecipeError, match="RCP003"):
        limits_of("symbols", {"words": 3})  # a least and a most: which one is not said


def test_language_of_the_first_characters() -> None:
    pytest.importorskip("py3langid")
    table = GateTable(kind="language", languages=["en"])
    german = "Der Fluss war ruhig in jener Nacht, und niemand hatte seit der Flut die alte Brücke überquert."
    found = verdicts(table, PROSE, german, f"{PROSE} {german * 20}")
    assert [(row, rule) for row, rule, _ in found] == [(1, "language not in en")]
    assert found[0][2].startswith("de ")
    assert verdicts(GateTable(kind="language", languages=["en"], min_score=1.0), PROSE)[0][1] == "language < 1"
    with pytest.raises(RecipeError, match="RCP004"):
        open_gate(GateTable(kind="language", languages=["klingon"]))


def test_a_gate_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_gates.py").write_text(
        "def odd(texts, columns):\n"
        "    return [None if len(text) % 2 == 0 else f'{len(text)} characters' for text in texts]\n"
        "def few(texts, columns):\n    return []\n"
        "def bad(texts, columns):\n    return [columns['no'] for _ in texts]\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_gates", raising=False)
    table = GateTable(kind="python", entry="own_gates:odd", name="odd")
    assert verdicts(table, "ab", "abc") == [(1, "odd", "3 characters")]
    for entry in ("own_gates:few", "own_gates:bad"):
        with pytest.raises(RecipeError, match="RCP047"):
            verdicts(GateTable(kind="python", entry=entry), "ab")
    for entry in ("own_gates:nothing", "own_gates:number", "no_such_module:f", "no-such-entry-point"):
        with pytest.raises(RecipeError, match="RCP047"):
            open_gate(GateTable(kind="python", entry=entry))


def test_which_gates_and_fields_a_source_has() -> None:
    tables = [
        GateTable(kind="characters", min=1),
        GateTable(kind="quality", column="q", min=1, sources=["web"]),
        GateTable(kind="tokens", min=1),
    ]
    before, after = gates_for(tables, "code")
    assert [one.name for one in before] == ["characters"]
    assert [one.name for one in after] == ["tokens"]
    assert columns_for(tables, "web") == ("q",)
    assert columns_for(tables, "code") == ()


def test_each_group_is_measured_once_and_alike() -> None:
    array = pa.array([PROSE, "a b a b a b\n" * 9, "- x\n- x\n- y…"], pa.large_string())
    one = GateInput(array)
    for groups in (LINES, LINES | GRAMS, SHINGLES):
        assert one.measured(groups).shape == (3, 22)
    np.testing.assert_array_equal(one.measured(GRAMS), measure(array))
    taken = one.take(np.array([2, 0]))
    np.testing.assert_array_equal(taken.measured(SHINGLES), measure(array)[[2, 0]])
