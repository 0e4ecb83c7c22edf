"""Read llm.c shards (``.bin``), which modded-nanogpt and HobbyLM write too.

A header of 256 little-endian int32: magic, version, number of ids, zeros that no reader looks at. The ids follow. Two
pairs of magic and version exist: (20240520, 1) with uint16 ids, and (20240801, 7) with uint32 ids, for Llama 3. Nothing
else is in the file, so its size is known exactly. Evaluation files (20240522) look alike and are no shards.
Source: llm.c's ``dev/data/data_common.py`` and ``llmc/dataloader.h``.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from tokenreel.errors import FormatError
from tokenreel.formats.base import Found
from tokenreel.formats.flat import FlatShard

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tokenreel.formats.base import Problem
    from tokenreel.store.base import Entry, Reader, Store

HEADER_BYTES = 1024
EVALUATION = 20240522
KINDS = {20240520: ("llmc-v1", 1, "<u2"), 20240801: ("llmc-v7", 7, "<u4")}
"""By magic: format, version, dtype."""
_MAGICS = (*KINDS, EVALUATION)
_SWAPPED = {struct.unpack(">i", struct.pack("<i", magic))[0]: magic for magic in _MAGICS}


def recognise(reader: Reader) -> str | None:
    """Return the format of a file that is meant to be an llm.c shard, or None; one read of at most 1,024 bytes.

    Evaluation files, byte-swapped files and files with a magic nobody uses but everything else in its place are meant to
    be: opening refuses each by its name.
    """
    start = reader.read(0, min(HEADER_BYTES, reader.size))
    if len(start) < 4:
        return None
    (magic,) = struct.unpack_from("<i", start)
    if magic in KINDS:
        return KINDS[magic][0]
    if magic in _SWAPPED or magic == EVALUATION:
        return "llmc-v1"
    if len(start) < HEADER_BYTES or any(start[12:]):
        return None
    _, version, count = struct.unpack_from("<3i", start)
    fits = {1: HEADER_BYTES + 2 * count, 7: HEADER_BYTES + 4 * count}
    return f"llmc-v{version}" if count > 0 and fits.get(version) == reader.size else None


def recognise_files(store: Store, entries: Sequence[Entry]) -> list[Found]:
    """Return the ``.bin`` files of a listing that are meant to be llm.c shards; one read of each.

    Where HobbyLM's tables stand beside any of a folder, those of version 1 are HobbyLM's.
    """
    from tokenreel.formats.hobbylm import FORMAT, sidecars_of

    found = []
    for path in (entry.path for entry in entries if entry.path.endswith(".bin")):
        reader = store.reader(path)
        try:
            form = recognise(reader)
        finally:
            reader.close()
        if form:
            found.append(Found(form, path[:-4], (path,)))
    tabled = {shard.name.rpartition("/")[0] for shard in found if sidecars_of(store, shard.name)}
    return [
        replace(shard, format=FORMAT)
        if shard.format == "llmc-v1" and shard.name.rpartition("/")[0] in tabled
        else shard
        for shard in found
    ]


def open_file(
    store: Store,
    path: str,
    *,
    accept: Collection[str] = (),  # noqa: ARG001
    named: str | None = None,
) -> FlatShard:
    """Open a shard; O(1). Raises `FormatError` (LMC001 .. LMC009) with the first thing wrong; nothing is overruled.

    `named` is the format's name where it is another's: HobbyLM's.

    >>> from tokenreel.store import MemoryStore
    >>> data = struct.pack("<3i", 20240520, 1, 2).ljust(1024, bytes(1)) + struct.pack("<2H", 50256, 7)
    >>> shard = open_file(MemoryStore({"a_train_000001.bin": data}), "a_train_000001.bin")
    >>> shard.format, shard.dtype.name, shard.read(0, 2).tolist()
    ('llmc-v1', 'uint16', [50256, 7])
    """
    reader = store.reader(path)
    try:
        problem = examine(reader, path)
        if problem is not None:
            raise FormatError(
                problem.code,
                problem.message,
                path=f"{store.root.rstrip('/')}/{path}",
                offset=problem.offset,
                expected=problem.expected,
                found=problem.found,
            )
        form, _, dtype = KINDS[struct.unpack("<i", reader.read(0, 4))[0]]
        return FlatShard(named or form, path, reader, dtype, HEADER_BYTES)
    except BaseException:
        reader.close()
        raise


def examine(reader: Reader, path: str) -> Problem | None:
    """Return the first thing wrong with a shard, or None: everything that its header and its size can say."""
    from tokenreel.formats.base import Problem

    size = reader.size
    if size < HEADER_BYTES:
        found = f"{size} bytes"
        return Problem("LMC009", path, offset=size, expected=f"{HEADER_BYTES} bytes of header", found=found)
    magic, version, count = struct.unpack("<3i", reader.read(0, 12))
    if magic in _SWAPPED:
        return Problem("LMC002", path, offset=0, expected=_SWAPPED[magic], found=magic)
    if magic == EVALUATION:
        return Problem("LMC003", path, offset=0, expected=" or ".join(map(str, KINDS)), found=magic)
    if magic not in KINDS:
        return Problem("LMC001", path, offset=0, expected=" or ".join(map(str, KINDS)), found=magic)
    _, right, dtype = KINDS[magic]
    if version != right:
        return Problem("LMC004", path, offset=4, expected=f"{right}, with magic {magic}", found=version)
    if count <= 0:
        return Problem("LMC005", path, offset=8, expected="1 .. 2**31 - 1", found=count)
    width = int(dtype[-1])
    whole = HEADER_BYTES + width * count
    if size == whole:
        return None
    code, message, offset = ("LMC006", "", size) if size < whole else ("LMC007", "", whole)
    if size == HEADER_BYTES + (6 - width) * count:
        code, message, offset = "LMC008", f"the size is that of ids of {6 - width} bytes", HEADER_BYTES
    expected = f"{whole} bytes for {count} ids of {width} bytes"
    return Problem(code, path, message, offset, expected=expected, found=f"{size} bytes")
