"""What every format gives the corpus: shards with a stream of ids, and edges of documents and sequences in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tokenreel.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.integer[Any]]
    Edges = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Boundary:
    """How documents are delimited: ids before, ids after, a table. All empty and no table is *unknown*."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    table: bool = False

    @property
    def known(self) -> bool:
        """Whether documents can be told apart at all."""
        return bool(self.prefix or self.suffix or self.table)

    @classmethod
    def parse(cls, text: str, *, table: bool = False) -> Boundary:
        """Parse ``prefix=1,suffix=2``, several ids joined with ``+``; raises `UsageError` (USE003).

        >>> Boundary.parse("suffix=2+3")
        Boundary(prefix=(), suffix=(2, 3), table=False)
        """
        sides: dict[str, tuple[int, ...]] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, ids = part.partition("=")
            numbers = ids.split("+")
            if not equals or name not in ("prefix", "suffix") or name in sides or not all(map(_is_id, numbers)):
                raise UsageError(
                    "USE003",
                    "a boundary is given in ids, as `tokenreel inspect PATH` shows them; adopt takes tokens, with --tokenizer",
                    expected="prefix=ID[+ID...],suffix=ID[+ID...]",
                    found=text,
                    hint="--boundary suffix=2",
                )
            sides[name] = tuple(map(int, numbers))
        return cls(sides.get("prefix", ()), sides.get("suffix", ()), table)

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form of manifests."""
        return {"prefix": list(self.prefix), "suffix": list(self.suffix), "table": self.table}


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a shard: what a reader raises first and what `verify` lists whole."""

    code: str
    path: str
    message: str = ""
    offset: int | None = None
    """Byte in `path`."""
    sequence: int | None = None
    document: int | None = None
    expected: object = None
    found: object = None


@dataclass(frozen=True, slots=True)
class Found:
    """One shard found in a listing."""

    format: str
    name: str
    """Path below the root, without suffix."""
    files: tuple[str, ...]
    """Its files, the one with the ids first."""
    order: str = ""
    """What it is sorted by instead of its name, where an index says another order than that of names."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One finished file."""

    path: str
    bytes: int
    sha256: str


class Shard(Protocol):
    """One token file (or pair of files), opened: header and size equation are checked, the table not yet.

    Positions are tokens in this shard's own stream, [0, tokens). `check_table` must pass before anything is read; the
    methods below call it themselves.
    """

    @property
    def format(self) -> str:
        """Name and version of the layout, as in ``megatron-v1``."""
        ...

    @property
    def name(self) -> str:
        """Path below the corpus root, without suffixes."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """The files it is made of, relative to the corpus root."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Stored integer type."""
        ...

    @property
    def boundary(self) -> Boundary:
        """What the bytes themselves say about boundaries."""
        ...

    @property
    def tokens(self) -> int:
        """Stored ids."""
        ...

    @property
    def documents(self) -> int:
        """Documents."""
        ...

    @property
    def sequences(self) -> int:
        """Sequences; equal to documents where the format has none."""
        ...

    @property
    def contiguous(self) -> bool:
        """Whether all ids lie end to end in one file, from `byte_at(0)` on, as they are read; else they are put together."""
        ...

    def check_table(self) -> None:
        """Validate the whole table once; raises `FormatError` at the first problem, and again at every later call."""
        ...

    def document_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit documents [i, j)."""
        ...

    def sequence_edges(self, i: int, j: int) -> Edges:
        """Return the j-i+1 token offsets that delimit sequences [i, j)."""
        ...

    def document_sequences(self, i: int, j: int) -> Edges:
        """Return the first sequence of each document of [i, j), and the end of the last."""
        ...

    def documents_at(self, positions: Edges) -> Edges:
        """Return which document holds each token position; an empty document holds none."""
        ...

    def read(self, begin: int, end: int) -> Ids:
        """Return the stored ids [begin, end), read-only."""
        ...

    def document(self, i: int) -> Ids:
        """Return the stored ids of document `i`, read-only."""
        ...

    def byte_at(self, position: int) -> tuple[str, int]:
        """Return the file and the byte offset of a token, for messages and for the gather kernel."""
        ...

    def close(self) -> None:
        """Give handles back; arrays handed out stay valid."""
        ...
