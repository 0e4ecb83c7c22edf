"""The act about formats, over a corpus of its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.convert.test_pairs import Case, make
from tokenreel.convert.adopt import adopt
from tokenreel.demo.formats import THROUGH, formats

CASE = Case("demo", "uint16", "suffix=2", (tuple((5, k + 3, 2) for k in range(130)),), {})


def test_the_act(tmp_path: Path) -> None:
    make(tmp_path / "corpus/shards/validation", CASE)
    adopt(tmp_path / "corpus", boundary="suffix=2")
    said: list[str] = []
    stage: Any = SimpleNamespace(folder=tmp_path, corpus=tmp_path / "corpus", workers=1, say=said.append)
    facts = formats(cast("Any", stage))
    assert facts["same"] is True
    assert facts["formats"] == list(THROUGH)
    one, two = facts["mended"].values()
    assert one["whole"]
    assert two["whole"]
    assert one["documents"] == two["documents"] == 18
    assert "SID007" in one["found"]
    assert "SID002" in two["found"]
    assert "the same identity, there and back" in "\n".join(said)
