"""Plan files: lengths of documents and plans of packed rows, made once and mapped by every rank that needs them.

Two entries, each some arrays and, written last, a small file with their hashes: ``KEY-sizes`` under the corpus's key, and
``KEY-plan`` under a hash of the lengths, the packing and its seed. Files appear by renaming and are the same whoever makes them, so any
number of processes may start on an empty folder at once. A damaged entry is made again, and so is one whose documents do
not begin where the corpus's do.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import FormatError, OrderError, StorageError, UsageError
from tokenreel.hashing import xxh3_128
from tokenreel.index.arrays import read_array, write_array
from tokenreel.pack.packed import PackedOrder
from tokenreel.pack.packed_policy import NAMES, Packing
from tokenreel.pack.plan import Plan, make_plan
from tokenreel.pack.plan_sizes import Sizes
from tokenreel.store import write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokenreel.config import orders as kinds
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.index.assemble import Assembled
    from tokenreel.order.protocol import Order
    from tokenreel.spans import CorpusKey, DocTable

    Arrays = dict[str, npt.NDArray[Any]]

FORMAT = "tokenreel-plan-1"
CHECKED = 1024
"""Documents whose first token is compared with the corpus's before lengths from a file are used."""
THREADS = 8


def planned(
    order: PackedOrder, folder: str | os.PathLike[str] | None = None, *, threads: int | None = None
) -> tuple[PackedOrder, tuple[StorageError, ...]]:
    """Return an order prepared: lengths and plan mapped from `folder` where they are there, put there where not.

    What could not be written is returned (IDX005) and costs nothing else. `threads` changes the time alone. Raises what
    preparing raises.
    """
    if order.laid is not None or order.table is None or order.packing.policy == "flat":
        return order.prepare(), ()
    workers = threads or min(THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    if folder is None:
        return order.with_rows(Sizes.of(order.table), threads=workers), ()
    place, warnings = Path(folder), []
    key = _digest([FORMAT, "sizes", order.key.as_list()])
    held = _read(place / f"{key}-sizes", ("lengths", "begins"))
    sizes = None if held is None else Sizes(held["lengths"], held["begins"])
    if sizes is None or not _fits(sizes, order.table):
        sizes = Sizes.of(order.table)
        warnings += _write(place / f"{key}-sizes", {"lengths": sizes.lengths, "begins": sizes.begins})
    if not order.packing.planned or order.apart:
        return order.with_rows(sizes, threads=workers), tuple(warnings)
    seed = order.seed if order.packing.policy == "bestfit" else 0
    # The plan's name is of the lengths themselves, so that it cannot belong to others, whatever a key says.
    stem = place / f"{_digest([FORMAT, _hash(sizes.lengths), order.packing.as_dict(), seed])}-plan"
    held = _read(stem, ("entries", "firsts", "windows", "single"))
    plan = None if held is None else Plan(**held)
    if plan is None or not _whole(plan, sizes, order.packing.window):
        plan = make_plan(sizes, order.packing, order.seed, workers)
        arrays = {name: getattr(plan, name) for name in ("entries", "firsts", "windows", "single")}
        warnings += _write(stem, arrays)
    return order.with_rows(sizes, plan), tuple(warnings)


def packed_order(said: kinds.Packed, corpus: Corpus, seed: int = 0) -> PackedOrder:
    """Return the order that a run file's table says over a corpus, not yet prepared.

    Raises `OrderError`: PCK023 for a corpus of unknown boundaries, unless the policy is flat; `UsageError` (USE003) for a
    key of metadata that no document has; and what packing raises.
    """
    from tokenreel.order.windows_shuffle import BlockShuffle

    if not corpus.boundary.known and said.policy != "flat":
        raise OrderError(
            "PCK023", path=corpus.path, expected="a prefix, a suffix or a table", hint=f"tokenreel adopt {corpus.path}"
        )
    options = {name: getattr(said, name) for name in NAMES}
    packing = Packing.of(said.policy, said.row_tokens, **options)
    table = corpus.stream_table() if said.policy == "flat" else corpus.table()
    io = BlockShuffle(said.io.block, said.io.together) if said.io else None
    cut = _cut(corpus, said.cut) if said.cut else ()
    files = _files(corpus) if said.compat == "modded-nanogpt" else ()
    return PackedOrder.over(
        table, packing, seed=seed, shuffle=said.shuffle, epochs=said.epochs or None, io=io, compat=said.compat,
        ranks=said.ranks, group=said.group, files=files, cut=cut,
    )  # fmt: skip


def _files(corpus: Corpus) -> tuple[int, ...]:
    """Return the tokens of each of a corpus's shards; of a slice, what it has of them."""
    edges = np.cumsum([0, *corpus.shard_tokens], dtype=np.int64) - corpus.first_token
    return tuple(np.diff(np.clip(edges, 0, corpus.tokens)).tolist())


def _cut(corpus: Corpus, key: str) -> tuple[int, ...]:
    """Return the documents whose metadata says under `key` that they were cut."""
    from tokenreel.index.plan_groups import metadata_values

    values = metadata_values(corpus, key)
    if all(value is None for value in values):
        raise UsageError("USE003", f"cut = {key!r}", path=corpus.path, expected="a key of metadata", found="nowhere")
    return tuple(k for k, value in enumerate(values) if value)


def flat_warnings(made: Assembled) -> tuple[OrderError, ...]:
    """Return a warning (PCK024) for every corpus that is read flat although it says where its documents are."""

    def read_flat(order: Order) -> Iterator[CorpusKey]:
        if isinstance(order, PackedOrder) and order.packing.policy == "flat":
            yield from order.corpora
        for child in order.children:
            yield from read_flat(child)

    keys = set(read_flat(made.order))
    return tuple(
        OrderError("PCK024", path=corpus.path, expected='policy = "concat"', found="flat")
        for key, corpus in zip(made.order.corpora, made.corpora, strict=True)
        if key in keys and (corpus.boundary.known or bool(getattr(corpus, "sidecars", ())))
    )


def _digest(facts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _fits(sizes: Sizes, table: DocTable) -> bool:
    """Return whether lengths from a file are those of a corpus: in number, in sum, and in where documents begin."""
    if sizes.documents != table.documents or sizes.tokens != table.tokens:
        return False
    count = min(CHECKED, sizes.documents)
    some = np.linspace(0, max(0, sizes.documents - 1), count, dtype=np.int64)
    return bool(np.array_equal(sizes.offsets_at(some), table.offsets_at(some))) if count else True


def _whole(plan: Plan, sizes: Sizes, window: int) -> bool:
    windows, last = plan.windows, -(-sizes.documents // window)
    return bool(
        windows.shape == (last + 1, 3)
        and len(plan.single) == len(sizes.begins)
        and windows[-1].tolist() == [int(plan.single[-1]), len(plan.firsts), len(plan.entries)]
    )


def _read(stem: Path, names: tuple[str, ...]) -> Arrays | None:
    """Return the arrays of an entry, mapped; None where one is not there or not what was written."""
    try:
        said = json.loads(stem.with_name(f"{stem.name}.json").read_bytes())
        arrays = {name: read_array(stem.with_name(f"{stem.name}-{name}.npy")) for name in names}
    except (OSError, ValueError, FormatError):
        return None
    right = isinstance(said, dict) and said.get("format") == FORMAT
    if not right or said.get("hashes") != {name: _hash(array) for name, array in arrays.items()}:
        return None
    return {name: np.asarray(array) for name, array in arrays.items()}


def _write(stem: Path, arrays: Arrays) -> list[StorageError]:
    try:
        for name, array in arrays.items():
            write_array(stem.with_name(f"{stem.name}-{name}.npy"), array)
        said = {"format": FORMAT, "hashes": {name: _hash(array) for name, array in arrays.items()}}
        write_bytes_atomic(stem.with_name(f"{stem.name}.json"), json.dumps(said).encode() + b"\n")
    except StorageError as error:
        return [StorageError("IDX005", error.message, path=error.where.get("path", stem), hint=error.hint)]
    return []


def _hash(array: npt.NDArray[Any]) -> str:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"{array.dtype.str} {list(array.shape)} {xxh3_128(flat.data).hex()}"
