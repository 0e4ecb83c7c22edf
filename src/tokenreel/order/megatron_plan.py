"""Megatron's arithmetic before anything is shuffled: split strings, epochs, the separate last epoch, sample counts.

Everything is exact and O(1). Where Megatron would loop for ever, abort or misread what it was given, these functions
raise; `compat` names the quirks to keep instead, for runs that were made with them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import OrderError

if TYPE_CHECKING:
    from collections.abc import Collection

Bounds = tuple[float, float]

SPLITS = ("train", "valid", "test")
COMPAT = {
    "blend-list": "a list of prefixes that starts with a number and has no weights is taken as prefixes",
    "float32-tail": "the samples of a kept partial tail are counted in single precision, even where that miscounts",
    "ndebug": "a split of one token or none gives no samples, as in a build without assertions",
    "split-text": "a split string may hold anything; its numbers are its runs of digits and dots",
    "uneven-ranks": "cyclic sampling without data sharding may give ranks different numbers of batches",
}
"""Quirks of Megatron that are reproduced only when named."""


def check_compat(compat: Collection[str]) -> frozenset[str]:
    """Return the quirks as a set; raises `OrderError` (ORD002) for one that does not exist.

    >>> sorted(check_compat(["ndebug"]))
    ['ndebug']
    """
    unknown = sorted(set(compat) - set(COMPAT))
    if unknown:
        raise OrderError("ORD002", "compat", expected=f"some of {', '.join(COMPAT)}", found=unknown[0])
    return frozenset(compat)


# ---- splits --------------------------------------------------------------------------------------------------------


def split_weights(text: str, *, compat: Collection[str] = ()) -> tuple[float, float, float]:
    """Return a split string as three shares that sum to one; missing ones are 0.

    Raises `OrderError` (ORD010) for more than three numbers, none above zero, or text that is not numbers and
    separators: Megatron takes "1e-3" for 1 and 3.

    >>> split_weights("969, 30, 1")
    (0.969, 0.03, 0.001)
    """
    odd = re.search(r"[^\d.,/|:; \t]", text)
    if odd and "split-text" not in check_compat(compat):
        raise OrderError("ORD010", expected="numbers and separators", found=f"{odd[0]!r} in {text!r}")
    try:
        values = [float(run) for run in re.findall(r"[.0-9]+", text)]
    except ValueError as error:
        raise OrderError("ORD010", str(error), expected="at most three numbers", found=repr(text)) from error
    if len(values) > len(SPLITS) or not sum(values) > 0:
        raise OrderError("ORD010", expected="one to three numbers, one of them above 0", found=repr(text))
    array = np.array(values + [0.0] * (len(SPLITS) - len(values)), dtype=np.float64)
    train, valid, test = (array / np.sum(array)).tolist()
    return train, valid, test


def split_bounds(weights: tuple[float, ...], other: tuple[float, ...] | None = None) -> tuple[Bounds | None, ...]:
    """Return the bounds of each split in 0 .. 1, added from the left as floats; None for one of share 0.

    With two sets of shares, each split is what both give it. The very first bound is the integer 0: it is printed so
    in Megatron's cache descriptions.

    >>> split_bounds((0.8, 0.15, 0.05))
    ((0, 0.8), (0.8, 0.9500000000000001), (0.9500000000000001, 1.0))
    """
    out: list[Bounds | None] = []
    for (low, high), (low_2, high_2) in zip(_bookends(weights), _bookends(other or weights), strict=True):
        low, high = max(low, low_2), min(high, high_2)  # noqa: PLW2901
        out.append((low, high) if high > low else None)
    return tuple(out)


def _bookends(weights: tuple[float, ...]) -> list[Bounds]:
    edges: list[float] = [0]
    for weight in weights:
        edges.append(edges[-1] + weight)
    return list(pairwise(edges))


def split_range(bounds: Bounds, sequences: int) -> tuple[int, int]:
    """Return the sequences [first, last) of a split of `sequences`, rounded half to even.

    >>> [split_range(b, 50) for b in split_bounds(split_weights("99,1,0")) if b]
    [(0, 50), (50, 50)]
    """
    return round(bounds[0] * float(sequences)), round(bounds[1] * float(sequences))


# ---- epochs and samples --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """How often a split is read and into how many samples: all that Megatron's shuffles depend on, seed apart."""

    tokens: int
    """Stored tokens of one epoch."""
    epochs: int
    separate: bool
    """Whether the last epoch is shuffled on its own."""
    before_last: int
    """Samples wholly inside the epochs before the last; what the first of two shuffles covers."""
    samples: int
    """Samples of the order: whole epochs, usually more than were asked for."""


