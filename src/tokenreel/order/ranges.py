"""Which samples are an order's own, and in what blocks they are read: what every order answers alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.errors import OrderError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from tokenreel.order.protocol import Order
    from tokenreel.spans import SpanTable

CHUNK = 1 << 16
"""Samples of a block, at most."""
ENDLESS = (1 << 63) - 1
"""Where an order ends that has no end."""


def check_range(i: int, j: int, length: int | None, farthest: int = ENDLESS) -> None:
    """Raise `OrderError` (ORD001) unless 0 <= i <= j <= length; None reaches to `farthest`.

    >>> check_range(0, 4, 4)
    """
    limit = farthest if length is None else length
    if not 0 <= i <= j <= limit:
        raise OrderError("ORD001", expected=f"0 <= i <= j <= {limit}", found=f"[{i}, {j})")


def own_samples(samples: npt.ArrayLike, length: int | None, farthest: int = ENDLESS) -> npt.NDArray[np.int64]:
    """Return samples as int64, in the shape given; raises `OrderError` (ORD001) where one is not the order's.

    >>> own_samples([2, 0], 3).tolist()
    [2, 0]
    """
    import numpy as np

    wanted = np.asarray(samples, dtype=np.int64)
    if wanted.size:
        check_range(int(wanted.min()), int(wanted.max()) + 1, length, farthest)
    return wanted


def blocks(order: Order, i: int, j: int, most: int | None = None) -> Iterator[tuple[int, SpanTable]]:
    """Yield (first sample, table) over samples [i, j) of an order, `most` samples a table; raises `OrderError` (ORD001)."""
    check_range(i, j, order.length)
    step = CHUNK if most is None else most
    for first in range(i, j, step):
        yield first, order.spans(first, min(j, first + step))


def no_components(samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Return a 0 for each sample: there is one component."""
    import numpy as np

    return np.zeros(np.asarray(samples).shape, dtype=np.int32)
