"""Staged parts on disk: Arrow files without compression, so that readers map them; the same bytes however they were cut.

``stage/SOURCE/part-000000.arrow`` holds the documents kept of one input, in order:

| column | type | |
|---|---|---|
| ``id`` | 16 bytes | of the SHA-256 of the exact final text: what exact dedup goes by |
| ``doc`` | 16 bytes | XXH3-128 of the same: the document's id |
| ``url_key``, ``id_key`` | 16 bytes, or null | url and upstream id within their scopes, where dedup goes by them |
| ``url``, ``upstream_id``, ``group`` | string, or null | |
| ``metadata`` | string, or null | a JSON object |
| ``record`` | int64 | number in its input |
| ``full_tokens`` | int64 | ids of the text before a cap |
| ``ids`` | list of uint32 | without boundary tokens |
| ``text`` | large string | only where the audit goes by words |
| ``near`` | list of uint32 | only with near-duplicates: the MinHash signature |

Beside it stand ``part-000000.json``, its receipt, written last, and ``part-000000.dropped.arrow`` where any document went.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from tokenreel.build.staging_receipt import StageReceipt, receipt_at
from tokenreel.errors import ManifestError
from tokenreel.store.atomic import read_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt


def source_folder(name: str) -> str:
    """Return the folder of a source's parts below ``stage``.

    >>> source_folder("fineweb-edu"), source_folder("a/b"), source_folder("..")
    ('fineweb-edu', 'a%2Fb', '%2E%2E')
    """
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def part_stem(number: int) -> str:
    """Return the name of a part without its suffix."""
    return f"part-{number:06d}"


def schema(*, text: bool = False, near: bool = False) -> Any:
    """Return the schema of staged parts."""
    import pyarrow as pa

    key = pa.binary(16)
    fields = [
        pa.field("id", key, nullable=False),
        pa.field("doc", key, nullable=False),
        pa.field("url_key", key),
        pa.field("id_key", key),
        pa.field("url", pa.string()),
        pa.field("upstream_id", pa.string()),
        pa.field("group", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("record", pa.int64(), nullable=False),
        pa.field("full_tokens", pa.int64(), nullable=False),
        pa.field("ids", pa.list_(pa.field("item", pa.uint32(), nullable=False)), nullable=False),
    ]
    if text:
        fields.append(pa.field("text", pa.large_string(), nullable=False))
    if near:
        fields.append(pa.field("near", pa.list_(pa.field("item", pa.uint32(), nullable=False)), nullable=False))
    return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The documents kept of one input, mapped."""

    source: str
    number: int
    path: str
    """The input, as recorded."""
    receipt: StageReceipt
    folder: Path = field(repr=False)

    @property
    def file(self) -> Path:
        """The Arrow file."""
        return self.folder / f"{part_stem(self.number)}.arrow"

    def __len__(self) -> int:
        """Return how many documents it has."""
        return self.receipt.kept

    def table(self, columns: Sequence[str] | None = None) -> Any:
        """Return the part, or some columns, as a ``pyarrow.Table`` over the mapped file; nothing is read yet.

        Raises `ManifestError` (MAN012) where its rows are not as many as its receipt says, `StorageError`.
        """
        import pyarrow as pa

        try:
            reader = pa.ipc.open_file(pa.memory_map(str(self.file)))
            table = reader.read_all()
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno:
                raise read_error(self.file, error) from error
            raise ManifestError("MAN012", f"a staged part: {error}", path=self.file) from error
        if table.num_rows != self.receipt.kept:
            raise ManifestError(
                "MAN012", "rows of a staged part", path=self.file, expected=self.receipt.kept, found=table.num_rows
            )
        return table if columns is None else table.select(list(columns))

    def keys(self, column: str = "id") -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Return a column of 16-byte keys as (documents, 2), high half first, and which are there (not null).

        Memory: 17 bytes a document.
        """
        found = self.table([column]).column(column)
        known = np.asarray(found.is_valid(), np.bool_)
        keys = [np.empty((0, 2), np.uint64)]
        for chunk in found.chunks:
            data = np.frombuffer(chunk.buffers()[1], ">u8").reshape(-1, 2)
            keys.append(data[chunk.offset : chunk.offset + len(chunk)].astype(np.uint64))
        return np.concatenate(keys), known

    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the ids of every document, without boundary tokens."""
        return lengths_of(self.table(["ids"]).column("ids"))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the part's record batches, of about a million tokens each."""
        yield from self.table(columns).to_batches()


def batch_ids(batch: Any) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Return (ids end to end, lengths) of a record batch of a staged part; no copy."""
    found = batch.column("ids")
    return np.asarray(found.flatten()), _chunk_lengths(found)


def lengths_of(column: Any) -> npt.NDArray[np.int64]:
    """Return the lengths of the lists of a chunked column."""
    parts = [_chunk_lengths(chunk) for chunk in column.chunks]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _chunk_lengths(chunk: Any) -> npt.NDArray[np.int64]:
    return np.diff(np.asarray(chunk.offsets)).astype(np.int64)


def staged_parts(stage: Path, source: str) -> list[StagedPart]:
    """Return the parts of a source that have a receipt, in the order of its inputs.

    Where the source has a budget they end with the part that reached it. Files are not hashed here: staging did, or
    checked, when it ended.
    """
    folder = stage / source_folder(source)
    parts = []
    for path in sorted(folder.glob("part-*.json")) if folder.is_dir() else ():
        receipt = receipt_at(path)
        if receipt is not None and receipt.source == source:
            parts.append(StagedPart(source, receipt.part, receipt.path, receipt, folder))
    return parts