def plan_epochs(
    tokens: int,
    row_tokens: int,
    samples: int | None,
    *,
    row_ahead: int = 1,
    keep_partial: bool = False,
    compat: Collection[str] = (),
    split: str = "",
) -> EpochPlan:
    """Return the plan for `samples` samples (None: one epoch) of a split of `tokens` tokens; exact, O(1).

    The last epoch is separate when it gives fewer than 0.8 of an epoch's samples. `keep_partial` keeps the samples' short
    tail; Megatron counts them in single precision then. Raises `OrderError`: ORD002 for parameters, ORD011 for a
    split with too few tokens (Megatron loops or aborts), ORD012 where single precision miscounts.

    >>> plan_epochs(6452, 32, 360)
    EpochPlan(tokens=6452, epochs=2, separate=True, before_last=201, samples=403)
    >>> plan_epochs(6452, 32, 361).separate
    False
    """
    quirks = check_compat(compat)
    if not 1 <= row_tokens < (1 << 31) - row_ahead or row_ahead not in (0, 1):
        raise OrderError("ORD002", "row_tokens", expected="1 .. 2**31 - 2, look-ahead 0 or 1", found=row_tokens)
    if tokens < 0 or (samples is not None and samples < 0):
        raise OrderError("ORD002", "samples", expected="0 or more", found=samples)
    if (tokens <= 1 and "ndebug" not in quirks) or (tokens == 0 and samples is not None):
        raise OrderError("ORD011", f"split {split}" if split else "", expected="two tokens or more", found=tokens)
    wanted = 0 if samples is None else samples * row_tokens + row_ahead
    epochs = max(1, -(-wanted // tokens)) if tokens else 1
    before_last = max(0, (epochs - 1) * tokens - row_ahead) // row_tokens
    separate = False
    if epochs > 1 and samples is not None:
        per_epoch = (tokens - row_ahead) // row_tokens
        separate = samples - before_last < int(0.80 * per_epoch)
    usable = max(0, epochs * tokens - row_ahead)
    total = kept_samples(usable, row_tokens, quirks) if keep_partial else usable // row_tokens
    return EpochPlan(tokens, epochs, separate, before_last, total)


def kept_samples(usable: int, row_tokens: int, compat: Collection[str] = ()) -> int:
    """Return the samples of `usable` tokens with the short last one kept, as Megatron counts: in single precision.

    Raises `OrderError` (ORD012) where that is not the exact number, unless `compat` holds "float32-tail"; one sample too
    many is then a last sample that repeats the last token, one too few loses the tail, and more is refused still.

    >>> kept_samples(50_000_000_000, 4096, ["float32-tail"]), -(-50_000_000_000 // 4096)
    (12207031, 12207032)
    """
    exact = -(-usable // row_tokens)
    counted = int(np.ceil(np.int64(usable).astype(np.float32) / np.float32(row_tokens)))
    if counted != exact and ("float32-tail" not in compat or counted > exact + 1):
        raise OrderError(
            "ORD012",
            f"{usable:,} tokens in rows of {row_tokens:,}",
            expected=f"{exact:,} samples",
            found=f"{counted:,} in single precision",
        )
    return counted
