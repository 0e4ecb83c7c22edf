"""The act about training: killed and resumed, every label and every loss is what it was without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.corpus.pairs import write_pair
from tokenreel.demo import training
from tokenreel.demo.acts import Stage
from tokenreel.demo.training import STEPS, learn, train_and_kill


def test_labels_and_losses_are_equal(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    documents = [[[*random.integers(3, 90, size=int(random.integers(20, 200))).tolist(), 0]] for _ in range(300)]
    for split, some in (("train", documents), ("validation", documents[:1])):
        write_pair(tmp_path / f"corpus/shards/{split}/part-0", some)
    said: list[str] = []
    facts = train_and_kill(Stage(tmp_path, said.append, 3))
    assert facts["labels_differ"] == facts["losses_differ"] == []
    assert 0 < facts["resumed_at"] <= facts["killed_after"] + 1 < STEPS
    assert f"labels of {STEPS} of {STEPS} steps are equal, losses of {STEPS}" in said[-1]


def test_the_model_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "RATE", 2.0)
    random = np.random.default_rng(0)
    shapes = {"tokens": (9, 4), "out": (4, 9), "bias": (9,)}
    model = {name: random.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    ids = random.integers(0, 9, size=(6, 9))
    arrays = {"input_ids": ids, "labels": (ids * 2) % 9, "loss_mask": np.ones((6, 9), dtype="f4")}
    losses = [learn(model, arrays) for _ in range(60)]
    assert losses[-1] < losses[0] / 4
    # What is masked teaches nothing.
    arrays["loss_mask"][0, 0] = 0
    before = {name: array.copy() for name, array in model.items()}
    arrays["labels"][0, 0] = 8
    one = learn({name: array.copy() for name, array in before.items()}, arrays)
    arrays["labels"][0, 0] = 1
    assert learn(before, arrays) == pytest.approx(one, abs=0)
