from __future__ import annotations

import pytest

from tokenreel.errors import RecipeError
from tokenreel.text import TokenizerSpec

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("bytes", "bytes"),
        ("train:bpe:32000", "train"),
        ("tok/tokenizer.json", "file"),
        ("spm.model", "file"),
        ({"path": "bytes"}, "file"),
        ({"name": "train:bpe:300", "sample_bytes": 1000, "eod": 0}, "train"),
        ({"repo": "org/name", "revision": COMMIT, "eod": "</s>"}, "hub"),
        ({"repo": "org/name", "subfolder": "tok", "file": "t.json"}, "hub"),
    ],
)
def test_parse_and_back(declared, kind):
    spec = TokenizerSpec.parse(declared)
    assert spec.kind == kind
    assert TokenizerSpec.parse(spec.as_dict()) == spec
    assert TokenizerSpec.parse(spec) is spec


@pytest.mark.parametrize(
    "declared",
    [
        "train:bpe:", "train:bpe:256", "train:bpe:-5", "train:wordpiece:900", "", 5, None, [], {}, {"path": ""},
        {"path": "a", "repo": "b/c"}, {"name": "gpt2"}, {"name": "bytes", "sample_bytes": 4}, {"path": "a", "revision": COMMIT},
        {"repo": "a/b/c"}, {"repo": "../b"}, {"repo": "a/b", "file": "../../etc/passwd"}, {"repo": "a/b", "subfolder": "/etc"},
        {"path": "a", "eod": -1}, {"path": "a", "eod": True}, {"path": "a", "eod": ""}, {"path": "a", "eod": 1.5},
        {"name": "train:bpe:300", "sample_bytes": 0}, {"name": "train:bpe:300", "sample_bytes": True}, {"path": 3},
    ],
)  # fmt: skip
def test_what_is_not_a_tokenizer(declared):
    with pytest.raises(RecipeError) as caught:
        TokenizerSpec.parse(declared)
    assert caught.value.code == "TKZ001"
    assert caught.value.exit_status == 2


def test_a_typo_is_named():
    with pytest.raises(RecipeError, match="did you mean 'revision'"):
        TokenizerSpec.parse({"repo": "a/b", "revison": COMMIT})
