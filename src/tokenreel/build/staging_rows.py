"""Rows of staged parts: keys, names and ids of the documents of a batch that stay."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from tokenreel.build.dedup import scoped_key
from tokenreel.build.staging_parts import schema
from tokenreel.build.staging_plan import keeps_text, signs
from tokenreel.text.texts import text_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.build.staging_plan import Staging
    from tokenreel.build.text_batches import TextBatch
    from tokenreel.config.mixed import MixedRecipe


def record_batch(
    batch: TextBatch,
    rows: npt.NDArray[np.int64],
    texts: Any,
    staging: Staging,
    ids: npt.NDArray[np.uint32],
    lengths: npt.NDArray[np.int64],
    full: npt.NDArray[np.int64],
) -> Any:
    """Return the rows of the documents `rows` of a batch, with their final texts and ids, as a ``pyarrow.RecordBatch``."""
    import pyarrow as pa

    recipe, pick = staging.plan.recipe, rows.tolist()
    kind = schema(text=keeps_text(recipe), near=signs(recipe))
    names, keys = _names(texts)
    urls, upstream, groups = (_of(values, pick) for values in (batch.urls, batch.upstream, batch.groups))
    described = [None if one is None else _json(one) for one in _of(batch.metadata, pick)]
    edges = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    numbers = batch.first + rows if batch.numbers is None else batch.numbers[rows]
    columns = {
        "id": pa.Array.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(keys)]),
        "doc": pa.Array.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(names)]),
        "url_key": pa.array(_scoped(urls, "url", staging), pa.binary(16)),
        "id_key": pa.array(_scoped(upstream, "id", staging), pa.binary(16)),
        "url": pa.array(urls, pa.string()),
        "upstream_id": pa.array(upstream, pa.string()),
        "group": pa.array(groups, pa.string()),
        "metadata": pa.array(described, pa.string()),
        "record": pa.array(numbers, pa.int64()),
        "full_tokens": pa.array(full, pa.int64()),
        "ids": pa.ListArray.from_arrays(pa.array(edges), pa.array(ids, pa.uint32()), type=kind.field("ids").type),
    }
    if "text" in kind.names:
        columns["text"] = texts
    if "near" in kind.names:
        columns["near"] = _signed(texts, recipe, kind)
    return pa.RecordBatch.from_arrays([columns[name] for name in kind.names], schema=kind)


def _names(texts: Any) -> tuple[bytes, bytes]:
    """Return, end to end, what `text_id` and `text_key` give of every text; the texts are valid."""
    data, offsets = text_bytes(texts)
    view, edges = memoryview(data), offsets.tolist()  # type: ignore[arg-type]
    names, keys = bytearray(), bytearray()
    for begin, end in pairwise(edges):
        text = view[begin:end]
        names += xxhash.xxh3_128_digest(text)
        keys += hashlib.sha256(text).digest()[:16]
    return bytes(names), bytes(keys)


def _of(values: list[Any] | None, pick: list[int]) -> list[Any]:
    return [None] * len(pick) if values is None else [values[k] for k in pick]


def _json(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _scoped(values: list[str | None], what: str, staging: Staging) -> list[bytes | None]:
    """Return keys within the scope that the recipe's dedup names; Nones where it does not go by this."""
    dedup = staging.plan.recipe.dedup
    if dedup is None or what not in dedup.by:
        return [None] * len(values)
    how = dedup.url_scope if what == "url" else dedup.id_scope
    family = staging.table.family
    scope = {"global": "", "source": staging.name, "family": family or staging.name}[how]
    # A family and a source of one name are two scopes.
    scope = f"{'family' if how == 'family' and family else how}:{scope}"
    return [None if one is None else scoped_key(scope, one) for one in values]


def _signed(texts: Any, recipe: MixedRecipe, kind: Any) -> Any:
    import pyarrow as pa

    from tokenreel.build.near_duplicates import signatures

    near = None if recipe.dedup is None else recipe.dedup.near
    if near is None:
        raise ValueError("no near-duplicates were asked for")
    found = signatures(texts, near.permutations, near.ngram, near.seed)
    edges = np.arange(len(found) + 1, dtype=np.int32) * near.permutations
    return pa.ListArray.from_arrays(pa.array(edges), pa.array(found.reshape(-1)), type=kind.field("near").type)
