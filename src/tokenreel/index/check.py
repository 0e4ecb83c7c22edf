"""Whether an index directory is what its inputs give: every array, text and recorded fact, the first difference of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.index.arrays import first_difference, read_array
from tokenreel.index.files import Difference, differences
from tokenreel.index.files_order import ARRAYS, find_stems
from tokenreel.index.sidecar import replaced

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.index.files import IndexFiles
    from tokenreel.index.request import IndexRequest

LOOKED_AT = 1000
"""Documents of each corpus whose last id is compared with the EOD."""
NOT_INPUTS = ("hash", "source", "created_at", "doc_index_len", "total_samples")


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found, and how much it looked at."""

    differences: tuple[Difference, ...]
    files: int
    eod_documents: int | None
    """Documents whose last id was looked at; None where no EOD was given."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "same": not self.differences,
            "files": self.files,
            "eod_documents": self.eod_documents,
            "differences": [one.as_dict() for one in self.differences],
        }


def check_index(root: str | os.PathLike[str], request: IndexRequest, *, eod: int | None = None) -> Checked:
    """Build what the inputs give, in memory, and compare a directory with it.

    Where the files of these inputs are missing, those that are there are looked at, to say which input differs. Raises
    what `IndexRequest.sets` raises. Cost: building, and one read of the directory's files.
    """
    sets = request.sets()
    found = list(_all(root, sets))
    looked_at = None
    if eod is not None:
        looked_at = 0
        for prefix, corpus in request.corpora():
            count, wrong = eod_differences(prefix, corpus, eod)
            looked_at += count
            found += wrong
    return Checked(tuple(found), sum(len(files.arrays) + len(files.texts) for files in sets), looked_at)


def _all(root: str | os.PathLike[str], sets: Sequence[IndexFiles]) -> Iterator[Difference]:
    for files in sets:
        wrong = list(differences(root, [files]))
        absent = [one for one in wrong if one.code == "IDX001" and one.file in {files.path(n) for n in files.arrays}]
        if len(absent) == len(files.arrays):
            # No file of this index is there: what is, if anything, was asked for with other inputs.
            yield absent[0]
            yield from other_inputs(root, files)
        else:
            yield from wrong
        for name, data in files.notes.items():
            if name.endswith("-tokenreel.json"):
                yield from replaced(root, files.path(name), data)


def other_inputs(root: str | os.PathLike[str], files: IndexFiles) -> Iterator[Difference]:
    """Yield how the nearest index in a directory was asked for otherwise than these files."""
    folder = Path(root) / files.folder
    ours = next((data for name, data in _described(files)), None)
    ending = next((name for name, _ in _described(files)), "").rpartition("-")[2]
    best: list[Difference] = []
    for path in sorted(folder.glob(f"*-{ending}")) if ending and ours is not None else []:
        theirs = _object(path)
        if theirs is None or ours is None or theirs.get("class") != ours.get("class"):
            continue
        place = files.path(path.name)
        other = [
            Difference("IDX004", place, key, value, theirs.get(key))
            for key, value in ours.items()
            if key not in NOT_INPUTS and theirs.get(key) != value
        ]
        if other and (not best or len(other) < len(best)):
            best = other
    if best:
        yield from best
        return
    stems = find_stems(folder)
    if len(stems) == 1 and len(files.arrays) == len(ARRAYS):
        yield from _compared(folder, stems[0], files)


def _described(files: IndexFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, data in {**files.texts, **files.notes}.items():
        if name.endswith(("-description.txt", "-metadata.json")):
            yield name, json.loads(data)


def _object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _compared(folder: Path, stem: str, files: IndexFiles) -> Iterator[Difference]:
    """Yield how the only set of a directory, whose name says nothing, differs from these arrays."""
    for what, made in zip(ARRAYS, files.arrays.values(), strict=True):
        name = f"{stem}-{what}.npy"
        try:
            other = first_difference(read_array(folder / name), made)
        except FormatError as error:
            yield Difference(error.code, files.path(name), error.title, error.expected, error.found)
            continue
        if other is not None:
            yield Difference("IDX004", files.path(name), *other)


def eod_differences(prefix: str, corpus: Corpus, eod: int) -> tuple[int, list[Difference]]:
    """Return how many documents of a corpus were looked at, and the first whose last id is not `eod`."""
    count = len(corpus)
    looked_at = np.unique(np.linspace(0, max(0, count - 1), min(count, LOOKED_AT)).astype(np.int64))
    if count == 0:
        return 0, []
    table = corpus.table()
    begins, ends = table.offsets_at(looked_at), table.offsets_at(looked_at + 1)
    for document, begin, end in zip(looked_at.tolist(), begins.tolist(), ends.tolist(), strict=True):
        last = int(corpus.stream(end - 1, end)[0]) if end > begin else None
        if last is not None and last != eod:
            return len(looked_at), [Difference("IDX008", prefix, f"last id of document {document}", eod, last)]
    return len(looked_at), []
