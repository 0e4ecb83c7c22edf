"""Save the row groups of a Parquet file that can be read; a file without its footer holds nothing that can be found."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.convert.repair_indexed import Rebuilt, beyond
from tokenreel.errors import FormatError, TokenreelError, require
from tokenreel.formats.base import Found
from tokenreel.formats.parquet import lists_of, opened
from tokenreel.formats.parquet_footer import Footer, check_pages, read_footer
from tokenreel.store.atomic import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.convert.repair_indexed import Wish
    from tokenreel.store import Store
    from tokenreel.store.base import Reader


def rebuild(store: Store, found: Found, wish: Wish) -> Rebuilt:  # noqa: ARG001
    """Return the row groups that can be read, with all their columns.

    Raises `FormatError` (FLT020) for a file without a footer: it stands at the end and says where everything is.
    """
    path = found.files[0]
    reader = store.reader(path)
    try:
        try:
            footer = read_footer(reader)
        except FormatError as error:
            why = (
                "its footer, the last thing in a Parquet file, is gone or damaged: nothing else says where its rows are"
            )
            raise beyond(found, why, "the file once more, from where it came") from error
        whole, lost_rows, lost_ids = [], 0, 0
        documents = tokens = 0
        digest = hashlib.sha256()
        for group, chunk in enumerate(footer.chunks):
            ids = _ids(reader, footer, group)
            if ids is None:
                lost_rows += chunk.rows
                lost_ids += chunk.values if chunk.tokens is None else chunk.tokens
                continue
            whole.append(group)
            documents, tokens = documents + chunk.rows, tokens + len(ids)
            digest.update(ids.data.cast("B"))
        changes = (f"{len(footer.chunks) - len(whole)} of {len(footer.chunks)} row groups cannot be read: left out",)

        def write(out: Path) -> None:
            _write(store, path, footer, whole, out)

        shard = Found("parquet", found.name, (path,))
        return Rebuilt(shard, {}, changes, lost_rows, lost_ids, (documents, tokens), write, digest.hexdigest())
    finally:
        reader.close()


def _ids(reader: Reader, footer: Footer, group: int) -> npt.NDArray[Any] | None:
    """Return the ids of a row group all of whose columns can be read, else None."""
    pa = require("pyarrow", extra="build")
    chunk = footer.chunks[group]
    try:
        check_pages(reader, chunk, 8)
        table = _group(reader, footer, group)
        parts = [lists_of(column, reader.path, 0)[1] for column in table.column(footer.column).chunks]
    except (TokenreelError, pa.ArrowException, OSError, OverflowError, UnicodeDecodeError):
        return None
    ids = np.concatenate([*parts, np.zeros(0, parts[0].dtype if parts else np.int32)])
    return ids if table.num_rows == chunk.rows and chunk.tokens in (None, len(ids)) else None


def _group(reader: Reader, footer: Footer, group: int) -> Any:
    return opened(reader, frozenset()).read_row_group(group, use_threads=False) if footer.column else None


def _write(store: Store, path: str, footer: Footer, groups: list[int], out: Path) -> None:
    parquet = require("pyarrow.parquet", extra="build")
    reader = store.reader(path)
    target = out / path
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = opened(reader, frozenset())
        packed = file.metadata.row_group(0).column(0).compression.lower()
        options: Any = {"compression": "none" if packed == "uncompressed" else packed, "write_page_checksum": True}
        with atomic_write(target) as sink, parquet.ParquetWriter(sink, file.schema_arrow, **options) as writer:
            for group in groups:
                writer.write_table(_group(reader, footer, group))
    finally:
        reader.close()
