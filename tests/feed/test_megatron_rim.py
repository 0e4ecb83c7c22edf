"""The provider's data sets against the dicts that GPTDataset and BlendedDataset gave, key by key; and external loaders."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.feed.jobs import EOD, made_order, write_data
from tokenreel.errors import OrderError, UsageError
from tokenreel.feed.megatron import datasets_provider, external_provider, megatron_policy, micro_batches
from tokenreel.feed.opening import open_feed
from tokenreel.order.megatron_samplers import single
from tokenreel.testing import write_corpus

torch = pytest.importorskip("torch")
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ROWS = json.loads((GOLDEN / "rows" / "cases.json").read_text("utf-8"))["megatron"]
BLENDS = json.loads((GOLDEN / "megatron_rim" / "blends.json").read_text("utf-8"))
PARTS = ("train", "valid", "test")
DTYPES = {"tokens": "int64", "labels": "int64", "loss_mask": "float32", "position_ids": "int64"}


@cache
def stored(path: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / path) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(autouse=True)
def in_golden_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    # Prefixes are relative in the golden configurations.
    monkeypatch.chdir(GOLDEN / "megatron")


def config_of(case: dict[str, Any]) -> SimpleNamespace:
    names = ("random_seed", "sequence_length", "split", "drop_last_partial_validation_sequence")
    names += ("add_extra_token_to_sequence", "reset_position_ids", "reset_attention_mask", "eod_mask_loss")
    names += ("create_attention_mask", "inter_document_masking", "allow_ambiguous_pad_tokens")
    blend = ([f"data/{case['prefix']}"], None)
    tokenizer = SimpleNamespace(eod=case["eod"], pad=case["pad"])
    return SimpleNamespace(blend=blend, tokenizer=tokenizer, **{name: case[name] for name in names})


@pytest.mark.parametrize("case", ROWS, ids=lambda case: f"{case['name']}-{case['part']}")
def test_samples_are_those_of_gpt_dataset(case: dict[str, Any]) -> None:
    sizes = [case["samples"] if part == case["part"] else None for part in PARTS]
    # Samples were read in this order, from a new data set each.
    dataset = datasets_provider(config_of(case), compat=["carried-mask"])(sizes)[PARTS.index(case["part"])]
    for number, sample in enumerate(case["indices"]):
        found = dataset[sample]
        assert list(found) == list(case["arrays"])
        for name, dtype in case["arrays"].items():
            expected = stored("rows/megatron.npz")[f"{case['name']}/{case['part']}/{name}"]
            if number >= len(expected):
                # Masks are kept for the first samples only.
                continue
            assert str(found[name].dtype) == f"torch.{dtype}"
            assert np.array_equal(found[name].numpy(), expected[number]), (sample, name)


@pytest.mark.parametrize("case", BLENDS, ids=lambda case: f"{case['name']}-{case['part']}")
def test_samples_are_those_of_blended_dataset(case: dict[str, Any]) -> None:
    config = SimpleNamespace(**case["config"], tokenizer=SimpleNamespace(**case["tokenizer"]))
    k = PARTS.index(case["part"])
    sizes = [size if part == case["part"] else 1 for part, size in zip(PARTS, case["sizes"], strict=True)]
    dataset = datasets_provider(config)(sizes)[k]
    assert len(dataset) == case["len"]
    arrays = {name: stored("megatron_rim/blends.npz")[f"{case['name']}/{case['part']}/{name}"] for name in case["keys"]}
    names = [name for name in case["keys"] if name != "_indices"]
    rows = dataset.__getitems__([int(one) % len(dataset) for one in arrays["_indices"]])
    for number, row in enumerate(rows):
        assert list(row) == names
        for name in names:
            assert np.array_equal(np.asarray(row[name]), arrays[name][number]), (number, name)
    if "dataset_id" in names:
        assert rows[0]["dataset_id"].dtype == np.int16


def test_a_loader_collates_what_megatron_s_does(tmp_path: Path) -> None:
    case = next(one for one in BLENDS if one["name"] == "blend_norm" and one["part"] == "train")
    config = SimpleNamespace(**case["config"], tokenizer=SimpleNamespace(**case["tokenizer"]))
    provide = datasets_provider(config, cache=str(tmp_path))
    assert provide.is_distributed  # type: ignore[attr-defined]
    train, valid, test = provide(case["sizes"], vp_stage=1)
    assert None not in (train, valid, test)
    loader = torch.utils.data.DataLoader(train, batch_sampler=single(len(train), 8, 2, 2, 1), num_workers=2)
    batch = next(iter(loader))
    assert {name: str(value.dtype) for name, value in batch.items()} == {
        "dataset_id": "torch.int16", **{name: f"torch.{dtype}" for name, dtype in DTYPES.items()}
    }  # fmt: skip
    assert np.array_equal(batch["tokens"][1].numpy(), train[11]["tokens"].numpy())
    assert any(tmp_path.iterdir())


def test_a_mask_is_carried_only_where_that_is_asked_for() -> None:
    case = next(one for one in ROWS if one["name"] == "pad_equals_eod_allowed")
    own, theirs = (
        datasets_provider(config_of(case), compat=some)([40, None, None])[0] for some in ((), ("carried-mask",))
    )
    first = own[0]["loss_mask"]
    assert 0 < first.sum() < len(first)
    assert torch.equal(theirs[0]["loss_mask"], first)
    assert torch.equal(theirs[1]["loss_mask"], own[1]["loss_mask"] * first)
    assert not torch.equal(theirs[1]["loss_mask"], own[1]["loss_mask"])
    with pytest.raises(OrderError, match="ORD002"):
        datasets_provider(config_of(case), compat=["carried-masks"])([40, None, None])


def test_none_is_a_sample_with_nothing_to_learn() -> None:
    train, _, _ = datasets_provider(config_of(ROWS[0]))([20, None, None])
    nothing, first = train[None], train[0]
    assert nothing["loss_mask"].sum() == 0
    assert first["loss_mask"].sum() > 0
    assert torch.equal(nothing["tokens"], first["tokens"])
    assert torch.equal(train[-1]["labels"], train[len(train) - 1]["labels"])
    for outside in (len(train), -len(train) - 1):
        with pytest.raises(IndexError):
            _ = train[outside]
    train.close()


def test_parts_without_documents_are_none_and_a_job_without_data_is_refused() -> None:
    config = config_of({**ROWS[0], "split": "1,0,0"})
    assert [part is None for part in datasets_provider(config)([10, 10, 10])] == [False, True, True]
    config.blend = None
    with pytest.raises(UsageError, match="USE003"):
        datasets_provider(config)([1, 1, 1])


class Tokenizer:
    """Megatron's base class raises where a tokenizer has no such id."""

    eod, eos = 7, 6

    @property
    def pad(self) -> int:
        raise NotImplementedError


