"""Files as a source: JSON lines, Parquet and plain text, with the fields that gates, dedup and manifests ask for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tokenreel.build.blocks import InputBytes, stamp_of
from tokenreel.build.sources import plan_sources, read_records, settled_shape
from tokenreel.build.text_batches import InputFacts, SourceInput, TextBatch
from tokenreel.errors import SourceError
from tokenreel.hashing import sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenreel.build.blocks import Stamp
    from tokenreel.build.records import Records
    from tokenreel.build.text_batches import Place
    from tokenreel.config.mixed import MixedSourceTable


@dataclass(slots=True)
class FileSource:
    """The files that a table's patterns name, in byte order of their paths."""

    name: str
    table: MixedSourceTable
    place: Place
    columns: tuple[str, ...]
    _reading: _Reading | None = field(default=None, repr=False)

    def inputs(self) -> list[SourceInput]:
        """Return the files; raises what `plan_sources` raises."""
        planned = plan_sources([self.table], self.place.folder, patterns=self.place.patterns or None, extra=self._extra)
        return [SourceInput(path=one.path, key=one.location, bytes=stamp_of(one.location)[0]) for one in planned]

    def read(self, one: SourceInput, start: int = 0) -> Iterator[TextBatch]:
        """Yield the records of a file from record `start` on; raises what `read_records` raises."""
        shape = settled_shape(self.table, one.path, self._extra)
        file = InputBytes(one.key)
        reading = self._reading = _Reading(one.key, file, stamp_of(one.key))
        for records in read_records(file, shape, self.place.chunk_bytes):
            if records.first + len(records) > start or records.blank:
                yield batch_of(after(records, start), self.table, self.columns)
        reading.whole = True

    def facts(self, one: SourceInput) -> InputFacts:
        """Return size and hash of the file that was read last, whole even where its reading was ended early."""
        reading = self._reading
        if reading is None or reading.path != one.key:
            raise SourceError("SRC012", "asked for before it was read", path=one.path)
        # What was not read for its documents is read for its hash.
        sha256 = reading.file.sha256 if reading.whole else sha256_file(one.key)
        found = stamp_of(one.key)
        if found != reading.stamp:
            raise SourceError(
                "SRC012",
                path=one.path,
                expected=f"size, times, inode {reading.stamp}",
                found=str(found),
                hint="find what writes there, then run the build again",
            )
        return InputFacts(bytes=found[0], sha256=sha256, whole=reading.whole)

    def consumed(self, records: int) -> int:
        """Return about how many bytes of the file that is being read its first `records` took."""
        reading = self._reading
        if reading is None:
            return 0
        if reading.file.bytes:
            return reading.file.bytes
        from tokenreel.errors import require

        rows = require("pyarrow.parquet", extra="build").read_metadata(reading.path).num_rows
        return int(reading.stamp[0] * records / max(1, rows))

    @property
    def _extra(self) -> tuple[str, ...]:
        return extra_fields(self.table, self.columns)


@dataclass(slots=True)
class _Reading:
    """The file that was opened last."""

    path: str
    file: InputBytes
    stamp: Stamp
    whole: bool = False


def open_files(table: MixedSourceTable, place: Place, columns: Sequence[str]) -> FileSource:
    """Return the source of a table of kind ``files``."""
    return FileSource(table.name, table, place, tuple(columns))


def extra_fields(table: MixedSourceTable, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the fields that records must hand on besides text and id: for urls, metadata and gates."""
    url = [table.url] if table.url is not None else []
    return tuple(dict.fromkeys([*url, *table.metadata, *columns]))


def batch_of(records: Records, table: MixedSourceTable, columns: Sequence[str]) -> TextBatch:
    """Return records as a batch, with what a table keeps of them and the columns that gates look at."""
    found, url, kept = records.columns, table.url, table.metadata
    return TextBatch(
        texts=records.texts,
        first=records.first,
        upstream=records.ids,
        urls=None if url is None else [None if one is None else str(one) for one in found[url]],
        metadata=[{name: found[name][k] for name in kept} for k in range(len(records))] if kept else None,
        columns={name: found[name] for name in columns},
        lines=records.lines,
        explain=records.explain,
        blank=records.blank,
    )


def after(records: Records, start: int) -> Records:
    """Return the records from number `start` on."""
    skip = max(0, min(start - records.first, len(records)))
    if not skip:
        return records

    def cut(values: Any) -> Any:
        return None if values is None else values[skip:]

    return replace(
        records,
        texts=records.texts[skip:],
        first=records.first + skip,
        ids=cut(records.ids),
        sources=cut(records.sources),
        lines=cut(records.lines),
        columns={name: cut(values) for name, values in records.columns.items()},
    )
