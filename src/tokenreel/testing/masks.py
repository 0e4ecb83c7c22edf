"""Does a model see only what it may? One document is changed, and no other document's outputs or loss terms may move.

A mask that a kernel ignores raises no error: training goes on, and every row leaks between documents. The probe asks the
model itself, whatever framework it is written in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tokenreel.errors import UsageError
from tokenreel.testing.exactly_once import array_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import numpy.typing as npt

    from tokenreel.spans import SpanTable

    I64 = npt.NDArray[np.int64]

PADDING = 0
"""Number of padding in a map of documents; documents count from 1 in each row."""


@dataclass(frozen=True, slots=True)
class Leak:
    """One position that moved although its document was not touched."""

    what: Literal["output", "loss"]
    row: int
    column: int
    document: int
    """Of the position that moved, counted in its row from 1."""
    changed: int
    """The document whose tokens were changed; 0 is padding."""
    by: float

    def line(self) -> str:
        """Return the leak in words."""
        cause = f"document {self.changed}" if self.changed else "padding"
        place = f"row {self.row}, column {self.column}, document {self.document}"
        return f"{self.what} at {place} moved by {self.by:.3g} when {cause} was changed"


@dataclass(frozen=True, slots=True)
class MaskReport:
    """What `mask_probe` found."""

    documents: int
    """Documents that were changed, one at a time."""
    leaks: tuple[Leak, ...]
    """The position that moved most for each pair of documents, outputs before loss terms."""
    blind: tuple[tuple[int, int], ...]
    """(row, document) whose change moved nothing at all, not even its own outputs: the probe cannot see there."""
    noise: float
    """By how much outputs differ between two runs on the same rows."""

    @property
    def holds(self) -> bool:
        """Whether documents were changed, each moved itself, and none moved another."""
        return self.documents > 0 and not self.leaks and not self.blind

    def lines(self) -> list[str]:
        """Return one line a leak, or the one that says that there is none."""
        lines = [leak.line() for leak in self.leaks]
        lines += [f"row {row}, document {document}: its change moved nothing" for row, document in self.blind]
        return lines or [f"{self.documents} documents changed, none moved another"]


def mask_probe(
    model: Callable[[dict[str, Any]], Any],
    rows: Mapping[str, npt.NDArray[Any]],
    *,
    vocab: int,
    documents: npt.NDArray[np.integer[Any]] | None = None,
    tolerance: float = 0.0,
    seed: int = 0,
) -> MaskReport:
    """Return whether a model keeps the documents of a batch apart.

    `model` takes arrays named as in `rows` (one array each, (rows, columns) or as the batch has them) and returns outputs
    of shape (rows, columns, ...), or a pair (outputs, loss terms of shape (rows, columns)). `rows` holds ``input_ids``
    (or ``tokens``, ``inputs``) and whatever the model reads: ``labels``, ``loss_mask``, ``segment_ids``, ``position_ids``.
    `documents` says which document each input belongs to (from 1, 0 is padding; see `document_map`): left out, it is
    ``segment_ids``, which says nothing about masks that were never made. A document is changed by giving each of its
    tokens another id below `vocab`, as input and as label. What moves by more than `tolerance` and the noise of two equal
    runs is a leak: an output, or a loss term that is not masked.

    Raises `UsageError` (USE003) where rows lack inputs or documents, or the model returns something else. Cost: one run of
    the model for every document, and two more.
    """
    import numpy as np

    name = next((known for known in ("input_ids", "tokens", "inputs") if known in rows), None)
    if name is None:
        raise UsageError("USE003", "rows", expected="input_ids, tokens or inputs", found=", ".join(rows))
    where = rows.get("segment_ids", rows.get("inputs_segmentation")) if documents is None else documents
    if where is None:
        raise UsageError("USE003", "rows", expected="segment_ids, or documents=", found=", ".join(rows))
    numbers = np.asarray(where, dtype=np.int64)
    inputs = np.asarray(rows[name])
    if numbers.shape != inputs.shape or inputs.ndim != 2:
        raise UsageError("USE003", "documents", expected=f"shape {inputs.shape}", found=f"shape {numbers.shape}")
    first, again = _run(model, rows, inputs.shape), _run(model, rows, inputs.shape)
    noise = max((float(_moved(a, b).max(initial=0.0)) for a, b in zip(first, again, strict=True)), default=0.0)
    limit = max(tolerance, noise)
    random = np.random.default_rng(seed)
    leaks: list[Leak] = []
    blind: list[tuple[int, int]] = []
    changed = 0
    for row in range(len(inputs)):
        for document in np.unique(numbers[row]).tolist():
            touched = np.zeros(inputs.shape, dtype=bool)
            touched[row] = numbers[row] == document
            found = _run(model, _changed(rows, name, touched, vocab, random), inputs.shape)
            moved = [_moved(a, b) for a, b in zip(first, found, strict=True)]
            for what, by in zip(("output", "loss"), moved, strict=False):
                leaks += _leaks(what, by, numbers, (row, document), limit)  # type: ignore[arg-type]
            if document != PADDING:
                changed += 1
                if not bool((moved[0][touched] > limit).any()):
                    blind.append((row, document))
    leaks.sort(key=lambda leak: (leak.what != "output", -leak.by))
    return MaskReport(changed, tuple(leaks), tuple(blind), noise)


def document_map(table: SpanTable, columns: int) -> I64:
    """Return (samples, `columns`) numbers of the documents that inputs belong to, from 1 in each row; 0 is padding.

    `table` is resolved (`corpus.resolve.resolve`): a batch's extents as they stand may cover several documents.

    >>> from tokenreel.spans import SpanTable
    >>> table = SpanTable.of([0, 2], [0, 7], [2, 3], document=[4, 9], start=[0, 0])
    >>> document_map(table, 6).tolist()
    [[1, 1, 2, 2, 2, 0]]
    """
    import numpy as np

    from tokenreel.spans import UNRESOLVED, Flag

    stored = (table.flags & Flag.PAD) == 0
    if bool((table.document[stored] == UNRESOLVED).any()):
        raise UsageError("USE003", "table", expected="a resolved table", found="extents of unknown documents")
    out = np.zeros((table.samples, columns), dtype=np.int64)
    for sample in range(table.samples):
        column, number, last = 0, 0, (-1, -1)
        for k in range(int(table.splits[sample]), int(table.splits[sample + 1])):
            length = int(table.length[k])
            if length and not table.flags[k] & Flag.PAD:
                here = int(table.corpus[k]), int(table.document[k])
                # A document that comes again later in the row, or starts anew, is another one to the model.
                if here != last or table.flags[k] & Flag.HEAD:
                    number += 1
                last = here
                out[sample, column : column + length] = number
            column += length
    return out


def _run(model: Callable[[dict[str, Any]], Any], rows: Mapping[str, Any], shape: tuple[int, ...]) -> list[Any]:
    """Return the model's outputs, and its loss terms where it gives them, as float64."""
    import numpy as np

    # A model may write into what it is given.
    given = model({key: np.array(value) for key, value in rows.items()})
    both = list(given) if isinstance(given, tuple | list) else [given]
    made = [array_of(one).astype(np.float64) for one in both[:2]]
    for one, rank in zip(made, (None, 2), strict=False):
        if one.shape[:2] != shape[:2] or (rank is not None and one.ndim != rank):
            found = f"shape {one.shape}"
            raise UsageError("USE003", "the model", expected=f"({shape[0]}, {shape[1]}, ...)", found=found)
    if len(made) == 2 and (mask := rows.get("loss_mask")) is not None:
        made[1] = np.where(np.asarray(mask) != 0, made[1], 0.0)
    return made


