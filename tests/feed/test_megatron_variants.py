"""Random Megatron jobs: the provider's data sets against the description written the slow way, and against Megatron itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tokenreel
from tests.feed.megatron_jobs import MOST, Refused, datasets, random_config, tokenizer_of, write_documents
from tokenreel.errors import TokenreelError

torch = pytest.importorskip("torch")

from tokenreel.feed.megatron import datasets_provider  # noqa: E402


def ours(job: dict[str, Any]) -> list[Any]:
    """Return for each part how long it is and its first samples, a list of those for several sets, or None."""

    def told(dataset: Any) -> Any:
        if dataset is None or isinstance(dataset, list):
            return dataset and [told(one) for one in dataset]
        rows = [dataset[number] for number in range(min(MOST, len(dataset)))]
        return [len(dataset), [{name: np.asarray(value).tolist() for name, value in row.items()} for row in rows]]

    config = SimpleNamespace(**job["config"], tokenizer=tokenizer_of(job["tokenizer"]))
    return [told(one) for one in datasets_provider(config)(job["sizes"])]


def described(job: dict[str, Any]) -> list[Any]:
    documents = {}
    for prefix in {one for part in parts_of(job) for one in part[0]}:
        corpus = tokenreel.open(f"{prefix}.idx")
        documents[prefix] = [corpus[k].tolist() for k in range(len(corpus))]

    def told(made: Any) -> Any:
        if made is None:
            return None
        return [told(one) for one in made] if made and isinstance(made[0], list) else [len(made), made[:MOST]]

    return [told(one) for one in datasets(job, documents)]


def parts_of(job: dict[str, Any]) -> list[Any]:
    config = job["config"]
    return [one for one in (config["blend"], *(config["blend_per_split"] or [])) if one]


def jobs(folder: Path, numbers: range) -> list[dict[str, Any]]:
    return [random_config(number, write_documents(folder / str(number), number)) for number in numbers]


def check(job: dict[str, Any]) -> bool:
    """Compare one job; returns whether it was refused."""
    try:
        expected = described(job)
    except Refused:
        with pytest.raises((TokenreelError, IndexError)):
            ours(job)
        return True
    assert ours(job) == expected, job
    return False


@pytest.mark.parametrize("first", [0, 20])
def test_data_sets_are_as_described(first: int, tmp_path: Path) -> None:
    assert sum(check(job) for job in jobs(tmp_path, range(first, first + 20))) <= 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 400, 90))
def test_many_data_sets_are_as_described(first: int, tmp_path: Path) -> None:
    assert sum(check(job) for job in jobs(tmp_path, range(first, first + 90))) <= 20


@pytest.mark.slow
def test_megatron_core_gives_the_same(tmp_path: Path, repository: Path) -> None:
    python = repository / ".venv-peers" / "megatron" / "bin" / "python"
    if not python.is_file():
        pytest.skip("no .venv-peers/megatron")
    made = jobs(tmp_path, range(150))
    said = [
        {**job, "config": {**job["config"], "path_to_cache": str(tmp_path / f"cache-{k}")}}
        for k, job in enumerate(made)
    ]
    done = subprocess.run(
        [str(python), str(Path(__file__).with_name("megatron_jobs.py"))], input=json.dumps(said), capture_output=True,
        text=True, check=False, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    compared = 0
    for job, theirs in zip(made, json.loads(done.stdout.splitlines()[-1]), strict=True):
        if isinstance(theirs, list):
            compared += 1
            assert ours(job) == theirs, job
    assert compared > 100


def test_several_validation_sets_are_a_list(tmp_path: Path) -> None:
    prefixes = write_documents(tmp_path, 1)
    config = SimpleNamespace(
        random_seed=1, sequence_length=8, blend=None, blend_per_split=[[prefixes[:1], None], [prefixes, None], None],
        multiple_validation_sets=True, full_validation=True, tokenizer=SimpleNamespace(eod=2, pad=-1),
    )  # fmt: skip
    train, valid, test = datasets_provider(config)([10, None, None])
    assert len(train) >= 10
    assert [one.order.name for one in valid] == ["megatron@1"] * 3
    assert test is None
    with pytest.raises(TokenreelError, match="USE003"):
        datasets_provider(config)([10, 5, None])
