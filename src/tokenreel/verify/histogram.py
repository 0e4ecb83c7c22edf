"""Buckets of lengths as bars for a terminal; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = " ▏▎▍▌▋▊▉█"


def histogram_lines(buckets: Sequence[tuple[int, int, int]], width: int = 78, *, plain: bool = False) -> list[str]:
    """Return one line per bucket, of at most `width` columns: range, count, a bar to the scale of the largest.

    `plain` draws bars of ``#``, for outputs that have no other characters.

    >>> for line in histogram_lines([(0, 0, 1), (2, 3, 4), (4, 7, 2)], 24):
    ...     print(line)
      0  1  ████
    2-3  4  ████████████████
    4-7  2  ████████
    >>> histogram_lines([(2, 3, 4), (4, 7, 2)], 20, plain=True)
    ['2-3  4  ############', '4-7  2  ######']
    """
    if not buckets:
        return []
    labels = [f"{low:,}" if low == high else f"{low:,}-{high:,}" for low, high, _ in buckets]
    counts = [f"{count:,}" for _, _, count in buckets]
    left, middle = max(map(len, labels)), max(map(len, counts))
    room = max(1, width - left - middle - 4)
    largest = max(count for _, _, count in buckets)
    lines = []
    for label, text, (_, _, count) in zip(labels, counts, buckets, strict=True):
        steps = 1 if plain else 8
        length = max(1, round(count * room * steps / largest)) if count else 0
        bar = "#" * length if plain else "█" * (length // 8) + (BLOCKS[length % 8] if length % 8 else "")
        lines.append(f"{label:>{left}}  {text:>{middle}}  {bar}".rstrip())
    return lines
