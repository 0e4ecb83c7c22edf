"""Save the rows of a Levanter store that its chunks still hold, and make a ledger from what is there."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.convert.repair_indexed import Kept, Rebuilt, beyond
from tokenreel.convert.virtual import Spliced
from tokenreel.errors import FormatError, TokenreelError
from tokenreel.formats import open_shard
from tokenreel.formats.base import Found
from tokenreel.formats.indexed import is_count
from tokenreel.formats.levanter_ledger import FIELDS, LEDGER, parse_ledger
from tokenreel.formats.levanter_write import HOLDS, open_writer
from tokenreel.formats.writing import WriteOptions
from tokenreel.formats.zarr_array import METADATA, ZarrArray
from tokenreel.store import loads_strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokenreel.convert.repair_indexed import Wish
    from tokenreel.store import Store

STEP = 1 << 20


def is_index(store: Store, path: str) -> bool:
    """Return whether a ledger can be read and says that its cache is finished."""
    try:
        return store.exists(path) and parse_ledger(store, path).finished
    except TokenreelError:
        return False


def place(found: Found) -> str:
    """Return the folder of the ledger of a store, with its slash; of several folders above, see `find`."""
    return found.order.partition("\0")[0]


def find(store: Store, paths: Sequence[str], wish: Wish) -> list[Found]:  # noqa: ARG001
    """Return the stores of caches whose ledger is gone, is none, or is not finished.

    A store right below the ledger's folder is the whole cache; else every shard is a folder. Of a cache that was not
    finished, shards that its ledger does not call finished are left out: whether all of their rows were written is not said.
    """
    out: dict[str, Found] = {}
    ends = [f"/{field}/offsets/{METADATA}" for field in reversed(FIELDS)]
    for path in paths:
        end = next((one for one in ends if f"/{path}".endswith(one)), None)
        if end is None:
            continue
        name = path.removesuffix(f"/offsets/{METADATA}")
        shard = name[: -len(end.removesuffix(f"/offsets/{METADATA}"))] if name not in FIELDS else ""
        folder = shard.rpartition("/")[0]
        above = next((one for one in (shard, folder) if f"{one}/{LEDGER}".lstrip("/") in paths), None)
        above = (shard if not shard else folder) if above is None else above
        top = f"{above}/" if above else ""
        rank = _finished(store, f"{top}{LEDGER}", shard.removeprefix(top))
        if rank is not None:
            files = tuple(sorted(one for one in paths if one.startswith(f"{name}/")))
            out[name] = Found("levanter", name, files, f"{top}\0{rank:012d}\0{name}")
    return sorted(out.values(), key=lambda one: one.order)


def _finished(store: Store, ledger: str, shard: str) -> int | None:
    """Return a shard's rank in the order of a ledger, 0 where nothing says any, None for one that is not finished."""
    value = _ledger(store, ledger)
    order = value.get("finished_shards")
    if not shard or not isinstance(order, list) or value.get("is_finished") is True:
        return 0
    return order.index(shard) if shard in order else None


def _ledger(store: Store, path: str) -> dict[str, Any]:
    try:
        value = loads_strict(store.read(path), path) if store.exists(path) else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def rebuild(store: Store, found: Found, wish: Wish) -> Rebuilt:  # noqa: ARG001
    """Return the rows that lie in chunks that can be read, written anew; a store in which all can be read is kept so.

    Raises `FormatError` (FLT020) where the arrays are not described.
    """
    try:
        data, offsets = (ZarrArray(store, f"{found.name}/{part}") for part in ("data", "offsets"))
    except TokenreelError as error:
        raise beyond(found, f"its arrays are not described: {error.code}", METADATA) from error
    ends, said = _ends(offsets)
    good = _readable(data, ends)
    dtype = data.dtype.name
    documents, tokens, digest = 0, 0, hashlib.sha256()
    for ids, lengths in _runs(data, ends, good):
        digest.update(np.ascontiguousarray(ids, dtype="<i4").data.cast("B"))
        documents, tokens = documents + len(lengths), tokens + len(ids)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) <= HOLDS.largest_id:
            raise beyond(found, f"its ids are of {dtype} and do not fit int32", "int32")
    if not documents:
        raise beyond(found, "no row of it can be read", "the store once more, from where it came")
    if documents == said:
        files = {path: Spliced.whole(store, path) for path in found.files if store.exists(path)}
        same = Found("levanter", found.name, tuple(files), found.order)
        return Rebuilt(same, files, (), 0, 0, (documents, tokens))
    changes = (
        [f"{said - documents} of {said} rows lie in chunks that are missing or damaged: left out"]
        if said > documents
        else []
    )
    changes.append(f"written anew as int32{'' if dtype == 'int32' else f', as its writer does: it was {dtype}'}")
    lost = int(ends[-1]) - tokens if len(ends) - 1 == said else None
    shard = _folder(found.name)

    def write(out: Path) -> None:
        layout = {"layout": "sharded" if shard else "consolidated"}
        writer = open_writer(out, shard or "x", WriteOptions("int32", options=layout))
        try:
            for ids, lengths in _runs(data, ends, good):
                writer.add_documents(ids, lengths)
            writer.finish()
        except BaseException:
            writer.abort()
            raise

    name = f"{shard}/{FIELDS[0]}" if shard else FIELDS[0]
    new = Found("levanter", name, (), found.order)
    return Rebuilt(new, {}, tuple(changes), said - documents, lost, (documents, tokens), write, digest.hexdigest())