def _moved(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return by how much each position moved, NaN taken for a value like any other."""
    import numpy as np

    with np.errstate(invalid="ignore"):
        by = np.where(before == after, 0.0, np.abs(before - after))
    by = np.where(np.isnan(before) & np.isnan(after), 0.0, np.where(np.isnan(by), np.inf, by))
    most: npt.NDArray[np.float64] = by.reshape(*by.shape[:2], -1).max(axis=2, initial=0.0)
    return most


def _changed(
    rows: Mapping[str, Any], name: str, touched: npt.NDArray[np.bool_], vocab: int, random: np.random.Generator
) -> dict[str, Any]:
    """Return the rows with every touched token another one, where it is an input and where it is a label."""
    import numpy as np

    out = dict(rows)
    shift = random.integers(1, vocab, size=touched.shape)
    inputs = np.asarray(rows[name])
    out[name] = np.where(touched, (inputs + shift) % vocab, inputs).astype(inputs.dtype)
    for known in ("labels", "targets"):
        if known in rows:
            labels = np.asarray(rows[known])
            # A label is the next input; the last one belongs to the document its input belongs to.
            here = np.concatenate((touched[:, 1:], touched[:, -1:]), axis=1) & (labels >= 0)
            moved = np.concatenate((shift[:, 1:], shift[:, -1:]), axis=1)
            out[known] = np.where(here, (labels + moved) % vocab, labels).astype(labels.dtype)
    return out


def _leaks(
    what: Literal["output", "loss"], by: npt.NDArray[np.float64], numbers: I64, at: tuple[int, int], limit: float
) -> list[Leak]:
    """Return the worst position of every document that moved although `at` was changed."""
    import numpy as np

    row, document = at
    found = []
    untouched = (by > limit) & (numbers != PADDING)
    untouched[row] &= numbers[row] != document
    for other in np.flatnonzero(untouched.any(axis=1)).tolist():
        for one in np.unique(numbers[other][untouched[other]]).tolist():
            mine = np.where(untouched[other] & (numbers[other] == one), by[other], -1.0)
            column = int(mine.argmax())
            found.append(Leak(what, other, column, one, document, float(mine[column])))
    return found
