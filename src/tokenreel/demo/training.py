"""The act of the demo about training: 30 steps, killed on the way, resumed; every label and every loss is what it was.

The model is a small one in numpy (a token predicts the next), so that the demo needs no framework; what is shown is the
feed's. Training is a process of its own, which prints a line a step.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tokenreel.demo.acts import Stage

    F32 = npt.NDArray[np.float32]

FOLDER = "training"
ROW_TOKENS = 64
BATCH = 12
STEPS = 30
SAVE_EVERY = 4
WIDTH = 16
RATE = 20.0

RUN = """\
# Windows of the training split under a keyed permutation; documents kept apart in each row.
row_policy = "documents"

[[corpus]]
name = "train"
path = "../corpus/train"

[order]
kind = "windows"
row_tokens = {row_tokens}
seed = {seed}

[schedule]
batch = {batch}
steps = {steps}
"""


def train_and_kill(stage: Stage) -> dict[str, Any]:
    """Train 30 steps; train them again, kill that on the way, resume it; compare labels and losses."""
    folder = stage.folder / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = RUN.format(row_tokens=ROW_TOKENS, batch=BATCH, steps=STEPS, seed=stage.seed)
    write_bytes_atomic(folder / "run.toml", text.encode())
    whole = _watched(folder, "whole", None)
    kill = 5 + (stage.seed * 7 + 8) % (STEPS - 10)
    stage.say(
        f"{STEPS} steps of {BATCH} rows of {ROW_TOKENS} tokens: loss {_loss(whole, 0)} -> {_loss(whole, STEPS - 1)}"
    )
    killed = _watched(folder, "killed", kill)
    stage.say(f"again, and kill -9 after step {kill}; the last state is some steps older")
    resumed = _watched(folder, "killed", None)
    first = min(resumed)
    taken = {**{step: line for step, line in killed.items() if step < first}, **resumed}
    labels = [step for step in whole if taken.get(step, {}).get("labels") != whole[step]["labels"]]
    losses = [step for step in whole if taken.get(step, {}).get("loss") != whole[step]["loss"]]
    stage.say(f"resumed at step {first}: sample {resumed[first]['position']:,} is the next one, and none is read twice")
    stage.say(
        f"labels of {len(whole) - len(labels)} of {STEPS} steps are equal, losses of {len(whole) - len(losses)} "
        "to the last bit"
    )
    return {
        "steps": STEPS,
        "killed_after": max(killed),
        "resumed_at": first,
        "labels_differ": labels,
        "losses_differ": losses,
        "last_loss": float.fromhex(taken[STEPS - 1]["loss"]) if STEPS - 1 in taken else None,
    }


def _loss(lines: dict[int, dict[str, Any]], step: int) -> str:
    return f"{float.fromhex(lines[step]['loss']):.3f}"


def _watched(folder: Path, name: str, kill: int | None) -> dict[int, dict[str, Any]]:
    """Run a training process, kill it when it has told of step `kill`; returns what it told, by step."""
    command = [sys.executable, "-c", f"from {__name__} import train_as_told; train_as_told()", str(folder), name]
    lines: dict[int, dict[str, Any]] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for text in process.stdout or ():
            line = json.loads(text)
            lines[line["step"]] = line
            if line["step"] == kill:
                process.kill()
                break
    if kill is None and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return lines


# ---- the training process ------------------------------------------------------------------------------------------


def train_as_told() -> None:
    """Train in the folder and under the name that the command line gives."""
    train(Path(sys.argv[1]), sys.argv[2])


def train(folder: Path, name: str) -> None:
    """Train from the last checkpoint on, and print what each step learnt from and its loss."""
    from tokenreel.feed.opening import open_feed

    path = folder / f"{name}.npz"
    with open_feed(folder / "run.toml") as feed:
        vocab = 1 + max(int(ids.max()) for corpus in feed.corpora for ids, _ in corpus.batches())
        model, state = _begin(vocab, path)
        if state is not None:
            feed.load_state_dict(state)
        for batch in feed:
            loss = learn(model, batch.arrays)
            if (batch.step + 1) % SAVE_EVERY == 0:
                _save(path, model, feed.state_dict())
            told = {
                "step": batch.step,
                "position": batch.position,
                "loss": loss.hex(),
                "labels": hashlib.sha256(batch["labels"].tobytes()).hexdigest(),
            }
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


def learn(model: dict[str, F32], arrays: dict[str, Any]) -> float:
    """Take one step of gradient descent in place; returns the mean loss over label positions before it."""
    import numpy as np

    use = arrays["loss_mask"].ravel() > 0
    inputs, labels = arrays["input_ids"].ravel()[use], arrays["labels"].ravel()[use]
    x = model["tokens"][inputs]
    logits = x @ model["out"] + model["bias"]
    logits -= logits.max(axis=1, keepdims=True)
    odds = np.exp(logits)
    odds /= odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(odds[rows, labels].astype(np.float64)).mean())
    odds[rows, labels] -= 1
    odds *= RATE / max(1, len(labels))
    slope = odds @ model["out"].T
    model["out"] -= x.T @ odds
    model["bias"] -= odds.sum(axis=0)
    np.subtract.at(model["tokens"], inputs, slope)
    return loss


def _begin(vocab: int, path: Path) -> tuple[dict[str, F32], dict[str, Any] | None]:
    """Return the model and the feed's state of a checkpoint; a new model and no state where there is none."""
    import numpy as np

    if path.exists():
        with np.load(path, allow_pickle=False) as saved:
            return {k: saved[k] for k in ("tokens", "out", "bias")}, json.loads(saved["feed"].tobytes())
    random = np.random.default_rng(0)
    shapes = {"tokens": (vocab, WIDTH), "out": (WIDTH, vocab), "bias": (vocab,)}
    return {k: (0.3 * random.standard_normal(shape)).astype(np.float32) for k, shape in shapes.items()}, None


def _save(path: Path, model: dict[str, F32], state: dict[str, Any]) -> None:
    """Write model and state as one file, which is there whole or not at all."""
    import numpy as np

    data = io.BytesIO()
    feed = np.frombuffer(json.dumps(state).encode(), dtype=np.uint8)
    np.savez(data, feed=feed, tokens=model["tokens"], out=model["out"], bias=model["bias"])
    write_bytes_atomic(path, data.getvalue())
