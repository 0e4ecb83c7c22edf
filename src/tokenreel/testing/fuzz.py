"""Try a reader on damaged files, from memory: it refuses or reads, and nothing else.

Each file begins as a sound one; bits are flipped, bytes set to the ends of their range, runs cut, doubled or swapped. What a
reader may do is raise an error of this package, or give arrays. What it may not: any other exception, more memory
than a limit, more time of the processor than a limit. On Linux the limit of memory is one of address space, which counts what
compiled code takes as well and costs nothing; elsewhere Python's own allocations are traced.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
import tracemalloc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokenreel.errors import TokenreelError
from tokenreel.formats import open_shard
from tokenreel.formats.recognising import recognise, settled
from tokenreel.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LIMIT_BYTES = 64 << 20
LIMIT_SECONDS = 5.0
ROOM_BYTES = 32 << 20
"""Address space besides, for what allocators keep."""
WARM = 50
"""Files that are read before the limit is set: what is imported and reserved by then stays."""
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
    """The most bytes that reading one file took, where allocations are traced."""


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
    names = tuple(accept)
    with contextlib.suppress(Exception):  # what it imports is imported now
        read_all(files, dtype=dtype, accept=names)
    draws = (random.Random(f"{seed}:{number}") for number in range(count))  # noqa: S311 (damage, not secrets)
    with contextlib.ExitStack() as limits:
        for number, draw in enumerate(draws):
            if number == WARM:
                limits.enter_context(_limited())
            _try(done, damage(files, draw), f"seed {seed} file {number}", dtype, names)
            if len(done.failures) >= most_failures:
                break
    return done


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Limit the address space to what there is, `LIMIT_BYTES` and some room; trace allocations where that cannot be."""
    if sys.platform != "linux":
        tracemalloc.start(1)
        try:
            yield
        finally:
            tracemalloc.stop()
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:  # noqa: PTH123 (no file of anybody's)
        there = int(file.read().split()[0]) * resource.getpagesize()
    with _system_pool():
        resource.setrlimit(resource.RLIMIT_AS, (there + LIMIT_BYTES + ROOM_BYTES, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def _system_pool() -> Iterator[None]:
    """Let Arrow ask the system for memory, if it is at work: its own pools reserve gigabytes of addresses."""
    pa = sys.modules.get("pyarrow")
    if pa is None:
        yield
        return
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def _try(done: Fuzzed, damaged: Mapping[str, bytes], name: str, dtype: str | None, accept: tuple[str, ...]) -> None:
    done.tried += 1
    begun = time.process_time()
    traced = tracemalloc.is_tracing()
    if traced:
        tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        read_all(damaged, dtype=dtype, accept=accept)
        done.read += 1
    except TokenreelError as error:
        done.refused += 1
        if _for_memory(error):
            done.failures.append(f"{name}: asked for more memory than {LIMIT_BYTES >> 20} MiB, and was refused it")
    except MemoryError:
        done.failures.append(f"{name}: asked for more memory than {LIMIT_BYTES >> 20} MiB")
    except Exception as error:  # noqa: BLE001 (any other exception is what is looked for)
        done.failures.append(f"{name}: {type(error).__name__}: {error}"[:300])
    took = time.process_time() - begun
    if took > LIMIT_SECONDS:
        done.failures.append(f"{name}: {took:.1f} seconds")
    if traced:
        used = tracemalloc.get_traced_memory()[1] - before
        done.peak = max(done.peak, used)
        if used > LIMIT_BYTES:
            done.failures.append(f"{name}: {used >> 20} MiB")


def _for_memory(error: BaseException | None) -> bool:
    """Return whether an error came of memory that there was not: Arrow's errors are turned into ours."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


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
