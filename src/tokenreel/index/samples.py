"""Samples of an assembled order as ids: one to look at, many as hashes, and two orders compared by those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import TokenError
from tokenreel.hashing import xxh3_128
from tokenreel.spans import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.index.assemble import Assembled
    from tokenreel.spans import SpanTable

STEP = 4096
UINT32 = 1 << 32


@dataclass(frozen=True, slots=True, eq=False)
class SampleIds:
    """One sample's stored ids."""

    inputs: npt.NDArray[np.uint32]
    label: int | None
    """The look-ahead, the label of the last input; None where the sample has none."""

    def digest(self, *, labels: bool = True) -> bytes:
        """Return 16 bytes over the number of inputs, the inputs and, with `labels`, the last label."""
        data = len(self.inputs).to_bytes(8, "little") + self.inputs.astype("<u4").tobytes()
        if labels and self.label is not None:
            data += self.label.to_bytes(4, "little")
        return xxh3_128(data)


def samples_of(made: Assembled, table: SpanTable) -> Iterator[SampleIds]:
    """Yield each sample of a table as ids; one small read for each extent. Padding gives no ids.

    Raises `TokenError` (TOK001) for ids that are negative or do not fit 32 bits.
    """
    for k in range(table.samples):
        parts: list[npt.NDArray[Any]] = []
        label = None
        for e in range(int(table.splits[k]), int(table.splits[k + 1])):
            if table.flags[e] & Flag.PAD:
                continue
            length, ahead = int(table.length[e]), bool(table.flags[e] & Flag.AHEAD)
            begin = int(table.begin[e])
            ids = made.corpora[int(table.corpus[e])].stream(begin, begin + length + ahead)
            if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= UINT32):
                raise TokenError("TOK001", f"token {begin} or after", expected="0 .. 2**32 - 1", found=int(ids.min()))
            parts.append(ids[:length])
            label = int(ids[-1]) if ahead else label
        inputs = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)
        yield SampleIds(inputs.astype(np.uint32), label)


def digests(made: Assembled, lo: int, hi: int, *, labels: bool = True) -> Iterator[bytes]:
    """Yield the digest of each of samples [lo, hi). Cost: about 10 us an extent."""
    for first in range(lo, hi, STEP):
        table = made.order.spans(first, min(hi, first + STEP))
        for sample in samples_of(made, table):
            yield sample.digest(labels=labels)


@dataclass(frozen=True, slots=True)
class Compared:
    """How two orders compare, sample by sample, by what they read."""

    samples: int
    """Samples compared."""
    same: int
    first_difference: int | None
    """The first sample that is another one."""
    digests: tuple[str, str] | None
    """What the two orders have there."""
    common: int
    """Samples of the one that the other has too, anywhere among those compared."""
    lengths: tuple[int | None, int | None]
    """Samples of each order; None is endless."""
    whole: bool
    """Whether both were meant to be compared to their ends."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs, the lengths included where both were compared to their ends."""
        return self.first_difference is None and not (self.whole and self.lengths[0] != self.lengths[1])

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "equal": self.equal,
            "samples": self.samples,
            "same": self.same,
            "first_difference": self.first_difference,
            "digests": self.digests,
            "common": self.common,
            "lengths": self.lengths,
        }


def compare(
    one: Assembled, other: Assembled, begins: tuple[int, int], samples: int, *, whole: bool, labels: bool = True
) -> Compared:
    """Compare `samples` samples of two prepared orders from `begins` on. Reads them all; 32 bytes a sample."""
    sides = [
        np.frombuffer(b"".join(digests(made, lo, lo + samples, labels=labels)), dtype="V16")
        for made, lo in zip((one, other), begins, strict=True)
    ]
    differs = np.flatnonzero(sides[0] != sides[1])
    first = int(differs[0]) if len(differs) else None
    shown = None if first is None else (sides[0][first].tobytes().hex(), sides[1][first].tobytes().hex())
    held = {item.tobytes() for item in sides[1]}
    common = sum(item.tobytes() in held for item in sides[0])
    lengths = (one.order.length, other.order.length)
    return Compared(samples, samples - len(differs), first, shown, common, lengths, whole)
