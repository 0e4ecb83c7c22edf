"""Shadow mode: somebody's loader and a feed read side by side, until they differ or have been equal long enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenreel.errors import UsageError
from tokenreel.testing.exactly_once import array_of, labels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    import numpy.typing as npt

STEPS = 200


@dataclass(frozen=True, slots=True)
class Wrong:
    """The first label that differs."""

    step: int
    row: int
    column: int
    expected: int
    """What the feed has."""
    found: int
    """What the other loader has."""
    sample: int
    corpus: int
    """Number of the corpus among the feed's; -1 where the label is no stored token."""
    document: int
    offset: int
    """Of the label in its document."""

    def line(self) -> str:
        """Return where and what, in one line."""
        place = f"token {self.offset} of document {self.document} of corpus {self.corpus}"
        if self.corpus < 0:
            place = "no stored token"
        return (
            f"step {self.step}, row {self.row}, column {self.column} (sample {self.sample}): label {self.found}, "
            f"expected {self.expected}: {place}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare_loader` found."""

    steps: int
    """Steps that were equal."""
    wrong: Wrong | None = None
    ended: str = ""
    """Why it stopped early, where it did: a loader that ended, rows of another shape."""

    @property
    def equal(self) -> bool:
        """Whether nothing differed and one step at least was compared."""
        return self.wrong is None and not self.ended and self.steps > 0

    def line(self) -> str:
        """Return the result in one line: ``equal for 200 steps``, or the first wrong label and its document."""
        if self.wrong is not None:
            return self.wrong.line()
        return f"equal for {self.steps} steps" + (f"; {self.ended}" if self.ended else "")


def compare_loader(
    theirs: Iterable[Any],
    feed: Any,
    steps: int = STEPS,
    *,
    labels: Callable[[Any], Any] | None = None,
    masked: bool = True,
) -> Comparison:
    """Read `steps` batches of both and return how long their labels are equal, or the first wrong one and its document.

    `theirs` is any iterable of batches; `labels` takes one's labels out of it, an array of (rows, columns) of any
    framework (left out: ``labels``, ``targets``, the second of a pair, the batch itself). `feed` is a `Feed`. Labels
    that the feed masks are compared too unless ``masked=False``: a loader may hold anything there.
    """
    import numpy as np

    if steps < 1:
        raise UsageError("USE003", "steps", expected="1 or more", found=steps)
    take = labels or labels_of
    done = 0
    other = iter(theirs)
    for batch in feed:
        given = next(other, None)
        if given is None:
            return Comparison(done, ended=f"the loader ended after {done} steps")
        found, expected = array_of(take(given)), array_of(labels_of(batch))
        if found.shape != expected.shape:
            return Comparison(done, ended=f"step {batch.step} has shape {found.shape}, expected {expected.shape}")
        differs = found != expected
        if not masked and "loss_mask" in batch.arrays:
            differs &= array_of(batch.arrays["loss_mask"]) != 0
        if bool(differs.any()):
            row, column = (int(k) for k in np.argwhere(differs)[0])
            return Comparison(
                done, _wrong(batch, feed, row, column, int(expected[row, column]), int(found[row, column]))
            )
        done += 1
        if done == steps:
            return Comparison(done)
    return Comparison(done, ended=f"the feed ended after {done} steps")


def _wrong(batch: Any, feed: Any, row: int, column: int, expected: int, found: int) -> Wrong:
    corpus, document, offset = label_place(batch, feed, row, column)
    return Wrong(batch.step, row, column, expected, found, int(batch.samples[row]), corpus, document, offset)


def label_place(batch: Any, feed: Any, row: int, column: int) -> tuple[int, int, int]:
    """Return (corpus, document, offset in it) of the token that is the label at a column; (-1, -1, -1) for none.

    A label is the sample's next token: the input after it, or its look-ahead. Cost: the sample's extents, and a search
    for the document in each.
    """
    from tokenreel.spans import Flag

    table = batch.table
    low, high = int(table.splits[row]), int(table.splits[row + 1])
    at = 0
    for k in range(low, high):
        stored = int(table.length[k]) + (1 if table.flags[k] & Flag.AHEAD else 0)
        if column + 1 < at + stored:
            if table.flags[k] & Flag.PAD:
                break
            corpus = int(table.corpus[k])
            position = int(table.begin[k]) + column + 1 - at
            return corpus, *_document(feed.corpora[corpus], position)
        at += int(table.length[k])
    return -1, -1, -1


def _document(corpus: Any, position: int) -> tuple[int, int]:
    import numpy as np

    if not corpus.boundary.known:
        return 0, position
    table = corpus.table()
    where: npt.NDArray[np.int64] = np.array([position], dtype=np.int64)
    document = int(table.at_tokens(where)[0])
    return document, position - int(table.offsets_at(np.array([document]))[0])
