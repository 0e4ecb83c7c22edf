"""The loaders of nanochat and modded-nanogpt written down from what is known of them, slowly, over tokens.

Neither knows of orders, extents or plans: they take documents, or a file's tokens, and give rows.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Tokens = list[int]


def nanochat(documents: Iterator[Tokens], inputs: int, buffer_size: int, at_a_time: int = 1) -> Iterator[Tokens]:
    """Rows of ``inputs + 1`` tokens: x is ``row[:-1]``, y is ``row[1:]``. Where documents end, so does the last row.

    The buffer is filled up before every choice; the largest document that fits entirely is taken, the first of equals; where
    none fits, the shortest is cropped to fill the row exactly, and its rest is thrown away.
    """
    waiting: list[Tokens] = []
    more = True
    while True:
        row: Tokens = []
        while len(row) < inputs + 1:
            while more and len(waiting) < buffer_size:
                for _ in range(at_a_time):
                    document = next(documents, None)
                    if document is None:
                        more = False
                        break
                    waiting.append(document)
            if not waiting:
                if row:
                    yield row
                return
            remaining = inputs + 1 - len(row)
            best, best_length = -1, 0
            for k, document in enumerate(waiting):
                if best_length < len(document) <= remaining:
                    best, best_length = k, len(document)
            if best < 0:
                best = min(range(len(waiting)), key=lambda k: len(waiting[k]))
            row += waiting.pop(best)[:remaining]
        yield row


def modded_nanogpt(
    tokens: Tokens, bos: int, inputs: int, ranks: int, longest: int, most: int
) -> Iterator[list[tuple[Tokens, Tokens, Tokens]]]:
    """Batches of one file: for each rank x, y and cum_lengths of `most` entries, the last of them repeated.

    For each rank in turn documents are appended, each from one BOS to the next, at most `longest` tokens and no more than the
    rank has room for, until it has ``inputs + 1``. Where a BOS is wanted and there is none, the batch is dropped.
    """
    starts = [k for k, token in enumerate(tokens) if token == bos]
    following = [*starts[1:], len(tokens)]
    coming = zip(starts, following, strict=False)
    while True:
        batch = []
        for _ in range(ranks):
            held: Tokens = []
            lengths: Tokens = []
            while len(held) < inputs + 1:
                document = next(coming, None)
                if document is None:
                    return
                begin, end = document
                end = min(end, begin + longest, begin + inputs + 1 - len(held))
                held += tokens[begin:end]
                lengths.append(end - begin)
            lengths[-1] -= 1
            edges = [0, *accumulate(lengths)]
            batch.append((held[:-1], held[1:], edges + [inputs] * (most - len(edges))))
        yield batch
