"""What is known of documents, in columns of a Parquet file beside the ids: the same names here and there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.formats.writing import DocumentFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

COLUMNS = {"id": "id", "id_kind": "kind", "source": "source", "upstream_id": "upstream_id", "metadata": "metadata"}
"""Column, and the field of `DocumentFacts` it holds."""
FACTS = frozenset(COLUMNS)


def facts_of(file: Any, path: str, firsts: npt.NDArray[np.int64], i: int, j: int) -> list[DocumentFacts]:
    """Return the facts of rows [i, j) of an open ``ParquetFile``; columns that are not of strings are passed over."""
    kinds = {field.name: str(field.type) for field in file.schema_arrow}
    # Read as dictionaries: one long value of many rows is in memory once.
    columns = [
        name for name in COLUMNS if "values=string" in kinds.get(name, "") or "values=large" in kinds.get(name, "")
    ]
    if not columns or i == j:
        return [DocumentFacts() for _ in range(j - i)]
    groups = range(int(np.searchsorted(firsts, i, side="right")) - 1, int(np.searchsorted(firsts, j, side="left")))
    at = int(firsts[groups[0]])
    rows: list[DocumentFacts] = []
    for batch in file.iter_batches(1 << 14, row_groups=list(groups), columns=columns, use_threads=False):
        low, high = max(i - at, 0), min(j - at, batch.num_rows)
        if low < high:
            part = batch.slice(low, high - low)
            values = [_values(part.column(name), path) for name in columns]
            fields = [COLUMNS[name] for name in columns]
            rows += [DocumentFacts(**dict(zip(fields, row, strict=True))) for row in zip(*values, strict=True)]
        at += batch.num_rows
        if at >= j:
            break
    return rows


def _values(column: Any, path: str) -> list[str | None]:
    words = column.dictionary.to_pylist()
    wanted = column.indices.to_pylist()
    for index in wanted:  # pyarrow does not look
        if index is not None and not 0 <= index < len(words):
            raise FormatError("PQT005", path=path, expected=f"words 0 .. {len(words) - 1} of a dictionary", found=index)
    return [None if index is None else words[index] for index in wanted]


def table_of(facts: Sequence[DocumentFacts]) -> dict[str, list[str | None]]:
    """Return facts as columns."""
    return {column: [getattr(one, field) for one in facts] for column, field in COLUMNS.items()}
