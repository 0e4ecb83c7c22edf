"""Megatron's order written the slow, obvious way: token by token, in Python lists."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass
class Reference:
    document_index: list[int]
    sample_index: list[tuple[int, int]]
    shuffle_index: list[int]
    separate: bool
    epochs: int


def build(
    sizes: list[int], first: int, last: int, row: int, ahead: int, samples: int | None, seed: int, keep: bool = False
) -> Reference:
    tokens = sum(sizes[first:last])
    epochs = 1
    while samples is not None and epochs * tokens < samples * row + ahead:
        epochs += 1
    separate = False
    before = 0
    if samples is not None and epochs > 1:
        before = ((epochs - 1) * tokens - ahead) // row
        separate = samples - before < int(0.80 * ((tokens - ahead) // row))
    random = np.random.RandomState(seed)

    def shuffled(items: list[int]) -> list[int]:
        array = np.array(items, dtype=np.int32)
        random.shuffle(array)
        return array.tolist()

    numbers = list(range(first, last))
    if separate:
        order = shuffled(numbers * (epochs - 1)) + shuffled(numbers)
    else:
        order = shuffled(numbers * epochs)
    usable = epochs * tokens - ahead
    count = math.ceil(usable / row) if keep else max(0, usable) // row
    rows = walk([sizes[d] for d in order], row, ahead, count)
    cut = before if separate else count
    shuffle = shuffled(list(range(cut))) + (shuffled(list(range(cut, count))) if cut != count else [])
    return Reference(order, rows, shuffle, separate, epochs)


def walk(lengths: list[int], row: int, ahead: int, count: int) -> list[tuple[int, int]]:
    """Rows of the sample index, by taking tokens one at a time."""
    places = [(k, t) for k, length in enumerate(lengths) for t in range(length)]
    rows = [(0, 0)]
    for j in range(1, count + 1):
        position = j * row + ahead
        if position > len(places):
            rows.append((len(lengths) - 1, lengths[-1] - ahead))
        else:
            # The entry of the last token of sample j-1; what follows it in that entry.
            k, t = places[position - 1]
            rows.append((k, t + 1 - ahead))
    return rows


def sample_tokens(reference: Reference, sizes: list[int], row: int, ahead: int, i: int) -> list[tuple[int, int]]:
    """The (sequence, token) pairs that Megatron concatenates for sample i, padding not counted."""
    j = reference.shuffle_index[i]
    (b, o), (e, p) = reference.sample_index[j], reference.sample_index[j + 1]
    order = reference.document_index
    if b == e:
        return [(order[b], t) for t in range(o, p + ahead)]
    out = [(order[b], t) for t in range(o, sizes[order[b]])]
    for k in range(b + 1, e):
        out += [(order[k], t) for t in range(sizes[order[k]])]
    return out + [(order[e], t) for t in range(p + ahead)]
