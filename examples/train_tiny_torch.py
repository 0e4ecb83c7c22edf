"""A tiny GPT on the CPU that may be killed at any moment: it goes on at the very next sample, on any number of processes.

    tokenreel demo demo                                   # text, a tokenizer and a corpus
    python examples/train_tiny_torch.py demo/corpus/train --out run --steps 30 --world 2
    kill -9 ...; then the same command again, with any --world

Documents are kept apart: attention, positions and loss stop at their edges. The loss is the mean over the label positions
of the whole global batch, so that the number of processes changes nothing but rounding. ``run/log.jsonl`` says what each
step learnt from (samples, and a hash of each row's labels) and its loss.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import tokenreel
from tokenreel.config.run import parse_run
from tokenreel.feed.torch import TorchBatch, open_loader

ROW_TOKENS, BATCH, WIDTH, HEADS = 32, 12, 32, 2


class TinyGPT(nn.Module):
    """One block, attention inside documents only."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, WIDTH), nn.Embedding(ROW_TOKENS, WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, batch: TorchBatch) -> torch.Tensor:
        x = self.tokens(batch["input_ids"]) + self.places(batch["position_ids"])
        segments = batch["segment_ids"]
        may = (segments[:, :, None] == segments[:, None, :]).tril()[:, None]
        shape = (*segments.shape, HEADS, WIDTH // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, dim=2))
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=may)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        x = x + self.down(functional.gelu(self.up(self.norms[1](x))))
        return self.norms[2](x) @ self.tokens.weight.T


def train(corpus: str, out: Path, steps: int, save_every: int, workers: int, rank: int, world: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    (segment,) = parse_run(
        {
            "corpus": [{"name": "demo", "path": str(Path(corpus).resolve())}],
            "order": {"kind": "windows", "row_tokens": ROW_TOKENS, "seed": 7, "epochs": 0},
            "row_policy": "documents",
            "schedule": {"batch": BATCH, "steps": steps},
        }
    )
    # A file of the corpus's tokenizer would say it as well; the largest id is enough here.
    vocab = 1 + max(int(ids.max()) for ids, _ in tokenreel.open(corpus).batches())
    model = TinyGPT(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = open_loader(segment.run, rank=rank, world=world, workers=workers, vocab=vocab)
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(json.loads(saved["feed"]))
    with loader, (out / "log.jsonl").open("a") as log:
        for batch in loader:
            terms = functional.cross_entropy(model(batch).transpose(1, 2), batch["labels"], reduction="none")
            total = (terms * batch["loss_mask"]).sum()
            both = torch.stack([total.detach(), batch["loss_mask"].sum()])
            everywhere(both)
            optimizer.zero_grad()
            (total / both[1]).backward()
            for parameter in model.parameters():
                everywhere(parameter.grad)
            optimizer.step()
            rows = gathered(consumed(batch), rank, world)
            if rank == 0:
                loss = float(both[0] / both[1])
                log.write(json.dumps({"step": batch.step, "loss": loss.hex(), "rows": rows}) + "\n")
                log.flush()
                if (batch.step + 1) % save_every == 0:
                    save(checkpoint, model, optimizer, loader.state_dict())


def everywhere(tensor: torch.Tensor) -> None:
    """Sum a tensor over all processes, in place."""
    if dist.is_initialized():
        dist.all_reduce(tensor)


def consumed(batch: TorchBatch) -> list[tuple[int, str]]:
    """The sample of each row, and a hash of the labels it taught."""
    return [
        (int(sample), hashlib.sha256(labels.numpy().tobytes()).hexdigest()[:16])
        for sample, labels in zip(batch.samples, batch["labels"], strict=True)
    ]


def gathered(rows: list[tuple[int, str]], rank: int, world: int) -> list[tuple[int, str]]:
    """The rows of all processes, in order; of use to process 0."""
    if world == 1:
        return rows
    parts: list[list[tuple[int, str]] | None] | None = [None] * world if rank == 0 else None
    dist.gather_object(rows, parts)
    return [row for part in parts or [] for row in part or []]


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, feed: dict[str, object]) -> None:
    """Model, optimizer and the feed's state in one file, which is there whole or not at all."""
    both = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "feed": json.dumps(feed)}
    temporary = path.with_suffix(".tmp")
    torch.save(both, temporary)
    temporary.replace(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a corpus with documents, or ROOT/SPLIT")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0, help="processes of a DataLoader; a thread is enough here")
    parser.add_argument("--world", type=int, default=1, help="processes that train together; torchrun does as well")
    said = parser.parse_args(arguments)
    said.out.mkdir(parents=True, exist_ok=True)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if said.world > 1 and "RANK" not in os.environ:
        return together(said.world)
    if world > 1:
        dist.init_process_group("gloo", init_method=os.environ.get("MEETING", "env://"), rank=rank, world_size=world)
    train(said.corpus, said.out, said.steps, said.save_every, said.workers, rank, world)
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


def together(world: int) -> int:
    """Start this program once for each process."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = {"WORLD_SIZE": str(world), "MEETING": f"file://{folder}/meeting"}
        ranks = [
            subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **meeting, "RANK": str(rank)})
            for rank in range(world)
        ]
        return max(process.wait() for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
