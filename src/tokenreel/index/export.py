"""An order's extents as Parquet: one row for each extent, in the order of samples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenreel.errors import require
from tokenreel.store import atomic_write

if TYPE_CHECKING:
    import os

    import numpy as np
    import numpy.typing as npt

    from tokenreel.index.assemble import Assembled


def export_order(made: Assembled, path: str | os.PathLike[str], lo: int, hi: int, *, resolve: bool = False) -> int:
    """Write samples [lo, hi) of a prepared order to a Parquet file, atomically, and return its rows.

    Columns: ``sample``, ``extent`` (within it), ``component``, ``corpus`` (its name), ``begin``, ``length``, ``document``,
    ``start`` (-1: unresolved) and ``flags``. With `resolve` every extent lies inside one document. The file's metadata
    name the order and its fingerprint under ``tokenreel``. Needs pyarrow; memory is that of one block of samples.
    """
    import numpy as np

    pa = require("pyarrow", extra="build")
    parquet = require("pyarrow.parquet", extra="build")
    order = made.order
    said = {
        "order": order.name,
        "fingerprint": order.fingerprint,
        "first": lo,
        "end": hi,
        "row_tokens": order.row_tokens,
    }
    schema = pa.schema(
        [
            ("sample", pa.int64()),
            ("extent", pa.int32()),
            ("component", pa.int32()),
            ("corpus", pa.dictionary(pa.int32(), pa.string())),
            *((name, pa.int64()) for name in ("begin", "length", "document", "start")),
            ("flags", pa.uint8()),
        ],
        metadata={"tokenreel": json.dumps(said)},
    )
    names = pa.array(made.names)
    rows = 0
    with atomic_write(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for first, plain in order.chunks(lo, hi):
            table = made.resolved(plain) if resolve else plain
            row: npt.NDArray[np.int64] = table.sample_of()
            columns: list[Any] = [
                row + first,
                (np.arange(table.extents) - table.splits[:-1][row]).astype(np.int32),
                order.components_at(row + first),
                pa.DictionaryArray.from_arrays(pa.array(table.corpus), names),
                table.begin,
                table.length,
                table.document,
                table.start,
                table.flags,
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            rows += table.extents
    return rows
