"""Every check of a Megatron pair, as problems: what the reader raises first and `verify` lists whole.

Two stages. `examine` costs O(1): header, size equation, first and last entries. `scan_table` reads the tables once, in
chunks of 64 Ki entries, about 10 ms per million documents, and says only whether they are sound;
`megatron_diagnose.diagnose` then finds out what is wrong with one that is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokenreel.errors import FormatError, StorageError
from tokenreel.formats.base import Problem
from tokenreel.formats.megatron_diagnose import diagnose
from tokenreel.formats.megatron_layout import (
    CODE_AT,
    DTYPES,
    ENTRIES_AT,
    FLOATS,
    HEADER_BYTES,
    LEGACY_MAGIC,
    LENGTH,
    LENGTHS_AT,
    MAGIC,
    VERSION,
    VERSION_AT,
    WIDE,
    Layout,
    unpack_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.store.base import Reader, Store

CHUNK = 1 << 16
"""Table entries read at a time: 512 KiB of pointers, which stay in the second-level cache."""

OVERRULABLE = frozenset({"MEG009", "MEG020", "MEG021"})
"""Refusals that lose nothing a Megatron job would read: bytes behind the tables or behind the last token."""

Level = Literal["open", "table"]


@dataclass(frozen=True, slots=True)
class Examined:
    """What O(1) reads show about a pair."""

    layout: Layout | None
    """None when the ``.idx`` cannot be read as one."""
    problems: tuple[Problem, ...]
    settled: bool
    """Whether the last sequence ends exactly where the ``.bin`` does. If not, only the tables can say who is wrong."""
    tokens: int
    """Tokens up to the end of the last sequence; 0 unless `settled` or bytes follow it."""


@dataclass(frozen=True, slots=True)
class TableScan:
    """One pass over the tables."""

    sound: bool
    """No negative length, every pointer the sum of the lengths before it, the document index never decreasing."""
    end: int
    """Byte of the ``.bin`` where the last sequence ends; meaningful when sound."""
    plain: bool
    """Document d is sequence d."""
    pointer_fences: npt.NDArray[np.int64]
    """Every `CHUNK`-th pointer, to look positions up without reading the table again."""
    index_fences: npt.NDArray[np.int64]
    """Every `CHUNK`-th entry of the document index."""


def check_pair(store: Store, prefix: str, level: Level = "table") -> Iterator[Problem]:
    """Yield every problem of the pair ``prefix.idx`` / ``prefix.bin``; none means sound at that level.

    ``open`` is what opening checks, O(1) unless something is wrong; ``table`` validates the whole tables too. Problems
    come lazily: a table damaged throughout has one per damaged run of entries, so take only as many as are shown.
    Raises `StorageError` for what cannot be read at all, STO001 when neither file is there.

    >>> from tokenreel.store import MemoryStore
    >>> [p.code for p in check_pair(MemoryStore({"a.idx": b"", "a.bin": b""}), "a")]
    ['MEG002']
    """
    missing = missing_member(store, prefix)
    if missing is not None:
        yield missing
        return
    idx, bin_size = store.reader(f"{prefix}.idx"), store.size(f"{prefix}.bin")
    try:
        examined = examine(idx, prefix, bin_size)
        yield from examined.problems
        if examined.layout is not None and (level == "table" or not examined.settled):
            yield from table_findings(examined.layout, idx, prefix, bin_size)
    finally:
        idx.close()


def missing_member(store: Store, prefix: str) -> Problem | None:
    """Return the problem of a pair with one file; raises `StorageError` (STO001) when it has none."""
    idx, payload = f"{prefix}.idx", f"{prefix}.bin"
    has_idx, has_bin = store.exists(idx), store.exists(payload)
    if has_idx and has_bin:
        return None
    if not has_idx and not has_bin:
        raise StorageError("STO001", path=full_path(store, f"{prefix}.{{idx,bin}}"), hint=f"ls -l {store.root}")
    code, path, other = ("MEG023", payload, idx) if has_idx else ("MEG024", idx, payload)
    return Problem(code, path, f"{other} is there, {path} is not", expected=f"{idx} and {payload}", found=other)


def full_path(store: Store, path: str) -> str:
    """Return what messages call a store's file."""
    return f"{store.root.rstrip('/')}/{path}"


