"""Damage a corpus in the ways that corpora are damaged, for tests of readers and verifiers: ours and anybody's.

A corpus is a mapping of paths to bytes; `corruptions` yields each damaged form with the name of what was done. What a format
keeps where is its `Anatomy`: found from the files themselves, so that a header, a table or a count is hit on purpose.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import struct
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Files = Mapping[str, bytes]

_NUMBER = re.compile(rb"(?<![\w.:<>-])\d+(?![\w.])")
_OTHER_DTYPE = {
    b"no_header_tensor:20": b"no_header_tensor:16",
    b"no_header_tensor:16": b"no_header_tensor:18",
    b"ndarray:uint16": b"ndarray:uint32",
    b'"int32"': b'"int64"',
    b'"int64"': b'"int32"',
    b"'<u2'": b"'<u4'",
    b"|2\n": b"|4\n",
}
"""Names of dtypes in headers and indices, and another for each that takes other bytes."""
_DTYPE = re.compile(b"|".join(re.escape(one) for one in _OTHER_DTYPE))
RECORDS = ("tokenreel.json", "convert.json")
"""Ours; they are left as they are, for they say what was there."""


UNSEEN: dict[str, tuple[str, ...]] = {
    "arrow": ("flip payload",),
    "datatrove": ("flip payload", "withdrawn shard"),
    "hobbylm-v1": ("flip payload",),
    "levanter": ("flip payload",),
    "litdata": ("flip payload",),
    "llmc-v1": ("byte order", "flip payload", "shards of two dtypes", "withdrawn shard"),
    "llmc-v7": ("byte order", "flip payload", "shards of two dtypes", "withdrawn shard"),
    "mds": (),
    "megatron-v1": ("flip payload", "withdrawn shard"),
    "npy": ("byte order", "flip payload", "shards of two dtypes", "withdrawn shard"),
    "olmo-uint16": ("flip payload", "shards of two dtypes", "withdrawn shard"),
    "olmo-uint32": ("flip payload", "shards of two dtypes", "withdrawn shard"),
    "ounce-v1": (),
    "parquet": ("withdrawn shard",),
    "raw-uint16": (
        "byte order",
        "flip payload",
        "shards of two dtypes",
        "trailing bytes",
        "truncate",
        "withdrawn shard",
    ),
    "raw-uint32": (
        "byte order",
        "flip payload",
        "shards of two dtypes",
        "trailing bytes",
        "truncate",
        "withdrawn shard",
    ),
}
"""By format: the kinds of damage that change documents and that no rule can see in all their forms, where nothing records the
contents. With a manifest or a receipt beside them there are none. ``shards of two dtypes`` is a shard that was replaced by
another whole one of the same format."""


@dataclass(frozen=True, slots=True)
class Field:
    """A number in a file."""

    path: str
    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Anatomy:
    """Where the parts of one shard are; a part that a format does not have is empty."""

    payload: tuple[str, int, int]
    """(file, first byte, end) of the ids."""
    header: tuple[str, int, int] | None = None
    table: tuple[str, int, int, int] | None = None
    """(file, first byte, width of an entry, entries)."""
    counts: tuple[Field, ...] = ()
    dtype: Field | None = None
    members: tuple[str, ...] = ()
    """Files that the shard is made of."""
    sidecars: tuple[str, ...] = ()
    """Files that speak of several shards."""
    texts: tuple[str, ...] = ()
    """Files, or parts of the shard, that say counts, offsets and dtypes in words; gzip is undone and done again."""


@dataclass(frozen=True, slots=True)
class Corruption:
    """One damaged form of a corpus."""

    kind: str
    """What was done, by a name that does not say where: ``flip payload``, ``count 2**63``."""
    what: str
    """What was done, and where."""
    files: dict[str, bytes]


def corruptions(format_name: str, files: Files, *, other: Files | None = None, seed: int = 0) -> Iterator[Corruption]:
    """Yield damaged forms of a corpus of one format; `other` is another corpus of it, whose files are put in.

    Kinds: truncate, flip header, flip table, flip payload, swap offsets, dtype code, count 2**63, zero length, trailing
    bytes, byte order, missing member, withdrawn shard, stale sidecar, shards of two dtypes.

    >>> import struct
    >>> shard = struct.pack("<3i", 20240520, 1, 2).ljust(1024, bytes(1)) + bytes([1, 2, 3, 4])
    >>> sorted({one.kind for one in corruptions("llmc-v1", {"a_0.bin": shard, "a_1.bin": shard})})[:4]
    ['byte order', 'count 2**63', 'dtype code', 'flip header']
    """
    draw = random.Random(seed)  # noqa: S311 (damage, not secrets)
    anatomy = anatomy_of(format_name, files)
    yield from _lengths(files, anatomy)
    yield from _flips(files, anatomy, draw)
    yield from _fields(files, anatomy)
    yield from _texts(files, anatomy, draw)
    yield from _order(files, anatomy)
    yield from _members(format_name, files, anatomy)
    if other is not None:
        yield from _others(files, anatomy, other)


def _with(files: Files, path: str, data: bytes) -> dict[str, bytes]:
    return {**files, path: data}


def _lengths(files: Files, anatomy: Anatomy) -> Iterator[Corruption]:
    for path in anatomy.members:
        data = files[path]
        for count in (1, 2, 3, 7, 8, len(data) // 2):
            if 0 < count < len(data):
                yield Corruption("truncate", f"{count} bytes off {path}", _with(files, path, data[:-count]))
        yield Corruption("zero length", path, _with(files, path, b""))
        yield Corruption("trailing bytes", f"1 byte behind {path}", _with(files, path, data + b"\x01"))
        yield Corruption("trailing bytes", f"8 bytes behind {path}", _with(files, path, data + bytes(8)))


def _flips(files: Files, anatomy: Anatomy, draw: random.Random) -> Iterator[Corruption]:
    parts = [("flip payload", *anatomy.payload)]
    if anatomy.header is not None:
        parts.append(("flip header", *anatomy.header))
    if anatomy.table is not None:
        path, begin, width, entries = anatomy.table
        parts.append(("flip table", path, begin, begin + width * entries))
    for kind, path, begin, end in parts:
        for _ in range(min(24 if kind == "flip payload" else 6, end - begin)):
            at, bit = draw.randrange(begin, end), draw.randrange(8)
            data = bytearray(files[path])
            data[at] ^= 1 << bit
            yield Corruption(kind, f"bit {bit} of byte {at} of {path}", _with(files, path, bytes(data)))


def _fields(files: Files, anatomy: Anatomy) -> Iterator[Corruption]:
    for field in anatomy.counts:
        for value in ((1 << 8 * field.width) - 1, 1 << 8 * field.width - 1, (1 << 8 * field.width - 1) - 1):
            said = _put(files, field, value)
            yield Corruption("count 2**63", f"{value} at byte {field.offset} of {field.path}", said)
    if anatomy.dtype is not None:
        was = int.from_bytes(
            files[anatomy.dtype.path][anatomy.dtype.offset : anatomy.dtype.offset + anatomy.dtype.width], "little"
        )
        for value in (0, 4, 8, 255, was ^ 1):
            if value != was:
                said = _put(files, anatomy.dtype, value)
                yield Corruption("dtype code", f"{value} at byte {anatomy.dtype.offset} of {anatomy.dtype.path}", said)
    if anatomy.table is not None and anatomy.table[3] > 1:
        path, begin, width, entries = anatomy.table
        data = files[path]
        cells = [data[begin + width * k : begin + width * (k + 1)] for k in range(entries)]
        pair = next(((k, k + 1) for k in range(entries - 1) if cells[k] != cells[k + 1]), None)
        if pair is not None:
            one, two = pair
            cells[one], cells[two] = cells[two], cells[one]
            swapped = data[:begin] + b"".join(cells) + data[begin + width * entries :]
            yield Corruption("swap offsets", f"entries {one} and {two} of {path}", _with(files, path, swapped))


def _put(files: Files, field: Field, value: int) -> dict[str, bytes]:
    data = bytearray(files[field.path])
    data[field.offset : field.offset + field.width] = (value & (1 << 8 * field.width) - 1).to_bytes(
        field.width, "little"
    )
    return _with(files, field.path, bytes(data))


def _texts(files: Files, anatomy: Anatomy, draw: random.Random) -> Iterator[Corruption]:
    """Numbers, words and bits of files that are text: as headers and tables are damaged elsewhere."""
    for path in anatomy.texts:
        packed = path.endswith(".gz")
        text = gzip.decompress(files[path]) if packed else files[path]
        begin, end = _said_in_words(text) if path.endswith(".npy") else (0, len(text))

        def put(
            first: int, last: int, new: bytes, path: str = path, text: bytes = text, packed: bool = packed
        ) -> dict[str, bytes]:
            data = text[:first] + new + text[last:]
            return _with(files, path, gzip.compress(data, mtime=0) if packed else data)

        numbers = [match for match in _NUMBER.finditer(text, begin, end) if len(match[0]) < 19]
        for match in draw.sample(numbers, min(4, len(numbers))):
            for value in (1 << 63, (1 << 63) - 1):
                what = f"{value} for {match[0].decode()} at byte {match.start()} of {path}"
                yield Corruption("count 2**63", what, put(*match.span(), str(value).encode()))
        pairs = [(a, b) for a, b in pairwise(numbers) if a[0] != b[0]]
        for a, b in draw.sample(pairs, min(4, len(pairs))):
            between = text[a.end() : b.start()]
            yield Corruption(
                "swap offsets",
                f"at bytes {a.start()} and {b.start()} of {path}",
                put(a.start(), b.end(), b[0] + between + a[0]),
            )
        for match in _DTYPE.finditer(text, begin, end):
            new = _OTHER_DTYPE[match[0]]
            what = f"{new.decode()} for {match[0].decode()} in {path}"
            yield Corruption("dtype code", what, put(*match.span(), new))
        for _ in range(6):
            at, bit = draw.randrange(begin, end), draw.randrange(8)
            flipped = bytes([text[at] ^ 1 << bit])
            yield Corruption("flip header", f"bit {bit} of byte {at} of {path}", put(at, at + 1, flipped))


def _said_in_words(data: bytes) -> tuple[int, int]:
    """Return where the words of a NumPy header are: behind ten bytes, the last two of which say how many."""
    return 10, 10 + int.from_bytes(data[8:10], "little")


def _order(files: Files, anatomy: Anatomy) -> Iterator[Corruption]:
    """The other byte order: of counts and table, and of the ids."""
    fields = [*anatomy.counts, *([anatomy.dtype] if anatomy.dtype is not None else [])]
    if fields:
        data = dict(files)
        for field in fields:
            whole = data[field.path]
            cell = whole[field.offset : field.offset + field.width]
            data[field.path] = whole[: field.offset] + cell[::-1] + whole[field.offset + field.width :]
        yield Corruption("byte order", "of the header", data)
    path, begin, end = anatomy.payload
    ids = files[path][begin:end]
    if len(ids) % 2 == 0:
        turned = b"".join(ids[k + 1 : k + 2] + ids[k : k + 1] for k in range(0, len(ids), 2))
        yield Corruption(
            "byte order", f"of the ids in {path}", _with(files, path, files[path][:begin] + turned + files[path][end:])
        )


def _members(format_name: str, files: Files, anatomy: Anatomy) -> Iterator[Corruption]:
    if len(anatomy.members) > 1:
        for path in anatomy.members:
            yield Corruption("missing member", path, {p: data for p, data in files.items() if p != path})
    gone = {p: data for p, data in files.items() if p not in anatomy.members}
    if any(p not in RECORDS and p not in anatomy.sidecars for p in gone):
        yield Corruption("withdrawn shard", ", ".join(anatomy.members), gone)
    for path in anatomy.sidecars:
        yield Corruption("missing member", path, {p: data for p, data in files.items() if p != path})
    del format_name


def _others(files: Files, anatomy: Anatomy, other: Files) -> Iterator[Corruption]:
    for path in anatomy.sidecars:
        if path in other and other[path] != files[path]:
            yield Corruption("stale sidecar", path, _with(files, path, other[path]))
    if all(path in other for path in anatomy.members):
        mixed = {**files, **{path: other[path] for path in anatomy.members}}
        if mixed != dict(files):
            yield Corruption("shards of two dtypes", ", ".join(anatomy.members), mixed)


def anatomy_of(format_name: str, files: Files) -> Anatomy:
    """Return where the parts of the first shard of a corpus are."""
    data = {path: files[path] for path in sorted(files) if path.rpartition("/")[2] not in RECORDS}
    for prefix, find in _FIND.items():
        if format_name.startswith(prefix):
            return find(data)
    first = next(iter(data))
    members = tuple(path for path in data if path.startswith(first.partition(".")[0]))
    largest = max(members, key=lambda path: len(data[path]))
    return Anatomy((largest, 0, len(data[largest])), members=members, sidecars=_beside(data))


def _beside(data: Files) -> tuple[str, ...]:
    names = ("index.json", "shard_ledger.json", "manifest.json")
    return tuple(
        path for path in data if path.rpartition("/")[2] in names or path.endswith(("_index.json", "_docs.jsonl"))
    )


def _first(data: Files, suffix: str) -> str:
    return next(path for path in data if path.endswith(suffix))


def _megatron(data: Files) -> Anatomy:
    idx = _first(data, ".idx")
    payload = idx[:-4] + ".bin"
    sequences, entries = struct.unpack_from("<QQ", data[idx], 18)
    return (
        Anatomy(
            (payload, 0, len(data[payload])),
            (idx, 0, 34),
            (idx, 34 + 4 * sequences, 8, sequences),
            (Field(idx, 18, 8), Field(idx, 26, 8)),
            Field(idx, 17, 1),
            (payload, idx),
        )
        if entries
        else Anatomy((payload, 0, 0), members=(payload, idx))
    )


def _llmc(data: Files) -> Anatomy:
    path = _first(data, ".bin")
    end = len(data[path])
    beside = _beside(data)
    count, version = (Field(path, 8, 4),), Field(path, 4, 4)
    return Anatomy((path, 1024, end), (path, 0, 12), None, count, version, (path,), beside, beside)


def _raw(data: Files) -> Anatomy:
    path = _first(data, ".bin")
    return Anatomy((path, 0, len(data[path])), members=(path,))


def _npy(data: Files) -> Anatomy:
    path = _first(data, ".npy")
    begin = 10 + int.from_bytes(data[path][8:10], "little")
    return Anatomy((path, begin, len(data[path])), (path, 0, begin), members=(path,), texts=(path,))


def _ounce(data: Files) -> Anatomy:
    path = _first(data, ".bin")
    _, documents, tokens, _ = struct.unpack_from("<4I", data[path])
    begin = 16 + 4 * (documents + 1)
    return Anatomy(
        (path, begin, begin + 2 * tokens),
        (path, 0, 16),
        (path, 16, 4, documents + 1),
        (Field(path, 4, 4), Field(path, 8, 4)),
        None,
        (path,),
        _beside(data),
        _beside(data),
    )


def _datatrove(data: Files) -> Anatomy:
    path = _first(data, ".ds")
    members = tuple(p for p in data if p.startswith(path))
    index = path + ".index"
    table = (index, 0, 8, len(data[index]) // 8)
    return Anatomy((path, 0, len(data[path])), None, table, members=members, texts=(f"{path}.metadata",))


def _olmo(data: Files) -> Anatomy:
    path = _first(data, ".npy")
    table = path[:-4] + ".csv.gz"
    return Anatomy((path, 0, len(data[path])), members=(path, table), texts=(table,))


def _offsets(data: Files, suffix: str) -> Anatomy:
    """Files that begin with a count and a table of u32 offsets of bytes, and an ``index.json`` beside."""
    path = _first(data, suffix)
    (items,) = struct.unpack_from("<I", data[path])
    (begin,) = struct.unpack_from("<I", data[path], 4)
    return Anatomy(
        (path, begin, len(data[path])),
        (path, 0, 4),
        (path, 4, 4, items + 1),
        (Field(path, 0, 4),),
        None,
        (path,),
        _beside(data),
        _beside(data),
    )


def _mds(data: Files) -> Anatomy:
    found = _offsets(data, ".mds")
    path, table = found.payload[0], found.table
    if table is None:
        return found
    end = table[1] + table[2] * table[3]  # behind the table stands what the columns are
    return replace(found, header=(path, end, found.payload[1]))


def _litdata(data: Files) -> Anatomy:
    return _offsets(data, ".bin")


def _arrow(data: Files) -> Anatomy:
    """The first batch of a stream: its offsets are the table, its ids the payload, the schema before it the header."""
    from tokenreel.formats.arrow_messages import Walk
    from tokenreel.formats.parquet_footer import COLUMNS
    from tokenreel.store import MemoryStore

    path = _first(data, ".arrow")
    walk = Walk(MemoryStore({path: data[path]}).reader(path), COLUMNS)
    begin = walk.at
    batch = next(walk.batches())
    width = 8 if walk.column.wide else 4
    end = batch.ids_at + batch.ids * int(walk.column.dtype[-1])
    return Anatomy(
        (path, batch.ids_at, end),
        (path, 0, batch.offsets_at),
        (path, batch.offsets_at, width, batch.rows + 1),
        (Field(path, begin + 4, 4),),
        members=(path,),
    )


def _parquet(data: Files) -> Anatomy:
    """The pages of the column of ids are the payload, the footer the header, its length the count."""
    from tokenreel.formats.parquet_footer import read_footer
    from tokenreel.store import MemoryStore

    path = _first(data, ".parquet")
    size = len(data[path])
    chunk = read_footer(MemoryStore({path: data[path]}).reader(path)).chunks[0]
    footer = size - 8 - int.from_bytes(data[path][-8:-4], "little")
    pages = (path, chunk.begin, chunk.begin + chunk.size)
    return Anatomy(pages, (path, footer, size - 8), None, (Field(path, size - 8, 4),), members=(path,))


def _levanter(data: Files) -> Anatomy:
    """Chunks of ids are the payload, those of the offsets the header; what describes the arrays, and the ledger, is text."""
    ids = next(path for path in data if "/data/c" in path)
    name = ids.partition("/data/c")[0]
    offsets = next(path for path in data if path.startswith(f"{name}/offsets/c"))
    described = tuple(path for path in data if path.startswith(name) and path.endswith("zarr.json"))
    members = tuple(path for path in data if path.startswith(f"{name}/"))
    ledger = _beside(data)
    # Behind the chunks of a file stands an index of their places, which has a checksum.
    index = 16 * int(_per_file(data[f"{name}/data/zarr.json"])) + 4
    # Of a small corpus the beginning of a chunk is ids, and all the rest of it zeros.
    where = (ids, 0, min(64, len(data[ids]) - index)), (offsets, 0, len(data[offsets]))
    return Anatomy(*where, members=members, sidecars=ledger, texts=(*ledger, *described))


def _per_file(described: bytes) -> int:
    value = json.loads(described)
    (outer,) = value["chunk_grid"]["configuration"]["chunk_shape"]
    (inner,) = value["codecs"][0]["configuration"]["chunk_shape"]
    return int(outer // inner)


_FIND = {
    "arrow": _arrow,
    "parquet": _parquet,
    "levanter": _levanter,
    "megatron": _megatron,
    "llmc": _llmc,
    "hobbylm": _llmc,
    "raw": _raw,
    "npy": _npy,
    "ounce": _ounce,
    "datatrove": _datatrove,
    "olmo": _olmo,
    "mds": _mds,
    "litdata": _litdata,
}
"""By the beginning of a format's name; formats that are not here are damaged as one run of bytes."""
