"""The peers' sides of bench/build.py, each as its own documentation shows it. Run by a peer's interpreter: `python build_sides.py PEER`.

Every function tokenises the files of a folder with the GPT-2 tokenizer file, appends the end-of-document token, uses two workers, writes the
tool's own tokenised format, and returns the tokens it wrote. No peer hashes, splits, receipts, checks or writes a Megatron pair.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import serve

EOD = "<|endoftext|>"
EOD_ID = 50256
WORKERS = 2


def datatrove(source: str, container: str, tokenizer: str, out: str) -> int:
    """A reader and DocumentTokenizer under LocalPipelineExecutor. Documents are not shuffled: its default does more work.

    A batch is 1,000 documents: with its default, 10,000, both workers together held 18 GB on these long documents and were slower.
    """
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader, ParquetReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    reader = JsonlReader if container == "jsonl" else ParquetReader
    LocalPipelineExecutor(
        pipeline=[
            reader(source, glob_pattern=f"*.{container}"),
            DocumentTokenizer(
                f"{out}/tokens",
                tokenizer,
                eos_token=EOD,
                save_filename="part",
                batch_size=1000,
                shuffle_documents=False,
            ),
        ],
        tasks=WORKERS,
        workers=WORKERS,
        logging_dir=f"{out}/logs",
    ).run()
    return sum(path.stat().st_size for path in Path(out).glob("tokens/**/*.ds")) // 2


def datasets(source: str, container: str, tokenizer: str, out: str) -> int:
    """load_dataset and a batched map(num_proc=2) with transformers' fast tokenizer; the tokens stay in its Arrow cache."""
    import datasets as hf
    from transformers import PreTrainedTokenizerFast

    hf.disable_progress_bars()
    tok = PreTrainedTokenizerFast(tokenizer_file=tokenizer, eos_token=EOD)
    kind = "json" if container == "jsonl" else "parquet"
    files = sorted(str(path) for path in Path(source).glob(f"*.{container}"))
    rows = hf.load_dataset(kind, data_files=files, split="train", cache_dir=f"{out}/cache")

    def tokenise(batch: dict[str, list[str]]) -> dict[str, Any]:
        ids = tok(batch["text"], add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return {"input_ids": [[*document, EOD_ID] for document in ids]}

    made = rows.map(
        tokenise, batched=True, num_proc=WORKERS, remove_columns=rows.column_names, load_from_cache_file=False
    )
    return sum(len(chunk.values) for chunk in made.data.column("input_ids").chunks)


def _documents(path: str) -> Iterator[str]:
    if path.endswith(".jsonl"):
        with Path(path).open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]
    else:
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
            yield from batch.column(0).to_pylist()


class Tokenise:
    """litdata's function: one file in, one tensor per document out."""

    def __init__(self, tokenizer: str) -> None:
        self.tokenizer = tokenizer

    def __call__(self, path: str) -> Iterator[Any]:
        import torch
        from tokenizers import Tokenizer

        tok = Tokenizer.from_file(self.tokenizer)
        for text in _documents(path):
            yield torch.tensor([*tok.encode(text, add_special_tokens=False).ids, EOD_ID])


def litdata(source: str, container: str, tokenizer: str, out: str) -> int:
    """optimize with TokensLoader and 64 MB chunks."""
    from litdata import TokensLoader, optimize

    optimize(
        fn=Tokenise(tokenizer),
        inputs=sorted(str(path) for path in Path(source).glob(f"*.{container}")),
        output_dir=out,
        chunk_bytes="64MB",
        num_workers=WORKERS,
        item_loader=TokensLoader(),
        start_method="fork",
        verbose=False,
    )
    index = json.loads((Path(out) / "index.json").read_text())
    return sum(chunk["dim"] for chunk in index["chunks"])


TOOLS = {"datatrove": datatrove, "datasets": datasets, "litdata": litdata}


def main() -> None:
    tool = TOOLS[sys.argv[1]]
    os.environ["HF_HUB_OFFLINE"] = "1"

    def build(source: str, container: str, tokenizer: str, out: str) -> int:
        Path(out).mkdir(parents=True)
        return tool(source, container, tokenizer, out)

    serve({"build": build})


if __name__ == "__main__":
    main()
