"""A tiny GPT in JAX on the CPU that may be killed at any moment: it goes on at the very next sample, on any mesh.

    tokenreel demo demo                                   # text, a tokenizer and a corpus
    python examples/train_tiny_jax.py demo/corpus/train --out run --steps 30 --devices 2
    kill -9 ...; then the same command again, with any --devices

Batches are global arrays sharded over the devices; on several hosts each loads the rows of its own. Documents are kept apart:
attention, positions and loss stop at their edges. ``run/log.jsonl`` says what each step learnt from (samples, and a hash of
each row's labels) and its loss.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

ROW_TOKENS, BATCH, WIDTH, HEADS, RATE = 32, 12, 32, 2, 1e-3


def begin(vocab: int) -> dict[str, Any]:
    """Parameters before the first step."""
    import numpy as np

    random = np.random.default_rng(0)
    shapes = {
        "tokens": (vocab, WIDTH), "places": (ROW_TOKENS, WIDTH), "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH),
    }  # fmt: skip
    return {name: (0.02 * random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


def logits(p: dict[str, Any], batch: dict[str, Any]) -> Any:
    """One block, attention inside documents only."""
    import jax
    import jax.numpy as jnp

    def norm(x: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)

    segments = batch["segment_ids"]
    x = p["tokens"][batch["input_ids"]] + p["places"][batch["position_ids"]]
    q, k, v = (
        part.reshape(*segments.shape, HEADS, WIDTH // HEADS) for part in jnp.split(norm(x) @ p["qkv"], 3, axis=-1)
    )
    may = (segments[:, :, None] == segments[:, None, :]) & jnp.tri(ROW_TOKENS, dtype=bool)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5
    weights = jax.nn.softmax(jnp.where(may[:, None], scores, -jnp.inf), axis=-1)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ p["out"]
    return norm(x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]) @ p["tokens"].T


def loss(p: dict[str, Any], batch: dict[str, Any]) -> Any:
    """The mean over the label positions of the global batch."""
    import jax
    import jax.numpy as jnp

    labels = jnp.maximum(batch["labels"], 0)[..., None]
    terms = -jnp.take_along_axis(jax.nn.log_softmax(logits(p, batch)), labels, axis=-1)[..., 0]
    return (terms * batch["loss_mask"]).sum() / batch["loss_mask"].sum()


def step(p: dict[str, Any], first: dict[str, Any], second: dict[str, Any], number: int, batch: dict[str, Any]) -> Any:
    """One step of Adam: the loss, and parameters and both moments after it."""
    import jax
    import jax.numpy as jnp

    value, slopes = jax.value_and_grad(loss)(p, batch)
    first = {k: 0.9 * first[k] + 0.1 * slopes[k] for k in p}
    second = {k: 0.999 * second[k] + 0.001 * slopes[k] ** 2 for k in p}
    t = number + 1.0
    p = {k: p[k] - RATE * (first[k] / (1 - 0.9**t)) / (jnp.sqrt(second[k] / (1 - 0.999**t)) + 1e-8) for k in p}
    return value, p, first, second


def train(corpus: str, out: Path, steps: int, save_every: int, devices: int) -> None:
    import jax
    import numpy as np

    import tokenreel
    from tokenreel.config.run import parse_run
    from tokenreel.feed.jax import open_jax_feed

    (segment,) = parse_run(
        {
            "corpus": [{"name": "demo", "path": str(Path(corpus).resolve())}],
            "order": {"kind": "windows", "row_tokens": ROW_TOKENS, "seed": 7, "epochs": 0},
            "row_policy": "documents",
            "schedule": {"batch": BATCH, "steps": steps},
        }
    )
    vocab = 1 + max(int(ids.max()) for ids, _ in tokenreel.open(corpus).batches())
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("data",))
    rows, everywhere = (jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)) for axes in (("data",), ()))
    whole = partial(jax.device_put, device=everywhere)
    p = begin(vocab)
    kept = {"p": p, "first": {k: 0 * v for k, v in p.items()}, "second": {k: 0 * v for k, v in p.items()}}
    checkpoint, state = out / "checkpoint.npz", None
    if checkpoint.exists():
        with np.load(checkpoint, allow_pickle=False) as saved:
            kept = {part: {k: saved[f"{part}/{k}"] for k in p} for part in kept}
            state = json.loads(saved["feed"].tobytes())
    p, first, second = (whole(kept[part]) for part in ("p", "first", "second"))
    compiled = jax.jit(step)
    with open_jax_feed(segment.run, rows, vocab=vocab, state=state) as feed, (out / "log.jsonl").open("a") as log:
        for batch in feed:
            value, p, first, second = compiled(p, first, second, batch.step, batch.arrays)
            log.write(json.dumps({"step": batch.step, "loss": float(value).hex(), "rows": consumed(batch)}) + "\n")
            log.flush()
            if (batch.step + 1) % save_every == 0:
                save(checkpoint, {"p": p, "first": first, "second": second}, feed.state_dict())


def consumed(batch: Any) -> list[tuple[int, str]]:
    """The sample of each row, and a hash of the labels it taught."""
    import numpy as np

    labels = np.asarray(batch["labels"])
    return [
        (int(sample), hashlib.sha256(row.tobytes()).hexdigest()[:16])
        for sample, row in zip(batch.samples, labels, strict=True)
    ]


def save(path: Path, kept: dict[str, dict[str, Any]], feed: dict[str, object]) -> None:
    """Parameters, moments and the feed's state in one file, which is there whole or not at all."""
    import numpy as np

    arrays = {f"{part}/{k}": np.asarray(v) for part, table in kept.items() for k, v in table.items()}
    data = io.BytesIO()
    np.savez(data, feed=np.frombuffer(json.dumps(feed).encode(), dtype=np.uint8), **arrays)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data.getvalue())
    temporary.replace(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a corpus with documents, or ROOT/SPLIT")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--devices", type=int, default=1, help="devices of the mesh; on a CPU they are made up")
    said = parser.parse_args(arguments)
    said.out.mkdir(parents=True, exist_ok=True)
    # Read when JAX first looks for devices.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={said.devices}"
    train(said.corpus, said.out, said.steps, said.save_every, said.devices)
    return 0


if __name__ == "__main__":
    sys.exit(main())