def as_error(problem: Problem, store: Store, prefix: str) -> FormatError:
    """Return the `FormatError` of a problem, with the command that helps."""
    path = full_path(store, problem.path)
    hint = f"tokenreel verify {path}"
    if problem.code in OVERRULABLE:
        hint += f"   (to read it as Megatron does, ignoring those bytes: --accept {problem.code})"
    return FormatError(
        problem.code,
        problem.message,
        path=path,
        offset=problem.offset,
        shard=prefix,
        document=problem.document,
        expected=problem.expected,
        found=problem.found,
        hint=hint,
    )


def examine(idx: Reader, prefix: str, bin_size: int) -> Examined:
    """Return what header, size equation, first and last entries show. Cost: at most six small reads."""
    path = f"{prefix}.idx"
    header = _header(idx, path)
    if isinstance(header, Problem):
        return Examined(None, (header,), settled=False, tokens=0)
    dtype, sequences, entries = header
    sized = _size_equation(idx, path, dtype, sequences, entries)
    if isinstance(sized, Problem):
        return Examined(None, (sized,), settled=False, tokens=0)
    layout, problems = sized
    if layout.sequences == 0:
        return Examined(layout, (*problems, *_index_ends(idx, path, layout)), settled=bin_size == 0, tokens=0)
    first = _entry(idx, WIDE, layout.pointers_at)
    last = _entry(idx, WIDE, layout.pointers_at + 8 * (sequences - 1))
    length = _entry(idx, LENGTH, LENGTHS_AT + 4 * (sequences - 1))
    end = last + length * dtype.itemsize
    plausible = first == 0 and last >= 0 and length >= 0 and last % dtype.itemsize == 0
    problems += _index_ends(idx, path, layout)
    return Examined(
        layout, tuple(problems), settled=plausible and end == bin_size, tokens=max(0, end) // dtype.itemsize
    )


def _header(idx: Reader, path: str) -> tuple[np.dtype[Any], int, int] | Problem:
    size = idx.size
    if size == 0:
        return Problem(
            "MEG002", path, "the index is empty: 0 bytes", 0, expected=f"{HEADER_BYTES} bytes and more", found="0 bytes"
        )
    start = idx.read(0, min(size, HEADER_BYTES))
    if start.startswith(LEGACY_MAGIC):
        return Problem(
            "MEG004",
            path,
            "a legacy TNTIDX index of fairseq and early Megatron, not an IndexedDataset v1",
            0,
            expected=MAGIC.hex(" "),
            found=LEGACY_MAGIC.hex(" "),
        )
    if start[: len(MAGIC)] != MAGIC[: len(start)]:
        found = start[: len(MAGIC)].hex(" ")
        return Problem(
            "MEG001", path, f"wrong magic in a file of {size} bytes", 0, expected=MAGIC.hex(" "), found=found
        )
    if size < HEADER_BYTES:
        return Problem(
            "MEG003",
            path,
            "the file ends inside the header",
            size,
            expected=f"{HEADER_BYTES} bytes",
            found=f"{size} bytes",
        )
    version, code, sequences, entries = unpack_header(start)
    if version != VERSION:
        return Problem("MEG005", path, "unknown version", VERSION_AT, expected=VERSION, found=version)
    if code in FLOATS:
        here, there = FLOATS[code]
        message = f"tokens are {here} (code {code} of Megatron; GPT-NeoX, which swaps 6 and 7, means {there})"
        return Problem("MEG007", path, message, CODE_AT, expected="an integer type: 1, 2, 3, 4, 5 or 8", found=code)
    if code not in DTYPES:
        return Problem("MEG006", path, "unknown type code", CODE_AT, expected="1, 2, 3, 4, 5 or 8", found=code)
    return DTYPES[code], sequences, entries


def _size_equation(
    idx: Reader, path: str, dtype: np.dtype[Any], sequences: int, entries: int
) -> tuple[Layout, list[Problem]] | Problem:
    """Settle which of the two count conventions holds, from the file size and, where that leaves two, the contents."""
    layout = Layout(dtype, sequences, entries)
    excess = idx.size - layout.end
    if excess < 0:
        return _cut(path, layout, idx.size)
    if excess >= WIDE.itemsize:
        more = Layout(dtype, sequences, entries + 1, counts_documents=True)
        ends_early = entries > 0 and _entry(idx, WIDE, layout.end - 8) == sequences
        # When the entry before it already closes the index, the next eight bytes are not part of it for Megatron.
        if not ends_early and _entry(idx, WIDE, layout.end) == sequences:
            layout, excess = more, excess - 8
    if layout.entries == 0:
        return Problem("MEG011", path, "the document index has no entries", ENTRIES_AT, expected=">= 1", found=0)
    if excess == 0:
        return layout, []
    if excess == sequences:
        message = f"{sequences} bytes of sequence modes follow the document index: a multimodal dataset"
        return Problem("MEG010", path, message, layout.end, expected=f"{layout.end} bytes", found=f"{idx.size} bytes")
    message = f"{excess} bytes follow the document index"
    trailing = Problem("MEG009", path, message, layout.end, expected=f"{layout.end} bytes", found=f"{idx.size} bytes")
    return layout, [trailing]


