"""The examples train, are killed with SIGKILL, and go on: labels as if nothing had happened, losses too."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.warm import ROOT, Warm
from tokenreel.testing import tiny_documents, write_corpus

pytest.importorskip("torch")
STEPS = 30


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    documents = tiny_documents(150, longest=60, vocab=96, seed=5)
    # Something to learn: every second id follows from the one before.
    for document in documents:
        document[1:-1:2] = (document[0:-2:2] + 3) % 90 + 3
    return str(write_corpus(tmp_path_factory.mktemp("corpus") / "tiny", documents, shards=2))


def log_of(out: Path) -> dict[int, dict[str, Any]]:
    """What each step learnt from and its loss: of several attempts at a step the last one counts."""
    lines: dict[int, dict[str, Any]] = {}
    for text in (out / "log.jsonl").read_text().splitlines(keepends=True):
        # What was being written when the process died has no end.
        if text.endswith("\n"):
            line = json.loads(text)
            lines[line["step"]] = line
    return lines


def labels_of(lines: dict[int, dict[str, Any]]) -> list[list[Any]]:
    assert sorted(lines) == list(range(STEPS))
    rows = [row for step in range(STEPS) for row in lines[step]["rows"]]
    assert [sample for sample, _ in rows] == list(range(12 * STEPS)), "every sample once, in order"
    return rows


def losses_of(lines: dict[int, dict[str, Any]]) -> list[float]:
    return [float.fromhex(lines[step]["loss"]) for step in range(STEPS)]


def torch_rank(rank: int, world: int, meeting: str, corpus: str, out: str, steps: int) -> int:
    """One process of the torch example, as torchrun would start it."""
    sys.path.insert(0, str(ROOT / "examples"))
    import train_tiny_torch

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MEETING=f"file://{meeting}")
    return train_tiny_torch.main([corpus, "--out", out, "--steps", str(steps)])


def jax_job(devices: int, corpus: str, out: str, steps: int, compiled: str) -> int:
    import jax

    # What was compiled for a mesh once is found again.
    jax.config.update("jax_compilation_cache_dir", compiled)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    # Compiling is most of what this costs, and nothing here needs to be fast.
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    sys.path.insert(0, str(ROOT / "examples"))
    import train_tiny_jax

    return train_tiny_jax.main([corpus, "--out", out, "--steps", str(steps), "--devices", str(devices)])


def torch_run(warm: Warm, corpus: str, out: Path, world: int, *, kill_after: int | None = None) -> None:
    """Train to the end, or kill -9 all processes as soon as so many steps more are logged."""
    out.mkdir(exist_ok=True)
    meeting = out / f"meeting-{len(list(out.iterdir()))}"
    outputs = [out / f"output-{rank}" for rank in range(world)]
    children = [
        warm.start(
            "tests.examples.test_train:torch_rank", rank, world, str(meeting), corpus, str(out), STEPS,
            output=outputs[rank],
        )
        for rank in range(world)
    ]  # fmt: skip
    _end(warm, out, list(zip(children, outputs, strict=True)), kill_after)


def jax_run(warm: Warm, corpus: str, out: Path, devices: int, *, kill_after: int | None = None) -> None:
    out.mkdir(exist_ok=True)
    output = out / "output"
    said = [devices, corpus, str(out), STEPS, str(out.parent / "compiled")]
    child = warm.start("tests.examples.test_train:jax_job", *said, output=output)
    _end(warm, out, [(child, output)], kill_after)


def _end(warm: Warm, out: Path, children: list[tuple[int, Path]], kill_after: int | None) -> None:
    if kill_after is not None:
        _until(out / "log.jsonl", kill_after)
        ends = [warm.wait(child, kill_after=0, output=output) for child, output in children]
        # Those that outlive the first for a moment may end of what it leaves them: a broken connection.
        assert ends[0].killed, ends[0].output
        assert all(ended.status != 0 for ended in ends)
        return
    for child, output in children:
        ended = warm.wait(child, output=output)
        assert ended.status == 0, ended.output[-3000:]


def _until(log: Path, steps: int) -> None:
    """Return as soon as the log has so many lines more."""
    import select

    had = log.read_bytes().count(b"\n") if log.exists() else 0
    log.touch()
    # A file is always readable: watching it means asking again.
    while log.read_bytes().count(b"\n") < had + steps:
        select.select([], [], [], 0.005)


@pytest.fixture(scope="module")
def torch_whole(warm: Warm, corpus: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    out = tmp_path_factory.mktemp("torch") / "whole"
    torch_run(warm, corpus, out, 2)
    return log_of(out)


def test_torch_learns_and_killed_it_goes_on_to_the_last_bit(
    warm: Warm, corpus: str, torch_whole: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    losses = losses_of(torch_whole)
    assert losses[-1] < losses[0] - 0.05
    draw = random.Random(1)
    torch_run(warm, corpus, tmp_path, 2, kill_after=draw.randint(1, 12))
    torch_run(warm, corpus, tmp_path, 2, kill_after=draw.randint(1, 8))
    torch_run(warm, corpus, tmp_path, 2)
    found = log_of(tmp_path)
    assert labels_of(found) == labels_of(torch_whole)
    assert losses_of(found) == losses


def test_torch_goes_on_with_other_numbers_of_processes(
    warm: Warm, corpus: str, torch_whole: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    torch_run(warm, corpus, tmp_path, 2, kill_after=7)
    torch_run(warm, corpus, tmp_path, 1, kill_after=8)
    torch_run(warm, corpus, tmp_path, 3)
    found = log_of(tmp_path)
    assert labels_of(found) == labels_of(torch_whole)
    assert np.allclose(losses_of(found), losses_of(torch_whole), rtol=1e-4, atol=0)


def test_jax_killed_goes_on_with_other_numbers_of_devices(warm: Warm, corpus: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    jax_run(warm, corpus, tmp_path / "whole", 2)
    whole = log_of(tmp_path / "whole")
    assert losses_of(whole)[-1] < losses_of(whole)[0] - 0.05
    out = tmp_path / "killed"
    jax_run(warm, corpus, out, 2, kill_after=7)
    # The same number of devices: to the last bit. A copy goes on with others.
    shutil.copytree(out, tmp_path / "others")
    jax_run(warm, corpus, out, 2)
    found = log_of(out)
    assert labels_of(found) == labels_of(whole)
    assert losses_of(found) == losses_of(whole)
    jax_run(warm, corpus, tmp_path / "others", 1, kill_after=8)
    jax_run(warm, corpus, tmp_path / "others", 3)
    others = log_of(tmp_path / "others")
    assert labels_of(others) == labels_of(whole)
    assert np.allclose(losses_of(others), losses_of(whole), rtol=1e-4, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train_tiny_torch.py", "train_tiny_jax.py"])
def test_the_commands_that_the_examples_show(name: str, corpus: str, tmp_path: Path) -> None:
    many = ["--world", "2"] if "torch" in name else ["--devices", "2"]
    command = [
        sys.executable,
        str(ROOT / "examples" / name),
        corpus,
        "--out",
        str(tmp_path),
        *many,
        "--steps",
        str(STEPS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    labels_of(log_of(tmp_path))
