"""repair through the real entry point."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import run
from tests.convert.test_pairs import CASES, make
from tests.convert.test_repair import EOT, SLICE_ONE, SLICE_TWO, shard


def test_the_report_and_the_exit_status(tmp_path: Path) -> None:
    shard(tmp_path / "in/replay_000000.bin", SLICE_ONE + SLICE_TWO)
    rows = [{"shard": "replay_000000.bin", "offset": 0, "length": 10}]
    (tmp_path / "in/replay_index.json").write_text(json.dumps(rows))
    checked = run("verify", tmp_path / "in", "--format", "github")
    assert checked.status == 1
    assert f"::error file={tmp_path}/in/replay_index.json,title=SID007::" in checked.out
    done = run("repair", tmp_path / "in", "--out", tmp_path / "out", "--json")
    assert done.status == 1
    assert done.json["changed"]
    assert done.json["verified"] == "ok"
    assert done.json["tables"][0]["documents"] == 4
    assert done.json["tables"][0]["tokens"] == 10
    shown = run("repair", tmp_path / "in", "--out", tmp_path / "shown")
    assert f"made anew from separators [{EOT}]" in shown.out


def test_nothing_to_repair_is_exit_0(tmp_path: Path) -> None:
    make(tmp_path / "in", CASES[0])
    done = run("repair", tmp_path / "in", "--out", tmp_path / "out")
    assert done.status == 0
    assert "nothing to repair" in done.out
    assert not (tmp_path / "out").exists()


def test_beyond_repair(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/part.idx").write_bytes(b"MMIDIDX\0\0")
    done = run("repair", tmp_path / "in", "--out", tmp_path / "out", "--json")
    assert done.json["error"]["code"] == "FLT020"
    assert done.status == 1
