"""The act about order: what it writes is what both engines' index files are, and what it says is so."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cli.command import run
from tests.corpus.pairs import write_pair
from tokenreel.demo.acts import Stage
from tokenreel.demo.orders import ROW_TOKENS, order


def staged(folder: Path, parts: int, said: list[str], seed: int = 0) -> Stage:
    lengths = np.random.RandomState(3).randint(20, 400, 40 * parts).tolist()
    for part in range(parts):
        documents = [[[5 + k % 90 for k in range(n)] + [0]] for n in lengths[40 * part : 40 * part + 40 - part]]
        (folder / "corpus/shards/train").mkdir(parents=True, exist_ok=True)
        write_pair(folder / f"corpus/shards/train/part-{part}", documents)
    (folder / "corpus/shards/validation").mkdir(parents=True)
    write_pair(folder / "corpus/shards/validation/part-0", [[[1, 0]]])
    return Stage(folder, said.append, seed)


def test_both_engines_agree_and_the_figures_are_those_of_the_commands(tmp_path: Path) -> None:
    said: list[str] = []
    facts = order(staged(tmp_path, 2, said, seed=4))
    assert facts["compared"]["equal"]
    assert facts["compared"]["samples"] == facts["compared"]["lengths"][0] > 20
    sample = facts["sample"]
    assert sum(extent["length"] for extent in sample["extents"]) == sample["tokens"] == ROW_TOKENS
    assert len(sample["extents"]) > 1
    shown = run("order", "show", tmp_path / "orders/maxtext.toml", "--sample", sample["number"], "--json").json
    assert shown["segments"][0]["sample"]["digest"] == sample["digest"]
    mixed = run("mix", tmp_path / "orders/mix.toml", "--json").json["segments"][0]["phases"][0]["sources"]
    assert mixed == facts["mix"]
    assert sum(row["samples"] for row in mixed) > 0
    assert abs(mixed[0]["share"] - 0.9) < 0.05
    for command in (line[2:].split() for line in said if line.startswith("$ tokenreel order")):
        assert run(*command[1:], cwd=tmp_path).status == 0


def test_the_index_commands_it_shows_write_what_it_wrote(tmp_path: Path) -> None:
    said: list[str] = []
    order(staged(tmp_path, 1, said))
    commands = [line[2:].split() for line in said if line.startswith("$ tokenreel index")]
    assert len(commands) == 2
    for command in commands:
        folder = tmp_path / command[command.index("--output-dir") + 1]
        before = {path.name.split("-", 1)[1]: path.read_bytes() for path in folder.glob("*.npy")}
        command[command.index("--output-dir") + 1] = "again"
        assert run(*command[1:], cwd=tmp_path).status == 0
        after = {path.name.split("-", 1)[1]: path.read_bytes() for path in (tmp_path / "again").glob("*.npy")}
        # The paths are hashed as they are spelled, so only names differ.
        assert after == before
        for path in (tmp_path / "again").iterdir():
            path.unlink()


def test_it_can_be_played_again(tmp_path: Path) -> None:
    stage = staged(tmp_path, 1, [])
    (tmp_path / "orders/megatron").mkdir(parents=True)
    (tmp_path / "orders/megatron/stale-document_index.npy").write_bytes(b"")
    assert order(stage) == order(stage)
