"""`nanogpt@1`: the windows that nanoGPT's ``get_batch`` draws: random places of one stream, with replacement.

Every rank has torch's CPU generator seeded ``1337 + rank``, and a row begins at ``torch.randint(tokens - T)``. There are no
epochs: some tokens come twice before others come at all. The generator is shared with whatever else draws from it, and all
of that decides the samples, so it has to be said: `skip`, the words drawn before the first batch (initialising the model;
the same on all ranks), and the evaluations, which rank 0 alone makes before the iterations that `eval_interval` divides.
torch draws one word a row, or two where the range is `wide` or more: 2**28 in torch of 2025 and later, 2**32 before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.ranges import CHUNK
from tokenreel.order.streams_rows import RowsOrder, hits_of
from tokenreel.order.streams_words import words

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.order.protocol import Hits
    from tokenreel.spans import CorpusKey, DocTable

    I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NanogptOrder(RowsOrder):
    """nanoGPT's training batches, one step per ``get_batch("train")`` of every rank; endless unless `steps` is given.

    With gradient accumulation an iteration is `accumulate` steps, and the first step is drawn before the first iteration.
    `eval_interval` 0 means that nothing is evaluated; otherwise `eval_iters` batches of the training and of the validation
    stream (of `eval_tokens` tokens) are drawn each time. A run resumed by nanoGPT draws from the start again:
    `first_iteration` is where it resumed. Raises `OrderError`: ORD002 for parameters out of range, ORD122 for a stream no
    longer than a row.

    >>> from tokenreel.spans import CorpusKey
    >>> NanogptOrder(CorpusKey("files", "00", 1, 1000), row_tokens=16, batch=4).spans(0, 4).begin.tolist()
    [391, 589, 476, 448]
    """

    key: CorpusKey
    row_tokens: int
    batch: int
    world: int = 1
    seed: int = 1337
    skip: int = 0
    accumulate: int = 1
    eval_interval: int = 0
    eval_iters: int = 0
    eval_tokens: int = 0
    first_iteration: int = 0
    wide: int = 1 << 28
    steps: int | None = None
    table: DocTable | None = field(default=None, repr=False, compare=False)
    """Needed by `locate` only."""

    name: ClassVar[str] = "nanogpt@1"

    def __post_init__(self) -> None:
        self._check_shape()
        if self.key.tokens <= self.row_tokens:
            raise OrderError("ORD122", expected=f"{self.row_tokens + 1} tokens or more", found=self.key.tokens)
        if not (self.seed >= 0 and self.seed + self.world <= 1 << 32):
            raise OrderError("ORD002", "seed", expected="0 .. 2**32 - world", found=self.seed)
        if self.wide not in (1 << 28, 1 << 32):
            raise OrderError("ORD002", "wide", expected="2**28 or 2**32", found=self.wide)
        for what, least in (
            ("skip", 0),
            ("accumulate", 1),
            ("eval_interval", 0),
            ("eval_iters", 0),
            ("first_iteration", 0),
            ("eval_tokens", self.row_tokens + 1 if self.eval_interval and self.eval_iters else 0),
        ):
            if getattr(self, what) < least:
                raise OrderError("ORD002", what, expected=f"{least} or more", found=getattr(self, what))

    @property
    def locate_cost(self) -> Literal["closed", "index", "scan"]:
        """Every sample of the range is drawn and looked at."""
        return "scan"

    def parameters(self) -> dict[str, object]:
        """Return what decides the samples; evaluations only as far as they draw."""
        evaluates = self.eval_interval > 0 and self.eval_iters > 0
        evaluation = [self.eval_interval, self.eval_iters, self._width(self.eval_tokens), self.accumulate]
        return {
            "batch": self.batch,
            "evaluation": [*evaluation, self.first_iteration % self.eval_interval] if evaluates else None,
            "row_tokens": self.row_tokens,
            "seed": self.seed,
            "skip": self.skip,
            "words": self._width(self.key.tokens),
            "world": self.world,
        }

    def _width(self, tokens: int) -> int:
        return 2 if tokens - self.row_tokens >= self.wide else 1

    def begins_at(self, samples: I64) -> I64:
        """Return the first token of each sample. Cost: 10 ns each; going back or far ahead, see `streams_words`."""
        step, within = samples // self.step_samples, samples % self.step_samples
        rank, row = within // self.batch, within % self.batch
        width = self._width(self.key.tokens)
        first = self.skip + (step * self.batch + row) * width + np.where(rank == 0, self._evaluated(step), 0)
        begins = np.empty_like(samples)
        for one in np.unique(rank).tolist():
            mine = rank == one
            source = words(self.seed + one)
            drawn = source.at(first[mine]).astype(np.uint64)
            if width == 2:
                drawn = (drawn << np.uint64(32)) | source.at(first[mine] + 1)
            begins[mine] = (drawn % np.uint64(self.key.tokens - self.row_tokens)).astype(np.int64)
        return begins

    def _evaluated(self, step: I64) -> I64:
        """Return the words that evaluations had drawn before each step, on rank 0."""
        if not self.eval_interval:
            return np.zeros_like(step)
        widths = self._width(self.key.tokens) + self._width(self.eval_tokens)
        iteration = self.first_iteration + (step - 1) // self.accumulate
        made = iteration // self.eval_interval - (self.first_iteration - 1) // self.eval_interval
        return np.where(step == 0, 0, made) * (self.eval_iters * self.batch * widths)

    def locate(self, corpus: int, documents: npt.ArrayLike, lo: int, hi: int) -> Hits:
        """Return where documents occur among samples [lo, hi), by document as asked, then by sample; draws them all."""
        docs, begin, end = self._runs(corpus, documents, lo, hi)
        runs, samples, begins = [docs[:0]], [docs[:0]], [docs[:0]]
        for first in range(lo, hi, CHUNK):
            sample = np.arange(first, min(hi, first + CHUNK), dtype=np.int64)
            row_begin = self.begins_at(sample)
            by_begin = np.argsort(row_begin, kind="stable")
            ordered = row_begin[by_begin]
            low = np.searchsorted(ordered, begin - self.row_tokens, side="right")
            count = np.where(end > begin, np.searchsorted(ordered, end, side="left") - low, 0)
            run = np.repeat(np.arange(len(docs), dtype=np.int64), count)
            at = by_begin[low[run] + np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)]
            runs.append(run)
            samples.append(sample[at])
            begins.append(row_begin[at])
        columns = [np.concatenate(parts) for parts in (runs, samples, begins)]
        return hits_of(docs, begin, end, columns, self.row_tokens)
