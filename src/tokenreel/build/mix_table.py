"""All staged documents of a mix as one list: where each is, how long, and its ids and columns in any order asked for.

Documents are numbered in staged order: sources as the recipe has them, parts, rows. Parts stay mapped files; in memory
are 4 bytes a document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import RecipeError
from tokenreel.order.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.build.staging_parts import StagedPart
    from tokenreel.build.staging_run import StagedSource

    I32 = npt.NDArray[np.int32]
    I64 = npt.NDArray[np.int64]
    U32 = npt.NDArray[np.uint32]
    Chunk = tuple[int, U32, I32]

MOST = (1 << 31) - 1


@dataclass(slots=True, eq=False)
class Staged:
    """The documents of all staged parts."""

    names: tuple[str, ...]
    """Of sources."""
    begins: I64
    """First document of each source; one more than sources."""
    parts: tuple[StagedPart, ...]
    bases: I64
    """First document of each part; one more than parts."""
    lengths: I32
    """Stored tokens of each document: its ids and the boundary."""
    _tables: dict[int, Any] = field(default_factory=dict, repr=False)
    _chunks: dict[int, list[Chunk]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        """Return how many documents there are."""
        return len(self.lengths)

    def source_of(self, documents: npt.NDArray[Any]) -> I64:
        """Return the number of each document's source."""
        return np.searchsorted(self.begins, documents, side="right") - 1

    def part_of(self, documents: npt.NDArray[Any]) -> I64:
        """Return the number of each document's part among all parts."""
        return np.searchsorted(self.bases, documents, side="right") - 1

    def name_of(self, document: int) -> str:
        """Return ``INPUT#RECORD (SOURCE)`` of a document."""
        part = self.parts[int(self.part_of(np.array([document]))[0])]
        row = self.take(np.array([document]), ("record",)).column("record")[0].as_py()
        return f"{part.path}#{row} ({part.source})"

    def table(self, part: int) -> Any:
        """Return a part, mapped once."""
        found = self._tables.get(part)
        if found is None:
            found = self._tables[part] = self.parts[part].table()
        return found

    def stored(self, documents: npt.NDArray[Any], eod_id: int, *, lead: bool) -> tuple[U32, I64]:
        """Return (ids end to end, lengths) of documents in the order given, each with its end-of-text token, first or last."""
        lengths = self.lengths[documents].astype(np.int64)
        ends = np.cumsum(lengths)
        begins = ends - lengths
        out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint32)
        out[begins if lead else ends - 1] = eod_id
        places = begins + int(lead)
        numbers = self.part_of(documents)
        for part in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == part)
            rows = documents[mine].astype(np.int64) - self.bases[part]
            chunks = self._chunks_of(part)
            homes = np.searchsorted(np.array([first for first, _, _ in chunks]), rows, side="right") - 1
            for home in np.unique(homes).tolist():
                first, values, offsets = chunks[home]
                here = homes == home
                _copy(values, offsets, rows[here] - first, places[mine[here]], out)
        return out, lengths

    def take(self, documents: npt.NDArray[Any], columns: Sequence[str]) -> Any:
        """Return columns of documents in the order given, as a ``pyarrow.Table``."""
        import pyarrow as pa

        numbers = self.part_of(documents)
        tables, places = [], [np.empty(0, np.int64)]
        for part in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == part)
            rows = documents[mine].astype(np.int64) - self.bases[part]
            tables.append(self.table(part).select(list(columns)).take(pa.array(rows)))
            places.append(mine)
        if not tables:
            return self.table(0).select(list(columns)).slice(0, 0) if self.parts else pa.table({})
        order = np.empty(len(documents), np.int64)
        order[np.concatenate(places)] = np.arange(len(documents))
        return pa.concat_tables(tables).take(pa.array(order))

    def _chunks_of(self, part: int) -> list[Chunk]:
        found = self._chunks.get(part)
        if found is None:
            found, first = [], 0
            for chunk in self.table(part).column("ids").chunks:
                if len(chunk):
                    found.append((first, np.asarray(chunk.values), np.asarray(chunk.offsets)))
                    first += len(chunk)
            self._chunks[part] = found
        return found


def staged_of(sources: Sequence[StagedSource]) -> Staged:
    """Return the documents of staged sources. Raises `RecipeError` (RCP006) for 2**31 of them, `ManifestError` (MAN012)."""
    parts = tuple(part for source in sources for part in source.parts)
    counts = np.array([len(part) for part in parts], np.int64)
    bases = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    if bases[-1] > MOST:
        raise RecipeError("RCP006", "documents of one mix", expected=f"at most {MOST:,}", found=f"{int(bases[-1]):,}")
    sizes = np.array([sum(len(part) for part in source.parts) for source in sources], np.int64)
    lengths = np.empty(int(bases[-1]), np.int32)
    for number, part in enumerate(parts):
        lengths[bases[number] : bases[number + 1]] = part.lengths() + 1
    return Staged(
        names=tuple(source.name for source in sources),
        begins=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        parts=parts,
        bases=bases,
        lengths=lengths,
    )


@kernel("void(Array(uint32, 1, 'C', True), Array(int32, 1, 'C', True), int64[::1], int64[::1], uint32[::1])")
def _copy(values: Any, offsets: Any, rows: Any, places: Any, out: Any) -> None:
    for k in range(len(rows)):
        begin, at = offsets[rows[k]], places[k]
        for j in range(offsets[rows[k] + 1] - begin):
            out[at + j] = values[begin + j]
