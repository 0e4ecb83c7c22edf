"""Which bucket each document is in, as someone else's table says it.

A table (Parquet or JSON lines) has ``bucket_id``, or ``domain_cluster`` with ``quality_bucket`` or ``quality_score``; and
it names its documents by ``document_id`` (32 hex digits or 16 bytes), by ``id`` (upstream), by ``document`` (number in
the order of the store), or not at all: then its rows stand in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenreel.errors import ReplayError, require
from tokenreel.replay.buckets import BUCKETS, bucket_id, quality_buckets

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tokenreel.replay.documents import Documents

KEYS = ("document_id", "id", "document")


@dataclass(eq=False)
class Assignments:
    """Buckets of documents by one kind of name."""

    path: str
    key: str | None
    """One of `KEYS`; None: by order."""
    buckets: dict[Any, int] | Sequence[int]
    default: int | None = None
    """The bucket of documents that are not named."""

    def __len__(self) -> int:
        """Return how many documents have a bucket."""
        return len(self.buckets)

    def of(self, first: int, batch: Documents) -> list[int]:
        """Return the buckets of a batch whose first document is number `first`.

        Raises `ReplayError` (RPL006) for a document that has none.
        """
        names: Sequence[Any]
        if self.key == "document_id":
            names = [None if one is None else one.hex() for one in batch.ids]
        elif self.key == "id":
            names = batch.upstream if batch.upstream is not None else [None] * len(batch.ids)
        else:
            names = range(first, first + len(batch.ids))
        out = []
        for number, name in enumerate(names):
            found = self._get(name)
            found = self.default if found is None else found
            if found is None and batch.ids[number] is not None:
                expected = f"a bucket for {self.key or 'row'} {name}"
                raise ReplayError("RPL006", path=self.path, document=first + number, expected=expected)
            out.append(-1 if found is None else found)
        return out

    def _get(self, name: Any) -> int | None:
        if isinstance(self.buckets, dict):
            return self.buckets.get(name)
        return self.buckets[name] if name < len(self.buckets) else None


def read_assignments(path: str | os.PathLike[str]) -> Assignments:
    """Return a table of buckets; raises `ReplayError`: RPL002 a number that is no bucket, RPL006 columns or values."""
    table = _read(Path(path))
    names = table.column_names
    buckets = _buckets(table, str(path))
    key = next((name for name in KEYS if name in names), None)
    if key is None:
        return Assignments(str(path), None, buckets)
    values = [_name(value, key, str(path), row) for row, value in enumerate(table.column(key).to_pylist())]
    by_name = dict(zip(values, buckets, strict=True))
    if len(by_name) < len(values):
        # An id may stand twice as long as it says one thing.
        for row, (value, bucket) in enumerate(zip(values, buckets, strict=True)):
            if by_name[value] != bucket:
                message = f"{key} {value} has two buckets"
                raise ReplayError("RPL006", message, path=path, document=row, expected=by_name[value], found=bucket)
    return Assignments(str(path), key, by_name)


def _read(path: Path) -> Any:
    pa = require("pyarrow", extra="build")
    require("pyarrow.parquet", extra="build")
    try:
        if path.suffix in (".jsonl", ".json", ".ndjson"):
            from pyarrow import json

            return json.read_json(path)
        from pyarrow import parquet

        return parquet.read_table(path)
    except FileNotFoundError as error:
        from tokenreel.store.atomic import read_error

        raise read_error(path, error) from error
    except (pa.ArrowException, OSError) as error:
        raise ReplayError("RPL006", f"cannot be read: {str(error).splitlines()[0]}", path=path) from error


def _buckets(table: Any, path: str) -> list[int]:
    names = table.column_names
    if "bucket_id" in names:
        found = table.column("bucket_id").to_pylist()
        for row, value in enumerate(found):
            if not isinstance(value, int) or not 0 <= value < BUCKETS:
                raise ReplayError("RPL002", path=path, document=row, expected=f"0 .. {BUCKETS - 1}", found=value)
        return list(found)
    if "domain_cluster" not in names or not {"quality_bucket", "quality_score"} & set(names):
        expected = "bucket_id, or domain_cluster with quality_bucket or quality_score"
        raise ReplayError("RPL006", path=path, expected=expected, found=", ".join(names))
    clusters = table.column("domain_cluster").to_pylist()
    if "quality_bucket" in names:
        qualities = table.column("quality_bucket").to_pylist()
    else:
        scores = table.column("quality_score")
        if scores.null_count:
            raise ReplayError("RPL006", path=path, expected="a score in every row", found="null")
        qualities = quality_buckets(
            scores.to_numpy(zero_copy_only=False) if hasattr(scores, "chunks") else scores
        ).tolist()
    out = []
    for row, (cluster, quality) in enumerate(zip(clusters, qualities, strict=True)):
        if not isinstance(cluster, int) or not isinstance(quality, int):
            raise ReplayError("RPL006", path=path, document=row, expected="integers", found=f"{cluster}, {quality}")
        out.append(bucket_id(cluster, quality))
    return out


def _name(value: Any, key: str, path: str, row: int) -> Any:
    if key == "document_id":
        text = value.hex() if isinstance(value, bytes) else value
        if isinstance(text, str) and len(text) == 32:
            return text.lower()
    elif (key == "id" and isinstance(value, str | int)) or (key == "document" and isinstance(value, int)):
        return str(value) if key == "id" else value
    expected = {"document_id": "32 hex digits or 16 bytes", "id": "a string", "document": "an integer"}[key]
    raise ReplayError("RPL006", f"a name in {key}", path=path, document=row, expected=expected, found=value)
