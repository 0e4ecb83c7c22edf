"""MaxText's configuration keys to a feed: what the golden batches of MaxText hold, host by host, and what it refuses."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenreel.errors import OrderError, TokenError, UsageError
from tokenreel.feed.maxtext import open_maxtext
from tokenreel.index.files import put
from tokenreel.index.request import IndexRequest
from tokenreel.testing import numbered_documents, tiny_documents, write_corpus

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES = json.loads((GOLDEN / "rows" / "cases.json").read_text("utf-8"))["maxtext"]
PLAIN = [case for case in CASES if "worker" not in case["case"] and "partial" not in case["case"]]
NAMES = ["inputs", "targets", "inputs_segmentation", "targets_segmentation", "inputs_position", "targets_position"]


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "rows" / "maxtext.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(autouse=True)
def in_golden_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "index")


def config_of(case: dict[str, Any]) -> dict[str, Any]:
    files = f"/nowhere|{case['path']}" if case["mode"] == "mmap_npy" else case["path"]
    return {
        "dataset_type": "grain",
        "grain_file_type": case["mode"],
        "grain_train_files": files,
        "mmap_eod_id": "2",
        "max_target_length": str(case["seq_length"]),
        "global_batch_size_to_load": case["batch"],
        "steps": case.get("num_samples", 0) // case["batch"] if case["mode"] == "mmap_npy" else -1,
        "data_shuffle_seed": case.get("seed", 0),
        "enable_data_shuffling": case.get("shuffle", False),
        "reset_attention_mask": case["reset_attention_mask"],
        "eod_mask_loss": case["eod_mask_loss"],
        "packing_max_segments_per_sample": case["packing_max_segments_per_sample"],
        "grain_worker_count": 4,
    }


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case["case"])
def test_a_configuration_gives_maxtext_s_batches(case: dict[str, Any]) -> None:
    with open_maxtext(config_of(case)) as feed:
        # The first batches are kept.
        kept = len(stored()[f"{case['case']}/inputs"])
        for number, batch in zip(range(kept), feed, strict=False):
            assert list(batch.arrays) == NAMES
            for name in NAMES:
                assert np.array_equal(batch[name], stored()[f"{case['case']}/{name}"][number]), (number, name)


def job(folder: Path, **more: Any) -> dict[str, Any]:
    if not (folder / "web.idx").exists():
        write_corpus(folder / "web", numbered_documents([7] * 80))
        write_corpus(folder / "code", numbered_documents([5] * 60, first=1000))
    return {
        "grain_file_type": "mmap_npy", "grain_train_files": f"{folder}/i|{folder}/web", "mmap_eod_id": 2,
        "max_target_length": 8, "global_batch_size_to_load": 6, "steps": 10, **more,
    }  # fmt: skip


@pytest.mark.parametrize("hosts", [1, 2, 3, 6])
def test_hosts_take_turns_and_a_job_goes_on_with_others(hosts: int, tmp_path: Path) -> None:
    config = job(tmp_path)
    with open_maxtext(config) as one:
        whole = [batch["targets"] for batch in one]
    assert len(whole) == 10
    feeds = [open_maxtext(config, host=host, hosts=hosts) for host in range(hosts)]
    for expected in whole[:4]:
        parts = [next(feed)["targets"] for feed in feeds]
        assert all(np.array_equal(part, expected[host::hosts]) for host, part in enumerate(parts))
    (state,) = {json.dumps(feed.state_dict()) for feed in feeds}
    with open_maxtext(config, host=1, hosts=2, state=json.loads(state)) as other:
        assert np.array_equal(next(other)["targets"], whole[4][1::2])
    for feed in feeds:
        feed.close()


def test_evaluation_reads_its_split_each_round_from_the_start(tmp_path: Path) -> None:
    config = job(
        tmp_path, mmap_npy_split="75,25", eval_steps=2, eval_interval=5, grain_eval_files=f"{tmp_path}/i|{tmp_path}/web"
    )
    rounds = []
    for _ in range(2):
        with open_maxtext(config, evaluation=True) as feed:
            rounds.append([batch["inputs"] for batch in feed])
    assert len(rounds[0]) == 2
    assert np.array_equal(rounds[0], rounds[1])
    assert min(int(batch.min()) for batch in rounds[0]) >= 7 * 60, "the last quarter of the documents"
    with pytest.raises(UsageError, match="ORD082"):
        open_maxtext(job(tmp_path), evaluation=True)


def test_a_dispatch_that_is_named_decides_the_order_or_is_an_error(tmp_path: Path) -> None:
    mixture = f"{tmp_path}/i|{tmp_path}/web,0.7;{tmp_path}/j|{tmp_path}/code,0.3"
    config = job(tmp_path, grain_train_files=mixture, data_shuffle_seed=1234)
    with open_maxtext(config) as feed:
        expected = [batch["inputs"] for batch in feed]
        assert set(np.unique(feed.order.components_at(np.arange(60))).tolist()) == {0, 1}
    with pytest.raises((UsageError, OrderError, ValueError)):
        open_maxtext({**config, "blend_index_dir": str(tmp_path / "none")})
    datasets = f"{tmp_path}/web,0.7;{tmp_path}/code,0.3"
    put(tmp_path / "blend", IndexRequest(8, datasets=datasets, samples=60).sets())
    with open_maxtext({**config, "blend_index_dir": str(tmp_path / "blend")}) as feed:
        assert np.array_equal([batch["inputs"] for batch in feed], expected)


def test_direct_mixtures_depend_on_hosts_and_say_so(tmp_path: Path) -> None:
    config = job(tmp_path, grain_file_type="mmap", grain_train_files=f"{tmp_path}/web,0.6;{tmp_path}/code,0.4", steps=4)
    with open_maxtext(config) as one, open_maxtext(config, hosts=2) as two:
        assert one.order.fingerprint != two.order.fingerprint
        next(one)
        assert next(two)["inputs"].shape == (3, 8)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"mmap_eod_id": 70_000}, "ORD092"),
        ({"grain_file_typ": "mmap"}, "ORD087"),
        ({"dataset_type": "hf"}, "ORD076"),
        ({"global_batch_size_to_load": 1}, "STA011"),
    ],
)
def test_what_cannot_be_right_is_refused(more: dict[str, Any], code: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, TokenError), match=code):
        open_maxtext(job(tmp_path, **more), hosts=2)


def test_sentences_have_to_be_declared(tmp_path: Path) -> None:
    from tests.corpus.pairs import write_pair

    sentences = [[one.tolist(), [5, 2]] for one in tiny_documents(30)]
    write_pair(tmp_path / "web", sentences)
    write_corpus(tmp_path / "code")
    with pytest.raises(UsageError, match="ORD090"):
        open_maxtext(job(tmp_path))
    open_maxtext(job(tmp_path, mmap_split_sentences=True)).close()