def _cut(path: str, layout: Layout, size: int) -> Problem:
    """Return the problem of an index that is too small for its counts: how many bytes short, and in which array."""
    if size < layout.pointers_at:
        array, begin = "lengths", LENGTHS_AT
    elif size < layout.index_at:
        array, begin = "pointers", layout.pointers_at
    else:
        array, begin = "document index", layout.index_at
    message = (
        f"{layout.end - size} bytes short, cut in the {array} (from byte {begin} on), "
        f"for {layout.sequences} sequences and {layout.entries} entries of the document index"
    )
    return Problem("MEG008", path, message, size, expected=f"{layout.end} bytes", found=f"{size} bytes")


def _index_ends(idx: Reader, path: str, layout: Layout) -> list[Problem]:
    problems = []
    first = _entry(idx, WIDE, layout.index_at)
    if first != 0:
        message = "the document index does not begin at sequence 0"
        problems.append(Problem("MEG012", path, message, layout.index_at, document=0, expected=0, found=first))
    at = layout.end - 8
    last = _entry(idx, WIDE, at)
    if last != layout.sequences and (layout.entries > 1 or layout.sequences):
        message = "the document index does not end at the number of sequences"
        document = max(0, layout.documents - 1)
        problems.append(Problem("MEG013", path, message, at, document=document, expected=layout.sequences, found=last))
    return problems


def _entry(idx: Reader, dtype: np.dtype[Any], at: int) -> int:
    return int.from_bytes(idx.read(at, dtype.itemsize), "little", signed=True)


def table_findings(layout: Layout, idx: Reader, prefix: str, bin_size: int) -> Iterator[Problem]:
    """Yield every problem of the tables and of the ``.bin``'s size against them, by table, in order of sequence.

    The two ends of the document index belong to `examine` and are not repeated.
    """
    scan = scan_table(layout, idx)
    if not scan.sound or scan.end != bin_size:
        yield from diagnose(layout, idx, prefix, bin_size)


def scan_table(layout: Layout, idx: Reader) -> TableScan:
    """Return whether the tables are sound, reading each once. Cost: about 10 ms per million documents."""
    sound, end, pointer_fences = _scan_sequences(layout, idx)
    rising, plain, index_fences = _scan_index(layout, idx)
    return TableScan(sound and rising, end, plain, pointer_fences, index_fences)


def _scan_sequences(layout: Layout, idx: Reader) -> tuple[bool, int, npt.NDArray[np.int64]]:
    count, width = layout.sequences, layout.dtype.itemsize
    fences = np.zeros(-(-count // CHUNK), dtype=np.int64)
    sound, end = True, 0
    for begin in range(0, count, CHUNK):
        size = min(CHUNK, count - begin)
        lengths = idx.array(LENGTH, LENGTHS_AT + 4 * begin, size)
        pointers = idx.array(WIDE, layout.pointers_at + 8 * begin, size)
        fences[begin // CHUNK] = pointers[0]
        steps = pointers[1:] - pointers[:-1]
        sound = (
            sound
            and int(pointers[0]) == end
            and int(lengths.min()) >= 0
            and bool(np.array_equal(steps, lengths[:-1] * np.int64(width)))
        )
        end = int(pointers[-1]) + int(lengths[-1]) * width
    return sound, end, fences


def _scan_index(layout: Layout, idx: Reader) -> tuple[bool, bool, npt.NDArray[np.int64]]:
    fences = np.zeros(-(-layout.entries // CHUNK), dtype=np.int64)
    rising, plain, before = True, layout.documents == layout.sequences, 0
    for begin in range(0, layout.entries, CHUNK):
        entries = idx.array(WIDE, layout.index_at + 8 * begin, min(CHUNK, layout.entries - begin))
        fences[begin // CHUNK] = entries[0]
        rising = rising and int(entries[0]) >= before and bool((entries[1:] >= entries[:-1]).all())
        plain = plain and int(entries[0]) == begin and bool((entries[1:] - entries[:-1] == 1).all())
        before = int(entries[-1])
    return rising, plain, fences