def test_special_ids_are_read_as_megatron_reads_them() -> None:
    config = SimpleNamespace(tokenizer=Tokenizer(), create_attention_mask=False)
    assert megatron_policy(config).as_dict()["specials"] == [6, 7]
    assert megatron_policy(config).pad == -1
    named = SimpleNamespace(eod=7, pad=3, special_tokens_dict={"pad_token": 3, "bos_token": 1})
    assert megatron_policy(SimpleNamespace(tokenizer=named)).as_dict()["specials"] == [1]


# ---- external loaders ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_data(tmp_path)


def external(folder: Path, rank: int, state: Any = None) -> tuple[Any, Iterator[Any]]:
    feed = open_feed(
        made_order(folder, "windows"), rows={"kind": "megatron", "eod": EOD}, batch=8, rank=rank, world=2,
        placement="megatron", micro_batch=2, dtype="int64", state=state,
    )  # fmt: skip
    train, valid, test = external_provider({"train": feed}, 2)([None, None, None])
    assert (valid, test) == (None, None)
    return feed, train


def test_external_micro_batches_are_dealt_as_megatron_deals_them(folder: Path) -> None:
    order = made_order(folder, "windows")
    with open_feed(order, rows={"kind": "megatron", "eod": EOD}, batch=1, dtype="int64") as whole:
        rows = [batch["labels"][0] for batch in whole]
    for rank in (0, 1):
        feed, train = external(folder, rank)
        dealt = list(single(len(rows) // 8 * 8, 0, 2, 2, rank))
        for samples in dealt:
            micro = next(train)
            assert set(micro) == set(DTYPES)
            assert np.array_equal(micro["labels"].numpy(), [rows[sample] for sample in samples])
        feed.close()


def test_an_external_loader_goes_on_between_steps(folder: Path) -> None:
    feed, train = external(folder, 1)
    before = [next(train) for _ in range(4)]
    state = feed.state_dict()
    assert (state["step"], state["position"]) == (2, 16)
    rest = next(train)
    other, again = external(folder, 1, state)
    assert torch.equal(next(again)["tokens"], rest["tokens"])
    assert len(before) == 4
    feed.close()
    other.close()


def test_a_batch_that_is_no_whole_micro_batches_is_refused(folder: Path) -> None:
    with open_feed(made_order(folder, "windows"), rows={"kind": "megatron"}, batch=3) as feed:
        with pytest.raises(UsageError, match="USE003"):
            next(micro_batches(feed, 2))


# ---- megatron-core itself --------------------------------------------------------------------------------------------

PEER = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

class Tokenizer:
    unique_identifiers = {"class": "x"}
    special_tokens_dict = {}
    pad, eod, eos, vocab_size = -1, 2, 2, 30000

torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
work = json.load(sys.stdin)
config = GPTDatasetConfig(tokenizer=Tokenizer(), **work["config"])
made = BlendedMegatronDatasetBuilder(GPTDataset, work["sizes"], lambda: True, config).build()[0]
print(json.dumps([{k: v.tolist() for k, v in made[n].items()} for n in range(work["sizes"][0])]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, [0.7, 0.3]], ids=["one", "blend"])
def test_megatron_core_gives_the_same_dicts(weights: list[float] | None, tmp_path: Path, repository: Path) -> None:
    python = repository / ".venv-peers" / "megatron" / "bin" / "python"
    if not python.is_file():
        pytest.skip("no .venv-peers/megatron")
    prefixes = []
    for number, name in enumerate(("web", "code")[: len(weights or [1])]):
        random = np.random.default_rng(number)
        documents = [np.append(random.integers(3, 99, size=random.integers(0, 40)), 2) for _ in range(60)]
        write_corpus(tmp_path / name, documents)
        prefixes.append(str(tmp_path / name))
    given = {
        "random_seed": 5, "sequence_length": 16, "blend": [prefixes, weights], "split": "90,5,5",
        "path_to_cache": str(tmp_path / "cache"), "reset_position_ids": True, "reset_attention_mask": True,
        "eod_mask_loss": True, "create_attention_mask": True,
    }  # fmt: skip
    sizes = [90, 1, 1]
    done = subprocess.run(
        [str(python), "-c", PEER], input=json.dumps({"config": given, "sizes": sizes}), capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    tokenizer = SimpleNamespace(eod=2, pad=-1, eos=2)
    train, _, _ = datasets_provider(SimpleNamespace(**given, tokenizer=tokenizer))(sizes)
    for number, row in enumerate(theirs):
        ours = train[number]
        assert list(ours) == list(row)
        for name, values in row.items():
            assert np.array_equal(np.asarray(ours[name]), np.asarray(values)), (number, name)
