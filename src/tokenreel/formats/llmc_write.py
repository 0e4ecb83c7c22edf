"""Write llm.c shards: the header of 1,024 bytes, then the ids; byte for byte what llm.c's own writer gives."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from tokenreel.errors import FormatError, UsageError
from tokenreel.formats.llmc import HEADER_BYTES, KINDS
from tokenreel.formats.sink import SinkWriter
from tokenreel.formats.writing import Holds

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from tokenreel.formats.base import Ids
    from tokenreel.formats.writing import WriteOptions

MOST = (1 << 31) - 1
HOLDS = {
    "llmc-v1": Holds(table=False, empty=False, largest_id=(1 << 16) - 1, dtypes=("uint16",), shard_tokens=MOST),
    "llmc-v7": Holds(table=False, empty=False, largest_id=(1 << 32) - 1, dtypes=("uint32",), shard_tokens=MOST),
}
_OF_DTYPE = {"uint16": 20240520, "uint32": 20240801}


def open_writer(root: Path, name: str, options: WriteOptions) -> LlmcWriter:
    """Return a writer of ``name.bin`` below `root`: version 1 for uint16, version 7 for uint32."""
    return LlmcWriter(root, name, options.dtype)


def shard_name(number: int, options: WriteOptions) -> str:
    """Return ``NAME_000001``, counted from 0; `NAME` is ``options.options["name"]``, ``shard`` if left out."""
    return f"{name_given(options, 'shard')}_{number:06d}"


def name_given(options: WriteOptions, default: str) -> str:
    """Return ``options.options["name"]``, or the default; raises `UsageError` (USE003) for what is no plain file name."""
    name = options.options.get("name") or default
    if not isinstance(name, str) or not re.fullmatch(r"[\w][\w.+-]*", name):
        raise UsageError("USE003", "the name of shards", expected="letters, digits, _ . + -", found=name)
    return name


class LlmcWriter(SinkWriter):
    """Writes one shard. What is added may be part of a document: the rest is then the beginning of the next shard."""

    def __init__(self, root: Path, name: str, dtype: str) -> None:
        super().__init__()
        self._magic = _OF_DTYPE[dtype]
        _, self._version, self._code = KINDS[self._magic]
        self._file = self.sink(root, f"{name}.bin", patched=True)
        self._file.write(bytes(HEADER_BYTES))

    def add_documents(
        self,
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the format has no place for them)
    ) -> None:
        """Append documents. Raises `FormatError` (LMC010) beyond 2**31 - 1 ids, and nothing is written."""
        if self.tokens + len(ids) > MOST:
            raise FormatError("LMC010", path=self._file.target, expected=f"1 .. {MOST}", found=self.tokens + len(ids))
        self._file.add(ids, self._code)
        self.documents += len(lengths)
        self.tokens += len(ids)

    def _complete(self) -> None:
        if not self.tokens:
            raise FormatError("LMC010", path=self._file.target, expected=f"1 .. {MOST}", found=0)
        self._file.overwrite(struct.pack("<3i", self._magic, self._version, self.tokens))
