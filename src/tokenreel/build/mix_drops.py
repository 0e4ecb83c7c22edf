"""What a mix leaves of its stages: receipts and lists of dropped documents below ``stages``, those of the merge among them.

Beside ``part-000000.json`` and ``part-000000.dropped.arrow`` of a source stands ``part-000000.merge.dropped.arrow``: the
documents of that part that were duplicates, or were removed for what they share with an evaluation set; and
``part-000000.kept.parquet`` with the ``record`` of every document of that input that is in the mix, and its ``row`` in
``documents.parquet``: 2 to 4 bytes a document.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.build.mix_merge import EVAL, KEPT, RULES
from tokenreel.build.staging_parts import part_stem, source_folder
from tokenreel.build.staging_write import ArrowWriter, dropped_batch, dropped_schema
from tokenreel.build.text_batches import Dropped
from tokenreel.corpus.mix_records import STAGES
from tokenreel.corpus.receipts import FileEntry
from tokenreel.hashing import sha256_file
from tokenreel.store import atomic_write, write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.build.mix_merge import Merged
    from tokenreel.build.mix_shards import MixShard
    from tokenreel.build.mix_table import Staged

_ROWS = 1 << 14


def write_stages(
    out: Path, staged: Staged, merged: Merged, shards: Sequence[MixShard], overlaps: Mapping[int, str]
) -> list[FileEntry]:
    """Copy receipts and lists of staged parts and write those of the merge; returns every file, by path.

    `overlaps` says of documents that were removed after the audit what they share.
    """
    target = out / STAGES
    shutil.rmtree(target, ignore_errors=True)
    rows = np.full(len(staged), -1, np.int32)
    order = np.concatenate([np.empty(0, np.int32), *(shard.documents for shard in shards)])
    rows[order] = np.arange(len(order), dtype=np.int32)
    for number, part in enumerate(staged.parts):
        folder = target / source_folder(part.source)
        stem = part_stem(part.number)
        for name in (f"{stem}.json", f"{stem}.dropped.arrow"):
            if (part.folder / name).is_file():
                write_bytes_atomic(folder / name, (part.folder / name).read_bytes())
        _write_merge(folder, stem, staged, merged, number, overlaps)
        _write_kept(folder / f"{stem}.kept.parquet", staged, number, rows)
    paths = sorted(path for path in target.rglob("*") if path.is_file())
    return [FileEntry(path.relative_to(out).as_posix(), path.stat().st_size, sha256_file(path)) for path in paths]


def _write_merge(
    folder: Path, stem: str, staged: Staged, merged: Merged, number: int, overlaps: Mapping[int, str]
) -> None:
    begin, end = int(staged.bases[number]), int(staged.bases[number + 1])
    gone = np.flatnonzero(merged.why[begin:end] != KEPT) + begin
    if not len(gone):
        return
    name = f"{stem}.merge.dropped.arrow"
    with contextlib.ExitStack() as stack:
        writer = ArrowWriter(stack, folder / name, dropped_schema())
        for at in range(0, len(gone), _ROWS):
            writer.add(dropped_batch(_rows(staged, merged, gone[at : at + _ROWS], overlaps)))
        writer.finish(name)


def _write_kept(path: Path, staged: Staged, number: int, rows: npt.NDArray[np.int32]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    mine = rows[int(staged.bases[number]) : int(staged.bases[number + 1])]
    stay = np.flatnonzero(mine >= 0)
    if not len(stay):
        return
    record = staged.table(number).column("record").to_numpy()[stay]
    table = pa.table({"record": record.astype(np.int64), "row": mine[stay].astype(np.int64)})
    packed = dict.fromkeys(table.column_names, "DELTA_BINARY_PACKED")
    with atomic_write(path) as file:
        parquet.write_table(table, file, compression="zstd", use_dictionary=False, column_encoding=packed)


def _rows(staged: Staged, merged: Merged, gone: npt.NDArray[np.int64], overlaps: Mapping[int, str]) -> list[Dropped]:
    mine = staged.take(gone, ("record", "upstream_id", "doc")).to_pylist()
    winners = merged.winner[gone]
    won = winners[winners >= 0]
    records = iter(staged.take(won, ("record",)).column("record").to_pylist() if len(won) else [])
    parts = staged.part_of(won).tolist()
    names = iter([f"{staged.parts[k].path}#{next(records)} ({staged.parts[k].source})" for k in parts])
    rows = []
    for document, row, winner in zip(gone.tolist(), mine, winners.tolist(), strict=True):
        why = int(merged.why[document])
        stage = "decontaminate" if why == EVAL else "dedup"
        value = f"as {next(names)}" if winner >= 0 else overlaps.get(document, "")
        rows.append(Dropped(row["record"], stage, RULES[why], value, row["upstream_id"], row["doc"]))
    return rows
