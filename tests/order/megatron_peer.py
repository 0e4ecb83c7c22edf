"""Random jobs, and megatron-core's own arrays for them where it is installed.

Run as a program with megatron-core installed, it writes tests/golden/megatron_order/random.json.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

STORED = Path(__file__).resolve().parents[1] / "golden" / "megatron_order" / "random.json"
PARTS = ("train", "valid", "test")
SPLITS = ("1,0,0", "0,1,0", "969,30,1", "99,1,0", "80,15,5", "70,20,10", "1,1,1", "0.9,0.1", "3,0,1")


@dataclass(frozen=True)
class Job:
    """One random configuration; sizes come from numpy's legacy generator, whose streams are frozen."""

    lengths: tuple[int, ...]
    row: int
    ahead: int
    seed: int
    split: str
    part: str
    samples: int | None
    keep_partial: bool


def random_job(number: int) -> Job:
    """Return job `number`; the samples asked for are often at the edge of a separate last epoch, one either way."""
    random = np.random.RandomState(number)
    while True:
        count = int(np.exp(random.uniform(0, np.log(5000))))
        lengths = random.randint(1, [3, 20, 200][random.randint(3)], size=count)
        lengths[random.uniform(size=count) < [0.0, 0.0, 0.1, 0.6][random.randint(4)]] = 0
        split = SPLITS[random.randint(len(SPLITS))]
        part = PARTS[random.choice(3, p=[0.6, 0.3, 0.1])]
        shares = np.array([*(float(x) for x in split.split(",")), 0.0, 0.0][:3])
        edges = np.concatenate(([0.0], np.cumsum(shares / shares.sum())))
        low, high = (round(edges[PARTS.index(part) + k] * float(count)) for k in (0, 1))
        tokens = int(lengths[low:high].sum())
        if shares[PARTS.index(part)] == 0 or tokens < 2:
            continue
        row, ahead = int(random.randint(2, [9, 70, 600][random.randint(3)])), int(random.randint(2))
        keep = bool(part == "valid" and random.randint(2))
        epoch = (tokens - ahead) // row
        choice = random.randint(5)
        if choice == 0:
            samples = None
        elif choice == 1:
            samples = int(random.randint(1, 4 * epoch + 2))
        else:
            before = int(random.randint(1, 5)) * tokens - ahead
            samples = max(1, before // row + int(0.8 * epoch) + int(random.randint(-1, 2)))
        if samples is None or samples * row < 12 * tokens + row:
            seed = int(random.randint(0, 2**32, dtype=np.uint32))
            return Job(tuple(lengths.tolist()), row, ahead, seed, split, part, samples, keep)


def digest(arrays: Any) -> str:
    """Return a hash over dtypes, shapes and bytes of the three arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:24]


def peer_arrays(job: Job) -> tuple[Any, Any, Any] | str:
    """Return megatron-core's arrays for a job, or the name of the exception it ends with."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    class Tokenizer:
        unique_identifiers: dict[str, str] = {"class": "none"}  # noqa: RUF012
        eod, pad, vocab_size = 0, -1, 100
        special_tokens_dict: dict[str, int] = {}  # noqa: RUF012

    with tempfile.TemporaryDirectory() as folder:
        prefix = f"{folder}/pair"
        n = len(job.lengths)
        lengths = np.array(job.lengths, dtype="<i4")
        pointers = np.concatenate(([0], np.cumsum(lengths.astype("<i8")[:-1] * 2))).astype("<i8")
        header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, n, n + 1)
        tables = lengths.tobytes() + pointers.tobytes() + np.arange(n + 1, dtype="<i8").tobytes()
        Path(f"{prefix}.idx").write_bytes(header + tables)
        Path(f"{prefix}.bin").write_bytes(bytes(2 * int(lengths.sum())))
        config = GPTDatasetConfig(
            random_seed=job.seed,
            sequence_length=job.row,
            blend=([prefix], None),
            split=job.split,
            path_to_cache=f"{folder}/cache",
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            tokenizer=Tokenizer(),
            drop_last_partial_validation_sequence=not job.keep_partial,
            add_extra_token_to_sequence=bool(job.ahead),
        )
        sizes = [job.samples if part == job.part else None for part in PARTS]
        try:
            with_part = BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config)
            dataset = with_part.build()[PARTS.index(job.part)]
        except (AssertionError, IndexError) as error:
            return type(error).__name__
        arrays = dataset.document_index, dataset.sample_index, dataset.shuffle_index
        return tuple(np.array(array) for array in arrays)  # type: ignore[return-value]


if __name__ == "__main__":
    found = []
    for number in range(int(sys.argv[1])):
        made = peer_arrays(random_job(number))
        found.append(made if isinstance(made, str) else digest(made))
    STORED.write_text(json.dumps(found, indent=0) + "\n", "utf-8")
