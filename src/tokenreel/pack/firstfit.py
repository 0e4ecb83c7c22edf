"""First fit over a stream: a few rows are open, and a document goes into the first that has room for it.

Documents come as they are stored. Where none has room, the fullest row is closed (the oldest of equals) and a new one
opened; a full row is closed at once. A document costs O(open rows).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel
from tokenreel.pack.plan_sizes import READ_U32

if TYPE_CHECKING:
    import numpy.typing as npt


def first_fit(sizes: npt.ArrayLike, room: int, open_rows: int) -> tuple[npt.NDArray[np.int32], int]:
    """Return the row of each document, -1 for an empty one, and the number of rows, numbered as they were opened.

    No size may be above `room`.

    >>> row, rows = first_fit([5, 3, 7, 2, 0, 1], 8, 2)
    >>> row.tolist(), rows
    ([0, 0, 1, 2, -1, 1], 3)
    """
    lengths = np.ascontiguousarray(sizes, dtype=np.uint32)
    row_of = np.empty(len(lengths), dtype=np.int32)
    return row_of, int(_first_fit(lengths, room, open_rows, row_of))


@kernel(f"int64({READ_U32}, int64, int64, int32[::1])")
def _first_fit(sizes: Any, room: int, open_rows: int, row_of: Any) -> int:
    left = np.zeros(open_rows, dtype=np.int64)
    number = np.zeros(open_rows, dtype=np.int64)
    opened = 0
    rows = 0
    for document in range(len(sizes)):
        size = np.int64(sizes[document])
        if size == 0:
            row_of[document] = -1
            continue
        found = 0
        while found < opened and left[found] < size:
            found += 1
        if found == opened:
            if opened == open_rows:
                closed = 0
                for k in range(1, opened):
                    if left[k] < left[closed]:
                        closed = k
                opened -= 1
                for k in range(closed, opened):
                    left[k] = left[k + 1]
                    number[k] = number[k + 1]
                found = opened
            left[found] = room
            number[found] = rows
            rows += 1
            opened += 1
        row_of[document] = number[found]
        left[found] -= size
        if left[found] == 0:
            opened -= 1
            for k in range(found, opened):
                left[k] = left[k + 1]
                number[k] = number[k + 1]
    return rows
