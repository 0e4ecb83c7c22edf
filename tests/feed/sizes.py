"""Orders of exactly N samples, for the proofs that go through every N: other data, weights or batches where need be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.feed.jobs import order_over, order_tables, write_data
from tokenreel.errors import TokenreelError
from tokenreel.index.assemble import Assembled

Table = dict[str, Any]

SMALLEST = {"megatron-blend": 2, "maxtext-mmap-mix": 2}
"""Orders that cannot have one sample: a blend rounds each member's share up to one, a mixture of files gives one of each."""


def of_length(root: Path, name: str, samples: int) -> Assembled:
    """Return an order of that many samples; data are written under `root` when first needed."""
    refused: list[object] = []
    for rows, table in candidates(name, samples):
        folder = root / f"rows-{rows}"
        if not folder.exists():
            write_data(folder, rows, seed=rows)
        try:
            made = order_over(folder, table)
        except TokenreelError as error:
            refused.append(error)
            continue
        if made.order.length == samples:
            return made
        refused.append(made.order.length)
    raise LookupError(f"{name} of {samples} samples: {refused[:9]}")


def candidates(name: str, samples: int) -> Iterator[tuple[int, Table]]:
    """Yield rows of data and a table that may give so many samples."""
    table = order_tables(max(samples, 2))[name]
    if name in ("windows-io", "maxtext-mmap"):
        # Both epochs where they halve.
        epochs = 2 if samples % 2 == 0 else 1
        yield samples // epochs, {**table, "epochs": epochs}
    elif name in ("llmc-stream", "nanogpt"):
        batch = 2 if samples % 2 == 0 else 1
        # A shard of llm.c's holds a batch and one token at least.
        yield max(samples, 5), {**table, "batch": batch, "steps": samples // batch}
    elif name == "hobbylm-stream":
        yield max(samples, 2), {**table, "steps": samples}
    elif name == "packed":
        # Rows follow from how documents fit: which data give so many has to be tried.
        yield from ((rows, table) for rows in (samples - 1, samples, samples - 2) if rows > 0)
        yield 2 * samples - 1, {**table, "corpus": "code"}
        yield samples - 1, {key: value for key, value in {**table, "policy": "concat"}.items() if key != "oversize"}
    elif name == "mix":
        yield max(samples, 2), {**table, "samples": samples}
    elif name in ("megatron-blend", "maxtext-mmap-mix", "levanter"):
        yield from mixed(name, samples, table)
    else:
        if "samples" in table:
            table["samples"] = samples
        yield samples, table


def mixed(name: str, samples: int, table: Table) -> Iterator[tuple[int, Table]]:
    """Yield mixtures whose length follows from their weights and members."""
    key = "component" if name == "levanter" else "member"
    for weights in ((0.7, 0.3), (0.5, 0.5), (0.6, 0.4), (2.0, 1.0), (0.75, 0.25), (0.8, 0.2), (0.62, 0.38)):
        members = [{**one, "weight": weight} for one, weight in zip(table[key], weights, strict=True)]
        changed = {**table, key: members}
        if name == "megatron-blend":
            yield from ((samples, {**changed, "samples": asked}) for asked in (samples, samples - 1))
        else:
            middle = samples // 2 if name == "levanter" else samples * 2 // 3
            yield from ((rows, changed) for rows in range(max(2, middle - 2), middle + 4))
    if name == "levanter":
        yield samples, {**table, key: table[key][:1]}
