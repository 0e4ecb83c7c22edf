"""Try a reader on damaged files, from memory: it refuses or reads, and nothing else.

Each file begins as a sound one; bits are flipped, bytes set to the ends of their range, runs cut, doubled or swapped. What a
reader may do is raise an error of this package, or give arrays. What it may not: any other exception, more memory
than a limit, more time of the processor than a limit.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokenreel.errors import TokenreelError
from tokenreel.formats import open_shard
from tokenreel.formats.recognising import recognise, settled
from tokenreel.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT_BYTES = 64 << 20
LIMIT_SECONDS = 5.0
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


@dataclass(slots=True)
class Fuzzed:
    """What came of it."""

    tried: int = 0
    refused: int = 0
    read: int = 0
    failures: list[str] = field(default_factory=list)
    """What went wrong, with the seed and number of the file that shows it."""
    peak: int = 0
    """The most bytes that reading one file took."""


def fuzz(
    files: Mapping[str, bytes],
    count: int,
    *,
    seed: int = 0,
    dtype: str | None = None,
    accept: Sequence[str] = (),
    most_failures: int = 20,
) -> Fuzzed:
    """Damage a corpus `count` times, each time open and read what is recognised in it, and report.

    >>> import struct
    >>> shard = struct.pack("<3i", 20240520, 1, 2).ljust(1024, bytes(1)) + bytes([1, 2, 3, 4])
    >>> done = fuzz({"a_0.bin": shard}, 50)
    >>> done.tried, done.failures
    (50, [])
    """
    done = Fuzzed()
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start(1)
    try:
        for number in range(count):
            damaged = damage(files, random.Random(f"{seed}:{number}"))  # noqa: S311 (damage, not secrets)
            _try(done, damaged, f"seed {seed} file {number}", dtype, tuple(accept))
            if len(done.failures) >= most_failures:
                break
    finally:
        if started:
            tracemalloc.stop()
    return done


def _try(done: Fuzzed, damaged: Mapping[str, bytes], name: str, dtype: str | None, accept: tuple[str, ...]) -> None:
    done.tried += 1
    begun = time.process_time()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        read_all(damaged, dtype=dtype, accept=accept)
        done.read += 1
    except TokenreelError:
        done.refused += 1
    except MemoryError:
        done.failures.append(f"{name}: asked for more memory than there is")
    except Exception as error:  # noqa: BLE001 (any other exception is what is looked for)
        done.failures.append(f"{name}: {type(error).__name__}: {error}"[:300])
    took, used = time.process_time() - begun, tracemalloc.get_traced_memory()[1] - before
    done.peak = max(done.peak, used)
    if took > LIMIT_SECONDS:
        done.failures.append(f"{name}: {took:.1f} seconds")
    if used > LIMIT_BYTES:
        done.failures.append(f"{name}: {used >> 20} MiB")


def read_all(files: Mapping[str, bytes], *, dtype: str | None = None, accept: tuple[str, ...] = ()) -> int:
    """Open every shard that is recognised among files in memory, read every document, and return their number."""
    store = MemoryStore(dict(files))
    documents = 0
    for found in recognise(store, store.list()).found:
        shard = open_shard(store, settled(found, dtype or "uint16"), accept)
        try:
            shard.check_table()
            for i in range(0, shard.documents, 256):
                edges = shard.document_edges(i, min(i + 256, shard.documents))
                shard.read(int(edges[0]), int(edges[-1])).sum()
            documents += shard.documents
        finally:
            shard.close()
    return documents


def damage(files: Mapping[str, bytes], draw: random.Random) -> dict[str, bytes]:
    """Return the files with one to four things done to them; most of it near the beginning or the end of a file."""
    out = dict(files)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 4))):
        path = draw.choice(sorted(out))
        data = bytearray(out[path])
        if not data:
            out[path] = draw.randbytes(draw.randrange(1, 64))
            continue
        out[path] = bytes(_hurt(data, draw))
    return out


def _hurt(data: bytearray, draw: random.Random) -> bytearray:
    near = draw.random()
    span = len(data) if near < 0.4 else min(len(data), 64)
    at = draw.randrange(span) if near < 0.8 else len(data) - 1 - draw.randrange(span)
    what = draw.randrange(8)
    if what <= 1:
        data[at] ^= 1 << draw.randrange(8)
    elif what == 2:
        data[at] = draw.choice(INTERESTING)
    elif what == 3:
        width = draw.choice((2, 4, 8))
        value = draw.choice((0, 1, (1 << 8 * width) - 1, 1 << 8 * width - 1, draw.getrandbits(8 * width)))
        data[at : at + width] = value.to_bytes(width, "little")[: len(data) - at]
    elif what == 4:
        del data[at:]
    elif what == 5:
        data += draw.randbytes(draw.randrange(1, 40))
    elif what == 6:
        size = draw.randrange(1, 33)
        data[at:at] = data[at : at + size]
    else:
        size = draw.randrange(1, 33)
        del data[at : at + size]
    return data
