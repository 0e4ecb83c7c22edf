"""The act about Levanter's order: the phase changes at the step it says, and the figures are those of the commands."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import run
from tests.demo.test_orders import staged
from tokenreel.demo.levanter import CHANGE, levanter


def test_the_step_at_which_the_phase_changes_is_shown(tmp_path: Path) -> None:
    said: list[str] = []
    facts = levanter(staged(tmp_path, 2, said, seed=4))
    before, at = facts["steps"][1], facts["steps"][2]
    assert (at["step"], at["first"]) == (CHANGE, 8 * 16 + 12 * 32)
    assert before["components"][0] > before["components"][2]
    assert at["components"][2] > at["components"][0]
    assert any("never sampled: c" in line for line in said)
    assert any("the phase changes here" in line and f"step {CHANGE}:" in line for line in said)
    shown = run("order", "show", tmp_path / "orders/levanter.toml", "--step", CHANGE, "--json").json
    assert shown["segments"][0]["step"]["first"] == at["first"]
    assert facts["preflight"]["smallest_block"] == 256
