"""MaxText's arithmetic before anything is shuffled: splits, epochs, sample counts, evaluation rounds, rows of hosts.

Its epochs are Megatron's (`megatron_plan`), over documents in place of sequences. Its split strings are its own: any
number of shares between commas. Everything here is exact and O(1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import OrderError, UsageError
from tokenreel.order.megatron_plan import EpochPlan

if TYPE_CHECKING:
    import numpy.typing as npt

TRAIN, EVAL = 0, 1
"""The split numbers that training and evaluation read where `mmap_npy_split` is set."""


# ---- splits --------------------------------------------------------------------------------------------------------


def split_shares(text: str) -> tuple[float, ...]:
    """Return the shares of an `mmap_npy_split` string, as written.

    Raises `UsageError` (ORD072) for what MaxText takes and makes nonsense of (negative shares), or fails on later.

    >>> split_shares(" 99 , 1 ")
    (99.0, 1.0)
    """
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError("ORD072", expected="numbers between commas, such as 99,1", found=repr(text)) from error
    if not all(0 <= share < math.inf for share in shares) or not 0 < sum(shares) < math.inf:
        raise UsageError("ORD072", expected="finite shares of 0 or more, one of them above 0", found=repr(text))
    return shares


def split_range(text: str, index: int, documents: int) -> tuple[int, int]:
    """Return the documents [first, end) of split number `index`; an empty `text` is no split, whatever the index.

    Shares are normalised, added up from the left and rounded half to even. Raises `UsageError`: ORD072 for the string,
    ORD073 for an index that it does not have. The range may be empty: see `plan_npy`.

    >>> split_range("99,1", 1, 333), split_range("", 0, 333)
    ((330, 333), (0, 333))
    """
    if not text:
        return 0, documents
    shares = split_shares(text)
    if not 0 <= index < len(shares):
        raise UsageError("ORD073", expected=f"0 .. {len(shares) - 1}", found=index)
    total = sum(shares)
    edges = [0.0]
    for share in shares:
        edges.append(edges[-1] + share / total)
    return round(edges[index] * documents), round(edges[index + 1] * documents)


# ---- epochs and samples --------------------------------------------------------------------------------------------


def plan_npy(
    documents: int,
    tokens: int,
    row_tokens: int,
    *,
    samples: int | None = None,
    epochs: int | None = None,
    num_epoch: int = 1,
    row_ahead: int = 1,
) -> EpochPlan:
    """Return the plan for a split of `documents` documents and `tokens` tokens.

    One of `samples` (a run's steps x batch) and `epochs` (the builder's ``--num-epochs``) is given, or neither: then the
    samples are `num_epoch` times those that fit in one epoch, as in a run without steps. The plan's own `samples` are
    all of its epochs, at least as many as asked. Raises `OrderError`: ORD074 for a split without documents, ORD075
    without tokens, ORD077 for fewer tokens than one sample takes, ORD002 for parameters; `UsageError` (ORD078) for both.

    >>> plan_npy(37, 1257, 8, samples=62)
    EpochPlan(tokens=1257, epochs=1, separate=False, before_last=0, samples=157)
    """
    if samples is not None and epochs is not None:
        raise UsageError("ORD078", "samples and epochs", expected="one of them", found="both")
    for name, value in (("samples", samples), ("epochs", epochs), ("num_epoch", num_epoch)):
        if value is not None:
            _positive(name, value)
    if not 1 <= row_tokens < (1 << 31) - 1 or row_ahead not in (0, 1):
        raise UsageError("ORD002", "row_tokens", expected="1 .. 2**31 - 2, look-ahead 0 or 1", found=row_tokens)
    if documents == 0:
        raise OrderError("ORD074", expected="at least one document", found=0)
    if tokens == 0:
        raise OrderError("ORD075", expected="tokens", found=f"{documents} empty documents")
    if samples is None:
        one_epoch = max(0, tokens - row_ahead) // row_tokens
        samples = one_epoch * num_epoch if epochs is None else (epochs * tokens - row_ahead) // row_tokens
    if epochs is None:
        epochs = max(1, -(-(samples * row_tokens + row_ahead) // tokens))
    before_last = max(0, (epochs - 1) * tokens - row_ahead) // row_tokens
    per_epoch = (tokens - row_ahead) // row_tokens
    separate = epochs > 1 and samples - before_last < int(0.80 * per_epoch)
    total = (epochs * tokens - row_ahead) // row_tokens
    if total < 1:
        expected = f"{row_tokens + row_ahead} tokens for one sample"
        raise OrderError("ORD077", expected=expected, found=f"{tokens} in {epochs} epochs")
    return EpochPlan(tokens, epochs, separate, before_last, total)


def check_counts(samples: int | None, epochs: int | None) -> None:
    """Raise `UsageError` (ORD078) unless the offline builder is given one of ``--num-samples`` and ``--num-epochs``."""
    if (samples is None) == (epochs is None):
        found = "neither" if samples is None else "both"
        raise UsageError("ORD078", "--num-samples, --num-epochs", expected="one of them", found=found)


# ---- what a run asks for -------------------------------------------------------------------------------------------


def train_samples(steps: int, batch: int) -> int | None:
    """Return the samples a training run asks for: steps x global batch, None where it has no steps.

    >>> train_samples(1000, 1024), train_samples(-1, 8)
    (1024000, None)
    """
    _positive("global_batch_size_to_load", batch)
    return steps * batch if steps > 0 else None


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """What evaluation asks for and what it reads."""

    samples: int | None
    """Sizes the index: rounds x `eval_steps` x the evaluation batch; None is one epoch."""
    rounds: int
    batch: int
    """Rows of a global evaluation batch. (MaxText takes the training run's rows per host; that is not copied.)"""
    eval_steps: int

    def range(self, round_: int) -> tuple[int, int | None]:
        """Return the samples [first, end) that a round reads: always the first, because the iterator is reset.

        An end of None is all samples. Raises `OrderError` (ORD001) for a round that the run does not have.
        """
        if not 0 <= round_ < self.rounds:
            raise OrderError("ORD001", "evaluation round", expected=f"0 .. {self.rounds - 1}", found=round_)
        return 0, self.eval_steps * self.batch if self.eval_steps > 0 else None


def eval_plan(steps: int, eval_interval: int, eval_steps: int, batch: int) -> EvalPlan:
    """Return what evaluation asks for: ceil(steps / interval) rounds, one where there are no steps or no interval.

    >>> eval_plan(1000, 300, 5, 16)
    EvalPlan(samples=320, rounds=4, batch=16, eval_steps=5)
    """
    _positive("global_batch_size_to_load_eval", batch)
    rounds = -(-steps // eval_interval) if steps > 0 and eval_interval > 0 else 1
    return EvalPlan(rounds * eval_steps * batch if eval_steps > 0 else None, rounds, batch, eval_steps)


@dataclass(frozen=True, slots=True)
class StridedRows:
    """MaxText's placement: of a global batch, host h of H has rows h, h + H, h + 2H, ...

    Together the hosts read samples [step x batch, (step + 1) x batch), as Megatron's ranks do, in another order of rows.
    Raises `OrderError` (ORD002) unless the hosts divide the batch.

    >>> StridedRows(batch=8, hosts=2).samples(host=1, step=3)
    array([25, 27, 29, 31])
    """

    batch: int
    hosts: int

    def __post_init__(self) -> None:
        _positive("hosts", self.hosts)
        _positive("batch", self.batch)
        if self.batch % self.hosts:
            raise OrderError("ORD002", "batch", expected=f"a multiple of {self.hosts} hosts", found=self.batch)

    def samples(self, host: int, step: int) -> npt.NDArray[np.int64]:
        """Return the samples of a host's rows at a step, in their order."""
        if not (0 <= host < self.hosts and step >= 0):
            raise OrderError("ORD001", expected=f"host 0 .. {self.hosts - 1}, step 0 or more", found=(host, step))
        return np.arange(step * self.batch + host, (step + 1) * self.batch, self.hosts, dtype=np.int64)

    def place(self, sample: int) -> tuple[int, int, int]:
        """Return (step, host, row of that host) of a sample.

        >>> StridedRows(8, 2).place(27)
        (3, 1, 1)
        """
        step, left = divmod(sample, self.batch)
        return step, left % self.hosts, left // self.hosts

    def count(self, host: int, length: int) -> int:
        """Return how many of the first `length` samples are a host's: hosts may differ by one."""
        return max(0, -(-(length - host) // self.hosts))


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise UsageError("ORD002", name, expected="1 or more", found=value)
