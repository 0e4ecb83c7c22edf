"""Megatron pairs as `convert` writes them: every document is one sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.formats.writing import Holds

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from tokenreel.formats.base import Ids, WrittenFile
    from tokenreel.formats.writing import WriteOptions

HOLDS = Holds(
    table=True, empty=True, largest_id=(1 << 63) - 1, dtypes=("uint8", "int8", "uint16", "int16", "int32", "int64")
)


def open_writer(root: Path, name: str, options: WriteOptions) -> PairWriter:
    """Return a writer of ``name.bin`` and ``name.idx`` below `root`."""
    return PairWriter(root, name, options)


class PairWriter:
    """`MegatronWriter` as a `ShardWriter`."""

    def __init__(self, root: Path, name: str, options: WriteOptions) -> None:
        self._root = root
        self._writer = MegatronWriter(root / name, options.dtype)

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the format has no place for them)
    ) -> None:
        """Append documents, each one sequence."""
        self._writer.add_documents(ids, lengths)

    def finish(self) -> tuple[WrittenFile, ...]:
        """Complete the pair."""
        files = self._writer.finish()
        return tuple(replace(file, path=str(self._relative(file.path))) for file in files)

    def _relative(self, path: str) -> str:
        return path[len(str(self._root)) :].lstrip("/")

    def abort(self) -> None:
        """Remove what was written."""
        self._writer.abort()
