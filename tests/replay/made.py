"""A small replay index and the sources it was made of."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from tokenreel.replay.making import Choices, make_index
from tokenreel.text.normalise import Normaliser, text_id

SOURCES = ("web", "code", "books")


@dataclass(frozen=True)
class Made:
    """Paths of an index and its upstream, and what the index should hold, in order."""

    root: Path
    index: Path
    upstream: Path
    rows: list[tuple[str, str, int]]
    """(source, normalised text, bucket)."""


def make(root: Path, documents: int = 120, seed: int = 1, task: int = 25) -> Made:
    """Write upstream files, a table of buckets, and the index of it all in folders below `root`."""
    rng = random.Random(seed)
    normalise = Normaliser("marin")
    rows, records = [], []
    for number in range(documents):
        source = SOURCES[rng.randrange(len(SOURCES))]
        text = (
            f"{source} document {number % (documents - 5)} "
            + " ".join(rng.choices("abcdefg", k=3))
            + " " * rng.choice((1, 200))
        )
        text = text if number % 17 else rows[number // 2][1] if number else text
        normal = normalise(text)
        assert normal is not None
        rows.append((source, normal, rng.randrange(200)))
        records.append({"text": text, "from": source})
    upstream, flat = root / "upstream", root / "flat.jsonl"
    for source in SOURCES:
        mine = [record for record in records if record["from"] == source]
        rng.shuffle(mine)
        folder = upstream / f"org/{source}"
        (folder / "data").mkdir(parents=True)
        half = len(mine) // 2
        lines = "".join(json.dumps(record) + "\n" for record in mine[:half])
        (folder / "data/a.jsonl").write_text(lines)
        parquet.write_table(
            pa.Table.from_pylist([*mine[half:], {"text": f"extra {source}", "from": source}]), folder / "data/b.parquet"
        )
        (folder / ".hidden.jsonl").write_text('{"text": "never"}\n')
    flat.write_text("".join(json.dumps(record) + "\n" for record in records))
    parquet.write_table(pa.table({"bucket_id": [row[2] for row in rows]}), root / "buckets.parquet")
    described = [
        {
            "source_id": source,
            "repository": f"org/{source}",
            "revision": "main",
            "normalize_config": {"text_field": "text", "max_whitespace_run_chars": 128, "relative_input_path": "data"},
        }
        for source in SOURCES
    ]
    (root / "sources.json").write_text(json.dumps({"sources": described}))
    (root / "mix.json").write_text(
        json.dumps({"tail": [0, 1], "sequence_length": 40, "tokens": {"bos": "none", "eos": "id"}})
    )
    index = root / "index"
    choices = Choices(
        normalise="marin",
        source_field="from",
        sources=root / "sources.json",
        mix=root / "mix.json",
        task_documents=task,
    )
    make_index([flat], root / "buckets.parquet", index, choices)
    return Made(root, index, upstream, rows)


def expected_ids(made: Made) -> list[bytes]:
    """Return the ids in order."""
    return [text_id(text) for _, text, _ in made.rows]
