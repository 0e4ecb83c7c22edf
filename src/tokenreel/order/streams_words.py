"""The 32-bit outputs of MT19937, any stretch of them, and what Python and llm.c draw from them.

MT19937 cannot jump, so the generator's state is kept every 65,536 words as far as anyone has read (2.5 KB each): a word
that was passed before costs at most one such step, 0.2 ms; one further on costs 3 ns for every word in between.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

STEP = 1 << 16


class Words:
    """The outputs of MT19937 seeded with ``init_genrand(seed)``, or with ``init_by_array(seed)`` for a tuple.

    >>> Words(5489).at([0, 1, 9999]).tolist()
    [3499211612, 581869302, 4123659995]
    """

    __slots__ = ("_last", "_states")

    def __init__(self, seed: int | tuple[int, ...]) -> None:
        made = np.random.RandomState(list(seed) if isinstance(seed, tuple) else seed)
        self._states: dict[int, Any] = {0: made.get_state()}
        self._last: tuple[int, npt.NDArray[np.uint32]] = (-1, np.empty(0, dtype=np.uint32))

    def at(self, positions: npt.ArrayLike) -> npt.NDArray[np.uint32]:
        """Return the outputs at `positions`, the first being number 0."""
        asked = np.asarray(positions, dtype=np.int64)
        out = np.empty(asked.shape, dtype=np.uint32)
        steps = asked // STEP
        for step in np.unique(steps).tolist():
            mine = steps == step
            out[mine] = self._step(step)[asked[mine] - step * STEP]
        return out

    def _step(self, step: int) -> npt.NDArray[np.uint32]:
        last = self._last
        if last[0] == step:
            return last[1]
        known = step if step in self._states else max(self._states)
        random = np.random.RandomState()
        random.set_state(self._states[known])
        made = _draw(random)
        while known < step:
            known += 1
            self._states[known] = random.get_state()
            made = _draw(random)
        self._last = (step, made)
        return made


def _draw(random: np.random.RandomState) -> npt.NDArray[np.uint32]:
    return random.randint(0, 1 << 32, size=STEP, dtype=np.uint32)


@lru_cache(maxsize=4096)
def words(seed: int | tuple[int, ...]) -> Words:
    """Return the one reader of a seed's outputs."""
    return Words(seed)


def python_shuffle(items: list[list[Any]], seed: int) -> None:
    """Shuffle each list in place as one ``random.Random(seed)`` does with one list after the other.

    >>> names = [list("abcdef")]
    >>> python_shuffle(names, 1337)
    >>> "".join(names[0])
    'badcfe'
    """
    size = abs(seed)
    key = tuple((size >> shift) & 0xFFFFFFFF for shift in range(0, max(1, size.bit_length()), 32))
    source, position = words(key), 0
    for listed in items:
        for i in range(len(listed) - 1, 0, -1):
            bits = (i + 1).bit_length()
            while True:
                j = int(source.at([position])[0]) >> (32 - bits)
                position += 1
                if j <= i:
                    break
            listed[i], listed[j] = listed[j], listed[i]


def llmc_shuffle(listed: list[int], seed: int, first: int) -> int:
    """Shuffle in place as llm.c's ``random_permutation``, from word number `first` on; return the next word's number."""
    n = len(listed)
    if n > 1:
        drawn = words(seed).at(np.arange(first, first + n - 1))
        places = (drawn % np.arange(n, 1, -1, dtype=np.uint32)).tolist()
        for i, j in zip(range(n - 1, 0, -1), places, strict=True):
            listed[i], listed[j] = listed[j], listed[i]
    return first + max(0, n - 1)
