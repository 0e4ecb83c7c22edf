"""The example that extends a context: three row lengths in one lineage, stopped anywhere, one ledger."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tokenreel.feed.ledger_lines import parse_lines

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "extend_context.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("extend_context", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Shorter rows, so that a test costs little.
    monkeypatch.setattr(module, "STAGES", ((64, 4), (256, 2), (512, 1)))

    def call(*words: object) -> None:
        monkeypatch.setattr(sys, "argv", ["extend_context.py", *map(str, words), "--steps", "2", "--documents", "30"])
        module.main()

    return call


def consumed(out: Path) -> list[tuple[int, int, int, str]]:
    lines = {line.step: line for line in parse_lines(out / "ledger.jsonl")}
    return [(step, lines[step].first, lines[step].count, lines[step].fingerprint) for step in sorted(lines)]


def test_three_row_lengths_in_one_lineage(example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example(tmp_path / "whole")
    said = capsys.readouterr().out
    assert [line.split(":")[0] for line in said.splitlines()] == [f"rows of {n:>5,}" for n in (64, 256, 512)]
    whole = consumed(tmp_path / "whole")
    assert [(first, count) for _, first, count, _ in whole] == [(0, 4), (4, 4), (0, 2), (2, 2), (0, 1), (1, 1)]
    assert len({fingerprint for *_, fingerprint in whole}) == 3
    state = json.loads((tmp_path / "whole" / "state.json").read_text())
    assert (state["step"], state["tokens"]) == (6, 2 * (4 * 64 + 2 * 256 + 512))
    # Stopped after every number of steps, one after the other.
    for _ in range(7):
        example(tmp_path / "parts", "--stop-after", 1)
    parts = consumed(tmp_path / "parts")
    assert [line[:3] for line in parts] == [line[:3] for line in whole]
    example(tmp_path / "whole")
    assert consumed(tmp_path / "whole") == whole
