"""Index arrays as files: NumPy's format, written atomically, read only after header and size agree.

A file is what ``numpy.save`` writes for the same array, byte for byte; that is what Megatron and MaxText load.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError
from tokenreel.store import atomic_write

if TYPE_CHECKING:
    import numpy.typing as npt

LONGEST_HEADER = 1 << 12
MAGIC = b"\x93NUMPY"
HEADER = re.compile(
    rb"\{'descr': '(?P<dtype>[<|][iu][1248])', 'fortran_order': False, "
    rb"'shape': \((?P<shape>\d{1,18}, ?\d{1,18}|\d{1,18},)\), ?\} *\n"
)


def write_array(path: str | os.PathLike[str], array: npt.NDArray[Any]) -> None:
    """Write an array as ``numpy.save`` does, atomically; raises `StorageError` (STO003)."""
    with atomic_write(path) as file:
        np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)


def read_array(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Return a read-only map of an array of integers in one or two dimensions.

    Raises `FormatError`: IDX001 where there is no file, IDX002 for anything but the header of such an array and exactly
    its bytes. Nothing is allocated for what a header claims. O(1).
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(LONGEST_HEADER)
            shape, dtype, offset = _header(head, place)
            needed = offset + int(np.prod(shape, dtype=object)) * dtype.itemsize
            if needed != size:
                raise FormatError("IDX002", path=place, expected=f"{needed} bytes of {dtype} {shape}", found=size)
            if 0 in shape:
                return np.empty(shape, dtype=dtype)
            return np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=shape)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FormatError("IDX001", path=place, hint=f"ls {place.parent}") from error
    except OSError as error:
        raise FormatError("IDX002", f"could not read: {error.strerror or error}", path=place) from error


def _header(head: bytes, path: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return (shape, dtype, offset of the data) that the first bytes of a file claim, if they can be an index's.

    A header is matched, not evaluated: what NumPy writes for such arrays has one form.
    """
    wide = head[6:7] != b"\x01"
    begin = 12 if wide else 10
    if head[:6] != MAGIC or head[6:8] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00") or len(head) < begin:
        raise FormatError("IDX002", path=path, offset=0, expected="NumPy's magic and version", found=repr(head[:8]))
    offset = begin + int.from_bytes(head[8:begin], "little")
    text = head[begin:offset]
    found = HEADER.fullmatch(text) if offset <= len(head) else None
    if found is None:
        expected = "integers in C order, in one or two dimensions"
        shown = text[:80].decode("ascii", "replace").strip()
        raise FormatError("IDX002", path=path, offset=begin, expected=expected, found=shown or "a cut header")
    shape = tuple(int(part) for part in found["shape"].split(b",") if part.strip())
    return shape, np.dtype(found["dtype"].decode()), offset


def same_array(path: str | os.PathLike[str], array: npt.NDArray[Any]) -> bool:
    """Return whether a file holds exactly this array; False also where it cannot be read."""
    try:
        stored = read_array(path)
    except FormatError:
        return False
    return stored.dtype == array.dtype and stored.shape == array.shape and np.array_equal(stored, array)


def first_difference(stored: npt.NDArray[Any], made: npt.NDArray[Any]) -> tuple[str, object, object] | None:
    """Return (what, expected, found) for the first thing in which a stored array is not the one made, or None.

    >>> first_difference(np.array([1, 2, 4]), np.array([1, 2, 3]))
    ('entry 2', 3, 4)
    """
    if stored.dtype != made.dtype:
        return "dtype", str(made.dtype), str(stored.dtype)
    if stored.shape != made.shape:
        return "shape", list(made.shape), list(stored.shape)
    step = 1 << 20
    for begin in range(0, len(made), step):
        ours, theirs = made[begin : begin + step], stored[begin : begin + step]
        if not np.array_equal(ours, theirs):
            other = ours != theirs
            at = int(np.argmax(other.any(axis=1) if other.ndim == 2 else other))
            return f"entry {begin + at}", _value(ours[at]), _value(theirs[at])
    return None


def _value(item: Any) -> object:
    return item.tolist()
