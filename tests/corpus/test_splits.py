"""Split rules: the published vectors, equality with an obvious reference, plug-ins, and what is refused."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.corpus.splits import (
    ById,
    EveryNth,
    HashMod,
    NoSplit,
    SplitInput,
    rule_from_dict,
    rule_names,
    split_rule,
)
from tokenreel.errors import SplitError

GOLDEN = Path(__file__).parents[1] / "golden" / "mahan"
VECTORS = json.loads((GOLDEN / "split_vectors.json").read_text("utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["utf8_hex"][:16] or "empty")
def test_published_vectors(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["utf8_hex"])
    assert vector["text"].encode() == data
    assert int.from_bytes(hashlib.sha256(data).digest()[:8], "big") == vector["u64_be"]
    assert HashMod().validation(SplitInput(data, [0, len(data)])).tolist() == [vector["split"] == "validation"]
    # The remainder itself, not only whether it is 0: u64 above 2**63 is where signed arithmetic goes wrong.
    exact = HashMod(1000, vector["mod_1000"]).validation(SplitInput(data, [0, len(data)]))
    assert exact.tolist() == [True]


def test_vectors_are_on_both_sides() -> None:
    assert {vector["split"] for vector in VECTORS} == {"train", "validation"}
    assert any(vector["u64_be"] >= 1 << 63 for vector in VECTORS)


@given(st.lists(st.text(max_size=40)), st.integers(1, (1 << 64) - 1), st.data())
def test_hash_mod_is_what_it_says(texts: list[str], modulo: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, min(modulo - 1, 5)))
    wanted = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % modulo == value for text in texts]
    assert HashMod(modulo, value).validation(SplitInput.of(texts)).tolist() == wanted


@given(st.lists(st.text(max_size=5), min_size=1), st.integers(0, 3))
def test_a_run_of_documents_may_begin_anywhere_in_its_buffer(texts: list[str], skip: int) -> None:
    whole = SplitInput.of(["x" * skip, *texts])
    part = SplitInput(whole.text, list(whole.offsets)[1:])
    assert HashMod(3).validation(part).tolist() == HashMod(3).validation(SplitInput.of(texts)).tolist()


@given(st.integers(1, 7), st.lists(st.integers(0, 9), max_size=6))
def test_every_nth_counts_on_across_chunks(n: int, sizes: list[int]) -> None:
    found: list[bool] = []
    for size in sizes:
        found += EveryNth(n).validation(SplitInput.of([""] * size, first=len(found))).tolist()
    assert found == [(k + 1) % n == 0 for k in range(sum(sizes))]


def test_by_id() -> None:
    rule = split_rule("by-id", {"ids": ["a", "b", "a"]})
    assert rule.validation(SplitInput.of("xyz", ids=["b", None, "c"])).tolist() == [True, False, False]
    assert rule.as_dict() == ById(frozenset("ba")).as_dict()
    assert rule.as_dict() != ById(frozenset("bc")).as_dict()
    with pytest.raises(SplitError, match="SPL013"):
        rule.validation(SplitInput.of("x"))


def test_none() -> None:
    assert NoSplit().validation(SplitInput.of("ab")).tolist() == [False, False]


@pytest.mark.parametrize("rule", [HashMod(), HashMod(7, 3), EveryNth(50), NoSplit()])
def test_records_give_the_rule_back(rule: Any) -> None:
    assert rule_from_dict(json.loads(json.dumps(rule.as_dict()))) == rule


def test_the_golden_record_is_ours() -> None:
    recorded = json.loads((GOLDEN / "run_config.json").read_bytes())["split_rule"]
    assert recorded == HashMod().as_dict()
    assert rule_from_dict(recorded) == HashMod()
    assert rule_from_dict(ById(frozenset("a")).as_dict()) is None


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("hash_mod", {}, "SPL010"),
        ("every-nth", {}, "SPL011"),
        ("every-nth", {"n": 0}, "SPL011"),
        ("every-nth", {"n": "3"}, "SPL011"),
        ("hash-mod", {"modulo": 0}, "SPL011"),
        ("hash-mod", {"modulo": 10, "validation_when_equal": 10}, "SPL011"),
        ("hash-mod", {"n": 3}, "SPL011"),
        ("none", {"modulo": 3}, "SPL011"),
    ],
)
def test_refused(name: str, options: dict[str, Any], code: str) -> None:
    with pytest.raises(SplitError) as caught:
        split_rule(name, options)
    assert caught.value.code == code
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("none", {"modulo": 3}, "split.modulo: rule none takes no modulo"),
        ("every-nth", {}, "split.n: rule every-nth needs n"),
        ("every-nth", {"n": True}, "split.n: not an integer"),
        ("hash-mod", {"n": 3}, "split.n: rule hash-mod takes no n"),
        ("hash-mod", {"modulo": 1.5}, "split.modulo: not an integer"),
        ("by-id", {}, "split.ids: rule by-id needs ids"),
        ("by-id", {"ids": "abc"}, "split.ids: rule by-id takes a list of ids, each a string"),
        ("by-id", {"ids": [1]}, "split.ids: rule by-id takes a list of ids, each a string"),
    ],
)
def test_what_is_wrong_is_said_in_the_recipe_s_words(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SplitError) as caught:
        split_rule(name, options)
    assert (caught.value.code, caught.value.message) == ("SPL011", message)
    assert "__init__" not in str(caught.value)


def test_a_split_by_id_comes_back_with_its_list_and_no_other() -> None:
    recorded = json.loads(json.dumps(ById(frozenset("abc")).as_dict()))
    assert rule_from_dict(recorded, ids=["c", "a", "b", "a"]) == ById(frozenset("abc"))
    with pytest.raises(SplitError, match="SPL014") as caught:
        rule_from_dict(recorded, ids=["a", "b"])
    assert caught.value.exit_status == 2


def test_a_misspelt_rule_names_the_nearest() -> None:
    with pytest.raises(SplitError, match='rule = "hash-mod"'):
        split_rule("hash-modd")


class LongTexts:
    """A plug-in: validation is what is longer than `most` bytes."""

    def __init__(self, most: int) -> None:
        self.most = most

    def validation(self, documents: SplitInput) -> Any:
        return np.diff(documents.offsets) > self.most

    def as_dict(self) -> dict[str, Any]:
        return {"rule": "long", "most": self.most}


def test_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("long", f"{__name__}:LongTexts", "tokenreel.split_rules")
    monkeypatch.setattr(EntryPoint, "load", lambda self: LongTexts)

    def points(group: str, name: str | None = None) -> list[EntryPoint]:
        return [point] if group == "tokenreel.split_rules" and name in (None, "long") else []

    monkeypatch.setattr("importlib.metadata.entry_points", points)
    assert "long" in rule_names()
    rule = split_rule("long", {"most": 2})
    assert rule.validation(SplitInput.of(["abc", "ab"])).tolist() == [True, False]
    again = rule_from_dict(rule.as_dict())
    assert again is not None
    assert again.as_dict() == rule.as_dict()
    for options, message in (({}, "missing 1 required"), ({"least": 2}, "unexpected keyword argument 'least'")):
        with pytest.raises(SplitError, match=f"split.options: rule long: .*{message}") as caught:
            split_rule("long", options)
        assert "__init__" not in str(caught.value)
