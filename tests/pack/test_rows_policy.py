"""Row policies: what may be said, what is refused, and what a batch then holds."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenreel.errors import RecipeError
from tokenreel.pack.policy import _OPTIONS, KINDS, RowPolicy, row_policy
from tokenreel.pack.rows import fills


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_said_by_its_name_alone_and_survives_json(kind: str) -> None:
    policy = row_policy(kind)
    assert row_policy(json.loads(json.dumps(policy.as_dict()))) == policy
    assert row_policy(policy) is policy
    assert set(policy.layout(2, 8)) == set(policy.arrays())


REFUSED = [
    ("plane", "RCP040"),
    ({"kind": "megatrom"}, "RCP040"),
    ({"positions": "reset"}, "RCP004"),
    ({"kind": 3}, "RCP004"),
    (7, "RCP004"),
    ({"kind": "documents", "position": "reset"}, "RCP003"),
    ({"kind": "documents", "positions": "resets"}, "RCP004"),
    ({"kind": "plain", "loss_mask": 1}, "RCP004"),
    ({"kind": "plain", "pad_id": True}, "RCP004"),
    ({"kind": "plain", "pad_id": 1 << 31}, "RCP004"),
    ({"kind": "plain", "positions": "running"}, "RCP041"),
    ({"kind": "documents", "eod": 0}, "RCP041"),
    ({"kind": "documents", "ends": "token"}, "RCP041"),
    ({"kind": "documents", "end_id": 3}, "RCP041"),
    ({"kind": "documents", "cu_seqlens_length": 9}, "RCP041"),
    ({"kind": "documents", "cu_seqlens": "rows", "cu_seqlens_length": 1}, "RCP041"),
    ({"kind": "megatron", "reset_position_ids": True}, "RCP041"),
    ({"kind": "megatron", "specials": [1, "x"]}, "RCP004"),
    ({"kind": "maxtext", "packing_max_segments_per_sample": -1}, "RCP004"),
    ({"kind": "levanter", "packed": True, "eod": 3}, "RCP041"),
]


@pytest.mark.parametrize(("said", "code"), REFUSED, ids=[str(said) for said, _ in REFUSED])
def test_what_cannot_be_meant_is_refused(said: Any, code: str) -> None:
    with pytest.raises(RecipeError) as caught:
        row_policy(said)
    assert caught.value.code == code


def test_a_misspelt_option_is_answered_with_the_right_one() -> None:
    with pytest.raises(RecipeError, match="did you mean cu_seqlens\\?"):
        row_policy({"kind": "documents", "cu_seqlen": "rows"})


def test_defaults_are_those_of_the_system() -> None:
    assert RowPolicy(kind="megatron").reset_attention_mask is False
    assert RowPolicy(kind="maxtext").reset_attention_mask is True
    assert RowPolicy(kind="maxtext").eod == 0
    assert RowPolicy(kind="maxtext").packing_max_segments_per_sample == 25


def test_a_pad_id_that_is_special_counts_only_where_that_is_allowed() -> None:
    said = {"kind": "megatron", "eod": 7, "pad": 7}
    assert row_policy(said).pad_in_use == -1
    assert row_policy({**said, "allow_ambiguous_pad_tokens": True}).pad_in_use == 7
    assert row_policy({**said, "pad": 5, "specials": [5, 6]}).pad_in_use == -1
    assert row_policy({**said, "specials": [5, 6]}).pad_in_use == 7


def test_the_layout_says_shapes_and_types() -> None:
    policy = row_policy({"kind": "documents", "cu_seqlens": "batch", "attention": "bias"})
    layout = policy.layout(3, 4, "int64")
    assert layout["input_ids"] == ((3, 4), np.dtype(np.int64))
    assert layout["segment_ids"] == ((3, 4), np.dtype(np.int32))
    assert layout["loss_mask"] == ((3, 4), np.dtype(np.float32))
    assert layout["cu_seqlens"] == ((13,), np.dtype(np.int32))
    assert layout["max_seqlen"] == ((), np.dtype(np.int32))
    assert layout["attention_bias"] == ((3, 1, 4, 4), np.dtype(np.float32))
    by_row = row_policy({"kind": "documents", "cu_seqlens": "rows", "cu_seqlens_length": 3}).layout(3, 4)
    assert by_row["cu_seqlens"] == ((3, 3), np.dtype(np.int32))
    assert by_row["max_seqlen"] == ((3,), np.dtype(np.int32))


def test_names_of_ids_labels_and_masks() -> None:
    told = {kind: (p.ids_name, p.labels_name, p.mask_name) for kind in KINDS for p in [row_policy(kind)]}
    assert told == {
        "plain": ("input_ids", "labels", None),
        "documents": ("input_ids", "labels", "loss_mask"),
        "megatron": ("tokens", "labels", "loss_mask"),
        "maxtext": ("inputs", "targets", "targets_segmentation"),
        "levanter": ("tokens", None, "loss_weight"),
    }


@pytest.mark.parametrize(("direct", "ahead"), [(True, 1), (False, 0)])
def test_maxtext_rows_need_their_kind_of_sample(direct: bool, ahead: int) -> None:
    with pytest.raises(RecipeError) as caught:
        fills(row_policy({"kind": "maxtext", "direct": direct}), ahead)
    assert caught.value.code == "RCP041"


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rows.md").read_text("utf-8")


@pytest.mark.parametrize("option", sorted({option for options in _OPTIONS.values() for option in options}))
def test_the_page_names_every_option(option: str) -> None:
    assert f"`{option}" in PAGE


def test_policies_of_the_page_are_some() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert [row_policy(tomllib.loads(block)["row_policy"]).kind for block in blocks] == ["plain", "documents"]


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenreel.formats.megatron_write import MegatronWriter

    monkeypatch.chdir(tmp_path)
    ids = np.arange(33 * 4096) % 60000
    with MegatronWriter("data/web/web", np.uint16) as writer:
        writer.add_documents(ids.astype(np.uint16), np.array([len(ids)]))
        writer.finish()
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    seen: dict[str, Any] = {}
    exec(block[1], seen)
    assert np.array_equal(seen["batch"]["labels"].reshape(-1), ids[1 : 32 * 4096 + 1])
