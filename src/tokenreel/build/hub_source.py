"""Data sets of the hub as a source: files of one commit, pulled in order and no further than they are read.

JSON lines and text are streamed by ranges. A Parquet file is read from its end, so it is pulled whole, to a temporary
that goes when its reader is closed. Files in the hub's local cache are read there. ``HF_ENDPOINT``, ``HF_TOKEN`` and
``HF_HUB_OFFLINE`` mean what they mean elsewhere.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.build.blocks import InputBytes, stamp_of
from tokenreel.build.file_source import after, batch_of, extra_fields
from tokenreel.build.hub_source_bytes import LocalRanges, PulledBytes, pulled, remote
from tokenreel.build.hub_source_files import cached_file, find_files, repo_of
from tokenreel.build.sources import read_records, settled_shape
from tokenreel.build.text_batches import InputFacts, SourceInput
from tokenreel.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenreel.build.records import Records, SourceShape
    from tokenreel.build.text_batches import Place, TextBatch
    from tokenreel.config.mixed import MixedSourceTable
    from tokenreel.store.http import HttpReader


@dataclass(slots=True)
class HubSource:
    """The files of a data set that a table's patterns name, in byte order of their paths."""

    name: str
    table: MixedSourceTable
    place: Place
    columns: tuple[str, ...]
    _reading: _Reading | None = field(default=None, repr=False)

    def inputs(self) -> list[SourceInput]:
        """Return the files at the commit that the revision is now; raises what `find_files` raises."""
        found = find_files(self.table)
        return [
            SourceInput(
                path=f"hf://datasets/{found.repo}@{found.commit}/{file.path}",
                key=f"{found.commit}/{file.path}",
                bytes=file.bytes,
                sha256=file.sha256,
            )
            for file in found.files
        ]

    def read(self, one: SourceInput, start: int = 0) -> Iterator[TextBatch]:
        """Yield the records of a file from record `start` on.

        Records before `start` are pulled and passed over: nobody can say at which byte a record begins. Raises what
        `read_records` raises, and `StorageError` (SRC050, SRC051, STO002) or `SourceError` (SRC052) naming source and file.
        """
        repo, (commit, _, file) = repo_of(self.table), one.key.partition("/")
        extra = extra_fields(self.table, self.columns)
        shape = settled_shape(self.table, one.path, extra)
        with contextlib.ExitStack() as stack:
            local = cached_file(repo, commit, file)
            ranges: HttpReader | LocalRanges = (
                remote(repo, commit, file, one.bytes) if local is None else LocalRanges(local)
            )
            stack.callback(ranges.close)
            pulling = PulledBytes(one.path, one.bytes, self.name, ranges)
            reading = self._reading = _Reading(one, pulling)
            for records in self._records(stack, pulling, shape, one):
                if records.first + len(records) > start or records.blank:
                    yield batch_of(after(records, start), self.table, self.columns)
            pulling.check_published(one.sha256)
            reading.whole = True

    def facts(self, one: SourceInput) -> InputFacts:
        """Return how much of the file was pulled, its hash if all of it was or the hub publishes it, and the place."""
        reading = self._reading
        if reading is None or reading.one != one:
            raise SourceError("SRC012", "asked for before it was read", path=one.path)
        pulling = reading.pulling
        commit, _, file = one.key.partition("/")
        all_of_it = pulling.bytes == one.bytes
        return InputFacts(
            bytes=pulling.bytes,
            sha256=pulling.sha256 if all_of_it else one.sha256,
            whole=reading.whole,
            position={"repo": repo_of(self.table), "revision": commit, "file": file, "byte": pulling.bytes},
        )

    def _records(
        self, stack: contextlib.ExitStack, pulling: PulledBytes, shape: SourceShape, one: SourceInput
    ) -> Iterator[Records]:
        if shape.format != "parquet":
            return read_records(pulling, shape, self.place.chunk_bytes)
        folder = Path(self.place.cache or tempfile.gettempdir())
        whole = stack.enter_context(pulled(pulling, folder, one.sha256))
        return read_records(InputBytes(whole, stamp_of(whole)), shape, self.place.chunk_bytes)


@dataclass(slots=True)
class _Reading:
    """The file that was opened last."""

    one: SourceInput
    pulling: PulledBytes
    whole: bool = False


def open_hub(table: MixedSourceTable, place: Place, columns: Sequence[str]) -> HubSource:
    """Return the source of a table of kind ``hub``; nothing is asked yet."""
    return HubSource(table.name, table, place, tuple(columns))
