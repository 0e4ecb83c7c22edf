"""The commands on states, through the real entry point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tokenreel
from tests.cli.command import run
from tests.feed.feeds import corpus_of, write_corpus

RUN = """
row_policy = "plain"
corpus = [{ name = "web", path = "web" }]

[order]
kind = "KIND"
row_tokens = 4
seed = 7

[schedule]
batch = 4
"""
MEGATRON = RUN.replace("KIND", "megatron")
WINDOWS = RUN.replace("KIND", "windows")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    corpus_of(made / "web", 163)
    (made / "run.toml").write_text(WINDOWS)
    (made / "other.toml").write_text(WINDOWS.replace("seed = 7", "seed = 8"))
    (made / "megatron.toml").write_text(MEGATRON)
    with tokenreel.open_feed(made / "run.toml") as feed:
        next(feed), next(feed)
        (made / "state.json").write_text(json.dumps(feed.state_dict()))
    return made


def test_show(folder: Path) -> None:
    fits = run("state", "show", folder / "state.json", "--run", folder / "run.toml", "--json")
    assert fits.status == 0
    assert fits.json["run"] == {"goes_on": True, "sample": 8, "samples": 40, "batch": 4}
    assert fits.json["position"] == 8
    assert fits.json["system"] == "tokenreel"
    other = run("state", "show", folder / "state.json", "--run", folder / "other.toml")
    assert other.status == 1
    assert "step 2, sample 8, 32 tokens consumed" in other.out
    assert "STA004" in other.out
    said = run("state", "show", folder / "state.json", "--run", folder / "other.toml", "--json")
    assert said.status == 1
    assert said.json["run"]["error"]["code"] == "STA004"


@pytest.mark.parametrize(
    ("system", "state"),
    [
        ("MosaicML streaming", {"epoch": 0, "sample_in_epoch": 9, "num_canonical_nodes": 1, "shuffle_seed": 9}),
        ("OLMo-core", {"dataset_fingerprint": "ab", "batches_processed": 4, "tokens_processed": 64}),
    ],
)
def test_another_system_s_state_is_shown_and_refused(folder: Path, tmp_path: Path, system: str, state: Any) -> None:
    (tmp_path / "state.json").write_text(json.dumps(state))
    said = run("state", "show", tmp_path / "state.json", "--json")
    assert said.status == 0
    assert said.json["system"] == system
    assert said.json["says"] == state
    assert "order is not one of ours" in said.json["reason"]
    refused = run("state", "migrate", tmp_path / "state.json", folder / "run.toml", "--json")
    assert refused.status == 1
    assert refused.json["error"]["code"] == "STA007"


def test_what_is_no_state(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    assert run("state", "show", tmp_path / "state.json").status == 1
    assert run("state", "import", folder / "run.toml").status == 2


def test_migrate(folder: Path, tmp_path: Path) -> None:
    arguments = ["state", "migrate", folder / "state.json", folder / "other.toml"]
    done = run(*arguments, "--from", folder / "run.toml", "-o", tmp_path / "new.json", "--json")
    assert done.status == 0
    assert done.json["how"] == "sample"
    assert done.json["repeats"] == done.json["lost"] > 0
    with tokenreel.open_feed(folder / "other.toml", state=tmp_path / "new.json") as feed:
        batch = next(feed)
        assert (batch.step, batch.position) == (2, 8)
    text = run(*arguments, "--at-sample", 0)
    assert text.status == 0
    assert "goes on at step 2, sample 0 (sample)" in text.out
    assert "repeats not told" in text.out


def test_migrate_a_withdrawn_shard(tmp_path: Path) -> None:
    write_corpus(tmp_path / "old", [[20], [30], [25]], names=["a", "b", "c"])
    write_corpus(tmp_path / "new", [[20], [25]], names=["a", "c"])
    stream = RUN.replace("KIND", "stream").replace("seed = 7\n", "")
    for name in ("old", "new"):
        (tmp_path / f"{name}.toml").write_text(stream.replace('path = "web"', f'path = "{name}"'))
    with tokenreel.open_feed(tmp_path / "old.toml", steps=2) as feed:
        list(feed)
        (tmp_path / "state.json").write_text(json.dumps(feed.state_dict()))
    arguments = ["state", "migrate", tmp_path / "state.json", tmp_path / "new.toml", "--from", tmp_path / "old.toml"]
    done = run(*arguments, "-o", tmp_path / "next.json", "--json")
    assert (done.status, done.json["how"], done.json["repeats"], done.json["lost"]) == (0, "stream", 0, 0)
    assert "b is withdrawn" in done.json["notes"][0]
    with tokenreel.open_feed(tmp_path / "new.toml", state=tmp_path / "next.json") as feed:
        assert next(feed)["input_ids"][0].tolist() == [20, 21, 22, 23]


def test_import_megatron(folder: Path, tmp_path: Path) -> None:
    done = run("state", "import", folder / "megatron.toml", "--megatron", 12, "-o", tmp_path / "state.json", "--json")
    assert done.status == 0
    assert (done.json["position"], done.json["step"]) == (12, 3)
    with tokenreel.open_feed(folder / "megatron.toml", state=tmp_path / "state.json") as feed:
        assert next(feed).samples.tolist() == [12, 13, 14, 15]
    (tmp_path / "args.json").write_text(json.dumps({"args": {"consumed_train_samples": 12, "iteration": 4}}))
    refused = run("state", "import", folder / "megatron.toml", "--megatron", tmp_path / "args.json", "--json")
    assert refused.status == 1
    assert refused.json["error"]["code"] == "STA008"


def test_import_grain(folder: Path, tmp_path: Path) -> None:
    for process in range(2):
        (tmp_path / f"process_{process}-of-2.json").write_text(json.dumps({"next_index": 6}))
    done = run("state", "import", folder / "run.toml", "--grain", tmp_path)
    assert done.status == 0
    assert "step 3, sample 12" in done.out
    assert json.loads(done.out.splitlines()[-1])["position"] == 12
    (tmp_path / "process_1-of-2.json").unlink()
    missing = run("state", "import", folder / "run.toml", "--grain", tmp_path, "--json")
    assert missing.status == 1
    assert missing.json["error"]["where"]["path"].endswith("process_1-of-2.json")
