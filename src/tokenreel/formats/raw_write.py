"""Write ids without a header, as nanoGPT does, and NumPy's ``.npy`` files, byte for byte as numpy.save writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenreel.formats.raw import NPY_MAGIC
from tokenreel.formats.sink import SinkWriter
from tokenreel.formats.writing import Holds

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.formats.base import Ids
    from tokenreel.formats.writing import WriteOptions

HEADER_BYTES = 128
"""Of a ``.npy`` file of one dimension; NumPy leaves room in it for any length."""
_ALL = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
HOLDS = {
    "raw-uint16": Holds(table=False, empty=False, largest_id=(1 << 16) - 1, dtypes=("uint16",)),
    "raw-uint32": Holds(table=False, empty=False, largest_id=(1 << 32) - 1, dtypes=("uint32",)),
    "npy": Holds(table=False, empty=False, largest_id=(1 << 64) - 1, dtypes=_ALL),
}


def open_writer(root: Path, name: str, options: WriteOptions) -> RawWriter:
    """Return a writer of ``name.bin`` below `root`, without a header."""
    return RawWriter(root, f"{name}.bin", options.dtype)


def open_npy_writer(root: Path, name: str, options: WriteOptions) -> RawWriter:
    """Return a writer of ``name.npy`` below `root`."""
    return NpyWriter(root, f"{name}.npy", options.dtype)


class RawWriter(SinkWriter):
    """Writes one file of nothing but ids."""

    def __init__(self, root: Path, path: str, dtype: str, *, patched: bool = False) -> None:
        super().__init__()
        self._dtype = np.dtype(dtype).newbyteorder("<").str
        self._file = self.sink(root, path, patched=patched)

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the format has no place for them)
    ) -> None:
        """Append documents."""
        self._file.add(ids, self._dtype)
        self.documents += len(lengths)
        self.tokens += len(ids)


class NpyWriter(RawWriter):
    """Writes one ``.npy`` file."""

    def __init__(self, root: Path, path: str, dtype: str) -> None:
        super().__init__(root, path, dtype, patched=True)
        self._file.write(bytes(HEADER_BYTES))

    def _complete(self) -> None:
        said = f"{{'descr': '{self._dtype}', 'fortran_order': False, 'shape': ({self.tokens},), }}"
        start = NPY_MAGIC + b"\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
        self._file.overwrite(start + said.encode().ljust(HEADER_BYTES - 11) + b"\n")
