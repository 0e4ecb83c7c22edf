"""Buffers that batches are written into: used again as soon as nobody holds them, or given by the caller."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokenreel.pack.policy import RowPolicy

    Arrays = dict[str, npt.NDArray[Any]]
    Layout = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]

KEPT = 8
"""Sets of buffers kept besides those prefetched: more of them are freed, not kept."""


def _references(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Return the most references that any of the arrays has."""
    return max(sys.getrefcount(array) for array in arrays.values())


_UNUSED = _references({"a": np.empty(1)})


def _fresh(layout: Layout) -> Arrays:
    return {name: np.empty(shape, dtype) for name, (shape, dtype) in layout.items()}


class Recycled:
    """Lends buffers, and lends them again when nothing refers to any of their arrays, or to a view of one.

    Memory that a batch has just left is already mapped and often in the cache; new memory costs more than filling it.
    """

    def __init__(self, policy: RowPolicy, row_tokens: int, dtype: Any, depth: int) -> None:
        self._policy, self._row_tokens, self._dtype = policy, row_tokens, dtype
        self._kept = depth + KEPT
        self._rows = -1
        self._sets: list[Arrays] = []

    def take(self, rows: int) -> Arrays:
        """Return buffers for a batch of `rows`."""
        if rows != self._rows:
            self._rows, self._sets = rows, []
        # The first that is free, not the next: the fewer are in turn, the likelier they are in the cache.
        for arrays in self._sets:
            if _references(arrays) == _UNUSED:
                return dict(arrays)
        made = _fresh(self._policy.layout(rows, self._row_tokens, self._dtype))
        if len(self._sets) < self._kept:
            self._sets.append(made)
        return dict(made)


class Given:
    """The caller's buffers in turn, or from the caller's function ``(rows) -> arrays``; a short batch takes their first rows."""

    def __init__(
        self,
        given: Sequence[Mapping[str, npt.NDArray[Any]]] | Callable[[int], Mapping[str, npt.NDArray[Any]]],
        policy: RowPolicy,
        row_tokens: int,
        dtype: Any,
    ) -> None:
        self._given = given
        self._policy, self._row_tokens, self._dtype = policy, row_tokens, dtype
        self._turn = 0

    def take(self, rows: int) -> Mapping[str, npt.NDArray[Any]]:
        """Return buffers for a batch of `rows`; raises `UsageError` (STA016) for some that do not fit."""
        if isinstance(self._given, Sequence):
            arrays = self._given[self._turn % len(self._given)]
            self._turn += 1
        else:
            arrays = self._given(rows)
        out: Arrays = {}
        for name, (shape, dtype) in self._policy.layout(rows, self._row_tokens, self._dtype).items():
            array = arrays.get(name)
            if array is None or array.dtype != dtype or array.ndim != len(shape):
                found = "none" if array is None else f"{array.dtype} of shape {array.shape}"
                raise UsageError("STA016", name, expected=f"{dtype} of shape {shape}", found=found)
            part = array[: shape[0]] if shape else array
            if part.shape != shape or not part.flags.c_contiguous or not part.flags.writeable:
                expected = f"writeable, contiguous, of shape {shape}"
                raise UsageError("STA016", name, expected=expected, found=f"shape {array.shape}")
            out[name] = part
        return out


def buffers_of(out: object, policy: RowPolicy, row_tokens: int, dtype: Any, prefetch: int) -> Recycled | Given:
    """Return what lends a feed's buffers: None recycles; a mapping, a sequence of them, or a function gives them.

    A batch stays as it is until the next one is asked for: that takes two buffers more than are prefetched (one without).
    """
    if out is None:
        return Recycled(policy, row_tokens, dtype, prefetch)
    if callable(out):
        return Given(out, policy, row_tokens, dtype)
    given = [out] if isinstance(out, Mapping) else out
    if not isinstance(given, Sequence) or not all(isinstance(one, Mapping) for one in given):
        expected = "arrays by name, several such, or a function of the number of rows"
        raise UsageError("STA016", "out", expected=expected, found=type(out).__name__)
    needed = prefetch + 2 if prefetch else 1
    if len(given) < needed:
        raise UsageError(
            "STA016", "out", expected=f"{needed} sets of buffers for prefetch={prefetch}", found=len(given)
        )
    return Given(given, policy, row_tokens, dtype)
