"""What every writable format gives `convert`: what it can hold, and a writer for one shard.

A writing module has a constant ``HOLDS`` (a dictionary by name of format, where it writes several), a function ``open_writer(root, name, options)``, and, where a corpus has files
of its own beside those of its shards (``index.json``, sidecars), ``finish_folder(root, shards, options)``. Its row of the
registry names the first, ``writer="open_writer"``, or ``writer="MODULE:open_writer"`` where writing is a module of its own.
A module may have ``shard_name(number, options)``, where its files have names of their own (``chunk-0-3``), and
``stands(root, name)``, where a shard leaves something beside it for `finish_folder`. The shortest
example is ``formats/megatron_writer.py``. Readers of formats that hold weights or metadata have the methods of
`WeightsShard` and `FactsShard` beside those of `formats.base.Shard`.

What a writer may count on: the ids are of an integer type and fit ``options.dtype``; lengths are int64, none negative, and
add up to the ids; no empty document comes where ``HOLDS.empty`` is false; where ``HOLDS.table`` is false every document has
the boundary of ``options.boundary`` and none inside. `convert` sees to that, and writers need not check it again.
Shards are written by several processes at once; `finish_folder` is called once, in one, after the last of them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from tokenreel.errors import UsageError
from tokenreel.formats.base import Boundary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from tokenreel.formats.base import Ids, WrittenFile
    from tokenreel.formats.registry import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """What a format can hold; `convert` refuses before writing what does not fit."""

    table: bool
    """Documents are delimited by a table; else by ids around them inside the stream."""
    empty: bool
    """Documents without ids survive."""
    largest_id: int
    """Of the widest dtype."""
    inside: bool = True
    """A separator may stand inside a document; without a table it never may."""
    weights: bool = False
    """Weights of tokens, one float32 each."""
    metadata: bool = False
    """Ids, sources and metadata of documents: the writer has `add_facts`."""
    dtypes: tuple[str, ...]
    """Names of numpy's integer types, the narrowest first."""
    shard_tokens: int | None = None
    """The most ids that one shard can hold, where its header or its table has a limit."""
    shard_bytes: int | None = None
    """The most bytes of ids, where offsets count bytes."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write a corpus."""

    dtype: str
    boundary: Boundary = field(default=Boundary(table=True))
    options: Mapping[str, object] = field(default_factory=dict)
    """What only one format knows, by name, each with a default: ``vocab``, ``tokenizer``, ``compression``."""


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    """What is known of one document besides its ids; None is not known."""

    id: str | None = None
    kind: str | None = None
    """Of the id: ``text``, ``normalised``, ``tokens``, ``upstream``."""
    source: str | None = None
    upstream_id: str | None = None
    metadata: str | None = None
    """A JSON object, as text."""


class ShardWriter(Protocol):
    """Writes one shard into temporary files, which get their names at `finish`; `abort` leaves nothing.

    Raises `StorageError` (STO003) for what the operating system refuses.
    """

    def add_documents(
        self, ids: Ids, lengths: npt.NDArray[np.int64], weights: npt.NDArray[np.float32] | None = None
    ) -> None:
        """Append documents: their stored ids end to end, the length of each, and one weight for each id."""
        ...

    def finish(self) -> tuple[WrittenFile, ...]:
        """Complete the files, give them their names and return them: paths below the root, sizes, SHA-256."""
        ...

    def abort(self) -> None:
        """Remove what was written; harmless after `finish`."""
        ...


@runtime_checkable
class FactsWriter(Protocol):
    """A `ShardWriter` of a format that holds metadata."""

    def add_facts(self, facts: Sequence[DocumentFacts]) -> None:
        """Say what is known of the documents that the next `add_documents` brings, one for each."""
        ...


@runtime_checkable
class FactsShard(Protocol):
    """A `Shard` of a format that holds metadata."""

    def facts(self, i: int, j: int) -> Sequence[DocumentFacts]:
        """Return what is known of documents [i, j)."""
        ...


@runtime_checkable
class WeightsShard(Protocol):
    """A `Shard` of a format that holds weights of tokens."""

    def weights(self, begin: int, end: int) -> npt.NDArray[np.float32] | None:
        """Return the weights of the stored ids [begin, end), or None where this shard has none."""
        ...


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """What `finish_folder` is told of each shard, in order."""

    name: str
    """Path below the root, without suffix, as `open_writer` was given it."""
    documents: int
    tokens: int
    files: tuple[WrittenFile, ...]


@dataclass(frozen=True, slots=True)
class Writing:
    """The functions of one format's writing module."""

    holds: Holds
    open_writer: Callable[[Path, str, WriteOptions], ShardWriter]
    finish_folder: Callable[[Path, Sequence[FinishedShard], WriteOptions], tuple[WrittenFile, ...]] | None
    """Writes the files of the whole corpus and returns them."""
    shard_name: Callable[[int, WriteOptions], str] | None
    """Names shard 0, 1, ... where the format has rules for it."""
    stands: Callable[[Path, str], bool] | None = None
    """Whether what a finished shard left for `finish_folder` is as it was written, where it leaves anything."""


def writing_of(row: Format) -> Writing:
    """Import and return what writes a format; raises `UsageError` (USE014) for one that is only read."""
    if not row.writer:
        raise UsageError("USE014", expected="a format that is written", found=row.name, hint="tokenreel formats")
    module_name, _, function = row.writer.rpartition(":")
    module = importlib.import_module(module_name or row.module)
    holds = module.HOLDS
    return Writing(
        cast("Holds", holds[row.name] if isinstance(holds, dict) else holds),
        getattr(module, function),
        getattr(module, "finish_folder", None),
        getattr(module, "shard_name", None),
        getattr(module, "stands", None),
    )
