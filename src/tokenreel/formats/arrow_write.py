"""Write Arrow streams with a column ``input_ids`` of lists with 64-bit offsets, one row a document, as datasets reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenreel.errors import require
from tokenreel.formats import parquet_write
from tokenreel.formats.headed import only

if TYPE_CHECKING:
    from pathlib import Path

    from tokenreel.formats.writing import WriteOptions

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
