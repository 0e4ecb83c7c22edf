"""Extend a model's context from 1,024 tokens to 4,096 and 8,192 on one corpus, in one lineage, with one ledger.

    python examples/extend_context.py out                       # a small corpus of its own
    python examples/extend_context.py out --corpus data/books   # yours, with documents that know their ends

Best-fit rows: a document that fits in a row is never cut, none is lost, and nothing attends into another document. Each stage
reads rows of its own length from their first on; steps, tokens and the ledger go on. Stop it anywhere and run it again: it goes
on at the next step. ``out/run.toml`` is the whole lineage, ``out/ledger.jsonl`` what every step consumed:

    tokenreel pack stats out/run.toml            tokenreel order show out/run.toml --step 25
    tokenreel trace out/run.toml --step 25
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import tokenreel
from tokenreel.config.run import load_run

STAGES = ((1024, 32), (4096, 8), (8192, 4))
"""Tokens of a row, rows of a step: the same number of tokens in every step."""

RUN = """\
[[corpus]]
name = "books"
path = {corpus}

[order]
kind = "packed"
policy = "bestfit"
oversize = "split"
row_tokens = {row}
seed = 7
epochs = 0                        # endless

[row_policy]
kind = "documents"
cu_seqlens = "rows"

[schedule]
batch = {batch}
"""

SEGMENT = """
[[segment]]
first = {first}
last = {last}
at_sample = 0                     # rows of this length are another order: its first row comes first
order = {{ row_tokens = {row} }}
schedule = {{ batch = {batch} }}
"""


def write_corpus(folder: Path, documents: int) -> Path:
    """Write documents of very different lengths, each ended by 0."""
    from tokenreel.formats.megatron_write import MegatronWriter

    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(7.5, 1.2, documents), 8, 60_000).astype(np.int64)
    ids = rng.integers(1, 50_000, int(lengths.sum()), dtype=np.uint16)
    ids[np.cumsum(lengths) - 1] = 0
    with MegatronWriter(str(folder / "books"), np.uint16) as writer:
        writer.add_documents(ids, lengths)
        writer.finish()
    return folder / "books.idx"


def write_run(out: Path, corpus: Path, steps: int) -> Path:
    (row, batch), text = STAGES[0], ""
    for number, (length, rows) in enumerate(STAGES):
        text += SEGMENT.format(first=number * steps, last=(number + 1) * steps - 1, row=length, batch=rows)
    path = out / "run.toml"
    path.write_text(RUN.format(corpus=json.dumps(str(corpus.resolve())), row=row, batch=batch) + text)
    return path


def step(batch: tokenreel.Batch) -> dict[str, float]:
    """Stand for a training step: what a model would be given, counted."""
    learnt = float(batch["loss_mask"].sum())
    edges = batch["cu_seqlens"]
    pieces = (edges[:, 1:] > edges[:, :-1]).sum(axis=1)
    return {"learnt": learnt, "pieces": float(pieces.mean()), "longest": float(batch["max_seqlen"].max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--corpus", type=Path, help="a corpus, or ROOT/SPLIT; a small one is written where it is left out"
    )
    parser.add_argument("--steps", type=int, default=10, help="steps of each stage")
    parser.add_argument("--documents", type=int, default=400, help="documents of the small corpus")
    parser.add_argument("--stop-after", type=int, help="stop after so many steps, as if killed")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    run, saved = out / "run.toml", out / "state.json"
    if not run.exists():
        run = write_run(out, options.corpus or write_corpus(out, options.documents), options.steps)
    done = 0
    segments = load_run(run)
    while True:
        state = json.loads(saved.read_text()) if saved.exists() else None
        if state is not None and state["step"] > (segments[-1].last or 0):
            break
        # The segment that holds the next step; the state may be of the one before.
        with tokenreel.open_feed(run, state=state, ledger=out / "ledger.jsonl", cache=out / "cache") as feed:
            seen: list[dict[str, float]] = []
            for batch in feed:
                seen.append(step(batch))
                saved.write_text(json.dumps(feed.state_dict()))
                done += 1
                if done == options.stop_after:
                    return
            if seen:
                print(
                    f"rows of {feed.order.row_tokens:>5,}: steps to {feed.step:,}, {feed.tokens:,} tokens in all, "
                    f"{np.mean([one['pieces'] for one in seen]):.1f} pieces a row, the longest {max(one['longest'] for one in seen):,.0f}"
                )


if __name__ == "__main__":
    main()
