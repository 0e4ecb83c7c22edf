"""adopt: what it says when the boundary is not the data's, and boundaries that name tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corpus.pairs import write_pair
from tokenreel.convert.adopt import adopt
from tokenreel.convert.merge import merge_corpora
from tokenreel.errors import TokenError, UsageError

WRITTEN = [[[1, 2, 8191]]] * 300


def test_a_wrong_suffix_names_the_right_one(tmp_path: Path) -> None:
    write_pair(tmp_path / "a b/part-0", WRITTEN)
    with pytest.raises(TokenError) as caught:
        adopt(tmp_path / "a b", boundary="suffix=7")
    assert caught.value.message == "300 of 300 documents do not end with 7 (300 end with 8191)"
    assert caught.value.hint == f"tokenreel adopt '{tmp_path}/a b' --boundary suffix=8191"
    assert adopt(tmp_path / "a b", boundary="suffix=8191").exceptions == {"": (0, 0)}


def test_a_wrong_prefix_and_a_few_exceptions(tmp_path: Path) -> None:
    write_pair(tmp_path / "part-0", [[[5, 3, 0]]] * 9 + [[[5, 0, 4]]])
    with pytest.raises(TokenError) as caught:
        adopt(tmp_path, boundary="prefix=4,suffix=0")
    assert caught.value.message == (
        "10 of 10 documents do not begin with 4 (10 begin with 5); 1 of 10 documents do not end with 0; "
        "occurrences of the suffix inside documents: 1"
    )
    assert "--boundary prefix=5" in (caught.value.hint or "")


def test_one_pair_is_not_a_reason_to_adopt_its_folder(tmp_path: Path) -> None:
    write_pair(tmp_path / "part-0", WRITTEN)
    with pytest.raises(UsageError, match="USE006") as caught:
        adopt(tmp_path / "part-0", boundary="suffix=8191")
    assert "tokenreel adopt" not in (caught.value.hint or "")


def test_a_boundary_may_name_tokens_of_a_tokenizer(tmp_path: Path) -> None:
    write_pair(tmp_path / "part-0", [[[65, 66, 256]], [[256]]])
    with pytest.raises(UsageError, match="given in ids"):
        adopt(tmp_path, boundary="suffix=<|endoftext|>")
    with pytest.raises(UsageError, match="no such token"):
        adopt(tmp_path, boundary="suffix=<|nothing|>", tokenizer="bytes")
    made = adopt(tmp_path, boundary="suffix=<|endoftext|>", tokenizer="bytes")
    assert made.manifest.boundary.suffix == (256,)


def test_one_of_a_thing_is_said_in_the_singular(tmp_path: Path) -> None:
    write_pair(tmp_path / "in/part-0", [[[7, 3]]])
    assert adopt(tmp_path / "in", boundary="suffix=3").lines()[0].startswith("corpus: 1 document, 2 tokens, identity ")
    merged = merge_corpora([tmp_path / "in/part-0"], tmp_path / "out")
    assert merged.lines()[0] == "1 document in = 1 out, 2 tokens"
