"""Arrow files as staging writes them: without compression, hashed while written, the same bytes however rows came in."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokenreel.build.staging_parts import lengths_of
from tokenreel.corpus.receipts import FileEntry
from tokenreel.store.atomic import atomic_write

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence
    from pathlib import Path

    from tokenreel.build.text_batches import Dropped

BATCH_TOKENS = 1 << 20
BATCH_DOCUMENTS = 1 << 14
"""A batch of a file is closed by the document that reaches either: whatever chunks they came in."""


def dropped_schema() -> Any:
    """Return the schema of lists of dropped documents."""
    import pyarrow as pa

    words = [pa.field(name, pa.string(), nullable=False) for name in ("stage", "rule", "value")]
    return pa.schema(
        [
            pa.field("record", pa.int64(), nullable=False),
            pa.field("upstream_id", pa.string()),
            pa.field("id", pa.binary(16)),
            *words,
        ]
    )


class ArrowWriter:
    """Writes one Arrow file in batches of a size that its rows alone decide; hashed while written, named when closed."""

    def __init__(self, stack: contextlib.ExitStack, path: Path, kind: Any) -> None:
        import pyarrow as pa

        self._schema = kind
        # A part is taken up again only where its receipt's hash fits.
        self._file = _Hashed(stack.enter_context(atomic_write(path, durable=False)))
        self._writer = pa.ipc.new_file(self._file, kind)
        self._waiting: list[Any] = []
        self._rows = self._tokens = 0
        self._by_tokens = "ids" in kind.names

    def add(self, batch: Any) -> None:
        """Take rows."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._by_tokens:
            self._tokens += len(batch.column("ids").flatten())
        if self._rows >= BATCH_DOCUMENTS or self._tokens >= BATCH_TOKENS:
            self._flush(last=False)

    def finish(self, name: str) -> FileEntry:
        """Write what waits and the end of the file; it gets its name when the stack closes."""
        self._flush(last=True)
        self._writer.close()
        return FileEntry(name, self._file.bytes, self._file.digest.hexdigest())

    def _flush(self, *, last: bool) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        lengths = lengths_of(table.column("ids")) if self._by_tokens else np.zeros(table.num_rows, np.int64)
        sums = np.cumsum(lengths)
        begin = 0
        while begin < table.num_rows:
            before = int(sums[begin - 1]) if begin else 0
            full = int(np.searchsorted(sums, before + BATCH_TOKENS, side="left")) + 1
            end = min(begin + BATCH_DOCUMENTS, full)
            if end > table.num_rows and not last:
                break
            self._write(table.slice(begin, min(end, table.num_rows) - begin))
            begin = min(end, table.num_rows)
        rest = table.slice(begin)
        self._waiting = rest.to_batches() if rest.num_rows else []
        self._rows, self._tokens = rest.num_rows, int(lengths[begin:].sum())

    def _write(self, table: Any) -> None:
        import pyarrow as pa

        # Through take: buffers then hold these rows alone, whatever they were cut from. Ids are cut by hand.
        names = [name for name in self._schema.names if name != "ids"]
        whole = table.select(names).take(np.arange(table.num_rows)).combine_chunks()
        columns = {name: whole.column(name).chunk(0) for name in names}
        if self._by_tokens:
            ids = table.column("ids").chunk(0)
            offsets = np.asarray(ids.offsets)
            values = np.asarray(ids.values)[offsets[0] : offsets[-1]]
            # Arrow writes whole words of 8 bytes, with what stands behind an odd number of ids.
            values = values.copy() if len(values) % 2 else values
            columns["ids"] = pa.ListArray.from_arrays(
                pa.array(offsets - offsets[0]), pa.array(values, pa.uint32()), type=ids.type
            )
        self._writer.write_batch(
            pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)
        )


class _Hashed:
    """A file that hashes what is written to it; what Arrow writes through."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.bytes = 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self._file.write(data)
        self.bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is named."""

    def close(self) -> None:
        """Do nothing: the file is closed when it is named."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def dropped_batch(rows: Sequence[Dropped]) -> Any:
    """Return dropped documents as a record batch."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [
            pa.array([one.record for one in rows], pa.int64()),
            pa.array([one.upstream for one in rows], pa.string()),
            pa.array([one.id for one in rows], pa.binary(16)),
            pa.array([one.stage for one in rows], pa.string()),
            pa.array([one.rule for one in rows], pa.string()),
            pa.array([one.value for one in rows], pa.string()),
        ],
        schema=dropped_schema(),
    )