def _folder(name: str) -> str:
    for field in reversed(FIELDS):
        if name == field or name.endswith(f"/{field}"):
            return name[: -len(field)].rstrip("/")
    return name


def _ends(offsets: ZarrArray) -> tuple[npt.NDArray[np.int64], int]:
    """Return 0 and the ends of rows as far as they can be read and rise, and the number of rows that is said."""
    rows = int(offsets.read(0, 1)[0])
    if not 0 <= rows < min(offsets.described.length, 1 << 40):
        return np.zeros(1, dtype=np.int64), 0
    parts = [np.zeros(1, dtype=np.int64)]
    step = offsets.described.inner
    for begin in range(1, rows + 1, step):
        try:
            part = offsets.read(begin, min(rows + 1, begin + step))
        except FormatError:
            break
        falls = np.flatnonzero(np.diff(part, prepend=parts[-1][-1]) < 0)
        parts.append(part[: falls[0]] if len(falls) else part)
        if len(falls):
            break
    return np.concatenate(parts), rows


def _readable(data: ZarrArray, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which rows lie in chunks that can be read."""
    good = np.ones(len(ends) - 1, dtype=bool)
    inner = data.described.inner
    for chunk in range(-(-int(min(ends[-1], data.described.length)) // inner)):
        low, high = chunk * inner, (chunk + 1) * inner
        try:
            data.read(low, min(high, int(ends[-1])))
        except FormatError:
            good &= (ends[1:] <= low) | (ends[:-1] >= high)
    return good & (ends[1:] <= data.described.length)


def _runs(
    data: ZarrArray, ends: npt.NDArray[np.int64], good: npt.NDArray[np.bool_]
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Yield (ids, lengths) of runs of rows that can be read, about a million ids at a time."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], good, [False])).astype(np.int8)))
    for first, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        at = first
        while at < stop:
            end = min(stop, max(at + 1, int(np.searchsorted(ends, ends[at] + STEP, side="right")) - 1))
            yield data.read(int(ends[at]), int(ends[end])), np.diff(ends[at : end + 1])
            at = end


def indices(store: Store, kept: Sequence[Kept]) -> dict[str, bytes]:
    """Return the ledger of every cache, finished: counts as they are, what it says of how it was made as it was."""
    folders: dict[str, list[tuple[str, int, int]]] = {}
    for one in kept:
        documents, tokens = one.rebuilt.entry if one.rebuilt is not None else _counts(store, one.found)
        top = _top(store, one.found)
        shard = _folder(one.found.name).removeprefix(top.rstrip("/")).lstrip("/")
        folders.setdefault(top, []).append((shard, documents, tokens))
    out = {}
    for top, rows in folders.items():
        sharded = any(shard for shard, _, _ in rows)
        names = [shard or "part-00000" for shard, _, _ in rows]
        total = sum(tokens for _, _, tokens in rows)
        old = _ledger(store, f"{top}{LEDGER}")
        documents = sum(one[1] for one in rows)
        made_of = {name: one[1] for name, one in zip(names, rows, strict=True)}
        if not sharded and _fits(old, documents):  # what the store was made of
            names, made_of = old["finished_shards"], old["shard_rows"]
        value = {
            "total_num_rows": documents,
            "shard_rows": made_of,
            "is_finished": True,
            "finished_shards": names,
            "field_counts": {FIELDS[0]: total},
            "layout": "sharded" if sharded else "consolidated",
            "metadata": old.get("metadata", {"preprocessor_metadata": {}}),
        }
        if sharded:
            value["field_counts_by_shard"] = {name: {FIELDS[0]: one[2]} for name, one in zip(names, rows, strict=True)}
        out[f"{top}{LEDGER}"] = json.dumps(value, sort_keys=True).encode()
    return out


def _fits(old: dict[str, Any], documents: int) -> bool:
    rows, order = old.get("shard_rows"), old.get("finished_shards")
    if not isinstance(rows, dict) or not isinstance(order, list) or not all(map(is_count, rows.values())):
        return False
    return order == list(rows) and sum(rows.values()) == documents


def _top(store: Store, found: Found) -> str:
    """Return the folder of the ledger, with its slash."""
    if "\0" in found.order:
        return place(found)
    above = [f"{'/'.join(found.name.split('/')[:depth])}/" for depth in range(1, found.name.count("/") + 1)]
    return next((one for one in ("", *above) if store.exists(f"{one}{LEDGER}")), "")


def _counts(store: Store, found: Found) -> tuple[int, int]:
    shard = open_shard(store, found)
    try:
        return shard.documents, shard.tokens
    finally:
        shard.close()
