"""Re-check documents against the reference while a build goes on: one in N by ordinal, the same ones every time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import TokenizerError
from tokenreel.text.probe import first_difference
from tokenreel.text.texts import text_array, text_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.text.engines import Encoder

ONE_IN = 1000
"""The default: the reference is 30 to 70 times slower, so it adds 3 to 7 % to encoding."""

LARGEST_DOCUMENT = 4 << 20
"""Larger documents (UTF-8 bytes) are passed over: the reference takes a hundred bytes of memory a byte of text."""


@dataclass(frozen=True, slots=True)
class Rechecked:
    """Counts of one or more batches; add them up with ``+``."""

    checked: int = 0
    decoded_back: int = 0
    """Of those, how many decoded to exactly their text."""
    passed_over: int = 0
    """Documents whose turn it was and that were larger than the limit."""

    def __add__(self, other: Rechecked) -> Rechecked:
        return Rechecked(
            self.checked + other.checked,
            self.decoded_back + other.decoded_back,
            self.passed_over + other.passed_over,
        )


def recheck_batch(
    encoder: Encoder,
    texts: Any,
    ids: npt.NDArray[np.uint32],
    lengths: npt.NDArray[np.int64],
    first_document: int = 0,
    *,
    one_in: int = ONE_IN,
    largest: int = LARGEST_DOCUMENT,
) -> Rechecked:
    """Compare every document of this batch whose ordinal is a multiple of `one_in` with the reference; return counts.

    `texts` are those that were encoded (`Batch.texts`), `ids` and `lengths` what came out, without the end of document;
    ordinals count from `first_document` within one unit of work, so that workers and resumption change nothing.
    ``one_in=0`` checks nothing. Raises `TokenizerError` (TKZ008) naming the first document that differs.
    """
    if one_in <= 0 or not len(texts):
        return Rechecked()
    array = text_array(texts, first_document)
    _, offsets = text_bytes(array)
    turns = np.arange(-first_document % one_in, len(array), one_in)
    sizes = np.diff(offsets)
    rows = turns[sizes[turns] <= largest]
    if not len(rows):
        return Rechecked(passed_over=len(turns))
    edges = np.concatenate(([0], np.cumsum(lengths)))
    found = [ids[edges[row] : edges[row + 1]] for row in rows.tolist()]
    chosen = array.take(rows)
    tok = encoder.tok
    reference = tok.encode_batch(chosen, special=encoder.special_in_text == "special")
    number = first_difference(reference, (np.concatenate(found), lengths[rows]))
    if number is not None:
        raise _differs(encoder, int(rows[number]) + first_document, number, reference, found[number])
    back = sum(tok.decode(one) == text for one, text in zip(found, chosen.to_pylist(), strict=True))
    return Rechecked(len(rows), back, len(turns) - len(rows))


def _differs(
    encoder: Encoder, document: int, number: int, reference: Any, found: npt.NDArray[np.uint32]
) -> TokenizerError:
    begin = int(reference[1][:number].sum())
    wanted = reference[0][begin : begin + int(reference[1][number])]
    common = min(len(wanted), len(found))
    at = int(np.argmax(np.append(wanted[:common] != found[:common], True)))
    return TokenizerError(
        "TKZ008",
        f"{encoder.name} {encoder.version} gives other ids than {encoder.tok.reference}, from token {at} on",
        document=document,
        expected=wanted[at : at + 8].tolist(),
        found=found[at : at + 8].tolist(),
        hint="tokenreel build RECIPE --set tokenizer.engine=reference",
    )
