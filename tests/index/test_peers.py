"""Megatron-Core and MaxText find our index files ready, build nothing, and read the samples that our orders say.

Each runs in an environment of its own, as a child process: ``.venv-peers/megatron`` (see ``requirements/peers-megatron.txt``)
and ``.venv-peers/maxtext``, made so (the wheel asks for Python 3.12 and its data source imports on 3.11, without JAX)::

    python3.11 -m venv .venv-peers/maxtext
    .venv-peers/maxtext/bin/pip install grain==0.2.18
    pip download --no-deps --python-version 3.12 --only-binary=:all: maxtext==0.2.5
    unzip maxtext-0.2.5-py3-none-any.whl -d .venv-peers/maxtext/wheel
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.index.data import lengths_of, write
from tokenreel.config.run import parse_run
from tokenreel.index.assemble import assemble
from tokenreel.index.files import put
from tokenreel.index.request import IndexRequest
from tokenreel.index.samples import samples_of

MEGATRON = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

class Tokenizer:
    unique_identifiers = {"class": "x.Tokenizer", "vocab_size": "60"}
    special_tokens_dict = {}
    pad, eod, eos, vocab_size = 59, 2, 2, 60

torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
work = json.load(sys.stdin)
config = GPTDatasetConfig(
    random_seed=1234, sequence_length=16, blend=(work["prefixes"], work["weights"]), split="90,5,5",
    path_to_cache=work["cache"], tokenizer=Tokenizer(), reset_position_ids=False, reset_attention_mask=False,
    eod_mask_loss=False, create_attention_mask=False,
)
data = BlendedMegatronDatasetBuilder(GPTDataset, [work["samples"], 1, 1], lambda: True, config).build()[0]
rows = [(data[k]["tokens"].tolist(), data[k]["labels"].tolist()) for k in range(work["samples"])]
json.dump([tokens + labels[-1:] for tokens, labels in rows], sys.stdout)
"""

MAXTEXT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import maxtext.input_pipeline._mmap_datasource as module
import maxtext.input_pipeline._mmap_index_utils as builder

def never(*_, **__):
    raise RuntimeError("an index was built")

for name in dir(builder):
    if name.startswith(("build_", "_build_")):
        setattr(builder, name, never)
work = json.load(sys.stdin)
data = module.create_mmap_npy_source(
    work["spec"], 2, 16, False, num_samples=work["samples"], seed=1234, split=work["split"], split_index=0
)
json.dump([data[k]["text"].tolist() for k in range(work["samples"])], sys.stdout)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for number, name in enumerate(("web", "code")):
        write(tmp_path / name, lengths_of(number, 60 + number))
    return tmp_path


def python_of(repository: Path, peer: str) -> Path:
    found = repository / ".venv-peers" / peer / "bin" / "python"
    if not found.is_file():
        pytest.skip(f"no .venv-peers/{peer}")
    return found


def asked(command: list[object], work: dict[str, Any]) -> Any:
    words = [str(word) for word in command]
    done = subprocess.run(words, input=json.dumps(work), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def ours(folder: Path, samples: int, order: dict[str, Any]) -> list[list[int]]:
    corpora = [{"name": name, "path": f"{name}.idx"} for name in ("web", "code")]
    (segment,) = parse_run({"corpus": corpora, "order": {**order, "row_tokens": 16, "samples": samples}})
    made = assemble(segment.run, folder)
    return [[*one.inputs.tolist(), one.label] for one in samples_of(made, made.order.prepare().spans(0, samples))]


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, [0.7, 0.3]], ids=["one dataset", "blend"])
def test_a_megatron_job_finds_its_cache(weights: list[float] | None, data: Path, repository: Path) -> None:
    python = python_of(repository, "megatron")
    names = ("web",) if weights is None else ("web", "code")
    prefixes = [str(data / name) for name in names]
    request = IndexRequest(
        16,
        inputs=() if weights else tuple(prefixes),
        datasets=";".join(f"{p},{w}" for p, w in zip(prefixes, weights, strict=True)) if weights else None,
        layout="megatron",
        samples=120,
        split="90,5,5",
        tokenizer={"class": "x.Tokenizer", "vocab_size": "60"},
    )
    cache = data / "cache"
    put(cache, request.sets())
    before = {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}
    work = {"prefixes": prefixes, "weights": weights, "cache": str(cache), "samples": 120}
    theirs = asked([python, "-c", MEGATRON], work)
    after = {path.name: path.stat().st_mtime_ns for path in cache.iterdir() if "-train-" in path.name}
    assert after == before
    member = [{"corpus": name, "weight": weight} for name, weight in zip(names, weights or [1.0], strict=True)]
    one = {"kind": "megatron", "corpus": "web"} if weights is None else {"kind": "megatron-blend", "member": member}
    assert theirs == ours(data, 120, {**one, "split": "90,5,5", "seed": 1234})


@pytest.mark.slow
@pytest.mark.parametrize("split", ["", "90,10"])
def test_a_maxtext_run_finds_its_index(split: str, data: Path, repository: Path) -> None:
    python = python_of(repository, "maxtext")
    cache = data / "cache"
    put(cache, IndexRequest(16, inputs=(str(data / "web"),), samples=120, split=split).sets())
    before = {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}
    work = {"spec": f"{cache}|{data / 'web'}", "samples": 120, "split": split or None}
    theirs = asked([python, "-c", MAXTEXT, python.parent.parent / "wheel"], work)
    assert {path.name: path.stat().st_mtime_ns for path in cache.iterdir()} == before
    assert theirs == ours(data, 120, {"kind": "maxtext-npy", "corpus": "web", "seed": 1234, "split": split})
