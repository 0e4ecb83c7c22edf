"""A sample of the real text: the first documents of every input, each in proportion to its size; always the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.build.blocks import InputBytes
from tokenreel.build.sources import read_records
from tokenreel.errors import require
from tokenreel.text.texts import text_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenreel.build.inputs import HashedInput

_CHUNK = 1 << 20


def sample_texts(inputs: Sequence[HashedInput], wanted: int) -> Iterator[Any]:
    """Yield arrays of documents of about `wanted` bytes of text in all, in the order of the inputs.

    Every input gives at least its first document; documents are whole. Raises what reading raises. Only the beginning
    of each file is read.
    """
    total = sum(one.record.bytes or 0 for one in inputs) or 1
    for one in inputs:
        room = max(1, wanted * (one.record.bytes or 0) // total)
        for records in read_records(InputBytes(one.planned.location), one.planned.shape, min(_CHUNK, room)):
            records.check()
            _, offsets = text_bytes(records.texts)
            count = int(offsets.searchsorted(room, side="left"))
            yield records.texts[:count]
            room -= int(offsets[min(count, len(records))])
            if room <= 0:
                break


def sample_array(inputs: Sequence[HashedInput], wanted: int) -> Any:
    """Return the sample as one ``LargeStringArray``."""
    pa = require("pyarrow", extra="build")
    parts = [part for part in sample_texts(inputs, wanted) if len(part)]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.large_string())


def sample_strings(inputs: Sequence[HashedInput], wanted: int) -> Iterator[str]:
    """Yield the sample document by document."""
    for part in sample_texts(inputs, wanted):
        yield from part.to_pylist()
