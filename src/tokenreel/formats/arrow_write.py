"""Write Arrow streams with a column ``input_ids`` of lists with 64-bit offsets, one row a document, as datasets reads them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenreel.errors import require
from tokenreel.formats import parquet_write
from tokenreel.formats.headed import choice, only
from tokenreel.formats.litdata_write import by_folder, write_index
from tokenreel.formats.parquet_footer import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokenreel.formats.base import WrittenFile
    from tokenreel.formats.writing import FinishedShard, WriteOptions

HOLDS = replace(parquet_write.HOLDS, metadata=False)


def open_writer(root: Path, name: str, options: WriteOptions) -> ArrowWriter:
    """Return a writer of ``name.arrow`` below `root`; ``options.options["column"]`` is ``input_ids`` or ``tokens``."""
    only(options.options, "column")
    return ArrowWriter(root, name, options)


class ArrowWriter(parquet_write.ParquetWriter):
    """Writes one stream, a record batch of at most 16 MiB of ids at a time; a longer document is a batch."""

    suffix = ".arrow"
    compressions: tuple[str, ...] = ("none",)

    def _begin(self, target: Any) -> Any:
        return require("pyarrow.ipc", extra="build").new_stream(target, self._schema)


def finish_folder(root: Path, shards: Sequence[FinishedShard], options: WriteOptions) -> tuple[WrittenFile, ...]:
    """Write ``state.json`` and ``dataset_info.json`` into every folder that has files, for ``datasets.load_from_disk``."""
    column = choice(options.options, "column", COLUMNS)
    feature = {"feature": {"dtype": options.dtype, "_type": "Value"}, "_type": "LargeList"}
    info: dict[str, object] = {
        "citation": "",
        "description": "",
        "features": {column: feature},
        "homepage": "",
        "license": "",
    }
    written = []
    for folder, members in by_folder(shards).items():
        files = [shard.files[0] for shard in members]
        state: dict[str, object] = {
            "_data_files": [{"filename": file.path.rpartition("/")[2]} for file in files],
            "_fingerprint": hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        }
        for name, value in (("state.json", state), ("dataset_info.json", info)):
            written.append(write_index(root, f"{folder}/{name}" if folder else name, value))
    return tuple(written)
